//! Looking at what every task wrote: for tools that hunt a fault. Nothing of it is in the way of a plan that nobody observes.

use std::sync::Arc;

use crate::buffer::{BufferId, BufferRange};
use crate::device::{Device, DeviceError, DevicePtr, Memory, Stream};
use crate::dtype::DType;
use crate::graph::renaming::Renaming;
use crate::graph::{Node, Phase, TaskGraph};
use crate::plan::names::Names;
use crate::plan::transfer::host;
use crate::task::Access;

/// Sees what each task of a plan group writes. Given to [`PlanGroup::observe`](crate::PlanGroup::observe).
///
/// Called on the threads of the ranks, for several ranks at once. A rank goes on when it has returned.
pub trait Observer: Send + Sync {
    /// A task has ended, and left these bytes in a range that it writes, in native order. Called once a range, in the
    /// order of the task's parameters. What the observer changes in them goes back to the device if it returns true.
    ///
    /// # Errors
    /// An error fails the rank, in this task.
    fn written(&self, written: &Written<'_>, bytes: &mut [u8]) -> Result<bool, DeviceError>;
}

/// A range that a task wrote.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The rank.
    pub rank: u32,
    /// The phase.
    pub phase: Phase,
    /// The step, counted from 0; 0 in the setup and the finish.
    pub step: u64,
    /// The task, by its index in the rank's phase.
    pub task: usize,
    /// Which of the task's ranges it is, as [`Node::writes`] gives them; those without elements are not shown.
    pub index: usize,
    /// The range, of the buffer that the task names.
    pub range: &'a BufferRange,
}

/// A range that a task writes, and the buffer whose memory its name stands for then.
struct Place {
    range: BufferRange,
    memory: BufferId,
}

/// What a plan keeps to show its tasks to an observer.
pub(super) struct Observed {
    observer: Arc<dyn Observer>,
    rank: u32,
    /// As large as the largest range.
    staging: Box<dyn Memory>,
    /// Of each phase, turn and task, what it writes.
    places: [Vec<Vec<Vec<Place>>>; 3],
}

impl Observed {
    pub(super) fn new(
        observer: Arc<dyn Observer>,
        graph: &TaskGraph,
        names: &Names,
        device: &dyn Device,
    ) -> Result<Observed, DeviceError> {
        let places = Phase::ALL.map(|phase| {
            let turn = |turn| {
                let mut names = names.begin(phase, turn);
                let tasks = graph.tasks(phase).iter().map(|node| {
                    names.pass(node);
                    written(graph, node, &names)
                });
                tasks.collect::<Vec<_>>()
            };
            (0..names.turns(phase)).map(turn).collect::<Vec<_>>()
        });
        let ranges = places.iter().flatten().flatten().flatten().map(|place| &place.range);
        let sizes = ranges.map(|range| range.len().saturating_mul(range.dtype.size()));
        let staging = device.alloc_staging(sizes.max().unwrap_or(0))?;
        Ok(Observed { observer, rank: graph.rank(), staging, places })
    }

    /// Waits for a task that was enqueued, of a phase in its turn, and shows what it wrote.
    ///
    /// A rank waits here for its own task alone. That is what verification supposes of every task that meets other
    /// ranks, so that no order of waits can hang.
    pub(super) fn show(
        &mut self,
        (phase, turn): (Phase, usize),
        step: u64,
        task: usize,
        stream: &mut dyn Stream,
        memory: &[Option<Box<dyn Memory>>],
    ) -> Result<(), DeviceError> {
        stream.wait(None)?; // also for a task that writes nothing, so that its failure is its own
        let places = self.places[phase as usize].get(turn).and_then(|tasks| tasks.get(task));
        for (index, place) in places.into_iter().flatten().enumerate() {
            let range = &place.range;
            let Some((ptr, bytes)) = place.find(memory) else {
                return Err(DeviceError::Failed(format!("{range:?} is not in the rank's memory")));
            };
            if bytes == 0 {
                continue;
            }
            // SAFETY: `find` checked the range against this plan's memory, the staging is as large as the largest range,
            // and this thread waits before it touches either again.
            unsafe { stream.copy(self.staging.ptr(), ptr, bytes) }?;
            stream.wait(None)?;
            let host = host(&mut *self.staging)?.get_mut(..bytes as usize);
            let host =
                host.ok_or_else(|| DeviceError::Failed("the staging memory is too small".to_string()))?;
            let written = Written { rank: self.rank, phase, step, task, index, range };
            if self.observer.written(&written, host)? {
                // SAFETY: as above.
                unsafe { stream.copy(ptr, self.staging.ptr(), bytes) }?;
                stream.wait(None)?;
            }
        }
        Ok(())
    }
}

/// The ranges that a task writes, where names stand for this. Whether they are in the rank's buffers is looked at when they are shown.
fn written(graph: &TaskGraph, node: &Node, names: &Renaming) -> Vec<Place> {
    let place = |access: &Access| Place {
        range: BufferRange {
            buffer: access.buffer,
            dtype: graph.buffers().get(access.buffer.0 as usize).map_or(DType::U8, |decl| decl.dtype),
            offset: access.range.start,
            shape: Arc::new([access.range.end.saturating_sub(access.range.start)]),
        },
        memory: names.of(access.buffer),
    };
    node.writes().map(place).collect()
}

impl Place {
    /// Where it lies, and its size; `None` where the rank has no such memory.
    fn find(&self, memory: &[Option<Box<dyn Memory>>]) -> Option<(DevicePtr, u64)> {
        let (range, memory) = (&self.range, memory.get(self.memory.0 as usize)?.as_ref()?);
        let start = range.offset.checked_mul(range.dtype.size())?;
        let bytes = range.len().checked_mul(range.dtype.size())?;
        let end = start.checked_add(bytes)?;
        (end <= memory.bytes()).then(|| (DevicePtr(memory.ptr().0 + start), bytes))
    }
}
