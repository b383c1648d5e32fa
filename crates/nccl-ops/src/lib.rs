//! NCCL for squall: collectives and messages between GPUs.
//!
//! Naming the crate (`use squall_nccl_ops as _;`) registers the library `nccl` and squall's own ops on `cuda` devices. Nothing of NCCL
//! is needed to build or to start a program: the library is looked for when a plan group connects, or when [`findings`] is asked.
//!
//! # Communicators
//! Ranks of one process connect by themselves, in `connect` of [`NcclLibrary`]. Ranks of several processes are brought together by a
//! [`UniqueId`], through the plan group's exchange or by hand with [`Communicators::join`]. Either way steps run on blocking
//! communicators, since a nonblocking one starts a thread at every call.
//!
//! Both give up at a deadline. Waiting for other processes can be ended. A call that blocks by itself cannot: it is made on a thread
//! that is left behind with all that it uses, and that closes what it made should the call come back. The cost of that day is the
//! thread, and the communicators that were half made.
//!
//! # Aborting and closing
//! `ncclCommAbort` tells the kernels to leave, then frees; a rank that is inside NCCL at that moment must not see the second. Both
//! are therefore taken apart: a thread of the connection calls it inside an NCCL group, which puts off the freeing to the group's end,
//! and ends the group when the last session is gone. The cost is a thread a connection, asleep until it ends. The order holds from
//! NCCL 2.22 on, which is the oldest version taken.
//!
//! NCCL connects two GPUs in the first call that needs it. A rank that is released from such a call leaves GPU memory behind, which NCCL
//! does not free: 288 to 320 MiB with 2.28.9, of a program in C++ too. Of what was connected nothing is left.
//!
//! # What is done differently from calling NCCL
//! - *Reductions of one rank are copies*, issued as a broadcast. NCCL's own kernel for them loses the last elements of an average whose
//!   buffers begin off a sixteen-byte boundary (seen with 2.28.9).
//! - *A group has one order on all ranks*: by communicator, and within one the collectives, `all_to_all`, `gather` and `scatter` before
//!   the messages. NCCL matches by order alone.
//! - *`all_to_all`, `gather`, `scatter` and `send_recv`* are sends and receives in one NCCL group. A block that is in place is not sent.
//! - *Empty ranges* are no calls.
//! - *Two ranks on one GPU* are refused by name before NCCL is asked.
//! - *The first copy of NCCL that is found is used*, not the newest: see [`squall_dylib`]. [`findings`] tells which it is, and which of
//!   Python's wheels are not used; `SQUALL_NCCL` chooses another.
//!
//! # Numbers
//! The rules are those of [`squall_core::ReduceOp`]; NCCL keeps them on its own. An average of floats multiplies before it sums, by
//! NCCL's source: the `f16` average of 60000 and 60000 was 60000 (0x7b53) on both ranks, seen with 2.28.9 on two H200s. That is no
//! promise of NCCL's, and none of squall's.

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
