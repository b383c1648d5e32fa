//! Kernels: their descriptors, with a form for each kind of device.

use crate::args::{Arg, Args, BoundRange};
use crate::buffer::BufferRange;
use crate::device::DeviceError;
use crate::grid::Grid;
use crate::param::{Mode, ParamDef, ParamKind};
use crate::task::{Access, ArgError, Description, Task};

/// A kernel: what it takes, which grid it wants, and how each kind of device runs it. A constant of the crate
/// that brings it, registered with [`crate::register_kernel!`].
///
/// ```
/// use squall_core::{Cover, DType, HostCall, KernelDef, ParamDef, Registry, Type, register_kernel};
///
/// /// `data[i] = data[i] / 2`.
/// pub static HALVE: KernelDef = KernelDef {
///     name: "halve",
///     summary: "data[i] = data[i] / 2",
///     params: &[ParamDef::read_write("data", Type::Is(DType::F32), "[n]")],
///     covers: &[Cover::Len("data")], // axis x has a thread for each element
///     host: Some(&halve),
///     ..KernelDef::EMPTY
/// };
///
/// register_kernel!(&HALVE);
///
/// fn halve(call: &HostCall<'_>) -> Result<(), String> {
///     // Elements without a thread stay as they were; `take` ends at the last element, so that surplus threads do nothing.
///     for x in call.cells::<f32>("data")?.iter().take(call.launched()[0]) {
///         x.set(x.get() / 2.0);
///     }
///     Ok(())
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = Registry::linked()?;
/// assert!(registry.kernel("halve").is_some_and(|kernel| kernel.runs_on("host")));
/// # use squall_core::{Arg, BoundRange, DevicePtr, Grid};
/// # for (threads, expected) in [(3, [1.0, 2.0, 3.0, 8.0]), (4, [1.0, 2.0, 3.0, 4.0]), (9, [1.0, 2.0, 3.0, 4.0])] {
/// #     let mut data = [2.0f32, 4.0, 6.0, 8.0];
/// #     let ptr = DevicePtr(data.as_mut_ptr() as u64);
/// #     let args = [Arg::Buffer(BoundRange { ptr, dtype: DType::F32, shape: [4].into() })];
/// #     let grid = Grid::new([threads, 1, 1], [1, 1, 1])?;
/// #     // SAFETY: `data` outlives the call and is this thread's alone.
/// #     halve(&unsafe { HostCall::new(&HALVE, &args, grid) })?;
/// #     assert_eq!(data, expected);
/// # }
/// # Ok(())
/// # }
/// ```
///
/// # Rules of a kernel
/// - **A thread owns the element that [`KernelDef::covers`] names for its coordinates:** x counts elements, or columns where y
///   counts rows. A kernel writes what its threads own, and an element without a thread stays as it was.
/// - **Surplus threads do nothing.** A grid is rounded up to whole blocks, so that threads lie beyond the data: every kernel
///   checks its bounds. On an axis that `covers` does not name, only the threads at coordinate 0 work. A kernel that covers
///   [`Cover::Any`] does all its work on any grid.
/// - **It reads and writes what its parameters say,** the whole range of each; verification believes them. Two of its ranges may
///   be the same only if [`KernelDef::in_place`] names the pair.
/// - **It never blocks:** the other ranks may wait for this one. What it cannot do it returns as an error, which fails the rank.
/// - **It allocates nothing,** as all that runs in a step.
/// - **The same arguments give the same bits:** the order of a sum depends on the shapes alone.
#[derive(Clone, Copy)]
pub struct KernelDef {
    /// The name in manifests.
    pub name: &'static str,
    /// One line for listings.
    pub summary: &'static str,
    /// The parameters.
    pub params: &'static [ParamDef],
    /// What the grid's threads must cover, axis by axis. Axes beyond these may have any length.
    pub covers: &'static [Cover],
    /// Pairs of a written and a read parameter that may be the very same range, since the kernel reads an
    /// element only in the thread that writes it.
    pub in_place: &'static [(&'static str, &'static str)],
    /// Rules between the arguments, such as shapes that must agree: `&|args| …`, or `&` and a function.
    pub check: &'static (dyn Fn(&Args<'_>) -> Result<(), ArgError> + Send + Sync),
    /// A manifest that runs it.
    pub example: &'static str,
    /// The form for host devices.
    pub host: Option<&'static dyn HostKernel>,
    /// The form for CUDA devices.
    pub cuda: Option<CudaSource>,
}

