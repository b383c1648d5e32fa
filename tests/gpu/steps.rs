//! Steps with new input, captured and replayed, and results that are read in time.

use squall_core::{
    BufferDecl, DType, Download, Feed, GroupSpec, KernelSpec, OpSpec, PlanGroup, ReduceOp, TaskGraph, Upload,
};

use crate::kernels::SLOW_COPY;
use crate::on::{ALONE, On, kernel};

const STEPS: u64 = 50;
/// Elements of a rank's input, or of a block of it.
const N: u64 = 1003;

/// Element `i` of a rank's input in a step.
fn value(rank: u32, step: u64, i: usize) -> i32 {
    (rank as i32 + 1) * 1000 + step as i32 * 17 + (i % 101) as i32
}

/// Gives a rank its input.
struct Values(u32);

impl Feed for Values {
    fn fill(&mut self, step: u64, out: &mut [u8]) -> Result<(), String> {
        for (i, element) in out.as_chunks_mut().0.iter_mut().enumerate() {
            *element = value(self.0, step, i).to_ne_bytes();
        }
        Ok(())
    }
}

/// Runs steps over the input `x` of so many elements, once written before every step and once fed, and compares `y` of every step
/// with what is expected of a rank, a step and an element.
fn stepped(on: On, graphs: &[TaskGraph], n: u64, expected: impl Fn(u32, u64, usize) -> i32) {
    let group = || {
        let group = on.bind(graphs.to_vec(), on.options());
        let (x, y) = (group.buffer("x").unwrap(), group.buffer("y").unwrap());
        (group, x, y)
    };
    let check = |group: &mut PlanGroup, y, step: u64, how: &str| {
        for rank in 0..on.ranks {
            let got = group.read::<i32>(rank, y).unwrap();
            for (i, got) in got.into_iter().enumerate() {
                assert_eq!(got, expected(rank, step, i), "{how}: rank {rank}, step {step}, element {i}");
            }
        }
    };
    let (mut written, x, y) = group();
    for step in 0..STEPS {
        for rank in 0..on.ranks {
            let input: Vec<i32> = (0..n as usize).map(|i| value(rank, step, i)).collect();
            written.write(rank, x, &input).unwrap();
        }
        written.execute().unwrap();
        check(&mut written, y, step, "written");
    }
    drop(written);

    let (mut fed, x, y) = group();
    for rank in 0..on.ranks {
        fed.feed(rank, x, Box::new(Values(rank))).unwrap();
    }
    for step in 0..STEPS {
        fed.execute().unwrap();
        check(&mut fed, y, step, "fed");
    }
    // And queued.
    fed.execute_many(STEPS).unwrap();
    check(&mut fed, y, 2 * STEPS - 1, "queued");
}

fn input(n: u64) -> BufferDecl {
    BufferDecl::new("x", DType::I32, [n]).upload(Upload::Every)
}

fn output(n: u64) -> BufferDecl {
    BufferDecl::new("y", DType::I32, [n]).download(Download::Every)
}

/// kernel → all_reduce.
pub(crate) fn all_reduce(on: On) {
    let graphs = on.graphs(on.ranks, |_, graph| {
        let (x, y) = (graph.buffer(input(N)), graph.buffer(output(N)));
        graph.step(KernelSpec::new(kernel("scale")).arg("data", x).arg("factor", 3).grid(N, 256));
        graph.step(OpSpec::new("all_reduce").arg("send", x).arg("recv", y).arg("reduce", ReduceOp::Sum));
    });
    stepped(on, &graphs, N, |_, step, i| (0..on.ranks).map(|rank| 3 * value(rank, step, i)).sum());
}

/// send_recv around a ring → kernel.
pub(crate) fn ring(on: On) {
    let graphs = on.graphs(on.ranks, |rank, graph| {
        let (x, y) = (graph.buffer(input(N)), graph.buffer(output(N)));
        let (right, left) = ((rank + 1) % on.ranks, (rank + on.ranks - 1) % on.ranks);
        let shift = OpSpec::new("send_recv").arg("send", x).arg("to", right);
        graph.step(shift.arg("recv", y).arg("from", left));
        graph.step(KernelSpec::new(kernel("scale")).arg("data", y).arg("factor", 2).grid(N, 256));
    });
    stepped(on, &graphs, N, |rank, step, i| 2 * value((rank + on.ranks - 1) % on.ranks, step, i));
}

/// Every rank adds its input to what the rank before it gives, and gives that to the next.
pub(crate) fn pipeline(on: On) {
    let graphs = on.graphs(on.ranks, |rank, graph| {
        let (x, y) = (graph.buffer(input(N)), graph.buffer(output(N)));
        let h = graph.buffer(BufferDecl::new("h", DType::I32, [N]));
        if rank == 0 {
            graph.step(KernelSpec::new(kernel("copy")).arg("src", x).arg("dst", y).grid(N, 256));
        } else {
            graph.step(OpSpec::new("recv").arg("buffer", h).arg("peer", rank - 1));
            graph.step(KernelSpec::new(kernel("add")).arg("a", h).arg("b", x).arg("out", y).grid(N, 256));
        }
        if rank + 1 < on.ranks {
            graph.step(OpSpec::new("send").arg("buffer", y).arg("peer", rank + 1));
        }
    });
    stepped(on, &graphs, N, |rank, step, i| (0..=rank).map(|before| value(before, step, i)).sum());
}

