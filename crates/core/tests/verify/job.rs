//! Jobs in a few words, and where a report points.

use std::sync::{Arc, Mutex};

use squall_core::{
    ArgValue, BufferDecl, BufferId, Code, DType, Diagnostic, GraphBuilder, GroupSpec, KernelSpec, Label,
    OpSpec, Origin, Problems, Span, SwapSpec, TaskGraph, Upload, Verified, World, verify,
};

use crate::stub::{REGISTRY, SCALE};

/// A builder over the tests' registry.
pub(crate) type Rank = GraphBuilder<'static>;

/// A world of so many ranks.
pub(crate) fn world(size: u64) -> Arc<World> {
    Arc::new(World::new(size).unwrap())
}

/// Builds the graphs of all ranks; the problems of all, if there are any.
pub(crate) fn graphs(
    world: &Arc<World>,
    device: &str,
    tasks: impl Fn(&mut Rank, u32),
) -> Result<Vec<TaskGraph>, Problems> {
    let (mut graphs, mut problems) = (Vec::new(), Vec::new());
    for rank in 0..world.size() {
        let mut builder = TaskGraph::builder(&REGISTRY, world, rank, device);
        tasks(&mut builder, rank);
        match builder.build() {
            Ok(graph) => graphs.push(graph),
            Err(Problems(found)) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(graphs) } else { Err(Problems(problems).folded()) }
}

/// Builds and verifies a job on test devices.
pub(crate) fn on(world: &Arc<World>, tasks: impl Fn(&mut Rank, u32)) -> Result<Verified, Problems> {
    graphs(world, "test", tasks).and_then(verify)
}

/// Builds and verifies a job of so many ranks, without further communicators.
pub(crate) fn job(size: u64, tasks: impl Fn(&mut Rank, u32)) -> Result<Verified, Problems> {
    on(&world(size), tasks)
}

/// What is wrong with a job that must be refused.
pub(crate) fn refused(size: u64, tasks: impl Fn(&mut Rank, u32)) -> Vec<Diagnostic> {
    job(size, tasks).expect_err("the job must be refused").0
}

/// The only report, which must be of this code.
#[track_caller]
pub(crate) fn only(code: Code, problems: &[Diagnostic]) -> &Diagnostic {
    let [problem] = problems else { panic!("one report of {code} expected: {problems:#?}") };
    assert_eq!(problem.code, code, "{problem}");
    problem
}

/// The message holds all of these.
#[track_caller]
pub(crate) fn says(problem: &Diagnostic, parts: &[&str]) {
    for part in parts {
        assert!(problem.message.contains(part), "`{part}` is not said by: {problem}");
    }
}

/// A buffer with contents from the host.
pub(crate) fn buffer(name: &str, dtype: DType, len: u64) -> BufferDecl {
    BufferDecl { span: place_of(name), ..BufferDecl::new(name, dtype, [len]).upload(Upload::First) }
}

/// A buffer of `f32` with contents from the host.
pub(crate) fn f32s(name: &str, len: u64) -> BufferDecl {
    buffer(name, DType::F32, len)
}

/// An op.
pub(crate) fn op(name: &'static str) -> OpSpec {
    OpSpec::new(name)
}

/// An op named as a task.
pub(crate) fn task(task: &str, name: &'static str) -> OpSpec {
    op(name).from_origin(origin(task))
}

/// An in-place sum over all ranks.
pub(crate) fn sum(task_name: &str, buffer: impl Into<ArgValue>) -> OpSpec {
    task(task_name, "all_reduce").arg("buffer", buffer).arg("reduce", "sum")
}

/// A send.
pub(crate) fn send(task_name: &str, buffer: impl Into<ArgValue>, peer: u32) -> OpSpec {
    task(task_name, "send").arg("buffer", buffer).arg("peer", peer)
}

/// A receive.
pub(crate) fn recv(task_name: &str, buffer: impl Into<ArgValue>, peer: u32) -> OpSpec {
    task(task_name, "recv").arg("buffer", buffer).arg("peer", peer)
}

/// A group.
pub(crate) fn group<const N: usize>(task_name: &str, members: [OpSpec; N]) -> GroupSpec {
    members.into_iter().fold(GroupSpec::new().from_origin(origin(task_name)), GroupSpec::with)
}

/// A swap of two buffers.
pub(crate) fn swap(task_name: &str, a: BufferId, b: BufferId) -> SwapSpec {
    SwapSpec::new(a, b).from_origin(origin(task_name))
}

/// The kernel `scale`, without arguments.
pub(crate) fn scale(task_name: &str) -> KernelSpec {
    KernelSpec::new(&SCALE).from_origin(origin(task_name))
}

/// Parameters that have a place of their own in the source that [`origin`] makes up.
const PARAMS: [&str; 15] = [
    "buffer", "send", "recv", "reduce", "root", "peer", "to", "from", "op", "comm", "grid", "x", "y",
    "factor", "counts",
];

static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A source in which everything of one name stands in one place.
fn place_of(name: &str) -> Option<Span> {
    let mut names = NAMES.lock().unwrap();
    let index = names.iter().position(|n| n == name).unwrap_or_else(|| {
        names.push(name.to_string());
        names.len() - 1
    });
    Some(Span::from(100 * index..100 * index + 100))
}

/// An origin with a place for the task and for each of its arguments.
pub(crate) fn origin(task: &str) -> Arc<Origin> {
    let span = place_of(task);
    let start = span.map_or(0, |span| span.start as usize);
    let args =
        (1..).zip(PARAMS).map(|(i, name)| (name.to_string(), Span::from(start + i..start + i + 1))).collect();
    Arc::new(Origin { name: task.to_string(), span, args })
}

/// Where a label points: `sum` is a task or a buffer, `sum.root` an argument; empty for nowhere.
pub(crate) fn place(label: &Label) -> String {
    let Some(span) = label.span else { return String::new() };
    let names = NAMES.lock().unwrap();
    let name = &names[span.start as usize / 100];
    match span.start as usize % 100 {
        0 => name.clone(),
        param => format!("{name}.{}", PARAMS[param - 1]),
    }
}
