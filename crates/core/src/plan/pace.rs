//! How far a rank's thread runs ahead of its stream: two batches of runs at most.
//!
//! What is queued runs on after an abort, and until it has, nothing can be freed; a failure shows only to who looks; and a driver whose
//! queue is full blocks. So runs are enqueued in batches, with a checkpoint after each, and before a batch is enqueued the one before
//! the last must have ended. A batch is as many runs as take some tens of milliseconds, so that the stream is never idle while the thread
//! wakes up, and what a checkpoint costs is divided by many.

use std::time::{Duration, Instant};

use crate::graph::Phase;
use crate::plan::ExecutionPlan;
use crate::plan::blame::TaskError;

/// A batch that takes less is doubled.
const SHORT: Duration = Duration::from_millis(25);
/// A batch that takes longer is halved.
const LONG: Duration = Duration::from_millis(100);
/// A batch has no more runs, and enqueues no more than so many tasks, unless one run does.
const MOST_RUNS: usize = 64;
const MOST_TASKS: usize = 512;

/// The batches of a plan.
pub(super) struct Pace {
    most: u32,
    /// How many runs the batch in hand is to have, and has.
    size: u32,
    queued: u32,
    before: Option<Batch>,
    /// When the batch before the last was seen to have ended; where there is none, when the first was begun.
    since: Instant,
}

/// A batch that was enqueued.
struct Batch {
    /// How many runs were enqueued at its end, of all phases.
    end: u32,
    size: u32,
}

impl Pace {
    /// For runs of so many tasks.
    pub(super) fn new(tasks: usize) -> Pace {
        let most = (MOST_TASKS / tasks.max(1)).clamp(1, MOST_RUNS) as u32;
        Pace { most, size: 1, queued: 0, before: None, since: Instant::now() }
    }

    /// Nothing is queued any more.
    pub(super) fn idle(&mut self) {
        self.queued = 0;
        self.before = None;
    }

    /// Counts a run that was enqueued; whether the batch is full with it.
    fn count(&mut self) -> bool {
        if self.queued == 0 && self.before.is_none() {
            self.since = Instant::now();
        }
        self.queued += 1;
        self.queued >= self.size
    }

    /// Ends a batch, at so many runs; gives the one before it, which must have ended before the next is begun.
    fn close(&mut self, end: u32) -> Option<Batch> {
        self.before.replace(Batch { end, size: std::mem::take(&mut self.queued) })
    }

    /// A batch of so many runs has ended at this moment.
    fn ended(&mut self, size: u32, now: Instant) {
        let took = now.saturating_duration_since(std::mem::replace(&mut self.since, now));
        let next = match took {
            took if took < SHORT => size.saturating_mul(2),
            took if took > LONG => size / 2,
            _ => size,
        };
        self.size = next.clamp(1, self.most);
    }
}

impl ExecutionPlan {
    /// Called after a run that its stream has not ended yet, and that another one follows: waits when the thread has come far enough
    /// ahead. Returns how many runs are then known to have ended well, of all phases; `None` where there was nothing to wait for.
    pub(crate) fn keep_pace(&mut self, phase: Phase) -> Result<Option<u32>, TaskError> {
        // With a feed every run waits for the one before it.
        if self.is_fed() || !self.pace.count() {
            return Ok(None);
        }
        let last = self.runs.wrapping_sub(1);
        if let Err(error) = self.stream.checkpoint() {
            return Err(self.cause(phase, TaskError::at(None, last, error)));
        }
        let Some(batch) = self.pace.close(self.runs) else { return Ok(None) };
        if let Err(error) = self.stream.wait_for(batch.end, None) {
            return Err(self.blame(phase, last, error));
        }
        if let Some(found) = self.told(phase, last) {
            return Err(found);
        }
        self.pace.ended(batch.size, Instant::now());
        self.sound = batch.end;
        Ok(Some(batch.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the batches that follow, where each run takes so long.
    fn sizes(pace: &mut Pace, run: Duration, batches: u32) -> Vec<u32> {
        let mut now = Instant::now();
        let mut next = || {
            now += run * pace.size;
            pace.ended(pace.size, now);
            pace.size
        };
        (0..batches).map(|_| next()).collect()
    }

    #[test]
    fn a_batch_is_as_many_runs_as_take_some_tens_of_milliseconds() {
        let ms = Duration::from_millis(1);
        let mut pace = Pace::new(3);
        pace.since = Instant::now();
        assert_eq!(sizes(&mut pace, ms, 7), [2, 4, 8, 16, 32, 32, 32]);
        pace.since = Instant::now();
        assert_eq!(sizes(&mut pace, 50 * ms, 6), [16, 8, 4, 2, 2, 2]);
        pace.since = Instant::now();
        assert_eq!(sizes(&mut pace, 300 * ms, 3), [1, 1, 1]);
        pace.since = Instant::now();
        assert_eq!(sizes(&mut pace, Duration::ZERO, 8).last(), Some(&64), "and no more");
    }

    #[test]
    fn a_batch_of_large_runs_is_small() {
        for (tasks, most) in [(0, 64), (1, 64), (8, 64), (9, 56), (100, 5), (512, 1), (100_000, 1)] {
            assert_eq!(Pace::new(tasks).most, most, "{tasks}");
        }
    }
}
