//! NVRTC, the CUDA compiler as a library. Opened when something is to be compiled, and not before.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::PathBuf;
use std::ptr::null;
use std::sync::OnceLock;

use squall_dylib::{Found, Wanted};

use crate::compile::{Arch, CompileError};
use crate::driver::Driver;

/// A compiler's handle of a program.
type Program = *mut std::ffi::c_void;

/// NVRTC's functions, as far as they are used here. Signatures: the header `nvrtc.h`.
struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    arch_count: unsafe extern "C" fn(*mut c_int) -> c_int,
    arches: unsafe extern "C" fn(*mut c_int) -> c_int,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ptx_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    ptx: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
}

/// The compiler, ready to be used from any thread.
pub struct Nvrtc {
    functions: Functions,
    path: PathBuf,
    version: (i32, i32),
    /// The architectures that it makes machine code for, ascending.
    arches: Vec<Arch>,
}

const WANTED: Wanted = Wanted {
    what: "NVRTC",
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    variable: "SQUALL_NVRTC",
    wheels: &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
    install: "NVRTC of CUDA 12 or 13: `pip install nvidia-cuda-nvrtc`, or the package `cuda-nvrtc-13-0` of NVIDIA's repository for Debian",
};

/// The same for a driver of CUDA 12, which need not take machine code of CUDA 13's compiler.
const WANTED_12: Wanted = Wanted {
    names: &["libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so"],
    wheels: &["nvidia/cuda_nvrtc/lib", "nvidia/cu13/lib"],
    install: "NVRTC of CUDA 12: `pip install nvidia-cuda-nvrtc-cu12`, or the system's package of it",
    ..WANTED
};

/// `NVRTC_ERROR_BUILTIN_OPERATION_FAILURE`: it cannot open the second library that it is made of.
const NO_BUILTINS: c_int = 7;

/// What a kernel is compiled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Machine code for an architecture.
    Machine(Arch),
    /// PTX for an architecture, which the driver compiles further: for a GPU that is newer than the compiler.
    Ptx(Arch),
}

impl Target {
    /// What a compiler that knows `arches` makes for a GPU: machine code for the GPU's own architecture, or the newest before it of
    /// the same major version, whose code it runs too; else PTX. `None` for a GPU older than all of them.
    fn best(gpu: Arch, arches: &[Arch]) -> Option<Target> {
        let newest = arches
            .iter()
            .copied()
            .filter(|arch| (arch.0, arch.1) <= (gpu.0, gpu.1))
            .max_by_key(|a| (a.0, a.1))?;
        Some(if newest.0 == gpu.0 { Target::Machine(newest) } else { Target::Ptx(newest) })
    }
}

static NVRTC: OnceLock<Result<Nvrtc, CompileError>> = OnceLock::new();

