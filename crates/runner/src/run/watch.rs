//! Watched values: read between steps, and kept.

use std::collections::BTreeMap;

use serde::Serialize;
use squall_core::element::Exact;
use squall_core::{BufferId, Element, GroupError, PlanGroup, with_element};

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
        let reading = Reading { step: done, rank, value: shown(watch, &job.env(rank), &values) };
        readings.entry(watch.name.value.clone()).or_default().push(reading);
    }
    Ok(())
}

/// What the expression comes to. A value that is not finite, or a division by a zero of the data, is a result too: it is
/// shown as none. A condition is 1 or 0.
fn shown(watch: &Watch, env: &RankEnv<'_>, values: &[(String, Value)]) -> Option<f64> {
    let value = match watch.value.eval(&Watched { env, values }).ok()? {
        Value::Bool(holds) => f64::from(u8::from(holds)),
        value => value.as_f64()?,
    };
    value.is_finite().then_some(value)
}

/// An element as a value of the expression language: integers exact where they fit, which of `u64` not all do.
fn number(element: impl Element) -> Value {
    match element.to_exact() {
        Exact::Int(int) => i64::try_from(int).map_or(Value::Float(int as f64), Value::Int),
        Exact::Float(float) => Value::Float(float),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact_as_long_as_they_fit() {
        assert_eq!(number((1_i64 << 53) + 1), Value::Int((1 << 53) + 1));
        assert_eq!(number(i64::MIN), Value::Int(i64::MIN));
        assert_eq!(number(i64::MAX as u64), Value::Int(i64::MAX));
        assert_eq!(number(u64::MAX), Value::Float(18446744073709551615.0));
        assert_eq!(number(1.5_f32), Value::Float(1.5));
    }

    #[test]
    fn steps_stop_where_a_value_is_due() {
        let watch = |every| {
            let text = format!("manifest = 1\n[[watch]]\nname = \"w\"\nvalue = \"1\"\nevery = {every}\n");
            crate::manifest::parse(&text).unwrap().0.watches.remove(0)
        };
        let watches = [watch("3"), watch("5"), watch("\"end\"")];
        let mut stops = Vec::new();
        while stops.last() != Some(&16) {
            let done = stops.last().copied().unwrap_or(0);
            stops.push(done + until_due(&watches, done, 16 - done));
        }
        assert_eq!(stops, [3, 5, 6, 9, 10, 12, 15, 16]);
        assert_eq!(until_due(&watches[2..], 4, 12), 12);
    }
}
