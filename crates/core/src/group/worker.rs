//! A rank's thread: carries out commands on the rank's plan until it is told to end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::device::DeviceError;
use crate::graph::Phase;
use crate::group::shared::{Command, Outcome, Shared};
use crate::plan::{ExecutionPlan, TaskError};
use crate::wait::Running;

pub(super) fn run(shared: &Arc<Shared>, place: usize) {
    let _running = Running::enter();
    let mut plan: Option<ExecutionPlan> = None;
    let mut seen = 0;
    loop {
        let command = shared.next(&mut seen);
        match command {
            Command::Exit => break,
            Command::Call => {
                let call = shared.ranks[place].call.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(call) = call {
                    // The closure reports its own result; a panic drops its sender, which reports that.
                    let _ = catch_unwind(AssertUnwindSafe(|| call(&mut plan)));
                }
            }
            Command::Run(phase) => {
                let result = catch_unwind(AssertUnwindSafe(|| phase_on(shared, place, plan.as_mut(), phase)));
                let outcome = match result {
                    Ok(Ok(())) => None,
                    Ok(Err(TaskError { error: DeviceError::Aborted, .. })) => Some(Outcome::Released),
                    Ok(Err(error)) => Some(Outcome::Failed(error)),
                    Err(panic) => {
                        let error = DeviceError::Failed(format!("it panicked: {}", panic_text(&*panic)));
                        let task = shared.ranks[place].progress.get().map(|p| p.read() as usize);
                        Some(Outcome::Failed(TaskError { task, error }))
                    }
                };
                if let Some(outcome) = outcome {
                    shared.fail(place, outcome);
                }
            }
        }
        shared.arrive(place, seen);
    }
    if shared.leak.load(Ordering::Acquire) {
        // Another thread may still reach this rank's memory.
        std::mem::forget(plan);
    } else {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(plan)));
    }
    shared.arrive(place, seen);
}

fn phase_on(
    shared: &Shared,
    place: usize,
    plan: Option<&mut ExecutionPlan>,
    phase: Phase,
) -> Result<(), TaskError> {
    let Some(plan) = plan else { return Ok(()) };
    let state = &shared.ranks[place];
    for _ in 0..shared.count.load(Ordering::Relaxed) {
        if shared.aborted.is_aborted() {
            return Err(TaskError { task: None, error: DeviceError::Aborted });
        }
        let step = state.steps.load(Ordering::Relaxed);
        plan.run(phase, step)?;
        if phase == Phase::Step {
            let now = shared.now();
            if place == 0 {
                shared.times.record(now.saturating_sub(state.since.load(Ordering::Relaxed)));
            }
            state.since.store(now, Ordering::Relaxed);
            state.steps.store(step + 1, Ordering::Release);
        }
    }
    plan.wait().map_err(|error| TaskError { task: None, error })
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
