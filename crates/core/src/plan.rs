//! One rank's execution plan: its graph bound to a device, its memory and its stream, ready to run a step.
//!
//! The only unsafe calls of core stand here and below: it is the plan that keeps the promise that memory outlives the
//! work that was bound to it.

mod blame;
mod capture;
mod names;
mod observe;
mod pace;
mod prepare;
pub(crate) mod services;
mod transfer;

use std::any::Any;
use std::sync::Arc;

use crate::device::{Device, DeviceError, Memory, Progress, Stream, Work};
use crate::graph::{Phase, TaskGraph};

use self::names::Names;
use self::observe::Observed;
use self::pace::Pace;
use self::transfer::{Input, Output};

pub use observe::{Observer, Written};
pub use transfer::Feed;

pub(crate) use blame::TaskError;
pub(crate) use prepare::{BindError, PrepareOn};
pub(crate) use transfer::{Copied, copied};

/// One library's state on this rank, by the library's name.
pub(crate) type SessionState = (&'static str, Box<dyn Any + Send>);

/// The tasks of a phase, made ready.
type Works = Vec<Box<dyn Work>>;

/// A rank, bound. Lives on the rank's thread.
pub(crate) struct ExecutionPlan {
    // Fields are dropped in order: work before what it uses, captured work first of all.
    /// Of each turn of the step.
    captured: Vec<Option<Box<dyn Work>>>,
    /// Of each phase and turn; the setup has one.
    phases: [Vec<Works>; 3],
    sessions: Vec<SessionState>,
    observed: Option<Observed>,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    /// For transfers between steps; made at the first.
    staging: Option<Box<dyn Memory>>,
    memory: Vec<Option<Box<dyn Memory>>>,
    stream: Box<dyn Stream>,
    progress: Arc<dyn Progress>,
    device: Arc<dyn Device>,
    graph: TaskGraph,
    names: Names,
    capture: bool,
    /// The step that it begins with: 0 but where a job is resumed.
    first: u64,
    /// The task that is being enqueued, by its index in its phase.
    at: Option<usize>,
    /// Runs whose end was enqueued, of all phases, modulo 2³².
    runs: u32,
    /// Runs of these that are known to have ended well: nothing is found of them any more.
    sound: u32,
    pace: Pace,
}

impl ExecutionPlan {
    /// Allocates what the graph's tasks name, for a job whose steps take so many turns. The plan cannot run before it is
    /// [`ExecutionPlan::prepare`]d.
    pub(crate) fn allocate(
        graph: TaskGraph,
        device: Arc<dyn Device>,
        turns: usize,
        capture: bool,
    ) -> Result<ExecutionPlan, DeviceError> {
        let stream = device.stream()?;
        let (memory, inputs, outputs) = transfer::allocate(&graph, &*device)?;
        let enqueued = graph.tasks(Phase::Step).len() + inputs.len() + outputs.len();
        Ok(ExecutionPlan {
            captured: (0..turns).map(|_| None).collect(),
            phases: Default::default(),
            sessions: Vec::new(),
            observed: None,
            inputs,
            outputs,
            staging: None,
            memory,
            progress: stream.progress(),
            stream,
            device,
            names: Names::of(&graph, turns),
            graph,
            capture,
            first: 0,
            at: None,
            runs: 0,
            sound: 0,
            pace: Pace::new(enqueued),
        })
    }

    /// Enqueues a phase once; `step` counts steps from 0. It may be done when this returns, or later. Allocates nothing
    /// but where a turn is captured.
    pub(crate) fn run(&mut self, phase: Phase, step: u64) -> Result<(), TaskError> {
        self.at = None;
        if phase == Phase::Step {
            if self.is_fed() || self.records(step) {
                self.end(phase)?;
            }
            let run = self.runs;
            self.fill(step).map_err(|error| TaskError::at(None, run, error))?;
        }
        self.enqueue(phase, step).map_err(|failure| self.cause(phase, failure))
    }

    fn enqueue(&mut self, phase: Phase, step: u64) -> Result<(), TaskError> {
        let run = self.runs;
        let transfer = |error| TaskError::at(None, run, error);
        if phase == Phase::Step {
            self.upload().map_err(transfer)?;
        }
        self.tasks(phase, step)?;
        self.at = None;
        // Tasks of the finish may change what the last step left.
        if phase != Phase::Setup {
            self.download().map_err(transfer)?;
        }
        self.names.ran(phase);
        self.runs = run.wrapping_add(1);
        self.stream.complete(self.runs).map_err(transfer)
    }

    /// The steps to come begin with this one. Called before any has run, and once buffers have their first contents.
    pub(crate) fn resume_at(&mut self, step: u64) {
        self.first = step;
        self.names.resume_at(step);
    }

    /// Whether this step is one to capture. The first of each turn runs eagerly: libraries connect in it, which cannot be captured.
    fn records(&self, step: u64) -> bool {
        self.capture
            && self.observed.is_none()
            && step.saturating_sub(self.first) >= self.captured.len() as u64
            && self.captured.get(self.names.turn()).is_some_and(Option::is_none)
    }

    /// The works of a phase, as its tasks stand for the next run of it.
    fn works(&self, phase: Phase) -> &[Box<dyn Work>] {
        self.phases[phase as usize].get(self.names.turn_of(phase)).map_or(&[], Vec::as_slice)
    }

    /// The task that is being enqueued, for whoever catches a panic.
    pub(crate) fn at(&self) -> Option<usize> {
        self.at
    }

    /// Runs that were enqueued to their end, of all phases, modulo 2³².
    pub(crate) fn runs(&self) -> u32 {
        self.runs
    }

    /// Whether the stream has passed the end of all of them.
    pub(crate) fn is_done(&self) -> bool {
        self.progress.has_ended(self.runs)
    }

    fn tasks(&mut self, phase: Phase, step: u64) -> Result<(), TaskError> {
        let (records, turn) = (self.records(step), self.names.turn_of(phase));
        let (run, stream) = (self.runs, &mut *self.stream);
        let Some(works) = self.phases[phase as usize].get_mut(turn) else { return Ok(()) };
        if let Some(observed) = &mut self.observed {
            let memory = &self.memory;
            return enqueue(works, stream, run, &mut self.at, |task, stream| {
                observed.show((phase, turn), step, task, stream, memory)
            });
        }
        let captured = self.captured.get_mut(turn).filter(|_| phase == Phase::Step);
        if let Some(captured) = captured {
            if records {
                *captured = Some(capture::record(works, stream, run, &mut self.at)?);
                self.at = None;
            }
            if let Some(captured) = captured {
                return captured.enqueue(stream).map_err(|error| TaskError::at(None, run, error));
            }
        }
        enqueue(works, stream, run, &mut self.at, |_, _| Ok(()))
    }

    /// Shows an observer what every task writes from here on.
    pub(crate) fn observe(&mut self, observer: Arc<dyn Observer>) -> Result<(), (String, DeviceError)> {
        let made = Observed::new(observer, &self.graph, &self.names, &*self.device);
        self.observed = Some(made.map_err(|error| (self.device.id().to_string(), error))?);
        Ok(())
    }

    /// Waits for all that was enqueued of a phase, and asks its works how it went.
    pub(crate) fn end(&mut self, phase: Phase) -> Result<(), TaskError> {
        let last = self.runs.wrapping_sub(1);
        if let Err(error) = self.stream.wait(None) {
            return Err(self.blame(phase, last, error));
        }
        if let Some(found) = self.told(phase, last) {
            return Err(found);
        }
        self.sound = self.runs;
        self.pace.idle();
        Ok(())
    }

    /// Waits until nothing is queued, whatever came of it.
    pub(crate) fn drain(&mut self) {
        let _ = self.stream.wait(None);
    }

    pub(crate) fn progress(&self) -> Arc<dyn Progress> {
        self.progress.clone()
    }

    /// How many buffers it holds, and their size in bytes.
    pub(crate) fn holds(&self) -> (usize, u64) {
        let sizes = self.memory.iter().flatten().map(|m| m.bytes());
        (sizes.clone().count(), sizes.sum())
    }
}

fn enqueue(
    works: &mut [Box<dyn Work>],
    stream: &mut dyn Stream,
    run: u32,
    now: &mut Option<usize>,
    mut after: impl FnMut(usize, &mut dyn Stream) -> Result<(), DeviceError>,
) -> Result<(), TaskError> {
    for (index, work) in works.iter_mut().enumerate() {
        *now = Some(index);
        let at = |error| TaskError::at(Some(index), run, error);
        work.enqueue(stream).map_err(at)?;
        after(index, stream).map_err(|error| at(in_its_words(&mut **work, error)))?;
        mark(stream, index).map_err(at)?;
    }
    Ok(())
}

/// What a wait for work told, or what the work itself says of it.
fn in_its_words(work: &mut dyn Work, error: DeviceError) -> DeviceError {
    match error {
        DeviceError::Aborted => error,
        error => work.failure().map_or(error, DeviceError::Failed),
    }
}

/// Tells the stream's progress that a task is finished. Every task is marked, so that a report names the very task that a
/// rank is in; whoever weighs that against the cost of a mark decides here.
fn mark(stream: &mut dyn Stream, index: usize) -> Result<(), DeviceError> {
    stream.mark(u32::try_from(index + 1).unwrap_or(u32::MAX))
}
