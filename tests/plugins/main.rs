//! Plugins as dylibs, opened by the command `squall`:
//!
//! - [`authors`]: the tutorial, `squall new plugin`, `squall plugin check`.
//! - [`built`]: squall, and the plugins of `plugins/`, built in a folder of their own.
//! - [`faults`]: what is said of files that are no plugins, or wrong ones.
//! - [`misbehaving`]: ops that panic, fail or never end fail their rank, and no more.
//! - [`ring`]: a collective in C gives what squall's own gives.
//! - [`rounds`]: nothing is left of many runs in one process.
//! - [`tables`]: tables that are spoiled in one place.
//! - [`together`]: several plugins and squall's own tasks in one manifest; plugins under verification.
//! - [`opened`]: what it means that a process opens a library once.
//! - [`pairings`]: old and new ones, on either side of the ABI.
//! - [`symbols`]: what a plugin exports.
//!
//! They need a compiler for C (`cc`), and Cargo.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests panic as tests do")]

mod authors;
mod built;
mod faults;
mod misbehaving;
mod opened;
mod pairings;
mod ring;
mod rounds;
mod symbols;
mod tables;
mod together;
