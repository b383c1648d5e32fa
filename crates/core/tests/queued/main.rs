//! Steps on a device that is still at work when they have been enqueued: what is done is what the stream has passed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod ahead;
mod closing;
mod device;
mod faults;
mod limits;
mod tape;
mod transfers;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use squall_core::error::{Found, Report};
use squall_core::param::Presence;
use squall_core::registry::Item;
use squall_core::{
    ArgError, Args, Backend, BufferDecl, BufferId, DType, Description, Device, DeviceError, Download, Feed,
    GroupError, LibraryOp, Moment, Needs, Observer, OpCall, OpError, OpSpec, Options, ParamDef, PlanGroup,
    Prepare, Registry, Task, TaskGraph, Type, Upload, Work, World, Written, verify,
};

use device::{Act, Acting, Gpu, Refusal};

/// The op of these tests: what task `task` does, the device's script says. It can be enqueued `turns` times,
/// and what it does then, `refusal` says, the number of a [`Refusal`].
struct ActOp;

impl Task for ActOp {
    fn name(&self) -> &'static str {
        "act"
    }
    fn summary(&self) -> &'static str {
        ""
    }
    fn params(&self) -> &'static [ParamDef] {
        const {
            &[
                ParamDef::size("task", Presence::Required, ""),
                ParamDef::size("turns", Presence::Required, ""),
                ParamDef::size("refusal", Presence::Required, ""),
                ParamDef::read_write("data", Type::In(DType::ALL), "").optional(),
            ]
        }
    }
    fn example(&self) -> &'static str {
        ""
    }
    fn describe(&self, _: &Args<'_>) -> Result<Description, ArgError> {
        Ok(Description::default())
    }
}

impl LibraryOp for ActOp {
    fn library(&self) -> &'static str {
        "test"
    }
    fn device(&self) -> &'static str {
        "host"
    }
    fn needs(&self) -> Needs {
        Needs::NONE
    }
    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let size = |name| batch[0].args.size(name).unwrap();
        let refusal = Refusal::of(size("refusal"));
        Ok(Box::new(Acting::new(size("task"), size("turns"), refusal, cx.aborted.clone())))
    }
}

struct Host;

impl Backend for Host {
    fn kind(&self) -> &'static str {
        "host"
    }
    fn default_library(&self) -> &'static str {
        "test"
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
    fn open(&self, _: u32) -> Result<Arc<dyn Device>, DeviceError> {
        Err(DeviceError::Unsupported("tests make devices themselves".to_string()))
    }
    fn findings(&self) -> Vec<String> {
        Vec::new()
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add(&Item::Backend(&Host), "this test").unwrap();
    registry.add(&Item::Op(&ActOp), "this test").unwrap();
    registry
}

/// Task `task` of the script, which can be enqueued so many times.
fn act(task: i64, turns: u64, refusal: Refusal) -> OpSpec {
    OpSpec::new("act").arg("task", task).arg("turns", turns as i64).arg("refusal", refusal as i64)
}

const ALWAYS: u64 = u32::MAX as u64;

/// A rank a device, each with a setup, three tasks `a`, `b` and `c` in a step (tasks 0, 1 and 2 of the script), and a
/// finish. `b` can be enqueued `turns` times.
fn refusing(
    registry: &Registry,
    devices: &[Arc<dyn Device>],
    turns: u64,
    refusal: Refusal,
    options: Options,
) -> PlanGroup {
    let world = Arc::new(World::new(devices.len() as u64).unwrap());
    let graphs = (0..devices.len() as u32).map(|rank| {
        let mut graph = TaskGraph::builder(registry, &world, rank, "host");
        graph.setup(act(7, 1, Refusal::Error).named("before"));
        graph.step(act(0, ALWAYS, Refusal::Error).named("a"));
        graph.step(act(1, turns, refusal).named("b"));
        graph.step(act(2, ALWAYS, Refusal::Error).named("c"));
        graph.finish(act(8, 1, Refusal::Error).named("after"));
        graph.build().unwrap()
    });
    let verified = verify(graphs.collect()).unwrap();
    PlanGroup::new(registry, verified, devices, options).unwrap()
}

