//! What the caller does with the ranks' buffers between steps, each on the rank's own thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, mpsc};
use std::time::Duration;

use crate::buffer::{BufferDecl, BufferId, Upload};
use crate::device::DeviceError;
use crate::dtype::Element;
use crate::error::{Found, GroupError, Moment, Report, Standing};
use crate::group::PlanGroup;
use crate::group::options::{from_now, second_period};
use crate::group::shared::{Command, Shared};
use crate::group::worker::panic_text;
use crate::plan::{ExecutionPlan, Feed, Observer, copied};
use crate::wait::Running;
use crate::words::count;

/// How much longer the caller waits for ranks than these wait for each other, so that one that gives up can say why.
const GRACE: Duration = Duration::from_millis(250);

/// A closure for a rank's thread.
pub(super) type RankCall<R> = Box<dyn FnOnce(&mut Option<ExecutionPlan>) -> R + Send>;

/// What a closure gave, or what its panic said.
type Answer<R> = mpsc::Receiver<Result<R, String>>;

impl PlanGroup {
    /// The buffer of that name, the same on every rank.
    pub fn buffer(&self, name: &str) -> Option<BufferId> {
        let buffers = self.graphs.first()?.buffers();
        buffers.iter().position(|decl| &*decl.name == name).map(|place| BufferId(place as u32))
    }

    /// Gives a buffer of a rank its contents: for good, or for every step to come until the next call. A feed that the
    /// buffer had is dropped.
    pub fn write<T: Element>(&mut self, rank: u32, buffer: BufferId, data: &[T]) -> Result<(), GroupError> {
        self.check_dtype::<T>(rank, buffer)?;
        self.write_bytes(rank, buffer, bytemuck::cast_slice(data))
    }

    /// As [`PlanGroup::write`], from bytes in native order.
    pub fn write_bytes(&mut self, rank: u32, buffer: BufferId, bytes: &[u8]) -> Result<(), GroupError> {
        let (place, decl) = self.locate(rank, buffer)?;
        if bytes.len() as u64 != decl.bytes() {
            let (name, wanted, given) = (&decl.name, decl.bytes(), bytes.len());
            let text = format!("buffer `{name}` on rank {rank} takes {}, not {given}", count(wanted, "byte"));
            return Err(GroupError::Buffer(text));
        }
        let index = buffer.0 as usize;
        let copied = copied(bytes).map_err(|error| {
            let buffer = decl.name.to_string();
            GroupError::Transfer { rank, buffer, error }
        })?;
        self.on_plan(place, buffer, move |plan| plan.write(index, &copied))?;
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
        self.on_plan(place, buffer, move |plan| {
            plan.feed(index, feed);
            Ok(())
        })?;
        self.awaited[place][index] = false;
        Ok(())
    }

    /// A buffer's contents on a rank: as they are, or for one that is downloaded in every step, as they were at
    /// the last step's end, or as they were written since. Of buffers that tasks swap, what the name stands for after the last run; so
    /// does [`PlanGroup::write`] take it.
    pub fn read<T: Element>(&mut self, rank: u32, buffer: BufferId) -> Result<Vec<T>, GroupError> {
        self.check_dtype::<T>(rank, buffer)?;
        let bytes = self.read_bytes(rank, buffer)?;
        Ok(bytemuck::allocation::pod_collect_to_vec(&bytes))
    }

    /// As [`PlanGroup::read`], as bytes in native order.
    pub fn read_bytes(&mut self, rank: u32, buffer: BufferId) -> Result<Vec<u8>, GroupError> {
        let (place, _) = self.locate(rank, buffer)?;
        let index = buffer.0 as usize;
        self.on_plan(place, buffer, move |plan| plan.read(index))
    }

    /// Shows an observer what every task writes from here on, until the next call. Ranks then wait for each of their tasks,
    /// and no step is captured or replayed.
    pub fn observe(&mut self, observer: &Arc<dyn Observer>) -> Result<(), GroupError> {
        self.usable()?;
        let results = self.call_all(Moment::Transfer, |_| {
            let observer = observer.clone();
            Box::new(move |plan| plan.as_mut().map_or(Ok(()), |plan| plan.observe(observer)))
        })?;
        let failed = |(place, result): (usize, Result<(), (String, DeviceError)>)| {
            let (device, error) = result.err()?;
            Some(GroupError::Bind { rank: self.graphs[place].rank(), device, task: None, error })
        };
        results.into_iter().enumerate().find_map(failed).map_or(Ok(()), Err)
    }

