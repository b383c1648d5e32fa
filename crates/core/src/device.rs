//! Devices: the half of the traits that runs. A backend crate implements these and registers a [`Backend`].
//!
//! # Writing a backend
//! A backend is a crate that depends on this one alone. Its traits, in the order in which they can be written and tried:
//!
//! 1. [`Memory`]: zeroed, aligned, freed on drop.
//! 2. [`Progress`], how far a stream has come, and [`Stream`]: copies and marks in order. [`AtomicU64`] is a `Progress`.
//! 3. [`Device`]: makes memory, streams, and of a kernel and its arguments a [`Work`], the one thing that a step enqueues; lets its
//!    kernels reach memory of another device, or says that it cannot.
//! 4. [`Backend`]: the kind, how many devices there are, opening one. Registered with [`crate::register_backend!`].
//! 5. [`Library`](crate::Library): the communicators of all ranks, made at once when a group is bound, and the handle that
//!    aborts them. Registered with [`crate::register_library!`]; a library of ops that need no communicator leaves it out.
//! 6. [`LibraryOp`](crate::LibraryOp), for each op that the library serves: a contract of [`crate::ops`] with the library's
//!    name, its [`Needs`](crate::Needs), and how a batch becomes a [`Work`]. Arguments are read through [`crate::ops::Call`].
//!    Registered with [`crate::register_op!`].
//!
//! [`Capture`] comes last and may be left out: a device that cannot capture says so in [`Backend::captures`] and
//! [`Device::captures`].
//!
//! # When work is done
//! Enqueuing may return when the work is done (host) or long before (CUDA). The plan group does not ask which: a step is
//! done when the stream has passed its [`Stream::complete`], and the task that a rank is in is the one after the last
//! [`Stream::mark`] that its stream has passed. Any thread reads both at any time, in one word. Marks are put after every task
//! and captured with them; the ends of runs are put outside of captures, with the run's number.
//!
//! A stream tells of a failure at the next enqueuing or the next wait, and then nobody knows which task it was. So where an
//! enqueuing fails, the plan asks the stream, for a moment, whether something before it has failed; and where a wait fails, it asks
//! the works of the phase for their [`Work::failure`], and else takes the task that the stream had come to. So a
//! device whose failures stop the stream names the task by its progress alone, and one whose kernels note what they found
//! and go on gives their works a `failure`. Of a device that is [`DeviceError::Lost`] the progress may not be readable: the plan names
//! no task, and of the steps all that it may have been.
//!
//! # How far the host runs ahead
//! Not without a bound: what is queued runs on after an abort, and a driver's queue is finite. Where [`Progress::has_ended`] says no, the
//! plan puts a [`Stream::checkpoint`] after every batch of runs, a batch being some tens of milliseconds, and no more than 64 runs or
//! 512 tasks; before a batch is enqueued, the last but one has been waited for with [`Stream::wait_for`], and the works were asked. A
//! device that waits in `wait_for` for all, as the default does, is right but idle in between.
//!
//! After an abort a stream may pass work that was cut short as if it were done, and its wait may end well: the group
//! reads the ranks' progress before it aborts, and takes no run that ends later for done. A rank returns only when
//! nothing is queued on its stream any more, so that memory can be freed.
//!
//! # The suite
//!
//! What all of it must do is the suite `conformance`, behind the feature of that name: a backend's tests run its cases against
//! their own devices in a few lines. The first cases need no op, so that steps 1 to 4 can be tried alone.
//!
//! A crate that nothing names is not linked, and its registrations are missing without a word. A program therefore names its
//! providers in one place (`use squall_host_backend as _;`); the command does in the runner's `src/bin/squall/main.rs`.
//! Kernels have a form for each kind of device as fields of [`KernelDef`], and manifests have a list of device names: a third
//! kind needs both.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::args::{Arg, BoundRange};
use crate::grid::Grid;
use crate::kernel::KernelDef;
use crate::words::count;

/// An address in a device's memory; on a host device, in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DevicePtr(pub u64);

/// A backend's handle as a plain word, with the api it belongs to (`"cuda"`, `"host"`): how an op library gets
/// at a stream without knowing the backend's crate, and what the plugin ABI carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawHandle {
    /// Whose handle it is.
    pub api: &'static str,
    /// Its value.
    pub handle: u64,
}

