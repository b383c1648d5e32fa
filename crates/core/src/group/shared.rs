//! What the caller and the ranks' threads share: the hand-off of commands, failures, and aborting.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::graph::Phase;
use crate::group::peers::{Ending, Peers};
use crate::group::rank::RankState;
use crate::library_op::Abort;
use crate::plan::{ExecutionPlan, TaskError};
use crate::wait::Gate;

/// What a rank's thread is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Run the closure left for it, if there is one.
    Call,
    /// Run a phase so many times.
    Run(Phase),
    /// End.
    Exit,
}

/// Work for a rank's thread outside of steps.
pub(super) type Call = Box<dyn FnOnce(&mut Option<ExecutionPlan>) + Send>;

/// No rank's place.
const NOBODY: u32 = u32::MAX;

pub(super) struct Shared {
    /// Counts commands.
    tickets: AtomicU64,
    /// The last command, and how often to run what it says.
    command: AtomicU32,
    pub(super) count: AtomicU64,
    /// Where the caller waits for ranks.
    done: Gate,
    remaining: AtomicU32,
    interrupted: AtomicBool,
    /// Whether the caller waits for what runs, and aborts it when it is interrupted.
    pub(super) watched: AtomicBool,
    /// Whether threads must leave their memory behind.
    pub(super) leak: AtomicBool,
    /// The group's own abort handle, for work that has no library's.
    pub(super) aborted: Arc<dyn Abort>,
    /// What stops the ranks' work in flight.
    pub(super) aborts: OnceLock<Vec<Arc<dyn Abort>>>,
    pub(super) peers: Arc<dyn Peers>,
    /// How another process ended early, where one did.
    elsewhere: OnceLock<Ending>,
    /// The place of the first rank to fail, or [`NOBODY`].
    first_failure: AtomicU32,
    made: Instant,
    pub(super) ranks: Vec<RankState>,
    pub(super) times: StepTimes,
}

impl Shared {
    pub(super) fn new(ranks: usize, peers: Arc<dyn Peers>) -> Shared {
        Shared {
            tickets: AtomicU64::new(0),
            command: AtomicU32::new(0),
            count: AtomicU64::new(0),
            done: Gate::new(),
            remaining: AtomicU32::new(0),
            interrupted: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            leak: AtomicBool::new(false),
            aborted: Arc::new(AtomicBool::new(false)),
            aborts: OnceLock::new(),
            peers,
            elsewhere: OnceLock::new(),
            first_failure: AtomicU32::new(NOBODY),
            made: Instant::now(),
            ranks: (0..ranks).map(|_| RankState::default()).collect(),
            times: StepTimes::new(),
        }
    }

    /// Nanoseconds since the group was made.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The moment that comes so long after another, if the clock can count to it.
    pub(super) fn after(&self, nanoseconds: u64, period: Duration) -> Option<Instant> {
        self.made.checked_add(Duration::from_nanos(nanoseconds))?.checked_add(period)
    }

    /// Gives all ranks a command. The caller has seen the last one done.
    pub(super) fn command(&self, command: Command, count: u64) {
        self.command_some(&self.ranks, command, count);
    }

    /// Lets one rank run its closure; the others sleep on.
    pub(super) fn call_one(&self, place: usize) {
        self.command_some(&self.ranks[place..=place], Command::Call, 0);
    }

    fn command_some(&self, ranks: &[RankState], command: Command, count: u64) {
        let word = match command {
            Command::Call => 3,
            Command::Run(phase) => phase as u32,
            Command::Exit => 4,
        };
        let now = self.now();
        self.command.store(word, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
        self.remaining.store(ranks.len() as u32, Ordering::Relaxed);
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed) + 1;
        for rank in ranks {
            rank.begin(now);
            // Written last: it publishes the command.
            rank.ticket.store(ticket, Ordering::Release);
        }
        ranks.iter().for_each(|rank| rank.go.notify());
    }

    /// Waits for a command after the one seen last. Called by a rank's thread.
    pub(super) fn next(&self, place: usize, seen: &mut u64) -> Command {
        let rank = &self.ranks[place];
        rank.go.wait(None, || rank.ticket.load(Ordering::Acquire) != *seen);
        *seen = rank.ticket.load(Ordering::Acquire);
        match self.command.load(Ordering::Relaxed) {
            word if word < 3 => Command::Run(Phase::ALL[word as usize]),
            3 => Command::Call,
            _ => Command::Exit,
        }
    }

