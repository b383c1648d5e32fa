//! Calls of NCCL that may never come back, on a thread that the caller can leave behind.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::NcclError;

/// The thread's name, within the system's 15 bytes.
pub(crate) const THREAD: &str = "squall-nccl-new";

/// How long the caller waits, past the deadline, for a thread that has seen it and takes back what it made.
const CLEANUP: Duration = Duration::from_secs(5);

/// Runs `work` on a thread of its own and waits for it until the deadline. A call of NCCL that has not come back by then is left alone:
/// the error names it, and the thread keeps all that it uses. When the call does come back, `work` ends at its next call, and what it
/// gives is dropped there.
///
/// The caller's current device stays as it is, and what a failed call leaves in NCCL's state of the thread goes with it.
pub(crate) fn run<T: Send + 'static>(
    deadline: Instant,
    work: impl FnOnce(&Watch) -> Result<T, NcclError> + Send + 'static,
) -> Result<T, NcclError> {
    let watch = Arc::new(Watch::new(deadline));
    let (done, outcome) = mpsc::channel();
    let watched = watch.clone();
    let body = move || {
        // Dropped here when the caller has gone.
        let _ = done.send(work(&watched));
    };
    let thread = thread::Builder::new().name(THREAD.to_string()).spawn(body);
    let thread = thread.map_err(|error| NcclError::Thread(error.to_string()))?;
    let mut ended = outcome.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    if ended.is_err() && !watch.is_inside() {
        ended = outcome.recv_timeout(CLEANUP);
    }
    if let Err(RecvTimeoutError::Timeout) = ended {
        return Err(watch.stuck());
    }
    // It has nothing left to do but to end.
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
    ended.unwrap_or_else(|_| Err(watch.stuck()))
}

/// Where the thread is, as its caller sees it.
pub(crate) struct Watch {
    deadline: Instant,
    last: Mutex<Last>,
}

/// The last call that was begun.
struct Last {
    function: &'static str,
    /// The rank whose call it is; `None` while NCCL works for all ranks of this process.
    rank: Option<u32>,
    since: Instant,
    /// Whether it has not come back.
    inside: bool,
}

impl Watch {
    fn new(deadline: Instant) -> Watch {
        let last = Last { function: "", rank: None, since: Instant::now(), inside: false };
        Watch { deadline, last: Mutex::new(last) }
    }

    /// Makes a call that may block, or errs when the deadline has passed.
    pub(crate) fn inside<T>(
        &self,
        function: &'static str,
        call: impl FnOnce() -> Result<T, NcclError>,
    ) -> Result<T, NcclError> {
        {
            let mut last = self.last();
            *last = Last { function, rank: None, since: Instant::now(), inside: false };
            // Looked at under the lock: a caller that saw nobody inside when it had passed will see nobody.
            if self.is_over() {
                return Err(last.stuck());
            }
            last.inside = true;
        }
        let outcome = call();
        self.last().inside = false;
        outcome
    }

    /// Notes whose call it is.
    pub(crate) fn on(&self, rank: Option<u32>) {
        self.last().rank = rank;
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// The time since the last call was begun.
    pub(crate) fn waited(&self) -> Duration {
        self.last().since.elapsed()
    }

    fn is_inside(&self) -> bool {
        self.last().inside
    }

    fn stuck(&self) -> NcclError {
        self.last().stuck()
    }

    /// Held for moments only.
    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Last {
    fn stuck(&self) -> NcclError {
        NcclError::Stuck { function: self.function, rank: self.rank, waited: self.since.elapsed() }
    }
}
