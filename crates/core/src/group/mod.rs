//! Plan groups: all ranks of this process, run together.
//!
//! Each rank has one thread for the life of the group, and its plan lives there. The caller hands commands over and
//! waits; while it waits it watches the deadline and failures, so a group needs no thread of its own for that. The cost:
//! nobody watches a step whose handle was forgotten, until the group is used or dropped.
//!
//! # Several groups
//! Groups on devices of their own run side by side. Two groups on the same GPUs may take turns, but must not run steps at once where the
//! ranks of both meet: each GPU takes up their collectives in an order of its own, and two GPUs that begin with different ones wait
//! for each other for good. NCCL demands one order of all communicators that are in use at the same time; verification sees one
//! group alone. Only the deadlines end it.

mod abort;
mod bind;
pub(crate) mod exchange;
pub(crate) mod handles;
mod options;
mod peers;
mod rank;
mod run;
mod shared;
mod snapshot;
mod transfer;
mod worker;

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::buffer::Upload;
use crate::device::Device;
use crate::error::{GroupError, Moment};
use crate::graph::{Phase, TaskGraph};
use crate::group::exchange::LocalExchange;
use crate::group::options::from_now;
use crate::group::rank::{RankState, Seen};
use crate::group::shared::Shared;
use crate::plan::ExecutionPlan;
use crate::registry::Registry;
use crate::verify::Verified;
use crate::words::count;

pub use options::Options;
pub use peers::{Ending, EndingKind, Peers};
pub use run::Steps;
pub use snapshot::Snapshot;

/// All ranks of a job, bound to their devices, each on a thread of its own.
///
/// One thread at a time uses a group. Dropping it returns: a step in flight is aborted, captured work goes first, then
/// communicators, buffers and streams. That takes as long as libraries need to close, some seconds at most. Two groups on the
/// same GPUs must not run at once: see [`crate::group`].
pub struct PlanGroup {
    verified: Verified,
    /// Those of this process's ranks, ascending.
    graphs: Vec<TaskGraph>,
    options: Options,
    shared: Arc<Shared>,
    threads: Vec<Option<JoinHandle<()>>>,
    /// Of each rank, which buffers still wait for their first contents.
    awaited: Vec<Vec<bool>>,
    /// Of each rank, how many buffers it holds and their bytes.
    holdings: Vec<(usize, u64)>,
    /// How many of the first steps may take as long as binding: where devices capture, the first of each turn connects them, and
    /// with capture on the second of each is made ready to be replayed.
    slow_steps: u64,
    /// The step that it begins with: 0 but where a job is resumed.
    first_step: u64,
    in_flight: Option<Phase>,
    /// Of each rank, how many steps it had done when the caller looked last, and since when.
    seen: Vec<Seen>,
    set_up: bool,
    /// Why nothing runs any more.
    broken: Option<String>,
}

/// Stops a group from another thread, such as one that handles signals.
#[derive(Clone)]
pub struct Interrupt(Arc<Shared>);

impl Interrupt {
    /// Aborts what runs: the group's caller gets [`GroupError::Interrupted`]. Never blocks.
    pub fn interrupt(&self) {
        self.0.interrupt();
    }

    /// Steps that every rank has done: its stream has passed their end. After an abort, those that were done before it.
    pub fn steps_done(&self) -> u64 {
        self.0.ranks.iter().map(RankState::steps_done).min().unwrap_or(0)
    }
}

impl PlanGroup {
    /// Binds every rank of a verified job to its device: `devices[r]` is rank r's.
    ///
    /// Starts the ranks' threads, allocates, connects the libraries and makes every task ready, within the
    /// options' `init_timeout`.
    pub fn new(
        registry: &Registry,
        verified: Verified,
        devices: &[Arc<dyn Device>],
        options: Options,
    ) -> Result<PlanGroup, GroupError> {
        let graphs = verified.graphs().to_vec();
        if devices.len() != graphs.len() {
            let (ranks, devices) =
                (count(graphs.len() as u64, "rank"), count(devices.len() as u64, "device"));
            return Err(GroupError::Devices(format!("the world has {ranks}, and is given {devices}")));
        }
        let peers = Arc::new(LocalExchange::new(graphs[0].world().clone()));
        PlanGroup::make(registry, verified, graphs, devices, peers, options)
    }

