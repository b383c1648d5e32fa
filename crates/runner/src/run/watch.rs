//! Watched values: read between steps, and kept.

use std::fmt;

use serde::{Serialize, Serializer};
use squall_core::element::Exact;
use squall_core::{BufferId, GroupError, PlanGroup, with_element};

use super::processes::Joined;
use super::{RunError, until_next};
use crate::expr::Value;
use crate::expr::ast::Kind;
use crate::manifest::model::{Watch, WatchEvery};
use crate::resolve::{Job, RankEnv, Watched, watched_buffers, watched_rank};

/// A watched value, read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// Steps that were done.
    pub step: u64,
    /// Where it was read.
    pub rank: u32,
    /// The value; `None` (JSON's null) where it is no finite number.
    pub value: Option<Number>,
}

/// A finite number, an integer exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Number {
    /// An integer of up to 64 bits, signed or not.
    Int(i128),
    /// A finite float.
    Float(f64),
}

impl Number {
    /// Reads what `Display` wrote.
    fn parse(text: &str) -> Option<Number> {
        text.parse().map(Number::Int).or_else(|_| text.parse().map(Number::Float)).ok()
    }

    /// The nearest float.
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(int) => int as f64,
            Number::Float(float) => float,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Int(int) => write!(f, "{int}"),
            // Digits alone would be hundreds of them.
            Number::Float(float) => write!(f, "{float:?}"), // 1e300, not three hundred digits
        }
    }
}

/// All readings of each watched value, in the order of the manifest. As JSON, an object by their names; one that was never
/// read is left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings(Vec<(String, Vec<Reading>)>);

impl Readings {
    pub(super) fn new(watches: &[Watch]) -> Readings {
        Readings(watches.iter().map(|watch| (watch.name.value.clone(), Vec::new())).collect())
    }

    /// Each watched value that was read, with its readings in the order of the steps.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[Reading])> {
        let read = self.0.iter().filter(|(_, readings)| !readings.is_empty());
        read.map(|(name, readings)| (name.as_str(), readings.as_slice()))
    }

    /// The readings of one watched value; none of a name that no watch has.
    pub fn of(&self, name: &str) -> &[Reading] {
        self.iter().find(|(known, _)| *known == name).map_or(&[], |(_, readings)| readings)
    }
}

impl Serialize for Readings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// Steps until a watched value is due, at most `left`.
pub(super) fn until_due(watches: &[Watch], done: u64, left: u64) -> u64 {
    let due = watches.iter().filter_map(|watch| match watch.every.value {
        WatchEvery::End => None,
        WatchEvery::Steps(every) => Some(until_next(every, done)),
    });
    due.min().map_or(left, |due| due.min(left))
}

/// Reads the values that are due after `done` steps; at the end, also those read at the end.
pub(super) fn read(
    job: &Job<'_>,
    group: &mut PlanGroup,
    joined: &Joined,
    done: u64,
    end: bool,
    readings: &mut Readings,
) -> Result<(), RunError> {
    for (watch, (_, readings)) in job.manifest.watches.iter().zip(&mut readings.0) {
        let due = match watch.every.value {
            WatchEvery::End => end,
            WatchEvery::Steps(every) => !end && done.is_multiple_of(every),
        };
        if !due {
            continue;
        }
        let Some(rank) = watched_rank(watch, &job.env(0)) else { continue }; // refused when it was resolved
        let value = if joined.has(rank) { Some(value_of(job, group, watch, rank)?) } else { None };
        // Rank 0's process, which shows values, has those of rank 0 itself; of other ranks everyone is told.
        let value = if rank == 0 { value } else { told(joined, value)? };
        readings.extend(value.map(|value| Reading { step: done, rank, value }));
    }
    Ok(())
}

