//! Memory of a host device.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::num::NonZero;
use std::ptr::NonNull;

use squall_core::{DeviceError, DevicePtr, MEMORY_ALIGNMENT, Memory};

/// Where memory begins: a multiple of this many bytes, which are whole cache lines.
const ALIGNMENT: NonZero<usize> = NonZero::new(MEMORY_ALIGNMENT as usize).unwrap();

/// Zeroed memory of the process.
pub(crate) struct HostMemory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone, and the heap is not tied to a thread.
unsafe impl Send for HostMemory {}

impl HostMemory {
    pub(crate) fn zeroed(bytes: u64, device: &str) -> Result<HostMemory, DeviceError> {
        let out_of_memory = |message: &str| DeviceError::OutOfMemory {
            device: device.to_string(),
            bytes,
            message: message.to_string(),
        };
        let layout = usize::try_from(bytes)
            .ok()
            .and_then(|size| Layout::from_size_align(size, ALIGNMENT.get()).ok())
            .ok_or_else(|| out_of_memory("more than this machine can address"))?;
        let start = if layout.size() == 0 {
            // Never touched, but aligned like any other.
            NonNull::without_provenance(ALIGNMENT)
        } else {
            // SAFETY: the layout's size is not zero.
            NonNull::new(unsafe { alloc_zeroed(layout) })
                .ok_or_else(|| out_of_memory("the system's allocator refused"))?
        };
        Ok(HostMemory { start, layout })
    }
}

impl Memory for HostMemory {
    fn ptr(&self) -> DevicePtr {
        // Ranks and kernels come back to the memory through this word alone.
        DevicePtr(self.start.as_ptr().expose_provenance() as u64)
    }

    fn bytes(&self) -> u64 {
        self.layout.size() as u64
    }

    fn host(&mut self) -> Option<&mut [u8]> {
        // SAFETY: allocated with this size and initialised; borrowed as long as `self` is. Work that uses the memory
        // by its address runs in the thread that owns its stream, and not during this borrow.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if self.layout.size() != 0 {
            // SAFETY: allocated by `alloc_zeroed` with this layout, and freed once.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_may_be_empty() {
        for bytes in [0, 1, 4096, 3 << 20] {
            let mut memory = HostMemory::zeroed(bytes, "host:0").unwrap();
            assert_eq!(memory.ptr().0 % 256, 0);
            assert_eq!(memory.bytes(), bytes);
            assert!(memory.host().unwrap().iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn too_much_memory_is_an_error() {
        for bytes in [u64::MAX, i64::MAX as u64 - 4096, 1 << 60] {
            match HostMemory::zeroed(bytes, "host:3").err() {
                Some(DeviceError::OutOfMemory { device, bytes: asked, .. }) => {
                    assert_eq!((device.as_str(), asked), ("host:3", bytes));
                }
                other => panic!("{bytes} bytes: {other:?}"),
            }
        }
    }
}