fn group_of(devices: &[Arc<dyn Device>], turns: u64, options: Options) -> PlanGroup {
    refusing(&registry(), devices, turns, Refusal::Error, options)
}

fn group(options: Options, script: impl Fn(u64, u64) -> Act + Send + Sync + 'static) -> PlanGroup {
    group_of(&[Gpu::open(0, script)], ALWAYS, options)
}

fn limited(limit: Duration) -> Options {
    Options::default().step_timeout(Some(limit))
}

const MS: Duration = Duration::from_millis(1);

type Flag = Arc<AtomicBool>;

fn await_flag(flag: &Flag) {
    while !flag.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

/// Hangs in this task at this turn, and says when it has come there.
fn hanging(task: u64, turn: u64, reached: Flag) -> impl Fn(u64, u64) -> Act + Send + Sync {
    move |at, now| {
        if (at, now) != (task, turn) {
            return Act::Nothing;
        }
        reached.store(true, Ordering::Release);
        Act::Hang
    }
}

/// Runs into a hang in `b` of step 3, and looks at what is said of it.
fn hangs(capture: bool) {
    let (limit, each) = (1200 * MS, 60 * MS);
    let mut group = group(limited(limit).capture(capture), move |task, turn| match (task, turn) {
        (1, 3) => Act::Hang,
        (0, _) => Act::Take(each),
        _ => Act::Nothing,
    });
    let handle = group.interrupt_handle();
    let start = Instant::now();
    let error = group.execute_many(6).unwrap_err();
    let took = start.elapsed();
    let said = "step 3 took longer than 1.2s: rank 0 waited in `b` (last finished `a`, after 3 steps)";
    assert_eq!(error.to_string(), said);
    assert!(took >= 3 * each + limit, "step 3 has a time of its own: {took:?}");
    assert!(took < 3 * each + limit * 3 / 2, "and no more than its own: {took:?}");
    // The abort let the stream pass all six.
    assert_eq!(handle.steps_done(), 3);
    assert_eq!(group.execute(), Err(GroupError::Aborted(said.to_string())));
}

#[test]
fn a_queued_step_that_hangs_is_named_a_limit_after_the_one_before() {
    hangs(false);
}

#[test]
fn a_replay_that_hangs_is_named_by_its_task() {
    hangs(true);
}

#[test]
fn steps_are_done_when_the_stream_has_passed_them() {
    for capture in [false, true] {
        let (gate, reached) = (Flag::default(), Flag::default());
        let (held, there) = (gate.clone(), reached.clone());
        let mut group = group(Options::default().capture(capture), move |task, turn| match (task, turn) {
            (2, 2) => {
                there.store(true, Ordering::Release);
                Act::Block(held.clone())
            }
            _ => Act::Nothing,
        });
        let handle = group.interrupt_handle();
        let steps = group.start(5).unwrap();
        await_flag(&reached);
        // Long enough for the rank's thread to enqueue them all.
        std::thread::sleep(20 * MS);
        assert_eq!(handle.steps_done(), 2);
        gate.store(true, Ordering::Release);
        steps.wait().unwrap();
        assert_eq!(handle.steps_done(), 5);
        group.finish().unwrap();
        assert_eq!(handle.steps_done(), 5, "a finish is no step");
        group.execute().unwrap();
        assert_eq!((handle.steps_done(), group.step_times().len()), (6, 6));
    }
}

#[test]
fn a_thousand_steps_are_queued_counted_and_timed() {
    let mut group = group(Options::default(), |_, _| Act::Nothing);
    let handle = group.interrupt_handle();
    let start = Instant::now();
    for round in 1..=3 {
        group.execute_many(1000).unwrap();
        assert_eq!((handle.steps_done(), group.step_times().len()), (1000 * round, 1000 * round as usize));
    }
    let total: u64 = group.step_times().iter().sum();
    assert!(Duration::from_nanos(total) <= start.elapsed());
    // A mean is no less than nothing, and the three rounds were not for nothing.
    assert!(total > 0);
}

fn failed(error: &GroupError) -> (Option<&str>, Moment, String, &Report) {
    match error {
        GroupError::Failed { rank: 0, task, during, error, released } => {
            (task.as_deref(), *during, error.to_string(), released)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn work_that_finds_its_failure_after_the_fact_is_named() {
    for capture in [false, true] {
        let fails = |task, turn| if (task, turn) == (1, 3) { Act::Fail } else { Act::Nothing };
        let mut one_by_one = group(Options::default().capture(capture), fails);
        let error = (0..6).find_map(|_| one_by_one.execute().err()).unwrap();
        let text = "task 1 found a NaN".to_string();
        let (task, during, said, _) = failed(&error);
        assert_eq!((task, during, &said), (Some("b"), Moment::Step(3), &text));
        // Of steps that were queued, all that is known is which had been asked about, and which were enqueued.
        let error = group(Options::default().capture(capture), fails).execute_many(6).unwrap_err();
        let (task, during, said, _) = failed(&error);
        assert_eq!((task, &said), (Some("b"), &text));
        assert!(in_one_of(during, 3, 5), "{during}");
    }
}

#[test]
fn a_stream_that_stops_names_the_task_it_had_come_to() {
    for capture in [false, true] {
        let dies = |task, turn| if (task, turn) == (2, 3) { Act::Die } else { Act::Nothing };
        let mut group = group(Options::default().capture(capture), dies);
        let error = group.execute_many(6).unwrap_err();
        let (task, during, said, _) = failed(&error);
        assert_eq!(
            (task, during, said.as_str()),
            (Some("c"), Moment::Step(3), "the device reports an error")
        );
        assert_eq!(group.interrupt_handle().steps_done(), 3);
    }
}

/// Whether it was in a range of steps with this one in it, none later than another.
fn in_one_of(during: Moment, step: u64, last: u64) -> bool {
    match during {
        Moment::Step(only) => only == step,
        Moment::Steps(from, to) => from <= step && step <= to && to <= last,
        _ => false,
    }
}

struct Number;

impl Feed for Number {
    fn fill(&mut self, step: u64, out: &mut [u8]) -> Result<(), String> {
        out.fill(step as u8);
        Ok(())
    }
}

/// A feed makes the plan wait for the step before; a failure told by that wait is that step's.
#[test]
fn a_wait_for_a_feed_names_a_task_too() {
    let (registry, world) = (registry(), Arc::new(World::new(1).unwrap()));
    let run = |fails_at: u64, steps| {
        let mut graph = TaskGraph::builder(&registry, &world, 0, "host");
        let decl = BufferDecl::new("x", DType::U8, [4]).upload(Upload::Every).download(Download::Every);
        let x = graph.buffer(decl);
        graph.step(act(0, 100, Refusal::Error).arg("data", x).named("only"));
        let verified = verify(vec![graph.build().unwrap()]).unwrap();
        let device = Gpu::open(0, move |_, turn| if turn == fails_at { Act::Fail } else { Act::Nothing });
        let mut group = PlanGroup::new(&registry, verified, &[device], Options::default()).unwrap();
        group.feed(0, x, Box::new(Number)).unwrap();
        group.execute_many(steps).map(|()| group.read::<u8>(0, BufferId(0)).unwrap())
    };
    assert_eq!(run(100, 8).unwrap(), [7; 4]);
    let error = run(3, 8).unwrap_err();
    let (task, during, said, _) = failed(&error);
    assert_eq!((task, during, said.as_str()), (Some("only"), Moment::Step(3), "task 0 found a NaN"));
}

/// The stream of a rank that was released goes on as if all were done. It is not.
#[test]
fn a_wait_that_ends_well_after_an_abort_is_no_success() {
    for capture in [false, true] {
        let reached = Flag::default();
        let hangs = hanging(1, 2, reached.clone());
        let mut group = group(Options::default().capture(capture), hangs);
        group.execute_many(2).unwrap();
        let (handle, times) = (group.interrupt_handle(), group.step_times());
        let stopper = std::thread::spawn(move || {
            await_flag(&reached);
            handle.interrupt();
        });
        let error = group.execute_many(4).unwrap_err();
        stopper.join().unwrap();
        let GroupError::Interrupted { during: Moment::Step(2), report } = &error else { panic!("{error}") };
        assert_eq!((report.ranks[0].steps, report.leak), (2, None));
        assert_eq!(report.ranks[0].finished.as_deref(), Some("a"), "in step 2, which it was in");
        assert_eq!((group.interrupt_handle().steps_done(), group.step_times()), (2, times));
        assert!(group.execute().is_err());
    }
}

#[test]
fn a_rank_that_fails_releases_one_that_is_steps_behind() {
    let reached = Flag::default();
    let hangs = Gpu::open(1, hanging(2, 1, reached.clone()));
    let fails = Gpu::open(0, move |task, turn| match (task, turn) {
        (0, 4) => {
            await_flag(&reached);
            Act::Die
        }
        _ => Act::Nothing,
    });
    let error = group_of(&[fails, hangs], 100, Options::default()).execute_many(6).unwrap_err();
    let (task, during, _, released) = failed(&error);
    assert_eq!((task, during, released.leak), (Some("a"), Moment::Step(4), None));
    let other = &released.ranks[0];
    assert_eq!((other.rank, other.steps, other.found), (1, 1, Found::Waiting));
    assert_eq!((other.finished.as_deref(), other.running.as_deref()), (Some("b"), Some("c")));
}

/// A rank whose thread is through with a run while its stream is not has not returned: the stream uses its memory.
#[test]
fn what_is_still_queued_when_a_rank_fails_is_waited_for_or_leaked() {
    for leaks in [false, true] {
        let gate = Flag::default();
        let held = gate.clone();
        let stuck = move |task, turn| match (task, turn) {
            (0, 1) if leaks => Act::Block(held.clone()),
            (0, 1) => Act::Hang,
            _ => Act::Nothing,
        };
        // `b` cannot be enqueued in step 2, while the stream is in step 1.
        let mut group = group_of(&[Gpu::open(0, stuck)], 2, limited(300 * MS));
        let error = group.execute_many(6).unwrap_err();
        let (task, during, said, released) = failed(&error);
        assert_eq!((task, during, said.as_str()), (Some("b"), Moment::Step(2), "it cannot be enqueued"));
        assert_eq!(released.leak.map(|leak| leak.threads), leaks.then_some(1));
        drop(group);
        gate.store(true, Ordering::Release);
    }
}

/// Sees everything, and says nothing.
struct Blind;

impl Observer for Blind {
    fn written(&self, _: &Written<'_>, _: &mut [u8]) -> Result<bool, DeviceError> {
        Ok(false)
    }
}

fn observed(
    limit: Duration,
    script: impl Fn(u64, u64) -> Act + Send + Sync + 'static,
) -> Result<(), GroupError> {
    let mut group = group(limited(limit).capture(true), script);
    let observer: Arc<dyn Observer> = Arc::new(Blind);
    group.observe(&observer).unwrap();
    group.execute_many(6)
}

/// An observed task is waited for, even one that writes nothing: what goes wrong is known when it does.
#[test]
fn an_observed_task_is_named_in_its_own_step() {
    observed(Duration::MAX, |_, _| Act::Nothing).unwrap();
    let fails =
        observed(Duration::MAX, |task, turn| if (task, turn) == (1, 3) { Act::Fail } else { Act::Nothing });
    let error = fails.unwrap_err();
    let (task, during, said, _) = failed(&error);
    assert_eq!((task, during, said.as_str()), (Some("b"), Moment::Step(3), "task 1 found a NaN"));

    let dies =
        observed(Duration::MAX, |task, turn| if (task, turn) == (0, 2) { Act::Die } else { Act::Nothing });
    let error = dies.unwrap_err();
    let (task, during, said, _) = failed(&error);
    assert_eq!((task, during, said.as_str()), (Some("a"), Moment::Step(2), "the device reports an error"));

    let hangs =
        observed(300 * MS, |task, turn| if (task, turn) == (1, 3) { Act::Hang } else { Act::Nothing });
    let said = "step 3 took longer than 300ms: rank 0 waited in `b` (last finished `a`, after 3 steps)";
    assert_eq!(hangs.unwrap_err().to_string(), said);
}
