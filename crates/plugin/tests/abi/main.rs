//! The ABI is what it was, and the C header says what `abi.rs` says.
//!
//! - [`source`]: `abi.rs`, read as text: which structs, fields and constants there are, and the fields' types.
//! - [`table`]: their sizes, offsets and values, as the compiler has them. A test compares its list with `source`.
//! - [`snapshot`]: the committed layout in `abi/MAJOR.txt`, and what may change in it.
//! - [`header`]: a C file made from all of it, compiled against `squall_plugin.h`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests panic as tests do")]

mod header;
mod snapshot;
mod source;
mod table;
