//! Whose failure it is: a stream tells of one at the next wait or the next enqueuing, long after the task it was in.

use std::time::{Duration, Instant};

use crate::device::DeviceError;
use crate::graph::Phase;
use crate::plan::ExecutionPlan;

/// A failure, and the task it happened in. Runs are counted from 0 over all phases of the plan, modulo 2³².
pub(crate) struct TaskError {
    /// The task's index in its phase; `None` for transfers, and where it cannot be told.
    pub(crate) task: Option<usize>,
    /// The first run that it may have been in.
    pub(crate) first: u32,
    /// The last; the same where it is known.
    pub(crate) last: u32,
    pub(crate) error: DeviceError,
}

impl TaskError {
    /// A failure in a run that is known.
    pub(crate) fn at(task: Option<usize>, run: u32, error: DeviceError) -> TaskError {
        TaskError { task, first: run, last: run, error }
    }
}

/// How long a stream is asked whether it has failed, where an enqueuing did. One that has says so at once; what it is in may hang,
/// and the other ranks are to hear of this failure.
const ASKING: Duration = Duration::from_millis(100);

impl ExecutionPlan {
    /// What is behind a failure of enqueuing in a run. It may be that of work enqueued before, which the next call tells, whichever that
    /// is, and a library in words of its own: what the stream and the works say comes first.
    pub(super) fn cause(&mut self, phase: Phase, failure: TaskError) -> TaskError {
        // Observed tasks were each waited for: the failure is its own.
        if self.observed.is_some()
            || matches!(failure.error, DeviceError::Aborted | DeviceError::Unsupported(_))
        {
            return failure;
        }
        match self.stream.wait(Some(Instant::now() + ASKING)) {
            Ok(()) | Err(DeviceError::Deadline) => self.told(phase, failure.last).unwrap_or(failure),
            Err(error) => self.blame(phase, failure.last, error),
        }
    }

    /// Finds the task of a failure that a wait told, when something of run `last` was enqueued and nothing after it: the one whose work
    /// says that it went wrong, or else the one that the stream had come to. Of a lost device nobody knows, since its progress may be what
    /// it was long before.
    pub(super) fn blame(&mut self, phase: Phase, last: u32, error: DeviceError) -> TaskError {
        if error == DeviceError::Aborted {
            return TaskError::at(None, last, error);
        }
        if let Some(found) = self.told(phase, last) {
            return found;
        }
        let at = self.progress.read();
        if at.runs == last.wrapping_add(1) {
            // It has passed the work that went wrong.
            return TaskError { task: None, first: self.sound, last, error };
        }
        if matches!(error, DeviceError::Lost { .. }) {
            return TaskError { task: None, first: at.runs, last, error };
        }
        let task = Some(at.tasks as usize).filter(|&index| index < self.works(phase).len());
        TaskError::at(task, at.runs, error)
    }

    /// What the first task says whose work knows that it went wrong, in a run that was not asked about before.
    pub(super) fn told(&mut self, phase: Phase, last: u32) -> Option<TaskError> {
        let mut works = self.phases[phase as usize].iter_mut().flat_map(|turn| turn.iter_mut().enumerate());
        let (index, text) = works.find_map(|(index, work)| Some((index, work.failure()?)))?;
        Some(TaskError { task: Some(index), first: self.sound, last, error: DeviceError::Failed(text) })
    }
}
