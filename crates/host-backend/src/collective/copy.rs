//! Moving bytes between buffers, past the cache when it could not hold them anyway.

use std::sync::OnceLock;

/// The place in this process's memory that a device pointer means.
pub(crate) fn address(ptr: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(ptr as usize)
}

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Whether to write so many bytes past the cache: an ordinary store first reads the line that it overwrites.
pub(crate) fn past_cache(bytes: u64) -> bool {
    static CACHE: OnceLock<u64> = OnceLock::new();
    cfg!(target_arch = "x86_64") && bytes > *CACHE.get_or_init(|| largest_cache().unwrap_or(32 << 20))
}

/// Bytes of the largest cache of a core, where the system tells.
fn largest_cache() -> Option<u64> {
    let size = |index: u32| {
        let text =
            std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        text.trim().strip_suffix('K')?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    (0..8).filter_map(size).max()
}

/// Copies `bytes` bytes; nothing when both places are the same.
///
/// # Safety
/// `to` must be writable and `from` readable for `bytes` bytes, and no other thread may write either meanwhile
/// or read `to`. After streaming, [`fence`] must come before other threads may read.
pub(crate) unsafe fn copy(to: u64, from: u64, bytes: usize, streaming: bool) {
    let (mut to, mut from, mut bytes) = (address(to), address(from).cast_const(), bytes);
    if to.cast_const() == from {
        return;
    }
    // SAFETY: all parts are within the caller's ranges; `copy` allows any overlap.
    unsafe {
        if streaming {
            let head = to.align_offset(LINE).min(bytes);
            std::ptr::copy(from, to, head);
            let lines = (bytes - head) / LINE;
            for line in 0..lines {
                let at = head + line * LINE;
                stream_line(to.add(at), &from.add(at).cast::<[u8; LINE]>().read());
            }
            let done = head + lines * LINE;
            (to, from, bytes) = (to.add(done), from.add(done), bytes - done);
        }
        std::ptr::copy(from, to, bytes);
    }
}

/// Writes a line past the cache.
///
/// # Safety
/// `to` must be writable and a multiple of [`LINE`]. As for [`copy`].
#[inline(always)]
pub(crate) unsafe fn stream_line(to: *mut u8, line: &[u8; LINE]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's; SSE2 is part of the architecture.
    unsafe {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        for quarter in 0..4 {
            let value = _mm_loadu_si128(line.as_ptr().cast::<__m128i>().add(quarter));
            _mm_stream_si128(to.cast::<__m128i>().add(quarter), value);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's.
    unsafe {
        to.cast::<[u8; LINE]>().write(*line)
    }
}

/// Makes what was streamed visible before what is written after.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of the architecture.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
