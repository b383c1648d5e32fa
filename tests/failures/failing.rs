//! A rank that fails ends the run: the others are released, and the error names it.

use std::time::Duration;

use squall_core::error::{Found, Report};
use squall_core::graph::{KernelSpec, Phase};
use squall_core::{
    BufferDecl, BufferId, DType, DeviceError, Feed, GroupError, Moment, OpSpec, Options, ReduceOp, Upload,
};
use squall_tests::{bind, graphs, registry};

use crate::kernels::MISBEHAVE;
use crate::{act, alone, await_rank_threads, filled, healthy, limited, misbehaving, refuses};

/// The error, checked to name rank 1 in task `act` of step 3, and where it left the others.
fn in_the_middle_of_step_3(error: GroupError, text: &str) -> Report {
    let GroupError::Failed { rank: 1, task: Some(task), during: Moment::Step(3), error, released } = error
    else {
        panic!("{error}");
    };
    assert_eq!((task.as_str(), error), ("act", DeviceError::Failed(text.to_string())));
    *released
}

#[test]
fn a_kernel_fails_in_the_middle_of_step_3() {
    let _alone = alone();
    for queued in [true, false] {
        let mut group = filled(misbehaving(3, 1, 3, "fail"), Options::default());
        let error = if queued {
            group.execute_many(10).unwrap_err()
        } else {
            (0..10).find_map(|_| group.execute().err()).unwrap()
        };
        let said = error.to_string();
        let wanted = "rank 1 failed in task `act` of step 3: the kernel `misbehave`: it has had enough after 3 steps; rank";
        assert!(said.starts_with(wanted), "{said}");
        refuses(&mut group, &error);
        let report =
            in_the_middle_of_step_3(error, "the kernel `misbehave`: it has had enough after 3 steps");
        assert_eq!(report.leak, None);
        let others: Vec<u32> = report.ranks.iter().map(|rank| rank.rank).collect();
        assert_eq!(others, [0, 2]);
        // Released, not blamed.
        for rank in report.ranks {
            assert!(matches!(rank.found, Found::Waiting | Found::Busy), "{rank}");
        }
        drop(group);
        await_rank_threads(0);
        healthy();
    }
}

/// Each rank fails by itself, one after the other: wherever the others stood when the first did, they are said to have failed where they did.
#[test]
fn ranks_that_fail_too_are_told_of_where_they_failed() {
    let _alone = alone();
    for _ in 0..30 {
        let graphs = graphs(3, |rank, graph| {
            let x = graph.buffer(BufferDecl::new("x", DType::F32, [1000]).upload(Upload::First));
            let steps = graph.buffer(BufferDecl::new("steps", DType::I32, [1]).upload(Upload::First));
            // So that some are still in it when the first fails.
            for name in ["scale", "scale again"].into_iter().take(rank as usize) {
                graph.step(
                    KernelSpec::new(registry().kernel("scale").unwrap())
                        .arg("data", x)
                        .arg("factor", 2)
                        .grid(1000, 32)
                        .named(name),
                );
            }
            act(graph, steps, 2, "fail");
        });
        let error = filled(graphs, Options::default()).execute_many(10).unwrap_err();
        let GroupError::Failed { task, during: Moment::Step(2), released, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(task.as_deref(), Some("act"));
        for rank in released.ranks.iter().filter(|rank| rank.found == Found::Failed) {
            assert_eq!((rank.running.as_deref(), rank.steps), (Some("act"), 2), "{rank}");
        }
    }
}

#[test]
fn a_kernel_panics() {
    let _alone = alone();
    let mut group = filled(misbehaving(2, 1, 3, "panic"), Options::default());
    let error = group.execute_many(10).unwrap_err();
    refuses(&mut group, &error);
    in_the_middle_of_step_3(error, "it panicked: nobody expected step 3");
    drop(group);
    await_rank_threads(0);
    healthy();
}

#[test]
fn all_ranks_fail_at_once() {
    let _alone = alone();
    let graphs = graphs(2, |_, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::F32, [1000]).upload(Upload::First));
        let steps = graph.buffer(BufferDecl::new("steps", DType::I32, [1]).upload(Upload::First));
        graph.step(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Avg).named("sum"));
        act(graph, steps, 3, "fail");
    });
    let mut group = filled(graphs, Options::default());
    let error = group.execute_many(10).unwrap_err();
    let GroupError::Failed { rank, .. } = error else { panic!("{error}") };
    let wanted = format!(
        "rank {rank} failed in task `act` of step 3: the kernel `misbehave`: it has had enough after 3 steps; \
         rank {} failed, too, in `act` (last finished `sum`, after 3 steps)",
        1 - rank
    );
    assert_eq!(error.to_string(), wanted);
    refuses(&mut group, &error);
}