/// Why a piece of work did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The plan group aborted it because of another rank or a deadline: this rank is released, not to blame.
    #[error("released by an abort")]
    Aborted,
    /// The deadline given to a wait passed.
    #[error("the deadline passed")]
    Deadline,
    /// A deadline passed; what was waited for.
    #[error("{0}")]
    Late(String),
    /// The device's memory does not suffice.
    #[error("out of memory{} on {device}: {message}", asked(*bytes))]
    OutOfMemory {
        /// The device.
        device: String,
        /// What was asked for; 0 where a call needed memory of its own.
        bytes: u64,
        /// The backend's words.
        message: String,
    },
    /// The device can be used no more by this process. Whoever meets it need not be whose work lost it: GPUs that reach each other's
    /// memory are lost together, and all of them say the same.
    #[error("{device} is lost to this process: {message}")]
    Lost {
        /// The device.
        device: String,
        /// The backend's words.
        message: String,
    },
    /// The device cannot do this at all; found when a plan is made.
    #[error("{0}")]
    Unsupported(String),
    /// It failed; the backend's or the kernel's words.
    #[error("{0}")]
    Failed(String),
}

fn asked(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(": {}", count(bytes, "byte")) }
}

impl DeviceError {
    /// The error in a sentence that has named `device` already: it is not named again.
    pub fn of(&self, device: &str) -> String {
        match self {
            DeviceError::OutOfMemory { device: own, bytes, message } if own == device => {
                format!("out of memory{}: {message}", asked(*bytes))
            }
            DeviceError::Lost { device: own, message } if own == device => {
                format!("lost to this process: {message}")
            }
            DeviceError::Failed(text) | DeviceError::Unsupported(text) => {
                let rest = text.strip_prefix(device).and_then(|rest| rest.strip_prefix([':', ' ']));
                rest.map_or(text.as_str(), str::trim_start).to_string()
            }
            other => other.to_string(),
        }
    }
}

/// A kind of device that this build can use. Registered with [`crate::register_backend!`].
///
/// Called from any thread. Opening a backend must not touch a driver before it is asked for a device.
pub trait Backend: Sync {
    /// The kind, the part of a device's name before the colon: `"host"`, `"cuda"`.
    fn kind(&self) -> &'static str;
    /// The library that serves an op on these devices unless a task names another.
    fn default_library(&self) -> &'static str;
    /// Devices there are; `None` when any number can be made. The error says what is missing and how to get it; its first line
    /// says alone, shortly, why there is none.
    fn count(&self) -> Result<Option<u32>, DeviceError>;
    /// Whether several ranks may share one device. Never for GPUs, where NCCL refuses it.
    fn repeats(&self) -> bool;
    /// Whether its devices can capture a step, as far as that is known without one: what [`Device::captures`] says.
    fn captures(&self) -> bool;
    /// Opens a device.
    fn open(&self, index: u32) -> Result<Arc<dyn Device>, DeviceError>;
    /// What of the backend's libraries this process has opened: files and versions, a line each. Opens nothing.
    fn in_use(&self) -> Vec<String> {
        Vec::new()
    }
    /// What a device is, in a line that begins with its name, for listings. Asked of devices that [`Backend::count`] counts.
    fn describe(&self, index: u32) -> Result<String, DeviceError> {
        Ok(format!("{}:{index}", self.kind()))
    }
    /// What was found on this machine, and what is missing, with all that the error of [`Backend::count`] says: a line each,
    /// for `squall doctor`. Lines of detail are indented. A line that begins with `install` tells how to get what is missing, and
    /// names a Python wheel's command as `` `pip install NAME` ``: those are gathered at the end.
    fn findings(&self) -> Vec<String>;
}

