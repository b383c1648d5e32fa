//! NCCL's functions, looked up in the library when it is first needed.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use squall_dylib::{Found, Wanted};

use crate::error::NcclError;

/// How to get it.
pub(crate) const INSTALL: &str = "NCCL 2.22 or later: `pip install nvidia-nccl-cu13`, or the package `libnccl2` of NVIDIA's repository for Debian";
/// The variable that names its file.
pub(crate) const VARIABLE: &str = "SQUALL_NCCL";
/// From this version on `ncclCommAbort` and `ncclCommDestroy` inside a group free at the group's end.
pub(crate) const MINIMUM: Version = Version(22200);

pub(crate) static WANTED: Wanted = Wanted {
    what: "NCCL",
    names: &["libnccl.so.2"],
    variable: VARIABLE,
    wheels: &["nvidia/nccl/lib"],
    install: INSTALL,
};

/// A version of NCCL, as the library numbers it. Displayed as `2.28.9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(c_int);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Two digits for the minor version since 2.9, one before.
        let (major, minor) = if self.0 >= 10_000 { (10_000, 100) } else { (1000, 10) };
        write!(f, "{}.{}.{}", self.0 / major, self.0 / 100 % minor, self.0 % 100)
    }
}

#[cfg(test)]
impl Version {
    pub(crate) const fn of(major: c_int, minor: c_int, patch: c_int) -> Version {
        Version(major * 10_000 + minor * 100 + patch)
    }
}

/// `ncclComm_t`.
pub(crate) type RawComm = *mut c_void;
/// `cudaStream_t`.
pub(crate) type RawStream = *mut c_void;
/// `ncclUniqueId`, passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawId(pub(crate) [u8; 128]);

/// `ncclSuccess`.
pub(crate) const SUCCESS: c_int = 0;
/// `ncclInProgress`: what a call on a nonblocking communicator says.
pub(crate) const IN_PROGRESS: c_int = 7;
/// `NCCL_SPLIT_NOCOLOR`: the rank gets no part.
pub(crate) const NO_COLOR: c_int = -1;

/// `ncclConfig_t` as [`MINIMUM`] lays it out. Later versions append to it, and read of an older one what it has.
#[repr(C)]
pub(crate) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    /// Within `size`, since the structure is as long as its alignment makes it: the first field of a later layout.
    appended: c_int,
}

impl Config {
    /// All as NCCL chooses, but whether calls wait.
    pub(crate) fn new(blocking: bool) -> Config {
        const UNDEFINED: c_int = c_int::MIN;
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: MINIMUM.0 as c_uint,
            blocking: blocking.into(),
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
            appended: UNDEFINED,
        }
    }
}

#[cfg(test)]
impl Config {
    pub(crate) fn blocking(&self) -> c_int {
        self.blocking
    }
}

type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;

macro_rules! functions {
    ($($field:ident = $name:literal: fn($($arg:ty),*) -> $result:ty;)*) => {
        /// The functions, with the types of NCCL's header: unchanged from [`MINIMUM`] on.
        #[derive(Clone, Copy)]
        pub(crate) struct Functions {
            $(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> $result,)*
        }

        impl Functions {
            #[cfg(test)]
            const NAMES: &'static [&'static str] = &[$($name),*];

            fn load(found: &Found) -> Result<Functions, NcclError> {
                // SAFETY: each name stands beside its type.
                Ok(unsafe { Functions { $($field: function(found, $name)?,)* } })
            }
        }
    };
}

