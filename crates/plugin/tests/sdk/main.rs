//! The Rust side of a plugin against a host of the tests' own ([`host`]), which calls the tables as squall does. What is exported is what
//! [`plugin`] registers.
//!
//! - [`tables`]: what stands in the tables, versions that differ, what cannot be exported.
//! - [`describing`]: checks and descriptions, with all that can be wrong in them.
//! - [`preparing`]: what an op finds while it is made ready, on this host and on older ones.
//! - [`running`]: enqueuing, failures, panics, aborts, the end; and that enqueuing allocates nothing.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod describing;
mod host;
mod plugin;
mod preparing;
mod running;
mod tables;
