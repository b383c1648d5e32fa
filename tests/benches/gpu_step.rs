//! What a step costs on GPUs: kernel → all_reduce → kernel in `f32`, on every GPU of this machine, by size and by way of running it.
//! Medians in microseconds, of steps one by one as the caller sees them, and of the means of five batches of queued steps; then the
//! processor time that a step costs, and the time from nothing to the end of the first step.
//!
//! `cargo bench -p squall-tests --bench gpu_step -- [steps] [elements,elements,…]`
//!
//! The kernels are those of the hand-written programs that it is compared with: one float a thread, or, in the last column, four.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and may stop where it stands"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use squall_core::{
    BufferDecl, Cover, CudaSource, DType, KernelDef, KernelSpec, OpSpec, Options, ParamDef, PlanGroup,
    ReduceOp, Registry, TaskGraph, Type, World, verify,
};
use squall_cuda_backend as _;
use squall_nccl_ops as _;

/// `a[i] = value + i % 13`, a float a thread.
static PRODUCE: KernelDef = KernelDef {
    name: "produce",
    params: &[
        ParamDef::write("a", Type::Is(DType::F32), "[n]"),
        ParamDef::scalar("value", Type::Is(DType::F32), "what is added"),
    ],
    covers: &[Cover::Len("a")],
    cuda: Some(CudaSource::new(
        "__device__ void produce(squall::Buffer<f32> a, squall::Scalar<f32> value, const squall::Launch &) {
            u64 i = squall::x();
            if (i < a.len) a[i] = value.get() + i % 13;
        }",
        "produce",
    )),
    ..KernelDef::EMPTY
};

/// `a[i] += 1`, a float a thread.
static CONSUME: KernelDef = KernelDef {
    name: "consume",
    params: &[ParamDef::read_write("a", Type::Is(DType::F32), "[n]")],
    covers: &[Cover::Len("a")],
    cuda: Some(CudaSource::new(
        "__device__ void consume(squall::Buffer<f32> a, const squall::Launch &) {
            u64 i = squall::x();
            if (i < a.len) a[i] += 1.0f;
        }",
        "consume",
    )),
    ..KernelDef::EMPTY
};

/// As [`PRODUCE`], four floats at a time. Lengths are multiples of four here.
static PRODUCE_PACKED: KernelDef = KernelDef {
    cuda: Some(
        CudaSource::new(
            "__device__ void produce(squall::Buffer<f32> a, squall::Scalar<f32> value, const squall::Launch &) {
                for (u64 i = squall::x(); i < a.len / 4; i += squall::stride()) {
                    squall::Pack<f32> pack;
                    u32 first = i * 4 % 13;
                    for (u32 lane = 0; lane < 4; ++lane) {
                        u32 rest = first + lane;
                        pack.lane[lane] = value.get() + (rest < 13 ? rest : rest - 13);
                    }
                    squall::store(a.data, i, pack);
                }
            }",
            "produce",
        )
        .looping(),
    ),
    ..PRODUCE
};

/// As [`CONSUME`], four floats at a time.
static CONSUME_PACKED: KernelDef = KernelDef {
    cuda: Some(
        CudaSource::new(
            "__device__ void consume(squall::Buffer<f32> a, const squall::Launch &) {
                for (u64 i = squall::x(); i < a.len / 4; i += squall::stride()) {
                    squall::Pack<f32> pack = squall::load(a.data, i);
                    for (u32 lane = 0; lane < 4; ++lane) pack.lane[lane] += 1.0f;
                    squall::store(a.data, i, pack);
                }
            }",
            "consume",
        )
        .looping(),
    ),
    ..CONSUME
};

