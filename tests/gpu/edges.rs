//! What is empty, odd, huge, or rounded.

use half::{bf16, f16};
use squall_core::{BufferDecl, BufferId, DType, Download, KernelSpec, OpSpec, ReduceOp, Upload};
use squall_tests::{Ran, run_text_on};

use crate::on::{On, kernel};

/// Runs a manifest's buffers and tasks for some steps, on as many devices as the trial has.
fn ran(on: On, steps: u32, text: &str) -> Ran {
    let text = format!("steps = {steps}\ncuda_graph = {}\n{text}", on.capture);
    run_text_on(&on.devices(on.ranks), &text).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn empty(on: On) {
    let ran = ran(
        on,
        3,
        r#"
[buffer.x]
dtype = "i32"
shape = ["0 if rank == 1 else 512"]
init = { fill = "rank + 1" }
save = "x-{rank}.npy"
[buffer.edge]
dtype = "i32"
shape = [1]
init = { fill = "7 + rank" }
[buffer.got]
dtype = "i32"
shape = [1]
save = { npy = "got-0.npy", rank = 0 }
[buffer.total]
dtype = "i32"
shape = [1]
init = { fill = 1 }
save = "total-{rank}.npy"
[[task]]
group = [
  { when = "rank == 0", op = "send", args = { buffer = "edge", peer = 0 } },
  { when = "rank == 0", op = "recv", args = { buffer = "got", peer = 0 } },
]
[[task]]
kernel = "scale"
args = { data = "x", factor = 3 }
grid = { threads = "len(x)", block = 256 }
[[task]]
op = "all_reduce"
args = { buffer = "total", reduce = "sum" }
"#,
    );
    assert_eq!(ran.saved::<i32>("got", 0), [7]);
    for rank in 0..on.ranks {
        if rank != 1 {
            assert_eq!(ran.saved::<i32>("x", rank), [27 * (rank as i32 + 1); 512]);
        }
        assert_eq!(ran.saved::<i32>("total", rank), [on.ranks.pow(3) as i32]);
    }
}

/// Sums and shifts of views that begin anywhere, and a kernel on them, each with its neighbours beside it.
pub(crate) fn views(on: On) {
    const MARGIN: u64 = 5;
    const UNTOUCHED: u32 = 99;
    // Where views begin, and how long they are.
    let views: Vec<(u64, u64)> =
        [1, 2, 3, 7, 33, 100_003].iter().flat_map(|&count| (0..4).map(move |begin| (begin, count))).collect();
    let neighbour = |rank| (rank + on.ranks - 1) % on.ranks;
    // Small whole numbers, which every dtype here holds.
    let number = |rank: u32, i: u64| (i % 5) as u32 + rank;
    let total = |i: u64| (0..on.ranks).map(|rank| number(rank, i)).sum::<u32>();
    for dtype in [DType::U8, DType::Bf16, DType::F32] {
        let graphs = on.graphs(on.ranks, |rank, graph| {
            for (index, &(begin, count)) in views.iter().enumerate() {
                let [x, sum, got, added] = ["x", "sum", "got", "added"].map(|name| {
                    let decl = BufferDecl::new(&format!("{name}-{index}"), dtype, [begin + count + MARGIN]);
                    let buffer = graph.buffer(decl.upload(Upload::First).download(Download::Last));
                    graph.whole(buffer).unwrap().elements(begin..begin + count).unwrap()
                });
                let all = OpSpec::new("all_reduce").arg("send", x.clone()).arg("recv", sum);
                graph.step(all.arg("reduce", ReduceOp::Sum));
                let shift = OpSpec::new("send_recv").arg("send", x.clone()).arg("to", (rank + 1) % on.ranks);
                graph.step(shift.arg("recv", got).arg("from", neighbour(rank)));
                let add = KernelSpec::new(kernel("add")).arg("a", x.clone()).arg("b", x).arg("out", added);
                graph.step(add.grid(count, 64));
            }
        });
        let mut group = on.bind(graphs, on.options());
        let bytes = |len: u64, value: &dyn Fn(u64) -> u32| -> Vec<u8> {
            (0..len).flat_map(|i| encoded(dtype, value(i))).collect()
        };
        let buffer = |index: usize, which: usize| BufferId((4 * index + which) as u32);
        for rank in 0..on.ranks {
            for (index, &(begin, count)) in views.iter().enumerate() {
                let len = begin + count + MARGIN;
                group.write_bytes(rank, buffer(index, 0), &bytes(len, &|i| number(rank, i))).unwrap();
                for which in 1..4 {
                    group.write_bytes(rank, buffer(index, which), &bytes(len, &|_| UNTOUCHED)).unwrap();
                }
            }
        }
        for _ in 0..3 {
            group.execute().unwrap();
        }
        for rank in 0..on.ranks {
            for (index, &(begin, count)) in views.iter().enumerate() {
                let len = begin + count + MARGIN;
                let inside = |value: &dyn Fn(u64) -> u32| {
                    bytes(len, &|i| if (begin..begin + count).contains(&i) { value(i) } else { UNTOUCHED })
                };
                let what = format!("{count} of {dtype} from {begin} on rank {rank}");
                let mut read = |which| group.read_bytes(rank, buffer(index, which)).unwrap();
                assert!(read(0) == bytes(len, &|i| number(rank, i)), "{what}: the source");
                assert!(read(1) == inside(&total), "{what}: the sum");
                assert!(read(2) == inside(&|i| number(neighbour(rank), i)), "{what}: what was received");
                assert!(read(3) == inside(&|i| 2 * number(rank, i)), "{what}: the kernel");
            }
        }
    }
}

/// A small whole number in a dtype.
fn encoded(dtype: DType, number: u32) -> Vec<u8> {
    match dtype {
        DType::U8 => vec![number as u8],
        DType::Bf16 => bf16::from_f32(number as f32).to_ne_bytes().to_vec(),
        _ => (number as f32).to_ne_bytes().to_vec(),
    }
}

pub(crate) fn odd_and_large(on: On) {
    const N: u64 = 10_556_587;
    let graphs = on.graphs(on.ranks, |_, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::F32, [N]).upload(Upload::Every));
        let sum = OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Sum);
        graph.step(sum);
    });
    let mut group = on.bind(graphs, on.options());
    let x = group.buffer("x").unwrap();
    let number = |rank: u32, i: usize| (i % 1000) as f32 + rank as f32;
    for rank in 0..on.ranks {
        let values: Vec<f32> = (0..N as usize).map(|i| number(rank, i)).collect();
        group.write(rank, x, &values).unwrap();
    }
    for _ in 0..3 {
        group.execute().unwrap();
        for rank in 0..on.ranks {
            for (i, got) in group.read::<f32>(rank, x).unwrap().into_iter().enumerate() {
                let sum: f32 = (0..on.ranks).map(|rank| number(rank, i)).sum();
                assert_eq!(got, sum, "rank {rank}, element {i}");
            }
        }
    }
}

