//! Runs a manifest: parse, resolve, verify, bind, execute.

pub mod files;
pub mod codes;
pub mod expr;
pub mod manifest;
pub mod render;
mod suggest;
