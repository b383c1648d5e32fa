//! Runs a manifest: parse, resolve, verify, bind, execute.

pub mod codes;
pub mod expr;
pub mod files;
pub mod manifest;
pub mod plan;
pub mod render;
pub mod resolve;
pub mod run;
mod suggest;
