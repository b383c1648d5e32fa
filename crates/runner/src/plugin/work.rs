//! What a plugin made ready, driven as any other work; and the stream that it sees.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use squall_core::{Abort, DeviceError, DevicePtr, Memory, Stream, Work};
use squall_plugin::abi::{self, Header, status};
use squall_plugin::convert::{read_device_error, read_line, write_device_error};

use super::{Plugin, guarded};

/// Something that squall made ready for a plugin's work, under an address that stays.
pub(super) struct Inner(pub(super) Box<dyn Work>);

/// What a plugin's work uses: squall's, freed after the work itself.
#[derive(Default)]
pub(super) struct Uses {
    pub(super) inner: Vec<*mut Inner>,
    pub(super) memory: Vec<Box<dyn Memory>>,
}

impl Drop for Uses {
    fn drop(&mut self) {
        for inner in self.inner.drain(..) {
            // SAFETY: each was made by `Box::into_raw` when the op was prepared, and is freed here alone.
            drop(unsafe { Box::from_raw(inner) });
        }
    }
}

/// The table that tells a plugin's work of aborts, with what it asks.
pub(super) struct Told {
    pub(super) table: abi::Abort,
    aborted: Arc<dyn Abort>,
}

impl Told {
    /// A table that stays where it is until the box is dropped.
    pub(super) fn new(aborted: Arc<dyn Abort>) -> Box<Told> {
        let table = abi::Abort {
            header: Header::of::<abi::Abort>(),
            cx: std::ptr::null_mut(),
            is_aborted: Some(is_aborted),
        };
        let mut told = Box::new(Told { table, aborted });
        told.table.cx = (&raw mut *told).cast();
        told
    }
}

unsafe extern "C" fn is_aborted(abort: *const abi::Abort) -> i32 {
    // SAFETY: the ABI: null, or the table that the plugin was given, which lives as long as its work; `cx` is the `Told` around it.
    let told = unsafe { abort.as_ref().and_then(|table| table.cx.cast::<Told>().cast_const().as_ref()) };
    // Who asks of nothing is to stop.
    i32::from(told.is_none_or(|told| guarded(|| told.aborted.is_aborted()).unwrap_or(true)))
}

/// Passes an abort on to a plugin's work, while that lives. The plugin's function is called once, from a thread of its own: it must not block, and
/// where it does all the same, it holds up neither who aborts nor, for longer than [`LEAVING`], who drops the work.
pub(super) struct PassedOn {
    aborted: AtomicBool,
    target: Mutex<Target>,
    /// Told when a call has returned.
    returned: Condvar,
}

/// How long a work that is dropped waits for a call of its `abort` that is under way.
const LEAVING: Duration = Duration::from_secs(1);

enum Target {
    /// The function and its state, to be called.
    There(unsafe extern "C" fn(*mut c_void), *mut c_void),
    /// It is being called.
    Called,
    /// It was called, or the work is about to be destroyed.
    Gone,
}

// SAFETY: the ABI lets any thread abort.
unsafe impl Send for Target {}

impl PassedOn {
    fn new(abort: unsafe extern "C" fn(*mut c_void), state: *mut c_void) -> PassedOn {
        let target = Mutex::new(Target::There(abort, state));
        PassedOn { aborted: AtomicBool::new(false), target, returned: Condvar::new() }
    }

