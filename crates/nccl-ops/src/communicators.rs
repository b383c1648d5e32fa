//! Making communicators: all ranks of one process at once, or ranks of several processes by a common id.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use squall_core::{Abort, CommId, Device, DeviceError, RawHandle, Session, World};

use crate::NAME;
use crate::api::{Api, Config, IN_PROGRESS, NO_COLOR, RawId, SUCCESS};
use crate::closer::{Comm, Connection, Slots};
use crate::detached::{self, Watch};
use crate::error::NcclError;
use crate::unique_id::UniqueId;

/// How long to sleep between two looks at what a nonblocking call has come to.
const POLL: Duration = Duration::from_millis(1);

/// The communicators of this process's ranks in a job of one or several processes.
///
/// What a plan group does by itself, for programs that run without one:
///
/// ```no_run
/// # use std::{error::Error, sync::Arc, time::{Duration, Instant}};
/// # use squall_core::{Abort, CommId, Device};
/// # use squall_nccl_ops::{Communicators, RankSession, UniqueId};
/// // In one process: `println!("{}", UniqueId::new()?)`. In every process, with that text:
/// fn join(text: &str, rank: u32, device: Arc<dyn Device>) -> Result<(), Box<dyn Error>> {
///     let deadline = Instant::now() + Duration::from_secs(60);
///     let joined = Communicators::join(text.parse()?, 2, &[(rank, device)], deadline)?;
///     for session in joined.into_sessions() {
///         let session = session.state.downcast_ref::<RankSession>().ok_or("not of NCCL")?;
///         println!("rank {} has {:?}", session.rank(), session.raw(CommId::WORLD)?);
///     }
///     Ok(())
/// }
/// ```
pub struct Communicators {
    connection: Connection,
    /// One a local rank.
    ranks: Vec<(u32, Vec<(CommId, Comm)>)>,
}

/// One rank's communicators: what the ops find as their session, and [`Session::state`] holds.
///
/// When the last session of a connection is dropped, the communicators are closed. That waits for NCCL, at most some seconds;
/// what NCCL has not closed by then is left to a thread of its own.
pub struct RankSession {
    connection: Arc<Connection>,
    rank: u32,
    comms: Vec<(CommId, Comm)>,
}

impl RankSession {
    /// This rank, of the world.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The handle of a communicator, an `ncclComm_t`, for calls beyond squall's ops. It is blocking, and valid as long as the session;
    /// whoever calls with it keeps to the order that all ranks keep, and ends no communicator.
    pub fn raw(&self, comm: CommId) -> Result<RawHandle, DeviceError> {
        let comm = self.comm(comm)?;
        Ok(RawHandle { api: NAME, handle: comm.raw().expose_provenance() as u64 })
    }

