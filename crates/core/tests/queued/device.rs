//! A device whose stream is carried out in order by a thread of its own while the rank's thread goes on, as a GPU's is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use squall_core::{
    Abort, Arg, BoundRange, Device, DeviceError, DevicePtr, Grid, KernelDef, Memory, Stream, Work,
};

use crate::tape::{Entry, Queue, Tape, Turn, on};

/// What a task does when the stream comes to it.
pub(crate) enum Act {
    Nothing,
    Take(Duration),
    /// Goes on when the group is aborted, as if it were done.
    Hang,
    /// Goes on when this is set, whatever is aborted.
    Block(Arc<AtomicBool>),
    /// Fails, which shows after the fact; the stream goes on.
    Fail,
    /// Fails, which nobody tells but the work.
    Note,
    /// Fails, and the stream passes nothing more.
    Die,
    /// Fails, and every call fails from here on: where the stream is can be asked no more.
    Lose,
}

/// What a task does at a turn, both counted from 0.
pub(crate) type Script = dyn Fn(u64, u64) -> Act + Send + Sync;

/// What is seen of a device, and told to it.
#[derive(Default)]
pub(crate) struct Watched {
    /// How often it was asked how far the stream is, and how long that takes.
    pub(crate) reads: AtomicU64,
    pub(crate) reading: Mutex<Duration>,
    /// How long ending a capture takes.
    pub(crate) instantiating: Mutex<Duration>,
    /// The most runs that were enqueued beyond those that the stream had ended.
    pub(crate) most_ahead: AtomicU64,
    /// Waits for all that is queued, checkpoints, and waits for one.
    pub(crate) waits: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) waits_for: AtomicU64,
    /// Captures begun with something queued, and waits while capturing. Neither is right.
    pub(crate) begun_busy: AtomicU64,
    pub(crate) waited_capturing: AtomicU64,
    /// The sizes of all staging memory that was asked for.
    pub(crate) staging: Mutex<Vec<u64>>,
    /// Copies that are still taken before one is refused.
    pub(crate) copies_left: Mutex<Option<u64>>,
}

impl Watched {
    pub(crate) fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Acquire)
    }
}

pub(crate) struct Gpu {
    id: String,
    script: Arc<Script>,
    watched: Arc<Watched>,
}

impl Gpu {
    pub(crate) fn open(
        index: u32,
        script: impl Fn(u64, u64) -> Act + Send + Sync + 'static,
    ) -> Arc<dyn Device> {
        Gpu::watched(index, script).0
    }

    pub(crate) fn watched(
        index: u32,
        script: impl Fn(u64, u64) -> Act + Send + Sync + 'static,
    ) -> (Arc<dyn Device>, Arc<Watched>) {
        let watched = Arc::<Watched>::default();
        let gpu = Gpu { id: format!("host:{index}"), script: Arc::new(script), watched: watched.clone() };
        (Arc::new(gpu), watched)
    }
}

impl Device for Gpu {
    fn id(&self) -> &str {
        &self.id
    }
    fn kind(&self) -> &'static str {
        "host" // so that graphs can be built for it
    }
    fn captures(&self) -> bool {
        true
    }
    fn alloc(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(Bytes(vec![0; bytes as usize])))
    }
    fn alloc_staging(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        self.watched.staging.lock().unwrap().push(bytes);
        self.alloc(bytes)
    }
    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        Ok(Box::new(Queue::new(Tape::start(self.script.clone(), self.watched.clone()))))
    }
    fn reach(&self, _: &str) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported("no peers here".to_string()))
    }
    unsafe fn kernel(
        &self,
        _: &'static KernelDef,
        _: Vec<Arg<BoundRange>>,
        _: Grid,
    ) -> Result<Box<dyn Work>, DeviceError> {
        Err(DeviceError::Unsupported("there are no kernels here".to_string()))
    }
}

struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn ptr(&self) -> DevicePtr {
        DevicePtr(self.0.as_ptr() as u64)
    }
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn host(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.0)
    }
}

/// What a task does when it is enqueued once too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Says that it cannot be.
    Error,
    Panic,
    /// Waits until something has gone wrong on the stream, and says so in its own words.
    Sticky,
    /// Says that it cannot be recorded, whenever it is, and else is enqueued however often.
    Recorded,
}

impl Refusal {
    const ALL: [Refusal; 4] = [Refusal::Error, Refusal::Panic, Refusal::Sticky, Refusal::Recorded];

    pub(crate) fn of(number: u64) -> Refusal {
        Refusal::ALL[number as usize]
    }
}

/// A task of the script.
pub(crate) struct Acting {
    turn: Turn,
    /// How often it can be enqueued.
    left: u64,
    refusal: Refusal,
}

impl Acting {
    pub(crate) fn new(task: u64, left: u64, refusal: Refusal, aborted: Arc<dyn Abort>) -> Acting {
        Acting { turn: Turn::new(task, aborted), left, refusal }
    }
}

impl Work for Acting {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        let tape = on(stream);
        let words = |text: &str| Err(DeviceError::Failed(text.to_string()));
        if self.refusal == Refusal::Recorded && tape.is_recording() {
            return words("not permitted while a stream is recorded");
        }
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None if self.refusal == Refusal::Panic => panic!("it is enqueued once too often"),
            None if self.refusal == Refusal::Sticky => {
                while !tape.has_failed() {
                    std::thread::yield_now();
                }
                return words("the library met an error");
            }
            None => return words("it cannot be enqueued"),
        }
        tape.put(Entry::Act(self.turn.clone()))
    }

    fn failure(&mut self) -> Option<String> {
        self.turn.failure.lock().unwrap().take()
    }
}
