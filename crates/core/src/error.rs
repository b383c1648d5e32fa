//! Everything that is wrong with a job, and what can go wrong while it runs.

use std::fmt;
use std::time::Duration;

use crate::device::DeviceError;
use crate::diagnostic::Diagnostic;

/// All that was found wrong with a job, in one report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Diagnostic>);

impl Problems {
    /// The same with what many ranks share said once, and sorted by place.
    pub fn folded(self) -> Problems {
        Problems(crate::verify::fold(self.0))
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// What can go wrong with a plan group. Every message names the rank, and the task or buffer, concerned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The devices given do not fit the graphs.
    #[error("{0}")]
    Devices(String),
    /// A rank could not be bound to its device.
    #[error("rank {rank} on {device}{}: {error}", task.as_ref().map(|t| format!(", task `{t}`")).unwrap_or_default())]
    Bind {
        /// The rank.
        rank: u32,
        /// Its device.
        device: String,
        /// The task that could not be made ready, if it was one.
        task: Option<String>,
        /// Why.
        error: DeviceError,
    },
    /// A library refused an argument when it saw it bound.
    #[error("{0}")]
    Refused(Box<Diagnostic>),
    /// A buffer was read or written that is not there, or with the wrong size or dtype.
    #[error("{0}")]
    Buffer(String),
    /// A buffer that the host uploads was never given contents.
    #[error("buffer `{buffer}` on rank {rank} was given no contents before the first step")]
    NoContents {
        /// The rank.
        rank: u32,
        /// The buffer.
        buffer: String,
    },
    /// A rank failed, and the group was aborted.
    #[error("rank {rank} failed in {}: {error}{}", place(task.as_deref(), *step), also(released))]
    Failed {
        /// The first rank to fail.
        rank: u32,
        /// The task it was in.
        task: Option<String>,
        /// The step, counted from 0.
        step: u64,
        /// Why.
        error: DeviceError,
        /// Where the other ranks stood; they were released, or are leaked.
        released: Box<Report>,
    },
    /// A deadline passed, and the group was aborted.
    #[error("{what} took longer than {limit:?}: {report}")]
    TimedOut {
        /// What took too long: `step 3`, `setup`, `finish`, `binding`.
        what: String,
        /// The limit.
        limit: Duration,
        /// Where every rank stood.
        report: Box<Report>,
    },
    /// The group was aborted by request.
    #[error("interrupted in step {step}")]
    Interrupted {
        /// The step, counted from 0.
        step: u64,
    },
    /// The group was aborted before, and runs nothing more.
    #[error("the group was aborted: {0}")]
    Aborted(String),
}

fn place(task: Option<&str>, step: u64) -> String {
    match task {
        Some(task) => format!("task `{task}` of step {step}"),
        None => format!("step {step}"),
    }
}

fn also(report: &Report) -> String {
    let text = report.to_string();
    if text.is_empty() { text } else { format!("; {text}") }
}

/// Where a rank stood when the group was aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The rank.
    pub rank: u32,
    /// Steps it had completed.
    pub steps: u64,
    /// The last task it had finished in its step.
    pub finished: Option<String>,
    /// The task it was in; `None` when it was between steps.
    pub running: Option<String>,
    /// How the abort found it.
    pub found: Found,
}

/// How an abort found a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// At its end: nothing to release.
    Idle,
    /// Waiting for others; released by the abort.
    Waiting,
    /// Busy with work of its own, which it finished after the abort: it kept the others waiting.
    Late,
    /// Still busy after the second period; its thread is leaked.
    Stuck,
}

/// Where the ranks stood, and what was given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Every rank of this process but one that failed, ascending.
    pub ranks: Vec<Standing>,
    /// What was leaked, if a rank did not return.
    pub leak: Option<Leak>,
}

/// What is left behind on purpose, since a thread that did not return may still use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Threads of ranks that did not return.
    pub threads: usize,
    /// Buffers that they can reach.
    pub buffers: usize,
    /// The size of these buffers.
    pub bytes: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Who kept the others waiting comes first.
        let say =
            [(Found::Stuck, "is still running"), (Found::Late, "was late in"), (Found::Waiting, "waited in")];
        let mut first = true;
        for (found, verb) in say {
            for rank in self.ranks.iter().filter(|r| r.found == found) {
                write!(f, "{}rank {} {verb} ", if first { "" } else { "; " }, rank.rank)?;
                first = false;
                match &rank.running {
                    Some(task) => write!(f, "`{task}`")?,
                    None => write!(f, "its step")?,
                }
                match &rank.finished {
                    Some(task) => write!(f, " (last finished `{task}`, step {})", rank.steps)?,
                    None => write!(f, " (step {})", rank.steps)?,
                }
            }
        }
        if let Some(leak) = self.leak {
            write!(
                f,
                "; {} rank thread{} and {} buffers ({} bytes) are leaked, and the group is unusable",
                leak.threads,
                if leak.threads == 1 { "" } else { "s" },
                leak.buffers,
                leak.bytes
            )?;
        }
        Ok(())
    }
}
