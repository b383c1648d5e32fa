//! The library `host`: squall's own ops between the ranks of one process.

use std::sync::Arc;

use squall_core::ops::{self, Contract};
use squall_core::{
    CommId, Connect, DeviceError, Library, LibraryOp, Needs, OpCall, OpError, Prepare, Session, Work,
    described_by_contract, register_library, register_op,
};

use crate::collective::{Batch, Hub, Team};
use crate::device::KIND;

register_library!(&HostLibrary);
register_op!(
    &HostOp(&ops::ALL_GATHER),
    &HostOp(&ops::ALL_REDUCE),
    &HostOp(&ops::ALL_TO_ALL),
    &HostOp(&ops::BROADCAST),
    &HostOp(&ops::GATHER),
    &HostOp(&ops::RECV),
    &HostOp(&ops::REDUCE),
    &HostOp(&ops::REDUCE_SCATTER),
    &HostOp(&ops::SCATTER),
    &HostOp(&ops::SEND),
    &HostOp(&ops::SEND_RECV),
);

/// The library `host` on host devices.
#[derive(Debug)]
pub struct HostLibrary;

impl Library for HostLibrary {
    fn name(&self) -> &'static str {
        KIND
    }

    fn device(&self) -> &'static str {
        KIND
    }

    /// Makes one team for each part of each communicator. All sessions are one connection: aborting one rank's
    /// aborts all.
    fn connect(&self, cx: &Connect<'_>) -> Result<Vec<Session>, DeviceError> {
        let hub = Arc::new(Hub::new(cx.local.len()));
        let mut teams: Vec<Vec<Seated>> =
            cx.local.iter().map(|_| Vec::with_capacity(cx.comms.len())).collect();
        for &comm in cx.comms {
            for part in cx.world.parts(comm) {
                let seats: Vec<Option<usize>> =
                    part.iter().map(|rank| cx.local.iter().position(|(local, _)| local == rank)).collect();
                if seats.iter().all(Option::is_none) {
                    continue;
                }
                if let Some((rank, _)) = part.iter().zip(&seats).find(|(_, seat)| seat.is_none()) {
                    return Err(DeviceError::Unsupported(format!(
                        "the library `{KIND}` joins ranks of one process, but rank {rank} of communicator `{}` is in \
                         another",
                        cx.world.name(comm)
                    )));
                }
                let members = seats.iter().flatten().copied().zip(part.iter().copied());
                let team = Arc::new(Team::new(hub.clone(), cx.world.name(comm), members));
                for (place, seat) in seats.into_iter().flatten().enumerate() {
                    teams[seat].push(Seated { comm, team: team.clone(), place });
                }
            }
        }
        let session = |(seat, teams)| Session {
            state: Box::new(RankSession { hub: hub.clone(), seat, teams }),
            abort: hub.clone(),
        };
        Ok(teams.into_iter().enumerate().map(session).collect())
    }
}

/// One rank's communicators.
pub(crate) struct RankSession {
    pub(crate) hub: Arc<Hub>,
    /// The rank's number among those of the connection.
    pub(crate) seat: usize,
    teams: Vec<Seated>,
}

/// A rank's place in one communicator.
struct Seated {
    comm: CommId,
    team: Arc<Team>,
    place: usize,
}

impl RankSession {
    /// The rank's team in a communicator, and its place there.
    pub(crate) fn team(&self, comm: CommId) -> Result<(&Arc<Team>, usize), DeviceError> {
        self.teams
            .iter()
            .find(|seated| seated.comm == comm)
            .map(|seated| (&seated.team, seated.place))
            .ok_or_else(|| {
                DeviceError::Failed(format!(
                    "the library `{KIND}` was not connected for communicator {}",
                    comm.0
                ))
            })
    }
}

/// One of squall's own ops on host devices.
struct HostOp(&'static Contract);

described_by_contract!(HostOp);

impl LibraryOp for HostOp {
    fn library(&self) -> &'static str {
        KIND
    }

    fn device(&self) -> &'static str {
        KIND
    }

    /// All dtypes and reductions, in groups; ranks read each other's memory.
    fn needs(&self) -> Needs {
        Needs { single_process: true, ..Needs::NONE }
    }

    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let session = cx.session.as_deref().and_then(|session| session.downcast_ref::<RankSession>());
        match session {
            Some(session) => Ok(Box::new(Batch::new(batch, session)?)),
            None => Err(DeviceError::Failed(format!("the library `{KIND}` was not connected")).into()),
        }
    }
}