impl Nvrtc {
    /// The process's compiler; what was tried, when there is none.
    pub fn get() -> Result<&'static Nvrtc, CompileError> {
        NVRTC.get_or_init(Nvrtc::open).as_ref().map_err(Clone::clone)
    }

    /// The compiler, if it was opened.
    pub(crate) fn opened() -> Option<&'static Nvrtc> {
        NVRTC.get()?.as_ref().ok()
    }

    fn open() -> Result<Nvrtc, CompileError> {
        let twelve = Driver::get().is_ok_and(|driver| driver.version() < 13000);
        let wanted = if twelve { &WANTED_12 } else { &WANTED };
        let found =
            squall_dylib::open(wanted).map_err(|missing| CompileError::Missing(missing.to_string()))?;
        // SAFETY: each name is a function of NVRTC with the type of its field, by NVRTC's header.
        let functions = unsafe {
            Functions {
                version: function(&found, "nvrtcVersion")?,
                error: function(&found, "nvrtcGetErrorString")?,
                create: function(&found, "nvrtcCreateProgram")?,
                destroy: function(&found, "nvrtcDestroyProgram")?,
                compile: function(&found, "nvrtcCompileProgram")?,
                arch_count: function(&found, "nvrtcGetNumSupportedArchs")?,
                arches: function(&found, "nvrtcGetSupportedArchs")?,
                cubin_size: function(&found, "nvrtcGetCUBINSize")?,
                cubin: function(&found, "nvrtcGetCUBIN")?,
                ptx_size: function(&found, "nvrtcGetPTXSize")?,
                ptx: function(&found, "nvrtcGetPTX")?,
                log_size: function(&found, "nvrtcGetProgramLogSize")?,
                log: function(&found, "nvrtcGetProgramLog")?,
            }
        };
        let mut version = (0, 0);
        // SAFETY: both places are written before the call returns.
        let told = unsafe { (functions.version)(&mut version.0, &mut version.1) };
        let mut count = 0;
        // SAFETY: `count` is written.
        let counted = unsafe { (functions.arch_count)(&mut count) };
        // So many architectures there will never be.
        let mut numbers = vec![0; usize::try_from(count).unwrap_or(0).min(1 << 16)];
        // SAFETY: the call writes as many numbers as it said.
        let listed = if numbers.is_empty() { 1 } else { unsafe { (functions.arches)(numbers.as_mut_ptr()) } };
        if (told, counted, listed) != (0, 0, 0) {
            return Err(CompileError::Missing(format!(
                "{} is no NVRTC that can be used: it does not tell its version and the architectures that it knows",
                found.path.display()
            )));
        }
        let arches = numbers.into_iter().map(|number| Arch(number / 10, number % 10)).collect();
        Ok(Nvrtc { functions, path: found.path, version, arches })
    }

    /// What it makes for a GPU of this architecture.
    pub fn target(&self, gpu: Arch) -> Result<Target, CompileError> {
        let oldest = || {
            self.arches.iter().min_by_key(|arch| (arch.0, arch.1)).map_or("none".to_string(), Arch::to_string)
        };
        Target::best(gpu, &self.arches).ok_or_else(|| {
            let (major, minor) = self.version;
            CompileError::Missing(format!(
                "NVRTC {major}.{minor} in {} compiles for {} and newer, and this GPU is {gpu}: set SQUALL_NVRTC to the file of an \
                 older NVRTC, such as `pip install nvidia-cuda-nvrtc-cu12` brings",
                self.path.display(),
                oldest()
            ))
        })
    }

    /// The file that it came from, and its version.
    pub fn found(&self) -> String {
        format!("NVRTC {}.{} from {}", self.version.0, self.version.1, self.path.display())
    }

    /// Whether it compiles anything at all.
    pub(crate) fn try_out(&self) -> Result<(), CompileError> {
        let Some(&arch) = self.arches.last() else { return Ok(()) };
        self.compile("nothing", "", Target::Machine(arch), &[]).map(|_| ())
    }

    /// What to know of it beside a driver of this CUDA version (13020 is 13.2); `gets_ptx`: whether a GPU here gets PTX from it.
    /// Machine code runs under every driver of its major version, PTX under none that is older than its compiler.
    pub(crate) fn warning(&self, driver: i32, gets_ptx: bool) -> Option<String> {
        warning(self.version, (driver / 1000, driver % 1000 / 10), gets_ptx)
    }

    fn incomplete(&self, log: &str) -> CompileError {
        let log: String = log.lines().map(|line| format!("\n  {}", line.trim())).collect();
        CompileError::Missing(format!(
            "the NVRTC in {} is not whole: it lacks its library `libnvrtc-builtins`, which belongs beside it:{log}\n\
             install {}; a wheel brings both libraries",
            self.path.display(),
            WANTED.install
        ))
    }

    /// Compiles to a target. A program that does not compile is an error with the compiler's log. PTX ends with a zero byte.
    pub(crate) fn compile(
        &self,
        name: &str,
        text: &str,
        target: Target,
        options: &[&str],
    ) -> Result<Vec<u8>, CompileError> {
        let c_string = |text: &str| {
            CString::new(text).map_err(|_| CompileError::Failed {
                kernel: name.to_string(),
                reason: "its text contains a zero byte".to_string(),
                log: String::new(),
            })
        };
        let (text, file) = (c_string(text)?, c_string(name)?);
        let architecture = match target {
            Target::Machine(arch) => format!("--gpu-architecture={arch}"),
            Target::Ptx(Arch(major, minor)) => format!("--gpu-architecture=compute_{major}{minor}"),
        };
        let options = options.iter().copied().chain([architecture.as_str()]).map(c_string);
        let options: Vec<CString> = options.collect::<Result<_, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let f = &self.functions;
        let (size_of, code_of) = match target {
            Target::Machine(_) => (f.cubin_size, f.cubin),
            Target::Ptx(_) => (f.ptx_size, f.ptx),
        };
        let mut program = Job { handle: std::ptr::null_mut(), functions: f };
        let failed = |what: &str, result: c_int, log: String| {
            // SAFETY: returns a static string for every number.
            let reason = unsafe { CStr::from_ptr((f.error)(result)) }.to_string_lossy();
            CompileError::Failed { kernel: name.to_string(), reason: format!("{what}: {reason}"), log }
        };
        // SAFETY: the strings live until the program is destroyed; no headers are given.
        match unsafe { (f.create)(&mut program.handle, text.as_ptr(), file.as_ptr(), 0, null(), null()) } {
            0 => {}
            result => return Err(failed("nvrtcCreateProgram", result, String::new())),
        }
        // SAFETY: the program was made above, and `options` are as many as is said.
        let result = unsafe { (f.compile)(program.handle, options.len() as c_int, options.as_ptr()) };
        match result {
            0 => {}
            NO_BUILTINS => return Err(self.incomplete(&program.log())),
            _ => return Err(failed("nvrtcCompileProgram", result, program.log())),
        }
        let mut size = 0;
        // SAFETY: the program is compiled; `size` is written.
        match unsafe { size_of(program.handle, &mut size) } {
            0 if size > 0 => {}
            result => return Err(failed("asking for the code's size", result, program.log())),
        }
        let mut code = vec![0u8; size];
        // SAFETY: the call writes `size` bytes, as it said above.
        match unsafe { code_of(program.handle, code.as_mut_ptr().cast()) } {
            0 => Ok(code),
            result => Err(failed("asking for the code", result, String::new())),
        }
    }
}

