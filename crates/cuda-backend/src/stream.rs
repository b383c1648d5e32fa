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

use crate::context::Context;
use crate::graph::Graph;
use crate::position::{How, Telling, Told};
use crate::words::Word;

/// A stream that waits for no other stream of its GPU.
///
/// Where it has come to is told by its kernels: see [`crate::position`].
pub(crate) struct CudaStream {
    context: Arc<Context>,
    raw: sys::CUstream,
    position: Arc<Told>,
    /// Set to a number of its own for each wait, in stream order.
    ticket: Word,
    tickets: u64,
    /// Set to the runs that have ended at each checkpoint, in stream order.
    ended: Word,
    /// Whether something was put on the stream since the last wait.
    since: Cell<bool>,
    /// The position where the stream now ends, and what of it is told by then.
    place: Position,
    told: Cell<Position>,
    capture: Cell<Option<Captured>>,
}

/// What a capture has recorded so far.
#[derive(Clone, Copy)]
struct Captured {
    /// What comes first; `None` for nothing yet.
    first: Option<First>,
    /// What was told before the capture, and is so after it.
    told: Position,
}

/// What a captured run begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// A kernel, which counts the run itself.
    Kernel,
    /// Something else, before which the run must have been told.
    Other,
}

// SAFETY: the driver's handle may be used from any thread; the stream is used by one at a time.
unsafe impl Send for CudaStream {}

/// How often a wait asks the driver whether the stream has failed: an error never writes the word that is waited for.
const ASK: Duration = Duration::from_micros(100);

/// How long a stream that is dropped waits for what is on it.
const LAST: Duration = Duration::from_secs(1);

impl CudaStream {
    /// A new stream. Its GPU is current to the calling thread from here on.
    pub(crate) fn new(context: &Arc<Context>) -> Result<CudaStream, DeviceError> {
        context.make_current()?;
        let (position, ticket, ended) =
            (Arc::new(Told::new(context)?), Word::new(context)?, Word::new(context)?);
        let mut raw = std::ptr::null_mut();
        let non_blocking = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current; `raw` is written.
        context.check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, non_blocking) })?;
        let stream = CudaStream {
            context: context.clone(),
            raw,
            position,
            ticket,
            tickets: 0,
            ended,
            since: Cell::new(true),
            place: Position::default(),
            told: Cell::new(Position::default()),
            capture: Cell::new(None),
        };
        // The word may hold what a stream before this one told.
        stream.write(stream.position.address(), stream.place.into())?;
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

    /// The handle, for a kernel, and what it tells.
    pub(crate) fn for_kernel(&self) -> (sys::CUstream, Telling) {
        let how = match self.capture.get() {
            None => How::Whole,
            Some(capture) => match self.begins_with(capture, First::Kernel) {
                true => How::NextRun,
                false => How::Tasks,
            },
        };
        let place = self.place;
        self.told.set(Position { tasks: place.tasks.wrapping_add(1), ..place });
        (self.handle(), Telling { address: self.position.address(), place, how })
    }

    /// The handle, for a captured run that begins so.
    pub(crate) fn for_replay(&self, first: First) -> Result<sys::CUstream, DeviceError> {
        let runs = match first {
            First::Kernel => self.place.runs.wrapping_sub(1),
            First::Other => self.place.runs,
        };
        if self.told.get().runs != runs {
            self.write(self.position.address(), Position { runs, tasks: 0 }.into())?;
        }
        // Of the tasks, nobody knows.
        self.told.set(Position { runs: self.place.runs, tasks: u32::MAX });
        Ok(self.handle())
    }

    /// Notes what a capture records next; whether that comes first.
    fn begins_with(&self, capture: Captured, what: First) -> bool {
        let first = capture.first.is_none();
        if first {
            self.capture.set(Some(Captured { first: Some(what), ..capture }));
        }
        first
    }

    /// Waits until the host sees that the stream has passed something, or has failed.
    fn poll(&self, until: Option<Instant>, passed: impl Fn(&CudaStream) -> bool) -> Result<(), DeviceError> {
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
        let ended = wait::watch(until, ASK, || passed(self), ask);
        match failed {
            Some(result) => self.context.check("the stream failed", result),
            None if ended => Ok(()),
            None => Err(DeviceError::Deadline),
        }
    }

    fn end_capture(&self) -> (CUresult, sys::CUgraph) {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream lives; `graph` is written, also when the capture was broken.
        (unsafe { sys::cuStreamEndCapture(self.raw, &mut graph) }, graph)
    }

    /// Ends a capture that was left open by a panic, and forgets it.
    fn abandon_capture(&self) {
        if let Some(captured) = self.capture.take() {
            self.told.set(captured.told);
            let (_, graph) = self.end_capture();
            if !graph.is_null() {
                // SAFETY: the graph is what the capture ended with, and nobody has it.
                unsafe { sys::cuGraphDestroy(graph) };
            }
        }
    }

    fn write(&self, address: u64, value: u64) -> Result<(), DeviceError> {
        // SAFETY: the address is one of the stream's words, which live as long as it does.
        let result = unsafe { sys::cuStreamWriteValue64_v2(self.raw, address, value, 0) };
        self.context.check("cuStreamWriteValue64", result)
    }

    /// Tells the position with a write of its own, if it is not told: before something that does not tell it.
    fn tell(&self) -> Result<(), DeviceError> {
        let (place, address) = (self.place, self.position.address());
        match self.capture.get() {
            None if self.told.get() != place => self.write(address, place.into())?,
            // A run's first thing has no tasks to tell of, and its number was told before it.
            Some(capture)
                if !self.begins_with(capture, First::Other) && self.told.get().tasks != place.tasks =>
            {
                // SAFETY: as for `write`; the tasks are the word's lower half, which comes first in memory.
                let result = unsafe { sys::cuStreamWriteValue32_v2(self.raw, address, place.tasks, 0) };
                self.context.check("cuStreamWriteValue32", result)?;
            }
            _ => {}
        }
        self.told.set(place);
        Ok(())
    }
}

