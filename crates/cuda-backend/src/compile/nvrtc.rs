//! NVRTC, the CUDA compiler as a library. Opened when something is to be compiled, and not before.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::PathBuf;
use std::ptr::null;
use std::sync::OnceLock;

use squall_dylib::{Found, Wanted};

use crate::compile::CompileError;

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
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
}

/// The compiler, ready to be used from any thread.
pub struct Nvrtc {
    functions: Functions,
    path: PathBuf,
    version: (i32, i32),
}

const WANTED: Wanted = Wanted {
    what: "NVRTC",
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    variable: "SQUALL_NVRTC",
    wheels: &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
    install: "NVRTC of CUDA 12 or 13: `pip install nvidia-cuda-nvrtc`, or the package `cuda-nvrtc-13-0` of NVIDIA's repository for Debian",
};

impl Nvrtc {
    /// The process's compiler; what was tried, when there is none.
    pub fn get() -> Result<&'static Nvrtc, CompileError> {
        static NVRTC: OnceLock<Result<Nvrtc, CompileError>> = OnceLock::new();
        NVRTC.get_or_init(Nvrtc::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Nvrtc, CompileError> {
        let found =
            squall_dylib::open(&WANTED).map_err(|missing| CompileError::Missing(missing.to_string()))?;
        // SAFETY: each name is a function of NVRTC with the type of its field, by NVRTC's header.
        let functions = unsafe {
            Functions {
                version: function(&found, c"nvrtcVersion")?,
                error: function(&found, c"nvrtcGetErrorString")?,
                create: function(&found, c"nvrtcCreateProgram")?,
                destroy: function(&found, c"nvrtcDestroyProgram")?,
                compile: function(&found, c"nvrtcCompileProgram")?,
                cubin_size: function(&found, c"nvrtcGetCUBINSize")?,
                cubin: function(&found, c"nvrtcGetCUBIN")?,
                log_size: function(&found, c"nvrtcGetProgramLogSize")?,
                log: function(&found, c"nvrtcGetProgramLog")?,
            }
        };
        let mut version = (0, 0);
        // SAFETY: both places are written before the call returns.
        unsafe { (functions.version)(&mut version.0, &mut version.1) };
        Ok(Nvrtc { functions, path: found.path, version })
    }

    /// The file that it came from, and its version.
    pub fn found(&self) -> String {
        format!("NVRTC {}.{} from {}", self.version.0, self.version.1, self.path.display())
    }

    /// Compiles to machine code for one architecture. A program that does not compile is an error with the compiler's log.
    pub fn compile(&self, name: &str, text: &str, options: &[CString]) -> Result<Vec<u8>, CompileError> {
        let c_string = |text: &str| {
            CString::new(text).map_err(|_| CompileError::Failed {
                kernel: name.to_string(),
                reason: "its text contains a zero byte".to_string(),
                log: String::new(),
            })
        };
        let (text, file) = (c_string(text)?, c_string(name)?);
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let f = &self.functions;
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
        if result != 0 {
            return Err(failed("nvrtcCompileProgram", result, program.log()));
        }
        let mut size = 0;
        // SAFETY: the program is compiled; `size` is written.
        match unsafe { (f.cubin_size)(program.handle, &mut size) } {
            0 if size > 0 => {}
            result => return Err(failed("nvrtcGetCUBINSize", result, program.log())),
        }
        let mut cubin = vec![0u8; size];
        // SAFETY: the call writes `size` bytes, as it said above.
        match unsafe { (f.cubin)(program.handle, cubin.as_mut_ptr().cast()) } {
            0 => Ok(cubin),
            result => Err(failed("nvrtcGetCUBIN", result, String::new())),
        }
    }
}

/// A function of the library.
///
/// # Safety
/// The function of that name must have the type `T`.
unsafe fn function<T: Copy>(found: &Found, name: &CStr) -> Result<T, CompileError> {
    // SAFETY: the caller vouches for the type; the library is never closed.
    let symbol = unsafe { found.library.get::<T>(name.to_bytes_with_nul()) };
    symbol.map(|symbol| *symbol).map_err(|error| {
        CompileError::Missing(format!("{} is no NVRTC that can be used: {error}", found.path.display()))
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
