//! Ranks that fail, hang, are late or are dropped, and what is left afterwards.
use std::time::{Duration, Instant};

use squall_core::error::{Found, Report};
use squall_core::{
    BufferDecl, BufferId, DType, DeviceError, Download, Feed, GroupError, KernelSpec, Moment, OpSpec,
    PlanGroup, ReduceOp, TaskGraph, Upload,
};

use crate::kernels::LATE;
use crate::on::{On, kernel};

/// The limit of a step.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);
/// How long a late rank is late: past the limit, also where the caller looks only now and then, and back within the second
/// period.
const LATE_MILLIS: i32 = 1500;
/// How soon a run must be given up that took too long: its limit, the second period, and some time.
pub(crate) const GIVEN_UP: Duration = Duration::from_secs(5);
/// How long a drop may take: a second period, and what libraries have to close.
pub(crate) const DROPPED: Duration = Duration::from_secs(12);

/// Does something, which must not take longer.
pub(crate) fn within<T>(limit: Duration, what: &str, act: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = act();
    assert!(start.elapsed() < limit, "{what} took {:?}", start.elapsed());
    result
}

pub(crate) fn report(error: &GroupError) -> &Report {
    match error {
        GroupError::TimedOut { report, .. } | GroupError::Interrupted { report, .. } => report,
        GroupError::Failed { released, .. } => released,
        other => panic!("{other}"),
    }
}

/// The group refuses to go on, at once, and says what the first cause was.
pub(crate) fn refuses(group: &mut PlanGroup, cause: &GroupError) {
    let aborted = GroupError::Aborted(cause.to_string());
    within(GIVEN_UP, "the refusals", || {
        assert_eq!(group.execute(), Err(aborted.clone()));
        assert_eq!(group.finish(), Err(aborted.clone()));
        assert_eq!(group.read_bytes(0, BufferId(0)), Err(aborted));
    });
}

/// Everyone came back, the group refuses to go on, it is dropped in time, and another group works.
pub(crate) fn over_and_done(on: On, mut group: PlanGroup, cause: &GroupError) {
    assert_eq!(report(cause).leak, None, "{cause}");
    refuses(&mut group, cause);
    within(DROPPED, "the drop", || drop(group));
    on.healthy();
}

/// Rank 0 meets rank 1 twice a step, which does so once: four steps of rank 1 serve two of rank 0, so that what is never
/// served is in the third step, the first with the limit of a step whether steps are captured or not. No verified job does this.
fn unequal(on: On, meet: impl Fn(u32, BufferId) -> OpSpec) -> Vec<TaskGraph> {
    on.graphs(2, |rank, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::F32, [1 << 16]));
        graph.step(
            KernelSpec::new(kernel("fill")).arg("dst", x).arg("value", 1.0).grid(1 << 16, 256).named("begin"),
        );
        graph.step(meet(rank, x).named("meet"));
        if rank == 0 {
            graph.step(meet(rank, x).named("again"));
        }
    })
}

fn receives(on: On) -> Vec<TaskGraph> {
    unequal(on, |rank, x| {
        OpSpec::new(if rank == 0 { "recv" } else { "send" }).arg("buffer", x).arg("peer", 1 - rank)
    })
}

fn collectives(on: On) -> Vec<TaskGraph> {
    unequal(on, |_, x| OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Avg))
}

/// Runs four steps, in the third of which rank 0 waits for what never comes.
fn hangs(on: On, graphs: Vec<TaskGraph>, limit: Duration) -> (PlanGroup, GroupError) {
    let mut group = on.past_verification(graphs, on.limited(limit));
    // The first step may take a while: it connects devices.
    let error = within(GIVEN_UP + Duration::from_secs(10), "the run", || group.execute_many(4)).unwrap_err();
    assert!(matches!(error, GroupError::TimedOut { during: Moment::Step(2), .. }), "{error}");
    (group, error)
}

