//! Runs a manifest: parse, resolve, verify, bind, execute.

pub mod files;
