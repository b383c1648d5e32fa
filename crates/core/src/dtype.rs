//! Element types, and the Rust types that stand for them.

use std::fmt;
use std::str::FromStr;

use crate::element::{Exact, ValueError};

/// The type of a buffer's elements. The names are those of manifests and of NumPy's short forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    /// IEEE 754 half precision.
    F16,
    /// bfloat16: the upper half of an `f32`.
    Bf16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// 8-bit signed integer.
    I8,
    /// 8-bit unsigned integer.
    U8,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit signed integer.
    I64,
    /// 64-bit unsigned integer.
    U64,
}

impl DType {
    /// Every dtype, floats first.
    pub const ALL: &'static [DType] = &[
        DType::F16,
        DType::Bf16,
        DType::F32,
        DType::F64,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
    ];
    /// The floating-point dtypes.
    pub const FLOATS: &'static [DType] = &[DType::F16, DType::Bf16, DType::F32, DType::F64];

    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            DType::I8 | DType::U8 => 1,
            DType::F16 | DType::Bf16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
        }
    }

    /// The name in manifests: `f32`, `bf16`, …
    pub const fn name(self) -> &'static str {
        match self {
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I64 => "i64",
            DType::U64 => "u64",
        }
    }

    /// Whether this is one of [`DType::FLOATS`].
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16 | DType::F32 | DType::F64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is not a dtype's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a dtype; one of f16, bf16, f32, f64, i8, u8, i32, u32, i64, u64")]
pub struct UnknownDType;

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(text: &str) -> Result<DType, UnknownDType> {
        DType::ALL.iter().copied().find(|d| d.name() == text).ok_or(UnknownDType)
    }
}

/// A Rust type that stands for a [`DType`] in memory. Implemented for the ten, and for nothing else.
pub trait Element: bytemuck::Pod + Send + Sync + fmt::Debug + PartialEq + sealed::Sealed {
    /// The dtype this type stands for.
    const DTYPE: DType;
    /// The element for a value, rounded once; errs with the reason that there is none.
    fn from_exact(value: Exact) -> Result<Self, ValueError>;
    /// The element nearest to a value, whatever it is: fractions are cut, and what is beyond saturates, for floats at
    /// an infinity.
    fn nearest(value: Exact) -> Self;
    /// The element's value, exactly.
    fn to_exact(self) -> Exact;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// Runs `$body` with the type alias `$T` bound to the Rust type of a dtype: how code generic over [`Element`]
/// is entered from a dtype known only at run time.
#[macro_export]
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::with_element!(@match $dtype, $T => $body;
            F16 f16, Bf16 bf16, F32 f32, F64 f64, I8 i8, U8 u8, I32 i32, U32 u32, I64 i64, U64 u64)
    };
    (@match $dtype:expr, $T:ident => $body:expr; $($name:ident $rust:ident),*) => {
        match $dtype {
            $($crate::DType::$name => { type $T = $crate::elements::$rust; $body })*
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sizes_and_types_agree() {
        for &dtype in DType::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
            with_element!(dtype, T => {
                assert_eq!(T::DTYPE, dtype);
                assert_eq!(size_of::<T>() as u64, dtype.size());
            });
        }
        assert_eq!("F32".parse::<DType>(), Err(UnknownDType));
    }
}
