//! Reads of what nothing wrote on that rank.

use std::ops::Range;
use std::sync::Arc;

use crate::buffer::{BufferId, Download, Upload};
use crate::codes;
use crate::diagnostic::{Diagnostic, Label};
use crate::graph::renaming::Renaming;
use crate::graph::{Node, Origin, Phase, TaskGraph};
use crate::verify::swaps::MOST_TURNS;

/// Elements that were written, as sorted ranges that neither touch nor overlap.
#[derive(Clone, Default)]
pub(super) struct Written(Vec<Range<u64>>);

impl Written {
    pub(super) fn add(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        // All ranges that touch the new one become one with it.
        let first = self.0.partition_point(|r| r.end < range.start);
        let last = self.0.partition_point(|r| r.start <= range.end);
        let merged = match self.0.get(first..last) {
            Some([only]) if only.start <= range.start && range.end <= only.end => return,
            Some(touching @ [head, ..]) => {
                let end = touching[touching.len() - 1].end;
                head.start.min(range.start)..end.max(range.end)
            }
            _ => range.clone(),
        };
        self.0.splice(first..last, [merged]);
    }

    /// The first element of `range` that was not written.
    pub(super) fn gap(&self, range: &Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        let index = self.0.partition_point(|r| r.end <= range.start);
        match self.0.get(index) {
            Some(r) if r.start <= range.start => (r.end < range.end).then_some(r.end),
            _ => Some(range.start),
        }
    }
}

/// Judges setup, a step of each turn and the finish after it, on every rank. Later steps find at least what the first one
/// of their turn found, and a finish at least what the first in its place did.
pub(super) fn check(graphs: &[TaskGraph], problems: &mut Vec<Diagnostic>) {
    let mut previous: Option<&TaskGraph> = None;
    for graph in graphs {
        // Ranks that share all nodes and buffers share the verdict. What stands against one is told of all.
        if problems.is_empty() && previous.is_some_and(|other| same(graph, other)) {
            continue;
        }
        rank(graph, problems);
        previous = Some(graph);
    }
}

/// Whether two ranks do the very same to the same buffers.
pub(super) fn same(a: &TaskGraph, b: &TaskGraph) -> bool {
    Arc::ptr_eq(&a.buffers, &b.buffers)
        && a.phases
            .iter()
            .zip(&b.phases)
            .chain([(&a.skipped, &b.skipped)])
            .all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b)))
}

fn rank(graph: &TaskGraph, problems: &mut Vec<Diagnostic>) {
    let written = vec![Written::default(); graph.buffers.len()];
    let first = problems.len();
    let mut state = State { graph, written, names: Renaming::default(), problems, first };
    let uses = graph.uses();
    let turns = graph.renaming().order().min(MOST_TURNS);
    state.uploaded(Upload::First);
    state.run(graph.tasks(Phase::Setup));
    state.uploaded(Upload::Every);
    for step in 0..turns {
        state.run(graph.tasks(Phase::Step));
        if step == 0 {
            state.downloaded(&uses, Download::Every);
        }
        state.downloaded(&uses, Download::Asked);
        if step + 1 == turns {
            return state.finish(&uses);
        }
        // The steps that follow do not find what this finish leaves.
        let (names, written) = (state.names.clone(), state.written.clone());
        state.finish(&uses);
        (state.names, state.written) = (names, written);
    }
}

struct State<'a> {
    graph: &'a TaskGraph,
    /// Of each buffer's memory, what of it was written.
    written: Vec<Written>,
    names: Renaming,
    problems: &'a mut Vec<Diagnostic>,
    /// The first of these that is this rank's.
    first: usize,
}

