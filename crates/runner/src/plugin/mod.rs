//! Plugins: dynamic libraries that a manifest or the command line names, and that bring kernels and ops.
//!
//! The one place that opens code. A file is looked at before it is opened (`file.rs`), then it is opened and greeted (`open.rs`), its
//! tables are read (`tables.rs`), and what they describe stands beside what is linked: an op is a [`LibraryOp`](squall_core::LibraryOp),
//! a kernel a [`KernelDef`], and nothing else knows that they come from elsewhere. The interface is [`squall_plugin::abi`]; its other side, for
//! authors in Rust, is in the crate `squall-plugin`.
//!
//! A library stays open for the life of the process, and is opened once, however many runs it serves.
//!
//! All unsafe code of the runner stands here. What a plugin's tables say is checked when it is loaded; what it does when it is called, nobody can
//! check: that is what its safety comments mean by the ABI.

mod describe;
mod fault;
mod file;
mod kernel;
mod load;
mod op;
mod open;
mod prepare;
mod segments;
mod tables;
mod work;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use squall_core::KernelDef;

use self::op::LoadedOp;

pub(crate) use load::in_use;
pub use load::{Loaded, Source, Wanted, load, load_named};

/// A plugin that was opened: who messages name. Stays for the life of the process.
pub(crate) struct Plugin {
    name: String,
    version: String,
    path: PathBuf,
    /// Its ops; set once they are read.
    ops: OnceLock<Vec<&'static LoadedOp>>,
    /// Its kernels, by the address of their tables: those that it lists, and those that its ops launch.
    kernels: Mutex<BTreeMap<usize, &'static KernelDef>>,
}

impl Plugin {
    fn kernels(&self) -> MutexGuard<'_, BTreeMap<usize, &'static KernelDef>> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As listings name it.
    fn origin(&self) -> String {
        format!("{} {} ({})", self.name, self.version, self.path.display())
    }
}

impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the plugin `{}` {}", self.name, self.version)
    }
}

/// Runs what a plugin called; a panic of squall's ends here instead of unwinding into the plugin, and is `None`.
fn guarded<T>(body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).ok()
}
