//! The vocabulary of squall: what a step of work on several devices is, the proof that it cannot hang, and the traits
//! through which devices, kernels and libraries serve it.
//!
//! ```text
//! GraphBuilder ─build→ TaskGraph, one per rank ─verify→ Verified ─PlanGroup::new→ PlanGroup ─execute × steps
//! ```
//!
//! One direction, and each stage takes only what the stage before makes: a [`PlanGroup`] takes nothing but a
//! [`Verified`], and only [`verify()`] makes one, so that ranks which could hang cannot be run. Building and verifying need
//! no device, for any number of ranks.
//!
//! # Two halves
//! A task is described apart from being run. The *description* ([`Task`], [`KernelDef`], [`LibraryOp`]'s description, the
//! contracts in [`ops`]) is plain data over all ranks: parameters, what is read and written, which ranks must meet. The
//! *bound* half ([`Device`], [`Stream`], [`Work`], [`Library`]) is one rank's live objects. Everything that runs in a step is a
//! [`Work`]: a kernel, a batch of ops, a captured step; it is made ready when a plan is bound, and enqueuing it allocates
//! nothing. The cost of the split: an op's arguments are looked at twice, once as ranges of buffers, once as addresses; both
//! go through the same generic [`Args`], and squall's own ops through one typed [`ops::Call`].
//!
//! # What is not here
//! No GPU, no file format, no manifest, no plugin loading; `cargo tree -p squall-core` stays short, and a test keeps it
//! so. Backends, kernels and ops come from other crates, which register them with the `register_…!` macros; a
//! [`Registry`] is what a program has linked. A crate that nothing names is not linked: say `use squall_host_backend as _;`.
//!
//! # Where to begin
//! [`KernelDef`] shows a kernel of your own, [`device`] says how a backend is written, [`LibraryOp`] is an op of a library.

pub mod args;
pub mod buffer;
pub mod codes;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod device;
pub mod diagnostic;
pub mod dtype;
pub mod element;
pub mod error;
pub mod graph;
pub mod grid;
pub mod group;
pub mod host_call;
pub mod kernel;
pub mod library_op;
pub mod ops;
pub mod param;
pub mod plan;
pub mod reduce;
pub mod registry;
pub mod scalar;
pub mod task;
pub mod verify;
pub mod wait;
mod words;
pub mod world;

pub use args::{Arg, Args, BoundRange};
pub use buffer::{BufferDecl, BufferId, BufferRange, Download, Shape, Upload};
pub use device::{
    Backend, Capture, Device, DeviceError, DevicePtr, MEMORY_ALIGNMENT, Memory, Position, Progress,
    RawHandle, Stream, Work,
};
pub use diagnostic::{Code, Diagnostic, Label, Severity, Span};
pub use dtype::{DType, Element};
pub use error::{GroupError, Moment, Problems};
pub use graph::{
    ArgValue, GraphBuilder, GroupSpec, KernelSpec, Matrix, OpSpec, Origin, Phase, SwapSpec, TaskGraph,
    TaskSpec,
};
pub use grid::{Grid, GridError};
pub use group::{Ending, EndingKind, Interrupt, Options, Peers, PlanGroup, Snapshot, Steps};
pub use host_call::HostCall;
pub use kernel::{Cover, CudaSource, HostKernel, HostLaunch, KernelDef};
pub use library_op::{
    Abort, Connect, Exchange, Library, LibraryOp, Needs, OpCall, OpError, Prepare, Services, Session,
};
pub use ops::Parts;
pub use param::{Mode, ParamDef, ParamKind, Presence, Type};
pub use plan::{Feed, Observer, Written};
pub use reduce::ReduceOp;
pub use registry::Registry;
pub use scalar::Scalar;
pub use task::{Access, ArgError, Description, Matched, Meeting, Message, Share, Signature, Task};
pub use verify::{Verified, doubts, verify, verify_partial};
pub use words::count;
pub use world::{CommId, Part, World};

/// The Rust types of [`DType`] under one path, for [`with_element!`].
#[doc(hidden)]
pub mod elements {
    pub use core::primitive::{f32, f64, i8, i32, i64, u8, u32, u64};
    pub use half::{bf16, f16};
}
