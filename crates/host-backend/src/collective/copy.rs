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
/// or read `to`.
pub(crate) unsafe fn copy(to: u64, from: u64, bytes: usize, streaming: bool) {
    let (to, from) = (address(to), address(from).cast_const());
    if to.cast_const() == from {
        return;
    }
    if !streaming {
        // SAFETY: the caller's; `copy` allows any overlap.
        return unsafe { std::ptr::copy(from, to, bytes) };
    }
    let head = to.align_offset(LINE).min(bytes);
    let end = bytes - (bytes - head) % LINE;
    // SAFETY: all parts are within the caller's ranges, and lines begin where `to` is aligned.
    unsafe {
        std::ptr::copy(from, to, head);
        for at in (head..end).step_by(LINE) {
            stream_line(to.add(at), &from.add(at).cast::<[u8; LINE]>().read());
        }
        std::ptr::copy(from.add(end), to.add(end), bytes - end);
    }
    fence();
}

/// Writes a line past the cache. [`fence`] must come before other threads may read it.
///
/// # Safety
/// `to` must be writable for a line, and aligned to one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_no_other_is_copied() {
        let from: Vec<u8> = (0..1000u32).map(|i| i as u8 | 1).collect();
        for streaming in [false, true] {
            for bytes in [0, 1, 63, 64, 65, 200, 700] {
                for (skip, offset) in [(0, 0), (1, 0), (0, 1), (64, 3), (5, 100)] {
                    let mut to = vec![0; 1000];
                    let places =
                        [to.as_mut_ptr(), from.as_ptr().cast_mut()].map(|p| p.expose_provenance() as u64);
                    // SAFETY: at most 100 bytes before and 700 bytes long, in ranges of 1000 that are this thread's.
                    unsafe { copy(places[0] + offset, places[1] + skip, bytes, streaming) };
                    let mut want = vec![0; 1000];
                    let (offset, skip) = (offset as usize, skip as usize);
                    want[offset..offset + bytes].copy_from_slice(&from[skip..skip + bytes]);
                    assert!(to == want, "{bytes} bytes from {skip} to {offset}, streaming: {streaming}");
                }
            }
        }
    }

    #[test]
    fn small_results_stay_in_the_cache() {
        assert!(!past_cache(0) && !past_cache(1000));
    }
}
