//! squall on NVIDIA GPUs: devices of the kind `cuda`.
//!
//! Nothing of CUDA is needed to build: the driver is opened when a device is first asked for, and the compiler, NVRTC, when a
//! kernel is that is in no cache. A program that links this crate and runs on host devices touches neither.
//!
//! One device is one GPU with its primary context, which other libraries of the process share. A rank has a stream of its own, which
//! waits for no other; memory is plain device memory, and transfers go through pinned staging. Kernels are compiled from CUDA C++
//! for the dtypes of their arguments and for the GPU's architecture; [`kernel`] tells how one is written. A step that was captured is
//! a CUDA graph.
//!
//! | variable | meaning |
//! |---|---|
//! | `SQUALL_NVRTC` | the file of NVRTC, tried alone |
//! | `SQUALL_CUDA_DRIVER` | the file of the driver's library, tried alone |
//! | `SQUALL_CACHE` | where compiled kernels are kept (default: `squall` in the user's folder of caches; empty: nowhere) |
//! | `CUDA_VISIBLE_DEVICES` | the driver's own: which GPUs there are, and in which order |

pub mod compile;
mod context;
mod device;
mod driver;
mod graph;
pub mod kernel;
mod memory;
mod position;
mod stream;

pub use context::memory as memory_of;
pub use device::{CUDA, Cuda};
