//! How many turns the steps of a job take: after how many all names stand again for what they stood for.
//!
//! Ranks take their turns together, whatever each of them swaps: each makes as many steps ready as the others do, and they
//! capture them in the same steps. Libraries that exchange something while they do either rely on it.

use crate::buffer::BufferId;
use crate::codes;
use crate::diagnostic::{Diagnostic, Label};
use crate::graph::renaming::common_multiple;
use crate::graph::{Body, Node, Phase, TaskGraph};
use crate::verify::report::by_value;

/// The most turns: a plan keeps its step and its finish once for each.
pub(super) const MOST_TURNS: u64 = 4;

/// The turns of all ranks together; 1 where no step renames anything.
pub(super) fn turns(graphs: &[TaskGraph]) -> u64 {
    graphs.iter().fold(1, |turns, graph| common_multiple(turns, graph.renaming().order()))
}

/// Reports that these turns are too many, with what is renamed to what.
pub(super) fn check(graphs: &[TaskGraph], turns: u64) -> Option<Diagnostic> {
    if turns <= MOST_TURNS {
        return None;
    }
    let order = |graph: &TaskGraph| graph.renaming().order();
    let report = |graph: &TaskGraph, text: String, help: &str| {
        let swaps = |node: &&Node| matches!(node.body, Body::Swap(_));
        let last = graph.tasks(Phase::Step).iter().map(AsRef::as_ref).rfind(swaps)?;
        let label =
            Label::at(last.origin.span_of("swap"), "").on_rank(graph.rank()).in_task(&last.origin.name);
        Some(Diagnostic::error(codes::TURNS, text, label).with_help(help))
    };
    if let Some(graph) = graphs.iter().find(|graph| order(graph) > MOST_TURNS) {
        let text = format!(
            "the swaps of a step come back to where they began after {} steps, and a plan keeps at most {MOST_TURNS} graphs: {}",
            order(graph),
            cycles(graph)
        );
        let help = "let the cycles be shorter, or `copy` one of the buffers instead of swapping it";
        return report(graph, text, help);
    }
    let graph = graphs.iter().rev().max_by_key(|graph| order(graph))?;
    let ranks = graphs.iter().map(|graph| (graph.rank(), order(graph).to_string()));
    let text = format!(
        "the swaps of a step come back to where they began after {turns} steps for all ranks together, and a plan keeps at most {MOST_TURNS} graphs: after {}",
        by_value(ranks)
    );
    report(graph, text, "let all ranks swap the same buffers, without a `when`")
}

/// The names that a step takes around: `` `a` becomes `b` becomes `a` ``.
fn cycles(graph: &TaskGraph) -> String {
    const MOST: usize = 8;
    let name = |buffer: &BufferId| {
        graph.buffers().get(buffer.0 as usize).map_or(String::new(), |decl| format!("`{}`", decl.name))
    };
    let cycle = |cycle: &Vec<BufferId>| {
        let mut names: Vec<String> = cycle.iter().take(MOST).map(name).collect();
        if cycle.len() > MOST {
            names.push("…".to_string());
        }
        names.extend(cycle.first().map(name));
        names.join(" becomes ")
    };
    let cycles: Vec<String> = graph.renaming().cycles().iter().take(MOST).map(cycle).collect();
    cycles.join("; ")
}
