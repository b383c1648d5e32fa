//! Collectives that meet by their order on a communicator: what must be equal on all ranks, and is not.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::codes;
use crate::diagnostic::{Code, Diagnostic};
use crate::task::Matched as Value;
use crate::verify::columns::{Column, draw};
use crate::verify::matching::{Call, Calls, Matched, Mixed, Units, label};
use crate::verify::parts;
use crate::verify::report::{Ranks, by_value};

/// Compares all calls of all ranks, and records who meets whom.
pub(super) fn check(
    units: &Units<'_>,
    channels: &[Calls<'_>],
    mixed: &[Mixed],
    matched: &mut Matched,
    problems: &mut Vec<Diagnostic>,
) {
    let before = problems.len();
    for calls in channels {
        for part in units.world.parts(calls.channel.1) {
            compare(units, calls, part, matched, problems);
        }
    }
    if problems.len() == before && !mixed.is_empty() && units.are_all_known() {
        interleaving(units, channels, mixed, problems);
    }
}

/// How a call differs from the one at its position on another rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    Op,
    Values,
    Boundaries,
    /// The communicator's first rank has it, and others have not.
    Lacking,
    /// The communicator's first rank has it not.
    Extra,
}

/// The most reports on one communicator: each looks at all ranks.
const MOST: usize = 16;

/// Compares the members of one communicator with the first of them, up to the first difference of each; where that is one
/// of values, further ones of values too.
fn compare(
    units: &Units<'_>,
    calls: &Calls<'_>,
    part: &[u32],
    matched: &mut Matched,
    problems: &mut Vec<Diagnostic>,
) {
    let Some((&reference, others)) = part.split_first() else { return };
    // A rank's calls before a missing task, and whether these are all.
    let known = |rank| {
        let all = calls.of(rank);
        match units.known(calls.channel.1, rank) {
            Some(end) => (&all[..all.partition_point(|call| call.unit < end)], false),
            None => (all, true),
        }
    };
    let (theirs, theirs_whole) = known(reference);
    let mut common = theirs.len();
    // Ranks that differ in the same way at the same position are one report.
    let mut differing: BTreeMap<(usize, Difference), Vec<u32>> = BTreeMap::new();
    for &rank in others {
        let (mine, mine_whole) = known(rank);
        // Ranks that share a node share its signature.
        let same = |a: &Call<'_>, b: &Call<'_>| {
            (std::ptr::eq(a.signature, b.signature) || a.signature.agrees(b.signature)) && a.place == b.place
        };
        // After a first difference, positions only mean the same on both ranks if neither lacks a call.
        let most = if theirs.len() == mine.len() { MOST } else { 1 };
        let mut at = 0;
        for found in 0..most {
            at += theirs[at..].iter().zip(&mine[at..]).take_while(|(a, b)| same(a, b)).count();
            if found == 0 {
                common = common.min(at);
            }
            let difference = match (theirs.get(at), mine.get(at)) {
                (Some(_), None) if mine_whole => Difference::Lacking,
                (None, Some(_)) if theirs_whole => Difference::Extra,
                (Some(a), Some(b)) if a.signature.op != b.signature.op => Difference::Op,
                (Some(a), Some(b)) if !a.signature.agrees(b.signature) => Difference::Values,
                (Some(_), Some(_)) => Difference::Boundaries,
                _ => break,
            };
            if found == 0 || difference == Difference::Values {
                differing.entry((at, difference)).or_default().push(rank);
            }
            if difference != Difference::Values {
                break;
            }
            at += 1;
        }
    }
    for ((at, difference), ranks) in differing.into_iter().take(MOST) {
        problems.extend(report(units, calls, part, at, difference, ranks));
    }
    for at in 0..common {
        matched.add(part.iter().map(|&rank| calls.of(rank)[at].unit));
        parts::check(units, calls, part, at, matched, problems);
    }
}

