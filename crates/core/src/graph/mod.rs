//! Task graphs: one rank's ordered tasks over its buffers.
//!
//! A task is checked once, when it is added to a [`GraphBuilder`], and is then an immutable [`Node`] that ranks with
//! the same numbers share: ten thousand ranks cost one pointer a task where nothing depends on the rank.
//!
//! A swap ([`SwapSpec`]) is a task, too, for double buffering: tasks name buffers, and a swap changes whose memory a name stands
//! for from there on, in later steps as well. See [`Verified::turns`](crate::Verified::turns) for what a plan makes of it.

mod agreed;
mod arguments;
mod builder;
mod check;
pub(crate) mod inner;
mod launch;
pub(crate) mod partial;
pub(crate) mod renaming;
mod spec;

use std::sync::Arc;

use crate::args::{Arg, Args};
use crate::buffer::{BufferDecl, BufferId};
use crate::diagnostic::Span;
use crate::grid::Grid;
use crate::kernel::KernelDef;
use crate::library_op::LibraryOp;
use crate::param::ParamDef;
use crate::task::{Access, Description};
use crate::world::{CommId, Part, World};

use self::renaming::Renaming;

pub use agreed::Agreed;
pub use builder::GraphBuilder;
pub use partial::Partial;
pub use spec::{ArgValue, GroupSpec, IntoDims, KernelSpec, Matrix, OpSpec, SwapSpec, TaskSpec};

/// When tasks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// Once, before the first step.
    Setup,
    /// In every step.
    Step,
    /// Once, after the last step.
    Finish,
}

impl Phase {
    /// All phases, in the order they run.
    pub const ALL: [Phase; 3] = [Phase::Setup, Phase::Step, Phase::Finish];
}

/// Where a task comes from: shared by its nodes on all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The name that messages print: the task's own, or `task[3]` by its place.
    pub name: String,
    /// Where the task stands in the source.
    pub span: Option<Span>,
    /// Where its arguments stand, by parameter; and `grid` and `block`, where a kernel's threads and their block do.
    pub args: Vec<(String, Span)>,
}

impl Origin {
    /// An origin with a name and no source.
    pub fn named(name: impl Into<String>) -> Origin {
        Origin { name: name.into(), ..Origin::default() }
    }

    /// Where an argument stands, or else the task.
    pub fn span_of(&self, param: &str) -> Option<Span> {
        self.args.iter().find(|(name, _)| name == param).map(|&(_, span)| span).or(self.span)
    }
}

/// One task of a graph, checked.
#[derive(Debug)]
pub struct Node {
    /// Where it comes from.
    pub origin: Arc<Origin>,
    /// What it does.
    pub body: Body,
}

/// What a task does.
#[derive(Debug)]
pub enum Body {
    /// Runs a kernel.
    Kernel(KernelTask),
    /// Issues ops together: a group, or a lone op as a group of one. A group may be empty.
    Ops {
        /// The members, in order.
        ops: Vec<OpTask>,
        /// Whether it was written as a group.
        group: bool,
    },
    /// Renames: for all later tasks and steps of the rank, each of two buffers' names stands for what the other stood for.
    /// They are alike in dtype and shape. Nothing moves; it runs as a task that has nothing to do.
    Swap([BufferId; 2]),
}

/// A kernel with its arguments and grid.
#[derive(Debug)]
pub struct KernelTask {
    /// The kernel.
    pub kernel: &'static KernelDef,
    /// One argument a parameter.
    pub args: Vec<Arg>,
    /// Its grid.
    pub grid: Grid,
    /// What it touches.
    pub description: Description,
}

/// An op with its arguments, in its communicator.
#[derive(Debug)]
pub struct OpTask {
    /// The op, as the library that serves it here.
    pub op: &'static dyn LibraryOp,
    /// What it uses inside itself: see [`Needs::uses`](crate::Needs::uses).
    pub uses: Vec<&'static dyn LibraryOp>,
    /// Where it comes from; the task's own unless it is a member of a group.
    pub origin: Arc<Origin>,
    /// The communicator.
    pub comm: CommId,
    /// One argument a parameter.
    pub args: Vec<Arg>,
    /// What it touches and whom it meets.
    pub description: Description,
}