/// More elements and bytes than 31 bits count, in kernels, in an op and in ranges: the last ones tell.
pub(crate) fn huge(on: On) {
    const N: u64 = (1 << 31) + 8;
    let graphs = on.graphs(2, |rank, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::U8, [N]));
        let tail = graph.buffer(BufferDecl::new("tail", DType::U8, [8]).upload(Upload::Every));
        let end = graph.buffer(BufferDecl::new("end", DType::U8, [16]).download(Download::Every));
        let part = |begin| graph.whole(x).unwrap().elements(begin..N).unwrap();
        let (last_8, last_16) = (part(N - 8), part(N - 16));
        let value = 50 + rank;
        graph.step(KernelSpec::new(kernel("fill")).arg("dst", x).arg("value", value).grid(N, 256));
        graph.step(KernelSpec::new(kernel("copy")).arg("src", tail).arg("dst", last_8).grid(8, 32));
        graph.step(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Max));
        graph.step(KernelSpec::new(kernel("copy")).arg("src", last_16).arg("dst", end).grid(16, 32));
    });
    let mut group = on.bind(graphs, on.options());
    let [tail, end] = ["tail", "end"].map(|name| group.buffer(name).unwrap());
    for step in 0..3u8 {
        for rank in 0..2 {
            // Rank 0 has the greater of even bytes, rank 1 of odd ones.
            let bytes: Vec<u8> =
                (0..8).map(|i| if u32::from(i) % 2 == rank { 100 + i + step } else { i }).collect();
            group.write(rank, tail, &bytes).unwrap();
        }
        group.execute().unwrap();
        let expected: Vec<u8> = [51; 8].into_iter().chain((0..8).map(|i| 100 + i + step)).collect();
        for rank in 0..2 {
            assert_eq!(group.read::<u8>(rank, end).unwrap(), expected, "rank {rank}, step {step}");
        }
    }
}

/// Floats may be summed in any order, and a library may divide before it sums: what counts is that all ranks get the same bits.
pub(crate) fn rounding(on: On) {
    let text = r#"
[params]
parts = [100000000, 1, -100000000, 1]
[buffer.large]
dtype = "f16"
shape = [1]
init = { fill = 60000 }
[buffer.avg]
dtype = "f16"
shape = [1]
save = "avg-{rank}.npy"
[buffer.small]
dtype = "bf16"
shape = [1000]
init = { fill = "256 if rank == 0 else 1" }
[buffer.half]
dtype = "bf16"
shape = [1000]
save = "half-{rank}.npy"
[buffer.part]
dtype = "f32"
shape = [1000]
init = { fill = "parts[rank % 4]" }
[buffer.total]
dtype = "f32"
shape = [1000]
save = "total-{rank}.npy"
[[task]]
op = "all_reduce"
args = { send = "large", recv = "avg", reduce = "avg" }
[[task]]
op = "all_reduce"
args = { send = "small", recv = "half", reduce = "sum" }
[[task]]
op = "all_reduce"
args = { send = "part", recv = "total", reduce = "sum" }
"#;
    let ran = ran(on, 3, text);
    let (avg, half, total) =
        (ran.saved::<f16>("avg", 0), ran.saved::<bf16>("half", 0), ran.saved::<f32>("total", 0));
    let large = f16::from_f32(60000.0);
    assert!(avg == [large] || on.is_gpu() && avg == [f16::INFINITY], "{avg:?}");
    // Of 256 and ones: bf16 has nothing between 256 and 258.
    let halves = [256.0, 258.0, 260.0].map(bf16::from_f32);
    assert!(half.iter().all(|sum| halves.contains(sum)), "{half:?}");
    let totals: &[f32] = if on.ranks == 2 { &[100_000_000.0] } else { &[0.0, 1.0, 2.0] };
    assert!(total.iter().all(|sum| totals.contains(sum)), "{total:?}");
    if on.is_gpu() {
        println!("recorded: the f16 average of {} times 60000 is {}", on.ranks, avg[0]);
        println!("recorded: the bf16 sum of 256 and {} ones is {}", on.ranks - 1, half[0]);
    }
    let bits = |total: Vec<f32>| total.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let total = bits(total);
    for rank in 1..on.ranks {
        assert_eq!(ran.saved::<f16>("avg", rank), avg);
        assert_eq!(ran.saved::<bf16>("half", rank), half);
        assert_eq!(bits(ran.saved::<f32>("total", rank)), total);
    }
}