fn ends_at_the_deadline(on: On, graphs: Vec<TaskGraph>) {
    let (group, error) = hangs(on, graphs, LIMIT);
    let wanted = "step 2 took longer than 1s: rank 0 waited in `meet` (last finished `begin`, after 2 steps)";
    assert_eq!(error.to_string(), wanted);
    let found: Vec<Found> = report(&error).ranks.iter().map(|rank| rank.found).collect();
    assert_eq!(found, [Found::Waiting, Found::Idle]);
    over_and_done(on, group, &error);
}

pub(crate) fn receive(on: On) {
    ends_at_the_deadline(on, receives(on));
}

pub(crate) fn skipped(on: On) {
    ends_at_the_deadline(on, collectives(on));
}

pub(crate) fn ten_rounds(on: On) {
    let round = |round| {
        let graphs = if round % 2 == 0 { receives(on) } else { collectives(on) };
        let (group, error) = hangs(on, graphs, Duration::from_millis(300));
        over_and_done(on, group, &error);
    };
    round(0);
    round(1);
    let level = on.level();
    (2..12).for_each(round);
    level.reached().unwrap();
}

/// `before` (all_reduce) → `act` ([`LATE`]) → `after` (all_reduce), where rank 1 is late in a step.
fn late_in(on: On, step: i32) -> PlanGroup {
    late_by(on, step, LATE_MILLIS)
}

/// As [`late_in`], by so many milliseconds.
pub(crate) fn late_by(on: On, step: i32, millis: i32) -> PlanGroup {
    let graphs = on.graphs(2, |rank, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::F32, [1000]).upload(Upload::First));
        let steps = graph.buffer(BufferDecl::new("steps", DType::I32, [1]).upload(Upload::First));
        let average = || OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Avg);
        graph.step(average().named("before"));
        let act = KernelSpec::new(&LATE).arg("steps", steps).arg("at", if rank == 1 { step } else { -1 });
        graph.step(act.arg("millis", millis).grid(1, 32).named("act"));
        graph.step(average().named("after"));
    });
    let mut group = on.bind(graphs, on.limited(LIMIT));
    for rank in 0..2 {
        group.write(rank, BufferId(0), &[rank as f32; 1000]).unwrap();
        group.write(rank, BufferId(1), &[0i32]).unwrap();
    }
    group
}

/// A group of which no rank is ever late.
fn good(on: On) -> PlanGroup {
    late_in(on, -1)
}

fn late_is_named(on: On, mut group: PlanGroup, steps: u64, step: u64) {
    let error =
        within(GIVEN_UP + Duration::from_secs(10), "the run", || group.execute_many(steps)).unwrap_err();
    let said = error.to_string();
    let steps = squall_core::count(step, "step");
    let wanted = format!(
        "step {step} took longer than 1s: rank 1 was late in `act` (last finished `before`, after {steps}); \
         rank 0 waited in `after` (last finished `act`, after {steps})"
    );
    assert_eq!(said, wanted);
    over_and_done(on, group, &error);
}

pub(crate) fn late(on: On) {
    late_is_named(on, late_in(on, 2), 5, 2);
}

pub(crate) fn queued(on: On) {
    // The same through a handle: nobody looks before it is waited for.
    let mut group = late_in(on, 500);
    let running = group.start(1000).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let error = within(GIVEN_UP + Duration::from_secs(10), "the wait", || running.wait()).unwrap_err();
    assert!(matches!(error, GroupError::TimedOut { during: Moment::Step(500), .. }), "{error}");
    assert!(error.to_string().contains("rank 1 was late in `act`"), "{error}");
    over_and_done(on, group, &error);
    late_is_named(on, late_in(on, 700), 1000, 700);
}

/// What a rank's feed does in step 2.
#[derive(Clone, Copy)]
enum Trouble {
    Late,
    Fails,
    Nothing,
}

impl Feed for Trouble {
    fn fill(&mut self, step: u64, out: &mut [u8]) -> Result<(), String> {
        out.fill(0);
        match self {
            Trouble::Late if step == 2 => std::thread::sleep(Duration::from_millis(LATE_MILLIS as u64)),
            Trouble::Fails if step == 2 => return Err("there is nothing left to feed".to_string()),
            _ => {}
        }
        Ok(())
    }
}

