//! What a job must keep between two steps so as to go on from there: the live buffers of classical data flow.

use std::sync::Arc;

use crate::buffer::{BufferDecl, BufferId, Download, Upload};
use crate::graph::renaming::Renaming;
use crate::graph::{Body, Node, Phase, TaskGraph};
use crate::verify::dataflow::{Written, same};

/// Of each rank and buffer, whether it is carried from step to step.
pub(super) fn carried(graphs: &[TaskGraph]) -> Vec<Arc<[bool]>> {
    let mut all: Vec<Arc<[bool]>> = Vec::with_capacity(graphs.len());
    let mut previous: Option<&TaskGraph> = None;
    for graph in graphs {
        let carried = match (previous, all.last()) {
            (Some(other), Some(last)) if same(graph, other) => last.clone(),
            _ => rank(graph),
        };
        all.push(carried);
        previous = Some(graph);
    }
    all
}

fn rank(graph: &TaskGraph) -> Arc<[bool]> {
    let (mut in_steps, mut at_the_end) = (live_into_a_step(graph), live_into_the_finish(graph));
    let mut changed = changed(graph);
    for found in [&mut in_steps, &mut at_the_end, &mut changed] {
        spread(graph, found);
    }
    let each = graph.uses().into_iter().zip(graph.buffers().iter()).enumerate();
    each.map(|(place, (used, decl))| {
        // What a step uploads it has from the host again; only the finish can read what the last step left of it.
        let live = at_the_end[place] || (decl.upload != Upload::Every && in_steps[place]);
        used && live && changed[place]
    })
    .collect()
}

/// Whether a step reads some element of each buffer, or downloads it at its end, before it has written that.
fn live_into_a_step(graph: &TaskGraph) -> Vec<bool> {
    let mut flow = Flow::new(graph);
    for (place, decl) in graph.buffers().iter().enumerate().filter(|(_, decl)| decl.upload == Upload::Every) {
        flow.written[place].add(&(0..decl.len()));
    }
    flow.run(graph.tasks(Phase::Step));
    flow.take(|decl| matches!(decl.download, Download::Every | Download::Asked));
    flow.live
}

/// The same of the finish and of what is taken at the end.
fn live_into_the_finish(graph: &TaskGraph) -> Vec<bool> {
    let mut flow = Flow::new(graph);
    flow.run(graph.tasks(Phase::Finish));
    // What is asked for between steps may be saved at the end, too.
    flow.take(|decl| decl.download != Download::Never);
    flow.live
}

/// Whether what each buffer holds after a step may be other than what it is given before the first.
fn changed(graph: &TaskGraph) -> Vec<bool> {
    let mut changed: Vec<bool> = graph.buffers().iter().map(|decl| decl.upload != Upload::First).collect();
    for access in [Phase::Setup, Phase::Step].iter().flat_map(|&p| graph.tasks(p)).flat_map(|n| n.writes()) {
        if let Some(changed) = changed.get_mut(access.buffer.0 as usize) {
            *changed = true;
        }
    }
    changed
}

/// Lets what was found of a buffer hold of all that are swapped with it, and with those: what one name stands for now, another does
/// later. More than is needed where a step writes a buffer whole before it swaps it.
fn spread(graph: &TaskGraph, found: &mut [bool]) {
    let swaps = || Phase::ALL.iter().flat_map(|&phase| graph.tasks(phase));
    let mut more = true;
    while std::mem::take(&mut more) {
        for node in swaps() {
            if let Body::Swap([a, b]) = node.body {
                let (a, b) = (a.0 as usize, b.0 as usize);
                if found[a] != found[b] {
                    (found[a], found[b], more) = (true, true, true);
                }
            }
        }
    }
}

/// By what names stood for where the phase begins.
struct Flow<'a> {
    buffers: &'a [BufferDecl],
    names: Renaming,
    written: Vec<Written>,
    live: Vec<bool>,
}

impl<'a> Flow<'a> {
    fn new(graph: &'a TaskGraph) -> Flow<'a> {
        let count = graph.buffers().len();
        let names = Renaming::default();
        Flow {
            buffers: graph.buffers(),
            names,
            written: vec![Written::default(); count],
            live: vec![false; count],
        }
    }

    fn run(&mut self, nodes: &[Arc<Node>]) {
        for node in nodes {
            self.names.pass(node);
            // All of a unit's reads come before its writes are done.
            let parts = node.parts().flat_map(|(_, _, _, description)| &description.accesses);
            for access in parts.filter(|access| access.mode.reads()) {
                let place = self.names.of(access.buffer).0 as usize;
                if self.written.get(place).is_some_and(|written| written.gap(&access.range).is_some()) {
                    self.live[place] = true;
                }
            }
            for access in node.writes() {
                if let Some(written) = self.written.get_mut(self.names.of(access.buffer).0 as usize) {
                    written.add(&access.range);
                }
            }
        }
    }

    /// The host takes the buffers of which `taken` holds.
    fn take(&mut self, taken: impl Fn(&BufferDecl) -> bool) {
        for (name, decl) in self.buffers.iter().enumerate().filter(|(_, decl)| taken(decl)) {
            let place = self.names.of(BufferId(name as u32)).0 as usize;
            self.live[place] |= self.written[place].gap(&(0..decl.len())).is_some();
        }
    }
}
