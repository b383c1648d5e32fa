//! A manifest's text, from the parser to the proof: whatever it is, squall says what is wrong with it or accepts it, soon and without a panic.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use squall_core::{Diagnostic, Registry, verify};
use squall_host_backend as _;
use squall_kernels_std as _;
use squall_runner::manifest;
use squall_runner::render::{Color, render};
use squall_runner::resolve::resolve;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::linked().expect("no name is taken twice"));

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let drawn = |said: &[Diagnostic]| {
        assert_eq!(render(said, "m.toml", &text, Color::Never).is_empty(), said.is_empty())
    };
    match manifest::parse_bytes(bytes) {
        Err(errors) => drawn(&errors),
        Ok((manifest, warnings)) => {
            drawn(&warnings);
            let world = 1 + bytes.len() as u64 % 4;
            match resolve(&manifest, &REGISTRY, world, "host").and_then(|job| verify(job.graphs)) {
                Ok(verified) => assert_eq!(verified.graphs().len() as u64, world),
                Err(problems) => {
                    assert!(problems.0.iter().any(Diagnostic::is_error), "refused without an error");
                    drawn(&problems.0);
                }
            }
        }
    }
});
