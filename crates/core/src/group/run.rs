//! Running phases: hand the ranks a command, and watch them carry it out.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::{GroupError, Moment};
use crate::graph::Phase;
use crate::group::abort::Cause;
use crate::group::options::look_period;
use crate::group::peers::Ending;
use crate::group::rank::{RankState, Seen};
use crate::group::shared::Command;
use crate::group::{Options, PlanGroup};
use crate::wait::Running;

/// Steps that run while the caller does something else. Forgetting it is safe: whoever uses the group next waits for
/// the steps first.
#[must_use = "the steps run on, but nobody learns how they end"]
pub struct Steps<'g>(&'g mut PlanGroup);

impl Steps<'_> {
    /// Waits for the steps to end.
    pub fn wait(self) -> Result<(), GroupError> {
        self.0.settle()
    }
}

impl std::fmt::Debug for Steps<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Steps").field(&self.0).finish()
    }
}

/// What the caller found when it looked at the ranks.
enum Look {
    /// Nothing is wrong; to look again then at the latest.
    Again(Option<Instant>),
    /// This limit has passed.
    TooLate(Duration),
}

impl PlanGroup {
    /// Runs one step, after the setup tasks if these have not run. Returns when every rank has ended it.
    pub fn execute(&mut self) -> Result<(), GroupError> {
        self.execute_many(1)
    }

    /// Runs so many steps without stopping in between. On a GPU they are queued, some tens of milliseconds ahead; a failure that shows only
    /// later is then told with the steps that it may have been in.
    pub fn execute_many(&mut self, steps: u64) -> Result<(), GroupError> {
        self.start(steps)?.wait()
    }

