//! Arithmetic of the dtypes, the same on every backend.

use half::{bf16, f16};
use squall_core::Element;

/// An element type with the type its arithmetic is done in.
pub(crate) trait Number: Element {
    /// `f32` for `f16` and `bf16`; otherwise the type itself.
    type Wide: Arithmetic;
    /// The exact value, for arithmetic.
    fn widen(self) -> Self::Wide;
    /// The result of arithmetic, rounded to nearest, ties to even.
    fn narrow(wide: Self::Wide) -> Self;
}

/// Arithmetic without surprises: integers wrap, floats follow IEEE 754.
pub(crate) trait Arithmetic: Copy + PartialOrd + 'static {
    /// 0.
    const ZERO: Self;
    /// A count: integers wrap, floats round.
    fn from_index(index: usize) -> Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The difference.
    fn minus(self, other: Self) -> Self;
    /// The product.
    fn times(self, other: Self) -> Self;
    /// The quotient. That of integers is cut toward zero, and 0 where `other` is 0, for want of a better.
    fn over(self, other: Self) -> Self;
}

macro_rules! arithmetic {
    (integers: $($int:ty),*; floats: $($float:ty),*) => {
        $(
            impl Arithmetic for $int {
                const ZERO: $int = 0;
                fn from_index(index: usize) -> $int { index as $int }
                fn plus(self, other: $int) -> $int { self.wrapping_add(other) }
                fn minus(self, other: $int) -> $int { self.wrapping_sub(other) }
                fn times(self, other: $int) -> $int { self.wrapping_mul(other) }
                fn over(self, other: $int) -> $int { if other == 0 { 0 } else { self.wrapping_div(other) } }
            }
        )*
        $(
            impl Arithmetic for $float {
                const ZERO: $float = 0.0;
                fn from_index(index: usize) -> $float { index as $float }
                fn plus(self, other: $float) -> $float { self + other }
                fn minus(self, other: $float) -> $float { self - other }
                fn times(self, other: $float) -> $float { self * other }
                fn over(self, other: $float) -> $float { self / other }
            }
        )*
        $(
            impl Number for $int {
                type Wide = $int;
                fn widen(self) -> $int { self }
                fn narrow(wide: $int) -> $int { wide }
            }
        )*
        $(
            impl Number for $float {
                type Wide = $float;
                fn widen(self) -> $float { self }
                fn narrow(wide: $float) -> $float { wide }
            }
        )*
    };
}

arithmetic!(integers: i8, u8, i32, u32, i64, u64; floats: f32, f64);

macro_rules! half {
    ($($half:ty),*) => {
        $(
            impl Number for $half {
                type Wide = f32;
                fn widen(self) -> f32 { self.to_f32() }
                fn narrow(wide: f32) -> $half { <$half>::from_f32(wide) }
            }
        )*
    };
}

half!(f16, bf16);

/// Runs `$body`, a `Result<_, String>`, with the type alias `$T` bound to the Rust type of a float dtype.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            squall_core::DType::F16 => {
                type $T = half::f16;
                $body
            }
            squall_core::DType::Bf16 => {
                type $T = half::bf16;
                $body
            }
            squall_core::DType::F32 => {
                type $T = f32;
                $body
            }
            squall_core::DType::F64 => {
                type $T = f64;
                $body
            }
            other => Err(format!("{other} is not a float")),
        }
    };
}
pub(crate) use with_float;
