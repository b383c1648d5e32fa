//! A rank's thread runs ahead of its stream, and not too far: it looks at what became of the runs before.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use squall_core::{GroupError, Moment, Options};

use crate::device::{Act, Gpu, Watched};
use crate::{ALWAYS, Flag, MS, await_flag, failed, group, group_of, in_one_of, limited};

#[test]
fn no_more_than_two_batches_are_queued() {
    for capture in [false, true] {
        let (gate, reached) = (Flag::default(), Flag::default());
        let (held, there) = (gate.clone(), reached.clone());
        let (gpu, watched) = Gpu::watched(0, move |task, turn| match (task, turn) {
            (1, 1500) => {
                there.store(true, Ordering::Release);
                Act::Block(held.clone())
            }
            _ => Act::Nothing,
        });
        let mut group = group_of(&[gpu], ALWAYS, Options::default().capture(capture));
        let steps = group.start(3000).unwrap();
        await_flag(&reached);
        // Long enough for the rank's thread to enqueue them all.
        std::thread::sleep(20 * MS);
        gate.store(true, Ordering::Release);
        steps.wait().unwrap();
        let ahead = Watched::of(&watched.most_ahead);
        // Two batches, and the run that is enqueued next.
        assert!((2..=129).contains(&ahead), "{ahead}");
        // The setup's, the capture's, and at the end: between steps it waits for checkpoints, one a batch.
        assert!(Watched::of(&watched.waits) <= 3);
        assert!(Watched::of(&watched.waits_for) >= 3000 / 64);
        assert_eq!(group.interrupt_handle().steps_done(), 3000);
        assert_eq!(group.step_times().len(), 3000);
    }
}

/// One step at a time costs no checkpoint.
#[test]
fn a_step_that_is_waited_for_anyway_has_no_checkpoint() {
    let (gpu, watched) = Gpu::watched(0, |_, _| Act::Nothing);
    let mut group = group_of(&[gpu], ALWAYS, Options::default());
    (0..100).for_each(|_| group.execute().unwrap());
    assert_eq!(Watched::of(&watched.waits_for), 0);
}

/// Steps that are queued run on after an abort: there must not be more of them than the second period is long.
#[test]
fn an_abort_finds_little_queued() {
    for capture in [false, true] {
        let mut group = group(Options::default().capture(capture), |task, _| match task {
            0 => Act::Take(50 * MS),
            _ => Act::Nothing,
        });
        let handle = group.interrupt_handle();
        let stopper = std::thread::spawn(move || {
            std::thread::sleep(500 * MS);
            handle.interrupt();
        });
        let start = Instant::now();
        let error = group.execute_many(10_000).unwrap_err();
        stopper.join().unwrap();
        let GroupError::Interrupted { report, .. } = &error else { panic!("{error}") };
        assert_eq!(report.leak, None);
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        // What steps took is known of those that were waited for.
        let times = group.step_times();
        let total = Duration::from_nanos(times.iter().sum());
        assert!(!times.is_empty() && total >= 50 * MS * times.len() as u32, "{times:?}");
    }
}

/// What a work finds wrong is asked for while later steps are queued, and not at the end of them all.
#[test]
fn a_failure_is_told_a_batch_or_two_later() {
    for capture in [false, true] {
        let notes = |task, turn| if (task, turn) == (1, 700) { Act::Note } else { Act::Nothing };
        let error = group(Options::default().capture(capture), notes).execute_many(u64::MAX).unwrap_err();
        let (task, during, said, _) = failed(&error);
        assert_eq!((task, said.as_str()), (Some("b"), "task 1 found a NaN"));
        assert!(in_one_of(during, 700, 700 + 129), "{during}");
        let Moment::Steps(first, last) = during else { panic!("{during}") };
        assert!(error.to_string().contains(&format!("task `b` of one of the steps {first} to {last}: ")));
    }
}

/// A stream that stops is found out by the wait for a checkpoint that it never comes to.
#[test]
fn a_stream_that_stops_is_found_out_soon() {
    let dies = |task, turn| if (task, turn) == (2, 300) { Act::Die } else { Act::Nothing };
    let error = group(Options::default(), dies).execute_many(u64::MAX).unwrap_err();
    let (task, during, said, _) = failed(&error);
    assert_eq!((task, during, said.as_str()), (Some("c"), Moment::Step(300), "the device reports an error"));
}

/// A rank that was released in a wait for a checkpoint has not done those steps, though its stream passed it.
#[test]
fn a_checkpoint_that_is_passed_after_an_abort_is_no_success() {
    let reached = Flag::default();
    let hangs = crate::hanging(1, 2, reached.clone());
    let mut group = group(limited(300 * MS), hangs);
    let error = group.execute_many(1000).unwrap_err();
    await_flag(&reached);
    let said = "step 2 took longer than 300ms: rank 0 waited in `b` (last finished `a`, after 2 steps)";
    assert_eq!(error.to_string(), said);
    assert_eq!(group.interrupt_handle().steps_done(), 2);
    assert!(group.step_times().len() <= 2);
}
