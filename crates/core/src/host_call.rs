//! What the host form of a kernel sees of its launch.

use std::cell::Cell;

use crate::args::{Arg, Args, BoundRange};
use crate::device::DeviceError;
use crate::dtype::{DType, Element};
use crate::grid::Grid;
use crate::kernel::{HostKernel, HostLaunch, KernelDef};
use crate::with_element;

/// One launch of a kernel on a host device: its arguments over the rank's memory, and its grid.
///
/// Memory is seen as slices of [`Cell`], since two arguments may be the same range (an in-place form): reading
/// and writing through them is sound in any overlap, and costs nothing.
pub struct HostCall<'a> {
    kernel: &'static KernelDef,
    args: Args<'a, BoundRange>,
    grid: Grid,
}

impl<'a> HostCall<'a> {
    /// Puts a launch before a host form. Called by host devices when a kernel's turn comes.
    ///
    /// # Safety
    /// Every range in `values` must be readable and writable memory, aligned to its dtype, initialised, alive
    /// for `'a`, and touched by no other thread during `'a`.
    pub unsafe fn new(kernel: &'static KernelDef, values: &'a [Arg<BoundRange>], grid: Grid) -> HostCall<'a> {
        HostCall { kernel, args: Args { params: kernel.params, values, comm_rank: 0, comm_size: 1 }, grid }
    }

    /// The kernel that runs.
    pub fn kernel(&self) -> &'static KernelDef {
        self.kernel
    }

    /// The threads that run on each axis, the surplus of the last block among them: a kernel handles no index
    /// at or beyond these, and checks the rest against its data.
    pub fn launched(&self) -> [usize; 3] {
        self.grid.launched().map(|n| usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// The grid.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Sizes, words, flags and lists.
    pub fn args(&self) -> &Args<'a, BoundRange> {
        &self.args
    }

    /// The dtype of a buffer argument; `f32` when it is absent.
    pub fn dtype(&self, name: &str) -> DType {
        self.args.buffer(name).map_or(DType::F32, |range| range.dtype)
    }

    /// The lengths of a buffer argument's axes; empty when it is absent.
    pub fn shape(&self, name: &str) -> &'a [u64] {
        self.args.buffer(name).map_or(&[], |range| &range.shape)
    }

    /// A size argument as an index; 0 when it is absent.
    pub fn size(&self, name: &str) -> usize {
        self.args.size(name).map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// A buffer argument's elements. Returns an error when it is absent or of another dtype, which a kernel
    /// that asks for what its parameters declare never sees.
    pub fn cells<T: Element>(&self, name: &str) -> Result<&'a [Cell<T>], String> {
        let range = self.args.buffer(name).ok_or_else(|| format!("there is no buffer argument `{name}`"))?;
        if range.dtype != T::DTYPE {
            return Err(format!("`{name}` is {}, not {}", range.dtype, T::DTYPE));
        }
        let len = usize::try_from(range.len()).map_err(|_| format!("`{name}` does not fit this machine"))?;
        if len == 0 {
            return Ok(&[]);
        }
        // SAFETY: `new`'s caller vouches for the range; `Cell<T>` has T's layout, and T is plain data.
        Ok(unsafe { std::slice::from_raw_parts(range.ptr.0 as usize as *const Cell<T>, len) })
    }

    /// A scalar argument as `T`: the constant, or the element that the buffer holds now.
    pub fn scalar<T: Element>(&self, name: &str) -> Result<T, String> {
        match self.args.get(name) {
            Arg::Scalar(value) => Ok(value.to()),
            Arg::Buffer(_) => match self.cells::<T>(name)?.first() {
                Some(cell) => Ok(cell.get()),
                None => Err(format!("`{name}` is an empty buffer")),
            },
            _ => Err(format!("there is no scalar argument `{name}`")),
        }
    }

    /// A scalar argument as `f64`, whatever the dtype of the buffer that holds it.
    pub fn scalar_f64(&self, name: &str) -> Result<f64, String> {
        match self.args.get(name) {
            Arg::Buffer(range) => {
                with_element!(range.dtype, T => Ok(crate::element::to_f64(self.scalar::<T>(name)?)))
            }
            _ => self.scalar::<f64>(name),
        }
    }
}

impl<F: Fn(&HostCall<'_>) -> Result<(), String> + Send + Sync> HostKernel for F {
    unsafe fn ready(
        &'static self,
        kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        grid: Grid,
    ) -> Result<Box<dyn HostLaunch>, DeviceError> {
        Ok(Box::new(Launch { form: self, kernel, args, grid }))
    }
}

/// A launch of a function.
struct Launch<F: 'static> {
    form: &'static F,
    kernel: &'static KernelDef,
    args: Vec<Arg<BoundRange>>,
    grid: Grid,
}

impl<F: Fn(&HostCall<'_>) -> Result<(), String> + Send + Sync> HostLaunch for Launch<F> {
    fn launch(&mut self) -> Result<(), String> {
        // SAFETY: whoever made it ready vouched for the ranges, which nobody else touches during this call.
        (self.form)(&unsafe { HostCall::new(self.kernel, &self.args, self.grid) })
    }
}
