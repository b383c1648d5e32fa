//! Unequal parts and counts that must be accepted, and what is told of them.

use std::sync::Arc;

use squall_core::{Matrix, Parts, Phase, World, codes};

use crate::job::*;

/// Every op that divides, over the world and over rows whose ranks stand in another order, in and out of place, with empty parts.
#[test]
fn parts_follow_the_ranks_of_the_communicator() {
    let lens = [3u64, 0, 2, 1];
    let mut world = World::new(4).unwrap();
    let row = world.split("row", |rank| (i64::from(rank % 2), -i64::from(rank))).unwrap();
    let world = Arc::new(world);
    for in_place in [false, true] {
        for comm in [squall_core::CommId::WORLD, row] {
            let verified = on(&world, |g, rank| {
                let part = world.part(comm, rank).unwrap();
                let len = |rank: u32| lens[rank as usize];
                let total: u64 = part.members.iter().map(|&rank| len(rank)).sum();
                let start: u64 =
                    part.members.iter().take_while(|&&other| other != rank).map(|&r| len(r)).sum();
                let whole = g.buffer(f32s("whole", total));
                let apart = g.buffer(f32s("part", len(rank)));
                let own = g.whole(whole).unwrap().elements(start..start + len(rank)).unwrap();
                let mine = if in_place { own } else { g.whole(apart).unwrap() };
                let op = |name: &'static str| task(name, name).on(comm);
                g.step(op("all_gather").arg("send", mine.clone()).arg("recv", whole));
                g.step(
                    op("reduce_scatter").arg("send", whole).arg("recv", mine.clone()).arg("reduce", "avg"),
                );
                g.step(op("gather").arg("send", mine.clone()).arg("recv", whole).arg("root", 1));
                g.step(op("scatter").arg("send", whole).arg("recv", mine).arg("root", 1));
            });
            let verified = verified.unwrap();
            for rank in 0..4 {
                let part = world.part(comm, rank).unwrap();
                let want = Parts::new(part.members.iter().map(|&rank| lens[rank as usize]));
                for place in 0..4 {
                    assert_eq!(verified.parts(rank, Phase::Step, place, 0), want.as_ref());
                }
            }
        }
    }
}

#[test]
fn equal_parts_are_not_told() {
    let verified = job(3, |g, _| {
        let (x, all, sum_of) = (g.buffer(f32s("x", 2)), g.buffer(f32s("all", 6)), g.buffer(f32s("s", 1)));
        let gather = task("gather", "all_gather").arg("send", x).arg("recv", all);
        g.step(sum("sum", sum_of)).step(gather);
    })
    .unwrap();
    assert_eq!((verified.parts(0, Phase::Step, 0, 0), verified.parts(1, Phase::Step, 1, 0)), (None, None));
}

/// Each member of a group has its own.
#[test]
fn parts_belong_to_a_member() {
    let verified = job(2, |g, rank| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", u64::from(rank))));
        let (both, one) = (g.buffer(f32s("both", 8)), g.buffer(f32s("one", 1)));
        let first = task("first", "all_gather").arg("send", x).arg("recv", both);
        let second = task("second", "all_gather").arg("send", y).arg("recv", one);
        g.setup(group("g", [first, second]));
    })
    .unwrap();
    let parts = |member| verified.parts(1, Phase::Setup, 0, member);
    assert_eq!((parts(0), parts(1)), (None, Parts::new([0, 1]).as_ref()));
}

/// A matrix of a million entries is shared, and looked at once.
#[test]
fn an_exchange_of_a_thousand_ranks() {
    const RANKS: usize = 1024;
    let rows = |r: usize, p: usize| ((r * 7 + p * 3) % 4) as i64;
    let matrix: Vec<Vec<i64>> = (0..RANKS).map(|r| (0..RANKS).map(|p| rows(r, p)).collect()).collect();
    let counts = Matrix::new(&matrix).unwrap();
    job(RANKS as u64, |g, rank| {
        let rank = rank as usize;
        let sum = |of: &dyn Fn(usize) -> i64| (0..RANKS).map(of).sum::<i64>() as u64;
        let send = g.buffer(f32s("send", sum(&|p| rows(rank, p))));
        let recv = g.buffer(f32s("recv", sum(&|r| rows(r, rank))));
        let exchange = task("t", "all_to_all").arg("send", send).arg("recv", recv);
        g.step(exchange.arg("counts", counts.clone()));
    })
    .unwrap();
}

/// Ranks may as well hold equal matrices of their own.
#[test]
fn equal_matrices_agree() {
    job(2, |g, rank| {
        let (send, recv) = (g.buffer(f32s("send", 2)), g.buffer(f32s("recv", [1, 3][rank as usize])));
        let counts = Matrix::new(&[vec![0, 2], vec![1, 1]]).unwrap();
        g.step(task("t", "all_to_all").arg("send", send).arg("recv", recv).arg("counts", counts));
    })
    .unwrap();
}

/// On a part of the world, shares are of its ranks.
#[test]
fn the_help_counts_in_the_communicator() {
    let mut world = World::new(4).unwrap();
    let row = world.split("row", |rank| (i64::from(rank / 2), 0)).unwrap();
    let problems = on(&Arc::new(world), |g, _| {
        let (part, all) = (g.buffer(f32s("part", 2)), g.buffer(f32s("all", 5)));
        g.step(task("t", "all_gather").on(row).arg("send", part).arg("recv", all));
    });
    let problems = problems.unwrap_err().0;
    let problem = only(codes::PARTS, &problems);
    says(problem, &["collective 0 on `row`", "2 on ranks 0 and 1, which add up to 4", "1 more such report"]);
    let help = "give `recv` 2 ranks × 2 = 4 elements, or `send` parts that add up to 5, as \
                `share(5, rank(row), size(row))` on each rank";
    assert_eq!(problem.help.as_deref(), Some(help));
}
