//! What all ranks of a connection share: where each waits, and how all of them are made to leave.

use std::sync::atomic::{AtomicBool, Ordering};

use squall_core::wait::Gate;
use squall_core::{Abort, DeviceError};

/// One connection's ranks, numbered as in `Connect::local`.
pub(crate) struct Hub {
    aborted: AtomicBool,
    seats: Box<[Seat]>,
}

/// One rank. On lines of its own, since its neighbours poll theirs.
#[derive(Default)]
#[repr(align(128))]
struct Seat {
    /// Where the rank waits, for one thing at a time.
    gate: Gate,
    /// Whether it may be touching other ranks' buffers.
    busy: AtomicBool,
}

impl Hub {
    pub(crate) fn new(ranks: usize) -> Hub {
        Hub { aborted: AtomicBool::new(false), seats: (0..ranks).map(|_| Seat::default()).collect() }
    }

    /// Errs once the connection was aborted.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        if self.is_aborted() { Err(DeviceError::Aborted) } else { Ok(()) }
    }

    /// Waits as the rank at `seat` until `ready`, or errs when the connection is aborted before that. Who makes
    /// `ready` true calls [`Hub::wake`] for this seat.
    pub(crate) fn wait(&self, seat: usize, ready: impl Fn() -> bool) -> Result<(), DeviceError> {
        self.seats[seat].gate.wait(None, || ready() || self.is_aborted());
        if ready() { Ok(()) } else { Err(DeviceError::Aborted) }
    }

    /// Lets the rank at `seat` look again at what it waits for.
    pub(crate) fn wake(&self, seat: usize) {
        self.seats[seat].gate.notify();
    }

    /// Runs `work`, which touches other ranks' buffers and waits for nothing, as the rank at `seat`; or errs
    /// without running it when the connection was aborted.
    ///
    /// The owner of a buffer that it has made known to others waits either for their word that they are done, or
    /// for an abort and then for [`Hub::settle`]. So the buffer lives while `work` runs: the flag is raised before the
    /// abort is looked for, and an owner looks for the flag after it has seen the abort; with all four steps
    /// in one sequentially consistent order, either `work` does not run or the owner sees the flag.
    pub(crate) fn touch<R>(&self, seat: usize, work: impl FnOnce() -> R) -> Result<R, DeviceError> {
        let busy = &self.seats[seat].busy;
        busy.store(true, Ordering::SeqCst);
        let outcome = self.check().map(|()| work());
        busy.store(false, Ordering::SeqCst);
        if self.is_aborted() {
            self.wake_all();
        }
        outcome
    }

    /// After an abort: waits until no other rank touches buffers of the rank at `seat`. Whoever raises its flag
    /// later sees the abort and touches nothing.
    pub(crate) fn settle(&self, seat: usize) {
        for other in (0..self.seats.len()).filter(|&other| other != seat) {
            self.seats[seat].gate.wait(None, || !self.seats[other].busy.load(Ordering::SeqCst));
        }
    }

    fn wake_all(&self) {
        self.seats.iter().for_each(|seat| seat.gate.notify());
    }
}

impl Abort for Hub {
    fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::wait::Running;
    use std::time::Duration;

    #[test]
    fn an_owner_does_not_leave_while_its_buffer_is_in_use() {
        let hub = Hub::new(2);
        let (entered, left) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _running = Running::enter();
                let used = hub.touch(1, || {
                    entered.store(true, Ordering::SeqCst);
                    // Long enough for the owner to fall asleep over it.
                    std::thread::sleep(Duration::from_millis(30));
                    left.store(true, Ordering::SeqCst);
                });
                assert_eq!(used, Ok(()));
            });
            let _running = Running::enter();
            while !entered.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            hub.abort();
            assert_eq!(hub.wait(0, || false), Err(DeviceError::Aborted));
            hub.settle(0);
            assert!(left.load(Ordering::SeqCst), "the owner left during the use");
        });
        assert_eq!(hub.touch(0, || ()), Err(DeviceError::Aborted));
    }

    #[test]
    fn what_is_ready_counts_though_aborted() {
        let hub = Hub::new(1);
        hub.abort();
        let _running = Running::enter();
        assert_eq!(hub.wait(0, || true), Ok(()));
    }
}