    pub(crate) fn comm(&self, comm: CommId) -> Result<Comm, DeviceError> {
        self.connection.check()?;
        let found = self.comms.iter().find(|(id, _)| *id == comm).map(|(_, comm)| *comm);
        found.ok_or_else(|| {
            DeviceError::Failed(format!("the library `{NAME}` was not connected for communicator {}", comm.0))
        })
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Communicators {
    /// Joins a job of `world` ranks by an id that all its processes have; `local` are this process's ranks, each with its device.
    /// Blocks until all ranks have come or the deadline has passed; what was made until then is taken back, which may take some seconds
    /// more. Only a call that does not return is left behind: [`NcclError::Stuck`]. The process that made the id must live until all
    /// have joined.
    ///
    /// Sessions have the communicator [`CommId::WORLD`].
    pub fn join(
        id: UniqueId,
        world: u32,
        local: &[(u32, Arc<dyn Device>)],
        deadline: Instant,
    ) -> Result<Communicators, NcclError> {
        check_ranks(world, local)?;
        let world = World::new(world.into()).map_err(|error| NcclError::Ranks(error.to_string()))?;
        let (api, world, local) = (Api::get()?, Arc::new(world), local.to_vec());
        let aborted = Arc::new(AtomicBool::new(false));
        Job { api, world, comms: Vec::new(), local, aborted, deadline }.join(id)
    }

    /// One session a local rank, in the order in which they were given. All are one connection: aborting one aborts all.
    pub fn into_sessions(self) -> Vec<Session> {
        let connection = Arc::new(self.connection);
        let session = |(rank, comms)| Session {
            abort: connection.abort_handle(),
            state: Box::new(RankSession { connection: connection.clone(), rank, comms }),
        };
        self.ranks.into_iter().map(session).collect()
    }

    #[cfg(test)]
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.connection.set_patience(patience);
    }
}

/// Refuses ranks that no job of `world` ranks has, and two of them on one device.
pub(crate) fn check_ranks(world: u32, local: &[(u32, Arc<dyn Device>)]) -> Result<(), NcclError> {
    if local.is_empty() {
        return Err(NcclError::Ranks("a process joins with at least one rank".to_string()));
    }
    for (index, (rank, device)) in local.iter().enumerate() {
        if *rank >= world {
            let text = format!(
                "there is no rank {rank} in a job of {}, counted from 0",
                squall_core::count(world, "rank")
            );
            return Err(NcclError::Ranks(text));
        }
        for (other, on) in local.iter().take(index) {
            if other == rank {
                return Err(NcclError::Ranks(format!("rank {rank} is given twice")));
            }
            if on.id() == device.id() {
                let (device, first, second) = (device.id().to_string(), *other, *rank);
                return Err(NcclError::SameDevice { device, first, second });
            }
        }
    }
    Ok(())
}

/// What is to be connected. `local` has passed [`check_ranks`]. Owned, since a call that does not come back keeps it.
pub(crate) struct Job {
    pub(crate) api: &'static Api,
    pub(crate) world: Arc<World>,
    /// Communicators wanted beside the world.
    pub(crate) comms: Vec<CommId>,
    pub(crate) local: Vec<(u32, Arc<dyn Device>)>,
    /// Set when joining is to be given up before the deadline.
    pub(crate) aborted: Arc<dyn Abort>,
    pub(crate) deadline: Instant,
}

impl Job {
    /// Connects ranks that are all of this process, and so wait for nobody else. The communicators are blocking from the start, so that
    /// a call that hangs at the deadline is left to its thread.
    pub(crate) fn connect(self) -> Result<Communicators, NcclError> {
        detached::run(self.deadline, move |watch| {
            let id = watch.inside("ncclGetUniqueId", || UniqueId::by(self.api))?;
            let connection = self.connection()?;
            let world = connection.slots();
            let made = self.init(watch, id, true, &world).and_then(|()| {
                let comms = self.comms.iter().filter(|&&comm| comm != CommId::WORLD);
                let parts = comms.map(|&comm| Ok((comm, self.split(watch, &world, comm, &connection)?)));
                parts.collect::<Result<Vec<_>, NcclError>>()
            });
            match made {
                Ok(parts) => {
                    let all = [(CommId::WORLD, world)].into_iter().chain(parts);
                    Ok(self.communicators(connection, all))
                }
                Err(error) => {
                    connection.give_up();
                    Err(error)
                }
            }
        })
    }

    /// Joins ranks of other processes. Waiting for them must end at the deadline, so that this is done on nonblocking communicators; the
    /// blocking ones for the steps are split off, and the others closed.
    pub(crate) fn join(self, id: UniqueId) -> Result<Communicators, NcclError> {
        detached::run(self.deadline, move |watch| {
            let (waiting, connection) = (self.connection()?, self.connection()?);
            let world = waiting.slots();
            let made = self.init(watch, id, false, &world).and_then(|()| {
                let comms = self.comms.iter().copied().filter(|&comm| comm != CommId::WORLD);
                let parts = [CommId::WORLD].into_iter().chain(comms);
                parts.map(|comm| Ok((comm, self.split(watch, &world, comm, &connection)?))).collect()
            });
            match made {
                Ok(parts) => {
                    let parts: Vec<(CommId, Arc<Slots>)> = parts;
                    drop(waiting);
                    Ok(self.communicators(connection, parts))
                }
                Err(error) => {
                    // First what is under way, which may still give communicators to the other connection.
                    if waiting.give_up() {
                        connection.give_up();
                    } else {
                        std::mem::forget(connection);
                    }
                    Err(error)
                }
            }
        })
    }

    fn connection(&self) -> Result<Connection, NcclError> {
        Connection::new(self.api, self.local.iter().map(|(_, device)| device.clone()).collect())
    }

    fn communicators(
        &self,
        connection: Connection,
        made: impl IntoIterator<Item = (CommId, Arc<Slots>)>,
    ) -> Communicators {
        let made: Vec<(CommId, Arc<Slots>)> = made.into_iter().collect();
        let of =
            |local: usize| made.iter().filter_map(|(id, slots)| Some((*id, slots.get(local)?))).collect();
        let ranks = self.local.iter().enumerate().map(|(local, (rank, _))| (*rank, of(local))).collect();
        Communicators { connection, ranks }
    }

