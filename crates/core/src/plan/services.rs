//! What a plan does for an op that it makes ready: other ops inside it, peers' addresses, and word of an abort.

use std::any::Any;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::args::{Arg, Args, BoundRange};
use crate::device::{Device, DeviceError, DevicePtr, Work};
use crate::graph::inner;
use crate::group::handles::Handles;
use crate::kernel::KernelDef;
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
    unsafe fn kernel(
        &mut self,
        kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        grid: ([u64; 3], [u64; 3]),
    ) -> Result<Box<dyn Work>, DeviceError> {
        let (args, grid) = inner::kernel(kernel, (self.world, self.rank), self.device.kind(), &args, grid)
            .map_err(|what| inside(kernel.name, what))?;
        // SAFETY: the caller's, and the arguments are checked.
        unsafe { self.device.kernel(kernel, args, grid) }
    }

    unsafe fn op(
        &mut self,
        name: &str,
        comm: CommId,
        args: &[(&str, Arg<BoundRange>)],
    ) -> Result<Box<dyn Work>, OpError> {
        let failed = |what| inside(name, what);
        let Some(op) = self.used(name, comm) else {
            let text = format!(
                "the op does not name it in `Needs::uses`, or is not called on `{}`",
                self.world.name(comm)
            );
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

/// What went wrong with a kernel or an op that an op makes ready.
fn inside(name: &str, what: String) -> DeviceError {
    DeviceError::Failed(format!("`{name}` inside it: {what}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Memory, Stream};
    use crate::group::exchange::LocalExchange;
    use crate::library_op::Needs;
    use crate::ops::ALL_REDUCE;
    use crate::param::ParamDef;
    use crate::task::{ArgError, Description, Task};
    use crate::{Grid, World};
    use std::sync::Mutex;
    use std::time::Duration;

    struct Near;

    impl Task for Near {
        fn name(&self) -> &'static str {
            "near"
        }
        fn summary(&self) -> &'static str {
            ""
        }
        fn params(&self) -> &'static [ParamDef] {
            ALL_REDUCE.params()
        }
        fn example(&self) -> &'static str {
            ""
        }
        fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
            ALL_REDUCE.describe(args)
        }
    }

    impl LibraryOp for Near {
        fn library(&self) -> &'static str {
            "near"
        }
        fn device(&self) -> &'static str {
            "test"
        }
        fn needs(&self) -> Needs {
            Needs { single_process: true, ..Needs::NONE }
        }
        unsafe fn prepare(&self, _: &[OpCall<'_>], _: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
            none()?
        }
    }

    fn none<T>() -> Result<T, DeviceError> {
        Err(DeviceError::Unsupported("a test".to_string()))
    }

    /// A device that reaches all but `test:9`, and keeps whom it was let reach.
    #[derive(Default)]
    struct Named(Mutex<Vec<String>>);

    impl Device for Named {
        fn id(&self) -> &str {
            "test:0"
        }
        fn kind(&self) -> &'static str {
            "test"
        }
        fn captures(&self) -> bool {
            false
        }
        fn alloc(&self, _: u64) -> Result<Box<dyn Memory>, DeviceError> {
            none()
        }
        fn alloc_staging(&self, _: u64) -> Result<Box<dyn Memory>, DeviceError> {
            none()
        }
        fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
            none()
        }
        fn reach(&self, peer: &str) -> Result<(), DeviceError> {
            self.0.lock().unwrap().push(peer.to_string());
            if peer == "test:9" { none() } else { Ok(()) }
        }
        unsafe fn kernel(
            &self,
            _: &'static KernelDef,
            _: Vec<Arg<BoundRange>>,
            _: Grid,
        ) -> Result<Box<dyn Work>, DeviceError> {
            none()
        }
    }

    struct Never;

    impl Abort for Never {
        fn abort(&self) {}
        fn is_aborted(&self) -> bool {
            false
        }
    }

    /// What rank 0 of two gets where rank 1 exchanges these bytes, and whom its device was let reach.
    fn with(theirs: &[u8]) -> (Result<Vec<DevicePtr>, DeviceError>, Vec<String>) {
        let world = Arc::new(World::new(2).unwrap());
        let exchange = LocalExchange::new(world.clone());
        let (device, handles, deadline) =
            (Named::default(), Handles::default(), Instant::now() + Duration::from_secs(60));
        let aborted: Arc<dyn Abort> = Arc::new(Never);
        let args = Args { params: &[], values: &[], comm_rank: 0, comm_size: 2 };
        let batch = [OpCall { op: &Near, task: "t", comm: CommId::WORLD, args, parts: None }];
        let found = std::thread::scope(|scope| {
            scope.spawn(|| exchange.all_gather(CommId::WORLD, 1, theirs, deadline));
            let mut services = PlanServices {
                rank: 0,
                world: &world,
                device: &device,
                batch: &batch,
                uses: &[],
                sessions: Vec::new(),
                exchange: &exchange,
                aborted: &aborted,
                handles: &handles,
                deadline,
            };
            services.peer_pointers(CommId::WORLD, DevicePtr(256))
        });
        (found, device.0.into_inner().unwrap())
    }

    fn peer(process: [u64; 2], device: &str) -> Vec<u8> {
        Peer { process, ptr: DevicePtr(512), device }.to_bytes()
    }

    #[test]
    fn peers_are_reached_before_their_addresses_are_given() {
        let (found, reached) = with(&peer(this_process(), "test:1"));
        assert_eq!((found, reached), (Ok(vec![DevicePtr(256), DevicePtr(512)]), vec!["test:1".to_string()]));
        let (found, _) = with(&peer(this_process(), "test:9"));
        assert_eq!(found, none(), "its device cannot");
        let (found, reached) = with(&peer(this_process(), "test:0"));
        assert!(found.is_ok() && reached.is_empty(), "a device reaches itself");
    }

    #[test]
    fn peers_of_other_processes_are_refused() {
        let [number, drawn] = this_process();
        for process in [[number + 1, drawn], [number, drawn ^ 1]] {
            let (found, reached) = with(&peer(process, "test:1"));
            let error = DeviceError::Unsupported("rank 1 of `world` is in another process".to_string());
            assert_eq!((found, reached), (Err(error), Vec::new()));
        }
        let (found, _) = with(&[1; 23]);
        let error = DeviceError::Failed("rank 1 of `world` exchanged something else".to_string());
        assert_eq!(found, Err(error));
    }
}
