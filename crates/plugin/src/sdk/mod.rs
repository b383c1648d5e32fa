//! The plugin's side: what [`export!`](crate::export) calls.
//!
//! What a crate registers becomes tables (`tables`); their functions find the op or the kernel again, read their arguments, and call
//! it inside `panic::guarded`. What the op is given in turn are core's traits on top of the host's tables: `cx` while it is made
//! ready, `stream` when it is enqueued.

mod cx;
mod describe;
mod launch;
mod life;
mod panic;
mod prepare;
mod stream;
mod tables;
mod work;

use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use squall_core::{DeviceError, OpError};

use crate::abi::{self, status};
use crate::convert::{Malformed, check_header, write_line};

/// What a crate exports: one a crate, in a `static`.
#[doc(hidden)]
pub struct Export {
    name: &'static str,
    version: &'static str,
    table: OnceLock<Option<tables::Table<abi::Plugin>>>,
}

/// Why the table could not be made, for `refuse`.
static REFUSED: Mutex<String> = Mutex::new(String::new());

impl Export {
    /// What the crate of that name and version registers.
    pub const fn new(name: &'static str, version: &'static str) -> Export {
        Export { name, version, table: OnceLock::new() }
    }

    /// What [`abi::Entry`] does: the table, or null for a host that this plugin does not understand. A crate that registers what cannot be
    /// exported gets a table that has nothing, whose `init` says why.
    ///
    /// # Safety
    /// `host` is null or the host's table.
    pub unsafe fn entry(&'static self, host: *const abi::Host) -> *const abi::Plugin {
        panic::keep_words();
        let table = panic::catch(|| {
            // SAFETY: the caller's.
            unsafe { check_header(host, "the host's table") }.ok()?;
            let table = self.table.get_or_init(|| {
                let made = tables::plugin(self.name, self.version);
                let refused = |error: Malformed| {
                    let nothing = tables::nothing(self.name, self.version);
                    *REFUSED.lock().unwrap_or_else(PoisonError::into_inner) = error.0;
                    nothing.map(|table| abi::Plugin { init: Some(refuse), ..table })
                };
                made.or_else(refused).ok().map(tables::Table)
            });
            table.as_ref().map(|table| &raw const table.0)
        });
        table.ok().flatten().unwrap_or(ptr::null())
    }
}

/// The [`abi::Plugin::init`] of a plugin that cannot be.
unsafe extern "C" fn refuse(_: *const abi::Host, error: *mut abi::Error) -> i32 {
    // SAFETY: null or the caller's to be written, by the ABI.
    if let Some(error) = unsafe { error.as_mut() } {
        write_line(&mut error.text, &REFUSED.lock().unwrap_or_else(PoisonError::into_inner));
    }
    status::FAILED
}

/// The host is older than what is asked of it.
fn absent(function: &str) -> DeviceError {
    DeviceError::Unsupported(format!("this squall is too old for the plugin: its ABI has no `{function}`"))
}

impl From<Malformed> for DeviceError {
    fn from(error: Malformed) -> DeviceError {
        DeviceError::Failed(error.0)
    }
}

impl From<Malformed> for OpError {
    fn from(error: Malformed) -> OpError {
        OpError::Device(error.into())
    }
}
