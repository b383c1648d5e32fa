//! Contents that the host gives in every step, and that a task overwrites before any reads them.

use crate::buffer::{BufferDecl, Upload};
use crate::codes;
use crate::diagnostic::{Diagnostic, Label};
use crate::graph::{Phase, TaskGraph};
use crate::param::Mode;
use crate::verify::dataflow::{Written, same};

/// A warning for each such buffer of each rank. Nothing else depends on it: the job runs, and what was uploaded is lost.
pub(super) fn check(graphs: &[TaskGraph]) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    let mut previous: Option<&TaskGraph> = None;
    for graph in graphs {
        // Ranks that share all nodes and buffers share the verdict.
        if previous.is_some_and(|other| same(graph, other)) {
            continue;
        }
        let uses = graph.uses();
        let buffers = graph.buffers.iter().zip(uses).enumerate();
        let given = buffers.filter(|(_, (decl, used))| *used && decl.upload == Upload::Every);
        warnings.extend(given.filter_map(|(index, (decl, _))| lost(graph, index, decl)));
        previous = Some(graph);
    }
    warnings
}

/// The first task of a step that overwrites an element of the buffer which no task has read. Such a buffer is never swapped.
fn lost(graph: &TaskGraph, index: usize, decl: &BufferDecl) -> Option<Diagnostic> {
    // Elements that were read, or are known to be overwritten.
    let mut read = Written::default();
    for node in graph.tasks(Phase::Step) {
        let accesses = || {
            let parts = node.parts().flat_map(|(origin, _, _, description)| {
                description.accesses.iter().map(move |access| (origin, access))
            });
            parts.filter(|(_, access)| access.buffer.0 as usize == index)
        };
        accesses().filter(|(_, access)| access.mode.reads()).for_each(|(_, access)| read.add(&access.range));
        for (origin, access) in accesses().filter(|(_, access)| access.mode == Mode::Write) {
            let Some(gap) = read.gap(&access.range) else { continue };
            let text = format!(
                "`{}` is given new contents in every step, and `{}` overwrites element {gap} of them before any task reads it",
                decl.name, access.param
            );
            let place = Label::at(origin.span_of(access.param), format!("writes `{}`", decl.name));
            let label = place.on_rank(graph.rank).in_task(&origin.name);
            let report = Diagnostic::warning(codes::OVERWRITTEN, text, label)
                .with_related(Label::at(decl.span, "declared here"))
                .with_help("let the task write to another buffer, or read this one before");
            return Some(report);
        }
    }
    None
}
