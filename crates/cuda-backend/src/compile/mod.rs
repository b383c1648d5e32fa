//! From a kernel's text to machine code for one architecture: compiled once a process, and kept on disk.

mod cache;
mod nvrtc;

use std::collections::BTreeMap;
use std::path::Path;
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

/// The PTX for an architecture that the compiler knows: the tests' way to see which instructions a kernel is made of.
pub fn ptx(source: &Specialised, arch: Arch) -> Result<String, CompileError> {
    let mut code = Nvrtc::get()?.compile(source.kernel, &source.text, Target::Ptx(arch), &OPTIONS)?;
    code.pop(); // the zero byte
    Ok(String::from_utf8_lossy(&code).into_owned())
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

/// The codes of a process.
struct Made(Mutex<BTreeMap<Key, Slot>>);

static MADE: Made = Made(Mutex::new(BTreeMap::new()));

impl Made {
    /// What the process has, else what the folder has, else what `compile` makes, which the folder then keeps.
    fn get(
        &self,
        key: Key,
        folder: Option<&Path>,
        compile: impl FnOnce() -> Result<Vec<u8>, CompileError>,
    ) -> Result<Code, CompileError> {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let made = slot.get_or_init(|| match folder.and_then(|folder| cache::read(folder, key)) {
            Some(code) => Ok(Code { bytes: code.into(), kept: true }),
            None => make(key, folder, compile),
        });
        made.clone()
    }

    /// What `compile` makes, in place of what the process and the folder have.
    fn replace(
        &self,
        key: Key,
        folder: Option<&Path>,
        compile: impl FnOnce() -> Result<Vec<u8>, CompileError>,
    ) -> Result<Code, CompileError> {
        let made = make(key, folder, compile);
        let slot = Slot::new(OnceLock::from(made.clone()));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, slot);
        made
    }
}

fn make(
    key: Key,
    folder: Option<&Path>,
    compile: impl FnOnce() -> Result<Vec<u8>, CompileError>,
) -> Result<Code, CompileError> {
    let code = compile()?;
    if let Some(folder) = folder {
        cache::write(folder, key, &code);
    }
    Ok(Code { bytes: code.into(), kept: false })
}

fn key(source: &Specialised, gpu: Arch) -> Key {
    Key::new(&[&source.text, &OPTIONS.join(" "), &gpu.to_string()])
}

/// The code of a kernel: from this process, else from disk, else compiled. Called while plans are bound, by all ranks at once;
/// each kernel is compiled by one of them.
pub(crate) fn code(source: &Specialised, gpu: Arch) -> Result<Code, CompileError> {
    MADE.get(key(source, gpu), cache::folder().as_deref(), || compile(source, gpu))
}

/// Compiles again what the driver refused, and keeps that instead.
pub(crate) fn code_anew(source: &Specialised, gpu: Arch) -> Result<Code, CompileError> {
    MADE.replace(key(source, gpu), cache::folder().as_deref(), || compile(source, gpu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn process() -> Made {
        Made(Mutex::default())
    }

    fn never() -> Result<Vec<u8>, CompileError> {
        panic!("compiled, though it is there")
    }

    #[test]
    fn a_kernel_that_many_ask_for_at_once_is_compiled_once() {
        const THREADS: usize = 8;
        for folder in [None, Some(tempfile::tempdir().unwrap())] {
            let folder = folder.as_ref().map(|folder| folder.path());
            let (process, compiled, start) = (process(), AtomicUsize::new(0), Barrier::new(THREADS));
            let ask = |text: &str| {
                start.wait();
                let compile = || {
                    compiled.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(20)); // while the others ask
                    Ok(text.into())
                };
                process.get(Key::new(&[text]), folder, compile).unwrap()
            };
            let codes: Vec<[Code; 2]> = std::thread::scope(|scope| {
                let askers: Vec<_> =
                    (0..THREADS).map(|_| scope.spawn(|| ["one", "other"].map(ask))).collect();
                askers.into_iter().map(|asker| asker.join().unwrap()).collect()
            });
            assert_eq!(compiled.into_inner(), 2, "two kernels");
            for asked in &codes {
                assert_eq!(asked.each_ref().map(|code| &*code.bytes), [&b"one"[..], b"other"]);
                for (code, first) in asked.iter().zip(&codes[0]) {
                    assert!(Arc::ptr_eq(&code.bytes, &first.bytes) && !code.kept);
                }
            }
        }
    }

    #[test]
    fn a_failure_is_told_to_all_and_is_not_kept_on_disk() {
        let (folder, process, key) = (tempfile::tempdir().unwrap(), process(), Key::new(&[]));
        let error = CompileError::Missing("no compiler".to_string());
        for _ in 0..2 {
            let said = process.get(key, Some(folder.path()), || Err(error.clone())).err();
            assert_eq!(said.as_ref(), Some(&error));
        }
        assert_eq!(cache::read(folder.path(), key), None);
    }

    #[test]
    fn what_is_compiled_anew_replaces_what_process_and_disk_hold() {
        let (folder, key) = (tempfile::tempdir().unwrap(), Key::new(&[]));
        let (folder, process_1) = (Some(folder.path()), process());
        let old = process_1.get(key, folder, || Ok(b"old".into())).unwrap();
        assert!(*old.bytes == *b"old" && !old.kept);

        // A later run, whose driver refuses it.
        let process_2 = process();
        let old = process_2.get(key, folder, never).unwrap();
        assert!(*old.bytes == *b"old" && old.kept);
        let new = process_2.replace(key, folder, || Ok(b"new".into())).unwrap();
        assert!(*new.bytes == *b"new" && !new.kept);
        let again = process_2.get(key, folder, never).unwrap();
        assert!(Arc::ptr_eq(&again.bytes, &new.bytes) && !again.kept);

        let next = process().get(key, folder, never).unwrap();
        assert!(*next.bytes == *b"new" && next.kept);
    }
}
