//! `stop_when`: a condition that every rank must judge alike.

use std::cell::RefCell;

use squall_core::graph::Agreed;
use squall_core::{BufferId, Diagnostic, Label, Span};

use super::Job;
use super::names::Symbols;
use super::watch::Watched;
use crate::codes;
use crate::expr::{ErrorKind, Mention, Value};
use crate::manifest::model::Stop;

/// The rank that the condition is judged on; the others would come to the same.
pub(crate) const RANK: u32 = 0;

/// The buffers that the condition reads, by place, each once.
pub(crate) fn buffers(symbols: &Symbols<'_>, stop: &Stop) -> Vec<usize> {
    mentioned(symbols, stop).into_iter().map(|(place, _)| place).collect()
}

/// The same with where each is mentioned first.
fn mentioned(symbols: &Symbols<'_>, stop: &Stop) -> Vec<(usize, Span)> {
    let mut found: Vec<(usize, Span)> = Vec::new();
    stop.when.expr.mentions(&mut |mention, range| {
        if let Mention::Name(name) = mention
            && let Some(place) = symbols.buffer(name)
            && found.iter().all(|(known, _)| *known != place)
        {
            found.push((place, stop.when.place.part(range)));
        }
    });
    found
}

/// What needs no rank: nothing in the condition may depend on the rank that judges.
pub(super) fn check(symbols: &Symbols<'_>, problems: &RefCell<Vec<Diagnostic>>) {
    let Some(stop) = &symbols.manifest.pipeline.stop else { return };
    stop.when.expr.mentions(&mut |mention, range| {
        let what = match mention {
            // Its contents are looked at below, not its shape.
            Mention::Name(name) if symbols.buffer(name).is_some() => return,
            Mention::CommRank(name) => format!("the place in `{name}`"),
            Mention::CommSize(name) => format!("the size of `{name}`"),
            Mention::Place => "the share of a rank".to_owned(),
            Mention::Name(name) | Mention::Len(name) => format!("`{name}`"),
        };
        if symbols.depends.mention(symbols, mention) {
            let message = format!("ranks could judge `stop_when` differently: {what} depends on the rank");
            let label = Label::at(stop.when.place.part(range), "differs between ranks");
            let help = "compare what is the same on all ranks: params without `rank`, and buffers that an `all_reduce` wrote";
            problems.borrow_mut().push(Diagnostic::error(codes::STOP, message, label).with_help(help));
        }
    });
}

/// Whether the condition is one, and every buffer in it was last written by a collective of the world, on every rank.
pub(super) fn check_ranks(job: &Job<'_>) -> Vec<Diagnostic> {
    let Some(stop) = &job.manifest.pipeline.stop else { return Vec::new() };
    let env = job.env(RANK);
    let read = mentioned(&job.symbols, stop);
    let one = |&(place, _): &(usize, Span)| {
        let buffer = &job.manifest.buffers[place];
        let value = if buffer.dtype.value.is_float() { Value::Float(1.0) } else { Value::Int(1) };
        (buffer.name.value.as_str(), value)
    };
    let values = read.iter().map(one).collect();
    let judged = stop.when.eval_bool(&Watched { env: &env, values });
    let mut problems = env.take_problems();
    // A fault of numbers may be one of the data that stand for others here.
    if let Err(error) = judged
        && (read.is_empty() || error.error.kind == ErrorKind::Type)
    {
        problems.extend(error.diagnostic());
    }
    for (place, span) in read {
        problems.extend(job.graphs.iter().find_map(|graph| {
            let decl = &graph.buffers()[place];
            let name = &decl.name;
            let error = |message: String, text: String| {
                let label = Label::at(span, text).on_rank(graph.rank());
                Diagnostic::error(codes::STOP, message, label)
            };
            if decl.len() != 1 {
                let count = crate::render::count(decl.len(), "element");
                let message = format!("`{name}` has {count}; `stop_when` reads buffers of one");
                return Some(error(message, String::new()));
            }
            let help = format!(
                "let the last task of the step that writes `{name}` be an `all_reduce`, an `all_gather` or a `broadcast` between all ranks"
            );
            match graph.agreed(BufferId(place as u32)) {
                Agreed::Yes => None,
                Agreed::No(origin) => {
                    let message = format!(
                        "ranks could judge `stop_when` differently: `{name}` is last written by `{}`",
                        origin.name
                    );
                    let related = Label::at(origin.span, "written last here").in_task(&origin.name);
                    Some(error(message, "another value on every rank".to_owned()).with_related(related).with_help(help))
                }
                Agreed::Unwritten => {
                    let message = format!(
                        "`stop_when` reads `{name}`, and no task of setup or of the step writes it on rank {}",
                        graph.rank()
                    );
                    Some(error(message, String::new()).with_help(help))
                }
            }
        }));
    }
    problems
}
