//! Tests of the whole, one binary:
//!
//! - [`compare`]: a comparison of two backends, on the stand-in for a GPU in [`disturbed`].
//! - [`crates`]: which crate depends on which, and on what it must not.
//! - [`descriptors`]: every kernel's and every op's example, on every world.
//! - [`examples`]: every example in `examples/`, with its result worked out a second time.
//! - [`field_cases`]: what went wrong elsewhere, with the values that are right.
//! - [`gpu_run`]: the script that runs tests and benchmarks on GPUs, with stand-ins for them.
//! - [`libraries`]: what a run tells of the libraries behind its devices.
//! - [`observed`]: a plan group whose tasks are looked at, one by one.
//! - [`pipelines`]: kernels and collectives in a row, on worlds of one to seven ranks.
//! - [`swaps`]: buffers that are swapped, against their contents being swapped.
//! - [`resumed`]: snapshots of a plan group, and groups that go on from them.
//! - [`workloads`]: every example on several numbers of ranks, against numpy.
//! - [`unequal`]: ranks that hold unequal parts, and exchanges by counts.
//!
//! Beside it: `failures` (ranks that fail, hang or panic; it counts threads, and so runs one test at a time), `allocations` (it
//! counts what the allocator is asked for), and `gpu` (pipelines on GPUs; it tells what it leaves out where there are none).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests panic as tests do")]

mod compare;
mod crates;
mod descriptors;
mod disturbed;
mod examples;
mod field_cases;
mod gpu_run;
mod language;
mod libraries;
mod observed;
mod pipelines;
mod resumed;
mod swaps;
mod unequal;
mod workloads;
