//! The arithmetic of reductions, as GPUs do it.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use squall_core::Element;

/// Elements handled at once: whole cache lines of every dtype, and few enough to stay in registers.
pub(crate) const CHUNK: usize = 64;

/// An element type, and the type in which it is reduced.
pub(crate) trait Number: Element {
    type Wide: Arithmetic;

    /// # Safety
    /// `F16C` only where the processor has those instructions.
    unsafe fn widen<const F16C: bool>(chunk: &[Self; CHUNK]) -> [Self::Wide; CHUNK];

    /// Rounds, once a result.
    ///
    /// # Safety
    /// As for `widen`.
    unsafe fn narrow<const F16C: bool>(chunk: &[Self::Wide; CHUNK]) -> [Self; CHUNK];
}

/// What the reductions do to two elements.
pub(crate) trait Arithmetic: Copy {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn greater(self, other: Self) -> Self;
    fn lesser(self, other: Self) -> Self;
    /// A sum over so many ranks as their average.
    fn average(self, ranks: u32) -> Self;
}

macro_rules! integers {
    ($($t:ident by $wide:ident),*) => {$(
        impl Arithmetic for $t {
            #[inline(always)]
            fn sum(self, other: $t) -> $t {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn product(self, other: $t) -> $t {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn greater(self, other: $t) -> $t {
                self.max(other)
            }
            #[inline(always)]
            fn lesser(self, other: $t) -> $t {
                self.min(other)
            }
            #[inline(always)]
            fn average(self, ranks: u32) -> $t {
                // Toward zero. In a type that holds the number of ranks; the quotient fits where the sum did.
                (self as $wide / ranks as $wide) as $t
            }
        }
        own_width!($t);
    )*};
}

macro_rules! floats {
    ($($t:ident),*) => {$(
        impl Arithmetic for $t {
            #[inline(always)]
            fn sum(self, other: $t) -> $t {
                self + other
            }
            #[inline(always)]
            fn product(self, other: $t) -> $t {
                self * other
            }
            // As fmax and fmin: a number wins over a NaN. Of two zeros the positive is the greater: std's `max`
            // leaves that open, and vector code differs from scalar code.
            #[inline(always)]
            fn greater(self, other: $t) -> $t {
                let first = self > other || (self == other && self.is_sign_positive()) || other.is_nan();
                if first { self } else { other }
            }
            #[inline(always)]
            fn lesser(self, other: $t) -> $t {
                let first = self < other || (self == other && self.is_sign_negative()) || other.is_nan();
                if first { self } else { other }
            }
            #[inline(always)]
            fn average(self, ranks: u32) -> $t {
                self / ranks as $t
            }
        }
    )*};
}

macro_rules! own_width {
    ($($t:ident),*) => {$(
        impl Number for $t {
            type Wide = $t;
            #[inline(always)]
            unsafe fn widen<const F16C: bool>(chunk: &[$t; CHUNK]) -> [$t; CHUNK] {
                *chunk
            }
            #[inline(always)]
            unsafe fn narrow<const F16C: bool>(chunk: &[$t; CHUNK]) -> [$t; CHUNK] {
                *chunk
            }
        }
    )*};
}

integers!(i8 by i32, u8 by i32, i32 by i64, u32 by i64, i64 by i64, u64 by u64);
floats!(f32, f64);
own_width!(f32, f64);

impl Number for f16 {
    type Wide = f32;

    #[inline(always)]
    unsafe fn widen<const F16C: bool>(chunk: &[f16; CHUNK]) -> [f32; CHUNK] {
        let mut wide = [0.0; CHUNK];
        #[cfg(target_arch = "x86_64")]
        if F16C {
            // SAFETY: the caller says that the instruction is there; eight elements are read and written at a time.
            unsafe {
                use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
                for i in (0..CHUNK).step_by(8) {
                    let halves = _mm_loadu_si128(chunk.as_ptr().add(i).cast());
                    _mm256_storeu_ps(wide.as_mut_ptr().add(i), _mm256_cvtph_ps(halves));
                }
            }
            return wide;
        }
        chunk.convert_to_f32_slice(&mut wide);
        wide
    }

    #[inline(always)]
    unsafe fn narrow<const F16C: bool>(chunk: &[f32; CHUNK]) -> [f16; CHUNK] {
        let mut narrow = [f16::ZERO; CHUNK];
        #[cfg(target_arch = "x86_64")]
        if F16C {
            // SAFETY: as above.
            unsafe {
                use std::arch::x86_64::{
                    _MM_FROUND_TO_NEAREST_INT, _mm_storeu_si128, _mm256_cvtps_ph, _mm256_loadu_ps,
                };
                for i in (0..CHUNK).step_by(8) {
                    let wide = _mm256_loadu_ps(chunk.as_ptr().add(i));
                    let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
                    _mm_storeu_si128(narrow.as_mut_ptr().add(i).cast(), halves);
                }
            }
            return narrow;
        }
        narrow.convert_from_f32_slice(chunk);
        narrow
    }
}

// Written out, since the library's conversions branch, and a loop over branches takes one element at a time.
impl Number for bf16 {
    type Wide = f32;

    #[inline(always)]
    unsafe fn widen<const F16C: bool>(chunk: &[bf16; CHUNK]) -> [f32; CHUNK] {
        let mut wide = [0.0; CHUNK];
        for (wide, narrow) in wide.iter_mut().zip(chunk) {
            *wide = f32::from_bits(u32::from(narrow.to_bits()) << 16);
        }
        wide
    }

    #[inline(always)]
    unsafe fn narrow<const F16C: bool>(chunk: &[f32; CHUNK]) -> [bf16; CHUNK] {
        let mut narrow = [bf16::ZERO; CHUNK];
        for (narrow, wide) in narrow.iter_mut().zip(chunk) {
            let bits = wide.to_bits();
            let to_even = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            let quiet_nan = bits >> 16 | 0x40;
            *narrow = bf16::from_bits(if wide.is_nan() { quiet_nan } else { to_even } as u16);
        }
        narrow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_and_average_toward_zero() {
        assert_eq!(200u8.sum(100).average(2), 22);
        assert_eq!([3i32.sum(4), (-3i32).sum(-4), 7i32.sum(0)].map(|x| x.average(2)), [3, -3, 3]);
        assert_eq!(i64::MAX.sum(1), i64::MIN);
        assert_eq!(i64::MIN.average(2), i64::MIN / 2);
        assert_eq!(u64::MAX.average(3), u64::MAX / 3);
        assert_eq!(100u8.average(300), 0);
        assert_eq!((-100i8).average(3), -33);
    }

    #[test]
    fn half_types_convert_as_their_library_does() {
        #[cfg(target_arch = "x86_64")]
        let f16c = is_x86_feature_detected!("f16c");
        #[cfg(not(target_arch = "x86_64"))]
        let f16c = false;
        let widen = if f16c { f16::widen::<true> as unsafe fn(&_) -> _ } else { f16::widen::<false> };
        let narrow = if f16c { f16::narrow::<true> as unsafe fn(&_) -> _ } else { f16::narrow::<false> };
        // SAFETY: chosen by what the processor has.
        let widen = |half| unsafe { widen(&[half; CHUNK]) }[7];
        // SAFETY: as above.
        let narrow = |wide| unsafe { narrow(&[wide; CHUNK]) }[7];
        // SAFETY: not F16C.
        let widen_brain = |brain| unsafe { bf16::widen::<false>(&[brain; CHUNK]) }[7];
        // SAFETY: as above.
        let narrow_brain = |wide| unsafe { bf16::narrow::<false>(&[wide; CHUNK]) }[7];
        // Everything that has 16 bits; and of 32, every exponent with mantissas around the places where rounding turns.
        for high in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(high), bf16::from_bits(high));
            if !half.is_nan() {
                assert_eq!(widen(half).to_bits(), half.to_f32().to_bits());
            }
            if !brain.is_nan() {
                assert_eq!(widen_brain(brain).to_bits(), brain.to_f32().to_bits());
            }
            for low in [0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let wide = f32::from_bits(u32::from(high) << 16 | low);
                let brain = narrow_brain(wide);
                assert_eq!(brain.to_bits(), bf16::from_f32(wide).to_bits(), "{wide:e}");
                let half = narrow(wide);
                assert!(half.to_bits() == f16::from_f32(wide).to_bits() || wide.is_nan() && half.is_nan());
            }
        }
    }

    #[test]
    fn a_number_wins_over_nan_and_zeros_are_ordered() {
        assert_eq!((f32::NAN.greater(1.0), 1f32.greater(f32::NAN)), (1.0, 1.0));
        assert_eq!((f64::NAN.lesser(1.0), 1f64.lesser(f64::NAN)), (1.0, 1.0));
        assert!(f32::NAN.greater(f32::NAN).is_nan() && f32::NAN.lesser(f32::NAN).is_nan());
        for (a, b) in [(0.0f32, -0.0f32), (-0.0, 0.0)] {
            assert_eq!(a.greater(b).to_bits(), 0f32.to_bits());
            assert_eq!(a.lesser(b).to_bits(), (-0f32).to_bits());
        }
        assert!(f32::NAN.sum(1.0).is_nan() && f64::NAN.product(0.0).is_nan());
    }
}