impl Stream for CudaStream {
    fn raw(&self) -> RawHandle {
        // That this write failed, the enqueuing of what follows finds too.
        let _ = self.tell();
        RawHandle { api: "cuda", handle: self.handle() as u64 }
    }

    unsafe fn copy(&mut self, dst: DevicePtr, src: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        if let Some(capture) = self.capture.get() {
            self.begins_with(capture, First::Other);
        }
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the caller vouches for both places.
        let result = unsafe { sys::cuMemcpyAsync(dst.0, src.0, size, self.handle()) };
        self.context.check("cuMemcpyAsync", result)
    }

    fn mark(&mut self, tasks: u32) -> Result<(), DeviceError> {
        self.place.tasks = tasks;
        Ok(())
    }

    fn complete(&mut self, runs: u32) -> Result<(), DeviceError> {
        self.place = Position { runs, tasks: 0 };
        Ok(())
    }

    fn progress(&self) -> Arc<dyn Progress> {
        self.position.clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), DeviceError> {
        self.abandon_capture();
        if self.since.get() {
            self.write(self.ticket.address(), self.tickets + 1)?;
            self.tickets += 1;
            self.since.set(false);
        }
        let ticket = self.tickets;
        let outcome = self.poll(until, |stream| stream.ticket.get().load(Ordering::Acquire) == ticket);
        match outcome {
            Ok(()) => self.position.passed(self.place),
            Err(_) => self.since.set(true),
        }
        outcome
    }

    fn checkpoint(&mut self) -> Result<(), DeviceError> {
        self.write(self.ended.address(), self.place.runs.into())
    }

    fn wait_for(&mut self, runs: u32, until: Option<Instant>) -> Result<(), DeviceError> {
        let ended = |stream: &CudaStream| stream.ended.get().load(Ordering::Acquire) as u32;
        self.poll(until, |stream| ended(stream).wrapping_sub(runs) <= u32::MAX / 2)?;
        self.position.passed(Position { runs: ended(self), tasks: 0 });
        Ok(())
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
        let result = unsafe { sys::cuStreamBeginCapture_v2(self.raw, mode) };
        self.context.check("cuStreamBeginCapture", result)?;
        let told = self.told.get();
        self.capture.set(Some(Captured { first: None, told }));
        Ok(())
    }

    fn end(&mut self) -> Result<Box<dyn Work>, DeviceError> {
        let (result, graph) = self.end_capture();
        let captured = self.capture.take();
        if let Some(captured) = captured {
            self.told.set(captured.told);
        }
        self.place.tasks = 0;
        self.context.check("cuStreamEndCapture", result)?;
        let first = captured.and_then(|captured| captured.first).unwrap_or(First::Other);
        Ok(Box::new(Graph::new(&self.context, graph, first)?))
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // Its words are used again by others. Plans drain their streams; this is for whoever does not.
            let _ = self.wait(Some(Instant::now() + LAST));
            // SAFETY: made by `new`; what is still on it runs to its end first, says the driver. Errors have nowhere to go.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}