    /// Starts so many steps and returns; the setup tasks, if they have not run, are waited for.
    pub fn start(&mut self, steps: u64) -> Result<Steps<'_>, GroupError> {
        self.usable()?;
        for (graph, awaited) in self.graphs.iter().zip(&self.awaited) {
            if let Some(index) = awaited.iter().position(|&awaited| awaited) {
                let buffer = graph.buffers()[index].name.to_string();
                return Err(GroupError::NoContents { rank: graph.rank(), buffer });
            }
        }
        if !self.set_up {
            self.run(Phase::Setup, 1)?;
            self.set_up = true;
        }
        self.in_flight = Some(Phase::Step);
        self.shared.command(Command::Run(Phase::Step), steps);
        if self.shared.interrupted() || self.shared.elsewhere().is_some() {
            // It may have come since the look above, and taken this caller for one that still waits.
            self.shared.abort();
        }
        Ok(Steps(self))
    }

    /// Runs the tasks that come after the last step.
    pub fn finish(&mut self) -> Result<(), GroupError> {
        self.usable()?;
        self.run(Phase::Finish, 1)
    }

    fn run(&mut self, phase: Phase, count: u64) -> Result<(), GroupError> {
        if self.graphs.iter().all(|graph| graph.tasks(phase).is_empty()) {
            return Ok(());
        }
        self.in_flight = Some(phase);
        self.shared.command(Command::Run(phase), count);
        self.settle()
    }

    /// Waits for what is in flight; errs when nothing may run any more.
    pub(super) fn usable(&mut self) -> Result<(), GroupError> {
        if let Some(cause) = &self.broken {
            return Err(GroupError::Aborted(cause.clone()));
        }
        self.settle()?;
        if self.shared.interrupted() {
            let during = Moment::Step(self.interrupt_handle().steps_done());
            return Err(self.break_with(GroupError::Interrupted { during, report: Box::default() }));
        }
        if let Some(ending) = self.shared.elsewhere() {
            let (ending, during) = (ending.clone(), Moment::Step(self.interrupt_handle().steps_done()));
            return Err(self.break_with(GroupError::Elsewhere { ending, during, report: Box::default() }));
        }
        Ok(())
    }

    /// Has the group's ranks aborted where another process ends early.
    pub(super) fn listen(&self) {
        let shared = Arc::downgrade(&self.shared);
        let heard = move |ending| {
            if let Some(shared) = shared.upgrade() {
                shared.hear(ending);
            }
        };
        self.shared.peers.listen(Box::new(heard));
    }

    /// Keeps why nothing runs any more, and tells the other processes. What was only released because another process ended early
    /// becomes that.
    pub(super) fn break_with(&mut self, error: GroupError) -> GroupError {
        let error = match self.shared.elsewhere() {
            Some(ending) if error.is_release() => {
                let (ending, during) = (ending.clone(), Moment::Binding);
                GroupError::Elsewhere { ending, during, report: Box::default() }
            }
            _ => error,
        };
        if self.broken.is_none() {
            self.shared.peers.tell(Ending::of(&error));
        }
        self.broken = Some(error.to_string());
        error
    }

    /// Waits for what is in flight, and for nothing else.
    fn settle(&mut self) -> Result<(), GroupError> {
        let Some(phase) = self.in_flight.take() else { return Ok(()) };
        let _running = Running::enter();
        self.shared.watched.store(true, Ordering::Release);
        let begun = self.shared.ranks.first().map_or(0, RankState::since);
        // At the ranks it looks only when they have taken a while.
        let mut until = self.period(phase).and_then(|period| self.shared.after(begun, period));
        let cause = loop {
            self.shared.wait(until);
            // Asked first: a rank that fails says so before it arrives.
            let arrived = self.shared.all_arrived();
            if self.shared.interrupted() {
                break Cause::Interrupted;
            }
            if let Some(place) = self.shared.first_failure() {
                break Cause::Failed(place);
            }
            if self.shared.elsewhere().is_some() {
                break Cause::Elsewhere;
            }
            if arrived {
                self.shared.watched.store(false, Ordering::Release);
                return Ok(());
            }
            match self.look(phase) {
                Look::Again(at) => until = at,
                Look::TooLate(limit) => break Cause::TimedOut(limit),
            }
        };
        Err(self.abort(phase, cause))
    }

    /// The limit of a phase's run, for a rank that has done so many steps.
    fn limit(&self, phase: Phase, steps: u64) -> Option<Duration> {
        let Options { init_timeout: init, step_timeout: step, .. } = self.options;
        match phase {
            Phase::Setup => Some(init),
            Phase::Step if steps.saturating_sub(self.first_step) < self.slow_steps => {
                Some(init.max(step.unwrap_or(init)))
            }
            // Its first use of a library may connect devices, too.
            Phase::Finish if self.slow_steps > 0 => step.map(|step| step.max(init)),
            _ => step,
        }
    }

    /// How often to look at the ranks in a phase; `None` if nothing has a limit.
    fn period(&self, phase: Phase) -> Option<Duration> {
        let limits = [self.limit(phase, 0), self.limit(phase, u64::MAX)];
        limits.into_iter().flatten().min().map(look_period)
    }

    /// Looks at how far the ranks have come, and whether what the slowest of them is in takes too long.
    fn look(&mut self, phase: Phase) -> Look {
        let now = self.shared.now();
        let ranks = self.shared.ranks.iter().zip(&mut self.seen).enumerate();
        // A step begins when the last rank has ended the one before it.
        let slowest = ranks
            .filter(|(place, _)| !self.shared.arrived(*place))
            .map(|(_, (rank, seen))| {
                *seen = rank.look(*seen, now);
                *seen
            })
            .min_by_key(|seen| (seen.steps, Reverse(seen.since)))
            .unwrap_or(Seen { steps: 0, since: now });
        let next = self.period(phase).and_then(|period| self.shared.after(now, period));
        match self.limit(phase, slowest.steps) {
            Some(limit) if Duration::from_nanos(now.saturating_sub(slowest.since)) >= limit => {
                Look::TooLate(limit)
            }
            Some(limit) => Look::Again(self.shared.after(slowest.since, limit).into_iter().chain(next).min()),
            None => Look::Again(next),
        }
    }
}
