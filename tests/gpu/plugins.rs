//! Plugins, loaded: on GPUs they give what they give on the host.

use squall_core::conformance::Random;
use squall_core::{BufferDecl, DType, Download, GraphBuilder, OpSpec, Upload};

use squall_tests::{Copied, with_gemm};

use crate::examples::ran;
use crate::on::On;

const STEPS: u64 = 4;

/// The first `inputs` buffers of a rank in a step.
type Input<'a> = &'a dyn Fn(u32, u64, usize) -> Vec<f32>;

/// What every rank's buffers of these names hold after each of some steps. Those among them that `input` fills are written before each
/// step, which is the first, the second, the third that is captured, and more replays.
fn results(
    on: On,
    names: &[&str],
    inputs: usize,
    input: Input<'_>,
    build: &dyn Fn(&mut GraphBuilder<'_>),
) -> Vec<Vec<f32>> {
    let graphs = on.graphs(on.ranks, |_, graph| build(graph));
    let mut group = on.bind(graphs, on.options());
    let buffers: Vec<_> = names.iter().map(|name| group.buffer(name).unwrap()).collect();
    let mut all = Vec::new();
    for step in 0..STEPS {
        for rank in 0..on.ranks {
            for (place, &buffer) in buffers.iter().enumerate().take(inputs) {
                group.write(rank, buffer, &input(rank, step, place)).unwrap();
            }
        }
        group.execute().unwrap();
        for rank in 0..on.ranks {
            all.extend(buffers.iter().map(|&buffer| group.read::<f32>(rank, buffer).unwrap()));
        }
    }
    all
}

/// On these devices and on as many of the host's, for one rank and for as many as there are.
fn with_the_host(
    on: On,
    names: &[&str],
    inputs: usize,
    input: Input<'_>,
    build: &dyn Fn(&mut GraphBuilder<'_>),
    same: &dyn Fn(f32, f32) -> bool,
) {
    for ranks in [1, on.ranks] {
        let on = On { ranks, ..on };
        let host = On { kind: "host", capture: false, ..on };
        let [got, expected] = [on, host].map(|on| results(on, names, inputs, input, build));
        for (at, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let apart = got.iter().zip(expected).position(|(&got, &expected)| !same(got, expected));
            if let Some(i) = apart {
                let (got, expected) = (got[i], expected[i]);
                panic!("{ranks} ranks, buffer {at}, element {i}: {got} for the host's {expected}");
            }
            assert_eq!(got.len(), expected.len());
        }
    }
}

fn same_bits(got: f32, expected: f32) -> bool {
    got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan())
}

fn every(name: &str, n: u64) -> BufferDecl {
    BufferDecl::new(name, DType::F32, [n]).upload(Upload::Every).download(Download::Every)
}

/// Numbers of many magnitudes, with ties, and some that are none.
fn numbers(rank: u32, step: u64, n: usize) -> Vec<f32> {
    let mut random = Random::new(step * 100 + u64::from(rank) + 1);
    let mut number = || (random.below(2001) as f32 - 1000.0) * 2f32.powi(random.below(40) as i32 - 20);
    (0..n).map(|_| number()).collect()
}

/// What a rank gives in a step: numbers, equal magnitudes, or numbers and what is none.
fn gradient(rank: u32, step: u64, n: usize) -> Vec<f32> {
    let mut values = numbers(rank, step, n);
    match step {
        1 => values.iter_mut().enumerate().for_each(|(i, x)| *x = if i % 3 == 0 { -1.5 } else { 1.5 }),
        2 => values
            .iter_mut()
            .step_by(97)
            .zip([f32::NAN, f32::INFINITY, -0.0, f32::MIN])
            .for_each(|(x, y)| *x = y),
        _ => {}
    }
    values
}

/// The same selection, the same sums.
pub(crate) fn top_k(on: On) {
    let large = if on.is_gpu() { 20_000_003 } else { 200_003 };
    for (n, k) in [(1, 1), (5, 3), (1000, 1000), (4099, 4000), (100_001, 77), (large, large / 100)] {
        let build = |graph: &mut GraphBuilder<'_>| {
            let grad = graph.buffer(every("grad", n));
            graph.step(OpSpec::new("top_k_reduce").arg("grad", grad).arg("k", k as i64));
        };
        let input = |rank, step, _| gradient(rank, step, n as usize);
        with_the_host(on, &["grad"], 1, &input, &build, &same_bits);
    }
}