/// Every rank gives every rank a block, in one group.
pub(crate) fn exchange(on: On) {
    let all = u64::from(on.ranks) * N;
    let graphs = on.graphs(on.ranks, |_, graph| {
        let (x, y) = (graph.buffer(input(all)), graph.buffer(output(all)));
        let mut group = GroupSpec::new();
        for peer in 0..on.ranks {
            let block = |of| {
                let begin = u64::from(peer) * N;
                graph.whole(of).unwrap().elements(begin..begin + N).unwrap()
            };
            group = group
                .with(OpSpec::new("send").arg("buffer", block(x)).arg("peer", peer))
                .with(OpSpec::new("recv").arg("buffer", block(y)).arg("peer", peer));
        }
        graph.step(group);
    });
    stepped(on, &graphs, all, |rank, step, i| {
        let (from, at) = (i / N as usize, i % N as usize);
        value(from as u32, step, rank as usize * N as usize + at)
    });
}

/// The step's number, everywhere.
struct Number;

impl Feed for Number {
    fn fill(&mut self, step: u64, out: &mut [u8]) -> Result<(), String> {
        out.as_chunks_mut().0.fill((step as i32).to_ne_bytes());
        Ok(())
    }
}

/// What is read after a step is of that step, however soon the next one starts, and what was read stays as it was.
pub(crate) fn never_of_another_step(on: On) {
    let (n, steps) = if on.is_gpu() { (16 << 20, 200) } else { (4096, 50) };
    let graphs = on.graphs(2, |rank, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::I32, [n]).upload(Upload::Every));
        let sent = graph.buffer(BufferDecl::new("sent", DType::I32, [n]));
        let got = graph.buffer(BufferDecl::new("got", DType::I32, [n]));
        let one = graph.buffer(BufferDecl::new("one", DType::I32, [n]));
        let out = graph.buffer(BufferDecl::new("out", DType::I32, [n]).download(Download::Every));
        graph.setup(KernelSpec::new(kernel("fill")).arg("dst", one).arg("value", 1).grid(n, 256));
        let slow = KernelSpec::new(&SLOW_COPY).arg("src", x).arg("dst", sent).arg("micros", 200);
        graph.step(slow.grid(n, 256));
        let send = OpSpec::new("send").arg("buffer", sent).arg("peer", 1 - rank);
        let recv = OpSpec::new("recv").arg("buffer", got).arg("peer", 1 - rank);
        graph.step(GroupSpec::new().with(send).with(recv));
        graph.step(KernelSpec::new(kernel("add")).arg("a", got).arg("b", one).arg("out", out).grid(n, 256));
    });
    let mut group = on.bind(graphs, on.options());
    let [x, out] = ["x", "out"].map(|name| group.buffer(name).unwrap());
    for rank in 0..2 {
        group.feed(rank, x, Box::new(Number)).unwrap();
    }
    let is =
        |bytes: &[u8], step: i32| bytes.as_chunks().0.iter().all(|word| *word == (step + 1).to_ne_bytes());
    let mut kept: [Vec<u8>; 2] = Default::default();
    for step in 0..steps {
        let running = group.start(1).unwrap();
        // The copies of the step before, while this one runs.
        for (rank, kept) in kept.iter().enumerate() {
            assert!(is(kept, step - 1), "the kept copy of step {} on rank {rank}", step - 1);
        }
        if step % 2 == 0 {
            running.wait().unwrap();
        } else {
            // Whoever reads waits for the step that is in flight.
            std::mem::forget(running);
        }
        for rank in 0..2 {
            let read = group.read_bytes(rank, out).unwrap();
            assert!(is(&read, step) && read.len() as u64 == 4 * n, "step {step} on rank {rank}");
            kept[rank as usize] = read;
        }
    }
}

/// The very first step of a process is one to capture: nothing of NCCL or the devices is connected.
pub(crate) fn cold(on: On) {
    on.apart("cold", &[], ALONE);
}

/// kernel → ring → all_reduce, captured, and then as it is.
pub(crate) fn cold_apart(_: On) {
    for capture in [true, false] {
        let on = On::gpus(2, capture);
        let graphs = on.graphs(2, |rank, graph| {
            let (x, y) = (graph.buffer(input(N)), graph.buffer(output(N)));
            let got = graph.buffer(BufferDecl::new("got", DType::I32, [N]));
            graph.step(KernelSpec::new(kernel("scale")).arg("data", x).arg("factor", 5).grid(N, 256));
            let shift = OpSpec::new("send_recv").arg("send", x).arg("to", 1 - rank);
            graph.step(shift.arg("recv", got).arg("from", 1 - rank));
            let sum = OpSpec::new("all_reduce").arg("send", got).arg("recv", y);
            graph.step(sum.arg("reduce", ReduceOp::Sum));
        });
        stepped(on, &graphs, N, |_, step, i| 5 * (value(0, step, i) + value(1, step, i)));
    }
}