/// What one axis of a kernel's grid must cover: at least so many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// The number of elements of a buffer argument.
    Len(&'static str),
    /// A size argument.
    Size(&'static str),
    /// The length of an axis of a buffer argument.
    Dim(&'static str, usize),
    /// Nothing: the kernel strides over its data.
    Any,
}

/// A kernel in CUDA C++, compiled for the dtypes of its arguments and the GPU's architecture when a plan is bound.
///
/// What the source may use, and how arguments reach it, is told in the documentation of `squall_cuda_backend::kernel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaSource {
    /// The source text.
    pub source: &'static str,
    /// The name of its `__device__` function, which every thread of the launch calls.
    pub entry: &'static str,
    /// Whether each thread loops over axis x, so that a launch may have fewer blocks on that axis than the grid says: as many
    /// as fill the GPU.
    pub loops: bool,
    /// What the kernel may find wrong while it runs, a message each; `{}` stands for the number that it gives.
    pub failures: &'static [&'static str],
    /// Bytes of device memory that each task with this kernel has for itself: zero before the first launch, kept from launch to
    /// launch. Where blocks leave partial sums for one another.
    pub scratch: u32,
}

impl CudaSource {
    /// A kernel that is launched on the grid as it stands, and finds nothing wrong.
    pub const fn new(source: &'static str, entry: &'static str) -> CudaSource {
        CudaSource { source, entry, loops: false, failures: &[], scratch: 0 }
    }

    /// The same, whose threads loop over axis x.
    pub const fn looping(self) -> CudaSource {
        CudaSource { loops: true, ..self }
    }

    /// The same, which may fail in these ways.
    pub const fn failing(self, failures: &'static [&'static str]) -> CudaSource {
        CudaSource { failures, ..self }
    }

    /// The same, with so many bytes of scratch memory.
    pub const fn scratch(self, bytes: u32) -> CudaSource {
        CudaSource { scratch: bytes, ..self }
    }
}

/// The host form of a kernel, generic over the dtypes its parameters allow. Every `fn(&HostCall<'_>) -> Result<(), String>` is
/// one, and whoever writes a kernel writes that; a form that comes from elsewhere, such as a plugin, keeps in its
/// [`HostLaunch`] what it made of the arguments.
pub trait HostKernel: Send + Sync {
    /// Makes a launch ready, once, while the rank's plan is bound: may allocate. Called on the rank's thread with arguments that passed
    /// the kernel's checks.
    ///
    /// # Safety
    /// Every range in `args` must be initialised memory of this process, aligned to its dtype, that outlives the launch; and nothing but
    /// the thread that launches may touch it meanwhile.
    unsafe fn ready(
        &'static self,
        kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        grid: Grid,
    ) -> Result<Box<dyn HostLaunch>, DeviceError>;
}

/// A kernel with its arguments and grid on a host device, ready to run.
pub trait HostLaunch: Send {
    /// Runs the kernel to its end. Called on the rank's thread whenever its turn comes, and never for an empty grid. It computes what
    /// the threads of the grid compute, and no more: elements beyond the grid stay as they were. It must not block, allocates nothing, and
    /// returns a message when it cannot go on, which fails the rank.
    fn launch(&mut self) -> Result<(), String>;
}

impl KernelDef {
    /// A kernel without parameters, forms or rules: the base for struct update syntax.
    pub const EMPTY: KernelDef = KernelDef {
        name: "",
        summary: "",
        params: &[],
        covers: &[],
        in_place: &[],
        check: &|_| Ok(()),
        example: "",
        host: None,
        cuda: None,
    };

    /// Whether there is a form for devices of this kind: `"host"` or `"cuda"`, and `false` for any other.
    ///
    /// These two are all that it knows, since a kernel's forms are fields of its descriptor: a constant, checked when it is
    /// compiled, with no table to fill at start-up. A backend for a third kind of device needs a field here.
    pub fn runs_on(&self, device_kind: &str) -> bool {
        match device_kind {
            "host" => self.host.is_some(),
            "cuda" => self.cuda.is_some(),
            _ => false,
        }
    }

    /// How many threads each axis of the grid must have with these arguments.
    pub fn required_threads(&self, args: &Args<'_>) -> [u64; 3] {
        let mut required = [0; 3];
        for (axis, cover) in required.iter_mut().zip(self.covers) {
            *axis = match cover {
                Cover::Len(param) => args.buffer(param).map_or(0, BufferRange::len),
                Cover::Size(param) => args.size(param).unwrap_or(0),
                Cover::Dim(param, dim) => {
                    args.buffer(param).and_then(|range| range.shape.get(*dim).copied()).unwrap_or(0)
                }
                Cover::Any => 0,
            };
        }
        required
    }

    /// Whether an axis has nothing to cover: then no thread is needed on any.
    pub fn covers_nothing(&self, args: &Args<'_>) -> bool {
        let required = self.required_threads(args);
        required.iter().zip(self.covers).any(|(&need, cover)| need == 0 && *cover != Cover::Any)
    }