    /// Makes the world's communicators.
    fn init(&self, watch: &Watch, id: UniqueId, blocking: bool, slots: &Slots) -> Result<(), NcclError> {
        const FUNCTION: &str = "ncclCommInitRankConfig";
        let size = number(self.world.size())?;
        self.group(watch, FUNCTION, |local, rank| {
            let mut config = Config::new(blocking);
            let (place, id, rank) = (slots.place(local), RawId(*id.as_bytes()), number(rank)?);
            // SAFETY: NCCL writes to the place before the communicator is ready, which is waited for; the rest is copied.
            Ok(unsafe { (self.api.functions.init)(place, size, id, rank, &mut config) })
        })?;
        self.wait(watch, FUNCTION, slots)
    }

    /// Makes the blocking communicators of the parts that the local ranks have in `comm`. The connection owns them, also when this
    /// fails.
    fn split(
        &self,
        watch: &Watch,
        world: &Slots,
        comm: CommId,
        connection: &Connection,
    ) -> Result<Arc<Slots>, NcclError> {
        const FUNCTION: &str = "ncclCommSplit";
        let slots = connection.slots();
        self.group(watch, FUNCTION, |local, rank| {
            let (color, key) = match self.world.part(comm, rank) {
                Some(part) => (number(part.index)?, number(part.rank)?),
                None => (NO_COLOR, 0),
            };
            let parent = world.get(local).ok_or_else(|| self.lost(FUNCTION, rank))?;
            let mut config = Config::new(true);
            // SAFETY: the parent is alive and ready. NCCL writes to the place until the parent is ready again, which is waited for; if
            // it never is, the connection, and with it the place, is forgotten. The configuration is copied.
            Ok(unsafe {
                (self.api.functions.split)(parent.raw(), color, key, slots.place(local), &mut config)
            })
        })?;
        self.wait(watch, FUNCTION, world)?;
        Ok(slots)
    }

    /// One call for every local rank, issued together.
    fn group(
        &self,
        watch: &Watch,
        function: &'static str,
        mut call: impl FnMut(usize, u32) -> Result<c_int, NcclError>,
    ) -> Result<(), NcclError> {
        watch.inside(function, || {
            self.api.group_start()?;
            let outcome = self.local.iter().enumerate().try_for_each(|(local, (rank, device))| {
                watch.on(Some(*rank));
                device.make_current()?;
                self.api.check(function, Some(*rank), call(local, *rank)?)
            });
            watch.on(None);
            // Ended in any case: NCCL counts starts and ends, and forgets a group in which a call failed.
            let ended = self.api.group_end(None);
            outcome.and(ended)
        })
    }

    /// Waits until what was begun on the local ranks' communicators has ended.
    fn wait(&self, watch: &Watch, function: &'static str, slots: &Slots) -> Result<(), NcclError> {
        for (local, (rank, _)) in self.local.iter().enumerate() {
            let comm = slots.get(local).ok_or_else(|| self.lost(function, *rank))?;
            loop {
                let mut state: c_int = SUCCESS;
                // SAFETY: the communicator is alive, and `state` is written.
                let asked = unsafe { (self.api.functions.async_error)(comm.raw(), &mut state) };
                self.api.check("ncclCommGetAsyncError", Some(*rank), asked)?;
                if state != IN_PROGRESS {
                    self.api.check(function, Some(*rank), state)?;
                    break;
                }
                if self.aborted.is_aborted() {
                    return Err(NcclError::Aborted);
                }
                if watch.is_over() {
                    let (rank, world, waited) = (*rank, self.world.size(), watch.waited());
                    return Err(NcclError::Deadline { function, rank, world, waited });
                }
                thread::sleep(POLL);
            }
        }
        Ok(())
    }

    /// NCCL said that all is well, and gave no communicator.
    fn lost(&self, function: &'static str, rank: u32) -> NcclError {
        NcclError::Ranks(format!("{function} gave no communicator to rank {rank}"))
    }
}

/// NCCL counts in `int`.
fn number(value: u32) -> Result<c_int, NcclError> {
    c_int::try_from(value).map_err(|_| NcclError::Ranks(format!("{value} is more than NCCL can count")))
}

#[cfg(test)]
mod tests;
