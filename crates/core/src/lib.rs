//! The vocabulary of squall.

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
pub mod world;

pub use args::{Arg, Args, BoundRange};
pub use buffer::{BufferDecl, BufferId, BufferRange, Download, Shape, Upload};
pub use device::{
    Backend, Capture, Device, DeviceError, DevicePtr, Memory, Progress, RawHandle, Stream, Work,
};
pub use diagnostic::{Code, Diagnostic, Label, Severity, Span};
pub use dtype::{DType, Element};
pub use error::{GroupError, Problems};
pub use graph::{ArgValue, GraphBuilder, GroupSpec, KernelSpec, OpSpec, Origin, Phase, TaskGraph, TaskSpec};
pub use grid::{Grid, GridError};
pub use group::{Interrupt, Options, PlanGroup, Steps};
pub use host_call::HostCall;
pub use kernel::{Cover, CudaSource, HostKernel, KernelDef};
pub use library_op::{
    Abort, Connect, Exchange, Library, LibraryOp, Needs, OpCall, OpError, Prepare, Session,
};
pub use param::{Mode, ParamDef, ParamKind, Presence, Type};
pub use plan::Feed;
pub use reduce::ReduceOp;
pub use registry::Registry;
pub use scalar::Scalar;
pub use task::{Access, ArgError, Description, Matched, Meeting, Message, Signature, Task};
pub use verify::{Verified, verify};
pub use world::{CommId, Part, World};

/// The Rust types of [`DType`] under one path, for [`with_element!`].
#[doc(hidden)]
pub mod elements {
    pub use core::primitive::{f32, f64, i8, i32, i64, u8, u32, u64};
    pub use half::{bf16, f16};
}
