//! Ranks that fail, panic, hang or are late, and what is left afterwards:
//!
//! - [`devices`]: a device that misbehaves while ranks are made ready, written and read.
//! - [`failing`]: a rank that fails ends the run, and the error names it.
//! - [`hanging`]: a deadline ends a run that nobody else would.
//! - [`teardown`]: dropping, forgetting and interrupting at any moment.
//! - [`kernels`]: the kernels that misbehave.
//!
//! Threads are counted and time passes: every test holds [`alone`], so that one runs at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests panic as tests do")]

mod devices;
mod failing;
mod hanging;
mod kernels;
mod teardown;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use squall_core::error::Report;
use squall_core::graph::KernelSpec;
use squall_core::{
    ArgValue, BufferDecl, BufferId, DType, GraphBuilder, GroupError, OpSpec, Options, PlanGroup, ReduceOp,
    TaskGraph, Upload,
};
use squall_tests::{bind, graphs};

use kernels::MISBEHAVE;

/// Held by a test while it runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads of ranks that live.
fn rank_threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm")).ok();
    threads.filter_map(|thread| name(thread.unwrap())).filter(|name| name.starts_with("squall-rank")).count()
}

/// Waits until so many threads of ranks live: one that has ended may be listed a moment longer.
fn await_rank_threads(count: usize) {
    let start = Instant::now();
    while rank_threads() != count {
        assert!(start.elapsed() < Duration::from_secs(30), "{} threads, not {count}", rank_threads());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a healthy job: what went wrong before must not matter to it.
fn healthy() {
    let graphs = graphs(3, |_, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::I32, [100]).upload(Upload::First));
        graph.step(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Max));
    });
    let mut group = bind(graphs, Options::default());
    for rank in 0..3 {
        group.write(rank, BufferId(0), &[rank as i32; 100]).unwrap();
    }
    group.execute_many(3).unwrap();
    assert_eq!(group.read::<i32>(0, BufferId(0)).unwrap(), [2; 100]);
}

/// `before` (all_reduce) → `act` ([`MISBEHAVE`]) → `after` (all_reduce), where `rank` misbehaves in step `step`.
fn misbehaving(world: u32, rank: u32, step: i32, how: &'static str) -> Vec<TaskGraph> {
    graphs(world, |this, graph| {
        let at = if this == rank { step } else { -1 };
        let x = graph.buffer(BufferDecl::new("x", DType::F32, [1000]).upload(Upload::First));
        let steps = graph.buffer(BufferDecl::new("steps", DType::I32, [1]).upload(Upload::First));
        let sum =
            |name: &str| OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Avg).named(name);
        graph.step(sum("before"));
        act(graph, steps, at, how);
        graph.step(sum("after"));
    })
}

fn act(graph: &mut GraphBuilder<'_>, steps: BufferId, at: i32, how: &'static str) {
    let how = ArgValue::Word(how.into());
    let task = KernelSpec::new(&MISBEHAVE).arg("steps", steps).arg("at", at).arg("how", how).grid(1, 1);
    graph.step(task.named("act"));
}

/// Binds graphs over the buffers `x` and `steps`, and fills these.
fn filled(graphs: Vec<TaskGraph>, options: Options) -> PlanGroup {
    let world = graphs.len() as u32;
    let mut group = bind(graphs, options);
    fill(&mut group, world);
    group
}

fn fill(group: &mut PlanGroup, world: u32) {
    for rank in 0..world {
        group.write(rank, BufferId(0), &[rank as f32; 1000]).unwrap();
        group.write(rank, BufferId(1), &[0i32]).unwrap();
    }
}

/// Options with a limit for steps.
fn limited(milliseconds: u64) -> Options {
    Options::default().step_timeout(Some(Duration::from_millis(milliseconds)))
}

/// The report of a run that took too long.
fn report(error: &GroupError) -> &Report {
    match error {
        GroupError::TimedOut { report, .. } => report,
        other => panic!("{other}"),
    }
}

/// The group refuses to go on, and says what the first cause was.
fn refuses(group: &mut PlanGroup, cause: &GroupError) {
    let aborted = GroupError::Aborted(cause.to_string());
    assert_eq!(group.execute(), Err(aborted.clone()));
    assert_eq!(group.finish(), Err(aborted.clone()));
    assert_eq!(group.read_bytes(0, BufferId(0)), Err(aborted));
}
