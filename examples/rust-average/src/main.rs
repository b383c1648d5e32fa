//! `average-gradients.toml` as a Rust program: two ranks scale their gradients, average them, and scale the average.
//!
//! It brings a kernel of its own and needs two crates: `squall-core`, and `squall-host-backend` for the devices.
#![expect(clippy::print_stdout, reason = "this is a program")]

use std::error::Error;
use std::sync::Arc;

use squall_core::{
    BufferDecl, Cover, DType, HostCall, KernelDef, KernelSpec, OpSpec, Options, ParamDef, PlanGroup,
    ReduceOp, Registry, TaskGraph, Type, Upload, World, verify,
};
use squall_host_backend as _; // what is linked registers itself

static SCALE: KernelDef = KernelDef {
    name: "scale",
    params: &[
        ParamDef::read_write("data", Type::Is(DType::F32), "[n]"),
        ParamDef::scalar("factor", Type::Is(DType::F32), "what every element is multiplied by"),
    ],
    covers: &[Cover::Len("data")],
    host: Some(&scale),
    ..KernelDef::EMPTY
};

fn scale(call: &HostCall<'_>) -> Result<(), String> {
    let factor = call.scalar::<f32>("factor")?;
    call.cells::<f32>("data")?.iter().for_each(|x| x.set(x.get() * factor));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (ranks, n) = (2u32, 4096);
    let registry = Registry::linked()?;
    let world = Arc::new(World::new(ranks.into())?);
    let graph = |rank| {
        let mut graph = TaskGraph::builder(&registry, &world, rank, "host");
        let grads = graph.buffer(BufferDecl::new("grads", DType::F32, [n]).upload(Upload::First));
        let scale =
            |factor: f64| KernelSpec::new(&SCALE).arg("data", grads).arg("factor", factor).grid(n, 256);
        graph.step(scale(2.0).named("pre"));
        graph.step(
            OpSpec::new("all_reduce").arg("buffer", grads).arg("reduce", ReduceOp::Avg).named("average"),
        );
        graph.step(scale(0.5).named("post"));
        graph.build()
    };
    // Only what is proven not to hang or mismatch can run.
    let verified = verify((0..ranks).map(graph).collect::<Result<_, _>>()?)?;

    let devices = (0..ranks).map(|rank| registry.open("host", rank)).collect::<Result<Vec<_>, _>>()?;
    let mut group = PlanGroup::new(&registry, verified, &devices, Options::default())?;
    let grads = group.buffer("grads").ok_or("the graphs declare it")?;
    for rank in 0..ranks {
        group.write(rank, grads, &vec![rank as f32 + 1.0; n as usize])?;
    }
    group.execute_many(3)?;
    for rank in 0..ranks {
        println!("rank {rank}: {}", group.read::<f32>(rank, grads)?[0]);
    }
    Ok(())
}
