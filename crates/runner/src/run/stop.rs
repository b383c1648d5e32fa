//! `stop_when`: judged between steps.

use serde::Serialize;
use squall_core::{GroupError, PlanGroup};

use super::until_next;
use super::watch::{element, value};
use crate::expr::Value;
use crate::resolve::{Job, STOP_RANK, Watched, stop_buffers};

/// Why a run ended before its last step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// Steps that were done.
    pub step: u64,
    /// The condition, as the manifest writes it; or which feed came to its end.
    pub by: String,
}

/// Steps until the condition is due, at most `left`.
pub(super) fn until_due(job: &Job<'_>, done: u64, left: u64) -> u64 {
    let stop = job.manifest.pipeline.stop.as_ref();
    stop.map_or(left, |stop| left.min(until_next(stop.every.value, done)))
}

/// Whether the condition is due after `done` steps, and holds. It does not where a buffer holds NaN, nor where it cannot be worked
/// out, as a division by a zero that a buffer holds.
pub(super) fn holds(job: &Job<'_>, group: &mut PlanGroup, done: u64) -> Result<Option<Stopped>, GroupError> {
    let Some(stop) = job.manifest.pipeline.stop.as_ref().filter(|stop| done.is_multiple_of(stop.every.value))
    else {
        return Ok(None);
    };
    let mut values = Vec::new();
    for place in stop_buffers(&job.symbols, stop) {
        // All ranks hold the same.
        let rank = group.graphs().first().map_or(STOP_RANK, squall_core::TaskGraph::rank);
        let value = value(element(job, group, rank, place)?);
        if matches!(value, Value::Float(float) if float.is_nan()) {
            return Ok(None);
        }
        values.push((job.manifest.buffers[place].name.value.as_str(), value));
    }
    let env = job.env(STOP_RANK);
    let holds = stop.when.eval_bool(&Watched { env: &env, values }).unwrap_or(false);
    Ok(holds.then(|| Stopped { step: done, by: stop.text.clone() }))
}
