//! How threads of a plan group wait for each other: polling first, asleep later.
//!
//! Between two steps, and between the ranks of a host collective, the other thread is mostly a microsecond away, and a
//! sleep costs fifty. So a wait polls: with a CPU pause for a microsecond if all running threads have a core, and then,
//! or otherwise at once, giving the core up between looks, since another process may have taken the other thread's core,
//! and then that thread needs this one (a pause alone costs a time slice, some milliseconds). After `SQUALL_SPIN_US`
//! (default 1000) it sleeps. The cost: an idle group burns a core for that long.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Threads that run or poll on behalf of plan groups in this process.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Counts the current thread as running while it lives: a rank's thread, or a caller that waits for a step.
#[derive(Debug)]
pub struct Running(());

impl Running {
    /// Counts this thread until the guard is dropped.
    pub fn enter() -> Running {
        // Read here rather than in a first wait, which may be within a step: reading allocates.
        limits();
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Running(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where threads wait for a condition that other threads make true.
///
/// Whoever changes what a condition reads calls [`Gate::notify`] after the change. That takes no lock unless a
/// waiter sleeps.
#[derive(Debug, Default)]
pub struct Gate {
    sleepers: AtomicU32,
    lock: Mutex<()>,
    wake: Condvar,
}

/// How long a wait keeps its core to itself.
const ALONE: Duration = Duration::from_micros(1);

impl Gate {
    /// A gate that nobody waits at.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Waits until `ready` or the deadline; returns the last answer of `ready`. Called by threads counted as
    /// [`Running`]. `ready` must not block; it may run with the gate's lock held.
    pub fn wait(&self, until: Option<Instant>, ready: impl Fn() -> bool) -> bool {
        if ready() {
            return true;
        }
        let (cores, patience) = *limits();
        let start = Instant::now();
        loop {
            let now = Instant::now();
            if RUNNING.load(Ordering::Relaxed) <= cores {
                for _ in 0..32 {
                    std::hint::spin_loop();
                    if ready() {
                        return true;
                    }
                }
            }
            if RUNNING.load(Ordering::Relaxed) > cores || now - start >= ALONE {
                std::thread::yield_now();
                if ready() {
                    return true;
                }
            }
            if until.is_some_and(|until| now >= until) {
                return ready();
            }
            if now - start >= patience {
                return self.sleep(until, ready);
            }
        }
    }

    fn sleep(&self, until: Option<Instant>, ready: impl Fn() -> bool) -> bool {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // With the fence in `notify`: either this thread sees the change, or the notifier sees this sleeper.
        fence(Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = loop {
            if ready() {
                break true;
            }
            guard = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break ready(),
                Some(left) => self.wake.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        };
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        RUNNING.fetch_add(1, Ordering::Relaxed);
        answer
    }

    /// Wakes whoever sleeps here to look at the condition again.
    pub fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            // Passing through the lock lets a sleeper that has just looked fall asleep before it is woken.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }
}

/// Waits for something that no thread of this process makes true, and so nobody notifies: a word that a device writes.
///
/// Polls `ready` as [`Gate::wait`] does, and calls `ask` every `period`, which may end the wait by answering true: the place to ask
/// whether the device has failed. Where a gate's waiter would sleep, this one naps, a sixty-fourth of the time waited so far and at
/// most a millisecond, so that what it waits for is seen little late. Returns whether `ready` or `ask` answered true before the deadline.
pub fn watch(
    until: Option<Instant>,
    period: Duration,
    ready: impl Fn() -> bool,
    mut ask: impl FnMut() -> bool,
) -> bool {
    if ready() {
        return true;
    }
    let (cores, patience) = *limits();
    // A nap lasts some fifty microseconds however short it is asked to be: none before that is little beside the wait.
    let patience = patience.max(Duration::from_millis(10));
    let start = Instant::now();
    let mut asked = start;
    loop {
        let now = Instant::now();
        let alone = RUNNING.load(Ordering::Relaxed) <= cores;
        if now - start >= patience {
            RUNNING.fetch_sub(1, Ordering::Relaxed);
            let nap = ((now - start) / 64).min(Duration::from_millis(1));
            std::thread::sleep(until.map_or(nap, |until| nap.min(until.saturating_duration_since(now))));
            RUNNING.fetch_add(1, Ordering::Relaxed);
        } else if alone {
            for _ in 0..32 {
                std::hint::spin_loop();
                if ready() {
                    return true;
                }
            }
        } else {
            std::thread::yield_now();
        }
        if ready() {
            return true;
        }
        if now - asked >= period {
            asked = now;
            if ask() {
                return true;
            }
        }
        if until.is_some_and(|until| now >= until) {
            return ready();
        }
    }
}

/// Cores of this process, and how long to poll.
fn limits() -> &'static (usize, Duration) {
    static LIMITS: OnceLock<(usize, Duration)> = OnceLock::new();
    LIMITS.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = std::env::var("SQUALL_SPIN_US").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
        (cores, Duration::from_micros(spin))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_sleeper_is_woken_and_a_deadline_ends_a_wait() {
        let (gate, flag) = (Gate::new(), AtomicBool::new(false));
        let _running = Running::enter();
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(!gate.wait(Some(soon), || flag.load(Ordering::Acquire)));
        assert!(Instant::now() >= soon);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _running = Running::enter();
                assert!(gate.wait(None, || flag.load(Ordering::Acquire)));
            });
            // Until the other thread sleeps; polling would also see the flag, a lost wake-up would not.
            while gate.sleepers.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            flag.store(true, Ordering::Release);
            gate.notify();
        });
    }

    #[test]
    fn a_watch_ends_by_what_it_waits_for_by_the_answer_or_by_the_deadline() {
        let _running = Running::enter();
        let (flag, period) = (AtomicBool::new(false), Duration::from_micros(100));
        let soon = Instant::now() + Duration::from_millis(20);
        let mut asked = 0;
        let ask = || {
            asked += 1;
            false
        };
        assert!(!watch(Some(soon), period, || flag.load(Ordering::Acquire), ask));
        assert!(Instant::now() >= soon && asked > 2, "{asked}");
        assert!(watch(None, period, || flag.load(Ordering::Acquire), || true), "the answer ends it");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(15));
                flag.store(true, Ordering::Release);
            });
            assert!(watch(None, period, || flag.load(Ordering::Acquire), || false));
        });
    }

    #[test]
    fn no_wake_up_is_lost_under_contention() {
        let (gate, turn) = (Gate::new(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for me in 0..4 {
                let (gate, turn) = (&gate, &turn);
                scope.spawn(move || {
                    let _running = Running::enter();
                    for round in 0..500 {
                        assert!(gate.wait(None, || turn.load(Ordering::Acquire) == round * 4 + me));
                        turn.fetch_add(1, Ordering::Release);
                        gate.notify();
                    }
                });
            }
        });
        assert_eq!(turn.load(Ordering::Relaxed), 2000);
    }
}
