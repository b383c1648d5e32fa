//! Whose failure it is, when it shows in a call that has nothing to do with it.

use squall_core::{DeviceError, GroupError, Moment, Options};

use crate::device::{Act, Gpu, Refusal, Watched};
use crate::{ALWAYS, failed, group, in_one_of, refusing, registry};

/// Runs six steps where something happens in task 0 of step 2, and `b` is refused in step 4, in the words of a library, once it has.
fn refused_after(act: impl Fn() -> Act + Send + Sync + 'static) -> GroupError {
    let script = move |task, turn| if (task, turn) == (0, 2) { act() } else { Act::Nothing };
    let devices = [Gpu::open(0, script)];
    // Without capture: a replay enqueues no `b`.
    refusing(&registry(), &devices, 4, Refusal::Sticky, Options::default()).execute_many(6).unwrap_err()
}

#[test]
fn an_enqueuing_that_meets_an_earlier_failure_tells_that_one() {
    let error = refused_after(|| Act::Note);
    let (task, during, said, _) = failed(&error);
    assert_eq!((task, said.as_str()), (Some("a"), "task 0 found a NaN"));
    assert!(in_one_of(during, 2, 4), "{during}");

    let error = refused_after(|| Act::Die);
    let (task, during, said, _) = failed(&error);
    assert_eq!((task, during, said.as_str()), (Some("a"), Moment::Step(2), "the device reports an error"));
}

fn is_lost(error: &GroupError) -> Moment {
    let (task, during, said, _) = failed(error);
    assert_eq!((task, said.as_str()), (None, "host:0 is lost to this process: an illegal address"));
    let GroupError::Failed { error: DeviceError::Lost { .. }, .. } = error else { panic!("{error}") };
    during
}

/// Nobody can tell which task lost a device: where its stream was cannot be asked any more.
#[test]
fn a_lost_device_is_lost_in_no_task_that_is_not_known() {
    let during = is_lost(&refused_after(|| Act::Lose));
    assert!(in_one_of(during, 2, 4), "{during}");
    for capture in [false, true] {
        let loses = |task, turn| if (task, turn) == (1, 300) { Act::Lose } else { Act::Nothing };
        let error = group(Options::default().capture(capture), loses).execute_many(10_000).unwrap_err();
        let during = is_lost(&error);
        assert!(in_one_of(during, 300, 300 + 129), "{during}");
        // One by one, the step is known.
        let mut one_by_one = group(Options::default().capture(capture), loses);
        let error = (0..400).find_map(|_| one_by_one.execute().err()).unwrap();
        assert_eq!(is_lost(&error), Moment::Step(300));
    }
}

/// A panic between the begin and the end of a capture leaves a stream that can be waited for, as it must be before its memory is freed.
#[test]
fn a_panic_while_a_step_is_captured_ends_the_capture() {
    let (gpu, watched) = Gpu::watched(0, |_, _| Act::Nothing);
    let options = Options::default().capture(true);
    let mut group = refusing(&registry(), &[gpu], 1, Refusal::Panic, options);
    let error = group.execute_many(3).unwrap_err();
    let (task, during, said, _) = failed(&error);
    assert_eq!((task, during), (Some("b"), Moment::Step(1)));
    assert_eq!(said, "it panicked: it is enqueued once too often");
    drop(group);
    assert_eq!(Watched::of(&watched.waited_capturing), 0);
}

#[test]
fn an_error_while_a_step_is_captured_ends_the_capture() {
    let (gpu, watched) = Gpu::watched(0, |_, _| Act::Nothing);
    let options = Options::default().capture(true);
    let error = refusing(&registry(), &[gpu], 1, Refusal::Error, options).execute_many(3).unwrap_err();
    let (task, during, said, _) = failed(&error);
    assert_eq!((task, during), (Some("b"), Moment::Step(1)));
    // Without capture it might be none.
    assert_eq!(said, "during capture: it cannot be enqueued");
    assert_eq!(Watched::of(&watched.waited_capturing), 0);
}

/// Ending a capture may wait for the device, and the device for a rank that is not there yet.
#[test]
fn a_capture_begins_with_nothing_queued() {
    let (gpu, watched) = Gpu::watched(0, |task, turn| match (task, turn) {
        (2, 0) => Act::Take(50 * crate::MS),
        _ => Act::Nothing,
    });
    let options = Options::default().capture(true);
    refusing(&registry(), &[gpu], ALWAYS, Refusal::Error, options).execute_many(3).unwrap();
    assert_eq!(Watched::of(&watched.begun_busy), 0);
}
