//! The stream of a host device: it executes at once, in the thread that calls it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use squall_core::{Capture, DeviceError, DevicePtr, Position, Progress, RawHandle, Stream};

use crate::collective::address;
use crate::device::KIND;

#[derive(Default)]
pub(crate) struct HostStream {
    /// The last of what `progress` was set to, by this stream's thread alone.
    position: Position,
    progress: Arc<AtomicU64>,
}

impl HostStream {
    fn pass(&mut self, position: Position) {
        self.position = position;
        self.progress.store(position.into(), Ordering::Release);
    }
}

impl Stream for HostStream {
    fn raw(&self) -> RawHandle {
        RawHandle { api: KIND, handle: 0 }
    }

    unsafe fn copy(&mut self, dst: DevicePtr, src: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: the caller vouches for both places; what is in memory fits `usize`.
        unsafe { std::ptr::copy_nonoverlapping(address(src.0), address(dst.0), bytes as usize) };
        Ok(())
    }

    fn mark(&mut self, tasks: u32) -> Result<(), DeviceError> {
        self.pass(Position { tasks, ..self.position });
        Ok(())
    }

    fn complete(&mut self, runs: u32) -> Result<(), DeviceError> {
        self.pass(Position { runs, tasks: 0 });
        Ok(())
    }

    fn progress(&self) -> Arc<dyn Progress> {
        self.progress.clone()
    }

    fn wait(&mut self, _until: Option<Instant>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn capture(&mut self) -> Option<&mut dyn Capture> {
        None
    }
}