/// `use` (a kernel on what is fed) → `sum` (all_reduce), where rank 1's feed makes trouble.
fn fed(on: On, trouble: Trouble) -> PlanGroup {
    let graphs = on.graphs(2, |_, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::F32, [1000]).upload(Upload::Every));
        graph.step(
            KernelSpec::new(kernel("scale")).arg("data", x).arg("factor", 2.0).grid(1000, 256).named("use"),
        );
        graph.step(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Sum).named("sum"));
    });
    let mut group = on.bind(graphs, on.limited(LIMIT));
    for (rank, trouble) in [(0, Trouble::Nothing), (1, trouble)] {
        group.feed(rank, BufferId(0), Box::new(trouble)).unwrap();
    }
    group
}

pub(crate) fn late_feed(on: On) {
    let mut group = fed(on, Trouble::Late);
    let error = within(GIVEN_UP + Duration::from_secs(10), "the run", || group.execute_many(5)).unwrap_err();
    let wanted = "step 2 took longer than 1s: rank 1 was late in `use` (its first task, after 2 steps); \
                  rank 0 waited in `sum` (last finished `use`, after 2 steps)";
    assert_eq!(error.to_string(), wanted);
    over_and_done(on, group, &error);
}

pub(crate) fn feed(on: On) {
    let mut group = fed(on, Trouble::Fails);
    let error = within(GIVEN_UP + Duration::from_secs(10), "the run", || group.execute_many(5)).unwrap_err();
    match &error {
        GroupError::Failed { rank: 1, task: None, during: Moment::Step(2), error, released } => {
            assert_eq!(*error, DeviceError::Failed("there is nothing left to feed".to_string()));
            let [other] = released.ranks.as_slice() else { panic!("{released}") };
            assert_eq!(other.rank, 0);
            assert_ne!(other.found, Found::Stuck);
        }
        other => panic!("{other}"),
    }
    over_and_done(on, group, &error);
}

/// An element of rank 1's divisor becomes 0 in step 3.
fn kernel_fails(on: On, one_by_one: bool) {
    let graphs = on.graphs(2, |_, graph| {
        let input = |name, len| BufferDecl::new(name, DType::I32, [len]).upload(Upload::First);
        let (b, one) = (graph.buffer(input("b", 8)), graph.buffer(input("one", 8)));
        let q = graph.buffer(BufferDecl::new("q", DType::I32, [8]).download(Download::Every));
        let meet = || OpSpec::new("all_reduce").arg("buffer", one).arg("reduce", ReduceOp::Max);
        let of_two = |name| KernelSpec::new(kernel(name)).grid(8, 32);
        graph.step(meet().named("before"));
        graph.step(of_two("sub").arg("a", b).arg("b", one).arg("out", b).named("count"));
        graph.step(of_two("div").arg("a", one).arg("b", b).arg("out", q).named("divide"));
        graph.step(meet().named("after"));
    });
    let mut group = on.bind(graphs, on.limited(LIMIT));
    for rank in 0..2 {
        let mut b = [1000i32; 8];
        if rank == 1 {
            b[5] = 4;
        }
        group.write(rank, BufferId(0), &b).unwrap();
        group.write(rank, BufferId(1), &[1i32; 8]).unwrap();
    }
    let error = within(GIVEN_UP + Duration::from_secs(10), "the run", || match one_by_one {
        true => (0..10).find_map(|_| group.execute().err()),
        false => group.execute_many(10).err(),
    });
    let error = error.expect("the kernel did not fail");
    match &error {
        GroupError::Failed { rank: 1, task: Some(task), during, error: said, .. } => {
            assert_eq!(task, "divide");
            assert!(said.to_string().contains("division by zero: element 5 of `b` is 0"), "{error}");
            // A device tells what its kernels found when it is waited for: of queued steps, a batch or two later.
            match during {
                Moment::Step(step) => assert_eq!(*step, 3, "{error}"),
                Moment::Steps(first, last) => {
                    assert!(on.is_gpu() && !one_by_one && (*first..=*last).contains(&3), "{error}");
                }
                other => panic!("{other}"),
            }
        }
        other => panic!("{other}"),
    }
    over_and_done(on, group, &error);
}

