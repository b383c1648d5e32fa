//! The communicators of one connection, and the thread that ends them.
//!
//! Nobody but that thread ends a communicator. Told to abort, it calls `ncclCommAbort` for each inside an NCCL group: kernels and calls
//! in flight are released, while the freeing waits for the group's end. Told to close, when no session is left, it ends that group, or,
//! where nothing was aborted, destroys the communicators in order.

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use squall_core::{Abort, Device, DeviceError};

use crate::api::{Api, IN_PROGRESS, RawComm, SUCCESS};
use crate::error::NcclError;

/// How long the last session's drop waits for communicators to be freed. NCCL takes about a second after an abort.
const PATIENCE: Duration = Duration::from_secs(5);
/// The thread's name, within the system's 15 bytes.
const THREAD: &str = "squall-nccl-end";

/// A communicator of one rank, alive as long as its connection is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Comm(NonNull<c_void>);

// SAFETY: NCCL binds a communicator to a device, not to a thread; ranks are moved to their threads before they call.
unsafe impl Send for Comm {}
// SAFETY: as above; only the connection's thread calls concurrently, and only to abort, which NCCL allows.
unsafe impl Sync for Comm {}

impl Comm {
    pub(crate) fn raw(self) -> RawComm {
        self.0.as_ptr()
    }
}

/// Where NCCL writes the communicators of the local ranks, one a rank.
pub(crate) struct Slots(Box<[AtomicPtr<c_void>]>);

impl Slots {
    /// The address to give to NCCL for a rank, which may write until its call has ended; null past the last rank.
    pub(crate) fn place(&self, local: usize) -> *mut RawComm {
        self.0.get(local).map_or(null_mut(), AtomicPtr::as_ptr)
    }

    /// What NCCL has written for a rank.
    pub(crate) fn get(&self, local: usize) -> Option<Comm> {
        NonNull::new(self.0.get(local)?.load(Ordering::Acquire)).map(Comm)
    }
}

/// The communicators of this process's ranks in one connection. Dropped, it closes them, and waits for it a limited time.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    patience: Duration,
}

struct Shared {
    api: &'static Api,
    /// One a local rank; its device must outlive the communicators.
    devices: Vec<Arc<dyn Device>>,
    aborted: AtomicBool,
    orders: Mutex<Orders>,
    changed: Condvar,
}

#[derive(Default)]
struct Orders {
    comms: Vec<Arc<Slots>>,
    abort: bool,
    close: bool,
    closed: bool,
}

impl Connection {
    /// A connection without communicators yet, for ranks on these devices. Starts its thread.
    pub(crate) fn new(api: &'static Api, devices: Vec<Arc<dyn Device>>) -> Result<Connection, NcclError> {
        let shared = Arc::new(Shared {
            api,
            devices,
            aborted: AtomicBool::new(false),
            orders: Mutex::default(),
            changed: Condvar::new(),
        });
        let closer = shared.clone();
        let thread = std::thread::Builder::new()
            .name(THREAD.to_string())
            .spawn(move || closer.run())
            .map_err(|error| NcclError::Thread(error.to_string()))?;
        Ok(Connection { shared, thread: Some(thread), patience: PATIENCE })
    }

    /// Room for one communicator of every local rank, which the connection ends with the others.
    pub(crate) fn slots(&self) -> Arc<Slots> {
        let slots = Arc::new(Slots(self.shared.devices.iter().map(|_| AtomicPtr::default()).collect()));
        self.shared.orders().comms.push(slots.clone());
        slots
    }

