//! The product on CUDA devices, by cuBLAS.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use squall_plugin::core::{Args, BoundRange, Device, DeviceError, Memory, OpError, Prepare, Stream, Work};

use crate::Product;
use crate::cublas::{self, ColumnMajor, Functions, Opaque};

/// Bytes of the workspace: what cuBLAS's manual advises for the newest GPUs.
const WORKSPACE: u64 = 32 << 20;
/// `CUBLAS_GEMM_DEFAULT`.
const ALGORITHM: i32 = -1;

/// # Safety
/// The ranges must be memory of `cx.device` that outlives the work.
pub(crate) unsafe fn prepare(
    args: &Args<'_, BoundRange>,
    product: &Product,
    cx: &Prepare<'_>,
) -> Result<Box<dyn Work>, OpError> {
    let functions = Functions::get()?;
    let range = |param: &str| {
        args.buffer(param).ok_or_else(|| DeviceError::Failed(format!("the argument `{param}` is missing")))
    };
    let (a, b, c) = (range("a")?, range("b")?, range("c")?);
    let call = ColumnMajor::of(product).ok_or_else(|| {
        DeviceError::Unsupported(format!("cuBLAS takes lengths below 2^31, not {product:?}"))
    })?;
    let types = cublas::types(c.dtype)
        .ok_or_else(|| DeviceError::Unsupported(format!("cuBLAS has no product of {}", c.dtype)))?;
    let handle = Handle::new(functions, cx.device)?;
    let workspace = cx.device.alloc(WORKSPACE)?;
    let scales = [product.alpha, product.beta];
    let pointers = [b, a, c].map(|range| range.ptr.0);
    Ok(Box::new(Gemm {
        functions,
        call,
        types,
        pointers,
        scales,
        single: scales.map(|x| x as f32),
        handle,
        workspace,
    }))
}

/// A product that is ready to be enqueued.
struct Gemm {
    functions: &'static Functions,
    call: ColumnMajor,
    types: (i32, i32),
    /// `b`, `a` and `c`.
    pointers: [u64; 3],
    /// `alpha` and `beta`, as sums of `f64` take them.
    scales: [f64; 2],
    /// The same, as sums of `f32` take them.
    single: [f32; 2],
    handle: Handle,
    workspace: Box<dyn Memory>,
}

impl Work for Gemm {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        if self.call.lengths[..2].contains(&0) {
            return Ok(());
        }
        let raw = stream.raw();
        if raw.api != "cuda" {
            return Err(DeviceError::Unsupported(format!("cuBLAS has no use for a stream of `{}`", raw.api)));
        }
        let (functions, handle) = (self.functions, self.handle.raw.0);
        let ([m, n, k], [first, second], [lda, ldb, ldc]) =
            (self.call.lengths, self.call.transposed, self.call.leading);
        let (elements, sums) = self.types;
        let [alpha, beta]: [*const c_void; 2] = match elements {
            1 => [0, 1].map(|i| (&raw const self.scales[i]).cast()),
            _ => [0, 1].map(|i| (&raw const self.single[i]).cast()),
        };
        let [b, a, c] = self.pointers.map(|address| address as *mut c_void);
        // SAFETY: the handle was made for this device, which is current to the rank's thread, and only this work uses it. The
        // stream lives. The ranges and the workspace outlive what is enqueued; the numbers are read before the call returns.
        unsafe {
            cublas::check("cublasSetStream", (functions.set_stream)(handle, raw.handle as Opaque))?;
            // After the stream, whose setting puts cuBLAS's own workspace in place: one that a captured graph must not use.
            let (place, bytes) = (self.workspace.ptr().0 as Opaque, self.workspace.bytes() as usize);
            cublas::check("cublasSetWorkspace", (functions.set_workspace)(handle, place, bytes))?;
            let status = (functions.gemm)(
                handle, first, second, m, n, k, alpha, b, elements, lda, a, elements, ldb, beta, c, elements,
                ldc, sums, ALGORITHM,
            );
            cublas::check("cublasGemmEx", status)
        }
    }
}

/// `cublasHandle_t`.
#[derive(Clone, Copy)]
struct RawHandle(Opaque);

// SAFETY: cuBLAS lets any thread use a handle, one at a time; whoever takes one out of `FREE` has it alone.
unsafe impl Send for RawHandle {}

/// Handles that nobody uses, by device. None is ever destroyed: that would wait for all that runs on the device, and so for a kernel that
/// never ends.
static FREE: Mutex<BTreeMap<String, Vec<RawHandle>>> = Mutex::new(BTreeMap::new());

/// A handle of one device, kept for the next when it is dropped.
struct Handle {
    device: String,
    raw: RawHandle,
}

impl Handle {
    fn new(functions: &Functions, device: &dyn Device) -> Result<Handle, DeviceError> {
        let free =
            FREE.lock().unwrap_or_else(PoisonError::into_inner).get_mut(device.id()).and_then(Vec::pop);
        let raw = match free {
            Some(raw) => raw,
            None => {
                device.make_current()?;
                let mut raw = std::ptr::null_mut();
                // SAFETY: it writes the handle, for the current device.
                cublas::check("cublasCreate", unsafe { (functions.create)(&mut raw) })?;
                RawHandle(raw)
            }
        };
        Ok(Handle { device: device.id().to_string(), raw })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        free.entry(std::mem::take(&mut self.device)).or_default().push(self.raw);
    }
}
