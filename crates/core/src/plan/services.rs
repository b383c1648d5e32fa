//! What a plan does for an op that it makes ready: other ops inside it, peers' addresses, and word of an abort.

use std::any::Any;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::args::{Arg, Args, BoundRange};
use crate::device::{Device, DeviceError, DevicePtr, Work};
use crate::graph::inner;
use crate::group::handles::Handles;
use crate::library_op::{Abort, Exchange, LibraryOp, OpCall, OpError, Prepare, Services};
use crate::world::{CommId, World};

/// States of libraries on a rank, by their names.
pub(crate) type Sessions<'a> = Vec<(&'a str, &'a mut (dyn Any + Send))>;

/// The services of a rank's plan for one batch.
pub(crate) struct PlanServices<'a> {
    pub(crate) rank: u32,
    pub(crate) world: &'a Arc<World>,
    pub(crate) device: &'a dyn Device,
    pub(crate) batch: &'a [OpCall<'a>],
    /// What members of the batch use.
    pub(crate) uses: &'a [&'static dyn LibraryOp],
    /// Those of all libraries but the batch's own.
    pub(crate) sessions: Sessions<'a>,
    pub(crate) exchange: &'a dyn Exchange,
    pub(crate) aborted: &'a Arc<dyn Abort>,
    pub(crate) handles: &'a Handles,
    pub(crate) deadline: Instant,
}

impl PlanServices<'_> {
    /// The op of that name that a member on that communicator uses.
    fn used(&self, name: &str, comm: CommId) -> Option<&'static dyn LibraryOp> {
        let mut members = self.batch.iter().filter(|call| call.comm == comm);
        members
            .any(|call| call.op.needs().uses.contains(&name))
            .then(|| self.uses.iter().find(|op| op.name() == name).copied())?
    }
}

impl Services for PlanServices<'_> {
    unsafe fn op(
        &mut self,
        name: &str,
        comm: CommId,
        args: &[(&str, Arg<BoundRange>)],
    ) -> Result<Box<dyn Work>, OpError> {
        let failed = |what: String| DeviceError::Failed(format!("`{name}` inside it: {what}"));
        let Some(op) = self.used(name, comm) else {
            let text = format!("the op does not say that it uses it on `{}`", self.world.name(comm));
            return Err(failed(text).into());
        };
        let values = inner::arguments(op, self.world, (comm, self.rank), args).map_err(failed)?;
        let part = self.world.part(comm, self.rank);
        let (comm_rank, comm_size) = part.map_or((0, 1), |part| (part.rank, part.size()));
        let args = Args { params: op.params(), values: &values, comm_rank, comm_size };
        let task = self.batch.iter().find(|call| call.comm == comm).map_or("", |call| call.task);
        let call = [OpCall { op, task, comm, args, parts: None }];
        let session = self.sessions.iter_mut().find(|(library, _)| *library == op.library());
        let mut nested = PlanServices { batch: &call, uses: &[], sessions: Vec::new(), ..*self };
        let mut cx = Prepare {
            rank: self.rank,
            world: self.world,
            device: self.device,
            session: session.map(|(_, state)| &mut **state as _),
            exchange: self.exchange,
            aborted: self.aborted,
            deadline: self.deadline,
            services: &mut nested,
        };
        // SAFETY: the caller's.
        unsafe { op.prepare(&call, &mut cx) }.map_err(|error| match error {
            OpError::Arg { error, .. } => failed(error.to_string()).into(),
            OpError::Device(DeviceError::Failed(text)) => failed(text).into(),
            other => other,
        })
    }

    fn peer_pointers(&mut self, comm: CommId, ptr: DevicePtr) -> Result<Vec<DevicePtr>, DeviceError> {
        let reaches = |call: &OpCall<'_>| call.comm == comm && call.op.needs().single_process;
        if !self.batch.iter().any(reaches) {
            let text = format!(
                "the op asks for its peers' memory on `{}`, and does not say that it needs one process",
                self.world.name(comm)
            );
            return Err(DeviceError::Failed(text));
        }
        let mine = Peer { process: this_process(), ptr, device: self.device.id() };
        let all = self.exchange.all_gather(comm, self.rank, &mine.to_bytes(), self.deadline)?;
        let mut ptrs = Vec::with_capacity(all.len());
        for (rank, bytes) in all.iter().enumerate() {
            let peer = Peer::of_bytes(bytes).ok_or_else(|| {
                DeviceError::Failed(format!(
                    "rank {rank} of `{}` exchanged something else",
                    self.world.name(comm)
                ))
            })?;
            if peer.process != mine.process {
                let text = format!("rank {rank} of `{}` is in another process", self.world.name(comm));
                return Err(DeviceError::Unsupported(text));
            }
            if peer.device != mine.device {
                self.device.reach(peer.device)?;
            }
            ptrs.push(peer.ptr);
        }
        Ok(ptrs)
    }

    fn on_abort(&mut self, handle: Arc<dyn Abort>) {
        self.handles.add(handle, &**self.aborted);
    }
}

/// What ranks tell each other of their memory.
struct Peer<'a> {
    process: [u64; 2],
    ptr: DevicePtr,
    device: &'a str,
}

impl Peer<'_> {
    fn to_bytes(&self) -> Vec<u8> {
        let words = [self.process[0], self.process[1], self.ptr.0];
        words.into_iter().flat_map(u64::to_le_bytes).chain(self.device.bytes()).collect()
    }

    fn of_bytes(bytes: &[u8]) -> Option<Peer<'_>> {
        let (words, device) = bytes.split_at_checked(24)?;
        let word = |at: usize| Some(u64::from_le_bytes(words.get(at..at + 8)?.try_into().ok()?));
        let device = std::str::from_utf8(device).ok()?;
        Some(Peer { process: [word(0)?, word(8)?], ptr: DevicePtr(word(16)?), device })
    }
}

/// This process, told apart from those of other machines as well: its number, and one drawn by chance.
fn this_process() -> [u64; 2] {
    static DRAWN: OnceLock<u64> = OnceLock::new();
    [u64::from(std::process::id()), *DRAWN.get_or_init(|| RandomState::new().hash_one(0))]
}