#[test]
fn setup_and_finish_name_themselves() {
    let _alone = alone();
    let fails_in = |phase: Phase| {
        let graphs = graphs(2, |rank, graph| {
            let x = graph.buffer(BufferDecl::new("x", DType::F32, [1000]).upload(Upload::First));
            let steps = graph.buffer(BufferDecl::new("steps", DType::I32, [1]).upload(Upload::First));
            let all_reduce = || OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Sum);
            // A step of more tasks than the finish has: where the step ended must not be taken for the finish's.
            graph.step(all_reduce()).step(all_reduce()).step(all_reduce());
            let act =
                |at: i32| KernelSpec::new(&MISBEHAVE).arg("steps", steps).arg("at", at).arg("how", "fail");
            graph.add(phase, act(if rank == 1 { 0 } else { -1 }).grid(1, 1).named("act"));
            graph.add(phase, all_reduce().named("meet"));
        });
        let mut group = filled(graphs, Options::default());
        (0..2).find_map(|_| group.execute().err()).unwrap_or_else(|| group.finish().unwrap_err())
    };
    for (phase, moment) in [(Phase::Setup, Moment::Setup), (Phase::Finish, Moment::Finish)] {
        match fails_in(phase) {
            GroupError::Failed { rank: 1, task: Some(task), during, released, .. } => {
                assert_eq!((task.as_str(), during), ("act", moment));
                // Rank 0 is in this phase, too.
                let running = released.ranks[0].running.as_deref();
                assert!(matches!(running, Some("act" | "meet")), "{running:?}");
            }
            other => panic!("{other}"),
        }
    }
}

/// A feed that gives out, or panics.
struct Feeding {
    panics: bool,
}

impl Feed for Feeding {
    fn fill(&mut self, step: u64, _: &mut [u8]) -> Result<(), String> {
        match (step, self.panics) {
            (2, false) => Err("the file is cut off".to_string()),
            (2, true) => panic!("no more"),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_feed_that_fails_or_panics_blames_no_task() {
    let _alone = alone();
    for (panics, text) in [(false, "the file is cut off"), (true, "it panicked: no more")] {
        let graphs = graphs(2, |_, graph| {
            let x = graph.buffer(BufferDecl::new("x", DType::F32, [8]).upload(Upload::Every));
            graph.step(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Sum));
        });
        let mut group = bind(graphs, Options::default());
        group.feed(0, BufferId(0), Box::new(Feeding { panics })).unwrap();
        group.write(1, BufferId(0), &[0f32; 8]).unwrap();
        let error = group.execute_many(5).unwrap_err();
        let GroupError::Failed { rank: 0, task: None, during: Moment::Step(2), error, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(error, DeviceError::Failed(text.to_string()));
    }
}

#[test]
fn wrong_buffers_are_refused_and_the_group_goes_on() {
    let _alone = alone();
    let mut group = filled(misbehaving(2, 0, -1, "fail"), Options::default());
    let texts = [
        group.write(0, BufferId(0), &[0i32; 1000]).unwrap_err(),
        group.write(0, BufferId(0), &[0f32; 999]).unwrap_err(),
        group.write(2, BufferId(0), &[0f32; 1000]).unwrap_err(),
        group.read::<f32>(0, BufferId(9)).unwrap_err(),
        group.feed(0, BufferId(0), Box::new(Feeding { panics: false })).unwrap_err(),
    ]
    .map(|error| error.to_string());
    assert_eq!(
        texts,
        [
            "buffer `x` is f32, not i32",
            "buffer `x` on rank 0 takes 4000 bytes, not 3996",
            "there is no rank 2 in this group",
            "rank 0 has no buffer with the id 9",
            "buffer `x` is not uploaded in every step, and takes no feed",
        ]
    );
    group.execute_many(4).unwrap();
    assert_eq!(group.read::<i32>(1, BufferId(1)).unwrap(), [4]);
}

#[test]
fn contents_that_were_never_given_are_missed_before_the_first_step() {
    let _alone = alone();
    let mut group = bind(misbehaving(2, 0, -1, "fail"), Options::default());
    group.write(0, BufferId(0), &[0f32; 1000]).unwrap();
    group.write(0, BufferId(1), &[0i32]).unwrap();
    let missing = GroupError::NoContents { rank: 1, buffer: "x".to_string() };
    assert_eq!(group.execute(), Err(missing));
    crate::fill(&mut group, 2);
    group.execute().unwrap();
}

/// A limit that the clock cannot count to, and none at all.
#[test]
fn limits_may_be_long_or_none() {
    let _alone = alone();
    let forever = Options::default().step_timeout(Some(Duration::MAX)).init_timeout(Duration::MAX);
    for options in [forever, Options::default().step_timeout(None)] {
        let mut group = filled(misbehaving(2, 0, -1, "fail"), options);
        group.execute_many(3).unwrap();
    }
    // Short of a step's own time it is no success, and no hang.
    let mut group = filled(misbehaving(2, 0, 0, "late"), limited(0));
    assert!(group.execute().is_err());
}
