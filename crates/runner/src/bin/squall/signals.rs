//! Ctrl-C and termination: the first asks the run to stop, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use squall_core::Interrupt;

/// Whether somebody wants the run to stop, and how to stop it.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<State>);

#[derive(Default)]
struct State {
    wanted: AtomicBool,
    running: Mutex<Vec<Interrupt>>,
}

impl Stop {
    /// From here on, SIGINT, SIGTERM and SIGHUP want the run to stop. A second one ends the process at once; outputs
    /// are whole or absent even then, but a temporary file may stay.
    pub(crate) fn on_signals() -> Stop {
        let stop = Stop::default();
        let wanted = stop.clone();
        // Where a handler cannot be set, a signal ends the process, as it does by default.
        if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) {
            std::thread::spawn(move || signals.forever().for_each(|_| wanted.want()));
        }
        // With a handler, whatever it does, a file beyond the limit of sizes is an error of the write, as on a full disk.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
        stop
    }

    fn want(&self) {
        if self.0.wanted.swap(true, Ordering::AcqRel) {
            // Not through the exit handlers, which would wait for whatever the process hangs in, such as the loader.
            signal_hook::low_level::exit(130);
        }
        let running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.iter().for_each(Interrupt::interrupt);
    }

    /// Whether the run is to stop.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.wanted.load(Ordering::Acquire)
    }

    /// From here on this, too, stops the run.
    pub(crate) fn through(&self, interrupt: &Interrupt) {
        let mut running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: a signal comes either before this look or after the handle is there.
        if self.is_wanted() {
            interrupt.interrupt();
        }
        running.push(interrupt.clone());
    }
}
