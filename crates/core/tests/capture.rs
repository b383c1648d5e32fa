//! The plan group captures each turn of a step once and replays it, on a device that records what it is asked to do.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use squall_core::registry::Item;
use squall_core::{
    Arg, ArgError, Args, Backend, BoundRange, BufferDecl, BufferId, Capture, DType, Description, Device,
    DeviceError, DevicePtr, GraphBuilder, Grid, GroupError, HostCall, KernelDef, KernelSpec, LibraryOp,
    Memory, Needs, Observer, OpCall, OpError, OpSpec, Options, ParamDef, PlanGroup, Position, Prepare,
    Progress, RawHandle, Registry, Stream, SwapSpec, Task, TaskGraph, Type, Upload, Work, World, Written,
    codes, verify,
};

/// What the devices of a test were asked to do, in order; a test takes the device of its own index.
static LOGS: [Mutex<Vec<&'static str>>; 13] = [const { Mutex::new(Vec::new()) }; 13];

/// The kernels that were made for a device, and what it captured, in the order of that.
const KERNELS: [&str; 4] = ["kernel", "kernel 1", "kernel 2", "kernel 3"];
const REPLAYS: [&str; 4] = ["replay", "replay 1", "replay 2", "replay 3"];

fn log(index: usize, event: &'static str) {
    LOGS[index].lock().unwrap().push(event);
}

fn taken(index: usize) -> Vec<&'static str> {
    std::mem::take(&mut LOGS[index].lock().unwrap())
}

struct Recorder;

impl Backend for Recorder {
    fn kind(&self) -> &'static str {
        "host" // so that kernels have a form for it
    }
    fn default_library(&self) -> &'static str {
        "none"
    }
    fn count(&self) -> Result<Option<u32>, DeviceError> {
        Ok(None)
    }
    fn repeats(&self) -> bool {
        false
    }
    fn captures(&self) -> bool {
        true
    }
    fn open(&self, index: u32) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(Arc::new(Recording {
            index: index as usize,
            id: format!("host:{index}"),
            kernels: AtomicUsize::new(0),
        }))
    }
    fn findings(&self) -> Vec<String> {
        Vec::new()
    }
}

struct Recording {
    index: usize,
    id: String,
    kernels: AtomicUsize,
}

impl Device for Recording {
    fn id(&self) -> &str {
        &self.id
    }
    fn kind(&self) -> &'static str {
        "host"
    }
    fn captures(&self) -> bool {
        true
    }
    fn alloc(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(Bytes(vec![0; bytes as usize])))
    }
    fn alloc_staging(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        self.alloc(bytes)
    }
    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        Ok(Box::new(Queue { index: self.index, progress: Arc::default(), captured: 0 }))
    }
    fn reach(&self, _: &str) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported("no peers here".to_string()))
    }
    unsafe fn kernel(
        &self,
        _: &'static KernelDef,
        _: Vec<Arg<BoundRange>>,
        _: Grid,
    ) -> Result<Box<dyn Work>, DeviceError> {
        let event = KERNELS[self.kernels.fetch_add(1, Ordering::Relaxed)];
        Ok(Box::new(Event { index: self.index, event }))
    }
}

struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn ptr(&self) -> DevicePtr {
        DevicePtr(self.0.as_ptr() as u64)
    }
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn host(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.0)
    }
}

struct Event {
    index: usize,
    event: &'static str,
}

impl Work for Event {
    fn enqueue(&mut self, _: &mut dyn Stream) -> Result<(), DeviceError> {
        log(self.index, self.event);
        Ok(())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if REPLAYS.contains(&self.event) {
            log(self.index, "drop captured");
        }
    }
}

struct Queue {
    index: usize,
    progress: Arc<AtomicU64>,
    captured: usize,
}

