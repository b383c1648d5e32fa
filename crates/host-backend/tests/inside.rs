//! Plan groups with ops that are made of others, reach their peers' memory, and wait in their own way.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use squall_core::registry::Item;
use squall_core::{
    Abort, Arg, ArgError, Args, BoundRange, BufferDecl, BufferId, CommId, DType, Description, Device,
    DeviceError, GroupError, LibraryOp, Mode, Needs, OpCall, OpError, OpSpec, Options, ParamDef, PlanGroup,
    Prepare, Registry, Stream, Task, TaskGraph, Type, Upload, Verified, Work, World, verify,
};
use squall_host_backend as _;

type Prepares = dyn Fn(&OpCall<'_>, &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> + Send + Sync;

/// An op `own` on one buffer `x`.
struct Own {
    needs: Needs,
    prepare: Box<Prepares>,
}

impl Task for Own {
    fn name(&self) -> &'static str {
        "own"
    }
    fn summary(&self) -> &'static str {
        ""
    }
    fn params(&self) -> &'static [ParamDef] {
        const { &[ParamDef::read_write("x", Type::In(DType::ALL), "")] }
    }
    fn example(&self) -> &'static str {
        ""
    }
    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        Ok(Description::symmetric("own", args))
    }
}

impl LibraryOp for Own {
    fn library(&self) -> &'static str {
        "tests"
    }
    fn device(&self) -> &'static str {
        "host"
    }
    fn needs(&self) -> Needs {
        self.needs
    }
    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        (self.prepare)(&batch[0], cx)
    }
}

