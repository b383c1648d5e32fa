//! From a kernel's text to machine code for one architecture: compiled once a process, and kept on disk.

mod cache;
mod nvrtc;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use nvrtc::Nvrtc;

use crate::kernel::Specialised;
use cache::Key;

/// Why there is no machine code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The compiler is not to be found, or not usable; what was tried, and how to get it.
    #[error("{0}")]
    Missing(String),
    /// The compiler refused the text.
    #[error("kernel `{kernel}` does not compile: {reason}\n{log}")]
    Failed {
        /// The kernel.
        kernel: String,
        /// The compiler's result.
        reason: String,
        /// What it printed.
        log: String,
    },
}

/// A GPU's architecture, as its compute capability: `(9, 0)` is `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arch(pub i32, pub i32);

impl std::fmt::Display for Arch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sm_{}{}", self.0, self.1)
    }
}

/// What every kernel is compiled with. Machine code rather than PTX: a driver older than the compiler takes the one and refuses
/// the other. No contraction of a product and a sum: see `kernel`.
const OPTIONS: [&str; 3] = ["--std=c++17", "--fmad=false", "-default-device"];

/// Compiles for an architecture, without any cache: the tests' way to see that a kernel compiles.
pub fn compile(source: &Specialised, arch: Arch) -> Result<Vec<u8>, CompileError> {
    let options = OPTIONS.iter().map(|option| CString::new(*option));
    let options = options.chain([CString::new(format!("--gpu-architecture={arch}"))]);
    // None of the options has a zero byte.
    let options: Vec<CString> = options.flatten().collect();
    Nvrtc::get()?.compile(source.kernel, &source.text, &options)
}

/// The code of one kernel, made by whoever asks first, while the others wait.
type Slot = Arc<OnceLock<Result<Arc<[u8]>, CompileError>>>;

/// The machine code of a kernel: from this process, else from disk, else compiled. Called while plans are bound, by all ranks at
/// once; each kernel is compiled by one of them.
pub(crate) fn machine_code(source: &Specialised, arch: Arch) -> Result<Arc<[u8]>, CompileError> {
    static MADE: Mutex<BTreeMap<Key, Slot>> = Mutex::new(BTreeMap::new());
    let name = arch.to_string();
    let key = Key::new(&[&source.text, &OPTIONS.join(" "), &name]);
    let slot = MADE.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
    let made = slot.get_or_init(|| {
        let folder = cache::folder();
        if let Some(code) = folder.as_deref().and_then(|folder| cache::read(folder, key)) {
            return Ok(code.into());
        }
        let code = compile(source, arch)?;
        if let Some(folder) = folder {
            cache::write(&folder, key, &code);
        }
        Ok(code.into())
    });
    made.clone()
}