/// One device. Shared by the rank that runs on it and whoever made it; called from any thread.
pub trait Device: Send + Sync {
    /// The name: `cuda:0`, `host:1`.
    fn id(&self) -> &str;
    /// The backend's kind.
    fn kind(&self) -> &'static str;
    /// Whether its streams can capture a step and replay it.
    fn captures(&self) -> bool;
    /// Zeroed memory on the device, aligned to at least [`MEMORY_ALIGNMENT`]. Zero bytes are legal.
    fn alloc(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError>;
    /// Zeroed memory that the host sees and the device reaches at full speed, for transfers.
    fn alloc_staging(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError>;
    /// A new stream, to be used by the calling rank's thread alone.
    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError>;
    /// Makes this the current device of the calling thread, for libraries that act on the current device. A device of
    /// an API that knows no such thing does nothing.
    fn make_current(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    /// Lets this device's kernels touch memory of `peer`, a device of this process by its name, for as long as the process lives. More
    /// calls change nothing, and a device reaches itself. Errs with [`DeviceError::Unsupported`] where the two cannot. Called on
    /// the rank's thread while its plan is bound, by [`Prepare::peer_pointers`](crate::Prepare::peer_pointers).
    fn reach(&self, peer: &str) -> Result<(), DeviceError>;
    /// Makes a kernel ready to launch: compiles it if need be and lays out its arguments, so that launching
    /// allocates nothing. `args` stand in the order of the kernel's parameters and passed its checks.
    ///
    /// # Safety
    /// The ranges in `args` must be memory of this device, or of one that it [reaches](Device::reach), that outlives the work, and nothing
    /// but the stream it is enqueued on may touch them while it runs.
    unsafe fn kernel(
        &self,
        kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        grid: Grid,
    ) -> Result<Box<dyn Work>, DeviceError>;
}

/// What all memory of a device is aligned to, in bytes, buffers' too: the least of all backends.
pub const MEMORY_ALIGNMENT: u64 = 256;

/// A piece of memory, freed on drop.
pub trait Memory: Send {
    /// Where it begins.
    fn ptr(&self) -> DevicePtr;
    /// Its size.
    fn bytes(&self) -> u64;
    /// Its contents, if the host can see them: always for staging memory.
    fn host(&mut self) -> Option<&mut [u8]>;
}

/// What runs on a stream: a kernel, a batch of ops, a captured step.
///
/// Made ready when the plan is bound, which may allocate; enqueued by the rank's thread in every step, which
/// may not. The work may be complete when `enqueue` returns (host) or not (CUDA).
pub trait Work: Send {
    /// Puts the work on the stream.
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError>;
    /// What the work found wrong while it ran, in its own words, where that shows only after the fact. Asked by the rank's
    /// thread after waits that end runs, of the works that ran; of captured work, the works that were captured. Runs that were
    /// enqueued later may be under way. Telling it forgets it.
    fn failure(&mut self) -> Option<String> {
        None
    }
}

/// Several works as one, enqueued one after the other: what an op makes that is made of others.
impl Work for Vec<Box<dyn Work>> {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        self.iter_mut().try_for_each(|work| work.enqueue(stream))
    }

    /// Of the first that found something; the others are asked the next time.
    fn failure(&mut self) -> Option<String> {
        self.iter_mut().find_map(|work| work.failure())
    }
}

/// The in-order queue of one rank. Only its thread calls it.
///
/// A backend's own works know their stream by downcasting it ([`Any`]).
pub trait Stream: Any + Send {
    /// The backend's handle.
    fn raw(&self) -> RawHandle;
    /// Copies `bytes` bytes in stream order, between device memory and staging memory in any direction.
    ///
    /// # Safety
    /// Both places must be memory of this stream's device or its staging memory, hold `bytes` bytes, not
    /// overlap, and stay untouched by others until the stream has passed the copy.
    unsafe fn copy(&mut self, dst: DevicePtr, src: DevicePtr, bytes: u64) -> Result<(), DeviceError>;
    /// Sets [`Position::tasks`] in stream order: so many tasks of the run in hand are finished. Recorded into captures, and
    /// so set again by every replay. A backend may set it no sooner than the next task begins, or a wait has ended; the last of a
    /// capture it may leave to the end of the run.
    fn mark(&mut self, tasks: u32) -> Result<(), DeviceError>;
    /// Sets [`Position::runs`] in stream order, and the tasks back to 0: so many runs have ended on this stream. Never
    /// called while capturing. A backend may set it no sooner than the next run begins, or a wait has ended.
    fn complete(&mut self, runs: u32) -> Result<(), DeviceError>;
    /// How far the stream has come, for any thread to read at any time.
    fn progress(&self) -> Arc<dyn Progress>;
    /// Waits until all that was enqueued is done, or until the deadline. The host's stream has nothing to wait for. Tells a
    /// failure of what was enqueued; of work that was aborted it may say nothing.
    fn wait(&mut self, until: Option<Instant>) -> Result<(), DeviceError>;
    /// Puts a checkpoint on the stream, for [`Stream::wait_for`]: the stream passes it when all runs that [`Stream::complete`] has told
    /// of have ended. Never called while capturing. Called once in many runs, where steps are queued, and again before the stream has
    /// passed the one before; so it may cost what [`Stream::complete`] may not. Enqueues only, and allocates nothing.
    fn checkpoint(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
    /// Waits until the stream has passed a checkpoint that was put at or after the end of so many runs, modulo 2³², or until the
    /// deadline; what is queued behind it runs on. There is such a checkpoint. Tells a failure as [`Stream::wait`] does, also of what
    /// is queued behind. After it, [`Progress::read`] tells of so many runs at least. The default waits for all.
    fn wait_for(&mut self, runs: u32, until: Option<Instant>) -> Result<(), DeviceError> {
        let _ = runs;
        self.wait(until)
    }
    /// Capture, where [`Device::captures`] says so.
    fn capture(&mut self) -> Option<&mut dyn Capture>;
}

/// A place in a stream. A run is one pass through a phase's tasks: the setup, one step, the finish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Runs that have ended, modulo 2³².
    pub runs: u32,
    /// Tasks that are finished of the run after these.
    pub tasks: u32,
}

/// One word: the runs in its upper half, the tasks in its lower.
impl From<Position> for u64 {
    fn from(position: Position) -> u64 {
        u64::from(position.runs) << 32 | u64::from(position.tasks)
    }
}

impl From<u64> for Position {
    fn from(word: u64) -> Position {
        Position { runs: (word >> 32) as u32, tasks: word as u32 }
    }
}

/// How far a stream has come.
pub trait Progress: Send + Sync {
    /// The place that the stream has passed last, read as one word. Never blocks for long. Where the device cannot be asked, the
    /// last place known.
    fn read(&self) -> Position;
    /// A place that the stream is known to have passed, without asking the device: never blocks. Read where the device must
    /// not be asked, as by whoever interrupts.
    fn known(&self) -> Position {
        self.read()
    }
    /// Whether the stream is known to have passed the end of so many runs and no more. Called by the rank's thread in every step,
    /// so that it must cost next to nothing; a device where knowing takes longer may answer false until a wait has ended.
    fn has_ended(&self, runs: u32) -> bool {
        self.read().runs == runs
    }
}

impl Progress for AtomicU64 {
    fn read(&self) -> Position {
        self.load(Ordering::Acquire).into()
    }
}

/// Records what is enqueued on a stream instead of running it.
pub trait Capture {
    /// Starts recording. Concerns the calling thread's stream alone.
    fn begin(&mut self) -> Result<(), DeviceError>;
    /// Ends recording. Enqueuing the result replays what was recorded, on the same memory.
    fn end(&mut self) -> Result<Box<dyn Work>, DeviceError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_named_is_not_named_again() {
        let memory =
            |bytes| DeviceError::OutOfMemory { device: "cuda:1".into(), bytes, message: "too full".into() };
        let lost = DeviceError::Lost { device: "cuda:1".into(), message: "a wrong address".into() };
        for (error, said, elsewhere) in [
            (memory(1), "out of memory: 1 byte: too full", "out of memory: 1 byte on cuda:1: too full"),
            (memory(0), "out of memory: too full", "out of memory on cuda:1: too full"),
            (
                lost,
                "lost to this process: a wrong address",
                "cuda:1 is lost to this process: a wrong address",
            ),
            (DeviceError::Failed("cuda:1: cuInit: no".into()), "cuInit: no", "cuda:1: cuInit: no"),
            (DeviceError::Unsupported("cuda:1 cannot".into()), "cannot", "cuda:1 cannot"),
            (DeviceError::Failed("cuda:10: cuInit: no".into()), "cuda:10: cuInit: no", "cuda:10: cuInit: no"),
            (DeviceError::Deadline, "the deadline passed", "the deadline passed"),
        ] {
            assert_eq!(error.of("cuda:1"), said);
            assert_eq!(error.of("cuda:2"), elsewhere);
        }
    }
}
