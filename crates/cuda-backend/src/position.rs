//! How far a stream has come: where it is told, and how it is read.
//!
//! A write of its own between two kernels costs a stream some microseconds, as much as a small kernel takes, and so does a kernel's
//! store to the host's memory. So kernels tell the position, in a word of the GPU's own memory: each tells, when its first block
//! begins, how many tasks are finished, and when its last block ends, that it is finished too (`Launch` in the prelude). That costs
//! nothing that can be measured. Only where a library's op begins a run, or follows another, is there a write of its own.
//!
//! The word is read when somebody asks, which is when a step takes long: by a thread apart, with a copy on a stream of its own, since a
//! call of the driver may block while another thread's does, and whoever asks must not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::{self, CUresult};
use squall_core::device::Position;
use squall_core::{DeviceError, Progress};

use crate::context::Context;
use crate::words::{DeviceWord, Word};

/// What a kernel tells when it begins; when it ends, it tells one task more.
pub(crate) struct Telling {
    /// The word.
    pub(crate) address: u64,
    /// Where the stream is then.
    pub(crate) place: Position,
    pub(crate) how: How,
}

/// How a kernel tells its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// All of it.
    Whole = 0,
    /// One run more than the word has, and no task: the first kernel of a captured run, which is replayed run after run.
    NextRun = 1,
    /// The tasks alone.
    Tasks = 2,
}

/// One stream's position.
pub(crate) struct Told {
    word: DeviceWord,
    reader: Arc<Reader>,
    /// What was read of the word last.
    read: AtomicU64,
    /// What the stream is known to have passed, by its last wait.
    passed: AtomicU64,
}

impl Told {
    /// The position of a new stream. The word is to be set to 0 before anything is told.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Told, DeviceError> {
        let (word, reader) = (DeviceWord::new(context)?, context.reader()?);
        Ok(Told { word, reader, read: AtomicU64::new(0), passed: AtomicU64::new(0) })
    }

    pub(crate) fn address(&self) -> u64 {
        self.word.address()
    }

    /// Notes what a wait has found. Called by the rank's thread alone.
    pub(crate) fn passed(&self, position: Position) {
        let before = Position::from(self.passed.load(Ordering::Relaxed));
        self.passed.store(later(position, before).into(), Ordering::Release);
    }
}

impl Progress for Told {
    fn read(&self) -> Position {
        if let Some(word) = self.reader.read(self.address()) {
            self.read.store(word, Ordering::Release);
        }
        // What was read last, when the GPU does not answer.
        self.known()
    }

    fn known(&self) -> Position {
        later(self.read.load(Ordering::Acquire).into(), self.passed.load(Ordering::Acquire).into())
    }

    fn has_ended(&self, runs: u32) -> bool {
        Position::from(self.passed.load(Ordering::Acquire)).runs == runs
    }
}

/// The later of two positions, which lie less than half of all runs apart.
fn later(a: Position, b: Position) -> Position {
    match a.runs.wrapping_sub(b.runs) {
        0 => Position { runs: a.runs, tasks: a.tasks.max(b.tasks) },
        ahead if ahead <= u32::MAX / 2 => a,
        _ => b,
    }
}

/// How long whoever asks waits for an answer.
const PATIENCE: Duration = Duration::from_millis(100);

/// The thread that reads words of one GPU's memory. Made with the GPU's first stream, while all is well, and kept for the life of the
/// process, as the GPU's context is.
pub(crate) struct Reader(Mutex<Asking>);

struct Asking {
    questions: Sender<u64>,
    answers: Receiver<Option<u64>>,
    /// Questions that were asked and not answered yet. A thread that owes an answer is asked nothing: it waits for the driver.
    owed: usize,
}

impl Reader {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Reader, DeviceError> {
        let (questions, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let mut stream = std::ptr::null_mut();
        context.make_current()?;
        let non_blocking = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current; `stream` is written.
        context.check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream, non_blocking) })?;
        let (stream, place, context) = (Handle(stream), Word::new(context)?, context.clone());
        let serve = move || {
            let stream = stream;
            let current = context.make_current().is_ok();
            while let Ok(address) = asked.recv() {
                let read = current && stream.read(place.address(), address);
                if answer.send(read.then(|| place.get().load(Ordering::Acquire))).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("squall-cuda-read".to_string()).spawn(serve);
        thread.map_err(|error| DeviceError::Failed(format!("no thread to read positions: {error}")))?;
        Ok(Reader(Mutex::new(Asking { questions, answers, owed: 0 })))
    }

    /// A word; `None` when the GPU or the driver does not answer in time. Of several that ask in vain, only the first waits.
    fn read(&self, address: u64) -> Option<u64> {
        let mut asking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while asking.owed > 0 {
            // To somebody who had given up.
            asking.answers.try_recv().ok()?;
            asking.owed -= 1;
        }
        asking.questions.send(address).ok()?;
        asking.owed = 1;
        let answer = asking.answers.recv_timeout(PATIENCE).ok()?;
        asking.owed = 0;
        answer
    }
}

/// The reader's stream.
struct Handle(sys::CUstream);

// SAFETY: the driver's handle may be used from any thread; it is used by the reader's alone.
unsafe impl Send for Handle {}

impl Handle {
    /// Copies a word of the GPU's memory to one of the host's.
    fn read(&self, to: u64, from: u64) -> bool {
        // SAFETY: `from` is a word of the GPU's memory, whose page is never freed, and `to` one of the host's.
        let copied = unsafe { sys::cuMemcpyAsync(to, from, 8, self.0) };
        // SAFETY: the stream lives.
        let ended = unsafe { sys::cuStreamSynchronize(self.0) };
        (copied, ended) == (CUresult::CUDA_SUCCESS, CUresult::CUDA_SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_position_is_found_through_the_wrap() {
        let at = |runs, tasks| Position { runs, tasks };
        assert_eq!(later(at(3, 9), at(4, 0)), at(4, 0));
        assert_eq!(later(at(4, 1), at(4, 0)), at(4, 1));
        assert_eq!(later(at(0, 2), at(u32::MAX, 5)), at(0, 2));
        assert_eq!(later(at(u32::MAX, 5), at(0, 2)), at(0, 2));
    }
}
