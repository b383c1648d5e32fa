//! Numbers given to tasks, and their exact conversion to an element type.

use std::fmt;

use half::{bf16, f16};

use crate::dtype::{DType, Element};

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
        let whole = match self {
            Scalar::Int(i) => i128::from(i),
            // Beyond 2^64 no integer dtype fits, and the cast is exact for every whole number below.
            Scalar::Float(f) if f.fract() == 0.0 && f.abs() < 1.9e19 => f as i128,
            Scalar::Float(_) => return dtype.is_float() && self.float_fits(dtype),
        };
        let (low, high) = match dtype {
            DType::I8 => (i128::from(i8::MIN), i128::from(i8::MAX)),
            DType::U8 => (0, i128::from(u8::MAX)),
            DType::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
            DType::U32 => (0, i128::from(u32::MAX)),
            DType::I64 => (i128::from(i64::MIN), i128::from(i64::MAX)),
            DType::U64 => (0, i128::from(u64::MAX)),
            DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => return self.float_fits(dtype),
        };
        (low..=high).contains(&whole)
    }

    fn float_fits(self, dtype: DType) -> bool {
        let value = self.as_f64();
        // A NaN or an infinity that was asked for is representable; a finite number must stay finite.
        !value.is_finite()
            || match dtype {
                DType::F16 => f16::from_f64(value).is_finite(),
                DType::Bf16 => bf16::from_f64(value).is_finite(),
                DType::F32 => (value as f32).is_finite(),
                _ => true,
            }
    }

    /// The number as an element of type `T`. Call after [`Scalar::fits`]; what does not fit saturates.
    pub fn to<T: Element>(self) -> T {
        let mut bytes = [0u8; 8];
        let size = self.write(T::DTYPE, &mut bytes);
        bytemuck::pod_read_unaligned(&bytes[..size])
    }

    /// Writes the number as an element of `dtype` in native byte order; returns the element's size in bytes.
    pub fn write(self, dtype: DType, out: &mut [u8; 8]) -> usize {
        fn put<const N: usize>(out: &mut [u8; 8], bytes: [u8; N]) -> usize {
            out[..N].copy_from_slice(&bytes);
            N
        }
        macro_rules! integer {
            ($t:ty) => {
                match self {
                    Scalar::Int(i) => put(
                        out,
                        <$t>::try_from(i).unwrap_or(if i < 0 { <$t>::MIN } else { <$t>::MAX }).to_ne_bytes(),
                    ),
                    Scalar::Float(f) => put(out, (f as $t).to_ne_bytes()),
                }
            };
        }
        match dtype {
            DType::F16 => put(out, f16::from_f64(self.as_f64()).to_ne_bytes()),
            DType::Bf16 => put(out, bf16::from_f64(self.as_f64()).to_ne_bytes()),
            DType::F32 => put(out, (self.as_f64() as f32).to_ne_bytes()),
            DType::F64 => put(out, self.as_f64().to_ne_bytes()),
            DType::I8 => integer!(i8),
            DType::U8 => integer!(u8),
            DType::I32 => integer!(i32),
            DType::U32 => integer!(u32),
            DType::I64 => integer!(i64),
            DType::U64 => integer!(u64),
        }
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
            Scalar::Float(x) => write!(f, "{x}"),
        }
    }
}

#[cfg(test)]
mod tests {
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
    }
}
