//! Where one rank stands: how far its stream has come, and since when.
//!
//! A step is done when the rank's stream has passed its end. A host's stream has when the rank's thread has enqueued the
//! step; a GPU's passes it some time later, with other steps queued behind it. So the count of steps done comes from the
//! stream. The time at which the last of them ended is told by the rank's thread where it finds its stream at its end, or has waited for
//! one step of many; in between, the caller notes when it first sees one done.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::device::{Position, Progress};
use crate::graph::Node;
use crate::group::handles::Handles;
use crate::group::shared::Call;
use crate::plan::TaskError;
use crate::wait::Gate;

/// One rank, as its thread tells the caller. On cache lines of its own, since it is written in every step.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct RankState {
    /// Steps handed to the stream since the group was made, with the one that is being enqueued.
    queued: AtomicU64,
    /// Runs of the setup and the finish that have ended.
    others: AtomicU32,
    /// How many steps its thread knew to be done at `since`.
    timed: AtomicU64,
    /// When the rank's thread last found its stream to have ended these, or was given a command: nanoseconds since the group
    /// was made.
    since: AtomicU64,
    /// The last command it was given.
    pub(super) ticket: AtomicU64,
    /// The last command it has carried out.
    pub(super) done: AtomicU64,
    /// Where it waits for a command.
    pub(super) go: Gate,
    progress: OnceLock<Arc<dyn Progress>>,
    /// Where the stream was when the group was aborted: an aborted stream may pass what it did not do.
    stopped: OnceLock<Position>,
    /// How its run failed, if it did.
    pub(super) failure: Mutex<Option<TaskError>>,
    pub(super) call: Mutex<Option<Call>>,
    /// The task that is made ready, while the plan is bound.
    pub(super) preparing: Mutex<Option<Arc<Node>>>,
    /// What its ops have called on an abort, until its plan is dropped.
    pub(super) handles: Handles,
}

/// When a rank had done so many steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) steps: u64,
    /// Nanoseconds since the group was made.
    pub(super) since: u64,
}

impl RankState {
    /// The name of the task that it makes ready.
    pub(super) fn prepared(&self) -> Option<String> {
        let preparing = self.preparing.lock().unwrap_or_else(PoisonError::into_inner);
        preparing.as_ref().map(|node| node.origin.name.clone())
    }

    /// Gives it the stream's progress, once it has a stream.
    pub(super) fn follow(&self, progress: Arc<dyn Progress>) {
        let _ = self.progress.set(progress);
    }

    /// Keeps where the stream is for good. Called before an abort, by the group's caller: reading may take a moment.
    pub(super) fn stop(&self) -> Position {
        *self.stopped.get_or_init(|| self.passed())
    }

    /// The same where nobody has, without asking the device: where the stream is known to be. Called by any thread.
    pub(super) fn stop_unasked(&self) {
        self.stopped
            .get_or_init(|| self.progress.get().map_or_else(Position::default, |progress| progress.known()));
    }

    fn passed(&self) -> Position {
        self.progress.get().map_or_else(Position::default, |progress| progress.read())
    }

    /// Where the stream is, or was when the group was aborted.
    pub(super) fn position(&self) -> Position {
        self.stopped.get().copied().unwrap_or_else(|| self.passed())
    }

    /// Steps that are done.
    pub(super) fn steps_done(&self) -> u64 {
        self.steps_at(self.position().runs)
    }

    /// Steps that are done when so many runs have ended.
    pub(super) fn steps_at(&self, runs: u32) -> u64 {
        steps_done(self.queued.load(Ordering::Acquire), self.others.load(Ordering::Acquire), runs)
    }

    /// Looks again at a rank that was last seen at `before`.
    pub(super) fn look(&self, before: Seen, now: u64) -> Seen {
        let steps = self.steps_done();
        let exact = Seen { steps: self.timed.load(Ordering::Acquire), since: self.since() };
        if exact.steps >= steps {
            exact
        } else if steps > before.steps {
            Seen { steps, since: now }
        } else {
            before
        }
    }

    /// When its thread last knew how many steps were done.
    pub(super) fn since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    /// Begins a command. Called by the caller, while the rank waits for one.
    pub(super) fn begin(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
    }

    /// Counts so many steps as handed to the stream and done, before any other run. Called by the caller, while the rank waits
    /// for a command.
    pub(super) fn resume_at(&self, step: u64) {
        self.queued.store(step, Ordering::Release);
        self.timed.store(step, Ordering::Release);
        // Its runs count from 0 all the same.
        self.others.store((step as u32).wrapping_neg(), Ordering::Release);
    }

    /// Counts one more step as handed to the stream; returns its number. Called by the rank's thread, before the stream
    /// can come to it.
    pub(super) fn queue_step(&self) -> u64 {
        let step = self.queued.load(Ordering::Relaxed);
        self.queued.store(step + 1, Ordering::Release);
        step
    }