/// A group that runs the step on `ranks` GPUs.
fn group(registry: &Registry, ranks: u32, n: u64, packed: bool, capture: bool) -> PlanGroup {
    let world = Arc::new(World::new(ranks.into()).unwrap());
    let (produce, consume) = if packed { (&PRODUCE_PACKED, &CONSUME_PACKED) } else { (&PRODUCE, &CONSUME) };
    let graph = |rank| {
        let mut graph = TaskGraph::builder(registry, &world, rank, "cuda");
        let a = graph.buffer(BufferDecl::new("a", DType::F32, [n]));
        let value = f64::from(rank) + 1.0;
        graph.step(KernelSpec::new(produce).arg("a", a).arg("value", value).grid(n, 256).named("produce"));
        graph.step(OpSpec::new("all_reduce").arg("buffer", a).arg("reduce", ReduceOp::Sum).named("sum"));
        graph.step(KernelSpec::new(consume).arg("a", a).grid(n, 256).named("consume"));
        graph.build().unwrap()
    };
    let verified = verify((0..ranks).map(graph).collect()).unwrap();
    let devices: Vec<_> = (0..ranks).map(|rank| registry.open("cuda", rank).unwrap()).collect();
    PlanGroup::new(registry, verified, &devices, Options::default().capture(capture)).unwrap()
}

/// Stops at a wrong result.
fn check(group: &mut PlanGroup, ranks: u32) {
    let a = group.buffer("a").unwrap();
    let sum = (ranks * (ranks + 1) / 2) as f32;
    for rank in 0..ranks {
        for (i, &x) in group.read::<f32>(rank, a).unwrap().iter().enumerate() {
            assert_eq!(x, sum + (ranks * (i as u32 % 13)) as f32 + 1.0, "rank {rank}, element {i}");
        }
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// The median of steps run one by one.
fn one_by_one(group: &mut PlanGroup, steps: usize) -> f64 {
    for _ in 0..20 {
        group.execute().unwrap();
    }
    let step = |_| {
        let start = Instant::now();
        group.execute().unwrap();
        start.elapsed()
    };
    median((0..steps).map(step).collect())
}

/// The batches of queued steps that are measured, after one that is not.
const BATCHES: usize = 5;

/// A step's mean time in a batch of queued steps: of [`BATCHES`] such means the median.
fn queued(group: &mut PlanGroup, steps: usize) -> f64 {
    group.execute_many(steps as u64).unwrap();
    let batch = |_| {
        let start = Instant::now();
        group.execute_many(steps as u64).unwrap();
        start.elapsed()
    };
    median((0..BATCHES).map(batch).collect()) / steps as f64
}

/// Processor time that this process has used.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let steps: usize = args.next().map_or(500, |steps| steps.parse().unwrap());
    let sizes = args.next().unwrap_or("1024,65536,1048576,16777216,67108864".to_string());
    let start = Instant::now();
    let registry = Registry::linked().unwrap();
    let ranks = registry.backend("cuda").unwrap().count().unwrap().unwrap();
    let mut first = group(&registry, ranks, 1024, false, false);
    first.execute().unwrap();
    let to_first_step = start.elapsed();
    drop(first);

    println!("# squall, {ranks} GPUs, {steps} steps, medians in us");
    println!(
        "{:>12} {:>10} {:>10} {:>10} {:>10} {:>12} {:>12}",
        "elements", "graph", "eager", "queued", "packed", "cpu-graph", "cpu-queued"
    );
    for n in sizes.split(',').map(|n| n.parse().unwrap()) {
        let mut eager_group = group(&registry, ranks, n, false, false);
        let eager = one_by_one(&mut eager_group, steps);
        check(&mut eager_group, ranks);
        drop(eager_group);

        let mut captured = group(&registry, ranks, n, false, true);
        captured.execute_many(2).unwrap(); // eager, and captured
        let cost =
            |before: Duration, steps: usize| (processor_time() - before).as_secs_f64() * 1e6 / steps as f64;
        let before = processor_time();
        let graph = one_by_one(&mut captured, steps);
        let cpu_graph = cost(before, steps + 20);
        check(&mut captured, ranks);
        let before = processor_time();
        let queued = queued(&mut captured, steps);
        let cpu_queued = cost(before, (1 + BATCHES) * steps);
        check(&mut captured, ranks);
        drop(captured);

        let mut packed_group = group(&registry, ranks, n, true, true);
        let packed = one_by_one(&mut packed_group, steps);
        check(&mut packed_group, ranks);
        println!(
            "{n:>12} {graph:>10.2} {eager:>10.2} {queued:>10.2} {packed:>10.2} {cpu_graph:>12.1} {cpu_queued:>12.1}"
        );
    }
    println!("from start to the end of the first step: {:.0} ms", to_first_step.as_secs_f64() * 1e3);
}
