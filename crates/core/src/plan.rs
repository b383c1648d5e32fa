//! One rank's execution plan: its graph bound to a device, its memory and its stream, ready to run a step.
//!
//! The only unsafe calls of core stand here and below: it is the plan that keeps the promise that memory outlives the
//! work that was bound to it.

mod observe;

use std::any::Any;
use std::sync::Arc;

use crate::args::{Arg, Args, BoundRange};
use crate::buffer::{BufferRange, Download, Upload};
use crate::device::{Device, DeviceError, DevicePtr, Memory, Progress, Stream, Work};
use crate::graph::{Body, Node, OpTask, Phase, TaskGraph};
use crate::library_op::{OpCall, OpError, Prepare};

use self::observe::Observed;

pub use observe::{Observer, Written};

/// Gives a buffer's contents step by step. Called on the rank's thread at the start of every step.
pub trait Feed: Send {
    /// Writes the contents for step `step`, counted from 0, over the whole of `out`. Must not allocate.
    fn fill(&mut self, step: u64, out: &mut [u8]) -> Result<(), String>;
}

/// A failure, and the task it happened in.
pub(crate) struct TaskError {
    /// The task's index in its phase; `None` for transfers, and where it cannot be told.
    pub(crate) task: Option<usize>,
    /// The run, counted from 0 over all phases of the plan, modulo 2³².
    pub(crate) run: u32,
    pub(crate) error: DeviceError,
}

/// Why a plan could not be made ready.
pub(crate) struct BindError {
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) error: OpError,
}

/// A buffer that is uploaded in every step.
struct Input {
    buffer: usize,
    staging: Box<dyn Memory>,
    feed: Option<Box<dyn Feed>>,
}

/// A buffer that is downloaded in every step.
struct Output {
    buffer: usize,
    staging: Box<dyn Memory>,
}

