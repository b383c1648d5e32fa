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
//! The key decision is that nothing stands between two tasks on a stream: kernels tell themselves how far it has come, in the GPU's own
//! memory, and a wait writes the one word that it needs. The cost is that asking from outside takes a copy on another stream, and
//! that every kernel that is compiled here carries the telling.
//!
//! The environment variables that it reads (`SQUALL_CUDA_DRIVER`, `SQUALL_NVRTC`, `SQUALL_CACHE`) are told of in the project's README.
//! `SQUALL_CUDA_DRIVER` names a file that must also be the one that the loader finds by the name `libcuda.so` or `libcuda.so.1`.

pub mod compile;
mod context;
mod device;
mod driver;
mod graph;
mod info;
pub mod kernel;
mod memory;
mod position;
mod stream;
mod words;

/// The page on kernels of one's own: its source compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kernels.md")]
struct KernelsOfOnesOwn;

pub use device::{CUDA, Cuda};
pub use info::memory as memory_of;