/// A watched value, by the rank where it is read.
fn value_of(
    job: &Job<'_>,
    group: &mut PlanGroup,
    watch: &Watch,
    rank: u32,
) -> Result<Option<Number>, GroupError> {
    let mut values = Vec::new();
    for place in watched_buffers(&job.symbols, watch) {
        let name = job.manifest.buffers[place].name.value.clone();
        values.push((name, element(job, group, rank, place)?));
    }
    Ok(shown(watch, &job.env(rank), &values))
}

/// A value that one of the processes has, told to all.
fn told(joined: &Joined, mine: Option<Option<Number>>) -> Result<Option<Option<Number>>, RunError> {
    let mine = mine.map(|value| value.map(|number| number.to_string()));
    let told = joined.gather("a watched value", mine)?.into_iter().flatten().next();
    Ok(told.map(|value| value.and_then(|text| Number::parse(&text))))
}

/// The one element of a rank's buffer.
pub(super) fn element(
    job: &Job<'_>,
    group: &mut PlanGroup,
    rank: u32,
    place: usize,
) -> Result<Exact, GroupError> {
    let decl = &job.graphs[rank as usize].buffers()[place];
    let bytes = group.read_bytes(rank, BufferId(place as u32))?;
    let element = with_element!(decl.dtype, T => {
        bytemuck::try_pod_read_unaligned::<T>(&bytes).map(squall_core::Element::to_exact)
    });
    Ok(element.unwrap_or(Exact::Float(f64::NAN)))
}

/// What the expression comes to. A value that is not finite, or a division by a zero of the data, is a result too: it is
/// shown as none. A condition is 1 or 0.
fn shown(watch: &Watch, env: &RankEnv<'_>, elements: &[(String, Exact)]) -> Option<Number> {
    // A buffer alone needs no arithmetic, which is exact for less than all of `u64`.
    if let (Kind::Name(_), [(_, Exact::Int(int))]) = (&watch.value.expr.kind, elements) {
        return Some(Number::Int(*int));
    }
    let values = elements.iter().map(|(name, element)| (name.as_str(), value(*element))).collect();
    match watch.value.eval(&Watched { env, values }).ok()? {
        Value::Int(int) => Some(Number::Int(int.into())),
        Value::Float(float) => float.is_finite().then_some(Number::Float(float)),
        Value::Bool(holds) => Some(Number::Int(holds.into())),
        Value::List(_) => None, // refused when it was resolved, but for a list that the data chose
    }
}

/// An element as a value of the expression language: integers exact where they fit, which of `u64` not all do.
pub(super) fn value(element: Exact) -> Value {
    match element {
        Exact::Int(int) => i64::try_from(int).map_or(Value::Float(int as f64), Value::Int),
        Exact::Float(float) => Value::Float(float),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact_as_long_as_they_fit() {
        let beyond = (1_i128 << 53) + 1;
        assert_eq!(value(Exact::Int(beyond)), Value::Int((1 << 53) + 1));
        assert_eq!(value(Exact::Int(i64::MIN.into())), Value::Int(i64::MIN));
        assert_eq!(value(Exact::Int(u64::MAX.into())), Value::Float(18446744073709551615.0));
        assert_eq!(value(Exact::Float(1.5)), Value::Float(1.5));
    }

    #[test]
    fn numbers_are_shown_short_and_whole() {
        let shown = |number: Number| (number.to_string(), serde_json::to_string(&number).unwrap());
        let same = |text: &str| {
            assert_eq!(Number::parse(text).map(|number| number.to_string()).as_deref(), Some(text));
            (text.to_owned(), text.to_owned())
        };
        assert_eq!(shown(Number::Int((1 << 53) + 1)), same("9007199254740993"));
        assert_eq!(shown(Number::Int(u64::MAX.into())), same("18446744073709551615"));
        assert_eq!(shown(Number::Int(i64::MIN.into())), same("-9223372036854775808"));
        assert_eq!(shown(Number::Float(0.25)), same("0.25"));
        assert_eq!(shown(Number::Float(3.0)), same("3.0"));
        assert_eq!(Number::Float(-1e300).to_string(), "-1e300");
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