    pub(super) fn locate(&self, rank: u32, buffer: BufferId) -> Result<(usize, &BufferDecl), GroupError> {
        let no_rank = || GroupError::Buffer(format!("there is no rank {rank} in this group"));
        let graphs = &self.graphs;
        let place = graphs.binary_search_by_key(&rank, |graph| graph.rank()).map_err(|_| no_rank())?;
        let graph = &graphs[place];
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

    /// Works on one rank's plan, once what is in flight has ended.
    pub(super) fn on_plan<R: Send + 'static>(
        &mut self,
        place: usize,
        buffer: BufferId,
        work: impl FnOnce(&mut ExecutionPlan) -> Result<R, DeviceError> + Send + 'static,
    ) -> Result<R, GroupError> {
        self.usable()?;
        let call: RankCall<_> = Box::new(move |plan| Some(work(plan.as_mut()?)));
        let receiver = self.leave_call(place, call);
        let result =
            self.gather(Moment::Transfer, vec![(place, receiver)], |shared| shared.call_one(place))?.pop();
        let graph = &self.graphs[place];
        let absent = || DeviceError::Failed("the rank has no plan".to_string());
        result.flatten().ok_or_else(absent).flatten().map_err(|error| GroupError::Transfer {
            rank: graph.rank(),
            buffer: graph.buffers()[buffer.0 as usize].name.to_string(),
            error,
        })
    }

    /// Runs a closure on every rank's thread and gathers the results, within `init_timeout`. A panic, or the limit,
    /// leaves the group unusable.
    pub(super) fn call_all<R: Send + 'static>(
        &mut self,
        during: Moment,
        mut work: impl FnMut(usize) -> RankCall<R>,
    ) -> Result<Vec<R>, GroupError> {
        let places = 0..self.shared.ranks.len();
        let receivers = places.map(|place| (place, self.leave_call(place, work(place)))).collect();
        self.gather(during, receivers, |shared| shared.command(Command::Call, 0))
    }

    /// Leaves a closure for a rank's thread to run at the next command; its answer will come from the receiver.
    fn leave_call<R: Send + 'static>(&self, place: usize, work: RankCall<R>) -> Answer<R> {
        let (sender, receiver) = mpsc::channel();
        let shared = self.shared.clone();
        let call = Box::new(move |plan: &mut Option<ExecutionPlan>| {
            let result = catch_unwind(AssertUnwindSafe(|| work(plan)));
            if result.is_err() {
                shared.abort(); // the others may wait for this rank
            }
            let _ = sender.send(result.map_err(|panic| panic_text(&*panic).to_string()));
        });
        *self.shared.ranks[place].call.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
        receiver
    }

    /// Gives the command that `start` gives, and gathers the answers.
    fn gather<R>(
        &mut self,
        during: Moment,
        answers: Vec<(usize, Answer<R>)>,
        start: impl FnOnce(&Shared),
    ) -> Result<Vec<R>, GroupError> {
        let _running = Running::enter();
        let limit = self.options.init_timeout;
        start(&self.shared);
        if !self.shared.wait_all(from_now(limit.saturating_add(GRACE))) {
            let faults = self.shared.faults();
            let late = (0..self.shared.ranks.len()).filter(|&place| !self.shared.arrived(place));
            // Before the abort, after which they may be in another.
            let late: Vec<_> = late.map(|place| (place, self.shared.ranks[place].prepared())).collect();
            self.shared.abort();
            self.shared.wait_all(from_now(second_period(Some(limit))));
            let ranks = late.into_iter().map(|(place, running)| Standing {
                rank: self.graphs[place].rank(),
                steps: 0,
                finished: None,
                running,
                binding: true,
                found: if self.shared.arrived(place) { Found::Late } else { Found::Stuck },
            });
            let ranks = ranks.collect();
            let report = Box::new(Report { ranks, faults, leak: self.leak(), ..Report::default() });
            return Err(self.break_with(GroupError::TimedOut { during, limit, report }));
        }
        let mut results = Vec::with_capacity(answers.len());
        for (place, answer) in answers {
            let text = match answer.try_recv() {
                Ok(Ok(result)) => {
                    results.push(result);
                    continue;
                }
                Ok(Err(panic)) => format!("it panicked: {panic}"),
                Err(_) => "its thread gave no answer".to_string(),
            };
            return Err(self.break_with(GroupError::Failed {
                rank: self.graphs[place].rank(),
                task: None,
                during,
                error: DeviceError::Failed(text),
                released: Box::default(),
            }));
        }
        Ok(results)
    }
}
