//! What a batch asks of NCCL, step after step.

use squall_core::ops::{self, Contract};
use squall_core::{Arg, Args, BoundRange, CommId, DType, DevicePtr, LibraryOp, ReduceOp, Session, World};

use super::*;
use crate::fake::{Fake, TestStream};
use crate::ops::NcclOp;

fn bytes(ptr: u64, len: u64) -> Arg<BoundRange> {
    Arg::Buffer(BoundRange { ptr: DevicePtr(ptr), dtype: DType::U8, shape: [len].into() })
}

/// An op with arguments by name.
struct Op(&'static Contract, CommId, Vec<(&'static str, Arg<BoundRange>)>);

fn all_reduce(comm: CommId, ptr: u64, len: u64) -> Op {
    let reduce = Arg::Word(ReduceOp::Sum as u32);
    Op(&ops::ALL_REDUCE, comm, vec![("buffer", bytes(ptr, len)), ("reduce", reduce)])
}

fn message(op: &'static Contract, comm: CommId, ptr: u64, peer: u32) -> Op {
    Op(op, comm, vec![("buffer", bytes(ptr, 1)), ("peer", Arg::Rank(peer))])
}

fn gather(comm: CommId, ptr: u64, root: u32) -> Op {
    let (send, recv) = (bytes(ptr, 1), bytes(ptr, 1));
    Op(&ops::GATHER, comm, vec![("send", send), ("recv", recv), ("root", Arg::Rank(root))])
}

