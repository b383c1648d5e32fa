//! Library ops: calls into a library on the rank's stream, most of them between ranks.
//!
//! # Writing an op
//! An op is described for all ranks ([`Task::describe`], or [`Description::symmetric`](crate::Description::symmetric) where all are
//! treated alike) and made ready on each. In [`LibraryOp::prepare`] it makes [`Work`]s, of three kinds:
//!
//! - **kernels**: [`Prepare::kernel`], with arguments and a grid. A [`KernelDef`] has a form for the host
//!   and one for CUDA, and need not be registered. Memory of its own it gets from [`Device::alloc`], and keeps in its work.
//! - **ops that it uses**: [`Prepare::op`], for those in [`Needs::uses`]. The device's default library serves them: NCCL on GPUs, the
//!   host's on hosts.
//! - **code of its own**: its own implementation of `Work`. What waits there for other ranks leaves when it is told to by
//!   [`Prepare::on_abort`], or polls [`Prepare::aborted`].
//!
//! A `Vec` of works is a work that enqueues them in order. So an op of kernels and used ops is written once for all kinds of device, and
//! registered for each. With [`Needs::single_process`] it may also reach its peers' memory, by [`Prepare::peer_pointers`].
//!
//! ```
//! use squall_core::{
//!     Arg, ArgError, Args, Cover, CudaSource, DType, Description, DeviceError, HostCall, KernelDef, LibraryOp, Needs,
//!     OpCall, OpError, ParamDef, Prepare, Task, Type, Work, register_op,
//! };
//!
//! /// Halves what a rank has, and sums that over all ranks. Served on one kind of device.
//! struct HalfSum(&'static str);
//!
//! register_op!(&HalfSum("host"), &HalfSum("cuda"));
//!
//! impl Task for HalfSum {
//!     fn name(&self) -> &'static str {
//!         "half_sum"
//!     }
//!     fn summary(&self) -> &'static str {
//!         "data = the sum of all ranks' data / 2"
//!     }
//!     fn params(&self) -> &'static [ParamDef] {
//!         const { &[ParamDef::read_write("data", Type::Is(DType::F32), "[n]")] }
//!     }
//!     fn example(&self) -> &'static str {
//!         "manifest = 1 …"
//!     }
//!     fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
//!         Ok(Description::symmetric("half_sum", args))
//!     }
//! }
//!
//! impl LibraryOp for HalfSum {
//!     fn library(&self) -> &'static str {
//!         "half-sum"
//!     }
//!     fn device(&self) -> &'static str {
//!         self.0
//!     }
//!     fn needs(&self) -> Needs {
//!         Needs { groups: false, uses: &["all_reduce"], ..Needs::NONE }
//!     }
//!     unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
//!         let mut works = Vec::with_capacity(2 * batch.len());
//!         for call in batch {
//!             let Some(data) = call.args.buffer("data") else { continue };
//!             let (threads, data) = (data.len(), Arg::Buffer(data.clone()));
//!             // SAFETY: the range is the call's.
//!             works.push(unsafe { cx.kernel(&HALVE, vec![data.clone()], threads, 256) }?);
//!             let sum = [("buffer", data), ("reduce", Arg::Word(0))];
//!             // SAFETY: as above.
//!             works.push(unsafe { cx.op("all_reduce", call.comm, &sum) }?);
//!         }
//!         Ok(Box::new(works))
//!     }
//! }
//!
//! static HALVE: KernelDef = KernelDef {
//!     name: "halve",
//!     params: &[ParamDef::read_write("data", Type::Is(DType::F32), "[n]")],
//!     covers: &[Cover::Len("data")],
//!     host: Some(&halve),
//!     cuda: Some(CudaSource::new(
//!         "__device__ void halve(squall::Buffer<data_t> data, const squall::Launch &launch) {
//!              u64 i = squall::x();
//!              if (i < squall::least(data.len, launch.threads[0])) data[i] /= 2;
//!          }",
//!         "halve",
//!     )),
//!     ..KernelDef::EMPTY
//! };
//!
//! fn halve(call: &HostCall<'_>) -> Result<(), String> {
//!     for x in call.cells::<f32>("data")?.iter().take(call.launched()[0]) {
//!         x.set(x.get() / 2.0);
//!     }
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = squall_core::Registry::linked()?;
//! assert_eq!(registry.op("half_sum", "cuda", None)?.needs().uses, ["all_reduce"]);
//! # Ok(())
//! # }
//! ```

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::args::{Arg, Args, BoundRange};
use crate::device::{Device, DeviceError, DevicePtr, Work};
use crate::dtype::DType;
use crate::graph::IntoDims;
use crate::kernel::KernelDef;
use crate::ops::Parts;
use crate::reduce::ReduceOp;
use crate::task::{ArgError, Task};
use crate::world::{CommId, World};

