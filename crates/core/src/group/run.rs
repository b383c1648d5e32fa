//! Running phases: hand the ranks a command, and watch them carry it out.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::{GroupError, Moment};
use crate::graph::Phase;
use crate::group::PlanGroup;
use crate::group::abort::Cause;
use crate::group::shared::Command;
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

impl PlanGroup {
    /// Runs one step, after the setup tasks if these have not run. Returns when every rank has ended it.
    pub fn execute(&mut self) -> Result<(), GroupError> {
        self.execute_many(1)
    }

    /// Runs so many steps without stopping in between.
    pub fn execute_many(&mut self, steps: u64) -> Result<(), GroupError> {
        self.start(steps)?.wait()
    }

    /// Starts so many steps and returns; the setup tasks, if they have not run, are waited for.
    pub fn start(&mut self, steps: u64) -> Result<Steps<'_>, GroupError> {
        self.usable()?;
        for (graph, awaited) in self.verified.graphs().iter().zip(&self.awaited) {
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
        Ok(Steps(self))
    }

    /// Runs the tasks that come after the last step.
    pub fn finish(&mut self) -> Result<(), GroupError> {
        self.usable()?;
        self.run(Phase::Finish, 1)
    }

    fn run(&mut self, phase: Phase, count: u64) -> Result<(), GroupError> {
        if self.verified.graphs().iter().all(|graph| graph.tasks(phase).is_empty()) {
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
        Ok(())
    }

    /// Keeps why nothing runs any more.
    pub(super) fn break_with(&mut self, error: GroupError) -> GroupError {
        self.broken = Some(error.to_string());
        error
    }

    /// Waits for what is in flight, and for nothing else.
    fn settle(&mut self) -> Result<(), GroupError> {
        let Some(phase) = self.in_flight.take() else { return Ok(()) };
        let _running = Running::enter();
        let cause = loop {
            self.shared.wait(self.deadline(phase).map(|(deadline, _)| deadline));
            // Asked first: a rank that fails says so before it arrives.
            let arrived = self.shared.all_arrived();
            if self.shared.interrupted() {
                break Cause::Interrupted;
            }
            if let Some(place) = self.shared.first_failure() {
                break Cause::Failed(place);
            }
            if arrived {
                return Ok(());
            }
            // Of the step that the slowest rank is in now: it may have come further meanwhile.
            if let Some((deadline, limit)) = self.deadline(phase)
                && deadline <= Instant::now()
            {
                break Cause::TimedOut(limit);
            }
        };
        Err(self.abort(phase, cause))
    }

    /// When what the slowest rank is in must have ended, and the limit it has.
    fn deadline(&self, phase: Phase) -> Option<(Instant, Duration)> {
        let first = self.shared.ranks.iter().any(|r| r.steps.load(Ordering::Relaxed) == 0);
        let limit = match phase {
            Phase::Setup => self.options.init_timeout,
            Phase::Step if first && self.slow_start => self.options.init_timeout,
            _ => self.options.step_timeout?,
        };
        // A step begins when the last rank has ended the one before it.
        let (ranks, shared) = (self.shared.ranks.iter().enumerate(), &self.shared);
        let since = ranks
            .filter(|(place, _)| !shared.arrived(*place))
            .map(|(_, rank)| (rank.steps.load(Ordering::Acquire), rank.since.load(Ordering::Acquire)))
            .min_by_key(|&(steps, since)| (steps, Reverse(since)))
            .map_or(0, |(_, since)| since);
        let deadline = (shared.made + Duration::from_nanos(since)).checked_add(limit)?;
        Some((deadline, limit))
    }
}