impl OpTask {
    /// The arguments beside their parameters, for a rank with this place in the communicator.
    pub fn args(&self, place: Option<Part<'_>>) -> Args<'_> {
        let (comm_rank, comm_size) = place.map_or((0, 1), |part| (part.rank, part.size()));
        Args { params: self.op.params(), values: &self.args, comm_rank, comm_size }
    }
}

impl Node {
    /// What its parts touch, each with the origin and arguments of the part.
    pub(crate) fn parts(
        &self,
    ) -> impl Iterator<Item = (&Arc<Origin>, &'static [ParamDef], &[Arg], &Description)> {
        let (kernel, ops) = match &self.body {
            Body::Kernel(task) => (Some(task), &[][..]),
            Body::Ops { ops, .. } => (None, ops.as_slice()),
            Body::Swap(_) => (None, &[][..]),
        };
        let kernel = kernel.map(|t| (&self.origin, t.kernel.params, t.args.as_slice(), &t.description));
        kernel
            .into_iter()
            .chain(ops.iter().map(|t| (&t.origin, t.op.params(), t.args.as_slice(), &t.description)))
    }

    /// The name that a buffer has before this task, of which `name` is the one behind it: a swap renames two.
    pub fn before(&self, name: BufferId) -> BufferId {
        match self.body {
            Body::Swap([a, b]) if name == a => b,
            Body::Swap([a, b]) if name == b => a,
            _ => name,
        }
    }

    /// What it writes on this rank, part by part.
    pub fn writes(&self) -> impl Iterator<Item = &Access> {
        let accesses = self.parts().flat_map(|(_, _, _, description)| &description.accesses);
        accesses.filter(|access| access.mode.writes())
    }

    /// The ops it issues; none for a kernel.
    pub fn ops(&self) -> &[OpTask] {
        match &self.body {
            Body::Kernel(_) | Body::Swap(_) => &[],
            Body::Ops { ops, .. } => ops,
        }
    }

    /// The buffers it names.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = BufferId> {
        let swapped = match self.body {
            Body::Swap(pair) => Some(pair),
            Body::Kernel(_) | Body::Ops { .. } => None,
        };
        let args = self.parts().flat_map(|(_, _, args, _)| args);
        let named = args.filter_map(|arg| match arg {
            Arg::Buffer(range) => Some(range.buffer),
            _ => None,
        });
        named.chain(swapped.into_iter().flatten())
    }
}

/// One rank's part of a job. Made by a [`GraphBuilder`]; all ranks' graphs together go to [`crate::verify()`].
#[derive(Clone, Debug)]
pub struct TaskGraph {
    pub(crate) world: Arc<World>,
    pub(crate) rank: u32,
    pub(crate) device: Arc<str>,
    pub(crate) buffers: Arc<Vec<BufferDecl>>,
    pub(crate) phases: [Vec<Arc<Node>>; 3],
    /// Kernels whose grid is empty on this rank: they do not run, but what they name is there.
    pub(crate) skipped: Vec<Arc<Node>>,
}

impl TaskGraph {
    /// All ranks and communicators.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// This graph's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The kind of device it is for.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// All declared buffers, by id. The rank has only those that [`TaskGraph::uses`].
    pub fn buffers(&self) -> &Arc<Vec<BufferDecl>> {
        &self.buffers
    }

    /// The tasks of a phase, in order.
    pub fn tasks(&self, phase: Phase) -> &[Arc<Node>] {
        &self.phases[phase as usize]
    }

    /// Number of tasks in all phases.
    pub fn len(&self) -> usize {
        self.phases.iter().map(Vec::len).sum()
    }

    /// Whether it has no tasks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether each buffer, by id, is named by a task of this rank: the rank has it then.
    pub fn uses(&self) -> Vec<bool> {
        let mut uses = vec![false; self.buffers.len()];
        let nodes = self.phases.iter().flatten().chain(&self.skipped);
        for buffer in nodes.flat_map(|node| node.buffers()) {
            if let Some(used) = uses.get_mut(buffer.0 as usize) {
                *used = true;
            }
        }
        uses
    }

    /// How one step renames buffers.
    pub(crate) fn renaming(&self) -> Renaming {
        Renaming::default().after(self, Phase::Step)
    }
}
