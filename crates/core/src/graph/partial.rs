//! What is known of a rank some of whose tasks were refused.

use crate::buffer::BufferId;
use crate::diagnostic::Diagnostic;
use crate::graph::{GraphBuilder, Phase, TaskGraph};
use crate::world::CommId;

/// A rank's graph without the tasks that were refused, and where they are missing. No [`TaskGraph`] comes out of it:
/// it can be looked at by [`crate::verify_partial`], and never run.
#[derive(Clone, Debug)]
pub struct Partial {
    pub(crate) graph: TaskGraph,
    pub(crate) gaps: Vec<Gap>,
}

/// Where a refused task is missing, and what it may have done there.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    pub(crate) phase: Phase,
    /// Tasks of the phase before it.
    pub(crate) position: usize,
    /// The communicators it may have met other ranks on.
    pub(crate) comms: Vec<CommId>,
    /// The buffers it may have written.
    pub(crate) buffers: Vec<BufferId>,
}

impl GraphBuilder<'_> {
    /// Notes that a refused task is missing here, which may have met other ranks on `comms` and written `buffers`.
    /// [`GraphBuilder::add`] notes nothing by itself.
    pub fn gap(&mut self, phase: Phase, comms: Vec<CommId>, buffers: Vec<BufferId>) {
        let position = self.graph.phases[phase as usize].len();
        self.gaps.push(Gap { phase, position, comms, buffers });
    }

    /// What was built, and what is wrong with the rest.
    pub fn partial(self) -> (Partial, Vec<Diagnostic>) {
        (Partial { graph: self.graph, gaps: self.gaps }, self.problems)
    }
}

impl Partial {
    /// The graph, if no task is missing from it.
    pub fn whole(self) -> Option<TaskGraph> {
        self.gaps.is_empty().then_some(self.graph)
    }
}
