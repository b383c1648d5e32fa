//! Everything that is wrong with a job, and what can go wrong while it runs.

use std::fmt;
use std::time::Duration;

use crate::codes;
use crate::device::DeviceError;
use crate::diagnostic::{Code, Diagnostic};
use crate::group::{Ending, EndingKind};
use crate::words::count;

/// All that was found wrong with a job, in one report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Diagnostic>);

impl Problems {
    /// The same with what many ranks share said once, and sorted by place.
    pub fn folded(self) -> Problems {
        Problems(crate::verify::fold(self.0))
    }

    /// As [`Problems::folded`], where not all ranks were looked at: reports for which `few` holds say so, and count no others.
    pub fn folded_where(self, few: impl Fn(&Diagnostic) -> bool) -> Problems {
        Problems(crate::verify::fold_where(self.0, few))
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
    /// The step is to be captured, and these ops in it may not be.
    #[error("{0}")]
    Uncaptured(Problems),
    /// A rank could not be bound to its device.
    #[error("rank {rank} on {device}{}: {}", task.as_ref().map(|t| format!(", task `{t}`")).unwrap_or_default(), error.of(device))]
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
    /// A library could not connect the ranks.
    #[error("the library `{library}` could not connect: {error}")]
    Connect {
        /// The library.
        library: &'static str,
        /// Why.
        error: DeviceError,
    },
    /// A library refused an argument when it saw it bound.
    #[error("{0}")]
    Refused(Box<Diagnostic>),
    /// A buffer was read or written that is not there, or with the wrong size or dtype.
    #[error("{0}")]
    Buffer(String),
    /// A buffer could not be written or read.
    #[error("buffer `{buffer}` on rank {rank}: {error}")]
    Transfer {
        /// The rank.
        rank: u32,
        /// The buffer.
        buffer: String,
        /// Why.
        error: DeviceError,
    },
    /// A buffer that the host uploads was never given contents.
    #[error("buffer `{buffer}` on rank {rank} was given no contents before the first step")]
    NoContents {
        /// The rank.
        rank: u32,
        /// The buffer.
        buffer: String,
    },
    /// A rank failed, and the group was aborted.
    #[error("rank {rank} failed in {}{during}: {error}{}", of(task.as_deref()), released.lead("; "))]
    Failed {
        /// The first rank to fail.
        rank: u32,
        /// The task it was in.
        task: Option<String>,
        /// When.
        during: Moment,
        /// Why.
        error: DeviceError,
        /// Where the other ranks stood; they were released, or are leaked.
        released: Box<Report>,
    },
    /// A deadline passed, and the group was aborted.
    #[error("{during} took longer than {limit:?}{}", report.lead(": "))]
    TimedOut {
        /// What took too long.
        during: Moment,
        /// The limit.
        limit: Duration,
        /// Where every rank stood.
        report: Box<Report>,
    },
    /// The group was aborted by request.
    #[error("interrupted in {during}{}", report.leak.map(|leak| format!("; {leak}")).unwrap_or_default())]
    Interrupted {
        /// When.
        during: Moment,
        /// Where every rank stood.
        report: Box<Report>,
    },
    /// The group of another process of the job ended early, and this one was released.
    #[error("{}{}", elsewhere(ending), report.lead("; "))]
    Elsewhere {
        /// How that one ended.
        ending: Ending,
        /// When, as this process sees it.
        during: Moment,
        /// Where this process's ranks stood.
        report: Box<Report>,
    },
    /// An op reaches its peers' memory, and its ranks are of several processes.
    #[error("{0}")]
    OneProcess(Problems),
    /// The group was aborted before, and runs nothing more.
    #[error("the group was aborted: {0}")]
    Aborted(String),
}

impl GroupError {
    /// What was leaked, if a rank did not return.
    ///
    /// A process with such a rank on a GPU should leave by `_exit`, once it has written what it has to: the driver waits in its exit
    /// handlers for a kernel that does not end.
    pub fn leak(&self) -> Option<Leak> {
        match self {
            GroupError::Failed { released: report, .. }
            | GroupError::TimedOut { report, .. }
            | GroupError::Interrupted { report, .. }
            | GroupError::Elsewhere { report, .. } => report.leak,
            _ => None,
        }
    }

