//! Making a rank's tasks ready: their ranges become addresses, checked against the rank's memory, and each becomes a [`Work`].

use std::sync::{Arc, Mutex, PoisonError};

use crate::args::{Arg, Args, BoundRange};
use crate::buffer::BufferRange;
use crate::device::{DeviceError, DevicePtr, Stream, Work};
use crate::graph::renaming::Renaming;
use crate::graph::{Body, Node, OpTask, Phase, TaskGraph};
use crate::group::handles::Handles;
use crate::library_op::{LibraryOp, OpCall, OpError, Prepare};
use crate::ops::Parts;
use crate::plan::services::{PlanServices, Sessions};
use crate::plan::{ExecutionPlan, SessionState};
use crate::verify::RankParts;

/// Why a plan could not be made ready.
pub(crate) struct BindError {
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) error: OpError,
}

/// What all ranks share while they prepare.
pub(crate) struct PrepareOn<'a> {
    pub(crate) exchange: &'a dyn crate::library_op::Exchange,
    pub(crate) aborted: &'a Arc<dyn crate::library_op::Abort>,
    pub(crate) handles: &'a Handles,
    /// Where this rank says what it makes ready.
    pub(crate) preparing: &'a Mutex<Option<Arc<Node>>>,
    pub(crate) deadline: std::time::Instant,
}

impl ExecutionPlan {
    /// Makes every task ready. `parts` are those of this rank. `cx` is completed with this plan's device and the session of each op's library.
    pub(crate) fn prepare(
        &mut self,
        sessions: Vec<SessionState>,
        parts: &RankParts,
        cx: &mut PrepareOn<'_>,
    ) -> Result<(), BindError> {
        self.sessions = sessions;
        for phase in Phase::ALL {
            for turn in 0..self.names.turns(phase) {
                let mut names = self.names.begin(phase, turn);
                let mut works = Vec::with_capacity(self.graph.tasks(phase).len());
                for index in 0..self.graph.tasks(phase).len() {
                    let node = self.graph.tasks(phase)[index].clone();
                    names.pass(&node);
                    let place = u32::try_from(index).unwrap_or(u32::MAX);
                    let of_member = |member| parts.get(&(phase as u8, place, member));
                    *cx.preparing.lock().unwrap_or_else(PoisonError::into_inner) = Some(node.clone());
                    let work = self.work(&node, &names, &of_member, cx);
                    works.push(work.map_err(|error| BindError { node: Some(node), error })?);
                }
                self.phases[phase as usize].push(works);
            }
        }
        *cx.preparing.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// Makes a task ready, where names stand for this.
    fn work<'p>(
        &mut self,
        node: &Node,
        names: &Renaming,
        parts: &dyn Fn(usize) -> Option<&'p Parts>,
        cx: &mut PrepareOn<'_>,
    ) -> Result<Box<dyn Work>, OpError> {
        match &node.body {
            Body::Kernel(task) => {
                let args = self.bind(&task.args, names)?;
                // SAFETY: `bind` checked the ranges against this plan's memory, which is dropped after its work;
                // only this plan's stream runs work over it, and peers reach it through their libraries alone.
                let work = unsafe { self.device.kernel(task.kernel, args, task.grid) }?;
                Ok(work)
            }
            Body::Ops { ops, .. } => {
                let Some(first) = ops.first() else { return Ok(Box::new(Nothing)) };
                let bound = ops.iter().map(|op| self.bind(&op.args, names)).collect::<Result<Vec<_>, _>>()?;
                let batch: Vec<OpCall<'_>> = ops
                    .iter()
                    .zip(&bound)
                    .enumerate()
                    .map(|(member, (op, args))| OpCall {
                        parts: parts(member),
                        ..call(&self.graph, op, args)
                    })
                    .collect();
                let mut uses: Vec<&'static dyn LibraryOp> = Vec::new();
                for op in ops.iter().flat_map(|task| &task.uses) {
                    if !uses.iter().any(|other| other.name() == op.name()) {
                        uses.push(*op);
                    }
                }
                let library = first.op.library();
                let (mut session, mut others) = (None, Sessions::new());
                for (name, state) in &mut self.sessions {
                    if *name == library {
                        session = Some(&mut **state);
                    } else {
                        others.push((*name, &mut **state));
                    }
                }
                let mut services = PlanServices {
                    rank: self.graph.rank(),
                    world: self.graph.world(),
                    device: &*self.device,
                    batch: &batch,
                    uses: &uses,
                    sessions: others,
                    exchange: cx.exchange,
                    aborted: cx.aborted,
                    handles: cx.handles,
                    deadline: cx.deadline,
                };
                let mut cx = Prepare {
                    rank: self.graph.rank(),
                    world: self.graph.world(),
                    device: &*self.device,
                    session,
                    exchange: cx.exchange,
                    aborted: cx.aborted,
                    deadline: cx.deadline,
                    services: &mut services,
                };
                // SAFETY: as for kernels above.
                unsafe { first.op.prepare(&batch, &mut cx) }
            }
            Body::Swap(_) => Ok(Box::new(Nothing)),
        }
    }

    /// Replaces ranges by addresses, checked against the memory: nothing that a graph says can reach outside it.
    fn bind(&self, args: &[Arg], names: &Renaming) -> Result<Vec<Arg<BoundRange>>, DeviceError> {
        args.iter()
            .map(|arg| {
                Ok(match arg {
                    Arg::Buffer(range) => Arg::Buffer(self.bind_range(range, names)?),
                    Arg::Absent => Arg::Absent,
                    Arg::Scalar(scalar) => Arg::Scalar(*scalar),
                    Arg::Size(n) => Arg::Size(*n),
                    Arg::Word(word) => Arg::Word(*word),
                    Arg::Flag(flag) => Arg::Flag(*flag),
                    Arg::Rank(rank) => Arg::Rank(*rank),
                    Arg::List(list) => Arg::List(list.clone()),
                })
            })
            .collect()
    }

    fn bind_range(&self, range: &BufferRange, names: &Renaming) -> Result<BoundRange, DeviceError> {
        let memory = self.memory.get(names.of(range.buffer).0 as usize).and_then(Option::as_ref);
        let len = range.shape.iter().try_fold(1u64, |n, &axis| n.checked_mul(axis));
        let end = len
            .and_then(|len| range.offset.checked_add(len))
            .and_then(|end| end.checked_mul(range.dtype.size()));
        match (memory, end) {
            (Some(memory), Some(end)) if end <= memory.bytes() => Ok(BoundRange {
                ptr: DevicePtr(memory.ptr().0 + range.offset * range.dtype.size()),
                dtype: range.dtype,
                shape: range.shape.clone(),
            }),
            _ => Err(DeviceError::Failed(format!("{range:?} is not in the rank's memory"))),
        }
    }
}

fn call<'a>(graph: &'a TaskGraph, task: &'a OpTask, values: &'a [Arg<BoundRange>]) -> OpCall<'a> {
    let part = graph.world().part(task.comm, graph.rank());
    let (comm_rank, comm_size) = part.map_or((0, 1), |part| (part.rank, part.size()));
    let args = Args { params: task.op.params(), values, comm_rank, comm_size };
    OpCall { op: task.op, task: &task.origin.name, comm: task.comm, args, parts: None }
}

/// An empty group, or a swap, which is done when works are made ready.
struct Nothing;

impl Work for Nothing {
    fn enqueue(&mut self, _: &mut dyn Stream) -> Result<(), DeviceError> {
        Ok(())
    }
}
