//! What a terminal shows of a run that goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use squall_core::Interrupt;

const FORM: &str = "{bar:30} {pos}/{len} steps, {per_sec}  {msg}";

/// How often the bar looks how far the run is.
const LOOK: Duration = Duration::from_millis(100);

/// A bar on standard error, with a thread that moves it; both are gone when this is dropped. Nothing of it exists where
/// standard error is no terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    ended: Arc<AtomicBool>,
    mover: Option<JoinHandle<()>>,
}

impl Progress {
    /// A bar for so many steps; `None` where nobody would see it.
    pub(crate) fn start(steps: u64, run: &Interrupt) -> Option<Progress> {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        if bar.is_hidden() {
            return None;
        }
        bar.set_position(run.steps_done()); // of earlier runs
        bar.reset_eta();
        bar.set_style(ProgressStyle::with_template(FORM).ok()?);
        let ended = Arc::new(AtomicBool::new(false));
        let (moved, run, until) = (bar.clone(), run.clone(), ended.clone());
        let mover = thread::Builder::new().name("squall-progress".to_string()).spawn(move || {
            while !until.load(Ordering::Acquire) {
                moved.set_position(run.steps_done());
                thread::park_timeout(LOOK);
            }
        });
        Some(Progress { bar, ended, mover: mover.ok() })
    }

    /// Shows watched values beside the bar.
    pub(crate) fn show(&self, values: String) {
        self.bar.set_message(values);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(mover) = self.mover.take() {
            mover.thread().unpark();
            let _ = mover.join();
        }
        self.bar.finish_and_clear();
    }
}
