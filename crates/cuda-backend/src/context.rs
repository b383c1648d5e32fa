//! One GPU of this process: its primary context, and what all streams and kernels on it share.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};
use squall_core::{DeviceError, count};

use crate::compile::{self, Arch, CompileError};
use crate::driver::{self, Driver};
use crate::info::architecture_of;
use crate::kernel::{LAUNCHED, Specialised};
use crate::position::Reader;
use crate::words::FreeWords;

/// A GPU. Made when it is first used and kept for the life of the process, as its primary context is: other libraries in the
/// process use the same one.
pub(crate) struct Context {
    id: String,
    device: sys::CUdevice,
    raw: sys::CUcontext,
    pub(crate) arch: Arch,
    /// Threads that the GPU can hold at once.
    pub(crate) resident_threads: u32,
    /// For the few things that are done outside of a rank's stream.
    utility: Mutex<sys::CUstream>,
    /// Kernels that were loaded, by their whole text.
    functions: Mutex<BTreeMap<String, Function>>,
    pub(crate) words: FreeWords,
    reader: Mutex<Option<Arc<Reader>>>,
}

/// A kernel that is loaded on one GPU, never to be unloaded.
#[derive(Clone, Copy)]
pub(crate) struct Function(pub(crate) sys::CUfunction);

// SAFETY: the driver's handles may be used from any thread; what is behind a lock is used by one at a time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}
// SAFETY: as above; a function's handle is only ever launched.
unsafe impl Send for Function {}

impl Context {
    /// The GPU with that number, current to the calling thread.
    pub(crate) fn get(ordinal: u32) -> Result<Arc<Context>, DeviceError> {
        static CONTEXTS: Mutex<BTreeMap<u32, Arc<Context>>> = Mutex::new(BTreeMap::new());
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = contexts.get(&ordinal) {
            context.make_current()?;
            return Ok(context.clone());
        }
        let context = Arc::new(Context::new(ordinal)?);
        contexts.insert(ordinal, context.clone());
        Ok(context)
    }

