//! Jobs some of whose tasks were refused.

use squall_core::{
    BufferDecl, BufferId, Code, CommId, DType, Diagnostic, Phase, TaskGraph, TaskSpec, World, codes,
    verify_partial,
};

use crate::job::*;
use crate::stub::REGISTRY;

const RANKS: u32 = 4;

/// The tasks of a rank of a legal job of four ranks, each with the communicators that it meets others on.
/// Sums for which `wrong` holds are maxima.
fn legal(
    rank: u32,
    [u, written]: [BufferId; 2],
    pair: CommId,
    wrong: impl Fn(u32, usize) -> bool,
) -> Vec<(TaskSpec, Vec<CommId>)> {
    let sum = |name: &str, index: usize, buffer: BufferId| {
        let reduce = if wrong(rank, index) { "max" } else { "sum" };
        task(name, "all_reduce").arg("buffer", buffer).arg("reduce", reduce)
    };
    let world = vec![CommId::WORLD];
    let other = rank ^ 1;
    let give = task("give", "broadcast").arg("send", u).arg("recv", written).arg("root", 0);
    vec![
        (give.into(), world.clone()),
        (sum("first", 1, u).into(), world.clone()),
        (group("swap", [send("to", u, other), recv("from", written, other)]).into(), world.clone()),
        (sum("pairs", 3, written).on(pair).into(), vec![pair]),
        (sum("second", 4, written).into(), world),
    ]
}

/// What is told of a job of which the task `missing` is refused on some ranks, and others have the wrong reduction.
fn told(missing: impl Fn(u32, usize) -> bool, wrong: impl Fn(u32, usize) -> bool) -> Vec<Diagnostic> {
    let mut world = World::new(RANKS.into()).unwrap();
    let pair = world.split("pair", |rank| (i64::from(rank / 2), 0)).unwrap();
    let world = std::sync::Arc::new(world);
    let partials = (0..RANKS).map(|rank| {
        let mut builder = TaskGraph::builder(&REGISTRY, &world, rank, "test");
        let u = builder.buffer(f32s("u", 8));
        let written = builder.buffer(BufferDecl::new("written", DType::F32, [8]));
        for (index, (task, comms)) in legal(rank, [u, written], pair, &wrong).into_iter().enumerate() {
            if missing(rank, index) {
                builder.gap(Phase::Step, comms, vec![u, written]);
                continue;
            }
            builder.add(Phase::Step, task);
        }
        let (partial, _) = builder.partial();
        partial
    });
    verify_partial(partials.collect())
}

fn never(_: u32, _: usize) -> bool {
    false
}

#[test]
fn a_refused_task_causes_no_other_report() {
    assert_eq!(told(never, never), []);
    for task in 0..5 {
        for ranks in 0..1_u32 << RANKS {
            let missing = |rank: u32, index: usize| index == task && ranks >> rank & 1 == 1;
            assert_eq!(told(missing, never), [], "task {task} is missing on the ranks {ranks:#b}");
        }
    }
}

/// Differences before the missing task, and on communicators that it does not use.
#[test]
fn what_has_nothing_to_do_with_it_is_told() {
    let codes_of = |problems: Vec<Diagnostic>| problems.iter().map(|p| p.code).collect::<Vec<Code>>();
    let differs = |task: usize| move |rank: u32, index: usize| index == task && rank == 1;
    let lacks = |task: usize, on: u32| move |rank: u32, index: usize| index == task && rank == on;
    assert_eq!(codes_of(told(lacks(4, 1), differs(1))), [codes::MISMATCH]);
    assert_eq!(codes_of(told(lacks(0, 1), differs(3))), [codes::MISMATCH]);
    assert_eq!(codes_of(told(lacks(0, 2), differs(4))), [codes::MISMATCH]);
    // What comes behind the missing task may meet anything.
    assert_eq!(codes_of(told(lacks(0, 1), differs(4))), []);
    assert_eq!(codes_of(told(lacks(2, 1), differs(4))), []);
    assert_eq!(codes_of(told(lacks(0, 0), differs(4))), []);
}

/// A graph that lacks a task cannot be had to run it.
#[test]
fn no_graph_comes_out_of_a_partial_one() {
    let world = world(1);
    let builder = || TaskGraph::builder(&REGISTRY, &world, 0, "test");
    assert!(builder().partial().0.whole().is_some());
    let mut lacking = builder();
    lacking.gap(Phase::Finish, Vec::new(), Vec::new());
    assert!(lacking.partial().0.whole().is_none());
}

/// Values that differ leave later positions as they are; another op may not, and is told of only when it comes first.
#[test]
fn several_mismatches_of_one_rank_are_told() {
    let problems = refused(2, |builder, rank| {
        let u = builder.buffer(f32s("u", 8));
        let root = |name: &str, root: u32| task(name, "broadcast").arg("buffer", u).arg("root", root);
        builder.step(root("one", rank)).step(root("two", 0)).step(root("three", 1 - rank));
        builder.step(if rank == 0 { sum("four", u) } else { root("four", 0) });
        builder.step(root("five", rank));
    });
    let mut told: Vec<(Code, String)> = problems.iter().map(|p| (p.code, place(&p.primary))).collect();
    told.sort();
    assert_eq!(
        told,
        [(codes::MISMATCH, "one.root".to_string()), (codes::MISMATCH, "three.root".to_string()),]
    );
}
