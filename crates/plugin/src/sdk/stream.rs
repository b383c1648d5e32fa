//! The rank's stream, as the host lends it for a call.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use squall_core::{Capture, DeviceError, DevicePtr, Progress, RawHandle, Stream, Work};

use super::absent;
use super::life::Life;
use crate::abi::{self, status};
use crate::convert::{Malformed, check_header, read_device_error, text};
use crate::field;

/// The stream of one call of `enqueue`. Works enqueue themselves and copies on it; the rest is the plan's.
pub(super) struct PluginStream {
    table: *const abi::Stream,
    kind: &'static str,
}

// SAFETY: `Stream` asks for it, though a stream is lent to one thread for the time of a call, by reference, and does not leave it.
unsafe impl Send for PluginStream {}

impl PluginStream {
    /// `kind` is that of the rank's device.
    ///
    /// # Safety
    /// `table` is null or the host's, and stays as long as this.
    pub(super) unsafe fn new(
        table: *const abi::Stream,
        kind: &'static str,
    ) -> Result<PluginStream, Malformed> {
        // SAFETY: the caller's.
        unsafe { check_header(table, "the stream's table") }?;
        Ok(PluginStream { table, kind })
    }
}

fn planned(what: &str) -> DeviceError {
    DeviceError::Unsupported(format!("a plugin's work does not {what}: plans do that"))
}

impl Stream for PluginStream {
    fn raw(&self) -> RawHandle {
        // SAFETY: `new`'s caller vouches for the table.
        let handle = unsafe {
            let api = field!(Stream, self.table, api).and_then(|api| text(api, "the stream's api").ok());
            field!(Stream, self.table, handle).filter(|_| api == Some(self.kind))
        };
        match handle {
            Some(handle) => RawHandle { api: self.kind, handle },
            None => RawHandle { api: "unknown", handle: 0 },
        }
    }

    unsafe fn copy(&mut self, dst: DevicePtr, src: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        let mut error = abi::Error::EMPTY;
        // SAFETY: `new`'s caller vouches for the table, this function's for the memory.
        let status = unsafe {
            let copy = field!(Stream, self.table, copy).flatten().ok_or_else(|| absent("copy"))?;
            copy(self.table, dst.0, src.0, bytes, &raw mut error)
        };
        done(status, &error, self.kind)
    }

    fn mark(&mut self, _: u32) -> Result<(), DeviceError> {
        Err(planned("mark a stream"))
    }

    fn complete(&mut self, _: u32) -> Result<(), DeviceError> {
        Err(planned("end runs"))
    }

    /// One that stays at the beginning: how far the stream has come, the plan alone knows.
    fn progress(&self) -> Arc<dyn Progress> {
        Arc::new(AtomicU64::new(0))
    }

    fn wait(&mut self, _: Option<Instant>) -> Result<(), DeviceError> {
        Err(planned("wait for its stream"))
    }

    fn checkpoint(&mut self) -> Result<(), DeviceError> {
        Err(planned("put checkpoints"))
    }

    fn capture(&mut self) -> Option<&mut dyn Capture> {
        None
    }
}

pub(super) fn done(status: i32, error: &abi::Error, device: &str) -> Result<(), DeviceError> {
    if status == status::OK { Ok(()) } else { Err(read_device_error(status, error, device)) }
}

/// What the host made ready inside the op: enqueued by the op's own work.
pub(super) struct InnerWork {
    inner: *mut abi::Inner,
    life: Arc<Life>,
}

// SAFETY: the host's, used by its functions alone, on the rank's thread, which the stream is lent to.
unsafe impl Send for InnerWork {}

impl InnerWork {
    /// # Safety
    /// `inner` is the host's and stays as long as `life`.
    pub(super) unsafe fn new(inner: *mut abi::Inner, life: Arc<Life>) -> Result<InnerWork, Malformed> {
        if inner.is_null() {
            return Err(Malformed::new("squall made nothing ready"));
        }
        Ok(InnerWork { inner, life })
    }
}

impl Work for InnerWork {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        self.life.check()?;
        let stream: &mut dyn std::any::Any = stream;
        let Some(PluginStream { table, kind }) = stream.downcast_ref() else {
            return Err(DeviceError::Unsupported(
                "it is enqueued on a stream that squall has not lent".into(),
            ));
        };
        let mut error = abi::Error::EMPTY;
        // SAFETY: `PluginStream::new`'s caller vouches for the table, and `inner` lives, as was checked.
        let status = unsafe {
            let enqueue = field!(Stream, *table, enqueue).flatten().ok_or_else(|| absent("enqueue"))?;
            enqueue(*table, self.inner, &raw mut error)
        };
        done(status, &error, kind)
    }
}
