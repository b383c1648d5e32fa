//! `clip_norm` on host devices against a norm that is taken here.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use clip_norm as _;
use squall_core::{
    BufferDecl, DType, Download, GraphBuilder, OpSpec, Options, PlanGroup, Problems, Registry, TaskGraph,
    Upload, Verified, World, verify,
};
use squall_cuda_backend as _;
use squall_host_backend as _;
use squall_nccl_ops as _;

fn graphs(
    device: &str,
    world: u32,
    build: impl Fn(u32, &mut GraphBuilder<'_>),
) -> Result<Verified, Problems> {
    let (registry, shared) = (Registry::linked().unwrap(), Arc::new(World::new(world.into()).unwrap()));
    let graph = |rank| {
        let mut graph = TaskGraph::builder(&registry, &shared, rank, device);
        build(rank, &mut graph);
        graph.build()
    };
    verify((0..world).map(graph).collect::<Result<_, _>>()?)
}

fn grad(n: u64) -> BufferDecl {
    BufferDecl::new("grad", DType::F32, [n]).upload(Upload::Every).download(Download::Every)
}

/// All ranks' elements after one step with this `max`, a number or, as `read`, what a buffer holds.
fn clipped(ranks: &[Vec<f32>], max: f32, read: bool) -> Vec<Vec<f32>> {
    let (registry, world, n) = (Registry::linked().unwrap(), ranks.len() as u32, ranks[0].len() as u64);
    let verified = graphs("host", world, |_, graph| {
        let op = OpSpec::new("clip_norm").arg("data", graph.buffer(grad(n)));
        let limit = graph.buffer(BufferDecl::new("max", DType::F32, [1]).upload(Upload::First));
        graph.step(if read { op.arg("max", limit) } else { op.arg("max", f64::from(max)) });
    });
    let devices: Vec<_> = (0..world).map(|rank| registry.open("host", rank).unwrap()).collect();
    let mut group = PlanGroup::new(&registry, verified.unwrap(), &devices, Options::default()).unwrap();
    let (data, limit) = (group.buffer("grad").unwrap(), group.buffer("max").unwrap());
    for (rank, values) in (0..).zip(ranks) {
        group.write(rank, data, values).unwrap();
        if read {
            group.write(rank, limit, &[max]).unwrap();
        }
    }
    group.execute().unwrap();
    (0..world).map(|rank| group.read(rank, data).unwrap()).collect()
}

fn norm(ranks: &[Vec<f32>]) -> f64 {
    ranks.iter().flatten().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn what_is_longer_is_scaled_to_the_greatest_norm() {
    for world in [1, 2, 3, 4] {
        for n in [1, 3, 511, 512, 513, 5000] {
            let value = |rank: usize, i: usize| ((rank * 31 + i * 7) % 23) as f32 - 11.5;
            let ranks: Vec<Vec<f32>> =
                (0..world).map(|rank| (0..n).map(|i| value(rank, i)).collect()).collect();
            let whole = norm(&ranks);
            for (max, read) in [(whole as f32 / 3.0, false), (whole as f32 / 3.0, true), (0.0, false)] {
                let got = clipped(&ranks, max, read);
                for (got, x) in got.iter().flatten().zip(ranks.iter().flatten()) {
                    let wanted = (f64::from(*x) * (f64::from(max) / whole)) as f32;
                    let apart = (got - wanted).abs();
                    assert!(
                        apart <= wanted.abs() * f32::EPSILON,
                        "n = {n}, world = {world}: {got} for {wanted}"
                    );
                }
            }
            assert_eq!(
                clipped(&ranks, (whole * 1.001) as f32, false),
                ranks,
                "shorter ones stay as they are"
            );
        }
    }
}

#[test]
fn edge_values_do_not_pass_unseen() {
    let huge = clipped(&[vec![f32::MAX; 4], vec![f32::MIN; 4]], 1.0, false);
    assert!((norm(&huge) - 1.0).abs() < 1e-6, "squares of all floats have a sum: {huge:?}");
    assert_eq!(clipped(&[vec![]], 1.0, false), [vec![]; 1] as [Vec<f32>; 1]);
    let zeros = [vec![0.0, -0.0]];
    assert_eq!(clipped(&zeros, 0.0, false), zeros);
    let nan = clipped(&[vec![1.0, 2.0], vec![f32::NAN, 1.0]], 5.0, false);
    assert!(nan.iter().flatten().all(|x| x.is_nan()), "{nan:?}");
    let inf = clipped(&[vec![1.0, -2.0], vec![f32::INFINITY, 1.0]], 5.0, false);
    assert_eq!((&inf[0][..], inf[1][0].is_nan(), inf[1][1]), (&[0.0, -0.0][..], true, 0.0));
}

#[test]
fn wrong_calls_are_refused_before_any_device() {
    let refused =
        |build: fn(u32, &mut GraphBuilder<'_>)| graphs("cuda", 1000, build).unwrap_err().to_string();
    let text = refused(|_, graph| {
        let op = OpSpec::new("clip_norm").arg("data", graph.buffer(grad(4))).arg("max", -1.0);
        graph.step(op);
    });
    assert!(text.contains("`max` is -1.0; no norm is negative"), "{text}");
    let text = refused(|rank, graph| {
        let op = OpSpec::new("clip_norm").arg("data", graph.buffer(grad(4)));
        graph.step(op.arg("max", if rank == 617 { 2.5 } else { 1.5 }));
    });
    assert!(text.contains("617") && text.contains("max = 2.5"), "{text}");
    let text = refused(|rank, graph| {
        let op = OpSpec::new("clip_norm").arg("data", graph.buffer(grad(4 + u64::from(rank / 999))));
        graph.step(op.arg("max", 1.5));
    });
    assert!(text.contains("data = 5"), "{text}");
}
