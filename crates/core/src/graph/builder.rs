//! Builds one rank's task graph, checking each task as it comes.

use std::collections::HashSet;
use std::sync::Arc;

use crate::args::Arg;
use crate::buffer::{BufferDecl, BufferId, BufferRange};
use crate::codes;
use crate::diagnostic::{Diagnostic, Label};
use crate::error::Problems;
use crate::graph::check::{self, Context};
use crate::graph::launch;
use crate::graph::partial::Gap;
use crate::graph::{
    Body, GroupSpec, KernelSpec, KernelTask, Node, OpSpec, OpTask, Origin, Phase, SwapSpec, TaskGraph,
    TaskSpec,
};
use crate::library_op::LibraryOp;
use crate::registry::{OpLookup, Registry};
use crate::world::{CommId, World};

/// Collects the tasks of one rank. What is wrong is kept and reported together by [`GraphBuilder::build`].
#[derive(Debug)]
pub struct GraphBuilder<'a> {
    registry: &'a Registry,
    pub(super) graph: TaskGraph,
    names: HashSet<String>,
    pub(super) gaps: Vec<Gap>,
    pub(super) problems: Vec<Diagnostic>,
}

impl TaskGraph {
    /// Starts the graph of `rank` for devices of the given kind (`"host"`, `"cuda"`).
    pub fn builder<'a>(
        registry: &'a Registry,
        world: &Arc<World>,
        rank: u32,
        device: &str,
    ) -> GraphBuilder<'a> {
        let graph = TaskGraph {
            world: world.clone(),
            rank,
            device: device.into(),
            buffers: Arc::default(),
            phases: Default::default(),
            skipped: Vec::new(),
        };
        GraphBuilder { registry, graph, names: HashSet::new(), gaps: Vec::new(), problems: Vec::new() }
    }
}

