//! The standard kernels.
//!
//! A kernel is one `pub static` descriptor with its host form beside it and its CUDA form in `cuda/`, under the kernel's name.
//! The rules that all of them keep:
//!
//! - A host form computes what the threads of its grid compute. A thread with coordinates (x, y) owns the
//!   element that the kernel's `covers` names: x counts elements, or columns where y counts rows. An element
//!   without a thread stays as it was; threads without an element, and those at a coordinate other than 0 on
//!   an axis that the kernel does not name, do nothing. A kernel that covers [`squall_core::Cover::Any`] does
//!   all its work on any grid.
//! - Integers wrap. `f16` and `bf16` are computed in `f32` and rounded once, when stored; so are their sums.
//! - Sums are taken in an order that depends on the shape alone: the same arguments give the same bits.
//! - Buffers are counted in elements, row-major. Where a rule speaks of lengths alone, `[2, 3]` fits `[6]`.
//! - A host form allocates nothing.
//! - A CUDA form has the host form's results. Those of element-wise kernels agree bit for bit, but for the bits of a NaN.
//!   Sums are rounded in another order, and a product of matrices rounds each product and addition once; that too depends on
//!   shapes alone, so that grids and blocks change no bit.
#![forbid(unsafe_code)]

mod check;
mod copy;
mod elementwise;
mod fill;
mod loss;
mod map;
mod matmul;
mod nn;
mod numeric;
mod permute;
mod reduce;
mod stencil;

pub use copy::{CAST, COPY, COPY_2D};
pub use elementwise::{ADD, AXPY, DIV, MUL, SCALE, SQRT, SUB};
pub use fill::{FILL, IOTA};
pub use loss::{ACCURACY_COUNT, SOFTMAX_CROSS_ENTROPY};
pub use matmul::{MATMUL_NN, MATMUL_NT, MATMUL_TN};
pub use nn::{BIAS_ROWS, RELU, RELU_GRAD, SGD};
pub use permute::PERMUTE;
pub use reduce::{DOT, SUM, SUM_ROWS};
pub use stencil::STENCIL5;

squall_core::register_kernel!(
    &ACCURACY_COUNT,
    &ADD,
    &AXPY,
    &BIAS_ROWS,
    &CAST,
    &COPY,
    &COPY_2D,
    &DIV,
    &DOT,
    &FILL,
    &IOTA,
    &MATMUL_NN,
    &MATMUL_NT,
    &MATMUL_TN,
    &MUL,
    &PERMUTE,
    &RELU,
    &RELU_GRAD,
    &SCALE,
    &SGD,
    &SOFTMAX_CROSS_ENTROPY,
    &SQRT,
    &STENCIL5,
    &SUB,
    &SUM,
    &SUM_ROWS,
);

/// A manifest on one host device, for a descriptor's `example`: the name, then buffers and the task.
macro_rules! example {
    ($name:literal, $body:literal) => {
        concat!(
            "manifest = 1\n\n[pipeline]\nname = \"",
            $name,
            "\"\n\n[world]\ndevices = \"host:0..1\"\n",
            $body
        )
    };
}
use example;

/// The text of a kernel's CUDA form: the files of these names in `cuda/`, after what all kernels share.
macro_rules! cuda_text {
    ($($file:literal),+) => {
        concat!(
            "#line 1 \"common.cuh\"\n",
            include_str!("cuda/common.cuh"),
            $("#line 1 \"", $file, "\"\n", include_str!(concat!("cuda/", $file)),)+
        )
    };
}
use cuda_text;