    /// The code to report it under.
    pub fn code(&self) -> Code {
        match self {
            GroupError::Devices(_) => codes::DEVICES,
            GroupError::Uncaptured(_) => codes::UNCAPTURED,
            GroupError::Bind { error: DeviceError::Deadline | DeviceError::Late(_), .. }
            | GroupError::Connect { error: DeviceError::Deadline | DeviceError::Late(_), .. } => {
                codes::TIMED_OUT
            }
            GroupError::Bind { .. } => codes::BIND,
            GroupError::Connect { .. } => codes::DEVICES,
            GroupError::Refused(diagnostic) => diagnostic.code,
            GroupError::Buffer(_) => codes::BUFFER,
            GroupError::Transfer { .. } => codes::TRANSFER,
            GroupError::NoContents { .. } => codes::NO_CONTENTS,
            GroupError::Failed { .. } => codes::FAILED,
            GroupError::TimedOut { .. } => codes::TIMED_OUT,
            GroupError::Interrupted { .. } => codes::INTERRUPTED,
            GroupError::Elsewhere { ending, .. } => match ending.kind {
                EndingKind::TimedOut => codes::TIMED_OUT,
                EndingKind::Interrupted => codes::INTERRUPTED,
                EndingKind::Failed | EndingKind::Gone | EndingKind::Released => codes::ELSEWHERE,
            },
            GroupError::OneProcess(_) => codes::PROCESSES,
            GroupError::Aborted(_) => codes::ABORTED,
        }
    }

    /// Whether it says no more than that somebody aborted.
    pub(crate) fn is_release(&self) -> bool {
        use DeviceError::Aborted;
        matches!(
            self,
            GroupError::Bind { error: Aborted, .. }
                | GroupError::Connect { error: Aborted, .. }
                | GroupError::Transfer { error: Aborted, .. }
        )
    }
}

/// What a group was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It made the ranks ready.
    Binding,
    /// It gave a buffer its contents, or took them.
    Transfer,
    /// It ran the tasks before the first step.
    Setup,
    /// It ran this step, counted from 0.
    Step(u64),
    /// It ran steps that were queued on a device, and what happened was in one of these, the first to the last: see
    /// [`PlanGroup::execute_many`](crate::PlanGroup::execute_many).
    Steps(u64, u64),
    /// It ran the tasks after the last step.
    Finish,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Binding => write!(f, "binding"),
            Moment::Transfer => write!(f, "a transfer"),
            Moment::Setup => write!(f, "setup"),
            Moment::Step(step) => write!(f, "step {step}"),
            Moment::Steps(first, last) => write!(f, "one of the steps {first} to {last}"),
            Moment::Finish => write!(f, "finish"),
        }
    }
}

fn elsewhere(ending: &Ending) -> String {
    match ending.kind {
        EndingKind::Gone => ending.text.clone(),
        _ => format!("another process ended: {}", ending.text),
    }
}

fn of(task: Option<&str>) -> String {
    task.map(|task| format!("task `{task}` of ")).unwrap_or_default()
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
    /// The task it was in; `None` when it was between steps, or in none.
    pub running: Option<String>,
    /// Whether it did not run that task, but made it ready, outside of all steps.
    pub binding: bool,
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
    /// Busy with work of its own when another rank failed; it finished it.
    Busy,
    /// Busy with work of its own when the deadline passed, so that it kept the others waiting; it finished it.
    Late,
    /// Failing, too: by itself, or by what befell the rank that is named. GPUs that reach each other's memory are lost together.
    Failed,
    /// Still busy after the second period; its thread is leaked.
    Stuck,
}