functions! {
    error_string = "ncclGetErrorString": fn(c_int) -> *const c_char;
    last_error = "ncclGetLastError": fn(RawComm) -> *const c_char;
    unique_id = "ncclGetUniqueId": fn(*mut RawId) -> c_int;
    init = "ncclCommInitRankConfig": fn(*mut RawComm, c_int, RawId, c_int, *mut Config) -> c_int;
    split = "ncclCommSplit": fn(RawComm, c_int, c_int, *mut RawComm, *mut Config) -> c_int;
    async_error = "ncclCommGetAsyncError": fn(RawComm, *mut c_int) -> c_int;
    abort = "ncclCommAbort": fn(RawComm) -> c_int;
    destroy = "ncclCommDestroy": fn(RawComm) -> c_int;
    group_start = "ncclGroupStart": fn() -> c_int;
    group_end = "ncclGroupEnd": fn() -> c_int;
    all_reduce = "ncclAllReduce":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, RawComm, RawStream) -> c_int;
    broadcast = "ncclBroadcast":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, RawComm, RawStream) -> c_int;
    reduce = "ncclReduce":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, c_int, RawComm, RawStream) -> c_int;
    all_gather = "ncclAllGather":
        fn(*const c_void, *mut c_void, usize, c_int, RawComm, RawStream) -> c_int;
    reduce_scatter = "ncclReduceScatter":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, RawComm, RawStream) -> c_int;
    send = "ncclSend": fn(*const c_void, usize, c_int, c_int, RawComm, RawStream) -> c_int;
    recv = "ncclRecv": fn(*mut c_void, usize, c_int, c_int, RawComm, RawStream) -> c_int;
}

/// A function of the library.
///
/// # Safety
/// `T` must be the type of the function.
unsafe fn function<T: Copy>(found: &Found, name: &'static str) -> Result<T, NcclError> {
    // SAFETY: the caller's.
    unsafe { found.function(name) }.map_err(|reason| NcclError::NoFunction {
        path: found.path.clone(),
        function: name,
        reason,
    })
}

/// NCCL, open and of a version that will do.
pub(crate) struct Api {
    pub(crate) path: PathBuf,
    pub(crate) version: Version,
    pub(crate) functions: Functions,
}

static OPENED: Mutex<Option<&'static Api>> = Mutex::new(None);

impl Api {
    /// What was opened before.
    pub(crate) fn opened() -> Option<&'static Api> {
        *OPENED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens NCCL, or gives what was opened before. What is missing is looked for again at every call.
    pub(crate) fn get() -> Result<&'static Api, NcclError> {
        let mut api = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(api) = *api {
            return Ok(api);
        }
        let opened = Box::leak(Box::new(Api::load(&squall_dylib::open(&WANTED)?)?));
        Ok(api.insert(opened))
    }

    /// Looks up the functions. The version comes first: a library that is too old may lack others.
    fn load(found: &Found) -> Result<Api, NcclError> {
        // SAFETY: the type is the function's.
        let get_version: GetVersion = unsafe { function(found, "ncclGetVersion") }?;
        let mut version = 0;
        // SAFETY: it writes the version and needs nothing.
        unsafe { get_version(&mut version) };
        let version = Version(version);
        if version < MINIMUM {
            return Err(NcclError::TooOld { path: found.path.clone(), version });
        }
        Ok(Api { path: found.path.clone(), version, functions: Functions::load(found)? })
    }

    /// What a call's result says. A call that goes on by itself has not failed.
    pub(crate) fn check(
        &self,
        function: &'static str,
        rank: Option<u32>,
        result: c_int,
    ) -> Result<(), NcclError> {
        match result {
            SUCCESS | IN_PROGRESS => Ok(()),
            result => Err(self.error(function, rank, result)),
        }
    }

    /// The error that a result stands for.
    pub(crate) fn error(&self, function: &'static str, rank: Option<u32>, result: c_int) -> NcclError {
        // SAFETY: the first takes any number, the second ignores the communicator. Both return texts that stay where they are;
        // the last warning may be overwritten in place, within its zero-terminated buffer.
        let (text, last) = unsafe {
            (
                owned((self.functions.error_string)(result)),
                owned((self.functions.last_error)(std::ptr::null_mut())),
            )
        };
        NcclError::Call { function, rank, result, text, last: last.trim().to_string() }
    }

    /// Begins a group of this thread's calls.
    pub(crate) fn group_start(&self) -> Result<(), NcclError> {
        // SAFETY: needs nothing; NCCL counts per thread.
        self.check("ncclGroupStart", None, unsafe { (self.functions.group_start)() })
    }

    /// Ends the group, and so issues it.
    pub(crate) fn group_end(&self, rank: Option<u32>) -> Result<(), NcclError> {
        // SAFETY: needs nothing; outside a group it is an error of NCCL's.
        self.check("ncclGroupEnd", rank, unsafe { (self.functions.group_end)() })
    }
}

/// A C string's text.
///
/// # Safety
/// Null, or zero-terminated.
unsafe fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
