//! The work that an op has made ready, as the host drives it.

use std::ffi::{c_char, c_void};
use std::slice::from_raw_parts_mut;
use std::sync::Arc;

use squall_core::{Abort, Work};

use super::life::Owner;
use super::panic::{catch, guarded};
use super::stream::PluginStream;
use crate::abi;
use crate::convert::write_line;

/// What is to be told of an abort; fixed once the work is ready.
pub(super) type Handles = Vec<Arc<dyn Abort>>;

/// The state of a work.
pub(super) struct State {
    work: Box<dyn Work>,
    /// Apart from the rest, since an abort reads it while `enqueue` runs.
    handles: Arc<Handles>,
    /// Dropped after the work, which may ask to its end.
    _life: Owner,
    /// The kind of the rank's device.
    kind: &'static str,
}

impl State {
    pub(super) fn new(work: Box<dyn Work>, handles: Handles, life: Owner, kind: &'static str) -> State {
        State { work, handles: Arc::new(handles), _life: life, kind }
    }

    /// Hands the work to the host.
    ///
    /// # Safety
    /// `work` is a table that the host made, with all fields of this version.
    pub(super) unsafe fn hand_over(self, work: *mut abi::Work) {
        // SAFETY: the caller's.
        unsafe {
            (*work).abort_state = Arc::as_ptr(&self.handles).cast_mut().cast();
            (*work).state = Box::into_raw(Box::new(self)).cast();
            (*work).enqueue = Some(enqueue);
            (*work).failure = Some(failure);
            (*work).destroy = Some(destroy);
            (*work).abort = Some(abort);
        }
    }
}

unsafe extern "C" fn enqueue(state: *mut c_void, stream: *const abi::Stream, error: *mut abi::Error) -> i32 {
    // SAFETY: the caller keeps the ABI: `state` is what `hand_over` gave, used by one thread at a time, and not destroyed; `stream` is the
    // host's for this call.
    unsafe {
        guarded(
            error,
            |_| &[],
            || {
                let state = &mut *state.cast::<State>();
                Ok(state.work.enqueue(&mut PluginStream::new(stream, state.kind)?)?)
            },
        )
    }
}

unsafe extern "C" fn failure(state: *mut c_void, text: *mut c_char, capacity: u32) -> i32 {
    // SAFETY: the caller keeps the ABI, as above; `text` has `capacity` bytes for this function to write.
    unsafe {
        let found = catch(|| (*state.cast::<State>()).work.failure()).unwrap_or_else(Some);
        let Some(found) = found else { return 0 };
        if !text.is_null() && capacity != 0 {
            text.write_bytes(0, capacity as usize);
            write_line(from_raw_parts_mut(text, capacity as usize), &found);
        }
        1
    }
}

unsafe extern "C" fn destroy(state: *mut c_void) {
    // SAFETY: the caller keeps the ABI: as above, and this is the last call.
    let _ = catch(|| drop(unsafe { Box::from_raw(state.cast::<State>()) }));
}

unsafe extern "C" fn abort(handles: *mut c_void) {
    // SAFETY: the caller keeps the ABI: these are the state's handles, which stay until it is destroyed and are only read.
    let handles = unsafe { &*handles.cast::<Handles>() };
    for handle in handles {
        let _ = catch(|| handle.abort());
    }
}
