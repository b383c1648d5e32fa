//! Why a run ended early, and the exit status that says so.

use squall_core::{DeviceError, Diagnostic, GroupError, Problems};

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
    /// The plan group failed, or was stopped.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// An output could not be written after the last step.
    #[error(transparent)]
    Output(#[from] FileError),
}

impl RunError {
    /// The process's exit status, as the README lists them.
    pub fn exit_status(&self) -> u8 {
        match self {
            RunError::Refused(_) | RunError::Group(GroupError::Refused(_)) => 2,
            RunError::Environment(_) => 4,
            RunError::Group(GroupError::Bind {
                error: DeviceError::OutOfMemory { .. } | DeviceError::Unsupported(_),
                ..
            }) => 4,
            RunError::Group(GroupError::TimedOut { .. }) => 3,
            RunError::Group(GroupError::Interrupted { .. }) => 130,
            RunError::Group(_) | RunError::Output(_) => 1,
        }
    }

    /// The diagnostics, where the error has a place in the manifest.
    pub fn diagnostics(&self) -> Option<Vec<Diagnostic>> {
        match self {
            RunError::Refused(problems) => Some(problems.0.clone()),
            RunError::Group(GroupError::Refused(problem)) => Some(vec![(**problem).clone()]),
            _ => None,
        }
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