/// An op as one library serves it on one kind of device: `all_reduce` by `nccl` on `cuda`.
///
/// The description half comes from [`Task`]; for an op of squall's own it is the contract in [`crate::ops`],
/// which is the same for every library. Registered with [`crate::register_op!`].
pub trait LibraryOp: Task {
    /// The library's name, the same for all its ops on all devices.
    fn library(&self) -> &'static str;
    /// The kind of device it runs on.
    fn device(&self) -> &'static str;
    /// What it can do and what it asks of its arguments.
    fn needs(&self) -> Needs;
    /// How it serves these arguments, in words that follow on `op … by …`, where that is not one call made for the op; told by
    /// `squall plan`. `parts` is as in [`OpCall`].
    fn served_as(&self, args: &Args<'_>, parts: Option<&Parts>) -> Option<String> {
        let _ = (args, parts);
        None
    }
    /// Makes a batch ready to be enqueued step after step: may allocate, talk to the other ranks, make other ops
    /// ready inside itself, open peer access. `batch` is a group, or a lone op as a batch of one; all members are ops of this library, and
    /// this is the first of them. Enqueuing the work lets all members progress jointly.
    ///
    /// Called on the rank's thread while its plan is bound, before any capture, in the same order on all
    /// ranks of a communicator.
    ///
    /// # Safety
    /// The ranges in the batch must be memory of `cx.device` that outlives the work, and nothing but the
    /// stream it is enqueued on and the library itself may touch them while it runs.
    ///
    /// On a GPU the library may reach a rank's memory from its peers' kernels. Work that was released by an abort has
    /// left its own stream, and no more: the ranges must be held until all ranks that the batch meets have left theirs.
    /// A rank that never leaves keeps the memory of all.
    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError>;
}

/// What an op of a library can do and what it asks of its arguments. Checked before any device: when a graph is built, and
/// [`Needs::captures`] where a step is to be captured, [`Needs::single_process`] where a job is to be run by several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Every range must begin at a multiple of so many bytes: a power of two, up to [`MEMORY_ALIGNMENT`](crate::MEMORY_ALIGNMENT).
    pub alignment: u64,
    /// Every range must have a multiple of so many elements.
    pub multiple: u64,
    /// The dtypes it takes.
    pub dtypes: &'static [DType],
    /// The reductions it knows, for ops with a `reduce` argument.
    pub reductions: &'static [ReduceOp],
    /// Whether it may stand in a group with others of its library.
    pub groups: bool,
    /// Whether it may be captured and replayed. A step with one that may not is refused where capture is on, by
    /// [`Verified::check_capture`](crate::Verified::check_capture); it may always stand in the setup and the finish.
    pub captures: bool,
    /// Whether it reaches peers' memory, so that all ranks of its communicators must be of one process. A job of several processes
    /// with such an op is refused by [`Verified::check_processes`](crate::Verified::check_processes).
    pub single_process: bool,
    /// Squall's own ops that it prepares inside itself with [`Prepare::op`], on its communicator, by the device's default library. That
    /// library is connected for the communicator as if a task had named the op. They must be served there, by another library
    /// than its own, and not be made of ops themselves: else the task is refused when its graph is built.
    pub uses: &'static [&'static str],
}

impl Needs {
    /// An op that takes everything and can do everything.
    pub const NONE: Needs = Needs {
        alignment: 1,
        multiple: 1,
        dtypes: DType::ALL,
        reductions: ReduceOp::ALL,
        groups: true,
        captures: true,
        single_process: false,
        uses: &[],
    };
}

