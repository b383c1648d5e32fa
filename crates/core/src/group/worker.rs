//! A rank's thread: carries out commands on the rank's plan until it is told to end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::device::DeviceError;
use crate::graph::Phase;
use crate::group::shared::{Command, Shared};
use crate::plan::{ExecutionPlan, TaskError};
use crate::wait::Running;

pub(super) fn run(shared: &Arc<Shared>, place: usize) {
    let _running = Running::enter();
    let mut plan: Option<ExecutionPlan> = None;
    let mut seen = 0;
    loop {
        let command = shared.next(place, &mut seen);
        match command {
            Command::Exit => break,
            Command::Call => {
                let call = shared.ranks[place].call.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(call) = call {
                    call(&mut plan); // catches its own panics
                }
            }
            Command::Run(phase) => {
                let result =
                    catch_unwind(AssertUnwindSafe(|| run_phase(shared, place, plan.as_mut(), phase)));
                let ended = matches!(result, Ok(Ok(())));
                let failure = match result {
                    Ok(Ok(())) => None,
                    Ok(Err(TaskError { error: DeviceError::Aborted, .. })) if shared.aborted.is_aborted() => {
                        None
                    }
                    Ok(Err(failure @ TaskError { error: DeviceError::Aborted, .. })) => {
                        let text = "it ended as if it had been aborted, and nobody had aborted it";
                        Some(TaskError { error: DeviceError::Failed(text.to_string()), ..failure })
                    }
                    Ok(Err(failure)) => Some(failure),
                    Err(panic) => {
                        let error = DeviceError::Failed(format!("it panicked: {}", panic_text(&*panic)));
                        let (task, run) = plan.as_ref().map_or((None, 0), |plan| (plan.at(), plan.runs()));
                        Some(TaskError::at(task, run, error))
                    }
                };
                if let Some(failure) = failure {
                    shared.fail(place, failure);
                }
                if !ended {
                    // What is still queued uses memory that whoever sees this rank arrive may free.
                    let _ = catch_unwind(AssertUnwindSafe(|| plan.as_mut().map(ExecutionPlan::drain)));
                }
            }
        }
        shared.arrive(place, seen);
    }
    if shared.leak.load(Ordering::Acquire) {
        // Another thread may still reach this rank's memory.
        std::mem::forget(plan);
    } else {
        let _ = catch_unwind(AssertUnwindSafe(|| shared.ranks[place].handles.clear()));
        let _ = catch_unwind(AssertUnwindSafe(|| drop(plan)));
    }
    shared.arrive(place, seen);
}

fn run_phase(
    shared: &Shared,
    place: usize,
    plan: Option<&mut ExecutionPlan>,
    phase: Phase,
) -> Result<(), TaskError> {
    let Some(plan) = plan else { return Ok(()) };
    let state = &shared.ranks[place];
    let released = |plan: &ExecutionPlan| match shared.aborted.is_aborted() {
        false => Ok(()),
        true => Err(TaskError::at(None, plan.runs(), DeviceError::Aborted)),
    };
    for left in (0..shared.count.load(Ordering::Relaxed)).rev() {
        released(plan)?;
        if phase == Phase::Step {
            plan.run(phase, state.queue_step())?;
            if plan.is_done() {
                note_times(shared, place, state.queued());
            } else if left > 0
                && let Some(runs) = plan.keep_pace(phase)?
            {
                // A stream that was released passes checkpoints, too.
                released(plan)?;
                note_times(shared, place, state.steps_at(runs));
            }
        } else {
            plan.run(phase, 0)?;
        }
    }
    plan.end(phase)?;
    // Work that was aborted may leave its stream as if it had been done.
    released(plan)?;
    if phase != Phase::Step {
        state.ended_other();
    } else if state.untimed() {
        note_times(shared, place, state.queued());
    }
    Ok(())
}

/// Notes that the rank's stream has just ended so many steps, and how long those since the last time have taken.
fn note_times(shared: &Shared, place: usize, steps: u64) {
    let (steps, nanoseconds) = shared.ranks[place].ended(steps, shared.now());
    if place == 0 {
        shared.times.record(steps, nanoseconds);
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