fn report(
    units: &Units<'_>,
    calls: &Calls<'_>,
    part: &[u32],
    at: usize,
    difference: Difference,
    mut ranks: Vec<u32>,
) -> Option<Diagnostic> {
    ranks.sort_unstable();
    let call = |rank: u32| {
        let known = units.known(calls.channel.1, rank).unwrap_or(u32::MAX);
        calls.of(rank).get(at).filter(|call| call.unit < known)
    };
    let place = |call: &Call<'_>| label(units, call.unit, call.op, &[], call.signature);
    let comm = units.world.name(calls.channel.1);
    if matches!(difference, Difference::Lacking | Difference::Extra) {
        let (with, without) = match difference {
            Difference::Lacking => (&part[..1], &ranks[..]),
            _ => (&ranks[..], &part[..1]),
        };
        let first = call(with[0])?;
        let text = format!(
            "`{}`, collective {at} on `{comm}`, is called on {}, but {} never reach{} it: {at} collective{} on `{comm}` there",
            first.signature.op,
            Ranks(with),
            Ranks(without),
            if without.len() == 1 { "es" } else { "" },
            if at == 1 { "" } else { "s" },
        );
        let help = "every rank of the communicator must call it: drop the `when`, or split a communicator";
        let drawing = side_by_side(units, calls, at, &[with, without]);
        let report = Diagnostic::error(codes::UNREACHED, text, place(first)).with_help(help);
        return Some(report.with_drawing(drawing));
    }
    let (a, b) = (call(*part.first()?)?, call(*ranks.first()?)?);
    let op = a.signature.op;
    let mut part = part.to_vec();
    part.sort_unstable();
    let all = || {
        let calls = part.iter().filter_map(|&rank| Some((rank, call(rank)?)));
        calls.filter(|(_, call)| difference == Difference::Op || call.signature.op == op)
    };
    // Where the label stands: at the argument that differs.
    let mut params: Vec<&str> = Vec::new();
    let (code, text, help): (Code, String, String) = match difference {
        Difference::Op => (
            codes::ORDER,
            format!(
                "collective {at} on `{comm}` is {}",
                by_value(all().map(|(rank, call)| (rank, format!("`{}`", call.signature.op))))
            ),
            "let every rank issue the same collectives in the same order".to_string(),
        ),
        Difference::Values => {
            let name = |i: usize| field(a, i).or(field(b, i)).map_or("", |(name, _)| name);
            let differing: Vec<usize> = (0..a.signature.fields.len().max(b.signature.fields.len()))
                .filter(|&i| all().any(|(_, call)| field(call, i) != field(a, i)))
                .collect();
            let text: Vec<String> = differing
                .iter()
                .map(|&i| {
                    let entry = first_entry(a, b, i);
                    let value = |call| match field(call, i) {
                        Some((_, Value::Numbers(of))) if entry.is_some_and(|at| at < of.len()) => {
                            of[entry.unwrap_or(0)].to_string()
                        }
                        Some((_, value)) => value.to_string(),
                        None => "absent".to_string(),
                    };
                    let size = part.len();
                    let name = match entry {
                        Some(at) => format!("{}[{}][{}]", name(i), at / size, at % size),
                        None => name(i).to_string(),
                    };
                    format!("{name} is {}", by_value(all().map(|(rank, call)| (rank, value(call)))))
                })
                .collect();
            // One rank may give counts, and another the number of all its elements.
            let counts = |i: usize| field(b, i).filter(|(name, _)| *name == "counts").map(|(name, _)| *name);
            let first = differing.first().map_or("", |&i| counts(i).unwrap_or(name(i)));
            let help;
            (params, help) = mend(first, comm);
            (codes::MISMATCH, format!("`{op}`, collective {at} on `{comm}`: {}", text.join("; ")), help)
        }
        _ => {
            let say = |call: &Call<'_>| match call.place {
                (_, 1) => "alone".to_string(),
                (place, count) => format!("number {} of {count} in a group", place + 1),
            };
            let values = by_value(all().map(|(rank, call)| (rank, say(call))));
            (codes::BOUNDARIES, grouped_differently(op, at, comm, &values), SAME_GROUPS.to_string())
        }
    };
    let place = |call: &Call<'_>| label(units, call.unit, call.op, &params, call.signature);
    let report = Diagnostic::error(code, text, place(b)).with_related(place(a)).with_help(help);
    Some(match difference {
        Difference::Values => report, // the two places show them
        _ => report.with_drawing(side_by_side(units, calls, at, &[&part[..1], &ranks])),
    })
}

