//! Plan groups: all ranks of this process, run together.
//!
//! Each rank has one thread for the life of the group, and its plan lives there. The caller hands commands over and
//! waits; while it waits it watches the deadline and failures, so a group needs no thread of its own for that. The cost:
//! nobody watches a step whose handle was forgotten, until the group is used or dropped.

mod bind;
pub(crate) mod exchange;
mod shared;
mod worker;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::buffer::{BufferId, Upload};
use crate::device::{Device, DeviceError};
use crate::dtype::Element;
use crate::error::{Found, GroupError, Leak, Report, Standing};
use crate::graph::{Body, Node, Phase, TaskGraph};
use crate::group::exchange::LocalExchange;
use crate::group::shared::{Command, Outcome, Shared};
use crate::plan::{ExecutionPlan, Feed};
use crate::registry::Registry;
use crate::verify::Verified;
use crate::wait::Running;

/// The longest that an abort waits for ranks to return.
const MAX_SECOND_PERIOD: Duration = Duration::from_secs(4);

/// How a plan group runs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// A step that takes longer is aborted. `None`: no limit.
    pub step_timeout: Option<Duration>,
    /// The limit of joining, compiling, setup tasks and a first step that connects devices.
    pub init_timeout: Duration,
    /// Whether to capture the step once and replay it. Every device must be able to.
    pub capture: bool,
}

impl Default for Options {
    fn default() -> Options {
        let minute = Duration::from_secs(60);
        Options { step_timeout: Some(minute), init_timeout: minute, capture: false }
    }
}

impl Options {
    /// Sets the limit of a step.
    pub fn step_timeout(mut self, limit: Option<Duration>) -> Options {
        self.step_timeout = limit;
        self
    }

    /// Sets the limit of everything before the first step.
    pub fn init_timeout(mut self, limit: Duration) -> Options {
        self.init_timeout = limit;
        self
    }

    /// Captures the step and replays it.
    pub fn capture(mut self, capture: bool) -> Options {
        self.capture = capture;
        self
    }
}

/// All ranks of a job, bound to their devices, each on a thread of its own.
///
/// One thread at a time uses a group. Dropping it returns: a step in flight is aborted, captured work goes first, then
/// communicators, buffers and streams.
pub struct PlanGroup {
    verified: Verified,
    options: Options,
    shared: Arc<Shared>,
    threads: Vec<Option<JoinHandle<()>>>,
    /// Of each rank, which buffers still wait for their first contents.
    awaited: Vec<Vec<bool>>,
    /// Of each rank, how many buffers it holds and their bytes.
    holdings: Vec<(usize, u64)>,
    /// Whether the first step connects devices, and may take as long as binding.
    slow_start: bool,
    in_flight: Option<Phase>,
    set_up: bool,
    /// Why nothing runs any more.
    broken: Option<String>,
}

/// Steps that run while the caller does something else. Forgetting it is safe: whoever uses the group next waits for
/// the steps first.
#[must_use = "the steps run on, but nobody learns how they end"]
pub struct Steps<'g>(&'g mut PlanGroup);

impl Steps<'_> {
    /// Waits for the steps to end.
    pub fn wait(self) -> Result<(), GroupError> {
        self.0.settle()
    }
}

/// Stops a group from another thread, such as one that handles signals.
#[derive(Clone)]
pub struct Interrupt(Arc<Shared>);

impl Interrupt {
    /// Aborts what runs: the group's caller gets [`GroupError::Interrupted`]. Never blocks.
    pub fn interrupt(&self) {
        self.0.interrupt();
    }

    /// Steps that every rank has completed.
    pub fn steps_done(&self) -> u64 {
        self.0.ranks.iter().map(|r| r.steps.load(Ordering::Acquire)).min().unwrap_or(0)
    }
}

