//! A rank's stream: copies, marks, waits, and capture.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUresult};
use squall_core::device::Position;
use squall_core::wait;
use squall_core::{Capture, DeviceError, DevicePtr, Progress, RawHandle, Stream, Work};

use crate::context::{Context, Word};
use crate::graph::Graph;

/// A stream that waits for no other stream of its GPU.
///
/// # How its position is told
/// A write of its own in the stream costs some microseconds between two kernels, as much as a small kernel takes. So a position is
/// told by what is there anyway: a kernel tells, when its first block begins, how many tasks are finished, and when its last block
/// ends, that it is finished too (`Launch` in the prelude). Only where a library's op follows another is there a write between the
/// two. The end of a run is one write, and that is what a wait looks at.
pub(crate) struct CudaStream {
    context: Arc<Context>,
    raw: sys::CUstream,
    position: Arc<Told>,
    /// Set to a number of its own for a wait that no end of a run serves.
    ticket: Word,
    tickets: u64,
    /// The run whose end was put on the stream last.
    run: u32,
    /// Whether something was put on the stream since.
    since: Cell<bool>,
    /// Tasks that are finished of the run in hand where the stream now ends, and how many of them it tells by then.
    tasks: u32,
    told: Cell<u32>,
}

/// The word that tells a stream's position.
struct Told(Word);

impl Progress for Told {
    fn read(&self) -> Position {
        self.0.get().load(Ordering::Acquire).into()
    }
}

// SAFETY: the driver's handle may be used from any thread; the stream is used by one at a time.
unsafe impl Send for CudaStream {}

/// How often a wait asks the driver whether the stream has failed: an error never writes the word that is waited for.
const ASK: Duration = Duration::from_micros(100);

impl CudaStream {
    /// A new stream. Its GPU is current to the calling thread from here on.
    pub(crate) fn new(context: &Arc<Context>) -> Result<CudaStream, DeviceError> {
        context.make_current()?;
        let mut raw = std::ptr::null_mut();
        let non_blocking = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current; `raw` is written.
        context.check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, non_blocking) })?;
        let mut stream = CudaStream {
            context: context.clone(),
            raw,
            position: Arc::new(Told(context.word()?)),
            ticket: context.word()?,
            tickets: 0,
            run: 0,
            since: Cell::new(true),
            tasks: 0,
            told: Cell::new(0),
        };
        stream.wait(None)?;
        Ok(stream)
    }

    /// The stream as the one that a work of this backend was made for.
    pub(crate) fn of(stream: &mut dyn Stream) -> Result<&mut CudaStream, DeviceError> {
        let stream: &mut dyn Any = stream;
        let other = || DeviceError::Failed("the stream is not one of a CUDA device".to_string());
        stream.downcast_mut().ok_or_else(other)
    }

    /// The handle, for something that does not tell the position.
    pub(crate) fn handle(&self) -> sys::CUstream {
        self.since.set(true);
        self.raw
    }

    /// The handle, for a kernel: with the address where it tells the position, and the tasks that are finished before it.
    pub(crate) fn for_kernel(&self) -> (sys::CUstream, u64, u32) {
        self.told.set(self.tasks + 1);
        (self.handle(), self.position.0.address(), self.tasks)
    }

    fn write(&self, word: &Word, value: u64) -> Result<(), DeviceError> {
        // SAFETY: the word lives as long as the stream, and the GPU sees it under its address.
        let result = unsafe { sys::cuStreamWriteValue64_v2(self.raw, word.address(), value, 0) };
        self.context.check("cuStreamWriteValue64", result)
    }

    /// Tells the tasks of the run in hand, with a write of its own.
    fn tell(&self) -> Result<(), DeviceError> {
        // SAFETY: as for `write`; the tasks are the word's lower half, which comes first in memory.
        let result =
            unsafe { sys::cuStreamWriteValue32_v2(self.raw, self.position.0.address(), self.tasks, 0) };
        self.told.set(self.tasks);
        self.context.check("cuStreamWriteValue32", result)
    }
}

impl Stream for CudaStream {
    fn raw(&self) -> RawHandle {
        if self.told.get() != self.tasks {
            // An op is about to follow another. That this write failed, the op's own enqueuing finds too.
            let _ = self.tell();
        }
        RawHandle { api: "cuda", handle: self.handle() as u64 }
    }

    unsafe fn copy(&mut self, dst: DevicePtr, src: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the caller vouches for both places.
        let result = unsafe { sys::cuMemcpyAsync(dst.0, src.0, size, self.handle()) };
        self.context.check("cuMemcpyAsync", result)
    }

    fn mark(&mut self, tasks: u32) -> Result<(), DeviceError> {
        self.tasks = tasks;
        Ok(())
    }

    fn complete(&mut self, runs: u32) -> Result<(), DeviceError> {
        self.write(&self.position.0, Position { runs, tasks: 0 }.into())?;
        (self.run, self.tasks) = (runs, 0);
        self.told.set(0);
        self.since.set(false);
        Ok(())
    }

    fn progress(&self) -> Arc<dyn Progress> {
        self.position.clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), DeviceError> {
        if self.told.get() != self.tasks {
            self.tell()?;
            self.since.set(true);
        }
        let apart = self.since.replace(false);
        if apart {
            self.tickets += 1;
            self.write(&self.ticket, self.tickets)?;
        }
        let (run, ticket) = (self.run, self.tickets);
        let (position, given) = (self.position.0.get(), self.ticket.get());
        let passed = || match apart {
            true => given.load(Ordering::Acquire) == ticket,
            false => Position::from(position.load(Ordering::Acquire)).runs == run,
        };
        let mut failed = None;
        let ask = || {
            // SAFETY: the stream lives.
            match unsafe { sys::cuStreamQuery(self.raw) } {
                CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_NOT_READY => false,
                result => {
                    failed = Some(result);
                    true
                }
            }
        };
        let ended = wait::watch(until, ASK, passed, ask);
        match failed {
            Some(result) => self.context.check("the stream failed", result),
            None if ended => Ok(()),
            None => {
                self.since.set(true);
                Err(DeviceError::Deadline)
            }
        }
    }

    fn capture(&mut self) -> Option<&mut dyn Capture> {
        Some(self)
    }
}

impl Capture for CudaStream {
    fn begin(&mut self) -> Result<(), DeviceError> {
        // Thread-local: what other ranks' threads do at the same time does not break this capture, nor this one theirs.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives, and its context is current to its thread.
        self.context.check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.raw, mode) })
    }

    fn end(&mut self) -> Result<Box<dyn Work>, DeviceError> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream lives; `graph` is written, also when the capture was broken.
        let result = unsafe { sys::cuStreamEndCapture(self.raw, &mut graph) };
        self.context.check("during capture: cuStreamEndCapture", result)?;
        Ok(Box::new(Graph::new(&self.context, graph)?))
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: made by `new`; what is still on it runs to its end first, says the driver. Errors have nowhere to go.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}
