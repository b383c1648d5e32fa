//! The arithmetic that MPI has not: minima and maxima as GPUs take them, averages, half types by way of `f32`.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Floats, with fmin and fmax.
pub(crate) trait Ordered: Copy {
    fn greater(self, other: Self) -> Self;
    fn lesser(self, other: Self) -> Self;
}

/// Whether `a` is the greater of two: a number wins over a NaN, and of two zeros the positive is the greater.
macro_rules! ordered {
    ($($t:ty, $nan:expr);*) => {$(
        // Neither depends on which comes first, so that ranks which combine in different orders agree to the bit.
        impl Ordered for $t {
            fn greater(self, other: $t) -> $t {
                let first = self > other || (self == other && self.is_sign_positive()) || other.is_nan();
                if self.is_nan() && other.is_nan() { $nan } else if first { self } else { other }
            }
            fn lesser(self, other: $t) -> $t {
                let first = self < other || (self == other && self.is_sign_negative()) || other.is_nan();
                if self.is_nan() && other.is_nan() { $nan } else if first { self } else { other }
            }
        }
    )*};
}

ordered!(f32, f32::NAN; f64, f64::NAN; f16, f16::NAN; bf16, bf16::NAN);

/// A sum over so many ranks as their average.
pub(crate) trait Average: Copy {
    fn average(self, ranks: u32) -> Self;
}

macro_rules! integers {
    ($($t:ident by $wide:ident),*) => {$(
        impl Average for $t {
            fn average(self, ranks: u32) -> $t {
                // Toward zero. In a type that holds the number of ranks; the quotient fits where the sum did.
                (self as $wide / ranks as $wide) as $t
            }
        }
    )*};
}

integers!(i8 by i32, u8 by i32, i32 by i64, u32 by i64, i64 by i64, u64 by u64);

impl Average for f32 {
    fn average(self, ranks: u32) -> f32 {
        self / ranks as f32
    }
}

impl Average for f64 {
    fn average(self, ranks: u32) -> f64 {
        self / f64::from(ranks)
    }
}

/// A half type.
pub(crate) trait Half: Sized {
    fn widen(from: &[Self], to: &mut [f32]);
    /// Rounds, once a result.
    fn narrow(from: &[f32], to: &mut [Self]);
}

macro_rules! halves {
    ($($t:ident),*) => {$(
        impl Half for $t {
            fn widen(from: &[$t], to: &mut [f32]) {
                from.convert_to_f32_slice(to);
            }
            fn narrow(from: &[f32], to: &mut [$t]) {
                to.convert_from_f32_slice(from);
            }
        }
    )*};
}

halves!(f16, bf16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_wins_over_nan_and_zeros_are_ordered() {
        assert_eq!((f32::NAN.greater(1.0), 1f32.greater(f32::NAN)), (1.0, 1.0));
        assert_eq!((f64::NAN.lesser(1.0), 1f64.lesser(f64::NAN)), (1.0, 1.0));
        assert_eq!(f16::NAN.lesser(f16::ONE), f16::ONE);
        let other = f32::from_bits(0xffc0_0001);
        assert_eq!(f32::NAN.greater(other).to_bits(), other.greater(f32::NAN).to_bits());
        assert!(bf16::NAN.greater(bf16::NAN).is_nan());
        for (a, b) in [(0.0f32, -0.0f32), (-0.0, 0.0)] {
            assert_eq!((a.greater(b).to_bits(), a.lesser(b).to_bits()), (0f32.to_bits(), (-0f32).to_bits()));
            let (a, b) = (bf16::from_f32(a), bf16::from_f32(b));
            assert!(a.greater(b).is_sign_positive() && a.lesser(b).is_sign_negative());
        }
    }

    #[test]
    fn integer_averages_go_toward_zero() {
        assert_eq!([7i32, -7, 6].map(|sum| sum.average(2)), [3, -3, 3]);
        assert_eq!((100u8.average(300), (-100i8).average(3)), (0, -33));
        assert_eq!((u64::MAX.average(3), i64::MIN.average(2)), (u64::MAX / 3, i64::MIN / 2));
    }
}
