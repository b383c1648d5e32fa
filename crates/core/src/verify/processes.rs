//! Whether a job can be run by several processes: no op in it reaches its peers' memory.

use crate::codes;
use crate::diagnostic::{Diagnostic, Label};
use crate::graph::{Phase, TaskGraph};

/// Reports every op that takes one process alone, and meets other ranks.
pub(super) fn check(graphs: &[TaskGraph]) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    for graph in graphs {
        let nodes = Phase::ALL.into_iter().flat_map(|phase| graph.tasks(phase));
        for task in nodes.flat_map(|node| node.ops()) {
            let alone = graph.world().part(task.comm, graph.rank()).is_none_or(|part| part.size() == 1);
            let mut ops = std::iter::once(&task.op).chain(&task.uses);
            let Some(op) = ops.find(|op| !alone && op.needs().single_process) else { continue };
            let text = format!(
                "`{}` by the library `{}` reaches the memory of its peers, and those on `{}` may be in other processes",
                op.name(),
                op.library(),
                graph.world().name(task.comm)
            );
            let label = Label::at(task.origin.span_of("op"), "");
            let label = label.on_rank(graph.rank()).in_task(&task.origin.name);
            problems.push(Diagnostic::error(codes::PROCESSES, text, label).with_help(HELP));
        }
    }
    problems
}

const HELP: &str = "run all ranks in one process, or let another library serve the op";
