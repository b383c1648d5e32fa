//! Memory: of the GPU, and of the host for transfers.

use std::sync::Arc;

use cudarc::driver::sys;
use squall_core::{DeviceError, DevicePtr, Memory};

use crate::context::Context;

/// Sizes are multiples of this: the widest that one instruction loads.
const WORD: u64 = 16;

/// Memory of a GPU, freed on drop.
pub(crate) struct DeviceMemory {
    context: Arc<Context>,
    ptr: sys::CUdeviceptr,
    bytes: u64,
}

impl DeviceMemory {
    /// Zeroed memory. The driver aligns to 256 bytes and more.
    pub(crate) fn new(context: &Arc<Context>, bytes: u64) -> Result<DeviceMemory, DeviceError> {
        context.make_current()?;
        let mut ptr = 0;
        // No bytes have an address too; and NCCL reads the last bytes as whole words (seen with 2.28.9: four where there was one).
        let size = bytes.max(1).checked_next_multiple_of(WORD).and_then(|size| usize::try_from(size).ok());
        let size = size.unwrap_or(usize::MAX);
        // SAFETY: the context is current; `ptr` is written.
        context.check_memory("cuMemAlloc", bytes, unsafe { sys::cuMemAlloc_v2(&mut ptr, size) })?;
        let memory = DeviceMemory { context: context.clone(), ptr, bytes };
        // SAFETY: so many bytes were just allocated.
        context.apart("cuMemsetD8Async", |stream| unsafe { sys::cuMemsetD8Async(ptr, 0, size, stream) })?;
        Ok(memory)
    }
}

impl Memory for DeviceMemory {
    fn ptr(&self) -> DevicePtr {
        DevicePtr(self.ptr)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn host(&mut self) -> Option<&mut [u8]> {
        None
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: allocated by `new`, and the plan that owned it has dropped its work. A device that is lost gives an
            // error, and has nothing left to free.
            let _ = unsafe { sys::cuMemFree_v2(self.ptr) };
        }
    }
}

/// Host memory that the GPU reads and writes at full speed, freed on drop.
pub(crate) struct PinnedMemory {
    context: Arc<Context>,
    place: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to this value alone, and the driver frees it from any thread.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    /// Zeroed memory.
    pub(crate) fn new(context: &Arc<Context>, bytes: u64) -> Result<PinnedMemory, DeviceError> {
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let place = context.pinned(size.max(1))?;
        Ok(PinnedMemory { context: context.clone(), place, bytes: size })
    }
}

impl Memory for PinnedMemory {
    fn ptr(&self) -> DevicePtr {
        DevicePtr(self.place as u64)
    }

    fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn host(&mut self) -> Option<&mut [u8]> {
        // SAFETY: so many bytes were allocated and zeroed, and are borrowed through this value alone. A stream that still
        // copies is what `Stream::copy`'s caller excludes.
        Some(unsafe { std::slice::from_raw_parts_mut(self.place, self.bytes) })
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: allocated by `Context::pinned`, and used no more.
            let _ = unsafe { sys::cuMemFreeHost(self.place.cast()) };
        }
    }
}
