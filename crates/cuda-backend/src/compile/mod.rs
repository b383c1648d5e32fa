//! From a kernel's text to machine code for one architecture: compiled once a process, and kept on disk.

mod cache;
mod nvrtc;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use nvrtc::{Nvrtc, Target};

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
/// That a helper of the prelude is not used is no fault of a kernel.
const OPTIONS: [&str; 4] = ["--std=c++17", "--fmad=false", "-default-device", "-diag-suppress=177"];

/// Compiles for a GPU's architecture, without any cache: the tests' way to see that a kernel compiles.
pub fn compile(source: &Specialised, gpu: Arch) -> Result<Vec<u8>, CompileError> {
    let nvrtc = Nvrtc::get()?;
    nvrtc.compile(source.kernel, &source.text, nvrtc.target(gpu)?, &OPTIONS)
}

/// A compiled kernel.
#[derive(Clone)]
pub(crate) struct Code {
    /// Machine code, or PTX with a zero byte at its end.
    pub(crate) bytes: Arc<[u8]>,
    /// Whether it comes from disk, where a run with another driver may have left it.
    pub(crate) kept: bool,
}

/// The code of one kernel, made by whoever asks first, while the others wait.
type Slot = Arc<OnceLock<Result<Code, CompileError>>>;

static MADE: Mutex<BTreeMap<Key, Slot>> = Mutex::new(BTreeMap::new());

fn key(source: &Specialised, gpu: Arch) -> Key {
    Key::new(&[&source.text, &OPTIONS.join(" "), &gpu.to_string()])
}

/// The code of a kernel: from this process, else from disk, else compiled. Called while plans are bound, by all ranks at once;
/// each kernel is compiled by one of them.
pub(crate) fn code(source: &Specialised, gpu: Arch) -> Result<Code, CompileError> {
    let key = key(source, gpu);
    let slot = MADE.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
    let made = slot.get_or_init(|| match cache::folder().and_then(|folder| cache::read(&folder, key)) {
        Some(code) => Ok(Code { bytes: code.into(), kept: true }),
        None => make(source, gpu, key),
    });
    made.clone()
}

/// Compiles again what the driver refused, and keeps that instead.
pub(crate) fn code_anew(source: &Specialised, gpu: Arch) -> Result<Code, CompileError> {
    let key = key(source, gpu);
    let made = make(source, gpu, key);
    let slot = Slot::new(OnceLock::from(made.clone()));
    MADE.lock().unwrap_or_else(PoisonError::into_inner).insert(key, slot);
    made
}

fn make(source: &Specialised, gpu: Arch, key: Key) -> Result<Code, CompileError> {
    let code = compile(source, gpu)?;
    if let Some(folder) = cache::folder() {
        cache::write(&folder, key, &code);
    }
    Ok(Code { bytes: code.into(), kept: false })
}
