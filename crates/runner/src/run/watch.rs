//! Watched values: read between steps, and kept.

use std::collections::BTreeMap;

use serde::Serialize;
use squall_core::{BufferId, GroupError, PlanGroup, with_element};

use crate::expr::{Env, Lookup, Member, Value};
use crate::manifest::model::{Watch, WatchEvery};
use crate::resolve::{Job, RankEnv, watched_buffers, watched_rank};

/// A watched value, read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// Steps that were done.
    pub step: u64,
    /// Where it was read.
    pub rank: u32,
    /// The value; `None` (JSON's null) where it is no finite number.
    pub value: Option<f64>,
}

/// All readings, by the watched value's name.
pub type Readings = BTreeMap<String, Vec<Reading>>;

/// Steps until a watched value is due, at most `left`.
pub(super) fn until_due(watches: &[Watch], done: u64, left: u64) -> u64 {
    let due = watches.iter().filter_map(|watch| match watch.every.value {
        WatchEvery::End => None,
        WatchEvery::Steps(every) => Some(every - done % every),
    });
    due.min().map_or(left, |due| due.min(left))
}

/// Reads the values that are due after `done` steps; at the end, also those read at the end.
pub(super) fn read(
    job: &Job<'_>,
    group: &mut PlanGroup,
    done: u64,
    end: bool,
    readings: &mut Readings,
) -> Result<(), GroupError> {
    for watch in &job.manifest.watches {
        let due = match watch.every.value {
            WatchEvery::End => end,
            WatchEvery::Steps(every) => !end && done.is_multiple_of(every),
        };
        if !due {
            continue;
        }
        let Some(rank) = watched_rank(watch, &job.env(0)) else { continue }; // refused when it was resolved
        let mut values = Vec::new();
        for place in watched_buffers(&job.symbols, watch) {
            let decl = &job.graphs[rank as usize].buffers()[place];
            let bytes = group.read_bytes(rank, BufferId(place as u32))?;
            let value = with_element!(decl.dtype, T => {
                let element = bytemuck::try_pod_read_unaligned::<T>(&bytes);
                element.map(number).unwrap_or(Value::Float(f64::NAN))
            });
            values.push((decl.name.to_string(), value));
        }
        let env = job.env(rank);
        // A value that is not finite, or a division by a zero of the data, is a result too: it is shown as none.
        let value =
            watch.value.eval(&Watched { env: &env, values: &values }).ok().and_then(|value| value.as_f64());
        let reading = Reading { step: done, rank, value: value.filter(|value| value.is_finite()) };
        readings.entry(watch.name.value.clone()).or_default().push(reading);
    }
    Ok(())
}

/// An element as a value of the expression language: integers exact where they fit.
fn number<T: squall_core::Element>(element: T) -> Value {
    let value = squall_core::element::to_f64(element);
    if T::DTYPE.is_float() {
        return Value::Float(value);
    }
    Value::Int(value as i64)
}

/// A rank's surroundings with the values of one-element buffers.
struct Watched<'a> {
    env: &'a RankEnv<'a>,
    values: &'a [(String, Value)],
}

impl Env for Watched<'_> {
    fn name(&self, name: &str) -> Lookup<Value> {
        match self.values.iter().find(|(known, _)| known == name) {
            Some((_, value)) => Lookup::Found(value.clone()),
            None => self.env.name(name),
        }
    }

    fn communicator(&self, name: &str) -> Lookup<Member> {
        self.env.communicator(name)
    }

    fn buffer_len(&self, name: &str) -> Lookup<i64> {
        self.env.buffer_len(name)
    }
}
