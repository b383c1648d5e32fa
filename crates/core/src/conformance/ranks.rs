//! The harness: a thread a rank, each with its device, its stream and its connection.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use crate::args::{Arg, Args, BoundRange};
use crate::conformance::Target;
use crate::device::{Device, DeviceError, DevicePtr, Memory, Stream, Work};
use crate::dtype::DType;
use crate::group::Peers;
use crate::group::exchange::LocalExchange;
use crate::group::handles::Handles;
use crate::library_op::{Abort, Connect, Exchange, LibraryOp, OpCall, Prepare, Session};
use crate::ops::Parts;
use crate::plan::services::{PlanServices, Sessions};
use crate::wait::Running;
use crate::world::{CommId, World};

/// How long a job may take before it counts as hung and is aborted.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connected job, to be run by a thread a rank.
pub struct Ranks<'a> {
    target: Target<'a>,
    world: Arc<World>,
    members: Vec<Member>,
    aborts: Arc<AbortAll>,
    exchange: LocalExchange,
}

struct Member {
    rank: u32,
    device: Arc<dyn Device>,
    /// None when the library registered no connection.
    state: Option<Box<dyn Any + Send>>,
}

/// One rank, in its thread.
pub struct Rank<'a> {
    /// This rank, of the world.
    pub rank: u32,
    /// All ranks and communicators.
    pub world: Arc<World>,
    /// Its device.
    pub device: Arc<dyn Device>,
    /// Its stream.
    pub stream: Box<dyn Stream>,
    target: Target<'a>,
    state: Option<Box<dyn Any + Send>>,
    aborts: Arc<dyn Abort>,
    handles: Arc<Handles>,
    exchange: &'a LocalExchange,
    deadline: Instant,
    left: Arc<Left>,
}

/// Works that cases are done with. Kept until all ranks have ended, as a plan group keeps them: a peer may still be in one, and reach the
/// memory of this rank's.
type Left = Mutex<Vec<Box<dyn Work>>>;

/// A work that is not dropped with this.
struct Kept {
    work: Option<Box<dyn Work>>,
    left: Arc<Left>,
}

impl Work for Kept {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        self.work.as_mut().map_or(Ok(()), |work| work.enqueue(stream))
    }

    fn failure(&mut self) -> Option<String> {
        self.work.as_mut()?.failure()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).extend(self.work.take());
    }
}

/// Device memory of a rank, with the staging memory that fills and reads it.
pub struct Buffer {
    memory: Box<dyn Memory>,
    staging: Box<dyn Memory>,
}

/// An op with its arguments, by name.
#[derive(Clone, Debug)]
pub struct Op {
    name: &'static str,
    /// Of the suite's own; else it is the library's of that name.
    own: Option<&'static dyn LibraryOp>,
    comm: CommId,
    args: Vec<(&'static str, Arg<BoundRange>)>,
    parts: Option<Parts>,
}

impl<'a> Ranks<'a> {
    /// Opens a device a rank and connects the library for all communicators of `world`.
    pub fn connect(target: &Target<'a>, world: World) -> Result<Ranks<'a>, String> {
        let world = Arc::new(world);
        let open = |rank| target.backend.open(rank).map_err(|error| error.to_string());
        let devices = (0..world.size()).map(open).collect::<Result<Vec<_>, _>>()?;
        let local: Vec<(u32, Arc<dyn Device>)> = (0..).zip(devices.iter().cloned()).collect();
        let comms: Vec<CommId> = world.comms().collect();
        let exchange = LocalExchange::new(world.clone());
        let deadline = Instant::now() + PATIENCE;
        let aborted: Arc<dyn Abort> = Arc::new(AtomicBool::new(false));
        let (comms, aborted) = (&comms[..], &aborted);
        let cx = Connect { world: &world, comms, local: &local, exchange: &exchange, aborted, deadline };
        let mut sessions: Vec<Option<Session>> = Vec::new();
        if let Some(library) = target.registry.library(target.library, target.backend.kind()) {
            let made = library.connect(&cx).map_err(|error| format!("connect: {error}"))?;
            if made.len() != devices.len() {
                return Err(format!(
                    "connect made {} for {}",
                    crate::count(made.len() as u64, "session"),
                    crate::count(devices.len() as u64, "rank")
                ));
            }
            sessions.extend(made.into_iter().map(Some));
        }
        sessions.resize_with(devices.len(), || None);
        let members =
            local.into_iter().zip(sessions).map(|((rank, device), session)| (rank, device, session));
        Ok(Ranks::of(target, world, members))
    }

    /// A job, or this process's part of one, whose ranks are connected already: each with its device and its session.
    pub fn of(
        target: &Target<'a>,
        world: Arc<World>,
        connected: impl IntoIterator<Item = (u32, Arc<dyn Device>, Option<Session>)>,
    ) -> Ranks<'a> {
        let (mut members, mut sessions) = (Vec::new(), Vec::new());
        for (rank, device, session) in connected {
            let (state, abort) = session.map(|session| (session.state, session.abort)).unzip();
            members.push(Member { rank, device, state });
            sessions.extend(abort);
        }
        let aborts = AbortAll { aborted: AtomicBool::new(false), sessions, handles: Arc::default() };
        let aborts = Arc::new(aborts);
        let exchange = LocalExchange::new(world.clone());
        Ranks { target: *target, world, members, aborts, exchange }
    }

