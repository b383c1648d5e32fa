//! NCCL for squall: collectives and messages between GPUs.
//!
//! Naming the crate (`use squall_nccl_ops as _;`) registers the library `nccl` and squall's own ops on `cuda` devices. Nothing of NCCL
//! is needed to build or to start a program: the library is looked for when a plan group connects, or when [`findings`] is asked.
//!
//! # Communicators
//! Ranks of one process connect by themselves, in `connect` of [`NcclLibrary`]. Ranks of several processes are brought together by a
//! [`UniqueId`], through the plan group's exchange or by hand with [`Communicators::join`], which gives up at a deadline. Either way
//! steps run on blocking communicators, since a nonblocking one starts a thread at every call.
//!
//! # Aborting and closing
//! `ncclCommAbort` tells the kernels to leave, then frees; a rank that is inside NCCL at that moment must not see the second. Both
//! are therefore taken apart: a thread of the connection calls it inside an NCCL group, which puts off the freeing to the group's end,
//! and ends the group when the last session is gone. The cost is a thread a connection, asleep until it ends. The order holds from
//! NCCL 2.22 on, which is the oldest version taken.

mod api;
mod batch;
mod closer;
mod communicators;
mod detached;
mod error;
mod findings;
mod library;
mod ops;
mod record;
mod unique_id;

#[cfg(test)]
mod fake;

pub use api::Version;
pub use communicators::{Communicators, RankSession};
pub use error::NcclError;
pub use findings::findings;
pub use library::NcclLibrary;
pub use unique_id::UniqueId;

/// The library's name in manifests.
const NAME: &str = "nccl";
/// The kind of device, and the api of its raw handles.
const DEVICE: &str = "cuda";
