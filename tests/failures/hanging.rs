//! A deadline ends a run that nobody else would.

use std::time::{Duration, Instant};

use squall_core::error::{Found, Leak};
use squall_core::graph::KernelSpec;
use squall_core::{
    BufferDecl, BufferId, DType, GroupError, Moment, OpSpec, PlanGroup, ReduceOp, TaskGraph, Upload, Verified,
};
use squall_tests::{graphs, registry};

use crate::kernels::{MISBEHAVE, park, release};
use crate::{
    alone, await_rank_threads, filled, healthy, limited, misbehaving, rank_threads, refuses, report,
};

/// Rank 1 waits for a message that rank 0 never sends. No verified job does.
fn unmatched() -> Vec<TaskGraph> {
    graphs(2, |rank, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::F32, [1000]).upload(Upload::First));
        let y = graph.buffer(BufferDecl::new("y", DType::F32, [1000]));
        let message =
            |op: &'static str, buffer, peer: u32| OpSpec::new(op).arg("buffer", buffer).arg("peer", peer);
        match rank {
            0 => graph.step(message("send", x, 1).named("give")),
            _ => graph.step(message("recv", y, 0).named("take")).step(message("recv", y, 0).named("wait")),
        };
    })
}

fn past_verification(graphs: Vec<TaskGraph>, milliseconds: u64) -> PlanGroup {
    let devices: Vec<_> = (0..graphs.len() as u32).map(|i| registry().open("host", i).unwrap()).collect();
    let verified = Verified::unverified(graphs);
    let mut group = PlanGroup::new(registry(), verified, &devices, limited(milliseconds)).unwrap();
    group.write(0, BufferId(0), &[7f32; 1000]).unwrap();
    group
}

#[test]
fn a_receive_without_a_send_ends_in_the_deadline() {
    let _alone = alone();
    let mut group = past_verification(unmatched(), 300);
    let error = group.execute().unwrap_err();
    let said = error.to_string();
    let wanted =
        "step 0 took longer than 300ms: rank 1 waited in `wait` (last finished `take`, after 0 steps)";
    assert_eq!(said, wanted);
    let ranks = &report(&error).ranks;
    assert_eq!((ranks[0].found, ranks[1].found), (Found::Idle, Found::Waiting));
    assert_eq!(report(&error).leak, None);
    refuses(&mut group, &error);
}

/// Abort, refuse, drop, and begin anew, over and over.
#[test]
fn nothing_is_left_of_an_aborted_group() {
    let _alone = alone();
    await_rank_threads(0);
    for _ in 0..10 {
        let mut group = past_verification(unmatched(), 20);
        assert_eq!(rank_threads(), 2);
        let error = group.execute().unwrap_err();
        refuses(&mut group, &error);
        let start = Instant::now();
        drop(group);
        assert!(start.elapsed() < Duration::from_secs(4));
        healthy();
        await_rank_threads(0);
    }
}

#[test]
fn a_late_rank_is_named_and_comes_back() {
    let _alone = alone();
    let mut group = filled(misbehaving(3, 1, 2, "late"), limited(1000));
    let error = group.execute_many(5).unwrap_err();
    assert!(matches!(error, GroupError::TimedOut { during: Moment::Step(2), .. }), "{error}");
    let report = report(&error);
    let found: Vec<Found> = report.ranks.iter().map(|rank| rank.found).collect();
    assert_eq!((found, report.leak), (vec![Found::Waiting, Found::Late, Found::Waiting], None));
    let said = error.to_string();
    let late = "step 2 took longer than 1s: rank 1 was late in `act` (last finished `before`, after 2 steps)";
    assert!(said.starts_with(late), "{said}");
    drop(group);
    await_rank_threads(0);
}

#[test]
fn a_rank_that_does_not_return_is_given_up_and_the_others_leave() {
    let _alone = alone();
    park();
    let mut group = filled(misbehaving(3, 1, 2, "park"), limited(300));
    let error = group.execute_many(5).unwrap_err();
    let said = error.to_string();
    let stuck = "step 2 took longer than 300ms: rank 1 has not returned from `act` (last finished `before`, after 2 steps); \
         rank 0 waited in `after` (last finished `act`, after 2 steps); \
         rank 2 waited in `after` (last finished `act`, after 2 steps); \
         1 rank thread and 6 buffers (12012 bytes) are leaked, and the group is unusable";
    assert_eq!(said, stuck);
    refuses(&mut group, &error);
    drop(group);
    // The two others have ended.
    await_rank_threads(1);
    healthy();
    release();
    await_rank_threads(0);
}

/// Parks rank 0 for good, and runs into the deadline.
fn parked() -> (PlanGroup, GroupError) {
    park();
    let mut group = filled(misbehaving(2, 0, 1, "park"), limited(300));
    let error = group.execute_many(3).unwrap_err();
    let leak = report(&error).leak;
    assert_eq!(leak, Some(Leak { threads: 1, buffers: 4, bytes: 2 * 4004 }));
    (group, error)
}

#[test]
fn a_leaked_thread_may_end_after_its_group() {
    let _alone = alone();
    let (mut group, error) = parked();
    refuses(&mut group, &error);
    drop(group);
    await_rank_threads(1);
    healthy();
    release();
    await_rank_threads(0);
    healthy();
}

#[test]
fn a_leaked_thread_may_come_back_before_its_group_is_dropped() {
    let _alone = alone();
    let (mut group, error) = parked();
    release();
    // It returns, finds itself aborted, and waits for a command; nothing runs any more all the same.
    std::thread::sleep(Duration::from_millis(50));
    refuses(&mut group, &error);
    drop(group);
    await_rank_threads(0);
}

/// A step's clock starts when the step before has ended on all ranks: rank 0, which waits for the other from the middle
/// of one step to the middle of the next, waits longer than a step may take.
#[test]
fn a_step_begins_when_the_last_rank_has_ended_the_one_before() {
    let _alone = alone();
    let graphs = graphs(2, |rank, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::F32, [1000]).upload(Upload::First));
        let before = graph.buffer(BufferDecl::new("before", DType::I32, [1]).upload(Upload::First));
        let after = graph.buffer(BufferDecl::new("after", DType::I32, [1]).upload(Upload::First));
        let on_rank_1 = |step| if rank == 1 { step } else { -1 };
        let late = |steps, at: i32| {
            KernelSpec::new(&MISBEHAVE).arg("steps", steps).arg("at", at).arg("how", "late").grid(1, 1)
        };
        graph.step(late(before, on_rank_1(1)));
        graph.step(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Avg));
        graph.step(late(after, on_rank_1(0)));
    });
    let mut group = filled(graphs, limited(2000));
    for rank in 0..2 {
        group.write(rank, BufferId(2), &[0i32]).unwrap();
    }
    group.execute_many(2).unwrap();
}

#[test]
fn many_steps_may_take_longer_than_one() {
    let _alone = alone();
    let mut group = filled(misbehaving(2, 0, -1, "fail"), limited(1000));
    let start = Instant::now();
    let mut steps = 0;
    while start.elapsed() < Duration::from_millis(1200) {
        group.execute_many(5000).unwrap();
        steps += 5000;
    }
    assert_eq!(group.read::<i32>(0, BufferId(1)).unwrap(), [steps]);
}