impl GraphBuilder<'_> {
    /// Declares a buffer. All ranks declare the same buffers in the same order, each with its own shape.
    pub fn buffer(&mut self, decl: BufferDecl) -> BufferId {
        self.problems.extend(check::size(&decl, self.graph.rank));
        if let Some(other) = self.graph.buffers.iter().find(|b| b.name == decl.name) {
            let text = format!("two buffers have the name `{}`", decl.name);
            let report = Diagnostic::error(codes::DUPLICATE, text, Label::at(decl.span, ""));
            self.problems.push(report.with_related(Label::at(other.span, "the first")));
        }
        let buffers = Arc::make_mut(&mut self.graph.buffers);
        buffers.push(decl);
        BufferId(buffers.len() as u32 - 1)
    }

    /// Takes all declarations at once, shared with other ranks that have the very same: what
    /// [`GraphBuilder::buffers`] gave on the first of them.
    pub fn share_buffers(&mut self, buffers: Arc<Vec<BufferDecl>>) {
        let rank = self.graph.rank;
        self.problems.extend(buffers.iter().filter_map(|decl| check::size(decl, rank)));
        self.graph.buffers = buffers;
    }

    /// How many problems were found so far.
    pub fn problems(&self) -> usize {
        self.problems.len()
    }

    /// The buffers declared so far.
    pub fn buffers(&self) -> &Arc<Vec<BufferDecl>> {
        &self.graph.buffers
    }

    /// The whole of a buffer, to take ranges of.
    pub fn whole(&self, buffer: BufferId) -> Option<BufferRange> {
        self.graph.buffers.get(buffer.0 as usize).map(|decl| BufferRange::whole(buffer, decl))
    }

    /// Adds a task to be run once before the first step.
    pub fn setup(&mut self, task: impl Into<TaskSpec>) -> &mut Self {
        self.add(Phase::Setup, task);
        self
    }

    /// Adds a task to the step.
    pub fn step(&mut self, task: impl Into<TaskSpec>) -> &mut Self {
        self.add(Phase::Step, task);
        self
    }

    /// Adds a task to be run once after the last step.
    pub fn finish(&mut self, task: impl Into<TaskSpec>) -> &mut Self {
        self.add(Phase::Finish, task);
        self
    }

    /// Checks a task and adds it. Returns its node, for other ranks to [`GraphBuilder::share`];
    /// `None` when it has problems, or nothing to run.
    pub fn add(&mut self, phase: Phase, task: impl Into<TaskSpec>) -> Option<Arc<Node>> {
        let before = self.problems.len();
        let node = self.node(task.into(), phase);
        let ok = self.problems.len() == before;
        let node = node.filter(|_| ok).map(Arc::new)?;
        if !self.names.insert(node.origin.name.clone()) {
            let text = format!("two tasks have the name `{}`", node.origin.name);
            self.problems.push(Diagnostic::error(codes::DUPLICATE, text, Label::at(node.origin.span, "")));
        }
        if matches!(&node.body, Body::Kernel(task) if task.grid.is_empty()) {
            // Nothing to run: a legal outcome of a size that is 0 on this rank.
            self.graph.skipped.push(node);
            return None;
        }
        self.graph.phases[phase as usize].push(node.clone());
        Some(node)
    }

    /// Adds a task that was checked for another rank, if it means the same here: the buffers it names are the same,
    /// and neither this rank's place in its communicators nor its device changes anything. Returns whether it did;
    /// what is not shared is to be added, and any problem comes out then.
    pub fn share(&mut self, phase: Phase, node: &Arc<Node>, of: &Arc<Vec<BufferDecl>>) -> bool {
        let runs_here = match &node.body {
            Body::Kernel(task) => task.kernel.runs_on(&self.graph.device),
            Body::Ops { ops, group } => ops.iter().all(|task| self.same_op(task, *group)),
            Body::Swap(_) => true,
        };
        let same = runs_here && self.same_buffers(node, of) && !self.names.contains(&node.origin.name);
        if same {
            self.names.insert(node.origin.name.clone());
            self.graph.phases[phase as usize].push(node.clone());
        }
        same
    }

    fn same_op(&self, task: &OpTask, group: bool) -> bool {
        let Some(part) = self.graph.world.part(task.comm, self.graph.rank) else { return false };
        let known = |arg: &Arg| !matches!(arg, Arg::Rank(rank) if *rank >= part.size());
        task.op.device() == &*self.graph.device
            && task.args.iter().all(known)
            && (group || !check::to_itself(&task.description, part.rank))
            && task.op.describe(&task.args(Some(part))).is_ok_and(|here| here == task.description)
    }

    fn same_buffers(&self, node: &Node, of: &Arc<Vec<BufferDecl>>) -> bool {
        Arc::ptr_eq(&self.graph.buffers, of)
            || node.buffers().all(|buffer| {
                let index = buffer.0 as usize;
                self.graph.buffers.get(index) == of.get(index)
            })
    }

    /// The graph, or all that is wrong with it.
    pub fn build(self) -> Result<TaskGraph, Problems> {
        if self.problems.is_empty() { Ok(self.graph) } else { Err(Problems(self.problems)) }
    }

    fn node(&mut self, task: TaskSpec, phase: Phase) -> Option<Node> {
        let place = self.graph.phases[phase as usize].len();
        let default_name = || {
            let table = ["setup", "task", "finish"][phase as usize];
            Arc::new(Origin::named(format!("{table}[{place}]")))
        };
        let (origin, body) = match task {
            TaskSpec::Kernel(spec) => {
                let origin = spec.origin.clone().unwrap_or_else(default_name);
                let task = self.kernel(&spec, &origin)?;
                (origin, Body::Kernel(task))
            }
            TaskSpec::Op(spec) => {
                let origin = spec.origin.clone().unwrap_or_else(default_name);
                let op = self.op(&spec, &origin, false)?;
                (origin, Body::Ops { ops: vec![op], group: false })
            }
            TaskSpec::Group(spec) => {
                let origin = spec.origin.clone().unwrap_or_else(default_name);
                let ops = self.group(&spec, &origin);
                (origin, Body::Ops { ops, group: true })
            }
            TaskSpec::Swap(SwapSpec { origin, pair }) => {
                let origin = origin.unwrap_or_else(default_name);
                let problem = check::swap(&self.context(&origin, "swap".to_string(), CommId::WORLD), pair);
                self.problems.extend(problem);
                (origin, Body::Swap(pair))
            }
        };
        let node = Node { origin, body };
        let origin = node.origin.clone();
        let mut problems = Vec::new();
        check::overlaps(&self.context(&origin, String::new(), CommId::WORLD), &node, &mut problems);
        self.problems.append(&mut problems);
        Some(node)
    }

    /// Everything but the comm's numbers is as for a kernel.
    fn context<'c>(&'c self, origin: &'c Arc<Origin>, what: String, comm: CommId) -> Context<'c> {
        let world: &World = &self.graph.world;
        let (comm_rank, comm_size) =
            world.part(comm, self.graph.rank).map_or((0, 1), |part| (part.rank, part.size()));
        Context {
            rank: self.graph.rank,
            buffers: &self.graph.buffers,
            origin,
            what,
            comm_name: world.name(comm),
            comm_rank,
            comm_size,
        }
    }

    fn kernel(&mut self, spec: &KernelSpec, origin: &Arc<Origin>) -> Option<KernelTask> {
        let mut problems = Vec::new();
        let cx = self.context(origin, format!("kernel `{}`", spec.kernel.name), CommId::WORLD);
        let task = launch::kernel(&cx, spec, &self.graph.device, &mut problems);
        self.problems.append(&mut problems);
        task
    }

    fn op(&mut self, spec: &OpSpec, origin: &Arc<Origin>, in_group: bool) -> Option<OpTask> {
        let mut problems = Vec::new();
        let cx = self.context(origin, format!("op `{}`", spec.op), spec.comm);
        let op = match self.registry.op(&spec.op, &self.graph.device, spec.library.as_deref()) {
            Ok(op) => Some(op),
            Err(error) => {
                let code =
                    if matches!(error, OpLookup::Unknown(_)) { codes::ARGUMENT } else { codes::LIBRARY };
                let help = "`squall list ops` shows which libraries serve each op, and on which devices";
                problems.push(cx.error(code, "op", error.to_string()).with_help(help));
                None
            }
        };
        let task = op.and_then(|op| {
            if self.graph.world.part(spec.comm, self.graph.rank).is_none() {
                let text = format!("{} names a communicator that this world lacks", cx.what);
                problems.push(cx.error(codes::ARGUMENT, "comm", text));
                return None;
            }
            let (args, description) = check::op(&cx, op, &spec.args, in_group, &mut problems)?;
            let uses = match self.registry.used_by(op) {
                Ok(uses) => uses,
                Err(error) => {
                    problems.push(cx.error(codes::LIBRARY, "op", error.to_string()));
                    return None;
                }
            };
            Some(OpTask { op, uses, origin: origin.clone(), comm: spec.comm, args, description })
        });
        self.problems.append(&mut problems);
        task
    }

    fn group(&mut self, spec: &GroupSpec, origin: &Arc<Origin>) -> Vec<OpTask> {
        let mut ops: Vec<OpTask> = Vec::with_capacity(spec.members.len());
        for (index, member) in spec.members.iter().enumerate() {
            let default_name =
                || Arc::new(Origin { name: format!("{}[{index}]", origin.name), ..(**origin).clone() });
            let origin = member.origin.clone().unwrap_or_else(default_name);
            ops.extend(self.op(member, &origin, true));
        }
        let mut problems = Vec::new();
        let cx = self.context(origin, String::new(), CommId::WORLD);
        let library = |op: &OpTask| LibraryOp::library(op.op);
        if let Some(other) = ops.iter().find(|op| library(op) != library(&ops[0])) {
            let text = format!(
                "the group mixes the libraries `{}` and `{}`; a group is issued by one library",
                library(&ops[0]),
                library(other)
            );
            problems.push(cx.error(codes::GROUP, "", text));
        }
        if ops.len() > 1 {
            for op in ops.iter().filter(|op| !op.op.needs().groups) {
                let text =
                    format!("`{}` by the library `{}` cannot stand in a group", op.op.name(), library(op));
                problems.push(cx.error(codes::GROUP, "", text));
            }
        }
        self.problems.append(&mut problems);
        ops
    }
}
