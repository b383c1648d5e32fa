//! `gemm` on host devices against sums that are taken here, and what is refused before any device.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use squall_blas as _;
use squall_core::{
    BufferDecl, DType, Download, GraphBuilder, OpSpec, Options, PlanGroup, Problems, Registry, TaskGraph,
    Upload, Verified, World, verify,
};
use squall_cuda_backend as _;
use squall_host_backend as _;

fn graphs(device: &str, world: u32, build: impl Fn(&mut GraphBuilder<'_>)) -> Result<Verified, Problems> {
    let (registry, shared) = (Registry::linked().unwrap(), Arc::new(World::new(world.into()).unwrap()));
    let graph = |rank| {
        let mut graph = TaskGraph::builder(&registry, &shared, rank, device);
        build(&mut graph);
        graph.build()
    };
    verify((0..world).map(graph).collect::<Result<_, _>>()?)
}

/// A product's lengths, numbers and transpositions.
#[derive(Clone, Copy, Debug)]
struct Case {
    lengths: [usize; 3],
    numbers: Option<[f64; 2]>,
    transposed: [bool; 2],
}

impl Case {
    fn shapes(&self) -> [[u64; 2]; 3] {
        let [m, n, k] = self.lengths.map(|length| length as u64);
        let turned = |[rows, columns]: [u64; 2], is| if is { [columns, rows] } else { [rows, columns] };
        [turned([m, k], self.transposed[0]), turned([k, n], self.transposed[1]), [m, n]]
    }

    fn build(&self, graph: &mut GraphBuilder<'_>, dtype: DType) {
        let mut op = OpSpec::new("gemm");
        // `c` is not given contents where it is only written: then what it holds must not matter.
        let reads_c = self.numbers.is_some_and(|[_, beta]| beta != 0.0);
        for (name, shape) in ["a", "b", "c"].into_iter().zip(self.shapes()) {
            let upload = if name != "c" || reads_c { Upload::Every } else { Upload::Never };
            let decl = BufferDecl::new(name, dtype, shape).upload(upload).download(Download::Every);
            op = op.arg(name, graph.buffer(decl));
        }
        if let Some([alpha, beta]) = self.numbers {
            op = op.arg("alpha", alpha).arg("beta", beta);
        }
        op = op.arg("transpose_a", self.transposed[0]).arg("transpose_b", self.transposed[1]);
        graph.step(op);
    }

    /// Small whole numbers, so that every sum is exact in both dtypes.
    fn values(&self, rank: u32, matrix: usize) -> Vec<f64> {
        let len = self.shapes()[matrix].iter().product::<u64>() as usize;
        (0..len).map(|i| ((i * (7 + matrix) + rank as usize * 3) % 11) as f64 - 5.0).collect()
    }

    fn expected(&self, rank: u32) -> Vec<f64> {
        let [m, n, k] = self.lengths;
        let [a, b, c] = [0, 1, 2].map(|matrix| self.values(rank, matrix));
        let [alpha, beta] = self.numbers.unwrap_or([1.0, 0.0]);
        let at = |x: &[f64], columns: usize, rows: usize, transposed, i: usize, j: usize| match transposed {
            false => x[i * columns + j],
            true => x[j * rows + i],
        };
        let term = |i, j, l| at(&a, k, m, self.transposed[0], i, l) * at(&b, n, k, self.transposed[1], l, j);
        let sum = |i: usize, j: usize| (0..k).map(|l| term(i, j, l)).sum::<f64>();
        (0..m * n).map(|at| alpha * sum(at / n, at % n) + beta * c[at]).collect()
    }
}

fn agrees(world: u32, case: Case) {
    let registry = Registry::linked().unwrap();
    for dtype in [DType::F32, DType::F64] {
        let verified = graphs("host", world, |graph| case.build(graph, dtype)).unwrap();
        let devices: Vec<_> = (0..world).map(|rank| registry.open("host", rank).unwrap()).collect();
        let mut group = PlanGroup::new(&registry, verified, &devices, Options::default()).unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| group.buffer(name).unwrap());
        let matrices =
            if case.numbers.is_some_and(|[_, beta]| beta != 0.0) { &[a, b, c][..] } else { &[a, b] };
        for rank in 0..world {
            for (matrix, &buffer) in matrices.iter().enumerate() {
                let values = case.values(rank, matrix);
                let single: Vec<f32> = values.iter().map(|&x| x as f32).collect();
                match dtype {
                    DType::F32 => group.write(rank, buffer, &single).unwrap(),
                    _ => group.write(rank, buffer, &values).unwrap(),
                }
            }
        }
        group.execute().unwrap();
        for rank in 0..world {
            let got: Vec<f64> = match dtype {
                DType::F32 => group.read::<f32>(rank, c).unwrap().into_iter().map(f64::from).collect(),
                _ => group.read(rank, c).unwrap(),
            };
            assert_eq!(got, case.expected(rank), "{dtype}, world {world}, rank {rank}: {case:?}");
        }
    }
}