    /// As [`PlanGroup::new`], for the ranks that this process has of a job of several: `local` are its ranks, each with its device, and
    /// `peers` the way to the other processes, which all bind the same job. Early ends are told both ways: where another process
    /// fails, or is gone, this group's ranks are aborted, and the error is [`GroupError::Elsewhere`].
    ///
    /// Only what is of its own ranks can be written and read.
    pub fn join(
        registry: &Registry,
        verified: Verified,
        local: &[(u32, Arc<dyn Device>)],
        peers: Arc<dyn Peers>,
        options: Options,
    ) -> Result<PlanGroup, GroupError> {
        let mut local: Vec<&(u32, Arc<dyn Device>)> = local.iter().collect();
        local.sort_by_key(|(rank, _)| *rank);
        let graph = |rank: u32| verified.graphs().get(rank as usize).cloned();
        let graphs: Option<Vec<TaskGraph>> = local.iter().map(|(rank, _)| graph(*rank)).collect();
        let twice = local.windows(2).any(|pair| pair[0].0 == pair[1].0);
        let Some(graphs) = graphs.filter(|graphs| !graphs.is_empty() && !twice) else {
            let (ranks, world) = (local.iter().map(|(rank, _)| *rank), verified.graphs().len());
            let text = format!(
                "a process has ranks of its own, each once, of a world of {world}, and was given {:?}",
                ranks.collect::<Vec<_>>()
            );
            return Err(GroupError::Devices(text));
        };
        if graphs.len() < verified.graphs().len() {
            verified.check_processes(2).map_err(GroupError::OneProcess)?;
        }
        let devices: Vec<Arc<dyn Device>> = local.iter().map(|(_, device)| device.clone()).collect();
        let made = PlanGroup::make(registry, verified, graphs, &devices, peers.clone(), options);
        made.inspect_err(|error| peers.tell(Ending::of(error)))
    }

    fn make(
        registry: &Registry,
        verified: Verified,
        graphs: Vec<TaskGraph>,
        devices: &[Arc<dyn Device>],
        peers: Arc<dyn Peers>,
        options: Options,
    ) -> Result<PlanGroup, GroupError> {
        bind::check_devices(registry, &graphs, devices)?;
        if let Some(device) = devices.iter().find(|d| options.capture && !d.captures()) {
            let text = format!("{} devices cannot capture a step; leave capture off", device.kind());
            return Err(GroupError::Devices(text));
        }
        if options.capture {
            verified.check_capture().map_err(GroupError::Uncaptured)?;
        }
        let shared = Arc::new(Shared::new(devices.len(), peers));
        let awaited = graphs.iter().map(|graph| {
            let first = graph.buffers().iter().zip(graph.uses());
            first.map(|(decl, used)| used && decl.upload != Upload::Never).collect()
        });
        let mut group = PlanGroup {
            awaited: awaited.collect(),
            holdings: vec![(0, 0); devices.len()],
            slow_steps: match devices.iter().any(|d| d.captures()) {
                true => verified.turns() as u64 * (1 + u64::from(options.capture)),
                false => 0,
            },
            first_step: 0,
            options,
            shared,
            threads: Vec::new(),
            in_flight: None,
            seen: vec![Seen::default(); devices.len()],
            set_up: false,
            broken: None,
            verified,
            graphs,
        };
        for (place, graph) in group.graphs.iter().enumerate() {
            let shared = group.shared.clone();
            let name = format!("squall-rank-{}", graph.rank());
            let thread = std::thread::Builder::new().name(name).spawn(move || worker::run(&shared, place));
            match thread {
                Ok(thread) => group.threads.push(Some(thread)),
                Err(error) => {
                    // The threads that exist carry the group; it must not wait for the others.
                    let rank = graph.rank();
                    group.dismantle();
                    return Err(GroupError::Devices(format!("rank {rank} could not get a thread: {error}")));
                }
            }
        }
        group.listen();
        let bound = bind::bind(&mut group, registry, devices, from_now(options.init_timeout));
        bound.map_err(|error| group.break_with(error))?;
        let holds = |plan: &mut Option<ExecutionPlan>| plan.as_ref().map_or((0, 0), ExecutionPlan::holds);
        group.holdings = group.call_all(Moment::Binding, |_| Box::new(holds))?;
        Ok(group)
    }

    /// The job.
    pub fn verified(&self) -> &Verified {
        &self.verified
    }

    /// The graphs of this process's ranks, ascending.
    pub fn graphs(&self) -> &[TaskGraph] {
        &self.graphs
    }

    /// A handle that stops the group from another thread.
    pub fn interrupt_handle(&self) -> Interrupt {
        Interrupt(self.shared.clone())
    }

    /// How long the last steps of this process's first rank took, in nanoseconds, at most 16384 of them. Of steps that were
    /// queued on a device, each has the mean of all that ended when the device was next waited for.
    pub fn step_times(&self) -> Vec<u64> {
        self.shared.times.last()
    }
}

impl Drop for PlanGroup {
    fn drop(&mut self) {
        self.dismantle();
    }
}

impl std::fmt::Debug for PlanGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlanGroup")
            .field("ranks", &self.shared.ranks.len())
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupt").field("interrupted", &self.0.interrupted()).finish()
    }
}
