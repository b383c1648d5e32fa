//! What goes wrong with NCCL.

use std::path::PathBuf;
use std::time::Duration;

use squall_core::DeviceError;
use squall_dylib::NotFound;

use crate::api::{INSTALL, MINIMUM, VARIABLE, Version};

/// NCCL is missing, or a call of it failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NcclError {
    /// There is no NCCL; every place that was tried is listed.
    #[error(transparent)]
    Missing(#[from] NotFound),
    /// It is older than what an abort needs.
    #[error(
        "NCCL {version} in {path} is too old: {MINIMUM} or later is needed\ninstall {INSTALL}; and set {VARIABLE} to its file where the older one is found first",
        path = path.display()
    )]
    TooOld {
        /// The file.
        path: PathBuf,
        /// What it is.
        version: Version,
    },
    /// The file is not NCCL, or not all of it.
    #[error("{path} is no NCCL that can be used: it has no `{function}`: {reason}", path = path.display())]
    NoFunction {
        /// The file.
        path: PathBuf,
        /// What it lacks.
        function: &'static str,
        /// The loader's words.
        reason: String,
    },
    /// A call failed.
    #[error("{function}{}: {text}{}", on(*rank), more(last))]
    Call {
        /// The function.
        function: &'static str,
        /// The rank of the world whose call it was, where it was one rank's.
        rank: Option<u32>,
        /// NCCL's number for the error.
        result: i32,
        /// NCCL's words for that number.
        text: String,
        /// NCCL's last warning, which often tells the cause; empty if there was none.
        last: String,
    },
    /// Not all ranks came in time.
    #[error(
        "{function} had not ended on rank {rank} after {waited:.1?}, when the deadline passed: not all of the {} came",
        squall_core::count(*world, "rank")
    )]
    Deadline {
        /// What the rank waited in.
        function: &'static str,
        /// The first rank of this process that still waited.
        rank: u32,
        /// Ranks of the job.
        world: u32,
        /// The time since the function was called.
        waited: Duration,
    },
    /// Joining was given up, since another process failed.
    #[error("released by an abort")]
    Aborted,
    /// A call had not come back when the deadline passed. It is left to a thread of its own, with all that it uses; should it come back,
    /// what it made is closed.
    #[error("{function}{} had not come back after {waited:.1?}, when the deadline passed", on(*rank))]
    Stuck {
        /// The function.
        function: &'static str,
        /// The rank of the world whose call it was; `None` where NCCL worked for all ranks of this process.
        rank: Option<u32>,
        /// The time since it was called.
        waited: Duration,
    },
    /// Two ranks on one GPU, which NCCL cannot do.
    #[error("ranks {first} and {second} are both on {device}, but NCCL takes one rank a GPU")]
    SameDevice {
        /// The device.
        device: String,
        /// A rank on it.
        first: u32,
        /// Another.
        second: u32,
    },
    /// The ranks given cannot be a part of such a world.
    #[error("{0}")]
    Ranks(String),
    /// A text that is no unique id.
    #[error("this is no unique id of NCCL, which is 128 bytes in Base64: {0}")]
    UniqueId(String),
    /// A rank's device could not be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A thread that makes or closes communicators could not be had.
    #[error("no thread to make or close communicators: {0}")]
    Thread(String),
}

impl NcclError {
    /// The file that was chosen and will not do.
    pub(crate) fn file(&self) -> Option<&PathBuf> {
        match self {
            NcclError::TooOld { path, .. } | NcclError::NoFunction { path, .. } => Some(path),
            _ => None,
        }
    }
}

fn on(rank: Option<u32>) -> String {
    rank.map(|rank| format!(" on rank {rank}")).unwrap_or_default()
}

fn more(last: &str) -> String {
    if last.is_empty() { String::new() } else { format!(" (NCCL's last warning: {last})") }
}

impl From<NcclError> for DeviceError {
    fn from(error: NcclError) -> DeviceError {
        match error {
            NcclError::Missing(_)
            | NcclError::TooOld { .. }
            | NcclError::NoFunction { .. }
            | NcclError::SameDevice { .. } => DeviceError::Unsupported(error.to_string()),
            NcclError::Device(error) => error,
            NcclError::Aborted => DeviceError::Aborted,
            NcclError::Deadline { .. } | NcclError::Stuck { .. } => DeviceError::Late(error.to_string()),
            _ => DeviceError::Failed(error.to_string()),
        }
    }
}
