//! The vocabulary of squall.

pub mod diagnostic;
pub mod dtype;
pub mod reduce;

pub use diagnostic::{Code, Diagnostic, Label, Severity, Span};
pub use dtype::{DType, Element};
pub use reduce::ReduceOp;

/// The Rust types of [`DType`] under one path, for [`with_element!`].
#[doc(hidden)]
pub mod elements {
    pub use core::primitive::{f32, f64, i8, i32, i64, u8, u32, u64};
    pub use half::{bf16, f16};
}
