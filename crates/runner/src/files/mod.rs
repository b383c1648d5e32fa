//! Data in and out: what a buffer holds at the start, and what is left of it at the end.
//!
//! | module | does |
//! |---|---|
//! | [`npy`], [`safetensors`] | open a file as an [`ArrayFile`]: checked at once, read whole, by rows or by slices |
//! | [`npy`], [`png`] | write a buffer as a file's bytes |
//! | [`output`] | puts those bytes in their place, whole or not at all |
//! | [`init`], [`random`] | a buffer's contents made from numbers, by rule or at random |
//! | [`shard`] | which rows are whose |
//!
//! Files are not trusted. Every size a header states is checked against the file's own length before anything
//! is allocated, nothing but a regular file is opened, and nothing is converted unless the caller asks for it.
//!
//! A buffer's contents are plain bytes throughout: elements in the machine's byte order, row-major (C) order.

mod array;
mod error;
pub mod init;
pub mod npy;
pub mod output;
pub mod png;
pub mod random;
pub mod safetensors;
pub mod shard;
#[cfg(test)]
mod testing;

pub(crate) use array::open_regular;
pub use array::{Array, ArrayFile};
pub use error::FileError;
pub(crate) use error::{Shape, printable};
pub(crate) use output::writable;

/// Reads a manifest's bytes: a regular file, and no more of it than a manifest may have.
///
/// # Errors
/// A file that is missing, cannot be read, or is no file. One that is too large is returned cut off, one byte beyond
/// what [`crate::manifest::parse_bytes`] accepts.
pub fn read_manifest(path: &std::path::Path) -> Result<Vec<u8>, FileError> {
    use std::io::Read as _;
    let (file, _) = open_regular(path)?;
    let mut bytes = Vec::new();
    let limit = crate::manifest::MAX_SIZE as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(FileError::io("read", path))?;
    Ok(bytes)
}
