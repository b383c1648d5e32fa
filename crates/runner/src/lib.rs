//! Runs a manifest: parse, resolve, verify, bind, execute.