/// One op of a batch, bound to a rank's memory.
#[derive(Clone, Copy, Debug)]
pub struct OpCall<'a> {
    /// The op.
    pub op: &'static dyn LibraryOp,
    /// The task's name, for messages.
    pub task: &'a str,
    /// The communicator it meets in.
    pub comm: CommId,
    /// Its arguments, and this rank's place in the communicator.
    pub args: Args<'a, BoundRange>,
    /// The parts of all ranks of the communicator, in elements, where they are unequal: see [`Share`](crate::task::Share). `None` for equal
    /// parts and for an op that divides nothing.
    pub parts: Option<&'a Parts>,
}

impl std::fmt::Debug for dyn LibraryOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} by {} on {}", self.name(), self.library(), self.device())
    }
}

/// Why a batch could not be made ready.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// An argument breaks a rule that only the library knows.
    #[error("{error}")]
    Arg {
        /// The member of the batch.
        member: usize,
        /// The rule.
        error: ArgError,
    },
    /// The device or the library failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// What an op finds while it is made ready.
pub struct Prepare<'a> {
    /// This rank, of the world.
    pub rank: u32,
    /// All ranks and communicators.
    pub world: &'a Arc<World>,
    /// The rank's device.
    pub device: &'a dyn Device,
    /// What [`Library::connect`] made for this rank; `None` for an op whose library registered no connection.
    pub session: Option<&'a mut (dyn Any + Send)>,
    /// The way to other ranks for small values.
    pub exchange: &'a dyn Exchange,
    /// Set when the plan group aborts; work that waits for others polls it.
    pub aborted: &'a Arc<dyn Abort>,
    /// When to give up.
    pub deadline: Instant,
    /// What the methods stand on.
    pub services: &'a mut dyn Services,
}

impl Prepare<'_> {
    /// Makes a kernel ready, of the op's own or another, on a grid of at least `threads` threads in blocks of `block`: numbers, or arrays of up to
    /// three. `args` stand in the order of its parameters. They and the grid are checked by the rules by which a task's are, so that a
    /// wrong launch is an error before anything runs. Enqueuing the work that the batch becomes enqueues it in its turn.
    ///
    /// # Safety
    /// As of [`Device::kernel`].
    pub unsafe fn kernel(
        &mut self,
        kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        threads: impl IntoDims,
        block: impl IntoDims,
    ) -> Result<Box<dyn Work>, DeviceError> {
        // SAFETY: the caller's.
        unsafe { self.services.kernel(kernel, args, (threads.into_dims(), block.into_dims())) }
    }

    /// Makes one of squall's own ops ready, which the op names in [`Needs::uses`], on a communicator of the batch. Enqueuing the work that
    /// the batch becomes enqueues it in its turn. Arguments that are not given get their defaults. All are checked by the rules by which a
    /// task's are, so that a wrong call is an error and never reaches the library; that all ranks call alike is the op's to see to, and
    /// parts must be equal. All ranks of the communicator make the same ops ready in the same order.
    ///
    /// # Safety
    /// As of [`LibraryOp::prepare`], for the ranges in `args`.
    pub unsafe fn op(
        &mut self,
        name: &str,
        comm: CommId,
        args: &[(&str, Arg<BoundRange>)],
    ) -> Result<Box<dyn Work>, OpError> {
        // SAFETY: the caller's.
        unsafe { self.services.op(name, comm, args) }
    }

    /// Everyone's address of what `ptr` is to this rank, by rank of the communicator, after this device was let
    /// [reach](Device::reach) theirs. For ops with [`Needs::single_process`]. Waits for all ranks of the communicator, which must all call it.
    /// What a peer's address stands for must live until all ranks have left the work that touches it.
    pub fn peer_pointers(&mut self, comm: CommId, ptr: DevicePtr) -> Result<Vec<DevicePtr>, DeviceError> {
        self.services.peer_pointers(comm, ptr)
    }

    /// Has `handle` called when the ranks are aborted, from whatever thread aborts, until this rank's plan is dropped: work that waits
    /// for others in its own way leaves its stream by it. Where the abort has happened already it is called now. It must bear being
    /// called when the work is gone, and must not call the group.
    pub fn on_abort(&mut self, handle: Arc<dyn Abort>) {
        self.services.on_abort(handle);
    }
}