pub(crate) fn kernel_that_fails(on: On) {
    kernel_fails(on, true);
    kernel_fails(on, false);
}

/// Threads of ranks that live.
fn await_no_rank() {
    let ranks = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm")).ok();
        threads
            .filter_map(|thread| name(thread.unwrap()))
            .filter(|name| name.starts_with("squall-rank"))
            .count()
    };
    let start = Instant::now();
    while ranks() > 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "{} threads of ranks", ranks());
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn in_flight(on: On) {
    // While it connects, captures, and runs.
    let pauses: &[u64] = if on.is_gpu() { &[0, 20, 100, 300, 1000] } else { &[0, 1, 20] };
    for &pause in pauses {
        let mut group = good(on);
        let running = group.start(u64::MAX).unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        drop(running);
        within(DROPPED, "the drop", || drop(group));
        await_no_rank();
        let mut group = good(on);
        std::mem::forget(group.start(u64::MAX).unwrap());
        std::thread::sleep(Duration::from_millis(pause));
        within(DROPPED, "the drop", || drop(group));
        await_no_rank();
    }
    // With a kernel that ends within the second period: nothing can abort it.
    let mut group = late_in(on, 1);
    group.execute().unwrap();
    std::mem::forget(group.start(1).unwrap());
    std::thread::sleep(LIMIT * 3 / 4);
    within(DROPPED, "the drop", || drop(group));
    await_no_rank();
    on.healthy();
}

/// Two groups on the same devices, each with communicators of its own: whichever goes first, the other works.
pub(crate) fn any_order(on: On) {
    for order in 0..4 {
        in_order(on, order);
        await_no_rank();
    }
    // Never run, and never filled.
    within(DROPPED, "the drop", || drop(good(on)));
    on.healthy();
}

fn in_order(on: On, order: u32) {
    let (mut one, mut two) = (good(on), good(on));
    let (handle, other) = (one.interrupt_handle(), two.interrupt_handle());
    one.execute_many(3).unwrap();
    two.execute_many(3).unwrap();
    one.execute_many(3).unwrap();
    match order {
        0 => {
            within(DROPPED, "the first's drop", || drop(one));
            drop(handle);
            two.execute_many(3).unwrap();
        }
        1 => {
            within(DROPPED, "the second's drop", || drop(two));
            one.execute_many(3).unwrap();
            within(DROPPED, "the first's drop", || drop(one));
            // A handle may outlive what it stops.
            handle.interrupt();
            other.interrupt();
            assert_eq!((handle.steps_done(), other.steps_done()), (9, 3));
        }
        2 => {
            let running = one.start(100).unwrap();
            within(DROPPED, "the second's drop", || drop((two, other, handle)));
            running.wait().unwrap();
        }
        _ => {
            // With steps in flight; the other's thread is another than the one that made it.
            std::mem::forget(one.start(u64::MAX).unwrap());
            within(DROPPED, "the first's drop", || drop(one));
            std::mem::forget(two.start(u64::MAX).unwrap());
            within(DROPPED, "the second's drop", || std::thread::spawn(move || drop(two)).join().unwrap());
        }
    }
}

pub(crate) fn interrupt(on: On) {
    for _ in 0..3 {
        let mut group = good(on);
        let handle = group.interrupt_handle();
        let stopper = std::thread::spawn(move || {
            while handle.steps_done() < 50 {
                std::thread::yield_now();
            }
            handle.interrupt();
            Instant::now()
        });
        let error = group.execute_many(u64::MAX).unwrap_err();
        let since = stopper.join().unwrap().elapsed();
        assert!(since < Duration::from_secs(3), "it took {since:?} to stop");
        match &error {
            GroupError::Interrupted { during: Moment::Step(step), .. } => assert!(*step >= 50, "{error}"),
            other => panic!("{other}"),
        }
        over_and_done(on, group, &error);
        await_no_rank();
    }
}