fn warning(nvrtc: (i32, i32), driver: (i32, i32), gets_ptx: bool) -> Option<String> {
    let refused = nvrtc.0 > driver.0 || (gets_ptx && nvrtc > driver);
    let [(major, minor), (of, point)] = [nvrtc, driver];
    let wheel = if of < 13 { "nvidia-cuda-nvrtc-cu12" } else { "nvidia-cuda-nvrtc" };
    refused.then(|| {
        format!(
            "warning: NVRTC {major}.{minor} is newer than the driver, which is of CUDA {of}.{point} and may refuse what it compiles: \
             use an NVRTC that is no newer, such as `pip install '{wheel}=={of}.{point}.*'` brings, or a newer driver"
        )
    })
}

/// A function of the library.
///
/// # Safety
/// The function of that name must have the type `T`.
unsafe fn function<T: Copy>(found: &Found, name: &str) -> Result<T, CompileError> {
    // SAFETY: the caller's.
    unsafe { found.function(name) }.map_err(|reason| {
        let file = found.path.display();
        CompileError::Missing(format!("{file} is no NVRTC that can be used: it has no `{name}`: {reason}"))
    })
}

/// A program, destroyed on drop.
struct Job<'a> {
    handle: Program,
    functions: &'a Functions,
}

impl Job<'_> {
    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: the program exists; `size` is written.
        if unsafe { (self.functions.log_size)(self.handle, &mut size) } != 0 || size == 0 {
            return String::new();
        }
        let mut log = vec![0u8; size];
        // SAFETY: the call writes `size` bytes, the last of them zero.
        unsafe { (self.functions.log)(self.handle, log.as_mut_ptr().cast()) };
        log.pop();
        String::from_utf8_lossy(&log).trim_end().to_string()
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the program was made by the same library and is used no more.
            unsafe { (self.functions.destroy)(&mut self.handle) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_gets_its_own_code_or_an_older_ones_or_ptx() {
        let known = [Arch(7, 5), Arch(8, 0), Arch(8, 9), Arch(9, 0)];
        let best = |gpu| Target::best(gpu, &known);
        assert_eq!(best(Arch(9, 0)), Some(Target::Machine(Arch(9, 0))));
        assert_eq!(best(Arch(8, 6)), Some(Target::Machine(Arch(8, 0))));
        assert_eq!(best(Arch(12, 0)), Some(Target::Ptx(Arch(9, 0))));
        assert_eq!(best(Arch(7, 0)), None);
    }

    #[test]
    fn a_compiler_newer_than_the_driver_is_warned_about_where_that_matters() {
        // Machine code, which runs within its major version.
        for nvrtc in [(12, 9), (13, 0), (13, 5)] {
            assert_eq!(warning(nvrtc, (13, 0), false), None);
        }
        let said = warning((13, 0), (12, 4), false).unwrap();
        assert!(
            said.starts_with("warning: NVRTC 13.0 is newer than the driver, which is of CUDA 12.4"),
            "{said}"
        );
        assert!(said.contains("'nvidia-cuda-nvrtc-cu12==12.4.*'"), "{said}");
        // PTX, which is refused even by a driver of the same major version.
        assert_eq!(warning((13, 0), (13, 0), true), None);
        let said = warning((13, 5), (13, 0), true).unwrap();
        assert!(
            said.contains("NVRTC 13.5 is newer") && said.contains("'nvidia-cuda-nvrtc==13.0.*'"),
            "{said}"
        );
    }
}
