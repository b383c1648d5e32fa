//! Why the processes of a job did not meet.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use squall_core::count;

/// Why the processes of a job did not meet. What concerns all is told to all in the same words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum MeetError {
    /// Rank 0 cannot listen.
    #[error("rank 0 cannot listen at {address}: {reason}")]
    Listen {
        /// Where, with all ports that were tried.
        address: String,
        /// The system's words, and what to do.
        reason: String,
    },
    /// The name of the place says nothing to the system.
    #[error("the address of rank 0, `{host}`, is unknown here: {reason}")]
    Unknown {
        /// The host's name.
        host: String,
        /// The system's words.
        reason: String,
    },
    /// Nobody was met until the deadline.
    #[error("rank 0 was not met at {address} within {waited:.1?}: {reason}")]
    Unmet {
        /// Where.
        address: String,
        /// The limit.
        waited: Duration,
        /// What was found there last.
        reason: String,
    },
    /// Ranks did not come.
    #[error("{} of {world} did not come within {waited:.1?}{turned_away}", missing(ranks))]
    Missing {
        /// Those.
        ranks: Vec<u32>,
        /// All ranks of the job.
        world: u32,
        /// The limit.
        waited: Duration,
        /// Who came instead, in words that follow; mostly empty.
        turned_away: String,
    },
    /// Two processes are the same rank.
    #[error("rank {rank} is claimed twice: by {first}, and by {second}")]
    Claimed {
        /// The rank.
        rank: u32,
        /// Who came first: a process and its host.
        first: String,
        /// Who came then.
        second: String,
    },
    /// A process names a rank that the world has not.
    #[error("{process} claims rank {rank}, and rank 0 has a world of {}, counted from 0", count(*world, "rank"))]
    NoRank {
        /// The process and its host.
        process: String,
        /// The rank.
        rank: u32,
        /// Ranks of the job.
        world: u32,
    },
    /// Processes differ in what must be the same.
    #[error("{what} differs: {first}, {second}{help}")]
    Differs {
        /// What.
        what: String,
        /// Ranks and their value.
        first: String,
        /// Other ranks and theirs.
        second: String,
        /// What to do, in words that follow.
        help: String,
    },
    /// Rank 0 has another token.
    #[error("rank 0 at {address} has another token: it is of another job, or SQUALL_TOKEN differs")]
    Token {
        /// Where.
        address: String,
    },
    /// The other side speaks another version of the protocol.
    #[error(
        "{address} speaks version {theirs} of the meeting's protocol, and this squall version {}: run the same squall everywhere",
        crate::wire::PROTOCOL
    )]
    Protocol {
        /// Who.
        address: String,
        /// Its version.
        theirs: u16,
    },
    /// All ranks have come before, and this process is one too many.
    #[error("the job at {address} is complete: its {} have come before", count(*world, "rank"))]
    Complete {
        /// Where.
        address: String,
        /// Ranks of the job.
        world: u32,
    },
    /// The file that holds rank 0's address cannot be written or read.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// The system's words, and what to do.
        reason: String,
    },
    /// Another process gave up before all had come.
    #[error("{process} gave up while meeting")]
    GaveUp {
        /// The process and its host.
        process: String,
    },
    /// The system refuses something.
    #[error("{0}")]
    System(String),
}

impl MeetError {
    /// Whether a deadline passed.
    pub fn is_late(&self) -> bool {
        matches!(self, MeetError::Unmet { .. } | MeetError::Missing { .. })
    }

    /// Whether this machine or its network lacks something.
    pub fn is_environment(&self) -> bool {
        matches!(
            self,
            MeetError::Listen { .. }
                | MeetError::Unknown { .. }
                | MeetError::File { .. }
                | MeetError::System(_)
        )
    }
}

/// Ranks in words, of very many the first.
pub(crate) fn ranks(ranks: &[u32]) -> String {
    const MOST: usize = 8;
    let shown: Vec<String> = ranks.iter().take(MOST).map(u32::to_string).collect();
    match ranks.len() {
        1 => format!("rank {}", shown[0]),
        len if len <= MOST => format!("ranks {}", shown.join(", ")),
        len => format!("ranks {} and {} more", shown.join(", "), len - MOST),
    }
}

fn missing(missing: &[u32]) -> String {
    ranks(missing)
}