/// How many collectives are drawn before and after the first that differs.
const AROUND: usize = 2;
/// What stands where a rank's collectives are over.
const NONE: &str = "none";

/// What ranks that do the same call on a communicator, beside what others do, around position `at`, which is marked.
fn side_by_side(units: &Units<'_>, calls: &Calls<'_>, at: usize, classes: &[&[u32]]) -> String {
    let places = at.saturating_sub(AROUND)..=at + AROUND;
    let shown = |rank: u32| {
        let known = units.known(calls.channel.1, rank).unwrap_or(u32::MAX);
        let mine = calls.of(rank);
        let end = mine.partition_point(|call| call.unit < known);
        let line = move |place: usize| match mine[..end].get(place) {
            Some(call) => {
                let group = match call.place {
                    (_, 1) => String::new(),
                    (place, count) => format!(", {} of {count}", place + 1),
                };
                format!("{}: {}{group}", call.op.origin.name, call.signature.op)
            }
            None if place == end && end == mine.len() => NONE.to_string(),
            None if place == end => "not known".to_string(),
            None => String::new(),
        };
        places.clone().map(line).collect::<Vec<_>>()
    };
    let numbers = places.clone().map(|place| format!("{} {place}", if place == at { '>' } else { ' ' }));
    let mut columns = vec![Column { head: String::new(), lines: numbers.collect() }];
    let classes = classes.iter().filter_map(|ranks| Some((ranks, shown(*ranks.first()?))));
    columns.extend(classes.map(|(ranks, lines)| Column { head: Ranks(ranks).to_string(), lines }));
    // Rows in which nobody calls anything say nothing.
    let called = |line: &String| !["", NONE].contains(&line.as_str());
    let last = |column: &Column| column.lines.iter().rposition(called).map_or(0, |last| last + 1);
    let rows = columns[1..].iter().map(last).max().unwrap_or(0);
    columns.iter_mut().for_each(|column| column.lines.truncate(rows));
    format!("the collectives on `{}`, in order\n{}", units.world.name(calls.channel.1), draw(&columns))
}

/// A value that must be equal on all ranks, with its name.
fn field<'a>(call: &Call<'a>, index: usize) -> Option<&'a (&'static str, Value)> {
    call.signature.fields.get(index)
}

/// The first entry in which two matrices differ.
fn first_entry(a: &Call<'_>, b: &Call<'_>, index: usize) -> Option<usize> {
    match (field(a, index)?, field(b, index)?) {
        ((_, Value::Numbers(a)), (_, Value::Numbers(b))) => a.iter().zip(&**b).position(|(a, b)| a != b),
        _ => None,
    }
}

/// The arguments that a value of a signature comes from, and how to make it equal on all ranks.
fn mend<'f>(field: &'f str, comm: &str) -> (Vec<&'f str>, String) {
    match field {
        "count" => (
            vec!["buffer", "send", "recv"],
            format!(
                "give every rank of `{comm}` the same number of elements; unequal parts go by `all_gather`, `reduce_scatter`, `gather` or `scatter`, or by `all_to_all` with `counts`"
            ),
        ),
        "counts" => (
            vec!["counts"],
            format!(
                "let every rank of `{comm}` give the same `counts`: each exchanges what its own row and column say"
            ),
        ),
        "dtype" => (vec!["buffer", "send", "recv"], "declare these buffers with one dtype".to_string()),
        "reduce" => (vec!["reduce"], "let every rank name the same reduction".to_string()),
        "root" => {
            (vec!["root"], format!("let every rank of `{comm}` name the same root, such as `root = 0`"))
        }
        other => (vec![other], format!("let {other} be the same on every rank of `{comm}`")),
    }
}

