//! `top_k_reduce` on host devices against a reference written here: whole steps, edge values, refusals, and CUDA sources that compile.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use squall_core::conformance::Random;
use squall_core::{
    BufferDecl, DType, Download, GraphBuilder, OpSpec, Options, PlanGroup, Problems, Registry, TaskGraph,
    Upload, Verified, World, verify,
};
use squall_cuda_backend as _;
use squall_host_backend as _;
use squall_nccl_ops as _;
use top_k_reduce as _;

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

/// The op on `grad` of `n` elements, `k` of each rank, with a residual or without.
fn reduce(graph: &mut GraphBuilder<'_>, n: u64, k: i64, residual: bool) {
    let decl = |name, upload| BufferDecl::new(name, DType::F32, [n]).upload(upload).download(Download::Every);
    let mut op =
        OpSpec::new("top_k_reduce").arg("grad", graph.buffer(decl("grad", Upload::Every))).arg("k", k);
    if residual {
        op = op.arg("residual", graph.buffer(decl("residual", Upload::First)));
    }
    graph.step(op);
}

/// What all ranks' gradients come to, and what each rank's residual is then: sorted, with none of the plugin's ways.
fn reference(grads: &[Vec<f32>], residuals: &mut [Vec<f32>], k: usize) -> Vec<f32> {
    let mut sum = vec![0.0; grads[0].len()];
    for (grad, residual) in grads.iter().zip(residuals) {
        let mut all: Vec<f32> = grad.iter().zip(&*residual).map(|(grad, residual)| residual + grad).collect();
        let mut order: Vec<usize> = (0..all.len()).collect();
        let size = |x: f32| if x.is_nan() { f64::INFINITY } else { f64::from(x.abs()).min(1e300) };
        order.sort_by(|&i, &j| size(all[j]).total_cmp(&size(all[i])).then(i.cmp(&j)));
        for &i in &order[..k] {
            sum[i] += all[i];
            all[i] = 0.0;
        }
        *residual = all;
    }
    sum
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| if x.is_nan() { f32::NAN } else { *x }.to_bits()).collect()
}

/// Runs steps with these gradients, `grads[step][rank]`, and compares what is left on every rank with the reference, bit for bit.
fn agrees(grads: &[Vec<Vec<f32>>], k: usize, feedback: bool) {
    let (world, n) = (grads[0].len() as u32, grads[0][0].len());
    let verified = graphs("host", world, |_, graph| reduce(graph, n as u64, k as i64, feedback)).unwrap();
    let registry = Registry::linked().unwrap();
    let devices: Vec<_> = (0..world).map(|rank| registry.open("host", rank).unwrap()).collect();
    let mut group = PlanGroup::new(&registry, verified, &devices, Options::default()).unwrap();
    let (grad, residual) = (group.buffer("grad").unwrap(), group.buffer("residual"));
    let mut residuals = vec![vec![0.0; n]; world as usize];
    for (step, grads) in grads.iter().enumerate() {
        for (rank, values) in (0..).zip(grads) {
            group.write(rank, grad, values).unwrap();
            if let (Some(residual), 0) = (residual, step) {
                group.write(rank, residual, &vec![0f32; n]).unwrap();
            }
        }
        group.execute().unwrap();
        let expected = reference(grads, &mut residuals, k);
        for rank in 0..world {
            let what = format!("n = {n}, k = {k}, world = {world}, step {step}, rank {rank}");
            assert_eq!(bits(&group.read::<f32>(rank, grad).unwrap()), bits(&expected), "{what}");
            if let Some(residual) = residual {
                let kept = group.read::<f32>(rank, residual).unwrap();
                assert_eq!(bits(&kept), bits(&residuals[rank as usize]), "residual: {what}");
            }
        }
        if !feedback {
            residuals.iter_mut().for_each(|residual| residual.fill(0.0));
        }
    }
}

/// Numbers of many sizes and both signs, some of them equal.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..n).map(|_| (random.below(2001) as f32 - 1000.0) * 2f32.powi(random.below(40) as i32 - 20)).collect()
}