type RankCall<R> = Box<dyn FnOnce(&mut Option<ExecutionPlan>) -> R + Send>;

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
        bind::check_devices(registry, verified.graphs(), devices)?;
        if let Some(device) = devices.iter().find(|d| options.capture && !d.captures()) {
            let text = format!("{} devices cannot capture a step; leave capture off", device.kind());
            return Err(GroupError::Devices(text));
        }
        let exchange = LocalExchange::new(verified.graphs()[0].world().clone());
        let shared = Arc::new(Shared::new(devices.len(), exchange));
        let awaited = verified.graphs().iter().map(|graph| {
            let first = graph.buffers().iter().zip(graph.uses());
            first.map(|(decl, used)| used && decl.upload != Upload::Never).collect()
        });
        let mut group = PlanGroup {
            awaited: awaited.collect(),
            holdings: vec![(0, 0); devices.len()],
            slow_start: devices.iter().any(|d| d.captures()),
            options,
            shared,
            threads: Vec::new(),
            in_flight: None,
            set_up: false,
            broken: None,
            verified,
        };
        for (place, graph) in group.verified.graphs().iter().enumerate() {
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
        let deadline = Instant::now() + options.init_timeout;
        bind::bind(&mut group, registry, devices, deadline)?;
        let holdings =
            group.call_all(|_| Box::new(|plan| plan.as_ref().map_or((0, 0), ExecutionPlan::holds)))?;
        group.holdings = holdings;
        Ok(group)
    }

    /// The job.
    pub fn verified(&self) -> &Verified {
        &self.verified
    }

    /// Gives a buffer of a rank its contents: for good, or for every step to come until the next call.
    pub fn write<T: Element>(&mut self, rank: u32, buffer: BufferId, data: &[T]) -> Result<(), GroupError> {
        self.check_dtype::<T>(rank, buffer)?;
        self.write_bytes(rank, buffer, bytemuck::cast_slice(data))
    }

    /// As [`PlanGroup::write`], from bytes in native order.
    pub fn write_bytes(&mut self, rank: u32, buffer: BufferId, bytes: &[u8]) -> Result<(), GroupError> {
        let (place, decl) = self.locate(rank, buffer)?;
        if bytes.len() as u64 != decl.bytes() {
            let text = format!(
                "buffer `{}` on rank {rank} takes {} bytes, not {}",
                decl.name,
                decl.bytes(),
                bytes.len()
            );
            return Err(GroupError::Buffer(text));
        }
        let (index, bytes) = (buffer.0 as usize, bytes.to_vec());
        self.on_plan(place, move |plan| plan.write(index, &bytes))?;
        self.awaited[place][index] = false;
        Ok(())
    }

    /// Lets a feed give a buffer its contents in every step.
    pub fn feed(&mut self, rank: u32, buffer: BufferId, feed: Box<dyn Feed>) -> Result<(), GroupError> {
        let (place, decl) = self.locate(rank, buffer)?;
        if decl.upload != Upload::Every {
            let text = format!("buffer `{}` is not uploaded in every step, and takes no feed", decl.name);
            return Err(GroupError::Buffer(text));
        }
        let index = buffer.0 as usize;
        self.on_plan(place, move |plan| {
            plan.feed(index, feed);
            Ok(())
        })?;
        self.awaited[place][index] = false;
        Ok(())
    }

    /// A buffer's contents on a rank: as they are, or for one that is downloaded in every step, as they were at
    /// the last step's end.
    pub fn read<T: Element>(&mut self, rank: u32, buffer: BufferId) -> Result<Vec<T>, GroupError> {
        self.check_dtype::<T>(rank, buffer)?;
        let bytes = self.read_bytes(rank, buffer)?;
        Ok(bytemuck::allocation::pod_collect_to_vec(&bytes))
    }

    /// As [`PlanGroup::read`], as bytes in native order.
    pub fn read_bytes(&mut self, rank: u32, buffer: BufferId) -> Result<Vec<u8>, GroupError> {
        let (place, _) = self.locate(rank, buffer)?;
        let index = buffer.0 as usize;
        self.on_plan(place, move |plan| plan.read(index))
    }

    /// Runs one step, after the setup tasks if these have not run. Returns when every rank has ended it.
    pub fn execute(&mut self) -> Result<(), GroupError> {
        self.execute_many(1)
    }

    /// Runs so many steps without stopping in between.
    pub fn execute_many(&mut self, steps: u64) -> Result<(), GroupError> {
        self.start(steps)?.wait()
    }

    /// Starts so many steps and returns.
    pub fn start(&mut self, steps: u64) -> Result<Steps<'_>, GroupError> {
        self.usable()?;
        for (graph, awaited) in self.verified.graphs().iter().zip(&self.awaited) {
            if let Some(index) = awaited.iter().position(|&awaited| awaited) {
                let buffer = graph.buffers()[index].name.to_string();
                return Err(GroupError::NoContents { rank: graph.rank(), buffer });
            }
        }
        if !self.set_up {
            self.run(Phase::Setup, 1)?;
            self.set_up = true;
        }
        self.in_flight = Some(Phase::Step);
        self.shared.command(Command::Run(Phase::Step), steps);
        Ok(Steps(self))
    }

    /// Runs the tasks that come after the last step.
    pub fn finish(&mut self) -> Result<(), GroupError> {
        self.usable()?;
        self.run(Phase::Finish, 1)
    }

    /// A handle that stops the group from another thread.
    pub fn interrupt_handle(&self) -> Interrupt {
        Interrupt(self.shared.clone())
    }

    /// How long the last steps of this process's first rank took, in nanoseconds, at most 16384 of them.
    pub fn step_times(&self) -> Vec<u64> {
        self.shared.times.last()
    }

    fn run(&mut self, phase: Phase, count: u64) -> Result<(), GroupError> {
        if self.verified.graphs().iter().all(|graph| graph.tasks(phase).is_empty()) {
            return Ok(());
        }
        self.in_flight = Some(phase);
        self.shared.command(Command::Run(phase), count);
        self.settle()
    }

    /// Waits for what is in flight, and for nothing else.
    fn settle(&mut self) -> Result<(), GroupError> {
        let Some(phase) = self.in_flight.take() else { return Ok(()) };
        let _running = Running::enter();
        let timed_out = loop {
            let limit = self.limit(phase);
            let until = limit.map(|limit| self.shared.made + self.oldest() + limit);
            self.shared.wait(until);
            if self.shared.interrupted() || self.shared.first_failure().is_some() {
                break None;
            }
            if self.shared.all_arrived() {
                return Ok(());
            }
            // The deadline passed: of the step that the slowest rank is in, unless it has come further meanwhile.
            if let Some(limit) = limit
                && self.shared.made + self.oldest() + limit <= Instant::now()
            {
                break Some(limit);
            }
        };
        Err(self.abort(phase, timed_out))
    }

    /// When the rank that has come least far began what it is in, since the group was made.
    fn oldest(&self) -> Duration {
        let waiting = self.shared.ranks.iter().enumerate().filter(|(place, _)| !self.shared.arrived(*place));
        let key = |(_, rank): &(usize, &shared::RankState)| rank.steps.load(Ordering::Acquire);
        let since = waiting.min_by_key(key).map_or(0, |(_, rank)| rank.since.load(Ordering::Acquire));
        Duration::from_nanos(since)
    }

    fn limit(&self, phase: Phase) -> Option<Duration> {
        let first = self.shared.ranks.iter().any(|r| r.steps.load(Ordering::Relaxed) == 0);
        match phase {
            Phase::Setup => Some(self.options.init_timeout),
            Phase::Step if first && self.slow_start => Some(self.options.init_timeout),
            _ => self.options.step_timeout,
        }
    }

    /// Aborts what runs, waits a second period for all ranks, and says what happened.
    fn abort(&mut self, phase: Phase, timed_out: Option<Duration>) -> GroupError {
        let mut ranks = self.standings(phase);
        self.shared.abort();
        let period =
            timed_out.or(self.options.step_timeout).unwrap_or(MAX_SECOND_PERIOD).min(MAX_SECOND_PERIOD);
        self.shared.wait_all(Instant::now() + period);
        for (place, rank) in ranks.iter_mut().enumerate() {
            if !self.shared.arrived(place) {
                rank.found = Found::Stuck;
            }
        }
        let leak = self.leak();
        let step = ranks.iter().map(|r| r.steps).min().unwrap_or(0);
        let error = match (self.shared.first_failure(), timed_out) {
            (Some(place), _) => {
                let outcome =
                    self.shared.ranks[place].outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
                let (task, error) = match outcome {
                    Some(Outcome::Failed(error)) => (error.task, error.error),
                    _ => (None, DeviceError::Failed("it failed".to_string())),
                };
                let failed = ranks.remove(place);
                let graph = &self.verified.graphs()[place];
                let task = task.and_then(|index| graph.tasks(phase).get(index));
                GroupError::Failed {
                    rank: failed.rank,
                    task: task.map(|node| node.origin.name.clone()),
                    step: failed.steps,
                    error,
                    released: Box::new(Report { ranks, leak }),
                }
            }
            (None, Some(limit)) => GroupError::TimedOut {
                what: match phase {
                    Phase::Setup => "setup".to_string(),
                    Phase::Step => format!("step {step}"),
                    Phase::Finish => "finish".to_string(),
                },
                limit,
                report: Box::new(Report { ranks, leak }),
            },
            (None, None) => GroupError::Interrupted { step },
        };
        self.broken = Some(error.to_string());
        error
    }

    /// Where every rank stands now.
    fn standings(&self, phase: Phase) -> Vec<Standing> {
        let standing = |(place, graph): (usize, &TaskGraph)| {
            let state = &self.shared.ranks[place];
            let tasks = graph.tasks(phase);
            let finished = state.progress.get().map_or(0, |p| p.read() as usize).min(tasks.len());
            let name = |node: &Arc<Node>| node.origin.name.clone();
            let running = tasks.get(finished);
            let found = match running {
                _ if self.shared.arrived(place) => Found::Idle,
                // Whoever is in a kernel waits for nobody.
                Some(node) if matches!(node.body, Body::Ops { .. }) => Found::Waiting,
                _ => Found::Late,
            };
            Standing {
                rank: graph.rank(),
                steps: state.steps.load(Ordering::Acquire),
                finished: finished.checked_sub(1).and_then(|i| tasks.get(i)).map(name),
                running: running.filter(|_| found != Found::Idle).map(name),
                found,
            }
        };
        self.verified.graphs().iter().enumerate().map(standing).collect()
    }

    /// Gives up what threads that did not return may still use.
    fn leak(&self) -> Option<Leak> {
        let threads = (0..self.shared.ranks.len()).filter(|&place| !self.shared.arrived(place)).count();
        if threads == 0 {
            return None;
        }
        // A rank in a library may reach every other rank's buffers.
        self.shared.leak.store(true, Ordering::Release);
        let buffers = self.holdings.iter().map(|h| h.0).sum();
        Some(Leak { threads, buffers, bytes: self.holdings.iter().map(|h| h.1).sum() })
    }

    fn usable(&mut self) -> Result<(), GroupError> {
        self.settle()?;
        if self.shared.interrupted() && self.broken.is_none() {
            self.broken = Some("interrupted between steps".to_string());
        }
        match &self.broken {
            Some(cause) => Err(GroupError::Aborted(cause.clone())),
            None => Ok(()),
        }
    }

    fn locate(&self, rank: u32, buffer: BufferId) -> Result<(usize, &crate::buffer::BufferDecl), GroupError> {
        let no_rank = || GroupError::Buffer(format!("there is no rank {rank} in this group"));
        let (place, graph) =
            self.verified.graphs().iter().enumerate().find(|(_, g)| g.rank() == rank).ok_or_else(no_rank)?;
        let no_buffer = || GroupError::Buffer(format!("rank {rank} has no buffer with the id {}", buffer.0));
        let decl = graph.buffers().get(buffer.0 as usize).ok_or_else(no_buffer)?;
        Ok((place, decl))
    }

    fn check_dtype<T: Element>(&self, rank: u32, buffer: BufferId) -> Result<(), GroupError> {
        let (_, decl) = self.locate(rank, buffer)?;
        if decl.dtype == T::DTYPE {
            return Ok(());
        }
        Err(GroupError::Buffer(format!("buffer `{}` is {}, not {}", decl.name, decl.dtype, T::DTYPE)))
    }

    fn on_plan<R: Send + 'static>(
        &mut self,
        place: usize,
        work: impl FnOnce(&mut ExecutionPlan) -> Result<R, DeviceError> + Send + 'static,
    ) -> Result<R, GroupError> {
        self.usable()?;
        let mut work = Some(work);
        let mut results = self.call_all(|at| {
            let work = if at == place { work.take() } else { None };
            Box::new(move |plan: &mut Option<ExecutionPlan>| match (work, plan) {
                (Some(work), Some(plan)) => Some(work(plan)),
                _ => None,
            })
        })?;
        let rank = self.verified.graphs()[place].rank();
        let failed = |error| GroupError::Bind { rank, device: "its device".to_string(), task: None, error };
        let absent = || failed(DeviceError::Failed("the rank has no plan".to_string()));
        results.swap_remove(place).ok_or_else(absent)?.map_err(failed)
    }

    /// Runs a closure on every rank's thread and gathers the results, within `init_timeout`.
    fn call_all<R: Send + 'static>(
        &mut self,
        mut work: impl FnMut(usize) -> RankCall<R>,
    ) -> Result<Vec<R>, GroupError> {
        let mut receivers = Vec::with_capacity(self.shared.ranks.len());
        for (place, state) in self.shared.ranks.iter().enumerate() {
            let (sender, receiver) = mpsc::channel();
            let work = work(place);
            let call = Box::new(move |plan: &mut Option<ExecutionPlan>| {
                let _ = sender.send(work(plan));
            });
            *state.call.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
            receivers.push(receiver);
        }
        let _running = Running::enter();
        self.shared.command(Command::Call, 0);
        let limit = self.options.init_timeout;
        if !self.shared.wait_all(Instant::now() + limit) {
            self.shared.abort();
            self.shared.wait_all(Instant::now() + limit.min(MAX_SECOND_PERIOD));
            let late = (0..self.shared.ranks.len()).filter(|&place| !self.shared.arrived(place));
            let ranks = late.map(|place| Standing {
                rank: self.verified.graphs()[place].rank(),
                steps: 0,
                finished: None,
                running: None,
                found: Found::Stuck,
            });
            let report = Box::new(Report { ranks: ranks.collect(), leak: self.leak() });
            let error = GroupError::TimedOut { what: "binding".to_string(), limit, report };
            self.broken = Some(error.to_string());
            return Err(error);
        }
        let mut results = Vec::with_capacity(receivers.len());
        for (place, receiver) in receivers.into_iter().enumerate() {
            match receiver.try_recv() {
                Ok(result) => results.push(result),
                Err(_) => {
                    let graph = &self.verified.graphs()[place];
                    let error = DeviceError::Failed("it panicked while it was made ready".to_string());
                    let device = graph.device().to_string();
                    return Err(GroupError::Bind { rank: graph.rank(), device, task: None, error });
                }
            }
        }
        Ok(results)
    }

    /// Ends the threads. Returns within the second period, whatever they do.
    fn dismantle(&mut self) {
        let _running = Running::enter();
        let period = self.options.step_timeout.unwrap_or(MAX_SECOND_PERIOD).min(MAX_SECOND_PERIOD);
        let started = self.threads.len() == self.shared.ranks.len();
        if self.in_flight.take().is_some() || !self.shared.all_arrived() {
            self.shared.abort();
            if started {
                self.shared.wait_all(Instant::now() + period);
            }
        }
        if started {
            self.leak();
        }
        self.shared.command(Command::Exit, 0);
        let until = Instant::now() + period;
        for thread in self.threads.iter_mut().filter_map(Option::take) {
            // Joining waits without a limit, so only a thread that is seen to have ended is joined; another is let go,
            // and ends by itself or never.
            while !thread.is_finished() && Instant::now() < until && !self.shared.leak.load(Ordering::Acquire)
            {
                std::thread::sleep(Duration::from_micros(50));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
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

impl std::fmt::Debug for Steps<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Steps").field(&self.0).finish()
    }
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupt").field("interrupted", &self.0.interrupted()).finish()
    }
}
