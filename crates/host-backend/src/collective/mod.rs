//! Collectives and messages between the ranks of one process.
//!
//! A collective is two meetings. Before the first, each rank lays open what it calls and where its buffers are; between
//! them the ranks compare the calls, share the work evenly and write each other's results; after the second each
//! owns its buffers again. A message is the receiver copying from the sender, which waits for that.
//! An abort makes every rank leave, after the last that touches foreign memory has stopped ([`hub::Hub::touch`]).
//!
//! Running a batch allocates nothing, takes no lock and looks nothing up; whoever waits polls first and sleeps later.

mod batch;
mod call;
mod channel;
mod copy;
mod hub;
mod number;
mod pieces;
mod reduce;
mod share;
mod team;

pub(crate) use batch::Batch;
pub(crate) use copy::address;
pub(crate) use hub::Hub;
pub(crate) use team::Team;