#[test]
fn every_world_gets_the_sum_of_the_largest() {
    for world in [1, 2, 3, 4] {
        for (n, k) in [(1, 1), (2, 1), (10, 3), (10, 10), (1000, 1), (1000, 17), (5000, 5000)] {
            for feedback in [false, true] {
                let grads: Vec<Vec<Vec<f32>>> = (0..3)
                    .map(|step| (0..world).map(|rank| numbers(step * 100 + rank + 7 * n as u64, n)).collect())
                    .collect();
                agrees(&grads, k, feedback);
            }
        }
    }
}

#[test]
fn edge_values_are_selected_as_told() {
    let nan = |payload: u32| f32::from_bits(0x7f80_0000 | payload);
    let (inf, tiny) = (f32::INFINITY, f32::from_bits(1));
    let rows: &[&[f32]] = &[
        &[0.0; 6],
        &[-0.0, 0.0, -0.0, 0.0, -0.0, 0.0],
        &[2.0, -2.0, 2.0, -2.0, 2.0, -2.0],
        &[1.0, nan(5), -inf, nan(0x40_0001), inf, -nan(9)],
        &[inf, f32::MAX, -inf, f32::MIN, tiny, -tiny],
        &[tiny, -tiny, f32::MIN_POSITIVE, 0.0, -0.0, tiny],
    ];
    for row in rows {
        for k in 1..=row.len() {
            agrees(&[vec![row.to_vec()], vec![row.to_vec()]], k, false);
            agrees(&[vec![row.to_vec(), rows[2].to_vec()]], k, true);
        }
    }
}

#[test]
fn of_equal_magnitudes_the_lower_index_is_first() {
    agrees(&[vec![vec![-3.0; 3000], vec![3.0; 3000]]], 1234, false);
    let signs: Vec<f32> = (0..3000).map(|i| if i % 3 == 0 { -1.5 } else { 1.5 }).collect();
    agrees(&[vec![signs.clone()], vec![signs]], 2999, true);
}

fn refused(device: &str, world: u32, build: impl Fn(u32, &mut GraphBuilder<'_>)) -> String {
    graphs(device, world, build).unwrap_err().to_string()
}

#[test]
fn wrong_arguments_are_refused_before_any_device() {
    for device in ["host", "cuda"] {
        for (k, said) in [(0, "`k` is 0"), (9, "`k` is 9, but `grad` has 8 elements")] {
            let text = refused(device, 1, |_, graph| reduce(graph, 8, k, false));
            assert!(text.contains(said), "{text}");
        }
        let text = refused(device, 1, |_, graph| reduce(graph, 0, 1, false));
        assert!(text.contains("`grad` has 0 elements"), "{text}");
        let text = refused(device, 1, |_, graph| reduce(graph, 1 << 32, 1, false));
        assert!(text.contains("4294967295 are the most"), "{text}");
    }
    let shaped = |dtype, shape: [u64; 1]| {
        refused("host", 1, |_, graph| {
            let grad = graph.buffer(BufferDecl::new("grad", dtype, [8]).upload(Upload::First));
            let residual = graph.buffer(BufferDecl::new("residual", dtype, shape).upload(Upload::First));
            graph.step(OpSpec::new("top_k_reduce").arg("grad", grad).arg("k", 1).arg("residual", residual));
        })
    };
    let text = shaped(DType::F32, [7]);
    assert!(text.contains("`residual` has 7 elements, but `grad` has 8; they must be equal"), "{text}");
    let text = shaped(DType::F64, [8]);
    assert!(text.contains("`grad` takes f32, not f64"), "{text}");
}

#[test]
fn ranks_that_differ_are_refused_at_any_world() {
    let text = refused("cuda", 1000, |rank, graph| reduce(graph, 64, if rank == 617 { 3 } else { 4 }, false));
    assert!(text.contains("617") && text.contains("k = 3") && text.contains("k = 4"), "{text}");
    let text = refused("host", 3, |rank, graph| reduce(graph, 64 + u64::from(rank / 2), 4, false));
    assert!(text.contains("grad = 64") && text.contains("grad = 65"), "{text}");
    let text = refused("host", 2, |rank, graph| {
        let decl = |name| BufferDecl::new(name, DType::F32, [8]).upload(Upload::First);
        let (grad, residual) = (graph.buffer(decl("grad")), graph.buffer(decl("residual")));
        let op = OpSpec::new("top_k_reduce").arg("grad", grad).arg("k", 1);
        graph.step(if rank == 0 { op } else { op.arg("residual", residual) });
    });
    assert!(text.contains("residual"), "{text}");
}