/// Makes a batch of rank 0's ops ready.
fn batch(world: &World, session: &Session, ops: &[Op]) -> Result<Batch, OpError> {
    let served: Vec<&'static NcclOp> = ops.iter().map(|op| &*Box::leak(Box::new(NcclOp(op.0)))).collect();
    let values: Vec<Vec<Arg<BoundRange>>> = ops
        .iter()
        .map(|Op(contract, _, given)| {
            let named = |name| given.iter().find(|(arg, _)| *arg == name).map(|(_, value)| value.clone());
            squall_core::Task::params(*contract)
                .iter()
                .map(|param| named(param.name).unwrap_or(Arg::Absent))
                .collect()
        })
        .collect();
    let calls: Vec<OpCall<'_>> = ops
        .iter()
        .zip(&served)
        .zip(&values)
        .map(|((Op(contract, comm, _), served), values)| {
            let part = world.part(*comm, 0).unwrap();
            let params = squall_core::Task::params(*contract);
            let args = Args { params, values, comm_rank: part.rank, comm_size: part.size() };
            OpCall { op: *served as &'static dyn LibraryOp, task: "task", comm: *comm, args, parts: None }
        })
        .collect();
    // SAFETY: the fake touches no memory.
    unsafe { Batch::new(&calls, session.state.downcast_ref().unwrap()) }
}

/// A world of two ranks, connected; the first's session.
fn connected(fake: &Fake, world: &World) -> (Session, Vec<Session>) {
    let comms: Vec<CommId> = world.comms().collect();
    let mut sessions = fake.connect(world, &comms).into_sessions();
    fake.log();
    (sessions.remove(0), sessions)
}

fn enqueue(batch: &mut Batch) -> Result<(), DeviceError> {
    batch.enqueue(&mut TestStream("cuda"))
}

const WORLD: CommId = CommId::WORLD;

#[test]
fn a_lone_call_needs_no_group_and_several_are_one() {
    let fake = Fake::take();
    let world = World::new(2).unwrap();
    let (session, _others) = connected(&fake, &world);
    let mut lone = batch(&world, &session, &[all_reduce(WORLD, 0x10, 4)]).unwrap();
    let call = "all_reduce 0x10>0x10 n=4 t=1 op=0 on 1";
    for _step in 0..2 {
        enqueue(&mut lone).unwrap();
        assert_eq!(fake.log(), [call]);
    }
    let exchange = Op(
        &ops::SEND_RECV,
        WORLD,
        vec![
            ("send", bytes(0x20, 3)),
            ("to", Arg::Rank(1)),
            ("recv", bytes(0x30, 2)),
            ("from", Arg::Rank(1)),
        ],
    );
    let mut group = batch(&world, &session, &[exchange]).unwrap();
    enqueue(&mut group).unwrap();
    assert_eq!(fake.log(), ["start", "send 0x20 n=3 t=1 to=1 on 1", "recv 0x30 n=2 t=1 from=1 on 1", "end"]);
    let mut none = batch(&world, &session, &[all_reduce(WORLD, 0x10, 0)]).unwrap();
    enqueue(&mut none).unwrap();
    assert_eq!(fake.log(), [""; 0]);
}

#[test]
fn groups_go_by_communicator_and_collectives_come_before_messages() {
    let fake = Fake::take();
    let mut world = World::new(2).unwrap();
    let pair = world.split("pair", |_| (0, 0)).unwrap();
    let (session, _others) = connected(&fake, &world);
    let group = [
        message(&ops::SEND, pair, 0x10, 1),
        message(&ops::RECV, WORLD, 0x20, 1),
        all_reduce(pair, 0x30, 1),
        gather(WORLD, 0x40, 1),
        message(&ops::SEND, WORLD, 0x50, 1),
        all_reduce(WORLD, 0x60, 1),
    ];
    enqueue(&mut batch(&world, &session, &group).unwrap()).unwrap();
    assert_eq!(
        fake.log(),
        [
            "start",
            "send 0x40 n=1 t=1 to=1 on 1",
            "all_reduce 0x60>0x60 n=1 t=1 op=0 on 1",
            "recv 0x20 n=1 t=1 from=1 on 1",
            "send 0x50 n=1 t=1 to=1 on 1",
            "all_reduce 0x30>0x30 n=1 t=1 op=0 on 3",
            "send 0x10 n=1 t=1 to=1 on 3",
            "end",
        ]
    );
}

#[test]
fn a_refused_argument_names_the_member_as_given() {
    let fake = Fake::take();
    let mut world = World::new(2).unwrap();
    let pair = world.split("pair", |_| (0, 0)).unwrap();
    let (session, _others) = connected(&fake, &world);
    let group = [all_reduce(pair, 0x10, 1), message(&ops::SEND, WORLD, 0x20, 7)];
    match batch(&world, &session, &group).err() {
        Some(OpError::Arg { member: 1, error }) => assert_eq!(error.param, "peer"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_have_nccls_words_and_the_group_is_ended() {
    let fake = Fake::take();
    let world = World::new(2).unwrap();
    let (session, _others) = connected(&fake, &world);
    let group = [message(&ops::SEND, WORLD, 0x10, 1), message(&ops::RECV, WORLD, 0x20, 1)];
    let mut group = batch(&world, &session, &group).unwrap();
    for (function, log) in
        [("ncclSend", &["start", "send 0x10 n=1 t=1 to=1 on 1", "end"][..]), ("ncclGroupStart", &["start"])]
    {
        fake.fail(function, 4);
        let error = enqueue(&mut group).unwrap_err().to_string();
        assert!(error.starts_with(function), "{error}");
        assert!(
            error.ends_with(": invalid argument (NCCL's last warning: the cause, in NCCL's words)"),
            "{error}"
        );
        assert_eq!(fake.log(), log);
    }
    fake.fail("ncclGroupEnd", 3);
    let error = enqueue(&mut group).unwrap_err().to_string();
    assert!(error.starts_with("ncclGroupEnd on rank 0: another error (NCCL's last warning"), "{error}");
    fake.log();
    fake.heal();
    assert_eq!((enqueue(&mut group), fake.log().len()), (Ok(()), 4));
}

#[test]
fn after_an_abort_nothing_is_called_and_errors_are_the_aborts() {
    let fake = Fake::take();
    let world = World::new(2).unwrap();
    let (session, others) = connected(&fake, &world);
    let mut lone = batch(&world, &session, &[all_reduce(WORLD, 0x10, 4)]).unwrap();
    // A call that is in NCCL when the abort comes, and comes back with an error because of it.
    fake.hang("ncclAllReduce");
    fake.fail("ncclAllReduce", 6);
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| enqueue(&mut lone));
        fake.wait_for("all_reduce");
        others[0].abort.abort();
        fake.wait_for("abort");
        fake.let_go();
        assert_eq!(inside.join().unwrap(), Err(DeviceError::Aborted));
    });
    fake.wait_for("abort 2");
    fake.log();
    assert!(session.abort.is_aborted());
    let ops = [message(&ops::SEND, WORLD, 0x10, 1), message(&ops::RECV, WORLD, 0x20, 1)];
    assert_eq!(enqueue(&mut lone), Err(DeviceError::Aborted));
    assert_eq!(batch(&world, &session, &ops).err(), Some(OpError::Device(DeviceError::Aborted)));
    assert_eq!(fake.log(), [""; 0]);
}

#[test]
fn streams_of_other_apis_are_refused() {
    let fake = Fake::take();
    let world = World::new(2).unwrap();
    let (session, _others) = connected(&fake, &world);
    let mut lone = batch(&world, &session, &[all_reduce(WORLD, 0x10, 4)]).unwrap();
    let error = lone.enqueue(&mut TestStream("host")).unwrap_err();
    assert!(matches!(error, DeviceError::Unsupported(text) if text.contains("not on those of host")));
    assert_eq!(fake.log(), [""; 0]);
}

mod allocations {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    }

    /// The system's allocator, counting for each thread.
    struct Counting;

    // SAFETY: every call is handed to the system's allocator as it is.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
            // SAFETY: the caller's.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
            // SAFETY: the caller's.
            unsafe { System.dealloc(ptr, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[test]
    fn enqueuing_allocates_nothing() {
        let fake = Fake::take();
        let world = World::new(2).unwrap();
        let (session, _others) = connected(&fake, &world);
        let group = [all_reduce(WORLD, 0x10, 4), message(&ops::SEND, WORLD, 0x20, 1)];
        let mut group = batch(&world, &session, &group).unwrap();
        let mut stream = TestStream("cuda");
        fake.silence(true);
        let before = ALLOCATIONS.get();
        for _step in 0..10 {
            group.enqueue(&mut stream).unwrap();
        }
        assert_eq!(ALLOCATIONS.get(), before);
        fake.silence(false);
        let before = ALLOCATIONS.get();
        group.enqueue(&mut stream).unwrap();
        assert_ne!(ALLOCATIONS.get(), before, "the count counts");
    }
}
