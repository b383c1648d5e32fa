//! Numbers on their way to becoming elements: the one place where a value meets a dtype.
//!
//! Between floating-point types a value is rounded once, to the nearest, ties to even. An integer dtype takes
//! whole numbers alone, and no dtype takes a finite value that it cannot hold.

use std::fmt;

use half::{bf16, f16};
use squall_core::{DType, Element, Scalar};

/// The value of an element of any dtype, exactly. Wider than a [`Scalar`], which has no `u64` beyond `i64`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exact {
    /// A whole number.
    Int(i128),
    /// A floating-point number.
    Float(f64),
}

impl From<Scalar> for Exact {
    fn from(value: Scalar) -> Exact {
        match value {
            Scalar::Int(value) => Exact::Int(value.into()),
            Scalar::Float(value) => Exact::Float(value),
        }
    }
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exact::Int(value) => value.fmt(f),
            Exact::Float(value) => fmt::Debug::fmt(value, f), // 1e300, not three hundred digits
        }
    }
}

/// A dtype cannot hold a value.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// A fraction, an infinity or a NaN for an integer dtype.
    #[error("{value} is not a whole number, as {dtype} needs")]
    NotWhole {
        /// The value.
        value: Exact,
        /// The dtype.
        dtype: DType,
    },
    /// Beyond the dtype's largest or smallest number.
    #[error("{value} is out of range for {dtype}")]
    OutOfRange {
        /// The value.
        value: Exact,
        /// The dtype.
        dtype: DType,
    },
}

/// An [`Element`] as a number.
pub(crate) trait Number: Element {
    /// The element for a value, or the reason that there is none.
    fn from_exact(value: Exact) -> Result<Self, ValueError>;
    /// The element's value, exactly.
    fn to_exact(self) -> Exact;
}

macro_rules! integers {
    ($($T:ty),*) => {$(
        impl Number for $T {
            fn from_exact(value: Exact) -> Result<Self, ValueError> {
                let dtype = Self::DTYPE;
                let whole = match value {
                    Exact::Int(whole) => whole,
                    // Saturates, far beyond any integer dtype.
                    Exact::Float(float) if float.fract() == 0.0 => float as i128,
                    Exact::Float(_) => return Err(ValueError::NotWhole { value, dtype }),
                };
                Self::try_from(whole).map_err(|_| ValueError::OutOfRange { value, dtype })
            }

            fn to_exact(self) -> Exact {
                Exact::Int(self.into())
            }
        }
    )*};
}

integers!(i8, u8, i32, u32, i64, u64);

macro_rules! floats {
    ($($T:ty: |$int:ident| $from_int:expr, |$float:ident| $from_float:expr;)*) => {$(
        impl Number for $T {
            fn from_exact(value: Exact) -> Result<Self, ValueError> {
                let (element, finite) = match value {
                    Exact::Int($int) => ($from_int, true),
                    Exact::Float($float) => ($from_float, $float.is_finite()),
                };
                if finite && !element.is_finite() {
                    return Err(ValueError::OutOfRange { value, dtype: Self::DTYPE });
                }
                Ok(element)
            }

            fn to_exact(self) -> Exact {
                Exact::Float(self.into())
            }
        }
    )*};
}

floats! {
    f64: |int| int as f64, |float| float;
    f32: |int| int as f32, |float| float as f32;
    f16: |int| f16::from_f32(int_to_odd(int)), |float| f16::from_f32(float_to_odd(float));
    bf16: |int| bf16::from_f32(int_to_odd(int)), |float| bf16::from_f32(float_to_odd(float));
}

// A half type is reached through f32. Two roundings to the nearest can differ from one (and `half` drops the
// low bits of an f64 unseen), so that the first is a rounding to odd: an inexact result gets an odd last bit,
// which the second then cannot take for a tie.

fn float_to_odd(exact: f64) -> f32 {
    let near = exact as f32;
    let back = f64::from(near);
    to_odd(near, back == exact || back.is_nan(), back.abs() < exact.abs())
}

fn int_to_odd(exact: i128) -> f32 {
    let near = exact as f32;
    let back = near as i128;
    to_odd(near, back == exact, back.unsigned_abs() < exact.unsigned_abs())
}