/// A job of four ranks, in pairs too, whose one task is the op, on each of these communicators; and its registry.
fn job(
    needs: Needs,
    comms: &[u32],
    prepare: impl Fn(&OpCall<'_>, &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> + Send + Sync + 'static,
) -> (Registry, Verified) {
    let mut registry = Registry::linked().unwrap();
    let own: &'static Own = Box::leak(Box::new(Own { needs, prepare: Box::new(prepare) }));
    registry.add(&Item::Op(own), "these tests").unwrap();
    let mut world = World::new(4).unwrap();
    world.split("pairs", |rank| (i64::from(rank / 2), 0)).unwrap();
    let world = Arc::new(world);
    let graph = |rank| {
        let mut graph = TaskGraph::builder(&registry, &world, rank, "host");
        let x = graph.buffer(BufferDecl::new("x", DType::I32, [3]).upload(Upload::First));
        for &comm in comms {
            graph.step(OpSpec::new("own").named(format!("on {comm}")).on(CommId(comm)).arg("x", x));
        }
        graph.build().unwrap()
    };
    let verified = verify((0..4).map(graph).collect()).unwrap();
    (registry, verified)
}

fn group(registry: &Registry, verified: Verified, limit: Duration) -> Result<PlanGroup, GroupError> {
    let devices: Vec<Arc<dyn Device>> = (0..4).map(|rank| registry.open("host", rank).unwrap()).collect();
    let mut group =
        PlanGroup::new(registry, verified, &devices, Options::default().step_timeout(Some(limit)))?;
    for rank in 0..4 {
        group.write(rank, BufferId(0), &[rank as i32, 1, 10]).unwrap();
    }
    Ok(group)
}

const LONG: Duration = Duration::from_secs(60);

fn x(call: &OpCall<'_>) -> BoundRange {
    call.args.buffer("x").unwrap().clone()
}

fn sum(call: &OpCall<'_>, cx: &mut Prepare<'_>, range: BoundRange) -> Result<Box<dyn Work>, OpError> {
    let args = [("buffer", Arg::Buffer(range)), ("reduce", Arg::Word(0))];
    // SAFETY: the range is the op's.
    unsafe { cx.op("all_reduce", call.comm, &args) }
}

const SUMS: Needs = Needs { uses: &["all_reduce"], ..Needs::NONE };

#[test]
fn a_library_that_is_only_used_is_connected_for_every_communicator() {
    let (registry, verified) = job(SUMS, &[0, 1], |call, cx| {
        // Its last two elements alone, after those of the first.
        let mut rest = x(call);
        rest.ptr.0 += 4;
        rest.shape = [2].into();
        let mut first = x(call);
        first.shape = [1].into();
        Ok(Box::new(vec![sum(call, cx, first)?, sum(call, cx, rest)?]))
    });
    let mut group = group(&registry, verified, LONG).unwrap();
    group.execute().unwrap();
    for rank in 0..4 {
        assert_eq!(group.read::<i32>(rank, BufferId(0)).unwrap(), [12, 8, 80], "rank {rank}");
    }
}

#[test]
fn a_wrong_call_inside_an_op_names_task_and_op() {
    let (registry, verified) = job(SUMS, &[1], |call, cx| {
        // SAFETY: it is refused.
        unsafe { cx.op("all_reduce", call.comm, &[("buffer", Arg::Buffer(x(call)))]) }
    });
    let error = group(&registry, verified, LONG).unwrap_err().to_string();
    let said = "on host:0, task `on 1`: `all_reduce` inside it: op `all_reduce` needs the argument `reduce`";
    assert!(error.contains(said), "{error}");
}

#[test]
fn ranks_write_to_their_neighbours() {
    struct Write(u64, i32);
    impl Work for Write {
        fn enqueue(&mut self, _: &mut dyn Stream) -> Result<(), DeviceError> {
            // SAFETY: nobody else writes to this element of the neighbour's, which lives as long as the group.
            unsafe { (self.0 as usize as *mut i32).write(self.1) };
            Ok(())
        }
    }
    let needs = Needs { single_process: true, ..Needs::NONE };
    let (registry, verified) = job(needs, &[1], |call, cx| {
        let peers = cx.peer_pointers(call.comm, x(call).ptr)?;
        let me = call.args.comm_rank as usize;
        Ok(Box::new(Write(peers[1 - me].0 + 4, cx.rank as i32)))
    });
    let mut group = group(&registry, verified, LONG).unwrap();
    group.execute().unwrap();
    for rank in 0..4 {
        let theirs = [1, 0, 3, 2][rank as usize];
        assert_eq!(group.read::<i32>(rank, BufferId(0)).unwrap(), [rank as i32, theirs, 10], "rank {rank}");
    }
}

#[test]
fn an_op_that_says_nothing_is_refused_its_peers() {
    let (registry, verified) = job(Needs::NONE, &[0], |call, cx| {
        cx.peer_pointers(call.comm, x(call).ptr)?;
        Ok(Box::new(Vec::new()))
    });
    let error = group(&registry, verified, LONG).unwrap_err().to_string();
    assert!(error.contains("does not say that it needs one process"), "{error}");
}

/// Where work waits for an abort, and how often that was told.
#[derive(Default)]
struct Door {
    open: Mutex<bool>,
    changed: Condvar,
    calls: AtomicUsize,
}

impl Abort for Door {
    fn abort(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }
    fn is_aborted(&self) -> bool {
        *self.open.lock().unwrap()
    }
    fn faults(&self) -> Vec<String> {
        vec!["the door was shut".to_string()]
    }
}

/// Waits at the door.
struct Waits(Arc<Door>);

impl Work for Waits {
    fn enqueue(&mut self, _: &mut dyn Stream) -> Result<(), DeviceError> {
        let open = self.0.open.lock().unwrap();
        let (open, _) = self.0.changed.wait_timeout_while(open, LONG, |open| !*open).unwrap();
        if *open { Err(DeviceError::Aborted) } else { Err(DeviceError::Failed("nobody came".to_string())) }
    }
}

/// A job whose ranks wait each at a door of its own.
fn doors() -> (Registry, Verified, Arc<Mutex<Vec<Arc<Door>>>>) {
    let doors = Arc::<Mutex<Vec<Arc<Door>>>>::default();
    let made = doors.clone();
    let (registry, verified) = job(Needs::NONE, &[0], move |_, cx| {
        let door = Arc::<Door>::default();
        made.lock().unwrap().push(door.clone());
        cx.on_abort(door.clone());
        Ok(Box::new(Waits(door)))
    });
    (registry, verified, doors)
}

#[test]
fn what_waits_in_its_own_way_is_released_at_a_deadline() {
    let (registry, verified, _) = doors();
    let mut group = group(&registry, verified, Duration::from_millis(100)).unwrap();
    let begin = Instant::now();
    let error = group.execute().unwrap_err();
    assert!(matches!(&error, GroupError::TimedOut { report, .. } if report.leak.is_none()), "{error}");
    assert!(error.to_string().contains("the door was shut"), "{error}");
    assert!(begin.elapsed() < LONG / 2, "it took {:?}", begin.elapsed());
}

#[test]
fn handles_are_called_by_whoever_interrupts_and_never_after_the_plan() {
    let (registry, verified, doors) = doors();
    let group = group(&registry, verified, LONG).unwrap();
    let interrupt = group.interrupt_handle();
    interrupt.interrupt();
    let calls = || doors.lock().unwrap().iter().map(|door| door.calls.load(Ordering::SeqCst)).sum::<usize>();
    assert_eq!(calls(), 4, "each once, at once");
    drop(group);
    let before = calls();
    interrupt.interrupt();
    assert_eq!(calls(), before);
    assert!(doors.lock().unwrap().iter().all(|door| Arc::strong_count(door) == 1), "handles are dropped");
}

#[test]
fn a_handle_that_comes_after_the_abort_is_called() {
    let late = Arc::<AtomicUsize>::default();
    let called = late.clone();
    let (registry, verified) = job(Needs::NONE, &[0], move |_, cx| {
        if cx.rank == 0 {
            return Err(DeviceError::Failed("it cannot".to_string()).into());
        }
        while !cx.aborted.is_aborted() {
            std::thread::yield_now();
        }
        let door = Arc::<Door>::default();
        cx.on_abort(door.clone());
        late.fetch_add(door.is_aborted().into(), Ordering::SeqCst);
        Err(DeviceError::Aborted.into())
    });
    assert!(group(&registry, verified, LONG).unwrap_err().to_string().contains("it cannot"));
    assert_eq!(called.load(Ordering::SeqCst), 3, "by all ranks but the one that failed");
}

#[test]
fn a_symmetric_op_reads_and_writes_whole_buffers() {
    let (_, verified) = job(Needs::NONE, &[0], |_, _| Ok(Box::new(Vec::new())));
    let node = &verified.graphs()[2].tasks(squall_core::Phase::Step)[0];
    let [access] = node.writes().collect::<Vec<_>>()[..] else { panic!("{node:?}") };
    assert_eq!((access.param, access.range.clone(), access.mode), ("x", 0..3, Mode::ReadWrite));
}
