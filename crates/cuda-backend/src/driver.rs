//! The CUDA driver: found and initialised once, when a device is first asked for.
//!
//! Its functions come from cudarc's bindings, which look them up at run time and panic when the library is missing. So nothing
//! here calls them before [`Driver::get`] has found the library.

use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};
use squall_core::DeviceError;
use squall_dylib::{Found, Wanted};

/// The oldest driver: of CUDA 12.0, whose functions are the ones used here.
const MINIMUM: i32 = 12000;

const WANTED: Wanted = Wanted {
    what: "the NVIDIA driver",
    names: &["libcuda.so.1", "libcuda.so"],
    variable: "SQUALL_CUDA_DRIVER",
    wheels: &[],
    install: "the NVIDIA driver of the GPU, version 525 or newer: on Debian the packages `nvidia-driver` and `libcuda1`",
};

/// The driver of this machine.
pub(crate) struct Driver {
    path: PathBuf,
    /// The CUDA version that it supports: 13020 is 13.2.
    version: i32,
    /// GPUs that this process may use.
    devices: u32,
}

static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();

impl Driver {
    /// The driver, if it was opened.
    pub(crate) fn opened() -> Option<&'static Driver> {
        DRIVER.get()?.as_ref().ok()
    }

    /// The driver, initialised; why there is none, otherwise.
    pub(crate) fn get() -> Result<&'static Driver, DeviceError> {
        let driver = DRIVER.get_or_init(Driver::open);
        driver.as_ref().map_err(|text| DeviceError::Unsupported(text.clone()))
    }

    fn open() -> Result<Driver, String> {
        let found = squall_dylib::open(&WANTED).map_err(|missing| missing.to_string())?;
        Driver::start(&found)
            .map_err(|reason| format!("the NVIDIA driver {} cannot be used: {reason}", found.path.display()))
    }

    fn start(found: &Found) -> Result<Driver, String> {
        is_bound_to(found)?;
        let mut version = 0;
        // SAFETY: the library is there; the call may come before the initialisation and writes `version`.
        text("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
        if version < MINIMUM {
            let (is, wanted) = (dotted(version), dotted(MINIMUM));
            return Err(format!(
                "it is of CUDA {is}, and {wanted} is the oldest\ninstall {}",
                WANTED.install
            ));
        }
        // SAFETY: as above; no flags exist.
        let devices = match unsafe { sys::cuInit(0) } {
            CUresult::CUDA_ERROR_NO_DEVICE => 0,
            result => {
                text("cuInit", result)?;
                let mut count = 0;
                // SAFETY: the driver is initialised; `count` is written.
                text("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
                u32::try_from(count).unwrap_or(0)
            }
        };
        Ok(Driver { path: found.path.clone(), version, devices })
    }

    /// The CUDA version that it supports: 13020 is 13.2.
    pub(crate) fn version(&self) -> i32 {
        self.version
    }

    /// GPUs that this process may use.
    pub(crate) fn devices(&self) -> u32 {
        self.devices
    }

    /// The file that it came from, and its version.
    pub(crate) fn found(&self) -> String {
        format!("driver of CUDA {} from {}", dotted(self.version), self.path.display())
    }
}

/// Every function of the driver that this crate calls; a test sees that none is missing. The bindings look each up at its first call,
/// and panic where it is not there.
const CALLED: [&CStr; 37] = [
    c"cuDriverGetVersion",
    c"cuInit",
    c"cuGetErrorName",
    c"cuGetErrorString",
    c"cuCtxEnablePeerAccess",
    c"cuCtxSetCurrent",
    c"cuDeviceCanAccessPeer",
    c"cuDeviceGet",
    c"cuDeviceGetAttribute",
    c"cuDeviceGetCount",
    c"cuDeviceGetName",
    c"cuDeviceGetPCIBusId",
    c"cuDeviceGetUuid_v2",
    c"cuDevicePrimaryCtxRetain",
    c"cuDeviceTotalMem_v2",
    c"cuGraphDestroy",
    c"cuGraphExecDestroy",
    c"cuGraphInstantiateWithFlags",
    c"cuGraphLaunch",
    c"cuLaunchKernel",
    c"cuMemAlloc_v2",
    c"cuMemFreeHost",
    c"cuMemFree_v2",
    c"cuMemGetInfo_v2",
    c"cuMemHostAlloc",
    c"cuMemcpyAsync",
    c"cuMemsetD8Async",
    c"cuModuleGetFunction",
    c"cuModuleLoadData",
    c"cuStreamBeginCapture_v2",
    c"cuStreamCreate",
    c"cuStreamDestroy_v2",
    c"cuStreamEndCapture",
    c"cuStreamQuery",
    c"cuStreamSynchronize",
    c"cuStreamWriteValue32_v2",
    c"cuStreamWriteValue64_v2",
];

/// Whether the bindings call this very library: they look for it by names of their own, of which `libcuda.so` is the first, and
/// panic where they find none, or not the function.
fn is_bound_to(found: &Found) -> Result<(), String> {
    // SAFETY: opens libraries by the driver's names, under one of which the one that was found is already open.
    if !unsafe { sys::is_culib_present() } {
        return Err("it cannot be found again by the name `libcuda.so.1`".to_string());
    }
    // SAFETY: it is present.
    let bound = unsafe { sys::culib() };
    for name in CALLED {
        // SAFETY: the addresses are only compared.
        let address = unsafe { found.library.get::<*const ()>(name.to_bytes_with_nul()) };
        let address = address.map_err(|error| {
            format!(
                "it is no driver of CUDA {} or newer: it has no `{}`: {error}",
                dotted(MINIMUM),
                name.to_string_lossy()
            )
        })?;
        // SAFETY: as above.
        let other = unsafe { bound.get::<*const ()>(name.to_bytes_with_nul()) };
        if !other.is_ok_and(|other| *other == *address) {
            let files: Vec<String> =
                squall_dylib::mapped("libcuda.so").iter().map(|file| file.display().to_string()).collect();
            return Err(format!(
                "another copy of it is found by the name `libcuda.so` ({}); put the folder of the one to use first in LD_LIBRARY_PATH",
                files.join(", ")
            ));
        }
    }
    Ok(())
}

fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// A result of the driver as an error with the driver's own words.
pub(crate) fn text(call: &str, result: CUresult) -> Result<(), String> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let word = |get: unsafe fn(CUresult, *mut *const std::ffi::c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: the call writes the address of a static string, or null for a number that it does not know.
        let known = unsafe { get(result, &mut text) } == CUresult::CUDA_SUCCESS && !text.is_null();
        // SAFETY: as just said.
        known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
    };
    let name = word(sys::cuGetErrorName).unwrap_or_else(|| format!("error {}", result as u32).into());
    let meaning = word(sys::cuGetErrorString).unwrap_or_default();
    Err(format!("{call}: {name}: {meaning}"))
}

/// A result of the driver as an error of a device, with the driver's own words.
pub(crate) fn check(device: &str, call: &str, result: CUresult) -> Result<(), DeviceError> {
    text(call, result).map_err(|message| {
        let device = device.to_string();
        match result {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::OutOfMemory { device, bytes: 0, message },
            lost if is_lost(lost) => DeviceError::Lost { device, message },
            _ => DeviceError::Failed(format!("{device}: {message}")),
        }
    })
}

/// Whether the device cannot be used by this process any more after such a result: every later call gives it again.
fn is_lost(result: CUresult) -> bool {
    matches!(
        result,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
            | CUresult::CUDA_ERROR_UNKNOWN
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_that_is_called_is_looked_up_first() {
        let mut files = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        let mut called = Vec::new();
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            for call in text.split("sys::").skip(1).filter(|call| call.starts_with("cu")) {
                let end = call.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(call.len());
                called.push(call[..end].to_string());
            }
        }
        called.retain(|name| name != "culib");
        called.sort();
        called.dedup();
        let mut known: Vec<String> = CALLED.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        known.sort();
        assert_eq!(called, known);
    }
}