    /// Steps handed to the stream. Called by the rank's thread.
    pub(super) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }

    /// Counts a setup or a finish that has ended. Called by the rank's thread.
    pub(super) fn ended_other(&self) {
        self.others.store(self.others.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Whether steps were handed to the stream since its thread last found it at its end.
    pub(super) fn untimed(&self) -> bool {
        self.timed.load(Ordering::Relaxed) != self.queued.load(Ordering::Relaxed)
    }

    /// Notes that the stream has ended so many steps; returns how many of them since the last time, and the nanoseconds
    /// that they took. Called by the rank's thread.
    pub(super) fn ended(&self, steps: u64, now: u64) -> (u64, u64) {
        let (before, since) = (self.timed.load(Ordering::Relaxed), self.since());
        self.since.store(now, Ordering::Relaxed);
        self.timed.store(steps, Ordering::Release);
        (steps.saturating_sub(before), now.saturating_sub(since))
    }
}

/// Steps that a stream has done: it was handed `queued` of them and `others` other runs, and has passed the end of `runs`
/// runs, counted modulo 2³². It is never behind by half of that.
fn steps_done(queued: u64, others: u32, runs: u32) -> u64 {
    // Of the queued steps, modulo 2³², as is all else here.
    let behind = (queued as u32).wrapping_add(others).wrapping_sub(runs);
    // It is ahead by one where a setup or a finish has just ended, and is not counted yet.
    if behind > u32::MAX / 2 { queued } else { queued.saturating_sub(behind.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_through_the_wrap() {
        const WRAP: u64 = 1 << 32;
        // Queued, others, runs, done.
        for (queued, others, runs, done) in [
            (0, 0, 0, 0),
            (0, 0, 1, 0), // a setup that has just ended
            (1, 1, 1, 0),
            (1, 1, 2, 1),
            (5, 1, 3, 2),
            (5, 1, 7, 5), // a finish that has just ended
            (WRAP - 1, 0, u32::MAX, WRAP - 1),
            (WRAP, 0, u32::MAX, WRAP - 1),
            (WRAP, 0, 0, WRAP),
            (WRAP + 1000, 0, u32::MAX - 9, WRAP - 10),
            (WRAP - 1, 1, u32::MAX, WRAP - 2),
            (WRAP - 1, 1, 0, WRAP - 1),
            (7 * WRAP + 3, 2, 4, 7 * WRAP + 2),
            (7 * WRAP + 3, u32::MAX, 1, 7 * WRAP + 2),
            (1, 0, u32::MAX, 0), // nothing was ever enqueued
        ] {
            assert_eq!(
                steps_done(queued, others, runs),
                done,
                "{queued} queued, {others} others, {runs} runs"
            );
        }
    }

    #[test]
    fn a_look_takes_the_threads_time_or_its_own() {
        let (rank, word) = (RankState::default(), Arc::new(AtomicU64::new(0)));
        rank.follow(word.clone());
        let pass = |runs| word.store(Position { runs, tasks: 0 }.into(), Ordering::Relaxed);
        rank.begin(10);
        (0..4).for_each(|step| assert_eq!(rank.queue_step(), step));
        let begun = rank.look(Seen::default(), 15);
        assert_eq!(begun, Seen { steps: 0, since: 10 }, "the first step began with the command");
        pass(2);
        let seen = rank.look(begun, 20);
        assert_eq!(seen, Seen { steps: 2, since: 20 }, "seen done now");
        assert_eq!(rank.look(seen, 25), seen, "and no further");
        pass(4);
        assert!(rank.untimed());
        assert_eq!(rank.ended(3, 28), (3, 18));
        assert_eq!(rank.look(seen, 29), Seen { steps: 4, since: 29 }, "the thread knew of fewer");
        assert!(rank.untimed());
        assert_eq!(rank.ended(4, 30), (1, 2));
        assert!(!rank.untimed());
        assert_eq!(rank.look(seen, 35), Seen { steps: 4, since: 30 }, "the thread knew");
    }

    #[test]
    fn steps_before_a_resumption_count_as_done() {
        for first in [0, 7, u64::from(u32::MAX), 1 << 32, (5 << 32) + 9] {
            let (rank, word) = (RankState::default(), Arc::new(AtomicU64::new(0)));
            rank.follow(word.clone());
            rank.resume_at(first);
            assert_eq!((rank.steps_done(), rank.untimed()), (first, false));
            assert_eq!((rank.queue_step(), rank.steps_done()), (first, first));
            word.store(Position { runs: 1, tasks: 0 }.into(), Ordering::Relaxed);
            assert_eq!((rank.steps_done(), rank.ended(first + 1, 5)), (first + 1, (1, 5)));
        }
    }

    #[test]
    fn a_rank_that_was_stopped_stands_still() {
        let (rank, word) = (RankState::default(), Arc::new(AtomicU64::new(0)));
        rank.follow(word.clone());
        rank.queue_step();
        assert_eq!(rank.stop(), Position::default());
        word.store(Position { runs: 1, tasks: 0 }.into(), Ordering::Relaxed);
        assert_eq!(rank.stop(), Position::default());
        rank.stop_unasked();
        assert_eq!((rank.position(), rank.steps_done()), (Position::default(), 0));
    }
}
