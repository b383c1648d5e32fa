//! Numbers given to tasks, and their exact conversion to an element type.

use std::fmt;

use crate::dtype::{DType, Element};
use crate::with_element;

/// A number as an argument: exact integers stay integers until their dtype is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A 64-bit integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
}

impl Scalar {
    /// The number as `f64`; integers beyond 2^53 are rounded.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Int(i) => i as f64,
            Scalar::Float(f) => f,
        }
    }

    /// Whether `dtype` can hold the number: an integer dtype takes whole numbers in its range, a float dtype
    /// takes any number that does not round to infinity.
    pub fn fits(self, dtype: DType) -> bool {
        with_element!(dtype, T => T::from_exact(self.into()).is_ok())
    }

    /// The number as an element of type `T`, rounded once. Call after [`Scalar::fits`]; what does not fit saturates.
    pub fn to<T: Element>(self) -> T {
        T::nearest(self.into())
    }

    /// Writes the number as an element of `dtype` in native byte order; returns the element's size in bytes.
    pub fn write(self, dtype: DType, out: &mut [u8; 8]) -> usize {
        with_element!(dtype, T => {
            let element: T = self.to();
            out[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&element));
            size_of::<T>()
        })
    }
}

impl From<i64> for Scalar {
    fn from(value: i64) -> Scalar {
        Scalar::Int(value)
    }
}

impl From<f64> for Scalar {
    fn from(value: f64) -> Scalar {
        Scalar::Float(value)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Int(i) => write!(f, "{i}"),
            Scalar::Float(x) => write!(f, "{x:?}"), // 1e300, not three hundred digits
        }
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn fits_is_exact_at_the_edges() {
        assert!(Scalar::Int(255).fits(DType::U8) && !Scalar::Int(256).fits(DType::U8));
        assert!(!Scalar::Int(-1).fits(DType::U64) && Scalar::Float(18446744073709549568.0).fits(DType::U64));
        assert!(!Scalar::Float(18446744073709551616.0).fits(DType::U64));
        assert!(!Scalar::Float(0.5).fits(DType::I32) && Scalar::Float(-3.0).fits(DType::I8));
        assert!(Scalar::Float(65504.0).fits(DType::F16) && !Scalar::Float(65520.0).fits(DType::F16));
        assert!(Scalar::Float(f64::INFINITY).fits(DType::F16) && !Scalar::Float(f64::NAN).fits(DType::I32));
        assert!(!Scalar::Float(1e39).fits(DType::F32) && Scalar::Float(1e39).fits(DType::F64));
    }

    #[test]
    fn converts_to_elements() {
        assert_eq!(Scalar::Int(-7).to::<i8>(), -7);
        assert_eq!(Scalar::Float(2.0).to::<u64>(), 2);
        assert_eq!(Scalar::Float(0.1).to::<f32>(), 0.1f32);
        assert_eq!(Scalar::Int(3).to::<bf16>(), bf16::from_f32(3.0));
        assert_eq!(Scalar::Int(i64::MAX).to::<i64>(), i64::MAX);
        assert_eq!(Scalar::Int(-1).to::<u8>(), 0);
    }

    /// Two roundings can differ from one: here the first, to `f64` or `f32`, would make a tie of what is none.
    #[test]
    fn numbers_are_rounded_once() {
        let tie = (1i64 << 60) + (1 << 36);
        assert_eq!(Scalar::Int(tie).to::<f32>(), 2f32.powi(60));
        assert_eq!(Scalar::Int(tie + 1).to::<f32>(), 2f32.powi(60) + 2f32.powi(37));
        let above_tie = Scalar::Float(1.0 + 2f64.powi(-11) + 2f64.powi(-40));
        assert_eq!(above_tie.to::<f16>(), f16::from_f32(1.0 + 2f32.powi(-10)));
        assert!(!Scalar::Float(65520.0).fits(DType::F16) && Scalar::Float(65519.999999).fits(DType::F16));
    }

    #[test]
    fn writes_the_element_it_converts_to() {
        for &dtype in DType::ALL {
            let mut out = [0u8; 8];
            let size = Scalar::Int(100).write(dtype, &mut out);
            with_element!(dtype, T => {
                assert_eq!(size, size_of::<T>());
                assert_eq!(bytemuck::pod_read_unaligned::<T>(&out[..size]), Scalar::Int(100).to::<T>());
            });
        }
    }
}
