//! Watched values: expressions over params and one-element buffers.

use std::cell::RefCell;

use squall_core::{Diagnostic, Label};

use super::Job;
use super::env::RankEnv;
use super::names::Symbols;
use crate::codes;
use crate::expr::{Env, ErrorKind, Lookup, Member, Mention, Value};
use crate::manifest::model::Watch;
use crate::render::count;

/// The buffers that a watched value reads, by place, each once.
pub(crate) fn buffers(symbols: &Symbols<'_>, watch: &Watch) -> Vec<usize> {
    let mut found = Vec::new();
    watch.value.expr.mentions(&mut |mention, _| {
        if let Mention::Name(name) = mention
            && let Some(place) = symbols.buffer(name)
            && !found.contains(&place)
        {
            found.push(place);
        }
    });
    found
}

/// The rank it is read on; `None` when that could not be worked out, or is no rank.
pub(crate) fn rank(watch: &Watch, env: &RankEnv<'_>) -> Option<u32> {
    match &watch.rank {
        None => Some(0),
        Some(formula) => env.int(formula).and_then(|rank| u32::try_from(rank).ok()),
    }
}

/// What can be said before any rank is looked at: the rank may not depend on the rank that asks.
pub(super) fn check(symbols: &Symbols<'_>, problems: &RefCell<Vec<Diagnostic>>) {
    for watch in &symbols.manifest.watches {
        if let Some(formula) = watch.rank.as_ref().filter(|rank| symbols.depends.formula(symbols, rank)) {
            let message =
                format!("the watched value `{}` is read on one rank, the same for all", watch.name.value);
            let label = Label::at(formula.place.span(), "depends on the rank that asks");
            problems.borrow_mut().push(Diagnostic::error(codes::WATCH, message, label));
        }
    }
}

/// What is wrong with the value whatever the data are: that it is no number, or comes to none.
fn check_value(symbols: &Symbols<'_>, watch: &Watch, env: &RankEnv<'_>) -> Option<Diagnostic> {
    let read = buffers(symbols, watch);
    let one = |&place: &usize| {
        let buffer = &symbols.manifest.buffers[place];
        let value = if buffer.dtype.value.is_float() { Value::Float(1.0) } else { Value::Int(1) };
        (buffer.name.value.as_str(), value)
    };
    let values = read.iter().map(one).collect();
    match watch.value.eval(&Watched { env, values }) {
        Ok(Value::List(_)) => {
            let message =
                format!("the watched value `{}` is a list, and one number is shown", watch.name.value);
            let label = Label::at(watch.value.place.span(), "a list");
            Some(
                Diagnostic::error(codes::WATCH, message, label)
                    .with_help("take one item of it, with an index: `[0]`"),
            )
        }
        // A fault of numbers may be one of the data that stand for others here.
        Err(error) if read.is_empty() || error.error.kind == ErrorKind::Type => error.diagnostic(),
        _ => None,
    }
}

/// A rank's surroundings with the values of one-element buffers, by name.
pub(crate) struct Watched<'a> {
    pub(crate) env: &'a RankEnv<'a>,
    pub(crate) values: Vec<(&'a str, Value)>,
}

impl Env for Watched<'_> {
    fn name(&self, name: &str) -> Lookup<Value> {
        match self.values.iter().find(|(known, _)| *known == name) {
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

/// Whether every watched value can be read where it is to be read.
pub(super) fn check_ranks(job: &Job<'_>) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    for watch in &job.manifest.watches {
        let error = |message: String| {
            Diagnostic::error(codes::WATCH, message, Label::at(watch.value.place.span(), ""))
        };
        let env = job.env(0);
        let named = watch.rank.as_ref().map_or(Some(0), |formula| env.int(formula));
        problems.append(&mut env.take_problems());
        let Some(named) = named else { continue };
        let rank = u32::try_from(named).unwrap_or(u32::MAX);
        let Some(graph) = job.graphs.get(rank as usize) else {
            let (name, world) = (&watch.name.value, count(job.world.size(), "rank"));
            let text = format!("`{name}` is to be read on rank {named}, and the world has {world}");
            let place = watch.rank.as_ref().map(|formula| formula.place.span());
            problems.push(Diagnostic::error(codes::WATCH, text, Label::at(place, "")));
            continue;
        };
        let there = job.env(rank);
        watch.value.expr.mentions(&mut |mention, _| {
            if let Mention::Name(name) = mention {
                there.name(name); // a param that has no value is a fault now, not a missing value later
            }
        });
        problems.append(&mut there.take_problems());
        if let Some(problem) = check_value(&job.symbols, watch, &there) {
            problems.push(problem);
            continue;
        }
        let uses = graph.uses();
        for place in buffers(&job.symbols, watch) {
            let decl = &graph.buffers()[place];
            if !uses[place] {
                problems.push(error(format!(
                    "no task of rank {rank} names `{}`, so that the rank does not have it",
                    decl.name
                )));
            } else if decl.len() != 1 {
                problems.push(error(format!(
                    "`{}` has {} elements; a watched value reads buffers of one",
                    decl.name,
                    decl.len()
                )));
            }
        }
    }
    problems
}