/// One library's state on this rank, by the library's name.
pub(crate) type SessionState = (&'static str, Box<dyn Any + Send>);

/// A rank, bound. Lives on the rank's thread.
pub(crate) struct ExecutionPlan {
    // Fields are dropped in order: work before what it uses, captured work first of all.
    captured: Option<Box<dyn Work>>,
    phases: [Vec<Box<dyn Work>>; 3],
    sessions: Vec<SessionState>,
    observed: Option<Observed>,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    memory: Vec<Option<Box<dyn Memory>>>,
    stream: Box<dyn Stream>,
    progress: Arc<dyn Progress>,
    device: Arc<dyn Device>,
    graph: TaskGraph,
    capture: bool,
    /// The task that is being enqueued, by its index in its phase.
    at: Option<usize>,
    /// Runs whose end was enqueued, of all phases, modulo 2³².
    runs: u32,
}

impl ExecutionPlan {
    /// Allocates what the graph's tasks name. The plan cannot run before it is [`ExecutionPlan::prepare`]d.
    pub(crate) fn allocate(
        graph: TaskGraph,
        device: Arc<dyn Device>,
        capture: bool,
    ) -> Result<ExecutionPlan, DeviceError> {
        let stream = device.stream()?;
        let (mut memory, mut inputs, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        for (index, (decl, used)) in graph.buffers().iter().zip(graph.uses()).enumerate() {
            if !used {
                memory.push(None);
                continue;
            }
            memory.push(Some(device.alloc(decl.bytes())?));
            if decl.upload == Upload::Every {
                inputs.push(Input {
                    buffer: index,
                    staging: device.alloc_staging(decl.bytes())?,
                    feed: None,
                });
            }
            if decl.download == Download::Every {
                outputs.push(Output { buffer: index, staging: device.alloc_staging(decl.bytes())? });
            }
        }
        let phases = Default::default();
        Ok(ExecutionPlan {
            captured: None,
            phases,
            sessions: Vec::new(),
            observed: None,
            inputs,
            outputs,
            memory,
            progress: stream.progress(),
            stream,
            device,
            graph,
            capture,
            at: None,
            runs: 0,
        })
    }

    /// Makes every task ready. `cx` is completed with this plan's device and the session of each op's library.
    pub(crate) fn prepare(
        &mut self,
        sessions: Vec<SessionState>,
        cx: &mut PrepareOn<'_>,
    ) -> Result<(), BindError> {
        self.sessions = sessions;
        for phase in Phase::ALL {
            for index in 0..self.graph.tasks(phase).len() {
                let node = self.graph.tasks(phase)[index].clone();
                let work =
                    self.work(&node, cx).map_err(|error| BindError { node: Some(node.clone()), error })?;
                self.phases[phase as usize].push(work);
            }
        }
        Ok(())
    }

    fn work(&mut self, node: &Node, cx: &mut PrepareOn<'_>) -> Result<Box<dyn Work>, OpError> {
        match &node.body {
            Body::Kernel(task) => {
                let args = self.bind(&task.args)?;
                // SAFETY: `bind` checked the ranges against this plan's memory, which is dropped after its work;
                // only this plan's stream runs work over it, and peers reach it through their libraries alone.
                let work = unsafe { self.device.kernel(task.kernel, args, task.grid) }?;
                Ok(work)
            }
            Body::Ops { ops, .. } => {
                let Some(first) = ops.first() else { return Ok(Box::new(Nothing)) };
                let bound = ops.iter().map(|op| self.bind(&op.args)).collect::<Result<Vec<_>, _>>()?;
                let batch: Vec<OpCall<'_>> =
                    ops.iter().zip(&bound).map(|(op, args)| call(&self.graph, op, args)).collect();
                let library = first.op.library();
                let session =
                    self.sessions.iter_mut().find(|(name, _)| *name == library).map(|(_, s)| &mut **s);
                let mut cx = Prepare {
                    rank: self.graph.rank(),
                    world: self.graph.world(),
                    device: &*self.device,
                    session,
                    exchange: cx.exchange,
                    aborted: cx.aborted,
                    deadline: cx.deadline,
                };
                // SAFETY: as for kernels above.
                unsafe { first.op.prepare(&batch, &mut cx) }
            }
        }
    }

    /// Replaces ranges by addresses, checked against the memory: nothing that a graph says can reach outside it.
    fn bind(&self, args: &[Arg]) -> Result<Vec<Arg<BoundRange>>, DeviceError> {
        args.iter()
            .map(|arg| {
                Ok(match arg {
                    Arg::Buffer(range) => Arg::Buffer(self.bind_range(range)?),
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

    fn bind_range(&self, range: &BufferRange) -> Result<BoundRange, DeviceError> {
        let memory = self.memory.get(range.buffer.0 as usize).and_then(Option::as_ref);
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

    /// Enqueues a phase once; `step` counts steps from 0. It may be done when this returns, or later. Allocates nothing
    /// but at the one capture.
    pub(crate) fn run(&mut self, phase: Phase, step: u64) -> Result<(), TaskError> {
        let run = self.runs;
        let transfer = |error| TaskError { task: None, run, error };
        self.at = None;
        if phase == Phase::Step {
            if self.inputs.iter().any(|input| input.feed.is_some()) {
                // The step before may still be reading the staging.
                self.end(phase)?;
            }
            self.upload(step).map_err(transfer)?;
        }
        self.tasks(phase, step)?;
        self.at = None;
        // Tasks of the finish may change what the last step left.
        if phase != Phase::Setup {
            self.download().map_err(transfer)?;
        }
        self.runs = self.runs.wrapping_add(1);
        self.stream.complete(self.runs).map_err(transfer)
    }

    /// The task that is being enqueued, for whoever catches a panic.
    pub(crate) fn at(&self) -> Option<usize> {
        self.at
    }

    /// Runs that were enqueued to their end, of all phases, modulo 2³².
    pub(crate) fn runs(&self) -> u32 {
        self.runs
    }

    /// Whether the stream has passed the end of all of them.
    pub(crate) fn is_done(&self) -> bool {
        self.progress.has_ended(self.runs)
    }

    fn upload(&mut self, step: u64) -> Result<(), DeviceError> {
        for input in &mut self.inputs {
            if let (Some(feed), Some(out)) = (&mut input.feed, input.staging.host()) {
                feed.fill(step, out).map_err(DeviceError::Failed)?;
            }
            if let Some(memory) = &self.memory[input.buffer] {
                // SAFETY: both are this plan's and equally long; the staging is written only by a feed, above, and
                // between runs.
                unsafe { self.stream.copy(memory.ptr(), input.staging.ptr(), memory.bytes()) }?;
            }
        }
        Ok(())
    }

    fn download(&mut self) -> Result<(), DeviceError> {
        for output in &self.outputs {
            if let Some(memory) = &self.memory[output.buffer] {
                // SAFETY: both are this plan's and equally long; the staging is read only after the stream has
                // finished.
                unsafe { self.stream.copy(output.staging.ptr(), memory.ptr(), memory.bytes()) }?;
            }
        }
        Ok(())
    }

    fn tasks(&mut self, phase: Phase, step: u64) -> Result<(), TaskError> {
        let (run, stream) = (self.runs, &mut *self.stream);
        let works = &mut self.phases[phase as usize];
        if let Some(observed) = &mut self.observed {
            let memory = &self.memory;
            return enqueue(works, stream, run, &mut self.at, |task, stream| {
                observed.show(phase, step, task, stream, memory)
            });
        }
        if phase == Phase::Step && self.capture {
            if let Some(captured) = &mut self.captured {
                return captured.enqueue(stream).map_err(|error| TaskError { task: None, run, error });
            }
            // The first step runs eagerly: libraries connect in it, which cannot be captured.
            if step > 0 {
                let whole = |error| TaskError { task: None, run, error };
                let unsupported =
                    || whole(DeviceError::Unsupported("the stream does not capture".to_string()));
                stream.capture().ok_or_else(unsupported)?.begin().map_err(whole)?;
                let recorded = enqueue(works, stream, run, &mut self.at, |_, _| Ok(()));
                // Ended in any case: a stream left capturing could not even be waited for.
                let captured = stream.capture().ok_or_else(unsupported)?.end();
                recorded?;
                let mut captured = captured.map_err(whole)?;
                let replayed = captured.enqueue(stream).map_err(whole);
                self.captured = Some(captured);
                return replayed;
            }
        }
        enqueue(works, stream, run, &mut self.at, |_, _| Ok(()))
    }

    /// Shows an observer what every task writes from here on.
    pub(crate) fn observe(&mut self, observer: Arc<dyn Observer>) -> Result<(), (String, DeviceError)> {
        let made = Observed::new(observer, &self.graph, &*self.device);
        self.observed = Some(made.map_err(|error| (self.device.id().to_string(), error))?);
        Ok(())
    }

    /// Waits for all that was enqueued of a phase, and asks its works how it went.
    pub(crate) fn end(&mut self, phase: Phase) -> Result<(), TaskError> {
        match self.stream.wait(None) {
            Ok(()) => match self.told(phase) {
                None => Ok(()),
                Some((task, text)) => {
                    let run = self.runs.wrapping_sub(1);
                    Err(TaskError { task: Some(task), run, error: DeviceError::Failed(text) })
                }
            },
            Err(error) => Err(self.blame(phase, error)),
        }
    }

    /// The first task whose work says that it went wrong, and what.
    fn told(&mut self, phase: Phase) -> Option<(usize, String)> {
        let works = self.phases[phase as usize].iter_mut().enumerate();
        works.into_iter().find_map(|(index, work)| Some((index, work.failure()?)))
    }

    /// Waits until nothing is queued, whatever came of it.
    pub(crate) fn drain(&mut self) {
        let _ = self.stream.wait(None);
    }

    /// Finds the task of a failure that a wait told: the one whose work says that it went wrong, or else the one that the
    /// stream had come to.
    fn blame(&mut self, phase: Phase, error: DeviceError) -> TaskError {
        let at = self.progress.read();
        // A stream may have passed work that went wrong: then it was in the last run, as far as anyone can tell.
        let passed = at.runs == self.runs;
        let run = if passed { self.runs.wrapping_sub(1) } else { at.runs };
        if error == DeviceError::Aborted {
            return TaskError { task: None, run, error };
        }
        match self.told(phase) {
            Some((index, text)) => TaskError { task: Some(index), run, error: DeviceError::Failed(text) },
            None => {
                let task = Some(at.tasks as usize)
                    .filter(|&index| !passed && index < self.phases[phase as usize].len());
                TaskError { task, run, error }
            }
        }
    }

    pub(crate) fn progress(&self) -> Arc<dyn Progress> {
        self.progress.clone()
    }

    /// Gives a buffer its contents: at once, or for every step to come.
    pub(crate) fn write(&mut self, buffer: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        if let Some(input) = self.inputs.iter_mut().find(|input| input.buffer == buffer) {
            fill(&mut *input.staging, bytes)?;
            input.feed = None;
        }
        let Some(memory) = self.memory.get(buffer).and_then(Option::as_ref) else { return Ok(()) };
        let mut staging = self.device.alloc_staging(memory.bytes())?;
        fill(&mut *staging, bytes)?;
        // SAFETY: both hold `memory.bytes()` bytes and outlive the wait.
        unsafe { self.stream.copy(memory.ptr(), staging.ptr(), memory.bytes()) }?;
        self.stream.wait(None)
    }

    /// Sets where a buffer's contents come from in every step.
    pub(crate) fn feed(&mut self, buffer: usize, feed: Box<dyn Feed>) {
        if let Some(input) = self.inputs.iter_mut().find(|input| input.buffer == buffer) {
            input.feed = Some(feed);
        }
    }

    /// A buffer's contents; of one that is downloaded in every step, as of the end of the last step or of the finish.
    pub(crate) fn read(&mut self, buffer: usize) -> Result<Vec<u8>, DeviceError> {
        if let Some(output) = self.outputs.iter_mut().find(|output| output.buffer == buffer) {
            return contents(&mut *output.staging);
        }
        let Some(memory) = self.memory.get(buffer).and_then(Option::as_ref) else { return Ok(Vec::new()) };
        let mut staging = self.device.alloc_staging(memory.bytes())?;
        // SAFETY: both hold `memory.bytes()` bytes and outlive the wait.
        unsafe { self.stream.copy(staging.ptr(), memory.ptr(), memory.bytes()) }?;
        self.stream.wait(None)?;
        contents(&mut *staging)
    }

    /// How many buffers it holds, and their size in bytes.
    pub(crate) fn holds(&self) -> (usize, u64) {
        let sizes = self.memory.iter().flatten().map(|m| m.bytes());
        (sizes.clone().count(), sizes.sum())
    }
}

/// What all ranks share while they prepare.
pub(crate) struct PrepareOn<'a> {
    pub(crate) exchange: &'a dyn crate::library_op::Exchange,
    pub(crate) aborted: &'a Arc<dyn crate::library_op::Abort>,
    pub(crate) deadline: std::time::Instant,
}

fn call<'a>(graph: &'a TaskGraph, task: &'a OpTask, values: &'a [Arg<BoundRange>]) -> OpCall<'a> {
    let part = graph.world().part(task.comm, graph.rank());
    let (comm_rank, comm_size) = part.map_or((0, 1), |part| (part.rank, part.size()));
    let args = Args { params: task.op.params(), values, comm_rank, comm_size };
    OpCall { op: task.op, task: &task.origin.name, comm: task.comm, args }
}

fn enqueue(
    works: &mut [Box<dyn Work>],
    stream: &mut dyn Stream,
    run: u32,
    now: &mut Option<usize>,
    mut after: impl FnMut(usize, &mut dyn Stream) -> Result<(), DeviceError>,
) -> Result<(), TaskError> {
    for (index, work) in works.iter_mut().enumerate() {
        *now = Some(index);
        let at = |error| TaskError { task: Some(index), run, error };
        work.enqueue(stream).map_err(at)?;
        after(index, stream).map_err(|error| at(in_its_words(&mut **work, error)))?;
        mark(stream, index).map_err(at)?;
    }
    Ok(())
}

/// What a wait for work told, or what the work itself says of it.
fn in_its_words(work: &mut dyn Work, error: DeviceError) -> DeviceError {
    match error {
        DeviceError::Aborted => error,
        error => work.failure().map_or(error, DeviceError::Failed),
    }
}

/// Tells the stream's progress that a task is finished. Every task is marked, so that a report names the very task that a
/// rank is in; whoever weighs that against the cost of a mark decides here.
fn mark(stream: &mut dyn Stream, index: usize) -> Result<(), DeviceError> {
    stream.mark(u32::try_from(index + 1).unwrap_or(u32::MAX))
}

fn fill(staging: &mut dyn Memory, bytes: &[u8]) -> Result<(), DeviceError> {
    match staging.host() {
        Some(out) if out.len() == bytes.len() => {
            out.copy_from_slice(bytes);
            Ok(())
        }
        Some(out) => Err(DeviceError::Failed(format!("{} bytes for a buffer of {}", bytes.len(), out.len()))),
        None => Err(DeviceError::Failed("the host cannot see the staging memory".to_string())),
    }
}

fn contents(staging: &mut dyn Memory) -> Result<Vec<u8>, DeviceError> {
    match staging.host() {
        Some(bytes) => copied(bytes),
        None => Err(DeviceError::Failed("the host cannot see the staging memory".to_string())),
    }
}

/// A copy of some bytes, if there is memory for it: buffers are as large as memory allows, and so may their copies be.
pub(crate) fn copied(bytes: &[u8]) -> Result<Vec<u8>, DeviceError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|error| DeviceError::OutOfMemory {
        device: "the host".to_string(),
        bytes: bytes.len() as u64,
        message: error.to_string(),
    })?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// An empty group.
struct Nothing;

impl Work for Nothing {
    fn enqueue(&mut self, _: &mut dyn Stream) -> Result<(), DeviceError> {
        Ok(())
    }
}