    fn new(ordinal: u32) -> Result<Context, DeviceError> {
        let driver = Driver::get()?;
        if ordinal >= driver.devices() {
            let text = format!(
                "there is no cuda:{ordinal}: this process sees {}",
                count(driver.devices(), "CUDA device")
            );
            return Err(DeviceError::Unsupported(text));
        }
        let id = format!("cuda:{ordinal}");
        let failed = |call: &str, result| driver::check(&id, call, result);
        let (mut device, mut raw, mut utility) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the driver is initialised and has this device; the places are written.
        unsafe {
            failed("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal as i32))?;
            failed("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut raw, device))?;
            failed("cuCtxSetCurrent", sys::cuCtxSetCurrent(raw))?;
            let non_blocking = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            failed("cuStreamCreate", sys::cuStreamCreate(&mut utility, non_blocking))?;
        }
        let attribute = |attribute| attribute_of(&id, device, attribute);
        if attribute(Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)? == 0 {
            let text = format!(
                "cuda:{ordinal} cannot write memory in stream order (64-bit stream memory operations)"
            );
            return Err(DeviceError::Unsupported(text));
        }
        let arch = architecture_of(&id, device)?;
        let processors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let each = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
        Ok(Context {
            id,
            device,
            raw,
            arch,
            resident_threads: (processors.max(1) as u32).saturating_mul(each.max(1) as u32),
            utility: Mutex::new(utility),
            functions: Mutex::default(),
            words: FreeWords::default(),
            reader: Mutex::default(),
        })
    }

    /// The name: `cuda:0`.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Makes the GPU current to the calling thread.
    pub(crate) fn make_current(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained for the life of the process.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw) })
    }

    /// Lets this GPU's kernels touch memory of the GPU of that name; leaves this one current to the calling thread.
    pub(crate) fn reach(&self, peer: &str) -> Result<(), DeviceError> {
        if peer == self.id {
            return self.make_current();
        }
        let cannot = |why: &str| {
            Err(DeviceError::Unsupported(format!("{} cannot reach the memory of {peer}: {why}", self.id)))
        };
        let Some(Ok(ordinal)) = peer.strip_prefix("cuda:").map(str::parse) else {
            return cannot("it is no CUDA device");
        };
        let other = Context::get(ordinal)?;
        self.make_current()?;
        let mut can = 0;
        // SAFETY: the driver has both devices; `can` is written.
        let asked = unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.device, other.device) };
        self.check("cuDeviceCanAccessPeer", asked)?;
        if can == 0 {
            return cannot("the driver gives no peer access between the two");
        }
        // SAFETY: both contexts are retained for the life of the process, and this one is current; no flags exist.
        match unsafe { sys::cuCtxEnablePeerAccess(other.raw, 0) } {
            // By an earlier call, or by another library.
            CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            result => self.check("cuCtxEnablePeerAccess", result),
        }
    }

    /// A result of the driver as an error, with the driver's words.
    pub(crate) fn check(&self, call: &str, result: CUresult) -> Result<(), DeviceError> {
        driver::check(&self.id, call, result)
    }

    /// As [`Context::check`], for calls that allocate.
    pub(crate) fn check_memory(&self, call: &str, bytes: u64, result: CUresult) -> Result<(), DeviceError> {
        if result != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return self.check(call, result);
        }
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current to whoever allocates; the places are written.
        let known = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) } == CUresult::CUDA_SUCCESS;
        let mut message = driver::text(call, result).err().unwrap_or_default();
        if known {
            message += &format!("; {free} of {total} bytes of the device are free");
        }
        Err(DeviceError::OutOfMemory { device: self.id.clone(), bytes, message })
    }

    /// Does something on a stream of its own, and waits for it.
    pub(crate) fn apart(
        &self,
        call: &str,
        work: impl FnOnce(sys::CUstream) -> CUresult,
    ) -> Result<(), DeviceError> {
        let stream = self.utility.lock().unwrap_or_else(PoisonError::into_inner);
        self.check(call, work(*stream))?;
        // SAFETY: the stream lives as long as the context.
        self.check(call, unsafe { sys::cuStreamSynchronize(*stream) })
    }

    /// A kernel, compiled and loaded. Loaded now rather than at its first launch: loading waits for the GPU, which may be waiting
    /// for another rank by then.
    pub(crate) fn function(&self, source: Specialised) -> Result<Function, DeviceError> {
        let functions = || self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions().get(&source.text) {
            return Ok(*function);
        }
        // Not under the lock: compiling takes long, and others may want another kernel.
        let failed = |error| match error {
            CompileError::Missing(text) => DeviceError::Unsupported(text),
            failed => DeviceError::Failed(failed.to_string()),
        };
        let code = compile::code(&source, self.arch).map_err(failed)?;
        self.make_current()?;
        let function = match self.load(&code.bytes) {
            // Left on disk beside another driver, perhaps.
            Err(DeviceError::Failed(refused)) if code.kept => {
                // Without a compiler, that it was refused is what is wrong.
                let anew = compile::code_anew(&source, self.arch).map_err(|error| match failed(error) {
                    DeviceError::Unsupported(text) => DeviceError::Unsupported(format!("{refused}\n{text}")),
                    other => other,
                })?;
                self.load(&anew.bytes)?
            }
            loaded => loaded?,
        };
        functions().insert(source.text, function);
        Ok(function)
    }

    fn load(&self, code: &[u8]) -> Result<Function, DeviceError> {
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        let name = std::ffi::CString::new(LAUNCHED).unwrap_or_default();
        // SAFETY: `code` is as the compiler made it: machine code, which says its own length, or text with a zero byte at its end. A
        // context is current; the places are written.
        unsafe {
            self.check(
                "cuModuleLoadData",
                sys::cuModuleLoadData(&mut module, code.as_ptr().cast::<c_void>()),
            )?;
            self.check(
                "cuModuleGetFunction",
                sys::cuModuleGetFunction(&mut function, module, name.as_ptr()),
            )?;
        }
        Ok(Function(function))
    }

    /// Who reads words of the GPU's memory.
    pub(crate) fn reader(self: &Arc<Context>) -> Result<Arc<Reader>, DeviceError> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = &*reader {
            return Ok(reader.clone());
        }
        Ok(reader.insert(Arc::new(Reader::new(self)?)).clone())
    }

    /// Zeroed host memory that the GPU reaches at full speed, under the same address.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<*mut u8, DeviceError> {
        self.make_current()?;
        let mut place = std::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: a context is current; `place` is written.
        let result = unsafe { sys::cuMemHostAlloc(&mut place, bytes, flags) };
        self.check_memory("cuMemHostAlloc", bytes as u64, result)?;
        // SAFETY: so many bytes were just allocated, and nobody else knows of them.
        unsafe { std::ptr::write_bytes(place.cast::<u8>(), 0, bytes) };
        Ok(place.cast())
    }
}

/// A property of a device, which is called `id` in messages.
pub(crate) fn attribute_of(
    id: &str,
    device: sys::CUdevice,
    attribute: Attribute,
) -> Result<i32, DeviceError> {
    let mut value = 0;
    // SAFETY: the driver is initialised and has the device; `value` is written.
    let result = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
    driver::check(id, "cuDeviceGetAttribute", result)?;
    Ok(value)
}
