//! The standard kernels' host forms against plain references.
//!
//! - `allocations`: counts them
//! - `harness`: launches a kernel with guard zones around its buffers and surplus threads on every axis
//! - `reference`: the arithmetic of each dtype, written a second time
//! - `descriptors`: names, parameters, examples
//! - one module for each module of the crate
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod allocations;
mod copy;
mod descriptors;
mod elementwise;
mod fill;
mod harness;
mod loss;
mod matmul;
mod nn;
mod permute;
mod reduce;
mod reference;
mod stencil;
