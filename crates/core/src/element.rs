//! Numbers on their way to becoming elements, and back: the one place where a value meets a dtype.
//!
//! Between floating-point types a value is rounded once, to the nearest, ties to even. An integer dtype takes
//! whole numbers alone, and no dtype takes a finite value that it cannot hold.

use std::fmt;

use half::{bf16, f16};

use crate::dtype::{DType, Element, sealed::Sealed};
use crate::scalar::Scalar;

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

/// An element as `f64`: exact for all but integers beyond 2^53.
pub fn to_f64<T: Element>(value: T) -> f64 {
    match value.to_exact() {
        Exact::Int(whole) => whole as f64,
        Exact::Float(float) => float,
    }
}

macro_rules! integers {
    ($($T:ty => $dtype:ident),*) => {$(
        impl Sealed for $T {}
        impl Element for $T {
            const DTYPE: DType = DType::$dtype;

            fn nearest(value: Exact) -> Self {
                match value {
                    Exact::Int(whole) => whole.clamp(<$T>::MIN.into(), <$T>::MAX.into()) as $T,
                    Exact::Float(float) => float as $T,
                }
            }

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

integers!(i8 => I8, u8 => U8, i32 => I32, u32 => U32, i64 => I64, u64 => U64);

macro_rules! floats {
    ($($T:ty => $dtype:ident: |$int:ident| $from_int:expr, |$float:ident| $from_float:expr;)*) => {$(
        impl Sealed for $T {}
        impl Element for $T {
            const DTYPE: DType = DType::$dtype;

            fn nearest(value: Exact) -> Self {
                match value {
                    Exact::Int($int) => $from_int,
                    Exact::Float($float) => $from_float,
                }
            }

            fn from_exact(value: Exact) -> Result<Self, ValueError> {
                let element = Self::nearest(value);
                let finite = !matches!(value, Exact::Float(float) if !float.is_finite());
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
    f64 => F64: |int| int as f64, |float| float;
    f32 => F32: |int| int as f32, |float| float as f32;
    f16 => F16: |int| f16::from_f32(int_to_odd(int)), |float| f16::from_f32(float_to_odd(float));
    bf16 => Bf16: |int| bf16::from_f32(int_to_odd(int)), |float| bf16::from_f32(float_to_odd(float));
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
mod tests;
