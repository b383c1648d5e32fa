//! Runs a manifest: parse, resolve, verify, bind, execute.

pub mod codes;
pub mod expr;
pub mod files;
pub mod manifest;
pub mod render;
pub mod resolve;
mod suggest;
