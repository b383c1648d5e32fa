//! The reduction of several ranks' elements in one pass over memory.

use squall_core::{DType, ReduceOp, with_element};

use crate::collective::copy::{LINE, address, fence, stream_line};
use crate::collective::number::{Arithmetic, CHUNK, Number};

/// What one pass reads and writes. Each target is disjoint from all sources or is one of them.
pub(crate) struct Pass<'a> {
    /// Where each rank's elements begin, in rank order: the order in which they are combined.
    pub(crate) sources: &'a [u64],
    /// Where results go.
    pub(crate) targets: &'a [u64],
    /// Where results go past the cache.
    pub(crate) streamed: &'a [u64],
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
        if !self.streamed.is_empty() {
            fence();
        }
    }

    unsafe fn typed<T: Number>(&self, reduce: ReduceOp) {
        let ranks = self.sources.len() as u32;
        // SAFETY: the caller's, in every arm.
        unsafe {
            match reduce {
                ReduceOp::Sum => self.widest::<T>(T::Wide::sum, |x| x),
                ReduceOp::Prod => self.widest::<T>(T::Wide::product, |x| x),
                ReduceOp::Max => self.widest::<T>(T::Wide::greater, |x| x),
                ReduceOp::Min => self.widest::<T>(T::Wide::lesser, |x| x),
                ReduceOp::Avg => self.widest::<T>(T::Wide::sum, |x| x.average(ranks)),
            }
        }
    }

    /// [`Pass::chunks`] with the widest instructions there are.
    unsafe fn widest<T: Number>(
        &self,
        combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
        finish: impl Fn(T::Wide) -> T::Wide,
    ) {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,f16c")]
            unsafe fn avx2<T: Number>(
                pass: &Pass<'_>,
                combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
                finish: impl Fn(T::Wide) -> T::Wide,
            ) {
                // SAFETY: the caller's.
                unsafe { pass.chunks::<T, true>(combine, finish) }
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
                // SAFETY: the caller's, and the instructions are there.
                return unsafe { avx2::<T>(self, combine, finish) };
            }
        }
        // SAFETY: the caller's.
        unsafe { self.chunks::<T, false>(combine, finish) }
    }

    /// # Safety
    /// As for [`Pass::run`] and [`Number::widen`].
    #[inline(always)]
    unsafe fn chunks<T: Number, const F16C: bool>(
        &self,
        combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
        finish: impl Fn(T::Wide) -> T::Wide,
    ) {
        let Some((&first, rest)) = self.sources.split_first() else { return };
        // The first chunk ends where a target's line does.
        let lead =
            self.streamed.first().or(self.targets.first()).map_or(0, |&to| address(to).align_offset(LINE));
        let mut len = if lead == 0 { CHUNK } else { lead / size_of::<T>() };
        let mut done = 0;
        while done < self.len {
            len = len.min(self.len - done);
            let at = |place: u64| address(place).cast::<T>().wrapping_add(done);
            // SAFETY: `done + len` elements are within every place; the caller's for the rest.
            unsafe {
                let mut wide = T::widen::<F16C>(&load(at(first), len));
                for &source in rest {
                    let next = T::widen::<F16C>(&load(at(source), len));
                    for i in 0..CHUNK {
                        wide[i] = combine(wide[i], next[i]);
                    }
                }
                for element in &mut wide {
                    *element = finish(*element);
                }
                let chunk = T::narrow::<F16C>(&wide);
                for &target in self.targets {
                    store(at(target), &chunk, len);
                }
                for &target in self.streamed {
                    stream(at(target), &chunk, len);
                }
            }
            done += len;
            len = CHUNK;
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

/// As [`store`], past the cache where whole lines are written.
#[inline(always)]
unsafe fn stream<T: Number>(to: *mut T, chunk: &[T; CHUNK], len: usize) {
    if len == CHUNK && to.cast::<u8>().align_offset(LINE) == 0 {
        let lines = chunk.as_ptr().cast::<[u8; LINE]>();
        for line in 0..size_of_val(chunk) / LINE {
            // SAFETY: the caller's; a chunk is whole lines, and `to` is aligned.
            unsafe { stream_line(to.cast::<u8>().add(line * LINE), &*lines.add(line)) };
        }
    } else {
        // SAFETY: the caller's.
        unsafe { store(to, chunk, len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two targets, ordinary and streamed, from any offset: the same results, and nothing around them.
    #[test]
    fn what_is_streamed_is_what_is_stored() {
        for &dtype in DType::ALL {
            let size = dtype.size() as usize;
            for &reduce in ReduceOp::ALL {
                for (len, offset) in
                    [(0, 0), (1, 3), (63, 0), (64, 0), (200, 0), (1000, 1), (1000, 7), (1000, 32)]
                {
                    let word = |i: usize, k: usize| {
                        u64::from_ne_bytes([0; 8].map(|_| ((i * 7 + k * 31) % 60) as u8))
                    };
                    let inputs = [0, 1, 2].map(|k| (0..len).map(|i| word(i, k)).collect::<Vec<u64>>());
                    // Room to begin at any line, as results do.
                    let mut targets = [0; 3].map(|_| vec![0xeeu8; 1200 * 8]);
                    let starts = targets.each_mut().map(|target| {
                        let start = target.as_mut_ptr();
                        let line = start.align_offset(LINE) + offset * size;
                        (line, (start.expose_provenance() + line) as u64)
                    });
                    let sources = inputs.each_ref().map(|input| input.as_ptr().expose_provenance() as u64);
                    let [a, b, c] = starts.map(|(_, place)| place);
                    let passes = [(&[a][..], &[][..]), (&[], &[b, c])];
                    for (targets, streamed) in passes {
                        // SAFETY: sources hold `len` elements of 8 bytes, targets more; all are this thread's.
                        unsafe { Pass { sources: &sources, targets, streamed, len }.run(dtype, reduce) };
                    }
                    let windows: Vec<&[u8]> = targets
                        .iter()
                        .zip(starts)
                        .map(|(target, (line, _))| {
                            let (before, rest) = target.split_at(line);
                            let (window, after) = rest.split_at(len * size);
                            assert!(
                                before.iter().chain(after).all(|&byte| byte == 0xee),
                                "{dtype} {len} {offset}"
                            );
                            window
                        })
                        .collect();
                    assert!(
                        windows[0] == windows[1] && windows[0] == windows[2],
                        "{reduce} of {dtype}, {len}"
                    );
                }
            }
        }
    }
}