    pub(crate) fn api(&self) -> &'static Api {
        self.shared.api
    }

    /// The handle that aborts it. Does not keep it from closing.
    pub(crate) fn abort_handle(&self) -> Arc<dyn Abort> {
        self.shared.clone()
    }

    /// Errs once it was aborted.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        if self.shared.is_aborted() { Err(DeviceError::Aborted) } else { Ok(()) }
    }

    /// Ends all communicators, whatever they do. False when that is not over in time: NCCL may then still write to slots.
    pub(crate) fn give_up(mut self) -> bool {
        self.shared.abort();
        self.close()
    }

    /// Closes, and waits a limited time. False when it was not over by then; the thread goes on alone.
    fn close(&mut self) -> bool {
        let Some(thread) = self.thread.take() else { return true };
        let until = Instant::now() + self.patience;
        let mut orders = self.shared.orders();
        orders.close = true;
        self.shared.changed.notify_all();
        while !orders.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            orders = self.shared.changed.wait_timeout(orders, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(orders);
        // It has nothing left to do but to end.
        let _ = thread.join();
        true
    }

    #[cfg(test)]
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

impl Abort for Shared {
    fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        self.orders().abort = true;
        self.changed.notify_all();
    }

    fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }

    /// NCCL's asynchronous errors. It may be asked while a rank uses the communicator: of one that is connected this only reads.
    fn faults(&self) -> Vec<String> {
        // Held over the calls, so that no communicator is ended meanwhile.
        let orders = self.orders();
        if orders.abort || orders.close {
            return Vec::new();
        }
        let mut faults = Vec::new();
        for (local, device) in self.devices.iter().enumerate() {
            for comm in orders.comms.iter().filter_map(|slots| slots.get(local)) {
                let (_, state) = self.state(comm);
                if !matches!(state, SUCCESS | IN_PROGRESS) {
                    let error = self.api.error("ncclCommGetAsyncError", None, state);
                    faults.push(format!("NCCL on {}: {error}", device.id()));
                }
            }
        }
        faults
    }
}

impl Shared {
    /// Held for moments only, never across a call of NCCL that may wait.
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: impl Fn(&Orders) -> bool) -> MutexGuard<'_, Orders> {
        let mut orders = self.orders();
        while !until(&orders) {
            orders = self.changed.wait(orders).unwrap_or_else(PoisonError::into_inner);
        }
        orders
    }

    /// The thread. Errors have nobody to go to: what cannot be ended is left.
    fn run(&self) {
        let orders = self.wait(|orders| orders.abort || orders.close);
        let abort = orders.abort;
        let comms: Vec<Comm> = orders
            .comms
            .iter()
            .flat_map(|slots| (0..self.devices.len()).filter_map(|local| slots.get(local)))
            .collect();
        drop(orders);
        if let Some(device) = self.devices.first() {
            // NCCL comes back to the thread's current device, which would otherwise be the first of the machine.
            let _ = device.make_current();
        }
        if self.api.group_start().is_ok() {
            for comm in comms {
                if abort { self.abort_one(comm) } else { self.end_one(comm) }
            }
            drop(self.wait(|orders| orders.close));
            let _ = self.api.group_end(None);
        }
        self.orders().closed = true;
        self.changed.notify_all();
    }

    /// Whether NCCL could be asked, and its asynchronous error.
    fn state(&self, comm: Comm) -> (c_int, c_int) {
        let mut state: c_int = SUCCESS;
        // SAFETY: the communicator is alive, and `state` is written.
        let asked = unsafe { (self.api.functions.async_error)(comm.raw(), &mut state) };
        (asked, state)
    }

    fn abort_one(&self, comm: Comm) {
        // SAFETY: the communicator is alive; inside the group this releases its users and frees nothing yet.
        unsafe { (self.api.functions.abort)(comm.raw()) };
    }

    /// Destroys a communicator that works, which nobody uses any more. One that failed can only be aborted.
    fn end_one(&self, comm: Comm) {
        if self.state(comm) == (SUCCESS, SUCCESS) {
            // SAFETY: the communicator is alive; no session or work is left that could call it.
            unsafe { (self.api.functions.destroy)(comm.raw()) };
        } else {
            self.abort_one(comm);
        }
    }
}

#[cfg(test)]
mod tests;