    /// The handle that aborts all ranks.
    pub fn abort(&self) -> Arc<dyn Abort> {
        self.aborts.clone()
    }

    /// Runs `body` on every rank at once and gives their results by rank. A rank that fails releases the others; the
    /// error is the first failure that is not such a release.
    pub fn run<T: Send>(
        self,
        body: impl Fn(&mut Rank<'_>) -> Result<T, String> + Sync,
    ) -> Result<Vec<T>, String> {
        let deadline = Instant::now() + PATIENCE;
        let Ranks { target, world, members, aborts, exchange } = self;
        let left = Arc::<Left>::default();
        let (done, outcomes) = mpsc::channel();
        let mut results: Vec<(u32, Option<Result<T, String>>)> =
            members.iter().map(|member| (member.rank, None)).collect();
        let mut hung = false;
        std::thread::scope(|scope| {
            for (place, Member { rank, device, state }) in members.into_iter().enumerate() {
                let (world, aborts, done) = (world.clone(), aborts.clone(), done.clone());
                let (body, exchange, target, left) = (&body, &exchange, &target, left.clone());
                scope.spawn(move || {
                    let _running = Running::enter();
                    let outcome =
                        device.stream().map_err(|error| format!("stream: {error}")).and_then(|stream| {
                            let handles = aborts.handles.clone();
                            let aborts: Arc<dyn Abort> = aborts;
                            body(&mut Rank {
                                rank,
                                world,
                                device,
                                stream,
                                target: *target,
                                state,
                                aborts,
                                handles,
                                exchange,
                                deadline,
                                left,
                            })
                        });
                    // The receiver lives until all ranks have reported.
                    let _ = done.send((place, outcome));
                });
            }
            drop(done);
            let mut limit = Some(deadline);
            loop {
                let next = match limit {
                    Some(limit) => outcomes.recv_timeout(limit.saturating_duration_since(Instant::now())),
                    None => outcomes.recv().map_err(mpsc::RecvTimeoutError::from),
                };
                match next {
                    Ok((place, outcome)) => {
                        if outcome.is_err() {
                            aborts.abort();
                            exchange.abort();
                        }
                        results[place].1 = Some(outcome);
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        hung = true;
                        aborts.abort();
                        exchange.abort();
                        limit = None;
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
            }
        });
        collect(results, hung)
    }
}

/// The results, or the failure to blame.
fn collect<T>(results: Vec<(u32, Option<Result<T, String>>)>, hung: bool) -> Result<Vec<T>, String> {
    let released = DeviceError::Aborted.to_string();
    let mut values = Vec::new();
    let mut failure: Option<String> = None;
    for (rank, result) in results {
        let error = match result {
            Some(Ok(value)) => {
                values.push(value);
                continue;
            }
            Some(Err(error)) => format!("rank {rank}: {error}"),
            None => format!("rank {rank} panicked"),
        };
        if failure.as_ref().is_none_or(|first| first.contains(&released) && !error.contains(&released)) {
            failure = Some(error);
        }
    }
    match failure {
        Some(error) if hung => Err(format!("not done after {} s; {error}", PATIENCE.as_secs())),
        Some(error) => Err(error),
        None if hung => Err(format!("not done after {} s", PATIENCE.as_secs())),
        None => Ok(values),
    }
}

impl Rank<'_> {
    /// Device memory with these contents.
    pub fn upload(&mut self, contents: &[u8]) -> Result<Buffer, String> {
        let bytes = contents.len() as u64;
        let memory = self.device.alloc(bytes).map_err(|error| error.to_string())?;
        let staging = self.device.alloc_staging(bytes).map_err(|error| error.to_string())?;
        let mut buffer = Buffer { memory, staging };
        self.write(&mut buffer, contents)?;
        Ok(buffer)
    }

    /// Gives a buffer other contents, as many as it has.
    pub fn write(&mut self, buffer: &mut Buffer, contents: &[u8]) -> Result<(), String> {
        let Some(host) = buffer.staging.host().filter(|host| host.len() == contents.len()) else {
            return Err("staging memory is not what was asked for".to_string());
        };
        host.copy_from_slice(contents);
        let (to, from, bytes) = (buffer.memory.ptr(), buffer.staging.ptr(), contents.len() as u64);
        // SAFETY: both places hold so many bytes, and this thread waits before it touches them again.
        unsafe { self.stream.copy(to, from, bytes) }.map_err(|error| format!("copy: {error}"))?;
        self.finish().map_err(|error| format!("copy: {error}"))
    }

    /// The contents of a buffer.
    pub fn read(&mut self, buffer: &mut Buffer) -> Result<Vec<u8>, String> {
        let (to, from, bytes) = (buffer.staging.ptr(), buffer.memory.ptr(), buffer.memory.bytes());
        // SAFETY: both places hold so many bytes, and this thread waits before it touches them again.
        unsafe { self.stream.copy(to, from, bytes) }.map_err(|error| format!("copy: {error}"))?;
        self.finish().map_err(|error| format!("copy: {error}"))?;
        Ok(buffer.staging.host().ok_or("the host does not see staging memory")?.to_vec())
    }

    /// Makes a group ready. The buffers that the ops name must outlive the work.
    pub fn prepare(&mut self, group: &[Op]) -> Result<Box<dyn Work>, String> {
        let mut bound: Vec<(&'static dyn LibraryOp, &Op, Vec<Arg<BoundRange>>)> = Vec::new();
        for op in group {
            let found = op.own.map_or_else(|| self.target.op(op.name), Ok)?;
            let named = |name| op.args.iter().find(|(arg, _)| *arg == name).map(|(_, value)| value.clone());
            let values =
                found.params().iter().map(|param| named(param.name).unwrap_or(Arg::Absent)).collect();
            bound.push((found, op, values));
        }
        let mut calls = Vec::new();
        for (op, given, values) in &bound {
            let part = self.world.part(given.comm, self.rank).ok_or("no such communicator")?;
            let args = Args { params: op.params(), values, comm_rank: part.rank, comm_size: part.size() };
            calls.push(OpCall {
                op: *op,
                task: given.name,
                comm: given.comm,
                args,
                parts: given.parts.as_ref(),
            });
        }
        let first = calls.first().ok_or("a group has members")?.op;
        for call in &calls {
            let taken = call.op.needs().dtypes;
            let refused =
                |arg: &Arg<BoundRange>| matches!(arg, Arg::Buffer(range) if !taken.contains(&range.dtype));
            if call.args.values.iter().any(refused) {
                return Err(format!("{:?} is called with a dtype that it does not take", call.op));
            }
        }
        // An op of the suite's own uses those of the library under test; that library's own use none.
        let used = |name: &&'static str| self.target.op(name);
        let uses = first.needs().uses.iter().map(used).collect::<Result<Vec<_>, _>>()?;
        let (mut session, mut others) = (self.state.as_deref_mut(), Sessions::new());
        if first.library() != self.target.library {
            others.extend(session.take().map(|state| (self.target.library, state)));
        }
        let mut services = PlanServices {
            rank: self.rank,
            world: &self.world,
            device: &*self.device,
            batch: &calls,
            uses: &uses,
            sessions: others,
            exchange: self.exchange,
            aborted: &self.aborts,
            handles: &self.handles,
            deadline: self.deadline,
        };
        let mut cx = Prepare {
            rank: self.rank,
            world: &self.world,
            device: &*self.device,
            session,
            exchange: self.exchange,
            aborted: &self.aborts,
            deadline: self.deadline,
            services: &mut services,
        };
        // SAFETY: ranges come from buffers, which cases keep until the work is done or its rank has left it.
        let work = unsafe { first.prepare(&calls, &mut cx) }
            .map_err(|error| format!("prepare {}: {error}", first.name()))?;
        Ok(Box::new(Kept { work: Some(work), left: self.left.clone() }))
    }

    /// Enqueues work and waits until it is done. Where all ranks have been aborted meanwhile, it was not, whatever the
    /// stream says.
    pub fn run(&mut self, work: &mut dyn Work) -> Result<(), DeviceError> {
        work.enqueue(&mut *self.stream)?;
        self.finish()?;
        if self.aborts.is_aborted() { Err(DeviceError::Aborted) } else { Ok(()) }
    }

    /// Prepares a group, and runs it once.
    pub fn run_group(&mut self, group: &[Op]) -> Result<(), String> {
        let mut work = self.prepare(group)?;
        self.run(&mut *work).map_err(|error| error.to_string())
    }

    /// Waits until all ranks of the world have come here.
    pub fn barrier(&self) -> Result<(), String> {
        let all = self.exchange.all_gather(CommId::WORLD, self.rank, &[], self.deadline);
        all.map(drop).map_err(|error| error.to_string())
    }

    /// Waits until the stream is done.
    pub fn finish(&mut self) -> Result<(), DeviceError> {
        self.stream.wait(Some(self.deadline))
    }

    /// The handle that aborts all ranks.
    pub fn abort(&self) -> &Arc<dyn Abort> {
        &self.aborts
    }
}

impl Buffer {
    /// Elements `offset..offset + len`, seen as elements of `dtype`.
    pub fn range(&self, dtype: DType, offset: u64, len: u64) -> BoundRange {
        let ptr = DevicePtr(self.memory.ptr().0 + offset * dtype.size());
        BoundRange { ptr, dtype, shape: [len].into() }
    }

    /// All of it, as elements of `dtype`.
    pub fn whole(&self, dtype: DType) -> BoundRange {
        self.range(dtype, 0, self.memory.bytes() / dtype.size())
    }
}

impl Op {
    /// An op of that name on the world.
    pub fn new(name: &'static str) -> Op {
        Op { name, own: None, comm: CommId::WORLD, args: Vec::new(), parts: None }
    }

    /// An op that no library under test serves, on the world. What it uses is served by the library under test.
    pub fn of(op: &'static dyn LibraryOp) -> Op {
        Op { own: Some(op), ..Op::new(op.name()) }
    }

    /// On another communicator.
    pub fn on(mut self, comm: CommId) -> Op {
        self.comm = comm;
        self
    }

    /// With a range as argument.
    pub fn buffer(mut self, name: &'static str, range: BoundRange) -> Op {
        self.args.push((name, Arg::Buffer(range)));
        self
    }

    /// With a rank as argument.
    pub fn rank(mut self, name: &'static str, rank: u32) -> Op {
        self.args.push((name, Arg::Rank(rank)));
        self
    }

    /// With a matrix as argument, row after row.
    pub fn matrix(mut self, name: &'static str, numbers: &Arc<[i64]>) -> Op {
        self.args.push((name, Arg::List(numbers.clone())));
        self
    }

    /// With unequal parts, as verification would give them.
    pub fn parts(mut self, parts: Parts) -> Op {
        self.parts = Some(parts);
        self
    }

    /// With a reduction.
    pub fn reduce(mut self, reduce: crate::ReduceOp) -> Op {
        self.args.push(("reduce", Arg::Word(reduce as u32)));
        self
    }
}

/// Aborts every rank's session.
struct AbortAll {
    aborted: AtomicBool,
    sessions: Vec<Arc<dyn Abort>>,
    /// What ops of all ranks have called.
    handles: Arc<Handles>,
}

impl Abort for AbortAll {
    fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        self.sessions.iter().for_each(|session| session.abort());
        self.handles.abort();
    }

    fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst) && self.sessions.iter().all(|session| session.is_aborted())
    }
}
