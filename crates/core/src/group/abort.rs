//! Aborting: release the ranks, say where they stood, and give up what cannot be got back.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::device::DeviceError;
use crate::error::{Found, GroupError, Leak, Moment, Report, Standing};
use crate::graph::{Body, Node, Phase, TaskGraph};
use crate::group::PlanGroup;
use crate::group::options::{from_now, second_period};
use crate::group::peers::{Ending, EndingKind};
use crate::group::shared::Command;
use crate::plan::TaskError;
use crate::wait::Running;

/// How long ranks have to close what they have once all of them are back. Libraries take some seconds to end a connection, and to be
/// still in one when the process ends, or the next group is made, is worse than to wait.
const CLOSING: Duration = Duration::from_secs(10);

/// How long to wait for what the other processes tell of a deadline that passed.
const ASKING: Duration = Duration::from_secs(1);

/// Why a group is aborted.
#[derive(Clone, Copy)]
pub(super) enum Cause {
    /// The rank at this place failed.
    Failed(usize),
    /// This limit passed.
    TimedOut(Duration),
    Interrupted,
    /// Another process ended early.
    Elsewhere,
}

impl PlanGroup {
    /// Aborts what runs, waits a second period for all ranks, and says what happened.
    pub(super) fn abort(&mut self, phase: Phase, cause: Cause) -> GroupError {
        // Before the abort, which moves the ranks.
        let mut ranks = self.standings(phase);
        let faults = self.shared.faults();
        self.shared.abort();
        let limit = match cause {
            Cause::TimedOut(limit) => Some(limit),
            Cause::Failed(_) | Cause::Interrupted | Cause::Elsewhere => self.options.step_timeout,
        };
        self.shared.wait_all(from_now(second_period(limit)));
        for (place, rank) in ranks.iter_mut().enumerate() {
            if !self.shared.arrived(place) {
                rank.found = Found::Stuck;
            } else if let Some(failure) = self.shared.failure_at(place) {
                if let Some(index) = failure.task {
                    // It has gone on since it was looked at.
                    let tasks = self.graphs[place].tasks(phase);
                    let name = |node: &Arc<Node>| node.origin.name.clone();
                    rank.running = tasks.get(index).map(name);
                    rank.finished = index.checked_sub(1).and_then(|before| tasks.get(before)).map(name);
                    rank.steps = self.shared.ranks[place].steps_at(failure.run);
                }
                rank.found = Found::Failed;
            } else if rank.found == Found::Idle {
                rank.running = None;
            } else if rank.found == Found::Late && !matches!(cause, Cause::TimedOut(_)) {
                rank.found = Found::Busy;
            }
        }
        let leak = self.leak();
        let during = |first: u64, last: u64| match phase {
            Phase::Setup => Moment::Setup,
            Phase::Step if first == last => Moment::Step(last),
            Phase::Step => Moment::Steps(first, last),
            Phase::Finish => Moment::Finish,
        };
        let slowest = ranks.iter().map(|rank| rank.steps).min().unwrap_or(0);
        let error = match cause {
            Cause::Failed(place) => {
                let failure = &self.shared.ranks[place].failure;
                let failure = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
                let failure = failure.unwrap_or_else(|| {
                    let error = DeviceError::Failed("it failed".to_string());
                    TaskError::at(None, 0, error)
                });
                let failed = ranks.remove(place);
                let steps_at = |runs| self.shared.ranks[place].steps_at(runs);
                let node = failure.task.and_then(|index| self.graphs[place].tasks(phase).get(index));
                GroupError::Failed {
                    rank: failed.rank,
                    task: node.map(|node| node.origin.name.clone()),
                    during: during(steps_at(failure.first), steps_at(failure.last)),
                    error: failure.error,
                    released: Box::new(Report { ranks, faults, leak, ..Report::default() }),
                }
            }
            Cause::TimedOut(limit) => GroupError::TimedOut {
                during: during(slowest, slowest),
                limit,
                report: Box::new(Report { ranks, faults, leak, ..Report::default() }),
            },
            Cause::Interrupted => {
                let report = Box::new(Report { ranks, faults, leak, ..Report::default() });
                GroupError::Interrupted { during: during(slowest, slowest), report }
            }
            Cause::Elsewhere => {
                let gone = || Ending { kind: EndingKind::Gone, text: String::new() };
                let ending = self.shared.elsewhere().cloned().unwrap_or_else(gone);
                let report = Box::new(Report { ranks, faults, leak, ..Report::default() });
                GroupError::Elsewhere { ending, during: during(slowest, slowest), report }
            }
        };
        let mut error = self.break_with(error);
        if let GroupError::TimedOut { report, .. } = &mut error {
            // Whose fault it is may show only elsewhere.
            let told = self.shared.peers.endings(from_now(ASKING)).into_iter();
            report.elsewhere = told.map(|ending| ending.text).filter(|text| !text.is_empty()).collect();
        }
        error
    }

    /// Where every rank stands now, which it keeps.
    fn standings(&self, phase: Phase) -> Vec<Standing> {
        let standing = |(place, graph): (usize, &TaskGraph)| {
            let state = &self.shared.ranks[place];
            let tasks = graph.tasks(phase);
            let position = state.stop();
            let finished = (position.tasks as usize).min(tasks.len());
            let name = |node: &Arc<Node>| node.origin.name.clone();
            let running = tasks.get(finished);
            let found = match running {
                _ if self.shared.arrived(place) => Found::Idle,
                // Whoever is in a kernel waits for nobody.
                Some(node) if matches!(node.body, Body::Ops { .. }) => Found::Waiting,
                _ => Found::Late,
            };
            Standing {
                rank: graph.rank(),
                steps: state.steps_at(position.runs),
                finished: finished.checked_sub(1).and_then(|i| tasks.get(i)).map(name),
                running: running.map(name),
                binding: false,
                found,
            }
        };
        self.graphs.iter().enumerate().map(standing).collect()
    }

    /// Gives up what threads that did not return may still use.
    pub(super) fn leak(&self) -> Option<Leak> {
        let threads = (0..self.shared.ranks.len()).filter(|&place| !self.shared.arrived(place)).count();
        // A rank in a library may reach every other rank's buffers.
        self.shared.leak.store(threads > 0, Ordering::Release);
        (threads > 0).then(|| Leak {
            threads,
            buffers: self.holdings.iter().map(|holds| holds.0).sum(),
            bytes: self.holdings.iter().map(|holds| holds.1).sum(),
        })
    }

    /// Ends the threads. Whatever they do, it returns: within the second period where a rank does not come back, and otherwise
    /// within [`CLOSING`].
    pub(super) fn dismantle(&mut self) {
        let _running = Running::enter();
        let period = second_period(self.options.step_timeout);
        let started = self.threads.len() == self.shared.ranks.len();
        if self.in_flight.take().is_some() || !self.shared.all_arrived() {
            self.shared.abort();
            // Who is leaked had its second period.
            if started && !self.shared.leak.load(Ordering::Acquire) {
                self.shared.wait_all(from_now(period));
            }
        }
        // Looked at once more: a rank that has come back since can be freed after all.
        let leaked = started && self.leak().is_some();
        self.shared.command(Command::Exit, 0);
        let until = from_now(CLOSING);
        for thread in self.threads.iter_mut().filter_map(Option::take) {
            // Joining waits without a limit, so only a thread that is seen to have ended is joined; another is let go,
            // and ends by itself or never.
            while !thread.is_finished() && Instant::now() < until && !leaked {
                std::thread::sleep(Duration::from_micros(50));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}
