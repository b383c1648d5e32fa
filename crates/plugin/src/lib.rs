//! Kernels and collectives of your own, which squall loads from a dylib or a program links.
//!
//! An author implements what squall's own crates implement, [`KernelDef`](core::KernelDef) for a kernel and
//! [`LibraryOp`](core::LibraryOp) for an op, registers it as they do, and adds one line, [`export!`]. The same source works linked,
//! without a change: a program that depends on the crate has its ops. The package depends on this crate alone:
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib", "rlib"]
//!
//! [features]
//! default = ["dylib"] # exports; off where the crate is linked into a program
//! dylib = []
//!
//! [dependencies]
//! squall-plugin = "0.1"
//! ```
//!
//! # An op
//! An op is made of works: kernels of its own, ops of squall's that it names in [`Needs::uses`](core::Needs::uses), or its own code. This
//! one scales a buffer with a kernel and sums it over the ranks with the `all_reduce` of the device it runs on.
//!
//! ```
//! use squall_plugin::core::{
//!     Arg, ArgError, Args, Cover, DType, Description, DeviceError, HostCall, KernelDef, LibraryOp, Needs, OpCall,
//!     OpError, ParamDef, Prepare, ReduceOp, Task, Type, Work, register_op,
//! };
//!
//! const PARAMS: &[ParamDef] = &[
//!     ParamDef::read_write("data", Type::Is(DType::F32), "[n]"),
//!     ParamDef::scalar("factor", Type::Is(DType::F32), "what every element is multiplied by"),
//! ];
//!
//! static SCALE: KernelDef = KernelDef {
//!     name: "scale",
//!     params: PARAMS,
//!     covers: &[Cover::Len("data")],
//!     host: Some(&scale), // and for GPUs `cuda: Some(CudaSource::new(include_str!("scale.cu"), "scale"))`
//!     ..KernelDef::EMPTY
//! };
//!
//! fn scale(call: &HostCall<'_>) -> Result<(), String> {
//!     let factor = call.scalar::<f32>("factor")?;
//!     call.cells::<f32>("data")?.iter().take(call.launched()[0]).for_each(|x| x.set(x.get() * factor));
//!     Ok(())
//! }
//!
//! struct ScaledSum {
//!     device: &'static str,
//! }
//!
//! impl Task for ScaledSum {
//!     fn name(&self) -> &'static str {
//!         "scaled_sum"
//!     }
//!     fn summary(&self) -> &'static str {
//!         "data = the sum over the ranks of factor * data"
//!     }
//!     fn params(&self) -> &'static [ParamDef] {
//!         PARAMS
//!     }
//!     fn example(&self) -> &'static str {
//!         "manifest = 1\n[pipeline]\nname = \"scaled_sum\"\n[world]\ndevices = \"host:0..2\"\n\
//!          [buffer.x]\ndtype = \"f32\"\nshape = [4]\ninit = { fill = \"rank\" }\nsave = \"x-{rank}.npy\"\n\
//!          [[task]]\nop = \"scaled_sum\"\nargs = { data = \"x\", factor = 0.5 }\n"
//!     }
//!     fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
//!         Ok(Description::symmetric("scaled_sum", args)) // all ranks do the same, with equal arguments
//!     }
//! }
//!
//! impl LibraryOp for ScaledSum {
//!     fn library(&self) -> &'static str {
//!         "scaling"
//!     }
//!     fn device(&self) -> &'static str {
//!         self.device
//!     }
//!     fn needs(&self) -> Needs {
//!         Needs { groups: false, uses: &["all_reduce"], ..Needs::NONE }
//!     }
//!     unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
//!         let mut works = Vec::new();
//!         for call in batch {
//!             let (data, factor) = (call.args.get("data"), call.args.get("factor"));
//!             let n = call.args.buffer("data").map_or(0, |data| data.len());
//!             // SAFETY: the caller vouches for the batch's ranges, and there are no others.
//!             works.push(unsafe { cx.kernel(&SCALE, vec![data.clone(), factor.clone()], n, 256) }?);
//!             let args = [("buffer", data.clone()), ("reduce", Arg::Word(ReduceOp::Sum as u32))];
//!             // SAFETY: as above.
//!             works.push(unsafe { cx.op("all_reduce", call.comm, &args) }?);
//!         }
//!         Ok(Box::new(works)) // enqueued one after the other, step after step
//!     }
//! }
//!
//! register_op!(&ScaledSum { device: "host" });
//! # #[cfg(any())]
//! squall_plugin::export!();
//!
//! # use std::sync::Arc;
//! # use squall_host_backend as _;
//! # use squall_plugin::core::{BufferDecl, OpSpec, Options, PlanGroup, Registry, TaskGraph, Upload, World, verify};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #     let registry = Registry::linked()?;
//! #     let world = Arc::new(World::new(2)?);
//! #     let graph = |rank| {
//! #         let mut graph = TaskGraph::builder(&registry, &world, rank, "host");
//! #         let data = graph.buffer(BufferDecl::new("data", DType::F32, [3]).upload(Upload::First));
//! #         graph.step(OpSpec::new("scaled_sum").arg("data", data).arg("factor", 0.5));
//! #         graph.build()
//! #     };
//! #     let verified = verify(vec![graph(0)?, graph(1)?])?;
//! #     let devices = [registry.open("host", 0)?, registry.open("host", 1)?];
//! #     let mut group = PlanGroup::new(&registry, verified, &devices, Options::default())?;
//! #     let data = group.buffer("data").ok_or("it is declared")?;
//! #     group.write(0, data, &[1.0f32, 2.0, 3.0])?;
//! #     group.write(1, data, &[10.0f32, 20.0, 30.0])?;
//! #     group.execute_many(1)?;
//! #     for rank in 0..2 {
//! #         assert_eq!(group.read::<f32>(rank, data)?, [5.5, 11.0, 16.5]);
//! #     }
//! #     Ok(())
//! # }
//! ```
//!
//! # What differs from a linked crate
//! The op and its works see core's traits, behind which there is the [C ABI](abi):
//!
//! - A panic is an error of the task, with its place, and prints nothing; only a plugin that is built with `panic = "abort"` ends the process.
//! - What [`Prepare`](core::Prepare) gives is for the thread that calls `prepare`, and ends with the work that `prepare` returns: memory and
//!   works that are kept elsewhere are refused then. Memory is freed with that work, not when it is dropped.
//! - A work enqueues, copies, and reads the stream's handle. Marks, waits, checkpoints and captures are the plan's, and refused.
//! - A handle given to [`Prepare::on_abort`](core::Prepare::on_abort) is told of an abort as soon as `prepare` has returned; what waits
//!   inside of `prepare` asks [`Prepare::aborted`](core::Prepare).
//! - Backends and libraries with communicators of their own cannot be exported; they are linked.
//!
//! Without the feature `sdk` there are the types of the ABI alone, for `no_std`. Plugins in C include `include/squall_plugin.h`.

#![cfg_attr(not(feature = "sdk"), no_std)]
// The page above is about the feature.
#![cfg_attr(not(feature = "sdk"), allow(rustdoc::broken_intra_doc_links))]

pub mod abi;
#[cfg(feature = "sdk")]
pub mod convert;
#[cfg(feature = "sdk")]
#[doc(hidden)]
pub mod sdk;

#[cfg(feature = "sdk")]
pub use squall_core as core;

/// Exports what this crate has registered, as squall's plugins do. Stands once in the crate, in its `lib.rs`; does nothing
/// unless the crate's feature `dylib` is on.
#[cfg(feature = "sdk")]
#[macro_export]
macro_rules! export {
    () => {
        #[cfg(feature = "dylib")]
        const _: () = {
            static EXPORT: $crate::sdk::Export =
                $crate::sdk::Export::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));

            // SAFETY: a dylib of one plugin has no other symbol of this name.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn squall_plugin(host: *const $crate::abi::Host) -> *const $crate::abi::Plugin {
                // SAFETY: the caller keeps the ABI.
                unsafe { EXPORT.entry(host) }
            }
        };
    };
}