    /// The axes that `grid` does not cover, with what they must cover.
    pub fn uncovered(&self, args: &Args<'_>, grid: &Grid) -> impl Iterator<Item = (usize, Cover, u64)> {
        let (required, threads) = (self.required_threads(args), grid.threads());
        let (covers, empty) = (self.covers, self.covers_nothing(args));
        (0..covers.len().min(3))
            .filter(move |&axis| !empty && threads[axis] < required[axis])
            .map(move |axis| (axis, covers[axis], required[axis]))
    }
}

impl Task for KernelDef {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn params(&self) -> &'static [ParamDef] {
        self.params
    }

    fn example(&self) -> &'static str {
        self.example
    }

    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        (self.check)(args)?;
        let mut accesses: Vec<Access> = Vec::new();
        for (param, value) in self.params.iter().zip(args.values) {
            let Arg::Buffer(range) = value else { continue };
            let mode = match param.kind {
                ParamKind::Buffer(mode, _) => mode,
                _ => Mode::Read, // a scalar in a one-element buffer
            };
            let elements = range.offset..range.offset + range.len();
            let mut access = Access { param: param.name, buffer: range.buffer, range: elements, mode };
            let pair = |a: &str, b: &str| self.in_place.contains(&(a, b)) || self.in_place.contains(&(b, a));
            // The in-place form: each element is read, then written. One access says so, in place of the two
            // or more that name the range.
            accesses.retain(|other| {
                let same = other.buffer == access.buffer && other.range == access.range;
                let in_place = same && pair(other.param, access.param);
                if in_place {
                    access.mode = Mode::ReadWrite;
                }
                if in_place && other.mode.writes() {
                    access.param = other.param;
                }
                !in_place
            });
            accesses.push(access);
        }
        Ok(Description { accesses, meetings: Vec::new() })
    }
}

impl std::fmt::Debug for KernelDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelDef")
            .field("name", &self.name)
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param::{Presence, Type};
    use crate::{BufferId, DType};

    const F32: Type = Type::Is(DType::F32);
    const OUT: ParamDef = ParamDef::write("out", F32, "");
    const A: ParamDef = ParamDef::read("a", F32, "");
    const B: ParamDef = ParamDef::read("b", F32, "");

    /// The accesses of a kernel with these parameters over buffers of one element.
    fn accesses(params: &'static [ParamDef], buffers: [u32; 3]) -> Vec<(&'static str, u32, Mode)> {
        let kernel = KernelDef { params, in_place: &[("out", "a"), ("out", "b")], ..KernelDef::EMPTY };
        let range =
            |id| BufferRange { buffer: BufferId(id), dtype: DType::F32, offset: 0, shape: [1].into() };
        let values = buffers.map(|id| Arg::Buffer(range(id)));
        let args = Args { params, values: &values, comm_rank: 0, comm_size: 1 };
        let description = kernel.describe(&args).unwrap();
        description.accesses.iter().map(|a| (a.param, a.buffer.0, a.mode)).collect()
    }

    #[test]
    fn a_check_may_hold_what_it_needs() {
        let most = 3;
        let check = move |args: &Args<'_>| match args.size("n") {
            Some(n) if n > most => Err(ArgError::new("n", format!("is {n}, and {most} is the most"))),
            _ => Ok(()),
        };
        let params = const { &[ParamDef::size("n", Presence::Required, "")] };
        let kernel = KernelDef { params, check: Box::leak(Box::new(check)), ..KernelDef::EMPTY };
        let described = |n| {
            let args = Args { params: kernel.params, values: &[Arg::Size(n)], comm_rank: 0, comm_size: 1 };
            kernel.describe(&args).map(drop)
        };
        assert_eq!(described(3), Ok(()));
        assert_eq!(described(4), Err(ArgError::new("n", "is 4, and 3 is the most")));
    }

    #[test]
    fn an_in_place_form_is_one_access() {
        let (read, write, both) = (Mode::Read, Mode::Write, Mode::ReadWrite);
        assert_eq!(accesses(&[A, B, OUT], [0, 1, 2]), [("a", 0, read), ("b", 1, read), ("out", 2, write)]);
        assert_eq!(accesses(&[A, B, OUT], [0, 0, 1]), [("a", 0, read), ("b", 0, read), ("out", 1, write)]);
        assert_eq!(accesses(&[A, B, OUT], [0, 1, 0]), [("b", 1, read), ("out", 0, both)]);
        // All three at once, in either order of the parameters.
        assert_eq!(accesses(&[A, B, OUT], [0, 0, 0]), [("out", 0, both)]);
        assert_eq!(accesses(&[OUT, A, B], [0, 0, 0]), [("out", 0, both)]);
    }
}