    /// Says that a rank has carried out its command. Called by its thread.
    pub(super) fn arrive(&self, place: usize, seen: u64) {
        self.ranks[place].done.store(seen, Ordering::Release);
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify();
        }
    }

    /// Whether a rank has carried out the last command.
    pub(super) fn arrived(&self, place: usize) -> bool {
        let rank = &self.ranks[place];
        rank.done.load(Ordering::Acquire) == rank.ticket.load(Ordering::Relaxed)
    }

    /// Whether all have.
    pub(super) fn all_arrived(&self) -> bool {
        self.remaining.load(Ordering::Acquire) == 0
    }

    /// Waits until all ranks have carried out their command, one failed, someone interrupts, or the deadline passes.
    pub(super) fn wait(&self, until: Option<Instant>) {
        self.done.wait(until, || {
            self.all_arrived()
                || self.first_failure().is_some()
                || self.interrupted()
                || self.elsewhere().is_some()
        });
    }

    /// Waits until all ranks have carried out their command, or the deadline passes.
    pub(super) fn wait_all(&self, until: Instant) -> bool {
        self.done.wait(Some(until), || self.all_arrived())
    }

    /// Records a rank's failure. Called by its thread, before it arrives.
    pub(super) fn fail(&self, place: usize, failure: TaskError) {
        *self.ranks[place].failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        // Only the first counts: later ones may be consequences.
        let _ =
            self.first_failure.compare_exchange(NOBODY, place as u32, Ordering::AcqRel, Ordering::Acquire);
        self.done.notify();
    }

    /// Where a rank has failed, if it has.
    pub(super) fn failure_at(&self, place: usize) -> Option<FailedAt> {
        let failure = self.ranks[place].failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().map(|failure| FailedAt { task: failure.task, run: failure.last })
    }

    /// The place of the first rank to fail.
    pub(super) fn first_failure(&self) -> Option<usize> {
        let place = self.first_failure.load(Ordering::Acquire) as usize;
        (place < self.ranks.len()).then_some(place)
    }

    pub(super) fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// Stops all ranks' work in flight. Never blocks; any thread but a capturing one may call it. Whoever wants to know where the
    /// ranks were has stopped them before.
    pub(super) fn abort(&self) {
        self.ranks.iter().for_each(RankState::stop_unasked);
        self.aborted.abort();
        self.peers.abort();
        for abort in self.aborts.get().into_iter().flatten() {
            abort.abort();
        }
        self.ranks.iter().for_each(|rank| rank.handles.abort());
    }

    /// What libraries have found wrong themselves, each thing once, since one may speak for several ranks.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = Vec::new();
        let of_libraries = self.aborts.get().into_iter().flatten().flat_map(|abort| abort.faults());
        let of_ops = self.ranks.iter().flat_map(|rank| rank.handles.faults());
        for fault in of_libraries.chain(of_ops) {
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        faults
    }

    /// As [`Shared::abort`], on request. A caller that waits does it, since it also asks the devices where they are, which may
    /// take a moment.
    pub(super) fn interrupt(&self) {
        // In one order with `watched` and the fence of `command`: either the caller sees this, or it is seen not to watch.
        self.interrupted.store(true, Ordering::SeqCst);
        self.abort_unless_watched();
    }

    /// As [`Shared::interrupt`], since another process ended early.
    pub(super) fn hear(&self, ending: Ending) {
        let _ = self.elsewhere.set(ending);
        fence(Ordering::SeqCst); // as above
        self.abort_unless_watched();
    }

    /// How another process ended early, where one did.
    pub(super) fn elsewhere(&self) -> Option<&Ending> {
        self.elsewhere.get()
    }

    fn abort_unless_watched(&self) {
        if !self.watched.load(Ordering::SeqCst) {
            self.abort();
        }
        self.done.notify();
    }
}

/// Where a rank has failed: its task, if that is known, and the last run that it may have been in.
pub(super) struct FailedAt {
    pub(super) task: Option<usize>,
    pub(super) run: u32,
}

/// How long the last steps took: written by one rank's thread, read by the caller.
pub(super) struct StepTimes {
    ring: Box<[AtomicU64]>,
    count: AtomicU64,
}

impl StepTimes {
    const KEPT: usize = 1 << 14;

    fn new() -> StepTimes {
        StepTimes {
            ring: (0..StepTimes::KEPT).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU64::new(0),
        }
    }

    /// Records steps that took so many nanoseconds together: the mean for each.
    pub(super) fn record(&self, steps: u64, nanoseconds: u64) {
        let each = match steps {
            0 => return,
            1 => nanoseconds, // a host's, in every step: a division would be felt
            _ => nanoseconds / steps,
        };
        let count = self.count.load(Ordering::Relaxed);
        let kept = steps.min(StepTimes::KEPT as u64);
        for place in count..count + kept {
            self.ring[place as usize % StepTimes::KEPT].store(each, Ordering::Relaxed);
        }
        self.count.store(count + kept, Ordering::Release);
    }

    pub(super) fn last(&self) -> Vec<u64> {
        let kept = (self.count.load(Ordering::Acquire) as usize).min(StepTimes::KEPT);
        self.ring[..kept].iter().map(|time| time.load(Ordering::Relaxed)).collect()
    }
}
