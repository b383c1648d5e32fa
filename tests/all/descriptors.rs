//! Every kernel's and every op's example: it parses without a warning, resolves, verifies and runs, on the world it
//! names and on others.

use std::path::Path;

use squall_core::Task;
use squall_runner::manifest::parse;
use squall_tests::{WORLDS, hosts, registry, run_manifest};

/// Runs a task's example through every stage.
fn check(task: &dyn Task) {
    let name = task.name();
    let (manifest, warnings) = parse(task.example()).unwrap_or_else(|errors| panic!("{name}: {errors:#?}"));
    assert!(warnings.is_empty(), "{name}: {warnings:#?}");
    let folder = Path::new("");
    run_manifest(&manifest, folder, None, None).unwrap_or_else(|error| panic!("{name}: {error}"));
    for world in WORLDS {
        let summary = run_manifest(&manifest, folder, Some(&hosts(world)), Some(2))
            .unwrap_or_else(|error| panic!("{name} on {world} ranks: {error}"));
        assert_eq!((summary.world, summary.steps), (world, 2), "{name}");
    }
}

#[test]
fn every_kernels_example_runs() {
    let kernels: Vec<_> = registry().kernels().map(|(kernel, _)| kernel).collect();
    assert!(kernels.len() >= 26, "{} kernels are linked", kernels.len());
    kernels.into_iter().for_each(|kernel| check(kernel));
}

#[test]
fn every_ops_example_runs() {
    let ops = registry().contracts();
    assert!(ops.len() >= 11, "{} ops are linked", ops.len());
    ops.into_iter().for_each(check);
}
