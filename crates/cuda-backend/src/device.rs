//! The backend's devices, as core sees them.

use std::sync::Arc;

use squall_core::{
    Arg, Backend, BoundRange, Device, DeviceError, Grid, KernelDef, Memory, Stream, Work, register_backend,
};

use crate::compile::{Nvrtc, Target};
use crate::context::Context;
use crate::driver::Driver;
use crate::info::{architecture, describe};
use crate::kernel::Kernel;
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::stream::CudaStream;

/// The backend. Nothing of CUDA is opened before a method is called.
pub static CUDA: Cuda = Cuda(());

register_backend!(&CUDA);

/// [`CUDA`]'s type.
#[derive(Debug)]
pub struct Cuda(());

impl Backend for Cuda {
    fn kind(&self) -> &'static str {
        "cuda"
    }

    fn default_library(&self) -> &'static str {
        "nccl"
    }

    fn count(&self) -> Result<Option<u32>, DeviceError> {
        let driver = Driver::get()?;
        match driver.devices() {
            0 => Err(DeviceError::Unsupported(none_visible(driver))),
            devices => Ok(Some(devices)),
        }
    }

    fn repeats(&self) -> bool {
        false
    }

    fn captures(&self) -> bool {
        true
    }

    fn open(&self, index: u32) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(Arc::new(CudaDevice(Context::get(index)?)))
    }

    fn describe(&self, index: u32) -> Result<String, DeviceError> {
        describe(index)
    }

    fn in_use(&self) -> Vec<String> {
        let (driver, nvrtc) = (Driver::opened().map(Driver::found), Nvrtc::opened().map(Nvrtc::found));
        driver.into_iter().chain(nvrtc).collect()
    }

    fn findings(&self) -> Vec<String> {
        let mut findings = match Driver::get() {
            Ok(driver) => vec![driver.found()],
            Err(missing) => lines(&missing),
        };
        match self.count() {
            Ok(devices) => findings.extend((0..devices.unwrap_or(0)).map(|index| {
                describe(index).unwrap_or_else(|error| {
                    let id = format!("cuda:{index}");
                    format!("{id}: {}", error.of(&id))
                })
            })),
            // Without a driver, it is said above why there are none.
            Err(none) => findings.extend(Driver::get().iter().flat_map(|_| lines(&none))),
        }
        match Nvrtc::get() {
            Ok(nvrtc) => {
                findings.push(nvrtc.found());
                findings.extend(nvrtc.try_out().err().iter().flat_map(lines));
                findings.extend(
                    Driver::get()
                        .ok()
                        .and_then(|driver| nvrtc.warning(driver.version(), gets_ptx(driver, nvrtc))),
                );
            }
            Err(missing) => findings.extend(lines(&missing)),
        }
        findings
    }
}

/// Whether a GPU here is newer than all that the compiler makes machine code for.
fn gets_ptx(driver: &Driver, nvrtc: &Nvrtc) -> bool {
    let mut gpus = (0..driver.devices()).filter_map(|index| architecture(index).ok());
    gpus.any(|gpu| matches!(nvrtc.target(gpu), Ok(Target::Ptx(_))))
}

fn none_visible(driver: &Driver) -> String {
    let mut text = format!("no CUDA device is visible to the {}", driver.found());
    if let Some(list) = std::env::var_os("CUDA_VISIBLE_DEVICES") {
        text += &format!("; CUDA_VISIBLE_DEVICES is `{}`", list.display());
    }
    text
}

fn lines(error: &impl ToString) -> Vec<String> {
    error.to_string().lines().map(str::to_string).collect()
}

struct CudaDevice(Arc<Context>);

impl Device for CudaDevice {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn kind(&self) -> &'static str {
        CUDA.kind()
    }

    fn captures(&self) -> bool {
        true
    }

    fn make_current(&self) -> Result<(), DeviceError> {
        self.0.make_current()
    }

    fn reach(&self, peer: &str) -> Result<(), DeviceError> {
        self.0.reach(peer)
    }

    fn alloc(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(DeviceMemory::new(&self.0, bytes)?))
    }

    fn alloc_staging(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(PinnedMemory::new(&self.0, bytes)?))
    }

    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        Ok(Box::new(CudaStream::new(&self.0)?))
    }

    unsafe fn kernel(
        &self,
        kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        grid: Grid,
    ) -> Result<Box<dyn Work>, DeviceError> {
        // Its launches are unsafe by the same promise that this call asks for.
        Ok(Box::new(Kernel::new(&self.0, kernel, &args, grid)?))
    }
}
