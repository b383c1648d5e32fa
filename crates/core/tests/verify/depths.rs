//! How deep tasks lie: deeper than all that can have led to them, over all ranks.

use squall_core::{Phase, Verified};

use crate::job::*;

fn depths(verified: &Verified) -> Vec<Vec<u32>> {
    verified.depths(Phase::Step)
}

/// A task that meets nobody.
fn work(g: &mut Rank, name: &str) {
    g.step(group(name, []));
}

#[test]
fn a_rank_alone_counts_its_tasks() {
    let verified = job(2, |g, rank| (0..=rank).for_each(|i| work(g, &format!("w{i}")))).unwrap();
    assert_eq!(depths(&verified), [vec![1], vec![1, 2]]);
    assert_eq!(verified.depths(Phase::Finish), [vec![], vec![]] as [Vec<u32>; 2]);
}

#[test]
fn a_collective_is_as_deep_on_every_rank() {
    let verified = job(3, |g, rank| {
        (0..rank).for_each(|i| work(g, &format!("w{i}")));
        let s = g.buffer(f32s("s", 4));
        g.step(sum("sum", s));
        work(g, "after");
    })
    .unwrap();
    assert_eq!(depths(&verified), [vec![3, 4], vec![1, 3, 4], vec![1, 2, 3, 4]]);
}

/// What rank 1 receives is deeper than all that rank 0 did before it sent, and not deeper than what it did afterwards.
#[test]
fn messages_go_down_a_line() {
    let verified = job(3, |g, rank| {
        let x = g.buffer(f32s("x", 4));
        if rank > 0 {
            g.step(recv("in", x, rank - 1));
        }
        work(g, "work");
        if rank < 2 {
            g.step(send("out", x, rank + 1));
        }
        if rank == 0 {
            (0..4).for_each(|i| work(g, &format!("w{i}")));
        }
    })
    .unwrap();
    assert_eq!(depths(&verified), [vec![1, 2, 3, 4, 5, 6], vec![2, 3, 4], vec![4, 5]]);
}
