//! Dropping, forgetting and interrupting at any moment.
#![expect(
    clippy::forget_non_drop,
    reason = "that forgetting a handle is safe must hold whatever it is made of"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use squall_core::{BufferId, GroupError, Moment, Options, PlanGroup};

use crate::kernels::{await_parked, park, release};
use crate::{alone, await_rank_threads, filled, healthy, limited, misbehaving, refuses};

/// A group that does what it is told, of so many ranks.
fn good(world: u32) -> PlanGroup {
    filled(misbehaving(world, 0, -1, "fail"), Options::default())
}

fn steps_on(group: &mut PlanGroup, rank: u32) -> i32 {
    group.read::<i32>(rank, BufferId(1)).unwrap()[0]
}

#[test]
fn a_group_is_dropped_while_a_step_is_in_flight() {
    let _alone = alone();
    for pause in [0, 1, 10] {
        let mut group = good(4);
        let running = group.start(u64::MAX).unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        drop(running);
        let start = Instant::now();
        drop(group);
        assert!(start.elapsed() < Duration::from_secs(4));
        await_rank_threads(0);
    }
    healthy();
}

/// Starts a step that rank 0 does not return from, and waits until it is in it.
fn parked() -> PlanGroup {
    park();
    let mut group = filled(misbehaving(2, 0, 0, "park"), limited(300));
    std::mem::forget(group.start(1).unwrap());
    await_parked();
    group
}

#[test]
fn a_rank_that_does_not_return_does_not_hold_the_drop() {
    let _alone = alone();
    drop(parked());
    await_rank_threads(1);
    healthy();
    release();
    await_rank_threads(0);
}

#[test]
fn an_interrupt_counts_what_it_leaks() {
    let _alone = alone();
    let mut group = parked();
    group.interrupt_handle().interrupt();
    let error = group.execute().unwrap_err();
    let leaked = "interrupted in step 0; 1 rank thread and 4 buffers (8008 bytes) are leaked, and the group is unusable";
    assert_eq!(error.to_string(), leaked);
    refuses(&mut group, &error);
    release();
    drop(group);
    await_rank_threads(0);
}

#[test]
fn a_forgotten_handle_is_waited_for_by_whoever_comes_next() {
    let _alone = alone();
    let mut group = good(3);
    std::mem::forget(group.start(1000).unwrap());
    // Reading waits for the steps.
    assert_eq!(steps_on(&mut group, 2), 1000);
    std::mem::forget(group.start(1000).unwrap());
    group.execute().unwrap();
    assert_eq!(steps_on(&mut group, 0), 2001);
    // And nobody comes next.
    std::mem::forget(group.start(u64::MAX).unwrap());
    drop(group);
    await_rank_threads(0);
}

#[test]
fn the_failure_of_forgotten_steps_is_told_to_whoever_comes_next() {
    let _alone = alone();
    let mut group = filled(misbehaving(2, 1, 3, "fail"), Options::default());
    std::mem::forget(group.start(10).unwrap());
    let error = group.execute().unwrap_err();
    assert!(matches!(error, GroupError::Failed { rank: 1, during: Moment::Step(3), .. }), "{error}");
    refuses(&mut group, &error);
}

#[test]
fn things_may_be_dropped_in_any_order() {
    let _alone = alone();
    for order in 0..3 {
        let (mut one, mut two) = (good(2), good(3));
        let (handle, other) = (one.interrupt_handle(), two.interrupt_handle());
        one.execute_many(2).unwrap();
        two.execute_many(2).unwrap();
        match order {
            0 => {
                drop(one);
                drop(handle);
                two.execute().unwrap();
            }
            1 => {
                drop(two);
                one.execute().unwrap();
                drop(one);
                // A handle may outlive what it stops.
                handle.interrupt();
                other.interrupt();
                assert_eq!((handle.steps_done(), other.steps_done()), (3, 2));
            }
            _ => {
                let running = one.start(100).unwrap();
                drop((two, other, handle));
                running.wait().unwrap();
            }
        }
    }
    // Never run, and never filled.
    drop(good(2));
    drop(squall_tests::bind(misbehaving(3, 0, -1, "fail"), Options::default()));
    await_rank_threads(0);
}

#[test]
fn another_thread_interrupts() {
    let _alone = alone();
    for _ in 0..10 {
        let mut group = good(3);
        let handle = group.interrupt_handle();
        let stopper = std::thread::spawn(move || {
            while handle.steps_done() < 50 {
                std::thread::yield_now();
            }
            handle.interrupt();
            handle.interrupt();
        });
        let error = group.execute_many(u64::MAX).unwrap_err();
        stopper.join().unwrap();
        match &error {
            GroupError::Interrupted { during: Moment::Step(step), report } => {
                assert!(*step >= 50 && report.leak.is_none(), "{error}");
            }
            other => panic!("{other}"),
        }
        refuses(&mut group, &error);
        drop(group);
        await_rank_threads(0);
    }
    healthy();
}

#[test]
fn an_interrupt_between_steps_stops_the_next() {
    let _alone = alone();
    let mut group = good(2);
    group.execute_many(4).unwrap();
    group.interrupt_handle().interrupt();
    let error = group.execute().unwrap_err();
    assert!(matches!(error, GroupError::Interrupted { during: Moment::Step(4), .. }), "{error}");
    assert_eq!(error.to_string(), "interrupted in step 4");
    refuses(&mut group, &error);
}

/// The end of a run and the interrupt meet at any moment; whoever wins, nothing hangs and nothing is left.
#[test]
fn an_interrupt_races_the_end() {
    let _alone = alone();
    for round in 0..50 {
        let mut group = good(2);
        let (handle, go) = (group.interrupt_handle(), Arc::new(AtomicBool::new(false)));
        let started = go.clone();
        let stopper = std::thread::spawn(move || {
            while !started.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            (0..round * 20).for_each(|_| std::hint::spin_loop());
            handle.interrupt();
        });
        go.store(true, Ordering::Release);
        let outcome = group.execute_many(3);
        stopper.join().unwrap();
        assert!(matches!(outcome, Ok(()) | Err(GroupError::Interrupted { .. })), "{outcome:?}");
        assert!(group.execute().is_err());
    }
    await_rank_threads(0);
}
