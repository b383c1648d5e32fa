//! The reduction of several ranks' elements in one pass over memory.

use squall_core::{DType, ReduceOp, with_element};

use crate::collective::copy::address;
use crate::collective::number::{Arithmetic, CHUNK, Number};

/// What one pass reads and writes.
pub(crate) struct Pass<'a> {
    /// Where each rank's elements begin, in rank order: the order in which they are combined.
    pub(crate) sources: &'a [u64],
    /// Where results go. Each place is disjoint from all sources or is one of them.
    pub(crate) targets: &'a [u64],
    /// Elements.
    pub(crate) len: usize,
}

impl Pass<'_> {
    /// Combines the sources element by element and writes the results to every target.
    ///
    /// # Safety
    /// All places must be aligned to `dtype` and hold `len` elements of it; targets must be writable; and no other
    /// thread may write any of them meanwhile, or read a target.
    pub(crate) unsafe fn run(&self, dtype: DType, reduce: ReduceOp) {
        // SAFETY: the caller's.
        with_element!(dtype, T => unsafe { self.typed::<T>(reduce) });
    }

    unsafe fn typed<T: Number>(&self, reduce: ReduceOp) {
        let ranks = self.sources.len() as u32;
        // SAFETY: the caller's, in every arm.
        unsafe {
            match reduce {
                ReduceOp::Sum => self.chunks::<T>(T::Wide::sum, |x| x),
                ReduceOp::Prod => self.chunks::<T>(T::Wide::product, |x| x),
                ReduceOp::Max => self.chunks::<T>(T::Wide::greater, |x| x),
                ReduceOp::Min => self.chunks::<T>(T::Wide::lesser, |x| x),
                ReduceOp::Avg => self.chunks::<T>(T::Wide::sum, |x| x.average(ranks)),
            }
        }
    }

    #[inline(always)]
    unsafe fn chunks<T: Number>(
        &self,
        combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
        finish: impl Fn(T::Wide) -> T::Wide,
    ) {
        let Some((&first, rest)) = self.sources.split_first() else { return };
        let mut done = 0;
        while done < self.len {
            let len = CHUNK.min(self.len - done);
            let at = |place: u64| address(place).cast::<T>().wrapping_add(done);
            // SAFETY: `done + len` elements are within every place; the caller's for the rest.
            unsafe {
                let mut wide = T::widen(&load(at(first), len));
                for &source in rest {
                    let next = T::widen(&load(at(source), len));
                    wide.iter_mut().zip(next).for_each(|(a, b)| *a = combine(*a, b));
                }
                wide.iter_mut().for_each(|a| *a = finish(*a));
                let chunk = T::narrow(&wide);
                for &target in self.targets {
                    store(at(target), &chunk, len);
                }
            }
            done += len;
        }
    }
}

/// Reads `len` elements, the rest of the chunk being zeros: the last elements take the same way as all others, and
/// so come out the same.
#[inline(always)]
unsafe fn load<T: Number>(from: *const T, len: usize) -> [T; CHUNK] {
    if len == CHUNK {
        // SAFETY: the caller's.
        return unsafe { from.cast::<[T; CHUNK]>().read() };
    }
    let mut chunk = [T::zeroed(); CHUNK];
    // SAFETY: the caller's; `len` is less than CHUNK.
    unsafe { std::ptr::copy_nonoverlapping(from, chunk.as_mut_ptr(), len) };
    chunk
}

#[inline(always)]
unsafe fn store<T: Number>(to: *mut T, chunk: &[T; CHUNK], len: usize) {
    if len == CHUNK {
        // SAFETY: the caller's.
        unsafe { to.cast::<[T; CHUNK]>().write(*chunk) };
    } else {
        // SAFETY: the caller's; `len` is less than CHUNK.
        unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), to, len) };
    }
}
