//! MPI for squall: collectives and messages between CPU ranks of several processes.
//!
//! Naming the crate (`use squall_mpi_ops as _;`) registers the library `mpi` and squall's own ops on `host` devices, in a build with the
//! feature `mpi`. Without the feature nothing is registered, [`BUILT`] says so, and [`Process::start`] is an error that tells what to
//! install. squall brings no engine of its own: the calls are those of the MPI that the machine has.
//!
//! # What is needed
//! With the feature, an MPI of version 3.0 or later and libclang, both when it is built: on Debian `libopenmpi-dev` (or `libmpich-dev`) and
//! `libclang-dev`. To run, the same MPI, which the program is linked to, and its launcher: `openmpi-bin` (or `mpich`). Nothing in the crate
//! is Open MPI's or MPICH's own.
//!
//! # One rank a process
//! A process is a rank of MPI, and has exactly that one rank of the job. The library refuses anything else when it connects, and
//! tells all ranks so: none waits for one that will not come. [`Process`] is this process's place; by [`Process::broadcast`] and
//! [`Process::all_gather`] processes that know nothing of each other but MPI tell each other what they must.
//!
//! MPI is asked to serve several threads at once. Where it serves one at a time (`MPI_THREAD_SERIALIZED`), a process may have one
//! connection at a time; one that grants less is refused.
//!
//! # How an op is served
//! An op is nonblocking calls of MPI, laid out when its batch is prepared. Enqueuing posts those of the whole batch, communicator by
//! communicator in the order that all ranks keep, and polls until all are done. So a group's members progress jointly, and an abort is seen
//! between two looks. A rank computes nothing while it waits.
//!
//! - *In place* is a copy of what this rank gives, or of the block that it gets, in memory of the batch: MPI forbids one buffer in both
//!   places, and the word by which it allows it, `MPI_IN_PLACE`, is no value that the bindings have. The cost is that memory, of
//!   an all_reduce as much as its buffer.
//! - *Half types* are summed and multiplied as `f32`, and rounded once, as the host does it. The cost is twice the bytes on the way, and
//!   memory for both.
//! - *Reductions of integers, minima and maxima of floats* are operations of squall's own, since MPI's leave open what an overflow or a
//!   NaN does, and are not right everywhere: Open MPI 4.1.4 saturates sums of 8 bits where the processor has AVX, and MPICH 4.0.2 takes the
//!   greater of two unsigned bytes as if they were signed.
//! - *More than 2³¹ - 1 elements*, which MPI cannot count, go as units of many elements, in pieces, or as messages, by the same rule on
//!   all ranks.
//! - *Empty ranges* are no calls, and neither are collectives of one rank.
//!
//! The order in which MPI sums is its own: float results differ from the host's by rounding. All ranks have the same result as far
//! as the library's algorithms combine the same pairs, in whatever order within a pair; those of Open MPI and MPICH do.
//!
//! # What an abort means
//! MPI as it is in Open MPI 4 cannot take back a collective, and no MPI can take back a send. A rank that is released leaves its
//! calls in flight: it comes back from its work at once, and the requests, the memory of the batch and the datatypes are
//! kept for good. But MPI, or another process through shared memory, may still write to the rank's buffers, which are not this
//! crate's to keep. So from then on the process makes no call of MPI: connecting and all else say why they refuse. It reports what it has
//! to, and ends with [`Process::abort`], which ends all processes of the job. The same holds after an error in the middle of a
//! batch, and after a deadline in [`Process::broadcast`], [`Process::all_gather`] and connecting. An abort that finds nothing in flight costs
//! the connection alone.
//!
//! A process that ended well calls [`Process::finish`], once, when its plan groups are gone.

#[cfg(feature = "mpi")]
mod api;
#[cfg(feature = "mpi")]
mod batch;
#[cfg(feature = "mpi")]
mod connection;
#[cfg(feature = "mpi")]
mod findings;
#[cfg(feature = "mpi")]
mod library;
#[cfg(feature = "mpi")]
mod local;
#[cfg(feature = "mpi")]
mod number;
#[cfg(feature = "mpi")]
mod ops;
#[cfg(feature = "mpi")]
mod process;
#[cfg(feature = "mpi")]
mod record;

#[cfg(not(feature = "mpi"))]
mod absent;

#[cfg(not(feature = "mpi"))]
pub use absent::{Process, findings};
#[cfg(feature = "mpi")]
pub use findings::findings;
#[cfg(feature = "mpi")]
pub use library::MpiLibrary;
#[cfg(feature = "mpi")]
pub use process::Process;

#[cfg(feature = "mpi")]
#[doc(hidden)]
pub use connection::set_largest_count;

/// Whether this build speaks MPI: the feature `mpi`.
pub const BUILT: bool = cfg!(feature = "mpi");

/// The library's name in manifests.
#[cfg(feature = "mpi")]
const NAME: &str = "mpi";
/// The kind of device, and the api of its raw handles.
#[cfg(feature = "mpi")]
const DEVICE: &str = "host";
