//! Reads of what nothing wrote on that rank.

use std::ops::Range;
use std::sync::Arc;

use crate::buffer::{BufferDecl, Download, Upload};
use crate::codes;
use crate::diagnostic::{Diagnostic, Label};
use crate::graph::{Node, Origin, Phase, TaskGraph};

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

/// Judges setup, the first step and finish of every rank. Later steps find at least what the first one found.
pub(super) fn check(graphs: &[TaskGraph], problems: &mut Vec<Diagnostic>) {
    let mut previous: Option<&TaskGraph> = None;
    for graph in graphs {
        // Ranks that share all nodes and buffers share the verdict.
        if previous.is_some_and(|other| same(graph, other)) {
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
    let whole = |decl: &BufferDecl| 0..decl.len();
    let mut written: Vec<Written> = vec![Written::default(); graph.buffers.len()];
    let mut state = State { graph, written: &mut written, problems };
    let uploaded = |state: &mut State<'_>, when: Upload| {
        for (index, decl) in graph.buffers.iter().enumerate().filter(|(_, d)| d.upload == when) {
            state.written[index].add(&whole(decl));
        }
    };
    let uses = graph.uses();
    let downloaded = |state: &mut State<'_>, when: Download| {
        for (index, decl) in graph.buffers.iter().enumerate().filter(|&(i, d)| uses[i] && d.download == when)
        {
            state.downloaded(index, decl);
        }
    };
    uploaded(&mut state, Upload::First);
    state.run(graph.tasks(Phase::Setup));
    uploaded(&mut state, Upload::Every);
    state.run(graph.tasks(Phase::Step));
    downloaded(&mut state, Download::Every);
    downloaded(&mut state, Download::Asked);
    state.run(graph.tasks(Phase::Finish));
    downloaded(&mut state, Download::Last);
}

struct State<'a> {
    graph: &'a TaskGraph,
    written: &'a mut Vec<Written>,
    problems: &'a mut Vec<Diagnostic>,
}

impl State<'_> {
    fn run(&mut self, nodes: &[Arc<Node>]) {
        for node in nodes {
            // All of a unit's reads come before its writes are done.
            for (origin, _, _, description) in node.parts() {
                for access in description.accesses.iter().filter(|a| a.mode.reads()) {
                    let index = access.buffer.0 as usize;
                    if let Some(gap) = self.written.get(index).and_then(|w| w.gap(&access.range)) {
                        self.undefined(origin, access.param, index, &access.range, gap);
                    }
                }
            }
            for (_, _, _, description) in node.parts() {
                for access in description.accesses.iter().filter(|a| a.mode.writes()) {
                    if let Some(written) = self.written.get_mut(access.buffer.0 as usize) {
                        written.add(&access.range);
                    }
                }
            }
        }
    }

    fn undefined(&mut self, origin: &Origin, param: &str, index: usize, range: &Range<u64>, gap: u64) {
        let decl = &self.graph.buffers[index];
        let text = format!(
            "`{param}` reads elements {} to {} of `{}`, and nothing wrote element {gap} on rank {}",
            range.start, range.end, decl.name, self.graph.rank
        );
        let label = Label::at(origin.span_of(param), format!("reads `{}`", decl.name))
            .on_rank(self.graph.rank)
            .in_task(&origin.name);
        self.problems.push(
            Diagnostic::error(codes::UNWRITTEN, text, label)
                .with_related(Label::at(decl.span, "declared here"))
                .with_help(self.mend(index)),
        );
        // Once is enough for each buffer.
        self.written[index].add(&(0..decl.len()));
    }

    fn downloaded(&mut self, index: usize, decl: &BufferDecl) {
        if let Some(gap) = self.written[index].gap(&(0..decl.len())) {
            let text = format!(
                "`{}` is downloaded, and nothing wrote element {gap} of {} on rank {}",
                decl.name,
                decl.len(),
                self.graph.rank
            );
            let label =
                Label::at(decl.span, format!("`{}` is downloaded", decl.name)).on_rank(self.graph.rank);
            self.problems.push(Diagnostic::error(codes::UNWRITTEN, text, label).with_help(self.mend(index)));
        }
    }

    /// What would give the buffer contents in time.
    fn mend(&self, index: usize) -> String {
        let decl = &self.graph.buffers[index];
        let writes = |node: &&Arc<Node>| {
            let accesses = node.parts().flat_map(|(_, _, _, description)| &description.accesses);
            accesses.into_iter().any(|a| a.buffer.0 as usize == index && a.mode.writes())
        };
        if let Some(node) = self.graph.skipped.iter().find(writes) {
            return format!(
                "`{}` would write it, but its grid is empty on rank {}, so that it does not run: give `{}` an init",
                node.origin.name, self.graph.rank, decl.name
            );
        }
        if decl.upload == Upload::Every {
            return format!("`{}` is uploaded at the start of each step, and setup comes before", decl.name);
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
