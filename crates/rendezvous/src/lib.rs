//! How the processes of one squall job find each other: which ranks a process has under any launcher ([`identify`]), and the
//! meeting ([`meet`]) before any communicator exists, in which all learn that all have come and run the same plan.
//!
//! Rank 0's process listens; every process, rank 0's too, connects to it, proves that it knows the job's token, and says which ranks it
//! has and what must be the same for all. When all ranks have come, all are told; or all are told the same reason why not: ranks that
//! did not come, a rank that is claimed twice, a plan that differs. Everything ends by the time-out.
//!
//! Afterwards the connections stay, for little: values that libraries exchange while plans are bound, such as NCCL's id, and word of how
//! a process ended early, so that the others abort at once ([`squall_core::Peers`]). No code crosses them, and no data of steps.
//! What a process has said is passed on by rank 0's process until all have said goodbye ([`Meeting::leave`]).
//!
//! # What is not here
//! No engine: steps speak NCCL or MPI. No launcher: processes are started by one, or by hand.

mod error;
mod file;
mod host;
mod hub;
mod identity;
mod meeting;
mod nodelist;
mod place;
mod wire;

pub use error::MeetError;
pub use host::name as host_name;
pub use hub::Agreed;
pub use identity::{Flags, Identity, IdentityError, TOKEN, identify};
pub use meeting::{Invitation, Meeting, meet};
pub use place::{Place, PlaceError};
