//! Whether a step can be captured: every op in it may be, and every op that these use.

use crate::codes;
use crate::diagnostic::{Diagnostic, Label};
use crate::graph::{Phase, TaskGraph};

/// Reports every op of a step that may not be captured, rank by rank.
pub(super) fn check(graphs: &[TaskGraph]) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    for graph in graphs {
        let ops = graph.tasks(Phase::Step).iter().flat_map(|node| node.ops());
        for task in ops {
            let mut all = std::iter::once(&task.op).chain(&task.uses);
            let Some(op) = all.find(|op| !op.needs().captures) else { continue };
            let (name, library) = (op.name(), op.library());
            let text =
                format!("`{name}` by the library `{library}` cannot be captured, and the step is to be");
            let label = Label::at(task.origin.span_of("op"), "");
            let label = label.on_rank(graph.rank()).in_task(&task.origin.name);
            problems.push(Diagnostic::error(codes::UNCAPTURED, text, label).with_help(HELP));
        }
    }
    problems
}

const HELP: &str =
    "let the step run task by task, with `cuda_graph = false`, or let another library serve the op";
