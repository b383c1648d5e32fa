//! Conversions of elements that generic code needs.

use crate::dtype::{DType, Element};
use half::{bf16, f16};

/// An element as `f64`: exact for all but integers beyond 2^53.
pub fn to_f64<T: Element>(value: T) -> f64 {
    let bytes = bytemuck::bytes_of(&value);
    macro_rules! read {
        ($t:ty) => {
            bytemuck::pod_read_unaligned::<$t>(bytes)
        };
    }
    match T::DTYPE {
        DType::F16 => read!(f16).to_f64(),
        DType::Bf16 => read!(bf16).to_f64(),
        DType::F32 => f64::from(read!(f32)),
        DType::F64 => read!(f64),
        DType::I8 => f64::from(read!(i8)),
        DType::U8 => f64::from(read!(u8)),
        DType::I32 => f64::from(read!(i32)),
        DType::U32 => f64::from(read!(u32)),
        DType::I64 => read!(i64) as f64,
        DType::U64 => read!(u64) as f64,
    }
}
