//! Why a run ended early, and the exit status that says so.

use squall_core::{Code, DeviceError, Diagnostic, Ending, EndingKind, GroupError, Problems};
use squall_rendezvous::MeetError;

use crate::codes;
use crate::compare::Comparison;
use crate::files::FileError;

/// A run that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The manifest, a named file, or verification stands against it.
    #[error("{0}")]
    Refused(Problems),
    /// The environment lacks something: a backend, a device, memory.
    #[error("{0}")]
    Environment(String),
    /// It was stopped before, between or after its steps.
    #[error("interrupted")]
    Interrupted,
    /// The plan group failed, or was stopped.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// An output could not be written after the last step.
    #[error(transparent)]
    Output(#[from] FileError),
    /// A checkpoint could not be written, or not be read after all. The others are as they were.
    #[error(transparent)]
    Checkpoint(FileError),
    /// The processes of the job did not meet.
    #[error(transparent)]
    Meeting(MeetError),
    /// Another process of the job ended early while this one was between steps, or at its end.
    #[error("another process ended: {0}")]
    Ended(Ending),
    /// The other processes of the job did not come to the same point in time.
    #[error("{0}")]
    Late(String),
    /// What processes tell each other outside of steps failed.
    #[error("{what}: {error}")]
    Others {
        /// What was told.
        what: String,
        /// How it failed.
        error: String,
    },
    /// One side of a comparison failed.
    #[error("on {side} devices: {error}")]
    Side {
        /// The kind of its devices.
        side: &'static str,
        /// How.
        error: Box<RunError>,
    },
    /// A comparison found tasks that write something else than on the host.
    #[error("{}", .0.first())]
    Differs(Box<Comparison>),
}

impl RunError {
    /// The process's exit status, as the README lists them.
    pub fn exit_status(&self) -> u8 {
        match self {
            RunError::Refused(_) => 2,
            RunError::Environment(_) => 4,
            RunError::Interrupted => 130,
            RunError::Group(error) => of_group(error),
            RunError::Output(_) | RunError::Checkpoint(_) | RunError::Differs(_) => 1,
            RunError::Meeting(error) if error.is_late() => 3,
            RunError::Meeting(error) if error.is_environment() => 4,
            RunError::Meeting(_) => 2,
            RunError::Ended(ending) => of_ending(ending),
            RunError::Late(_) => 3,
            RunError::Others { .. } => 1,
            RunError::Side { error, .. } => error.exit_status(),
        }
    }

    /// The code to report it under; the diagnostics of a refused job have their own.
    pub fn code(&self) -> Option<Code> {
        match self {
            RunError::Refused(_) => None,
            RunError::Environment(_) => Some(codes::DEVICES),
            RunError::Interrupted => Some(squall_core::codes::INTERRUPTED),
            RunError::Group(error) => Some(error.code()),
            RunError::Output(_) => Some(codes::OUTPUT),
            RunError::Checkpoint(_) => Some(codes::CHECKPOINT),
            RunError::Meeting(_) => Some(codes::MEETING),
            RunError::Ended(ending) if ending.kind == EndingKind::TimedOut => {
                Some(squall_core::codes::TIMED_OUT)
            }
            RunError::Ended(ending) if ending.kind == EndingKind::Interrupted => {
                Some(squall_core::codes::INTERRUPTED)
            }
            RunError::Late(_) => Some(squall_core::codes::TIMED_OUT),
            RunError::Ended(_) | RunError::Others { .. } => Some(squall_core::codes::ELSEWHERE),
            RunError::Side { error, .. } => error.code(),
            RunError::Differs(_) => Some(codes::DIFFERS),
        }
    }

    /// Whether a rank did not return, and its thread and its memory were given up: the process then still holds what it hangs
    /// in, and its exit handlers may wait for that.
    pub fn has_leaked(&self) -> bool {
        match self {
            RunError::Group(error) => error.leak().is_some(),
            RunError::Side { error, .. } => error.has_leaked(),
            _ => false,
        }
    }

    /// Whether somebody stopped the run.
    pub fn is_interrupt(&self) -> bool {
        match self {
            RunError::Interrupted | RunError::Group(GroupError::Interrupted { .. }) => true,
            RunError::Ended(ending) => ending.kind == EndingKind::Interrupted,
            RunError::Side { error, .. } => error.is_interrupt(),
            _ => false,
        }
    }

