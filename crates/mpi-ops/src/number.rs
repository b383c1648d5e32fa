//! The arithmetic that is not left to MPI: integers that wrap, minima and maxima as GPUs take them, averages, half types by way of `f32`.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// How two elements become one. None depends on which comes first, so that ranks which combine in different orders agree to the bit.
pub(crate) trait Rule<T> {
    fn both(a: T, b: T) -> T;
}

/// The sum, which wraps.
pub(crate) struct Sum;
/// The product, which wraps.
pub(crate) struct Product;
/// The greater, of floats as fmax: a number wins over a NaN, and of two zeros the positive is the greater.
pub(crate) struct Greater;
/// The lesser, of floats as fmin: a number wins over a NaN, and of two zeros the negative is the lesser.
pub(crate) struct Lesser;

// Signed ones have the same bits.
macro_rules! wrapping {
    ($($t:ident),*) => {$(
        impl Rule<$t> for Sum {
            fn both(a: $t, b: $t) -> $t {
                a.wrapping_add(b)
            }
        }
        impl Rule<$t> for Product {
            fn both(a: $t, b: $t) -> $t {
                a.wrapping_mul(b)
            }
        }
    )*};
}

wrapping!(u8, u32, u64);

macro_rules! ordered {
    ($($t:ident),*) => {$(
        impl Rule<$t> for Greater {
            fn both(a: $t, b: $t) -> $t {
                let first = a > b || (a == b && a.is_sign_positive()) || b.is_nan();
                if a.is_nan() && b.is_nan() { $t::NAN } else if first { a } else { b }
            }
        }
        impl Rule<$t> for Lesser {
            fn both(a: $t, b: $t) -> $t {
                let first = a < b || (a == b && a.is_sign_negative()) || b.is_nan();
                if a.is_nan() && b.is_nan() { $t::NAN } else if first { a } else { b }
            }
        }
    )*};
}

ordered!(f16, bf16, f32, f64);

macro_rules! whole {
    ($($t:ident),*) => {$(
        impl Rule<$t> for Greater {
            fn both(a: $t, b: $t) -> $t {
                a.max(b)
            }
        }
        impl Rule<$t> for Lesser {
            fn both(a: $t, b: $t) -> $t {
                a.min(b)
            }
        }
    )*};
}

whole!(i8, u8, i32, u32, i64, u64);

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
        let (max, min) = (<Greater as Rule<f32>>::both, <Lesser as Rule<f32>>::both);
        assert_eq!((max(f32::NAN, 1.0), max(1.0, f32::NAN)), (1.0, 1.0));
        assert_eq!((min(f32::NAN, 1.0), min(1.0, f32::NAN)), (1.0, 1.0));
        let other = f32::from_bits(0xffc0_0001);
        assert_eq!(max(f32::NAN, other).to_bits(), max(other, f32::NAN).to_bits());
        assert!(min(f32::NAN, other).is_nan());
        for (a, b) in [(0.0f32, -0.0f32), (-0.0, 0.0)] {
            assert_eq!((max(a, b).to_bits(), min(a, b).to_bits()), (0f32.to_bits(), (-0f32).to_bits()));
            let (a, b) = (bf16::from_f32(a), bf16::from_f32(b));
            assert!(Greater::both(a, b).is_sign_positive() && Lesser::both(a, b).is_sign_negative());
        }
        assert_eq!(Lesser::both(f16::NAN, f16::ONE), f16::ONE);
    }

    #[test]
    fn integers_wrap() {
        assert_eq!((Sum::both(200u8, 100), Product::both(16u8, 17)), (44, 16));
        assert_eq!((Sum::both(u64::MAX, 2), Product::both(1u32 << 31, 2)), (1, 0));
    }

    #[test]
    fn integer_averages_go_toward_zero() {
        assert_eq!([7i32, -7, 6].map(|sum| sum.average(2)), [3, -3, 3]);
        assert_eq!((100u8.average(300), (-100i8).average(3)), (0, -33));
        assert_eq!((u64::MAX.average(3), i64::MIN.average(2)), (u64::MAX / 3, i64::MIN / 2));
    }
}
