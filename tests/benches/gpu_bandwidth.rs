//! How fast every op of the standard set is on all GPUs of this machine: a plan group with that op alone, in `f32`, captured and queued.
//!
//! `cargo bench -p squall-tests --bench gpu_bandwidth -- [bytes,bytes,…] [kind]`
//!
//! Sizes and bandwidths are counted as nccl-tests does: the size is that of the larger buffer, algorithm bandwidth is size over time, and
//! bus bandwidth is that times what an op must move on the busiest link, so that it can be held against the link's own. `send` is a
//! message from every even rank to the next; `send_recv` goes around a ring. All ops but these two are out of place. With the kind `host` it runs on two host
//! devices, nothing captured, to try the program itself.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and may stop where it stands"
)]

use std::sync::Arc;
use std::time::Instant;

use squall_core::{
    BufferDecl, BufferId, DType, GraphBuilder, KernelSpec, OpSpec, Options, Phase, PlanGroup, ReduceOp,
    Registry, TaskGraph, World, verify,
};
use squall_cuda_backend as _;
use squall_host_backend as _;
use squall_kernels_std as _;
use squall_nccl_ops as _;

/// An op, and how it is measured.
struct Case {
    op: &'static str,
    /// What `send` and `recv` hold of the size: all of it, or one rank's share.
    holds: [Holds; 2],
    /// Bus bandwidth over algorithm bandwidth for so many ranks.
    factor: fn(f64) -> f64,
}

#[derive(Clone, Copy)]
enum Holds {
    All,
    Share,
}

use Holds::{All, Share};

const CASES: &[Case] = &[
    Case { op: "all_reduce", holds: [All, All], factor: |n| 2.0 * (n - 1.0) / n },
    Case { op: "broadcast", holds: [All, All], factor: |_| 1.0 },
    Case { op: "reduce", holds: [All, All], factor: |_| 1.0 },
    Case { op: "all_gather", holds: [Share, All], factor: |n| (n - 1.0) / n },
    Case { op: "reduce_scatter", holds: [All, Share], factor: |n| (n - 1.0) / n },
    Case { op: "all_to_all", holds: [All, All], factor: |n| (n - 1.0) / n },
    Case { op: "gather", holds: [Share, All], factor: |n| (n - 1.0) / n },
    Case { op: "scatter", holds: [All, Share], factor: |n| (n - 1.0) / n },
    Case { op: "send_recv", holds: [All, All], factor: |_| 1.0 },
    Case { op: "send", holds: [All, All], factor: |_| 1.0 },
];

impl Case {
    /// Adds the op to a rank's step. Returns what every element of `recv` is then, if the rank receives anything.
    fn add(
        &self,
        graph: &mut GraphBuilder<'_>,
        [send, recv]: [BufferId; 2],
        rank: u32,
        world: u32,
    ) -> Option<f32> {
        let op = OpSpec::new(self.op);
        let both = |op: OpSpec| op.arg("send", send).arg("recv", recv);
        let sum = |op: OpSpec| both(op).arg("reduce", ReduceOp::Sum);
        let (root, everyone) = (rank == 0, Some(world as f32));
        let (op, result) = match self.op {
            "all_reduce" | "reduce_scatter" => (sum(op), everyone),
            "reduce" => (sum(op).arg("root", 0), everyone.filter(|_| root)),
            "broadcast" | "scatter" => (both(op).arg("root", 0), Some(1.0)),
            "gather" => (both(op).arg("root", 0), Some(1.0).filter(|_| root)),
            "send_recv" => {
                (both(op).arg("to", (rank + 1) % world).arg("from", (rank + world - 1) % world), Some(1.0))
            }
            "send" if rank % 2 == 1 => {
                (OpSpec::new("recv").arg("buffer", recv).arg("peer", rank - 1), Some(1.0))
            }
            "send" if rank + 1 < world => (op.arg("buffer", send).arg("peer", rank + 1), None),
            "send" => return None,
            _ => (both(op), Some(1.0)),
        };
        graph.step(op);
        result
    }
}

/// A group whose step is the op alone, and what each rank then has in `recv`. `send` is all ones.
fn group(registry: &Registry, case: &Case, kind: &str, world: u32, n: u64) -> (PlanGroup, Vec<Option<f32>>) {
    let size = Arc::new(World::new(world.into()).unwrap());
    let lengths = case.holds.map(|holds| match holds {
        All => n / u64::from(world) * u64::from(world),
        Share => n / u64::from(world),
    });
    let mut results = Vec::new();
    let graph = |rank| -> TaskGraph {
        let mut graph = TaskGraph::builder(registry, &size, rank, kind);
        let send = graph.buffer(BufferDecl::new("send", DType::F32, [lengths[0]]));
        let recv = graph.buffer(BufferDecl::new("recv", DType::F32, [lengths[1]]));
        let ones = KernelSpec::new(registry.kernel("fill").unwrap()).arg("dst", send).arg("value", 1.0);
        graph.add(Phase::Setup, ones.grid(lengths[0], 256));
        results.push(case.add(&mut graph, [send, recv], rank, world));
        graph.build().unwrap_or_else(|problems| panic!("{problems}"))
    };
    let graphs = (0..world).map(graph).collect();
    let verified = verify(graphs).unwrap_or_else(|problems| panic!("{problems}"));
    let devices: Vec<_> = (0..world).map(|rank| registry.open(kind, rank).unwrap()).collect();
    let options = Options::default().capture(devices.iter().all(|device| device.captures()));
    (PlanGroup::new(registry, verified, &devices, options).unwrap(), results)
}

/// The seconds that an op takes: of five runs of so many queued steps the median.
fn seconds(group: &mut PlanGroup, steps: u64) -> f64 {
    // Connects, captures, and reaches the GPUs' clock.
    group.execute_many(10).unwrap();
    let run = |_| {
        let start = Instant::now();
        group.execute_many(steps).unwrap();
        start.elapsed().as_secs_f64() / steps as f64
    };
    let mut runs: Vec<f64> = (0..5).map(run).collect();
    runs.sort_by(f64::total_cmp);
    runs[2]
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let sizes = args.next().unwrap_or("1048576,16777216,268435456".to_string());
    let kind = args.next().unwrap_or("cuda".to_string());
    let registry = Registry::linked().unwrap();
    let world = registry.backend(&kind).unwrap().count().unwrap().unwrap_or(2);
    println!("# squall, {world} {kind} devices, f32, one op a step, queued; bandwidths in GB/s");
    println!("{:<16} {:>12} {:>12} {:>10} {:>10}", "op", "bytes", "us", "algbw", "busbw");
    for case in CASES.iter().filter(|case| world > 1 || case.op != "send") {
        for bytes in sizes.split(',').map(|bytes| bytes.parse::<u64>().unwrap()) {
            let (mut group, results) = group(&registry, case, &kind, world, bytes / 4);
            // Some gigabytes, in 20 to 100 steps.
            let seconds = seconds(&mut group, ((5 << 30) / bytes.max(1)).clamp(20, 100));
            let recv = group.buffer("recv").unwrap();
            for (rank, result) in (0..).zip(results) {
                let Some(result) = result else { continue };
                let got = group.read::<f32>(rank, recv).unwrap();
                assert!(got.iter().all(|&x| x == result), "{} of {bytes} bytes on rank {rank}", case.op);
            }
            let algorithm = bytes as f64 / seconds / 1e9;
            let bus = algorithm * (case.factor)(world.into());
            println!("{:<16} {bytes:>12} {:>12.2} {algorithm:>10.2} {bus:>10.2}", case.op, seconds * 1e6);
        }
    }
}
