//! Which limit holds when, and what asking a device may cost.

use std::time::{Duration, Instant};

use squall_core::{GroupError, Moment, Options};

use crate::device::{Act, Gpu, Watched};
use crate::{ALWAYS, Flag, MS, await_flag, group, group_of, hanging, limited};

const LIMIT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_millis(1200);

#[test]
fn a_step_that_is_captured_may_take_as_long_as_binding() {
    let (gpu, watched) = Gpu::watched(0, |_, _| Act::Nothing);
    *watched.instantiating.lock().unwrap() = LONG;
    let mut group = group_of(&[gpu], ALWAYS, limited(LIMIT).capture(true));
    group.execute_many(5).unwrap();
    // The others may not, and nor may the second where none is captured.
    for (capture, step) in [(true, 2), (false, 1)] {
        let late = move |task, turn| if (task, turn) == (0, step) { Act::Take(LONG) } else { Act::Nothing };
        let error = crate::group(limited(LIMIT).capture(capture), late).execute_many(5).unwrap_err();
        assert!(
            matches!(error, GroupError::TimedOut { during, .. } if during == Moment::Step(step)),
            "{error}"
        );
    }
}

#[test]
fn a_finish_may_take_as_long_as_binding() {
    let late = |task, _| if task == 8 { Act::Take(LONG) } else { Act::Nothing };
    let mut group = group(limited(LIMIT), late);
    group.execute().unwrap();
    group.finish().unwrap();
}

#[test]
fn a_first_step_has_no_less_than_the_others() {
    let late = |task, turn| if (task, turn) == (0, 0) { Act::Take(LONG) } else { Act::Nothing };
    group(limited(10 * LONG).init_timeout(LIMIT), late).execute_many(2).unwrap();
}

/// Interrupts a group on a device that answers slowly, and gives what was said and how long the interrupt took.
fn interrupted(forgotten: bool) -> (GroupError, Duration, u64) {
    let reached = Flag::default();
    let (gpu, watched) = Gpu::watched(0, hanging(1, 2, reached.clone()));
    *watched.reading.lock().unwrap() = 1000 * MS;
    let mut group =
        group_of(&[gpu], ALWAYS, Options::default().step_timeout(None).init_timeout(Duration::MAX));
    let handle = group.interrupt_handle();
    group.execute_many(2).unwrap();
    let stop = move || {
        await_flag(&reached);
        let start = Instant::now();
        handle.interrupt();
        start.elapsed()
    };
    let (error, took) = match forgotten {
        true => {
            let _running = group.start(4).unwrap();
            let took = stop();
            (group.execute().unwrap_err(), took)
        }
        false => {
            let stopper = std::thread::spawn(stop);
            let error = group.execute_many(4).unwrap_err();
            (error, stopper.join().unwrap())
        }
    };
    (error, took, Watched::of(&watched.reads))
}

/// Whoever interrupts is a handler of signals: it asks no device. Who waits for the steps does, once, before it aborts.
#[test]
fn an_interrupt_asks_no_device() {
    let (error, took, reads) = interrupted(false);
    let GroupError::Interrupted { during: Moment::Step(2), report } = &error else { panic!("{error}") };
    assert_eq!((report.ranks[0].finished.as_deref(), report.leak), (Some("a"), None));
    assert!(took < 500 * MS, "{took:?}");
    assert_eq!(reads, 1, "what was read to report is where the rank stands");
}

/// Where nobody waits, what is known without asking must do: the last step that was waited for.
#[test]
fn an_interrupt_that_nobody_waits_for_releases_the_ranks() {
    let (error, took, reads) = interrupted(true);
    let GroupError::Interrupted { during: Moment::Step(2), report } = &error else { panic!("{error}") };
    assert_eq!(report.leak, None);
    assert!(took < 500 * MS, "{took:?}");
    assert_eq!(reads, 0);
}

#[test]
fn a_timeout_reads_where_a_rank_is_once_more_and_not_again() {
    const LOOK: Duration = Duration::from_millis(150);
    let reached = Flag::default();
    let (gpu, watched) = Gpu::watched(0, hanging(1, 2, reached));
    *watched.reading.lock().unwrap() = 50 * MS;
    let mut group = group_of(&[gpu], ALWAYS, limited(8 * LOOK));
    group.execute_many(2).unwrap();
    let start = Instant::now();
    let error = group.execute_many(4).unwrap_err();
    let looks = start.elapsed().as_millis() as u64 / LOOK.as_millis() as u64;
    assert!(matches!(error, GroupError::TimedOut { during: Moment::Step(2), .. }), "{error}");
    // One a look, and one for the report.
    let reads = Watched::of(&watched.reads);
    assert!(reads <= looks + 2, "{reads} for {looks} looks");
}