/// What a plan does for an op that is made ready: the methods of [`Prepare`], which say what each must do. Plans implement it, and
/// whoever stands between a plan and an op, such as a plugin's interface.
pub trait Services {
    /// See [`Prepare::kernel`].
    ///
    /// # Safety
    /// As there.
    unsafe fn kernel(
        &mut self,
        kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        grid: ([u64; 3], [u64; 3]),
    ) -> Result<Box<dyn Work>, DeviceError>;
    /// See [`Prepare::op`].
    ///
    /// # Safety
    /// As there.
    unsafe fn op(
        &mut self,
        name: &str,
        comm: CommId,
        args: &[(&str, Arg<BoundRange>)],
    ) -> Result<Box<dyn Work>, OpError>;
    /// See [`Prepare::peer_pointers`].
    fn peer_pointers(&mut self, comm: CommId, ptr: DevicePtr) -> Result<Vec<DevicePtr>, DeviceError>;
    /// See [`Prepare::on_abort`].
    fn on_abort(&mut self, handle: Arc<dyn Abort>);
}

/// A way for the ranks of a communicator, in this process or not, to tell each other small values while their
/// plans are bound.
pub trait Exchange: Send + Sync {
    /// Gathers everyone's `mine`, ordered by rank in the communicator. Blocks until all ranks of `rank`'s part
    /// of `comm` have called it, an abort, or the deadline.
    fn all_gather(
        &self,
        comm: CommId,
        rank: u32,
        mine: &[u8],
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, DeviceError>;
}

/// The handle that stops a library's work in flight. Apart from the plan, so that any thread can use it at any time.
pub trait Abort: Send + Sync {
    /// Stops. Never blocks, never runs on a thread whose stream is capturing. More calls change nothing. What is stopped
    /// leaves its stream, or ends with [`DeviceError::Aborted`], soon; its results are worth nothing. Another rank may still
    /// be on its way out, and touch memory of this one: buffers are freed and used again only after all have left.
    fn abort(&self);
    /// Whether it was stopped.
    fn is_aborted(&self) -> bool;
    /// What the library has itself found wrong, in its words, each thing once; mostly nothing. Asked before an abort, by the thread that
    /// aborts, while ranks may be inside the library. Never blocks.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A flag that whoever waits polls: for what has nothing else to stop.
impl Abort for AtomicBool {
    fn abort(&self) {
        self.store(true, Ordering::SeqCst);
    }

    fn is_aborted(&self) -> bool {
        self.load(Ordering::SeqCst)
    }
}

/// A library that needs communicators of its own. Registered with [`crate::register_library!`].
pub trait Library: Sync {
    /// The name, as its ops give it.
    fn name(&self) -> &'static str;
    /// The kind of device.
    fn device(&self) -> &'static str;
    /// Makes the communicators for all ranks of this process at once: one session a rank of `cx.local`, in its order.
    /// Called once a plan group, on one thread, before any rank prepares its ops. A library that joins ranks of one process alone
    /// refuses a world that has others.
    /// Comes back by `cx.deadline`, but for moments to take back what it made, whatever a peer or a driver does: what does
    /// not return is left to a thread of its own, with what it uses, and the error says what that is.
    fn connect(&self, cx: &Connect<'_>) -> Result<Vec<Session>, DeviceError>;
    /// What of the library this process has opened: files and versions, a line each, and lines that begin with `warning:`. Opens
    /// nothing.
    fn in_use(&self) -> Vec<String> {
        Vec::new()
    }
    /// What was found on this machine, and what is missing: lines as of [`Backend::findings`](crate::Backend::findings).
    fn findings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What a library finds when it connects.
pub struct Connect<'a> {
    /// All ranks and communicators.
    pub world: &'a Arc<World>,
    /// The communicators that ops of this library use somewhere in the job, ascending.
    pub comms: &'a [CommId],
    /// The ranks of this process, each with its device.
    pub local: &'a [(u32, Arc<dyn Device>)],
    /// The way to other ranks for small values.
    pub exchange: &'a dyn Exchange,
    /// Set when the ranks are aborted, as where another process fails: what waits for other processes polls it.
    pub aborted: &'a Arc<dyn Abort>,
    /// When to give up.
    pub deadline: Instant,
}

/// One rank's live communicators of one library.
pub struct Session {
    /// What the library's ops find again as [`Prepare::session`].
    pub state: Box<dyn Any + Send>,
    /// Stops all work of this rank in this library.
    pub abort: Arc<dyn Abort>,
}
