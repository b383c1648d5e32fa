//! This rank's communicators, and their end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use squall_core::{Abort, CommId, DeviceError, World};

use crate::NAME;
use crate::api::Comm;
use crate::process::Process;

/// The thread's name, within the system's 15 bytes.
const THREAD: &str = "squall-mpi-new";

/// The most that one call counts.
static LARGEST_COUNT: AtomicU64 = AtomicU64::new(i32::MAX as u64);

/// Lets connections made from now on split what has more elements than that, as what MPI cannot count is split: for tests of the
/// splitting. Must be equal on all ranks.
#[doc(hidden)]
pub fn set_largest_count(count: u64) {
    LARGEST_COUNT.store(count.clamp(1, i32::MAX as u64), Ordering::Relaxed);
}

/// One rank's communicators of one plan group. They are freed with it, unless calls were left in flight.
pub(crate) struct Connection {
    process: &'static Process,
    comms: Vec<(CommId, Comm)>,
    stop: Arc<Stop>,
    largest: u64,
}

impl Connection {
    /// Makes the communicators, in their order. Waits for all ranks, which have said that they come; MPI makes communicators by blocking
    /// calls, so that a thread does it, which is left behind at the deadline.
    pub(crate) fn new(
        process: &'static Process,
        world: &Arc<World>,
        comms: &[CommId],
        deadline: Instant,
    ) -> Result<Connection, DeviceError> {
        let since = Instant::now();
        let (done, outcome) = mpsc::channel();
        let (world, comms) = (world.clone(), comms.to_vec());
        let body = move || {
            let made = make(process, &world, &comms);
            // Where the caller has gone, MPI is used no more.
            let _ = done.send(made);
        };
        let spawned = thread::Builder::new().name(THREAD.to_string()).spawn(body);
        // The other ranks make theirs, and wait for this one.
        let failed = |why: String| {
            process.leave(why.clone());
            DeviceError::Failed(why)
        };
        let thread = spawned.map_err(|error| failed(format!("no thread to make communicators: {error}")))?;
        match outcome.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(made) => {
                // It has nothing left to do but to end.
                let _ = thread.join();
                let comms = made.inspect_err(|error| process.leave(error.to_string()))?;
                process.connected();
                let largest = LARGEST_COUNT.load(Ordering::Relaxed);
                Ok(Connection { process, comms, stop: Arc::default(), largest })
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let waited = since.elapsed();
                let text = format!(
                    "the communicators were not made on rank {} after {waited:.1?}, when the deadline passed: MPI_Comm_dup or \
                     MPI_Comm_split has not come back",
                    process.rank()
                );
                process.leave(text.clone());
                Err(DeviceError::Late(text))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(failed("the thread that made communicators panicked".to_string()))
            }
        }
    }

    /// Errs once the connection was aborted, or MPI can be used no more.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        if self.stop.is_aborted() { Err(DeviceError::Aborted) } else { self.process.check() }
    }

    pub(crate) fn process(&self) -> &'static Process {
        self.process
    }

    pub(crate) fn stop(&self) -> &Arc<Stop> {
        &self.stop
    }

    /// The most that one call counts.
    pub(crate) fn largest(&self) -> u64 {
        self.largest
    }

    pub(crate) fn comm(&self, comm: CommId) -> Result<Comm, DeviceError> {
        let found = self.comms.iter().find(|(id, _)| *id == comm).map(|(_, comm)| *comm);
        found.ok_or_else(|| {
            DeviceError::Failed(format!("the library `{NAME}` was not connected for communicator {}", comm.0))
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Of an aborted connection other ranks may free nothing, and freeing is for all to do.
        if self.check().is_ok() {
            for (_, comm) in &self.comms {
                // SAFETY: batches hold the connection, so that nobody uses it any more.
                unsafe { comm.free() };
            }
        }
        self.process.disconnected();
    }
}

/// Makes this rank's part of every communicator.
fn make(process: &Process, world: &World, comms: &[CommId]) -> Result<Vec<(CommId, Comm)>, DeviceError> {
    let made = comms.iter().map(|&id| {
        let missing =
            || DeviceError::Failed(format!("rank {} has no part in communicator {}", process.rank(), id.0));
        let part = world.part(id, process.rank()).ok_or_else(missing)?;
        let comm = match id {
            CommId::WORLD => process.base().duplicate()?,
            // A world has far fewer ranks than 31 bits count.
            _ => process.base().split(part.index as i32, part.rank as i32)?,
        };
        let (place, expected) = (comm.place()?, (part.rank, part.size()));
        if place != expected {
            let name = world.name(id);
            return Err(DeviceError::Failed(format!(
                "MPI made this rank {} of {} in communicator `{name}`, where it is {} of {}",
                place.0, place.1, expected.0, expected.1
            )));
        }
        Ok((id, comm))
    });
    made.collect()
}

/// The word that stops this rank's work in flight.
#[derive(Default)]
pub(crate) struct Stop(AtomicBool);

impl Abort for Stop {
    fn abort(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What the ops find as their session.
pub(crate) struct RankSession(pub(crate) Arc<Connection>);