impl Stream for Queue {
    fn raw(&self) -> RawHandle {
        RawHandle { api: "test", handle: 0 }
    }
    unsafe fn copy(&mut self, _: DevicePtr, _: DevicePtr, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
    fn mark(&mut self, _: u32) -> Result<(), DeviceError> {
        Ok(())
    }
    fn complete(&mut self, runs: u32) -> Result<(), DeviceError> {
        self.progress.store(Position { runs, tasks: 0 }.into(), Ordering::Release);
        Ok(())
    }
    fn progress(&self) -> Arc<dyn Progress> {
        self.progress.clone()
    }
    fn wait(&mut self, _: Option<Instant>) -> Result<(), DeviceError> {
        Ok(())
    }
    fn capture(&mut self) -> Option<&mut dyn Capture> {
        Some(self)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        log(self.index, "drop stream");
    }
}

impl Capture for Queue {
    fn begin(&mut self) -> Result<(), DeviceError> {
        log(self.index, "begin");
        Ok(())
    }
    fn end(&mut self) -> Result<Box<dyn Work>, DeviceError> {
        log(self.index, "end");
        let event = REPLAYS[self.captured];
        self.captured += 1;
        Ok(Box::new(Event { index: self.index, event }))
    }
}

static TOUCH: KernelDef = KernelDef {
    name: "touch",
    params: &[ParamDef::read_write("data", Type::In(DType::ALL), "anything")],
    host: Some(&(touch as fn(&HostCall<'_>) -> Result<(), String>)),
    ..KernelDef::EMPTY
};

fn touch(_: &HostCall<'_>) -> Result<(), String> {
    Ok(())
}

fn group(device: u32, capture: bool) -> PlanGroup {
    let mut registry = Registry::default();
    registry.add(&Item::Backend(&Recorder), "this test").unwrap();
    let world = Arc::new(World::new(1).unwrap());
    let mut builder = TaskGraph::builder(&registry, &world, 0, "host");
    let data = builder.buffer(BufferDecl::new("data", DType::F32, [4]).upload(Upload::First));
    builder.step(KernelSpec::new(&TOUCH).arg("data", data).grid(4, 32));
    let verified = verify(vec![builder.build().unwrap()]).unwrap();
    let devices = [Recorder.open(device).unwrap()];
    let mut group =
        PlanGroup::new(&registry, verified, &devices, Options::default().capture(capture)).unwrap();
    group.write(0, data, &[0f32; 4]).unwrap();
    group
}

#[test]
fn the_first_step_is_eager_the_second_captured_and_all_later_replayed() {
    let mut group = group(0, true);
    group.execute().unwrap();
    assert_eq!(taken(0), ["kernel"]);
    group.execute().unwrap();
    assert_eq!(taken(0), ["begin", "kernel", "end", "replay"]);
    group.execute_many(3).unwrap();
    assert_eq!(taken(0), ["replay"; 3]);
    drop(group);
    assert_eq!(taken(0), ["drop captured", "drop stream"], "captured work goes before the stream it ran on");
}

/// A step of one kernel on `u`, on every device; the ranks swap as the task says.
fn swapping(
    devices: &[u32],
    capture: bool,
    swaps: impl Fn(&mut GraphBuilder<'_>, u32, [BufferId; 4]),
) -> PlanGroup {
    let mut registry = Registry::default();
    registry.add(&Item::Backend(&Recorder), "this test").unwrap();
    let world = Arc::new(World::new(devices.len() as u64).unwrap());
    let graphs = (0..world.size()).map(|rank| {
        let mut graph = TaskGraph::builder(&registry, &world, rank, "host");
        let buffers = ["u", "v", "w", "x"]
            .map(|name| graph.buffer(BufferDecl::new(name, DType::F32, [4]).upload(Upload::First)));
        graph.step(KernelSpec::new(&TOUCH).arg("data", buffers[0]).grid(4, 32));
        swaps(&mut graph, rank, buffers);
        graph.build().unwrap()
    });
    let verified = verify(graphs.collect()).unwrap();
    let devices: Vec<_> = devices.iter().map(|&index| Recorder.open(index).unwrap()).collect();
    let mut group =
        PlanGroup::new(&registry, verified, &devices, Options::default().capture(capture)).unwrap();
    for rank in 0..world.size() {
        let uses = group.verified().graphs()[rank as usize].uses();
        for buffer in (0..4).filter(|&buffer| uses[buffer as usize]) {
            group.write(rank, BufferId(buffer), &[0f32; 4]).unwrap();
        }
    }
    group
}

#[test]
fn each_turn_is_eager_once_captured_once_and_replayed_in_its_turn() {
    let mut group = swapping(&[6], true, |graph, _, [u, v, w, _]| {
        graph.step(SwapSpec::new(u, v)).step(SwapSpec::new(v, w));
    });
    group.execute_many(3).unwrap();
    assert_eq!(taken(6), ["kernel", "kernel 1", "kernel 2"]);
    group.execute_many(2).unwrap();
    assert_eq!(taken(6), ["begin", "kernel", "end", "replay", "begin", "kernel 1", "end", "replay 1"]);
    group.execute().unwrap();
    assert_eq!(taken(6), ["begin", "kernel 2", "end", "replay 2"]);
    group.execute_many(4).unwrap();
    assert_eq!(taken(6), ["replay", "replay 1", "replay 2", "replay"]);
    group.finish().unwrap();
    group.execute().unwrap();
    assert_eq!(taken(6), ["replay 1"]);
    drop(group);
    let dropped = ["drop captured", "drop captured", "drop captured", "drop stream"];
    assert_eq!(taken(6), dropped, "captured work goes before the stream it ran on");
}

#[test]
fn turns_without_capture_are_enqueued_in_turn() {
    let mut group = swapping(&[7], false, |graph, _, [u, v, ..]| {
        graph.step(SwapSpec::new(u, v));
    });
    group.execute_many(5).unwrap();
    assert_eq!(taken(7), ["kernel", "kernel 1", "kernel", "kernel 1", "kernel"]);
}

/// A library may exchange something while it is captured: then all ranks must be.
#[test]
fn ranks_that_swap_differently_are_captured_in_the_same_steps() {
    let mut group = swapping(&[8, 9, 10], true, |graph, rank, [u, v, w, x]| match rank {
        0 => {}
        1 => {
            graph.step(SwapSpec::new(u, v));
        }
        _ => {
            graph.step(SwapSpec::new(u, v)).step(SwapSpec::new(v, w)).step(SwapSpec::new(w, x));
        }
    });
    assert_eq!(group.verified().turns(), 4);
    group.execute_many(4).unwrap();
    for device in 8..11 {
        assert_eq!(taken(device), KERNELS, "{device}");
    }
    group.execute_many(4).unwrap();
    for device in 8..11 {
        let turn = |turn: usize| ["begin", KERNELS[turn], "end", REPLAYS[turn]];
        assert_eq!(taken(device), (0..4).flat_map(turn).collect::<Vec<_>>(), "{device}");
    }
    group.execute_many(4).unwrap();
    for device in 8..11 {
        assert_eq!(taken(device), REPLAYS, "{device}");
    }
}

/// Libraries connect in the first step that runs, whatever its number.
#[test]
fn a_resumed_group_captures_its_own_second_step() {
    let mut group = group(12, true);
    group.resume_at(5).unwrap();
    assert_eq!(group.interrupt_handle().steps_done(), 5);
    group.execute().unwrap();
    assert_eq!(taken(12), ["kernel"]);
    group.execute_many(2).unwrap();
    assert_eq!(taken(12), ["begin", "kernel", "end", "replay", "replay"]);
    assert_eq!(group.interrupt_handle().steps_done(), 8);
    let refused = group.resume_at(9).unwrap_err();
    assert!(matches!(&refused, GroupError::Buffer(text) if text.contains("has run")), "{refused}");
}

/// Sees everything, and says nothing.
struct Blind;

impl Observer for Blind {
    fn written(&self, _: &Written<'_>, _: &mut [u8]) -> Result<bool, DeviceError> {
        Ok(false)
    }
}

#[test]
fn an_observed_step_is_neither_captured_nor_replayed() {
    let observer: Arc<dyn Observer> = Arc::new(Blind);
    let mut group = group(3, true);
    group.observe(&observer).unwrap();
    group.execute_many(3).unwrap();
    assert_eq!(taken(3), ["kernel"; 3]);
}

#[test]
fn without_capture_every_step_is_enqueued() {
    let mut group = group(1, false);
    group.execute_many(3).unwrap();
    assert_eq!(taken(1), ["kernel"; 3]);
}

/// An op that may not be captured.
struct Eager;

impl Task for Eager {
    fn name(&self) -> &'static str {
        "eager"
    }
    fn summary(&self) -> &'static str {
        ""
    }
    fn params(&self) -> &'static [ParamDef] {
        &[]
    }
    fn example(&self) -> &'static str {
        ""
    }
    fn describe(&self, _: &Args<'_>) -> Result<Description, ArgError> {
        Ok(Description::default())
    }
}

impl LibraryOp for Eager {
    fn library(&self) -> &'static str {
        "none"
    }
    fn device(&self) -> &'static str {
        "host"
    }
    fn needs(&self) -> Needs {
        Needs { captures: false, ..Needs::NONE }
    }
    unsafe fn prepare(&self, _: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        Ok(Box::new(Event { index: 4 + cx.rank as usize, event: "op" }))
    }
}