    /// The diagnostics, where the error has a place in the manifest.
    pub fn diagnostics(&self) -> Option<Vec<Diagnostic>> {
        match self {
            RunError::Refused(problems) => Some(problems.0.clone()),
            RunError::Group(GroupError::Uncaptured(problems) | GroupError::OneProcess(problems)) => {
                Some(problems.0.clone())
            }
            RunError::Group(GroupError::Refused(problem)) => Some(vec![(**problem).clone()]),
            RunError::Side { error, .. } => error.diagnostics(),
            _ => None,
        }
    }
}

fn of_ending(ending: &Ending) -> u8 {
    match ending.kind {
        EndingKind::TimedOut => 3,
        EndingKind::Interrupted => 130,
        _ => 1,
    }
}

fn of_group(error: &GroupError) -> u8 {
    match error {
        GroupError::Refused(_) | GroupError::Uncaptured(_) | GroupError::OneProcess(_) => 2,
        GroupError::TimedOut { .. } => 3,
        GroupError::Bind { error: DeviceError::Deadline | DeviceError::Late(_), .. } => 3,
        GroupError::Connect { error: DeviceError::Deadline | DeviceError::Late(_), .. } => 3,
        // A library that cannot connect, a thread that cannot be had.
        GroupError::Devices(_) | GroupError::Connect { .. } => 4,
        GroupError::Bind { error: DeviceError::OutOfMemory { .. } | DeviceError::Unsupported(_), .. } => 4,
        GroupError::Transfer { error: DeviceError::OutOfMemory { .. }, .. } => 4,
        GroupError::Interrupted { .. } => 130,
        GroupError::Elsewhere { ending, .. } => of_ending(ending),
        _ => 1,
    }
}

impl From<Problems> for RunError {
    fn from(problems: Problems) -> RunError {
        RunError::Refused(problems)
    }
}

impl From<Vec<Diagnostic>> for RunError {
    fn from(problems: Vec<Diagnostic>) -> RunError {
        RunError::Refused(Problems(problems))
    }
}

impl From<Diagnostic> for RunError {
    fn from(problem: Diagnostic) -> RunError {
        RunError::Refused(Problems(vec![problem]))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use squall_core::Moment;

    use super::*;

    #[test]
    fn every_kind_of_end_has_its_status() {
        let bind = |error| GroupError::Bind { rank: 0, device: "host:0".into(), task: None, error };
        let connect = |error| GroupError::Connect { library: "nccl", error };
        let memory = DeviceError::OutOfMemory { device: "host:0".into(), bytes: 1, message: String::new() };
        let late = GroupError::TimedOut {
            during: Moment::Step(0),
            limit: Duration::from_secs(1),
            report: Box::default(),
        };
        let failed = GroupError::Failed {
            rank: 1,
            task: None,
            during: Moment::Step(0),
            error: DeviceError::Failed("it broke".into()),
            released: Box::default(),
        };
        let mut stuck = late.clone();
        if let GroupError::TimedOut { report, .. } = &mut stuck {
            report.leak = Some(squall_core::error::Leak { threads: 1, buffers: 2, bytes: 3 });
        }
        let side = |error: GroupError| RunError::Side { side: "cuda", error: Box::new(error.into()) };
        assert!(RunError::from(stuck.clone()).has_leaked() && side(stuck).has_leaked());
        assert!(!RunError::from(late.clone()).has_leaked() && !side(late.clone()).has_leaked());
        for (error, status) in [
            (RunError::Refused(Problems(Vec::new())), 2),
            (RunError::Environment(String::new()), 4),
            (RunError::Interrupted, 130),
            (bind(memory).into(), 4),
            (bind(DeviceError::Unsupported(String::new())).into(), 4),
            (bind(DeviceError::Deadline).into(), 3),
            (bind(DeviceError::Late("a rank did not come".into())).into(), 3),
            (bind(DeviceError::Failed(String::new())).into(), 1),
            (GroupError::Devices(String::new()).into(), 4),
            (connect(DeviceError::Late("joining took too long".into())).into(), 3),
            (connect(DeviceError::Unsupported("no library".into())).into(), 4),
            (late.into(), 3),
            (failed.into(), 1),
            (GroupError::Interrupted { during: Moment::Setup, report: Box::default() }.into(), 130),
            (GroupError::Aborted(String::new()).into(), 1),
            (GroupError::Uncaptured(Problems(Vec::new())).into(), 2),
            (RunError::Side { side: "cuda", error: Box::new(RunError::Environment(String::new())) }, 4),
            (FileError::NoName { file: "out/".into() }.into(), 1),
            (RunError::Checkpoint(FileError::NoName { file: "ckpt/".into() }), 1),
        ] {
            assert_eq!(error.exit_status(), status, "{error:?}");
        }
    }
}
