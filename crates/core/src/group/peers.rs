//! The other processes of a job, as a plan group sees them.

use std::fmt;
use std::time::Instant;

use crate::error::GroupError;
use crate::library_op::Exchange;

/// The way to the other processes of a job: small values while plans are bound, and word of how a group ended early. Made by
/// whoever brings the processes together, for [`PlanGroup::join`](crate::PlanGroup::join); called from any thread.
pub trait Peers: Exchange {
    /// Lets everyone of this process who waits in [`Exchange::all_gather`] return with
    /// [`DeviceError::Aborted`](crate::DeviceError::Aborted), now and from now on. Never blocks.
    fn abort(&self);
    /// Tells the other processes how the group of this one ended early, by itself or released. Called once, and not by a group
    /// that comes to its end. Never blocks for long.
    fn tell(&self, ending: Ending);
    /// Has `heard` called with the first ending that another process did not come to by being released, once, from a thread of its own; at
    /// once where that was heard before. A process that is gone without a word has ended early, too.
    fn listen(&self, heard: Box<dyn Fn(Ending) + Send + Sync>);
    /// How the groups of the other processes ended early, as far as they have told, in the order of their ranks: waits until
    /// all have, or until then. For the report of one that cannot tell whose fault its own end is.
    fn endings(&self, until: Instant) -> Vec<Ending>;
}

/// How the group of one process ended early, for the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// In what way.
    pub kind: EndingKind,
    /// What its caller was told, which names ranks, tasks and steps; where it was released, where its ranks stood.
    pub text: String,
}

/// In what way a group ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndingKind {
    /// A rank failed, or something could not be made ready.
    Failed,
    /// A deadline passed.
    TimedOut,
    /// Somebody interrupted it.
    Interrupted,
    /// Its process is gone, and has not said why.
    Gone,
    /// Another process ended early, and it was released.
    Released,
}

impl Ending {
    /// What this error tells the other processes.
    pub(super) fn of(error: &GroupError) -> Ending {
        let kind = match error {
            GroupError::Elsewhere { .. } => EndingKind::Released,
            GroupError::Interrupted { .. } => EndingKind::Interrupted,
            error if error.code() == crate::codes::TIMED_OUT => EndingKind::TimedOut,
            _ => EndingKind::Failed,
        };
        let text = match error {
            GroupError::Elsewhere { report, .. } => report.to_string(),
            error => error.to_string(),
        };
        Ending { kind, text }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