    fn target(&self) -> MutexGuard<'_, Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets no call begin any more; whether none is under way, after a while of waiting.
    fn leave(&self) -> bool {
        let mut target = self.target();
        if let Target::There(..) = *target {
            *target = Target::Gone;
        }
        let called = |target: &mut Target| matches!(target, Target::Called);
        let waited = self.returned.wait_timeout_while(target, LEAVING, called);
        !called(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// A plugin's `abort` and its state, on the way to the thread that calls it.
struct Call(unsafe extern "C" fn(*mut c_void), *mut c_void);

// SAFETY: the ABI lets any thread abort.
unsafe impl Send for Call {}

impl Call {
    fn call(self) {
        // SAFETY: the work is not destroyed while the target is `Called`.
        unsafe { self.0(self.1) };
    }
}

/// What a plugin's work has called on an abort.
pub(super) struct Handle(Arc<PassedOn>);

impl Abort for Handle {
    fn abort(&self) {
        self.0.aborted.store(true, Ordering::Release);
        let mut target = self.0.target();
        let Target::There(abort, state) = *target else { return };
        *target = Target::Called;
        drop(target);
        let (call, passed_on) = (Call(abort, state), self.0.clone());
        let thread = thread::Builder::new().name("squall-abort".to_string()).spawn(move || {
            call.call();
            *passed_on.target() = Target::Gone;
            passed_on.returned.notify_all();
        });
        if thread.is_err() {
            // Without a thread there is nobody to call it from: the work has the flag that it asks.
            *self.0.target() = Target::Gone;
            self.0.returned.notify_all();
        }
    }

    fn is_aborted(&self) -> bool {
        self.0.aborted.load(Ordering::Acquire)
    }
}

/// A plugin's work.
pub(super) struct LoadedWork {
    // Fields are dropped in order: the work before what it asks and uses.
    filled: Filled,
    enqueue: EnqueueFn,
    passed_on: Option<Arc<PassedOn>>,
    /// What the work asks and uses, to its end.
    told: Option<Box<Told>>,
    uses: Uses,
    device: String,
    api: &'static CStr,
    plugin: &'static Plugin,
}

type EnqueueFn = unsafe extern "C" fn(*mut c_void, *const abi::Stream, *mut abi::Error) -> i32;

// SAFETY: the ABI has a work made and enqueued by the thread of its rank, and destroyed by any.
unsafe impl Send for LoadedWork {}

/// A table for a plugin to fill.
pub(super) const UNFILLED: abi::Work = abi::Work {
    header: Header::of::<abi::Work>(),
    state: std::ptr::null_mut(),
    abort_state: std::ptr::null_mut(),
    enqueue: None,
    failure: None,
    destroy: None,
    abort: None,
};

impl LoadedWork {
    /// Takes over what a plugin filled. `told` and `uses` are what it was given.
    pub(super) fn new(
        table: abi::Work,
        told: Option<Box<Told>>,
        uses: Uses,
        (device, kind): (&str, &str),
        plugin: &'static Plugin,
    ) -> Result<LoadedWork, DeviceError> {
        let filled = Filled(table);
        let Some(enqueue) = table.enqueue else {
            let text = format!("{plugin}: it made a work without an `enqueue`");
            return Err(DeviceError::Failed(text));
        };
        let passed_on = table.abort.map(|abort| Arc::new(PassedOn::new(abort, table.abort_state)));
        let api = if kind == "cuda" { c"cuda" } else { c"host" };
        Ok(LoadedWork { filled, enqueue, passed_on, told, uses, device: device.to_string(), api, plugin })
    }

    /// What is to be aborted with the group.
    pub(super) fn passed_on(&self) -> Option<Arc<Handle>> {
        self.passed_on.clone().map(|passed_on| Arc::new(Handle(passed_on)))
    }

    /// Runs the work without a stream: a kernel's host form.
    pub(super) fn launch(&mut self) -> Result<(), DeviceError> {
        let mut error = abi::Error::EMPTY;
        // SAFETY: the table is the plugin's, filled for this call; the ABI has no stream for a kernel's host form.
        let status = unsafe { (self.enqueue)(self.filled.0.state, std::ptr::null(), &raw mut error) };
        self.judge(status, &error)
    }

    fn judge(&self, status: i32, error: &abi::Error) -> Result<(), DeviceError> {
        if status == status::OK {
            return Ok(());
        }
        let aborted = self.told.as_ref().is_some_and(|told| told.aborted.is_aborted());
        Err(self.plugin.failed(status, error, &self.device, aborted))
    }
}

/// The table that a plugin filled. Its work is destroyed when this is dropped.
struct Filled(abi::Work);

impl Drop for Filled {
    fn drop(&mut self) {
        if let Some(destroy) = self.0.destroy {
            // SAFETY: the ABI: nothing is called after it, and it comes once.
            unsafe { destroy(self.0.state) };
        }
    }
}

impl Work for LoadedWork {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        let mut cx = StreamCx { stream };
        let table = abi::Stream {
            header: Header::of::<abi::Stream>(),
            cx: (&raw mut cx).cast(),
            api: self.api.as_ptr(),
            handle: Some(raw),
            enqueue: Some(enqueue_inner),
            copy: Some(copy),
        };
        let mut error = abi::Error::EMPTY;
        // SAFETY: the table is the plugin's, and its state lives until `drop`; the stream's table lives for the call.
        let status = unsafe { (self.enqueue)(self.filled.0.state, &raw const table, &raw mut error) };
        self.judge(status, &error)
    }

    fn failure(&mut self) -> Option<String> {
        let own = self.filled.0.failure.and_then(|failure| {
            let mut text = [0 as c_char; 1024];
            // SAFETY: as for `enqueue`; the plugin writes no more than it is told.
            let found = unsafe { failure(self.filled.0.state, text.as_mut_ptr(), text.len() as u32) };
            (found != 0).then(|| match read_line(&text) {
                text if text.is_empty() => {
                    format!("{}: it says that its work has failed, and no more", self.plugin)
                }
                text => format!("{}: {text}", self.plugin),
            })
        });
        // SAFETY: these are the work's own, which nothing else uses between its calls.
        own.or_else(|| self.uses.inner.iter().find_map(|inner| unsafe { (**inner).0.failure() }))
    }
}

impl Drop for LoadedWork {
    fn drop(&mut self) {
        // No abort comes after the work is destroyed. A work that an abort does not leave is left behind, with all that it uses.
        if self.passed_on.as_ref().is_some_and(|passed_on| !passed_on.leave()) {
            self.filled.0.destroy = None;
            std::mem::forget(self.told.take());
            std::mem::forget(std::mem::take(&mut self.uses));
        }
    }
}

/// What a plugin's calls on its stream come to.
struct StreamCx<'a> {
    stream: &'a mut dyn Stream,
}

/// The stream behind a table, for the time of a call of the plugin's.
///
/// # Safety
/// `table` is null or the one that [`LoadedWork::enqueue`] made, and its call has not returned.
unsafe fn behind<'a>(table: *const abi::Stream) -> Result<&'a mut StreamCx<'a>, DeviceError> {
    // SAFETY: the caller's.
    let cx = unsafe { table.as_ref().and_then(|table| table.cx.cast::<StreamCx<'a>>().as_mut()) };
    cx.ok_or_else(|| DeviceError::Failed("a null stream".to_string()))
}

unsafe extern "C" fn raw(table: *const abi::Stream) -> u64 {
    // SAFETY: the ABI: the table is the one of the call.
    guarded(|| unsafe { behind(table) }.map_or(0, |cx| cx.stream.raw().handle)).unwrap_or(0)
}

unsafe extern "C" fn enqueue_inner(
    table: *const abi::Stream,
    inner: *mut abi::Inner,
    error: *mut abi::Error,
) -> i32 {
    fallible(error, || {
        // SAFETY: the ABI: the table is the one of the call.
        let cx = unsafe { behind(table) }?;
        // SAFETY: the ABI: null, or what `Prepare::kernel` or `Prepare::op` gave, which lives as long as the work that asks.
        let inner = unsafe { inner.cast::<Inner>().as_mut() };
        let null = || DeviceError::Failed("a null work is to be enqueued".to_string());
        inner.ok_or_else(null)?.0.enqueue(cx.stream)
    })
}

unsafe extern "C" fn copy(
    table: *const abi::Stream,
    dst: u64,
    src: u64,
    bytes: u64,
    error: *mut abi::Error,
) -> i32 {
    fallible(error, || {
        // SAFETY: the ABI: the table is the one of the call.
        let cx = unsafe { behind(table) }?;
        let apart = |a: u64, b: u64| a.checked_add(bytes).is_some_and(|end| end <= b);
        if bytes > 0 && !apart(dst, src) && !apart(src, dst) {
            return Err(DeviceError::Failed("a copy whose two places overlap".to_string()));
        }
        // SAFETY: the ABI: the plugin vouches for both places, as any op does.
        unsafe { cx.stream.copy(DevicePtr(dst), DevicePtr(src), bytes) }
    })
}

/// Does something for a plugin, and tells it what came of it. Nothing unwinds into the plugin.
pub(super) fn fallible(error: *mut abi::Error, body: impl FnOnce() -> Result<(), DeviceError>) -> i32 {
    let outcome = guarded(body).unwrap_or_else(|| Err(DeviceError::Failed("squall panicked".to_string())));
    match outcome {
        Ok(()) => status::OK,
        // SAFETY: the ABI: null, or an error that the plugin made for this call.
        Err(failed) => match unsafe { error.as_mut() } {
            Some(error) => write_device_error(&failed, error),
            None => status::FAILED,
        },
    }
}

impl Plugin {
    /// The error of one of its functions, in words that name it. What it is not to blame for is told as it is: an abort that there was.
    pub(super) fn failed(&self, status: i32, error: &abi::Error, device: &str, aborted: bool) -> DeviceError {
        let by = |text: String| match text.is_empty() {
            true => format!("{self}: it says no more"),
            false => format!("{self}: {text}"),
        };
        let help = read_line(&error.help);
        let by =
            |text: String| if help.is_empty() { by(text) } else { format!("{}; help: {help}", by(text)) };
        match read_device_error(status, error, device) {
            DeviceError::Aborted if !aborted => {
                DeviceError::Failed(format!("{self}: it says that it was aborted, and nobody has aborted"))
            }
            DeviceError::Deadline => DeviceError::Late(by("it says that the deadline passed".to_string())),
            DeviceError::Late(text) => DeviceError::Late(by(text)),
            DeviceError::Failed(text) => DeviceError::Failed(by(text)),
            DeviceError::Unsupported(text) => DeviceError::Unsupported(by(text)),
            DeviceError::OutOfMemory { device, bytes, message } => {
                DeviceError::OutOfMemory { device, bytes, message: by(message) }
            }
            DeviceError::Lost { device, message } => DeviceError::Lost { device, message: by(message) },
            other => other,
        }
    }
}
