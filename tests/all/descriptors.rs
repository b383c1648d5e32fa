//! Every kernel's and every op's example: it parses without a warning, resolves, verifies and runs, on the world it
//! names and on others.

use std::path::Path;

use squall_core::{Interrupt, Registry, Task as _, verify};
use squall_runner::manifest::parse;
use squall_runner::resolve::resolve;
use squall_runner::run::{Readings, Request, Watcher, run};
use squall_tests::{WORLDS, hosts, registry};

struct Silent;

impl Watcher for Silent {
    fn note(&mut self, note: &str) {
        panic!("an example names its devices: {note}");
    }
    fn begin(&mut self, _: u64, _: &Interrupt) {}
    fn readings(&mut self, _: &Readings) {}
}

/// Runs an example through every stage.
fn check(registry: &Registry, name: &str, example: &str) {
    let (manifest, warnings) = parse(example).unwrap_or_else(|errors| panic!("{name}: {errors:#?}"));
    assert!(warnings.is_empty(), "{name}: {warnings:#?}");
    let folder = Path::new("");
    run(registry, &Request { manifest: &manifest, folder, devices: None, steps: None }, &mut Silent)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    for world in WORLDS {
        let job = resolve(&manifest, registry, world.into(), "host")
            .unwrap_or_else(|problems| panic!("{name} on {world} ranks: {problems}"));
        verify(job.graphs).unwrap_or_else(|problems| panic!("{name} on {world} ranks: {problems}"));
        let devices = hosts(world);
        let request = Request { manifest: &manifest, folder, devices: Some(&devices), steps: Some(2) };
        let summary = run(registry, &request, &mut Silent)
            .unwrap_or_else(|error| panic!("{name} on {world} ranks: {error}"));
        assert_eq!((summary.world, summary.steps), (world, 2), "{name}");
    }
}

#[test]
fn every_kernels_example_runs() {
    let kernels: Vec<_> = registry().kernels().map(|(kernel, _)| kernel).collect();
    assert!(kernels.len() >= 26, "{} kernels are linked", kernels.len());
    for kernel in kernels {
        check(registry(), kernel.name(), kernel.example());
    }
}

#[test]
fn every_ops_example_runs() {
    let ops = registry().contracts();
    assert!(ops.len() >= 11, "{} ops are linked", ops.len());
    for op in ops {
        check(registry(), op.name(), op.example());
    }
}
