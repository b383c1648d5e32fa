//! The contracts of squall's own ops: their arguments, rules and meetings, the same whatever library serves them.
//!
//! A backend's op library wraps a [`Contract`] in its own [`crate::LibraryOp`] and reads arguments through
//! [`Call`], so that no two libraries can disagree on what an op means.

mod call;
mod contract;
mod parts;
mod rules;

pub use call::Call;
pub use contract::{
    ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, CONTRACTS, Contract, GATHER, RECV, REDUCE, REDUCE_SCATTER,
    SCATTER, SEND, SEND_RECV,
};
pub use parts::{Counts, Parts, rows};
