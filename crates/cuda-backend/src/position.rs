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
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::{self, CUresult};
use squall_core::Progress;
use squall_core::device::Position;

use crate::context::{Context, DeviceWord};

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
    /// What the stream is known to have passed, by its last wait.
    passed: AtomicU64,
}

impl Told {
    pub(crate) fn new(word: DeviceWord) -> Told {
        Told { word, passed: AtomicU64::new(0) }
    }

    pub(crate) fn address(&self) -> u64 {
        self.word.address()
    }

    /// Notes what a wait has found.
    pub(crate) fn passed(&self, position: Position) {
        self.passed.store(position.into(), Ordering::Release);
    }
}

impl Progress for Told {
    fn read(&self) -> Position {
        let reader = self.word.context().reader();
        let word = reader.and_then(|reader| reader.read(self.address()));
        let passed = Position::from(self.passed.load(Ordering::Acquire));
        word.map_or(passed, |word| later(word.into(), passed))
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

/// The thread that reads words of one GPU's memory. Lives as long as the process, as the GPU's context does.
pub(crate) struct Reader {
    /// One question at a time; a thread that does not answer is asked no more until it has.
    asking: Mutex<(SyncSender<u64>, Receiver<Option<u64>>)>,
}

impl Reader {
    pub(crate) fn new(context: &Arc<Context>) -> Option<Reader> {
        let (asks, asked) = mpsc::sync_channel::<u64>(0);
        let (answers, answered) = mpsc::channel();
        let context = context.clone();
        let serve = move || {
            let Some(place) = context.word().ok().filter(|_| context.make_current().is_ok()) else { return };
            let mut stream = std::ptr::null_mut();
            let non_blocking = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: the context is current; `stream` is written.
            if unsafe { sys::cuStreamCreate(&mut stream, non_blocking) } != CUresult::CUDA_SUCCESS {
                return;
            }
            while let Ok(address) = asked.recv() {
                // SAFETY: the address is a word of the GPU's memory, which is never freed, and `place` one of the host's.
                let copied = unsafe { sys::cuMemcpyAsync(place.address(), address, 8, stream) };
                // SAFETY: the stream lives.
                let ended = unsafe { sys::cuStreamSynchronize(stream) };
                let read = (copied, ended) == (CUresult::CUDA_SUCCESS, CUresult::CUDA_SUCCESS);
                if answers.send(read.then(|| place.get().load(Ordering::Acquire))).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("squall-cuda-read".to_string()).spawn(serve).ok()?;
        Some(Reader { asking: Mutex::new((asks, answered)) })
    }

    /// A word; `None` when the GPU or the driver does not answer in time.
    fn read(&self, address: u64) -> Option<u64> {
        let asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let (asks, answered) = &*asking;
        // An answer to somebody who had given up.
        while answered.try_recv().is_ok() {}
        // The thread takes a question only when it is idle; it may be on its way back.
        let until = std::time::Instant::now() + PATIENCE;
        while asks.try_send(address).is_err() {
            if std::time::Instant::now() >= until {
                return None;
            }
            std::thread::yield_now();
        }
        answered.recv_timeout(PATIENCE).ok().flatten()
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