/// Where the ranks stood, and what was given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Every rank of this process but one that failed, ascending.
    pub ranks: Vec<Standing>,
    /// What libraries had found wrong themselves when the group was aborted, in their words.
    pub faults: Vec<String>,
    /// What was leaked, if a rank did not return.
    pub leak: Option<Leak>,
    /// Of a deadline that passed in a job of several processes: what the others told of their own ranks, in their words.
    pub elsewhere: Vec<String>,
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

impl Report {
    /// The report after `lead`; nothing if it says nothing.
    fn lead(&self, lead: &str) -> String {
        let text = self.to_string();
        if text.is_empty() { text } else { format!("{lead}{text}") }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        let mut separate = |f: &mut fmt::Formatter<'_>| {
            let first = std::mem::replace(&mut first, false);
            if first { Ok(()) } else { write!(f, "; ") }
        };
        // Who kept the others waiting comes first.
        for found in [Found::Stuck, Found::Failed, Found::Late, Found::Busy, Found::Waiting] {
            for rank in self.ranks.iter().filter(|rank| rank.found == found) {
                separate(f)?;
                write!(f, "{rank}")?;
            }
        }
        for fault in &self.faults {
            separate(f)?;
            f.write_str(fault)?;
        }
        for told in &self.elsewhere {
            separate(f)?;
            write!(f, "in another process: {told}")?;
        }
        if let Some(leak) = &self.leak {
            separate(f)?;
            write!(f, "{leak}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.found {
            Found::Idle => return write!(f, "rank {} was at its end", self.rank),
            Found::Waiting => "waited in",
            Found::Busy => "was busy in",
            Found::Late => "was late in",
            Found::Failed => "failed, too, in",
            Found::Stuck => "has not returned from",
        };
        write!(f, "rank {} {verb} ", self.rank)?;
        match &self.running {
            Some(task) if self.binding => return write!(f, "making `{task}` ready"),
            Some(task) => write!(f, "`{task}`")?,
            None => return write!(f, "its work"),
        }
        let steps = count(self.steps, "step");
        match &self.finished {
            Some(task) => write!(f, " (last finished `{task}`, after {steps})"),
            None => write!(f, " (its first task, after {steps})"),
        }
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Leak { threads, buffers, bytes } = self;
        write!(
            f,
            "{} and {} ({}) are leaked, and the group is unusable",
            count(*threads as u64, "rank thread"),
            count(*buffers as u64, "buffer"),
            count(*bytes, "byte")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_to_bind_names_its_device_once() {
        let device = "host:0".to_string();
        let error =
            DeviceError::OutOfMemory { device: device.clone(), bytes: 8, message: "it is full".into() };
        let bind = GroupError::Bind { rank: 2, device, task: Some("sum".into()), error };
        assert_eq!(bind.to_string(), "rank 2 on host:0, task `sum`: out of memory: 8 bytes: it is full");
    }

    #[test]
    fn one_of_something_is_singular() {
        let standing = Standing {
            rank: 0,
            found: Found::Waiting,
            running: Some("b".into()),
            finished: Some("a".into()),
            binding: false,
            steps: 1,
        };
        assert_eq!(standing.to_string(), "rank 0 waited in `b` (last finished `a`, after 1 step)");
        let first = Standing { finished: None, ..standing.clone() };
        assert_eq!(first.to_string(), "rank 0 waited in `b` (its first task, after 1 step)");
        let binding = Standing { binding: true, found: Found::Stuck, ..standing };
        assert_eq!(binding.to_string(), "rank 0 has not returned from making `b` ready");
        let leak = Leak { threads: 1, buffers: 1, bytes: 1 };
        assert!(leak.to_string().starts_with("1 rank thread and 1 buffer (1 byte) are leaked"), "{leak}");
    }
}
