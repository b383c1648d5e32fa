//! The proof before launch, proven itself.
//!
//! | module | holds |
//! |---|---|
//! | [`stub`] | a library that serves every contract and runs nothing, a picky one, a kernel |
//! | [`job`] | jobs in a few words, and where a report points |
//! | [`codes`] | a job for every code of verification, with the whole of its report |
//! | [`field_cases`] | faults that people met with other programs |
//! | [`legal`] | what looks odd and must be accepted |
//! | [`builder`] | sharing of nodes and buffers between ranks |
//! | [`carried`] | which buffers a job carries from one step to the next |
//! | [`drawings`] | what a report draws, and one mistake on many ranks |
//! | [`depths`] | how deep tasks lie, one after another over all ranks |
//! | [`oracle`] | a slow simulator of the rules |
//! | [`against_oracle`] | random jobs, judged by both |
//! | [`overlaps`] | ranges that overlap, against a comparison of all pairs |
//! | [`partial`] | jobs some of whose tasks were refused |
//! | [`plan_hash`] | what changes the plan hash and what does not |
//! | [`processes`] | jobs that one process alone can run, and jobs that several can |
//! | [`random`] | random small jobs, and mistakes in them |
//! | [`registry`] | what cannot be registered beside something else, and what cannot be used inside an op |
//! | [`symmetric`] | ops that treat all ranks alike, and say no more of themselves |
//! | [`swaps`] | buffers that are swapped, turn by turn |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that finds nothing must fail, its helpers too"
)]

mod against_oracle;
mod builder;
mod carried;
mod codes;
mod depths;
mod drawings;
mod field_cases;
mod job;
mod legal;
mod oracle;
mod overlaps;
mod partial;
mod parts;
mod plan_hash;
mod processes;
mod random;
mod registry;
mod stub;
mod swaps;
mod symmetric;
