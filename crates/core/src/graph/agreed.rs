//! Buffers that hold the same on every rank because a collective of the whole world gave it.

use std::sync::Arc;

use super::{Node, OpTask, Origin, Phase, TaskGraph};
use crate::args::Arg;
use crate::buffer::{BufferId, BufferRange};

/// Ops that leave the same in the result of every rank.
const AGREEING: [&str; 3] = ["all_reduce", "all_gather", "broadcast"];

/// What a buffer holds when a step ends, by what gave it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreed {
    /// A collective of the whole world: the same on every rank.
    Yes,
    /// This task of the rank: another value on every rank, for all that is known.
    No(Arc<Origin>),
    /// No task of setup or of the step.
    Unwritten,
}

impl TaskGraph {
    /// Whether what a buffer holds at the end of a step is the same on every rank, if all ranks say so: the last task of the step
    /// that writes it, or else of setup, is an `all_reduce`, an `all_gather` or a `broadcast` between all ranks. For conditions that
    /// ranks judge apart.
    ///
    /// Names are followed through swaps: what a step hands on under another name is looked for under that name in the step before
    /// it, and, since there may be none, in setup.
    pub fn agreed(&self, buffer: BufferId) -> Agreed {
        let (mut name, mut unwritten) = (buffer, false);
        loop {
            if let Some(found) = self.last(Phase::Step, &mut name) {
                return if unwritten && found == Agreed::Yes { Agreed::Unwritten } else { found };
            }
            match self.last(Phase::Setup, &mut name.clone()).unwrap_or(Agreed::Unwritten) {
                Agreed::Unwritten => unwritten = true,
                Agreed::Yes => {}
                no => return no,
            }
            // Around the cycle that the swaps make of names, nothing in a step writes it.
            if name == buffer {
                return if unwritten { Agreed::Unwritten } else { Agreed::Yes };
            }
        }
    }

    /// What the tasks of a phase make of a name at their end; `None` if they leave it as it was, under the name that is then left.
    fn last(&self, phase: Phase, name: &mut BufferId) -> Option<Agreed> {
        self.tasks(phase).iter().rev().find_map(|node| {
            *name = node.before(*name);
            self.agreed_by(node, *name)
        })
    }

    /// What one task makes of a buffer; `None` if it leaves it as it was.
    fn agreed_by(&self, node: &Arc<Node>, buffer: BufferId) -> Option<Agreed> {
        let agrees = |op| self.agreement(op).is_some_and(|range| range.buffer == buffer);
        if node.ops().iter().any(agrees) {
            return Some(Agreed::Yes);
        }
        node.writes().any(|access| access.buffer == buffer).then(|| Agreed::No(node.origin.clone()))
    }

    /// The range that holds the same on every rank once this rank has taken part in the op; `None` of ops that leave each rank a
    /// result of its own, and of those between a part of the ranks.
    pub fn agreement<'n>(&self, op: &'n OpTask) -> Option<&'n BufferRange> {
        let ranks = self.world.part(op.comm, self.rank)?.size();
        if !AGREEING.contains(&op.op.name()) || ranks != self.world.size() {
            return None;
        }
        // The root of a broadcast only reads what the others write, so that accesses would not tell.
        let args = op.op.params().iter().zip(&op.args);
        args.into_iter().find_map(|(param, arg)| match (param.name, arg) {
            ("buffer" | "recv", Arg::Buffer(range)) => Some(range),
            _ => None,
        })
    }
}
