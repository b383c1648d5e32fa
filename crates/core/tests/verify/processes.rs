//! Which jobs several processes can run.

use std::sync::Arc;

use squall_core::registry::Item;
use squall_core::{Needs, Registry, TaskGraph, Verified, World, codes, ops, verify};

use crate::job::{f32s, job, on, only, sum, task};
use crate::stub::op;

fn near(size: u64) -> Verified {
    let near = |g: &mut crate::job::Rank, _| {
        let x = g.buffer(f32s("x", 4));
        g.step(task("t", "near_sum").arg("buffer", x).arg("reduce", "sum"));
    };
    job(size, near).unwrap()
}

#[test]
fn one_process_and_one_rank_are_always_right() {
    assert!(near(2).check_processes(0).is_ok() && near(2).check_processes(1).is_ok());
    assert!(near(1).check_processes(2).is_ok(), "who meets nobody reaches nobody");
    only(codes::PROCESSES, &near(2).check_processes(2).unwrap_err().0);
}

#[test]
fn a_communicator_of_one_rank_reaches_nobody() {
    let mut world = World::new(2).unwrap();
    let own = world.split("own", |rank| (rank.into(), 0)).unwrap();
    let verified = on(&Arc::new(world), |g, _| {
        let x = g.buffer(f32s("x", 4));
        g.step(task("t", "near_sum").on(own).arg("buffer", x).arg("reduce", "sum"));
        g.step(sum("s", x));
    });
    assert!(verified.unwrap().check_processes(2).is_ok());
}

#[test]
fn what_an_op_uses_counts_too() {
    let mut registry = Registry::default();
    let one_process = Needs { single_process: true, ..Needs::NONE };
    let uses = Needs { uses: &["all_reduce"], ..Needs::NONE };
    let add = |registry: &mut Registry, item: Item| registry.add(&item, "this test").unwrap();
    add(&mut registry, op("all_reduce", &ops::ALL_REDUCE, "near", "test", one_process));
    add(&mut registry, op("far_sum", &ops::ALL_REDUCE, "far", "test", uses));
    let world = Arc::new(World::new(2).unwrap());
    let graph = |rank| {
        let mut g = TaskGraph::builder(&registry, &world, rank, "test");
        let x = g.buffer(f32s("x", 4));
        g.step(task("t", "far_sum").arg("buffer", x).arg("reduce", "sum"));
        g.build().unwrap()
    };
    let verified = verify((0..2).map(graph).collect()).unwrap();
    let problems = verified.check_processes(2).unwrap_err().0;
    let said = "`all_reduce` by the library `near` reaches the memory of its peers";
    assert!(only(codes::PROCESSES, &problems).message.contains(said), "{problems:?}");
}