const SAME_GROUPS: &str =
    "a collective needs the same group boundaries and the same order within the group on all ranks";

fn grouped_differently(op: &str, at: usize, comm: &str, values: &str) -> String {
    format!("`{op}`, collective {at} on `{comm}`, is grouped differently: {values}")
}

/// Collectives of one group on several communicators must stand together, and in one order, on all ranks that share
/// these communicators. For two communicators, that makes equal what ranks with the same part of both have.
fn interleaving(units: &Units<'_>, channels: &[Calls<'_>], mixed: &[Mixed], problems: &mut Vec<Diagnostic>) {
    let pairs: BTreeSet<(usize, usize)> = mixed
        .iter()
        .flat_map(|unit| unit.calls.iter().flat_map(|&(a, _)| unit.calls.iter().map(move |&(b, _)| (a, b))))
        .filter(|(a, b)| a < b)
        .collect();
    for pair in pairs {
        let mut firsts: HashMap<_, (u32, Vec<(usize, u32)>)> = HashMap::new();
        let mut rest = mixed;
        for rank in 0..units.world.size() {
            let end = units.of(rank).end;
            let (mine, others) = rest.split_at(rest.partition_point(|unit| unit.unit < end));
            rest = others;
            let mine: Vec<(usize, u32)> = mine.iter().flat_map(|unit| of_pair(&unit.calls, pair)).collect();
            let part = |channel: usize| units.world.part(channels[channel].channel.1, rank).map(|p| p.index);
            let (first, theirs) =
                firsts.entry((part(pair.0), part(pair.1))).or_insert_with(|| (rank, mine.clone()));
            let at = theirs.iter().zip(&mine).take_while(|(a, b)| a == b).count();
            if let Some(&(channel, number)) = mine.get(at).or(theirs.get(at)) {
                problems.extend(interleaved(units, channels, mixed, pair, (channel, number), (*first, rank)));
            }
        }
    }
}

/// Those of a unit's collectives that stand on two channels, if it has some on both.
fn of_pair(calls: &[(usize, u32)], pair: (usize, usize)) -> Vec<(usize, u32)> {
    let has = |channel| calls.iter().any(|call| call.0 == channel);
    if !has(pair.0) || !has(pair.1) {
        return Vec::new();
    }
    calls.iter().copied().filter(|call| call.0 == pair.0 || call.0 == pair.1).collect()
}

fn interleaved(
    units: &Units<'_>,
    channels: &[Calls<'_>],
    mixed: &[Mixed],
    pair: (usize, usize),
    (channel, number): (usize, u32),
    ranks: (u32, u32),
) -> Option<Diagnostic> {
    let call = |rank| channels[channel].of(rank).get(number as usize);
    let (a, b) = (call(ranks.0)?, call(ranks.1)?);
    let comm = |channel: usize| units.world.name(channels[channel].channel.1);
    let say = |rank: u32, call: &Call<'_>| {
        let unit = mixed.binary_search_by_key(&call.unit, |unit| unit.unit).ok();
        let together = unit.map(|at| of_pair(&mixed[at].calls, pair)).unwrap_or_default();
        let names: Vec<String> = together
            .iter()
            .filter_map(|&(channel, number)| {
                let op = channels[channel].of(rank).get(number as usize)?.signature.op;
                Some(format!("`{op}` on `{}`", comm(channel)))
            })
            .take(6)
            .collect();
        match names.as_slice() {
            [] => format!("apart from `{}`", comm(if channel == pair.0 { pair.1 } else { pair.0 })),
            names => format!("among {}", names.join(", ")),
        }
    };
    let values = by_value([(ranks.0, say(ranks.0, a)), (ranks.1, say(ranks.1, b))].into_iter());
    let text = grouped_differently(a.signature.op, number as usize, comm(channel), &values);
    let place = |call: &Call<'_>| label(units, call.unit, call.op, &[], call.signature);
    Some(Diagnostic::error(codes::BOUNDARIES, text, place(b)).with_related(place(a)).with_help(SAME_GROUPS))
}