#[test]
fn products_are_those_of_the_definition() {
    for lengths in [[1, 1, 1], [2, 3, 4], [17, 5, 33], [64, 70, 9], [1, 100, 3]] {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            for numbers in [None, Some([2.0, 0.0]), Some([-1.0, 3.0]), Some([0.0, 0.5])] {
                agrees(1, Case { lengths, numbers, transposed });
            }
        }
    }
    for world in [2, 3, 4] {
        agrees(world, Case { lengths: [6, 7, 8], numbers: Some([1.0, 1.0]), transposed: [false, true] });
    }
}

#[test]
fn empty_matrices_have_products() {
    for lengths in [[0, 3, 2], [3, 0, 2], [3, 2, 0], [0, 0, 0]] {
        for numbers in [None, Some([1.0, 2.0])] {
            agrees(1, Case { lengths, numbers, transposed: [false, false] });
            agrees(1, Case { lengths, numbers, transposed: [true, true] });
        }
    }
}

/// What is said of `gemm` with these shapes and dtype.
fn said(
    device: &str,
    dtype: DType,
    shapes: [&[u64]; 3],
    more: fn(&mut GraphBuilder<'_>, OpSpec) -> OpSpec,
) -> String {
    let outcome = graphs(device, 1, |graph| {
        let mut op = OpSpec::new("gemm");
        for (name, shape) in ["a", "b", "c"].into_iter().zip(shapes) {
            op = op.arg(name, graph.buffer(BufferDecl::new(name, dtype, shape).upload(Upload::First)));
        }
        let op = more(graph, op);
        graph.step(op);
    });
    outcome.map_or_else(|problems| problems.to_string(), |_| "nothing".to_string())
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let plain = |_: &mut GraphBuilder<'_>, op| op;
    for device in ["host", "cuda"] {
        let said = |shapes, more| said(device, DType::F32, shapes, more);
        assert_eq!(said([&[2, 3], &[3, 4], &[2, 4]], plain), "nothing");
        let text = said([&[2, 3], &[5, 4], &[2, 4]], plain);
        assert!(text.contains("`b` has 5 on axis 0, but axis 1 of `a` is 3; they must be equal"), "{text}");
        let turned =
            |_: &mut GraphBuilder<'_>, op: OpSpec| op.arg("transpose_a", true).arg("transpose_b", true);
        let text = said([&[2, 3], &[3, 4], &[2, 4]], turned);
        assert!(text.contains("`b` has 4 on axis 1, but axis 0 of `a` is 2"), "{text}");
        let text = said([&[2, 3], &[3, 4], &[4, 2]], plain);
        assert!(text.contains("`c` is 4 by 2, but the product is 2 by 4"), "{text}");
        let text = said([&[6], &[3, 4], &[2, 4]], plain);
        assert!(text.contains("`a` has the shape [6], but a matrix has two axes"), "{text}");
        let read = |graph: &mut GraphBuilder<'_>, op: OpSpec| {
            let beta = graph.buffer(BufferDecl::new("beta", DType::F32, [1]).upload(Upload::First));
            op.arg("beta", beta)
        };
        let text = said([&[2, 3], &[3, 4], &[2, 4]], read);
        assert!(text.contains("`beta` must be a number, not a buffer"), "{text}");
    }
}

#[test]
fn each_device_takes_the_dtypes_it_can_multiply() {
    let plain = |_: &mut GraphBuilder<'_>, op| op;
    let shapes: [&[u64]; 3] = [&[2, 3], &[3, 4], &[2, 4]];
    for (dtype, host) in [(DType::F16, false), (DType::Bf16, false), (DType::F32, true), (DType::F64, true)] {
        assert_eq!(said("cuda", dtype, shapes, plain), "nothing", "{dtype}");
        let text = said("host", dtype, shapes, plain);
        assert_eq!(text == "nothing", host, "{text}");
        assert!(host || text.contains("`gemm` by the library `blas` takes f32, f64"), "{text}");
    }
    assert!(said("cuda", DType::I32, shapes, plain).contains("`a` takes f16, bf16, f32, f64, not i32"));
}

#[test]
fn what_is_only_written_may_hold_anything_before() {
    let case = |beta| Case { lengths: [2, 2, 2], numbers: Some([1.0, beta]), transposed: [false, false] };
    let unwritten = |beta| {
        graphs("host", 1, |graph| {
            let never = |name| BufferDecl::new(name, DType::F32, [2, 2]);
            let [a, b] = ["a", "b"].map(|name| graph.buffer(never(name).upload(Upload::First)));
            let op = OpSpec::new("gemm").arg("a", a).arg("b", b).arg("c", graph.buffer(never("c")));
            graph.step(op.arg("beta", beta));
        })
    };
    assert!(unwritten(0.0).is_ok());
    let text = unwritten(1.0).unwrap_err().to_string();
    assert!(text.contains("`c`"), "{text}");
    agrees(1, case(0.0));
}
