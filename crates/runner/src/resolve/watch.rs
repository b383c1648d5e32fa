//! Watched values: expressions over params and one-element buffers.

use std::cell::RefCell;

use squall_core::{Diagnostic, Label};

use super::Job;
use super::env::RankEnv;
use super::names::Symbols;
use crate::codes;
use crate::expr::{Env as _, Mention};
use crate::manifest::model::Watch;

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
            let (name, world) = (&watch.name.value, job.world.size());
            let text = format!("`{name}` is to be read on rank {named}, and the world has {world} ranks");
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
