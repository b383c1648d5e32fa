//! How long verification takes: `cargo bench -p squall-core --bench verify`. Prints the median of some runs.
//!
//! A thousand ranks with a hundred tasks each should stay far below a second.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use squall_core::{
    BufferDecl, BufferId, DType, GraphBuilder, OpSpec, Phase, Problems, TaskGraph, Upload, World, verify,
};

#[path = "../tests/verify/stub.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "the tests' own, and they use more of it")]
mod stub;

const RUNS: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:<52} {:>12} {:>12}", "job", "build", "verify");
    report("1000 ranks x 100 all_reduce, shared nodes", || all_reduces(1000, 100, true))?;
    report("1000 ranks x 100 all_reduce, a node for each rank", || all_reduces(1000, 100, false))?;
    report("10000 ranks x 100 all_reduce, shared nodes", || all_reduces(10000, 100, true))?;
    report("10000 ranks x 10 send_recv in a ring", || rings(10000, 10))?;
    report("1000 ranks, all_to_all of grouped transfers", || grouped(1000))?;
    report("1000 ranks x 100 all_reduce, one count differs", || {
        let mut graphs = all_reduces(1000, 100, true)?;
        graphs[500] = all_reduces_of(&graphs[0].world().clone(), 500, 100, 5)?;
        Ok(graphs)
    })?;
    report("10000 ranks in a ring that all send first", || deadlock(10000))?;
    Ok(())
}

type Graphs = Result<Vec<TaskGraph>, Problems>;

fn report(what: &str, job: impl Fn() -> Graphs) -> Result<(), Problems> {
    let (mut builds, mut verifies) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let start = Instant::now();
        let graphs = job()?;
        builds.push(start.elapsed());
        let start = Instant::now();
        let verified = verify(graphs);
        verifies.push(start.elapsed());
        drop(verified);
    }
    println!("{what:<52} {:>12.3?} {:>12.3?}", median(builds), median(verifies));
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn world(size: u64) -> Arc<World> {
    Arc::new(World::new(size).unwrap_or_else(|error| panic!("{error}")))
}

/// A builder with one buffer of `len` elements.
fn builder(world: &Arc<World>, rank: u32, len: u64) -> (GraphBuilder<'static>, BufferId) {
    let mut builder = TaskGraph::builder(&stub::REGISTRY, world, rank, "test");
    let x = builder.buffer(BufferDecl::new("x", DType::F32, [len]).upload(Upload::First));
    (builder, x)
}

fn all_reduces_of(world: &Arc<World>, rank: u32, tasks: usize, len: u64) -> Result<TaskGraph, Problems> {
    let (mut builder, x) = builder(world, rank, len);
    for _ in 0..tasks {
        builder.step(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", "sum"));
    }
    builder.build()
}

fn all_reduces(ranks: u32, tasks: usize, shared: bool) -> Graphs {
    let world = world(ranks.into());
    let first = all_reduces_of(&world, 0, tasks, 4)?;
    let rest = (1..ranks).map(|rank| {
        if !shared {
            return all_reduces_of(&world, rank, tasks, 4);
        }
        let mut builder = TaskGraph::builder(&stub::REGISTRY, &world, rank, "test");
        builder.share_buffers(first.buffers().clone());
        let took =
            first.tasks(Phase::Step).iter().all(|node| builder.share(Phase::Step, node, first.buffers()));
        assert!(took, "an all_reduce means the same on every rank");
        builder.build()
    });
    std::iter::once(Ok(first.clone())).chain(rest).collect()
}

fn rings(ranks: u32, tasks: usize) -> Graphs {
    let world = world(ranks.into());
    let build = |rank| {
        let (mut builder, x) = builder(&world, rank, 8);
        let half = |range| builder.whole(x).and_then(|whole| whole.elements(range));
        let (Some(out), Some(back)) = (half(0..4), half(4..8)) else { return builder.build() };
        for _ in 0..tasks {
            let shift = OpSpec::new("send_recv").arg("send", out.clone()).arg("recv", back.clone());
            builder.step(shift.arg("to", (rank + 1) % ranks).arg("from", (rank + ranks - 1) % ranks));
        }
        builder.build()
    };
    (0..ranks).map(build).collect()
}

fn grouped(ranks: u32) -> Graphs {
    let world = world(ranks.into());
    let build = |rank| {
        let (mut builder, x) = builder(&world, rank, 2 * u64::from(ranks));
        let mut group = squall_core::GroupSpec::new();
        for peer in 0..ranks {
            let one = |at: u64| builder.whole(x).and_then(|whole| whole.elements(at..at + 1));
            let place = u64::from(peer);
            if let (Some(out), Some(back)) = (one(place), one(place + u64::from(ranks))) {
                group = group.with(OpSpec::new("send").arg("buffer", out).arg("peer", peer));
                group = group.with(OpSpec::new("recv").arg("buffer", back).arg("peer", peer));
            }
        }
        builder.step(group);
        builder.build()
    };
    (0..ranks).map(build).collect()
}

fn deadlock(ranks: u32) -> Graphs {
    let world = world(ranks.into());
    let build = |rank| {
        let (mut builder, x) = builder(&world, rank, 4);
        builder.step(OpSpec::new("send").arg("buffer", x).arg("peer", (rank + 1) % ranks));
        builder.step(OpSpec::new("recv").arg("buffer", x).arg("peer", (rank + ranks - 1) % ranks));
        builder.build()
    };
    (0..ranks).map(build).collect()
}