/// The residual is kept from step to step.
pub(crate) fn top_k_with_feedback(on: On) {
    for (n, k) in [(7, 2), (100_003, 500)] {
        let build = |graph: &mut GraphBuilder<'_>| {
            let grad = graph.buffer(every("grad", n));
            let residual =
                graph.buffer(BufferDecl::new("residual", DType::F32, [n]).download(Download::Every));
            let zero =
                squall_core::KernelSpec::new(crate::on::kernel("fill")).arg("dst", residual).arg("value", 0);
            graph.setup(zero.grid(n, 256));
            let op = OpSpec::new("top_k_reduce").arg("grad", grad).arg("k", k);
            graph.step(op.arg("residual", residual));
        };
        let input = |rank, step, _| numbers(rank, step, n as usize);
        with_the_host(on, &["grad", "residual"], 1, &input, &build, &same_bits);
    }
}

/// Two sums of squares in two orders: the same to the last bit but one.
pub(crate) fn clip_norm(on: On) {
    for n in [1, 511, 100_003] {
        let build = |graph: &mut GraphBuilder<'_>| {
            let data = graph.buffer(every("data", n));
            graph.step(OpSpec::new("clip_norm").arg("data", data).arg("max", 2.5));
        };
        let input = |rank, step, _| numbers(rank, step, n as usize);
        let close = |got: f32, expected: f32| (got - expected).abs() <= expected.abs() * f32::EPSILON;
        with_the_host(on, &["data"], 1, &input, &build, &close);
    }
}

/// The weights are those of the training on the host.
pub(crate) fn digits(on: On) {
    let copied = Copied::new("digits");
    with_gemm(&copied);
    for ranks in [1, on.ranks] {
        let [got, expected] = [on, On::HOST].map(|on| {
            assert_eq!(ran(on, &copied, "gemm.toml", ranks).steps, 450);
            copied.read::<f32>("out/w.npy").0
        });
        let apart = got.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart <= 1e-4, "{ranks} ranks: {apart} apart");
    }
}

/// Small whole numbers, whose products have exact sums in any order.
pub(crate) fn gemm(on: On) {
    for ([m, n, k], transposed) in [
        ([1, 1, 1], [false, false]),
        ([33, 65, 17], [false, true]),
        ([64, 10, 40], [true, false]),
        ([31, 7, 200], [true, true]),
    ] {
        let turned = |shape: [u64; 2], is: bool| if is { [shape[1], shape[0]] } else { shape };
        let build = |graph: &mut GraphBuilder<'_>| {
            let shapes = [turned([m, k], transposed[0]), turned([k, n], transposed[1]), [m, n]];
            let [a, b, c] = [0, 1, 2].map(|place| {
                let decl = BufferDecl::new(["a", "b", "c"][place], DType::F32, shapes[place]);
                graph.buffer(decl.upload(Upload::Every).download(Download::Every))
            });
            let product = |alpha: f64, beta: f64| {
                let op = OpSpec::new("gemm")
                    .arg("a", a)
                    .arg("b", b)
                    .arg("c", c)
                    .arg("alpha", alpha)
                    .arg("beta", beta);
                op.arg("transpose_a", transposed[0]).arg("transpose_b", transposed[1])
            };
            graph.step(product(2.0, -1.0));
            graph.step(product(1.0, 1.0));
        };
        let input = |rank: u32, step: u64, place: usize| {
            let len = [m * k, k * n, m * n][place];
            let value = |i| (i * (7 + place as u64) + step + u64::from(rank)) % 11;
            (0..len).map(|i| value(i) as f32 - 5.0).collect::<Vec<f32>>()
        };
        with_the_host(on, &["a", "b", "c"], 3, &input, &build, &same_bits);
    }
}
