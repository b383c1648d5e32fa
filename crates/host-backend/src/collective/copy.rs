//! Moving bytes between buffers.

/// The place in this process's memory that a device pointer means.
pub(crate) fn address(ptr: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(ptr as usize)
}

/// Copies `bytes` bytes; nothing when both places are the same.
///
/// # Safety
/// `to` must be writable and `from` readable for `bytes` bytes, and no other thread may write either meanwhile
/// or read `to`.
pub(crate) unsafe fn copy(to: u64, from: u64, bytes: usize) {
    if to != from {
        // SAFETY: the caller's; `copy` allows any overlap.
        unsafe { std::ptr::copy(address(from), address(to), bytes) }
    }
}