/// `near`, or where it is inexact and even its neighbour on the exact value's other side.
fn to_odd(near: f32, is_exact: bool, is_below: bool) -> f32 {
    let bits = near.to_bits();
    if is_exact || bits & 1 == 1 || near.is_infinite() {
        near
    } else if is_below {
        f32::from_bits(bits + 1) // towards infinity of the same sign
    } else {
        f32::from_bits(bits - 1) // not zero: zero is below every inexact value
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use squall_core::with_element;

    use super::*;

    fn convert(value: impl Into<Scalar>, dtype: DType) -> Result<Exact, ValueError> {
        with_element!(dtype, T => T::from_exact(value.into().into()).map(Number::to_exact))
    }

    #[test]
    fn integer_bounds() {
        for (dtype, low, high) in [
            (DType::I8, -128, 127),
            (DType::U8, 0, 255),
            (DType::I32, i128::from(i32::MIN), i128::from(i32::MAX)),
            (DType::U32, 0, i128::from(u32::MAX)),
            (DType::I64, i128::from(i64::MIN), i128::from(i64::MAX)),
            (DType::U64, 0, i128::from(u64::MAX)),
        ] {
            with_element!(dtype, T => {
                for inside in [low, high] {
                    assert_eq!(T::from_exact(Exact::Int(inside)).unwrap().to_exact(), Exact::Int(inside));
                }
                for outside in [low - 1, high + 1] {
                    let value = Exact::Int(outside);
                    assert_eq!(T::from_exact(value), Err(ValueError::OutOfRange { value, dtype }));
                }
            });
        }
    }

    #[test]
    fn whole_floats_become_integers() {
        assert_eq!(convert(2.0, DType::I32), Ok(Exact::Int(2)));
        assert_eq!(convert(-0.0, DType::U8), Ok(Exact::Int(0)));
        assert_eq!(
            convert(2.5, DType::I32).unwrap_err().to_string(),
            "2.5 is not a whole number, as i32 needs"
        );
        assert_eq!(convert(300.0, DType::U8).unwrap_err().to_string(), "300.0 is out of range for u8");
        assert_eq!(convert(1e300, DType::U64).unwrap_err().to_string(), "1e300 is out of range for u64");
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(matches!(convert(odd, DType::I64), Err(ValueError::NotWhole { .. })), "{odd}");
        }
    }

    #[test]
    fn floats_keep_infinities_and_refuse_to_make_them() {
        for &dtype in DType::FLOATS {
            assert_eq!(convert(f64::INFINITY, dtype), Ok(Exact::Float(f64::INFINITY)));
            assert!(matches!(convert(f64::NAN, dtype), Ok(Exact::Float(nan)) if nan.is_nan()));
        }
        assert_eq!(convert(65519.0, DType::F16), Ok(Exact::Float(65504.0)));
        assert_eq!(convert(65520, DType::F16).unwrap_err().to_string(), "65520 is out of range for f16");
        assert_eq!(convert(1e39, DType::F32).unwrap_err().to_string(), "1e39 is out of range for f32");
        assert_eq!(convert(3.4e38, DType::Bf16).unwrap_err().to_string(), "3.4e38 is out of range for bf16");
    }

    #[test]
    fn halves_are_rounded_once() {
        // Just above the tie between 1 and the next number: nearest f32 is the tie itself.
        let f16_tie = 1.0 + 2f64.powi(-11);
        assert_eq!(convert(f16_tie, DType::F16), Ok(Exact::Float(1.0)));
        assert_eq!(convert(f16_tie + 2f64.powi(-40), DType::F16), Ok(Exact::Float(1.0 + 2f64.powi(-10))));
        let bf16_tie = 1.0 + 2f64.powi(-8);
        assert_eq!(convert(bf16_tie, DType::Bf16), Ok(Exact::Float(1.0)));
        assert_eq!(convert(bf16_tie + 2f64.powi(-40), DType::Bf16), Ok(Exact::Float(1.0 + 2f64.powi(-7))));
        let odd_tie = 1.0 + 3.0 * 2f64.powi(-8);
        assert_eq!(convert(odd_tie - 2f64.powi(-40), DType::Bf16), Ok(Exact::Float(1.0 + 2f64.powi(-7))));
        let int_tie = (1i64 << 60) + (1 << 52);
        assert_eq!(convert(int_tie, DType::Bf16), Ok(Exact::Float(2f64.powi(60))));
        assert_eq!(convert(int_tie + 1, DType::Bf16), Ok(Exact::Float(2f64.powi(60) + 2f64.powi(53))));
        assert_eq!(convert(-int_tie - 1, DType::Bf16), Ok(Exact::Float(-2f64.powi(60) - 2f64.powi(53))));
    }

    #[test]
    fn the_smallest_halves() {
        let least = 2f64.powi(-24);
        assert_eq!(convert(least / 2.0, DType::F16), Ok(Exact::Float(0.0)));
        assert_eq!(convert(least / 2.0 * 1.000001, DType::F16), Ok(Exact::Float(least)));
        assert_eq!(convert(-1e-300, DType::F16).unwrap().to_string(), "-0.0");
        let least = 2f64.powi(-133);
        assert_eq!(convert(least / 2.0 * (1.0 + f64::EPSILON), DType::Bf16), Ok(Exact::Float(least)));
    }

    proptest! {
        /// The result is a nearest one: no other half lies closer.
        #[test]
        fn halves_are_nearest(bits in any::<u64>(), exponent in -30i32..20) {
            let value = (1.0 + (bits >> 12) as f64 * 2f64.powi(-52)) * 2f64.powi(exponent - (bits & 1) as i32);
            prop_assume!(value < 65504.0);
            for dtype in [DType::F16, DType::Bf16] {
                let Ok(Exact::Float(got)) = convert(value, dtype) else { panic!("{value} {dtype}") };
                let (below, above) = match dtype {
                    DType::F16 => {
                        let bits = f16::from_f64(got).to_bits();
                        (f16::from_bits(bits.saturating_sub(1)).to_f64(), f16::from_bits(bits + 1).to_f64())
                    }
                    _ => {
                        let bits = bf16::from_f64(got).to_bits();
                        (bf16::from_bits(bits.saturating_sub(1)).to_f64(), bf16::from_bits(bits + 1).to_f64())
                    }
                };
                let error = (got - value).abs();
                prop_assert!(error <= (below - value).abs() && error <= (above - value).abs());
            }
        }
    }
}
