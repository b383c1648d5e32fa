//! Kernels and collectives in a row, each on worlds of one to seven ranks.

use squall_core::{Options, verify};
use squall_runner::manifest::parse;
use squall_runner::resolve::resolve;
use squall_tests::pipelines::{PIPELINES, averaged};
use squall_tests::{WORLDS, hosts, registry};

#[test]
fn every_pipeline_comes_to_what_was_worked_out() {
    for pipeline in PIPELINES {
        for world in WORLDS {
            pipeline.run(&hosts(world), world, false);
        }
    }
}

#[test]
fn kernel_average_kernel_with_new_input_in_every_step() {
    for world in WORLDS {
        averaged("host", world, Options::default());
    }
}

#[test]
fn the_plan_hash_of_a_job_is_its_own_and_the_same_everywhere() {
    let text = |n: u32| {
        format!(
            "manifest = 1\n[params]\nn = {n}\n[buffer.x]\ndtype = \"f32\"\nshape = [\"n\"]\ninit = {{ fill = 1 }}\n\
             [[task]]\nop = \"all_reduce\"\nargs = {{ buffer = \"x\", reduce = \"sum\" }}\n"
        )
    };
    let hash = |n: u32, world: u64| {
        let (manifest, _) = parse(&text(n)).unwrap();
        verify(resolve(&manifest, registry(), world, "host").unwrap().graphs).unwrap().plan_hash()
    };
    assert_eq!(hash(8, 2), hash(8, 2));
    assert_ne!(hash(8, 2), hash(9, 2));
    assert_ne!(hash(8, 2), hash(8, 3));
    // From another process and build. A change of what is hashed, or how, comes with another version in it.
    assert_eq!(format!("{:032x}", hash(8, 2)), "9346aa76ab338b4480fc9cc1ffee4439");
}