impl State<'_> {
    /// All of these buffers are written by the host. What is uploaded in every step is never swapped.
    fn uploaded(&mut self, when: Upload) {
        for (decl, written) in self.graph.buffers.iter().zip(&mut self.written) {
            if decl.upload == when {
                written.add(&(0..decl.len()));
            }
        }
    }

    fn finish(&mut self, uses: &[bool]) {
        self.run(self.graph.tasks(Phase::Finish));
        self.downloaded(uses, Download::Last);
    }

    fn run(&mut self, nodes: &[Arc<Node>]) {
        for node in nodes {
            self.names.pass(node);
            // All of a unit's reads come before its writes are done.
            for (origin, _, _, description) in node.parts() {
                for access in description.accesses.iter().filter(|a| a.mode.reads()) {
                    let gap = self.of(access.buffer).and_then(|written| written.gap(&access.range));
                    if let Some(gap) = gap {
                        self.undefined(origin, access.param, access.buffer, &access.range, gap);
                    }
                }
            }
            for access in node.writes() {
                if let Some(written) = self.of(access.buffer) {
                    written.add(&access.range);
                }
            }
        }
    }

    /// What was written of the memory that a name stands for.
    fn of(&mut self, name: BufferId) -> Option<&mut Written> {
        self.written.get_mut(self.names.of(name).0 as usize)
    }

    fn undefined(&mut self, origin: &Origin, param: &str, name: BufferId, range: &Range<u64>, gap: u64) {
        let Some(decl) = self.graph.buffers.get(name.0 as usize) else { return };
        let text = format!(
            "`{param}` reads elements {} to {} of `{}`{}, and nothing wrote element {gap} on rank {}",
            range.start,
            range.end,
            decl.name,
            self.by_then(name),
            self.graph.rank
        );
        let label = Label::at(origin.span_of(param), format!("reads `{}`", decl.name))
            .on_rank(self.graph.rank)
            .in_task(&origin.name);
        let report = Diagnostic::error(codes::UNWRITTEN, text, label)
            .with_related(Label::at(decl.span, "declared here"))
            .with_help(self.mend(name));
        self.report(report);
        self.forgive(name);
    }

    /// Takes what a name stands for as written from here on: once is enough for each buffer.
    fn forgive(&mut self, name: BufferId) {
        let whole = self.graph.buffers.get(name.0 as usize).map_or(0..0, |decl| 0..decl.len());
        self.of(name).into_iter().for_each(|written| written.add(&whole));
    }

    /// Judges that all is written of the buffers that are downloaded then.
    fn downloaded(&mut self, uses: &[bool], when: Download) {
        let graph = self.graph;
        let used = graph.buffers.iter().zip(uses).enumerate();
        for (index, (decl, _)) in used.filter(|(_, (decl, used))| **used && decl.download == when) {
            let name = BufferId(index as u32);
            let Some(gap) = self.of(name).and_then(|written| written.gap(&(0..decl.len()))) else { continue };
            let text = format!(
                "`{}`{} is downloaded, and nothing wrote element {gap} of {} on rank {}",
                decl.name,
                self.by_then(name),
                decl.len(),
                graph.rank
            );
            let label = Label::at(decl.span, format!("`{}` is downloaded", decl.name)).on_rank(graph.rank);
            self.report(Diagnostic::error(codes::UNWRITTEN, text, label).with_help(self.mend(name)));
            self.forgive(name);
        }
    }

    /// Keeps a report, unless the same stood against an earlier turn.
    fn report(&mut self, report: Diagnostic) {
        if self.problems[self.first..].iter().all(|other| other.primary != report.primary) {
            self.problems.push(report);
        }
    }

    /// What a name stands for, where swaps have changed that.
    fn by_then(&self, name: BufferId) -> String {
        match self.graph.buffers.get(self.names.of(name).0 as usize) {
            Some(decl) if self.names.of(name) != name => {
                format!(" (by then what was declared as `{}`)", decl.name)
            }
            _ => String::new(),
        }
    }

    /// What would give the buffer contents in time.
    fn mend(&self, name: BufferId) -> String {
        let memory = self.names.of(name);
        let Some(decl) = self.graph.buffers.get(memory.0 as usize) else { return String::new() };
        let writes = |node: &&Arc<Node>| node.writes().any(|access| access.buffer == name);
        if let Some(node) = self.graph.skipped.iter().find(writes) {
            return format!(
                "`{}` would write it, but its grid is empty on rank {}, so that it does not run: give `{}` an init",
                node.origin.name, self.graph.rank, decl.name
            );
        }
        if decl.upload == Upload::Every {
            return format!("`{}` is uploaded at the start of each step, and setup comes before", decl.name);
        }
        if !Phase::ALL.iter().any(|&phase| self.graph.tasks(phase).iter().any(|node| writes(&node))) {
            return format!(
                "no task writes `{0}` on rank {1}: let one do so before, or give `{0}` an init",
                decl.name, self.graph.rank
            );
        }
        format!("give `{}` an init, or write all that is read of it in an earlier task", decl.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_ranges_merge_and_gaps_show() {
        let mut written = Written::default();
        for range in [4..6, 10..12, 0..2, 6..8, 1..4] {
            written.add(&range);
        }
        assert_eq!(written.0, [0..8, 10..12]);
        assert_eq!(written.gap(&(0..8)), None);
        assert_eq!(written.gap(&(2..11)), Some(8));
        assert_eq!(written.gap(&(8..9)), Some(8));
        assert_eq!(written.gap(&(11..13)), Some(12));
        assert_eq!(written.gap(&(5..5)), None);
        written.add(&(0..20));
        assert_eq!(written.0, std::slice::from_ref(&(0..20)));
    }

    /// Against a bitmap, over all short sequences of ranges.
    #[test]
    fn written_agrees_with_a_bitmap() {
        let mut seed = 1u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..2000 {
            let (mut written, mut bits) = (Written::default(), [false; 16]);
            for _ in 0..5 {
                let (a, b) = (next(17), next(17));
                let range = a.min(b)..a.max(b);
                written.add(&range);
                bits[range.start as usize..range.end as usize].fill(true);
                let (a, b) = (next(17), next(17));
                let query = a.min(b)..a.max(b);
                assert_eq!(written.gap(&query), query.clone().find(|&i| !bits[i as usize]));
                assert!(written.0.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }
}