#[test]
fn a_step_with_ops_that_may_not_be_captured_is_refused_before_anything_is_bound() {
    let mut registry = Registry::default();
    registry.add(&Item::Backend(&Recorder), "this test").unwrap();
    registry.add(&Item::Op(&Eager), "this test").unwrap();
    let world = Arc::new(World::new(2).unwrap());
    let bind = |capture| {
        let graphs = (0..2).map(|rank| {
            let mut graph = TaskGraph::builder(&registry, &world, rank, "host");
            graph.setup(OpSpec::new("eager").named("before"));
            graph.step(OpSpec::new("eager").named("first"));
            if rank == 1 {
                graph.step(OpSpec::new("eager").named("second"));
            }
            graph.build().unwrap()
        });
        let devices = [4, 5].map(|index| Recorder.open(index).unwrap());
        let options = Options::default().capture(capture);
        PlanGroup::new(&registry, verify(graphs.collect()).unwrap(), &devices, options)
    };
    let error = bind(true).unwrap_err();
    let GroupError::Uncaptured(problems) = &error else { panic!("{error}") };
    let found = problems.0.iter().map(|p| (p.code, p.primary.rank, p.primary.task.as_deref()));
    let wanted = [(0, "first"), (1, "second")];
    assert!(found.eq(wanted.map(|(rank, task)| (codes::UNCAPTURED, Some(rank), Some(task)))), "{problems}");
    assert_eq!(error.code(), codes::UNCAPTURED);
    assert_eq!(
        problems.0[0].message,
        "`eager` by the library `none` cannot be captured, and the step is to be (and on 1 more rank)"
    );
    assert_eq!((taken(4), taken(5)), (vec![], vec![]), "no stream was made");

    let mut eager = bind(false).unwrap();
    eager.execute_many(2).unwrap();
    drop(eager);
    assert_eq!(taken(4), ["op", "op", "op", "drop stream"]);
    assert_eq!(taken(5), ["op", "op", "op", "op", "op", "drop stream"]);
}

#[test]
fn one_device_for_two_ranks_is_refused_where_devices_do_not_repeat() {
    let mut registry = Registry::default();
    registry.add(&Item::Backend(&Recorder), "this test").unwrap();
    let world = Arc::new(World::new(2).unwrap());
    let graphs =
        (0..2).map(|rank| TaskGraph::builder(&registry, &world, rank, "host").build().unwrap()).collect();
    let device = Recorder.open(2).unwrap();
    let error =
        PlanGroup::new(&registry, verify(graphs).unwrap(), &[device.clone(), device], Options::default());
    let text = "ranks 0 and 1 are both given host:2; one rank has one GPU";
    assert_eq!(error.unwrap_err(), GroupError::Devices(text.to_string()));
}
