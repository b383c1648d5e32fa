//! Kernels: from a descriptor and its arguments to something that can be launched.
//!
//! # Writing the CUDA form of a kernel
//! The source is CUDA C++ with one `__device__` function, [`CudaSource::entry`](squall_core::CudaSource). Squall makes the
//! `__global__` function around it. It is called by every thread of the launch with the kernel's parameters in their order, and
//! the launch last:
//!
//! | parameter | C++ |
//! |---|---|
//! | buffer `x` | `squall::Buffer<x_t> x`: `x.data`, `x.len`, `x.axes`, `x.shape[axis]`, at most 8 axes; `data` is null when absent |
//! | number `x` | `squall::Scalar<x_t> x`: `x.get()` is the constant, or the element of the buffer that was given |
//! | size `x` | `u64 x`; 0 when absent |
//! | word, rank `x` | `u32 x`: the word's index, the rank |
//! | flag `x` | `bool x` |
//! | list `x` | `squall::List x`: `x.len`, `x[i]`; at most 16 numbers |
//! | – | `const squall::Launch &launch` |
//!
//! `x_t` is the dtype of the argument `x`, one of `f16 bf16 f32 f64 i8 u8 i32 u32 i64 u64`: a kernel is compiled once for each
//! combination of dtypes that it is used with. `f16` and `bf16` convert to `f32` by themselves and back explicitly, and `squall::wide<T>` is the
//! type to calculate in. `squall::most_threads` is 256, 512 or 1024: a block has no more threads, and the kernel's registers are
//! rationed by it. What else there is, stands in `prelude.cuh` beside this file: indices, sixteen-byte packs, failures.
//!
//! - The rules of [`KernelDef`](squall_core::KernelDef) hold: no index at or beyond `launch.threads[axis]` and none beyond the data is
//!   touched; on axes that the kernel does not cover, only the threads at 0 work.
//! - A kernel that says [`CudaSource::loops`](squall_core::CudaSource) is launched with as many blocks on axis x as fill the GPU, and
//!   strides: `for (u64 i = squall::x(); i < n; i += squall::stride())`. Others are launched on the grid as it stands.
//! - A product and a sum are not contracted into one rounding unless the source says `fmaf`, so that results agree with the
//!   host's bit for bit where the order of operations is the same.
//! - Ranges begin at any element: a sixteen-byte access needs `squall::packed(x.data)`.
//! - What a kernel cannot do it says with `launch.fail(message, number)`, the message an index into
//!   [`CudaSource::failures`](squall_core::CudaSource), and ends as usual: the rank fails once its stream was waited for.
//! - `launch.scratch` is the task's own memory of [`CudaSource::scratch`](squall_core::CudaSource) bytes, zero before the first launch
//!   and kept from launch to launch.
//! - A thread may leave early, by `return` in the function named. Nothing is included: NVRTC alone has no headers.
//!
//! A kernel that halves a buffer, and finds fault with a zero:
//!
//! ```
//! use squall_core::{Cover, CudaSource, DType, KernelDef, ParamDef, Type};
//! use squall_cuda_backend::compile::{Arch, CompileError, compile};
//! use squall_cuda_backend::kernel::Specialised;
//!
//! static HALVE: KernelDef = KernelDef {
//!     name: "halve",
//!     params: &[ParamDef::read_write("data", Type::In(DType::FLOATS), "[n]")],
//!     covers: &[Cover::Len("data")],
//!     cuda: Some(
//!         CudaSource::new(
//!             "__device__ void halve(squall::Buffer<data_t> data, const squall::Launch &launch) {
//!                  typedef squall::wide<data_t> wide;
//!                  u64 n = squall::least(data.len, launch.threads[0]);
//!                  for (u64 i = squall::x(); i < n; i += squall::stride()) {
//!                      if ((wide)data[i] == 0) launch.fail(0, i);
//!                      data[i] = (data_t)((wide)data[i] / 2);
//!                  }
//!              }",
//!             "halve",
//!         )
//!         .looping()
//!         .failing(&["element {} is zero"]),
//!     ),
//!     ..KernelDef::EMPTY
//! };
//!
//! // What a plan does when it is bound, and a test can do on any machine that has NVRTC.
//! for &dtype in DType::FLOATS {
//!     let source = Specialised::with_dtypes(&HALVE, &[dtype], 256).ok_or("no CUDA form")?;
//!     match compile(&source, Arch(9, 0)) {
//!         Ok(code) => assert!(!code.is_empty()),
//!         Err(CompileError::Missing(_)) => {} // no NVRTC on this machine
//!         Err(error) => return Err(error.into()),
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arguments;
mod launch;
mod source;

pub(crate) use launch::Kernel;
pub(crate) use source::LAUNCHED;
pub use source::Specialised;
