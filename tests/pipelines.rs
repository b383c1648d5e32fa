//! Kernels and collectives in a row, with whole numbers worked out by hand, for any world on any devices.
//!
//! Every step begins with the same input, so that after any number of them the result is that of one: a captured step is replayed in the
//! third and later ones.

use std::fmt::Debug;

use squall_core::graph::KernelSpec;
use squall_core::{
    BufferDecl, BufferId, DType, Download, Element, Feed, OpSpec, Options, ReduceOp, SwapSpec, Upload,
};
use squall_runner::manifest::devices::Devices;

use crate::{Ran, bind, graphs_for, registry, run_text_on};

/// A job, and what it must come to.
#[derive(Debug)]
pub struct Pipeline {
    /// What it shows.
    pub name: &'static str,
    /// The manifest's buffers and tasks.
    text: &'static str,
    /// Checks one rank.
    check: fn(&End<'_>),
}

/// One rank at the end of a pipeline.
struct End<'a> {
    ran: &'a Ran,
    name: &'static str,
    rank: i64,
    world: i64,
}

impl Pipeline {
    /// Runs it on so many devices, with its step captured or as it is, and checks every rank.
    pub fn run(&self, devices: &Devices, world: u32, capture: bool) {
        let Pipeline { name, text, check } = self;
        let text = format!("steps = 4\ncuda_graph = {capture}\n{text}");
        let ran = run_text_on(devices, &text)
            .unwrap_or_else(|error| panic!("{name}, world {world}: {error}\n{text}"));
        for rank in 0..world.into() {
            check(&End { ran: &ran, name, rank, world: world.into() });
        }
    }
}

impl End<'_> {
    /// What the rank saved of a buffer must be this.
    fn is<T: Element + PartialEq + Debug>(&self, buffer: &str, expected: &[T]) {
        let End { ran, name, rank, world } = self;
        let saved = ran.saved::<T>(buffer, *rank as u32);
        assert_eq!(saved, expected, "{name}: `{buffer}` on rank {rank} of {world}");
    }

    /// The sum over all ranks of what `f` gives.
    fn over_ranks(&self, f: impl Fn(i64) -> i64) -> i64 {
        over_ranks(self.world, f)
    }
}

fn over_ranks(world: i64, f: impl Fn(i64) -> i64) -> i64 {
    (0..world).map(f).sum()
}

/// All of them.
pub static PIPELINES: [&Pipeline; 12] = [
    &IN_PLACE,
    &OUT_OF_PLACE,
    &BROADCAST,
    &REDUCE,
    &BLOCKS,
    &ROOT,
    &RING,
    &STAGES,
    &EXCHANGE,
    &TWO_TYPES,
    &GRID,
    &EMPTY,
];

static IN_PLACE: Pipeline = Pipeline {
    name: "the sum of a kernel's output in place",
    text: r#"
[buffer.x]
dtype = "i64"
shape = [5]
init = { fill = "10 * rank + i" }
upload = "every"
save = "x-{rank}.npy"
[[task]]
kernel = "scale"
args = { data = "x", factor = 3 }
grid = "len(x)"
[[task]]
op = "all_reduce"
args = { buffer = "x", reduce = "sum" }
"#,
    check: |end| {
        let sums: Vec<i64> = (0..5).map(|i| end.over_ranks(|r| 3 * (10 * r + i))).collect();
        end.is("x", &sums);
    },
};

static OUT_OF_PLACE: Pipeline = Pipeline {
    name: "the greatest of whole numbers out of place",
    text: r#"
[buffer.x]
dtype = "i32"
shape = [7]
init = { fill = "(rank + i) % 3 - 1 if i > 0 else -5 - rank" }
save = "x-{rank}.npy"
[buffer.most]
dtype = "i32"
shape = [7]
save = "most-{rank}.npy"
[[task]]
op = "all_reduce"
args = { send = "x", recv = "most", reduce = "max" }
"#,
    check: |end| {
        let value = |r: i64, i: i64| if i > 0 { (r + i) % 3 - 1 } else { -5 - r } as i32;
        let sent: Vec<i32> = (0..7).map(|i| value(end.rank, i)).collect();
        let most: Vec<i32> = (0..7).map(|i| (0..end.world).map(|r| value(r, i)).max().unwrap()).collect();
        end.is("x", &sent);
        end.is("most", &most);
    },
};

static BROADCAST: Pipeline = Pipeline {
    name: "a broadcast from the last rank",
    text: r#"
[buffer.x]
dtype = "u8"
shape = [300]
init = { fill = "(100 * rank + i) % 251" }
upload = "every"
save = "x-{rank}.npy"
[[task]]
op = "broadcast"
args = { buffer = "x", root = "world - 1" }
"#,
    check: |end| {
        let last: Vec<u8> = (0..300).map(|i| ((100 * (end.world - 1) + i) % 251) as u8).collect();
        end.is("x", &last);
    },
};

static REDUCE: Pipeline = Pipeline {
    name: "a reduce leaves the other ranks as they were",
    text: r#"
[buffer.x]
dtype = "i32"
shape = [4]
init = { fill = "rank + i" }
save = "x-{rank}.npy"
[buffer.total]
dtype = "i32"
shape = [4]
init = { fill = "-1 - rank" }
save = "total-{rank}.npy"
[[task]]
op = "reduce"
args = { send = "x", recv = "total", reduce = "sum", root = "world / 2" }
"#,
    check: |end| {
        let at_root = |i: i64| end.over_ranks(|r| r + i) as i32;
        let is_root = end.rank == end.world / 2;
        let total: Vec<i32> =
            (0..4).map(|i| if is_root { at_root(i) } else { -1 - end.rank as i32 }).collect();
        end.is("total", &total);
        end.is("x", &[0, 1, 2, 3].map(|i| end.rank as i32 + i));
    },
};

static BLOCKS: Pipeline = Pipeline {
    name: "gathered by all and scattered by the formula",
    text: r#"
[buffer.mine]
dtype = "i32"
shape = [3]
init = { fill = "100 * rank + i" }
[buffer.all]
dtype = "i32"
shape = ["world", 3]
save = "all-{rank}.npy"
[buffer.block]
dtype = "i32"
shape = [3]
save = "block-{rank}.npy"
[buffer.own]            # the in-place forms: this rank's block is a part of the whole
dtype = "i32"
shape = ["world", 3]
init = { fill = "1000 * rank + i" }
upload = "every"
save = "own-{rank}.npy"
[[task]]
op = "all_gather"
args = { send = "mine", recv = "all" }
[[task]]
op = "reduce_scatter"
args = { send = "all", recv = "block", reduce = "sum" }
[[task]]
op = "reduce_scatter"
args = { send = "own", recv = "own[rank]", reduce = "sum" }
[[task]]
op = "all_gather"
args = { send = "own[rank]", recv = "own" }
"#,
    check: |end| {
        let all: Vec<i32> = (0..3 * end.world).map(|at| (100 * (at / 3) + at % 3) as i32).collect();
        let block: Vec<i32> = (0..3).map(|i| (end.world * (100 * end.rank + i)) as i32).collect();
        let own: Vec<i32> = (0..3 * end.world).map(|at| end.over_ranks(|r| 1000 * r + at) as i32).collect();
        end.is("all", &all);
        end.is("block", &block);
        end.is("own", &own);
    },
};

static ROOT: Pipeline = Pipeline {
    name: "gathered on a root and scattered from it",
    text: r#"
[buffer.mine]
dtype = "i32"
shape = [3]
init = { fill = "100 * rank + i" }
[buffer.all]            # untouched but on the root
dtype = "i32"
shape = ["world", 3]
init = { fill = "-1 - rank" }
save = "all-{rank}.npy"
[buffer.block]
dtype = "i32"
shape = [3]
save = "block-{rank}.npy"
[buffer.own]            # the in-place forms, on the root: its block is a part of the whole
dtype = "i32"
shape = ["world", 3]
init = { fill = "1000 * rank + i" }
upload = "every"
save = "own-{rank}.npy"
[[task]]
op = "gather"
args = { send = "mine", recv = "all", root = "world - 1" }
[[task]]
op = "scatter"
args = { send = "all", recv = "block", root = "world - 1" }
[[task]]
op = "gather"
args = { send = "own[rank]", recv = "own", root = 0 }
[[task]]
op = "scatter"
args = { send = "own", recv = "own[rank]", root = 0 }
"#,
    check: |end| {
        let is_root = end.rank == end.world - 1;
        let gathered = |at: i64| if is_root { 100 * (at / 3) + at % 3 } else { -1 - end.rank };
        let all: Vec<i32> = (0..3 * end.world).map(|at| gathered(at) as i32).collect();
        // Each block goes to its own place on the root, and comes back to where it came from.
        let block_of = |at: i64| if end.rank == 0 { at / 3 } else { end.rank };
        let own: Vec<i32> = (0..3 * end.world).map(|at| (1000 * block_of(at) + at) as i32).collect();
        end.is("all", &all);
        end.is("block", &[0, 1, 2].map(|i| 100 * end.rank as i32 + i));
        end.is("own", &own);
    },
};

static RING: Pipeline = Pipeline {
    name: "a ring shift",
    text: r#"
[buffer.ring]
dtype = "f64"
shape = [2, 3]
init = { fill = "rank" }
save = "ring-{rank}.npy"
[[task]]
op = "send_recv"
args = { send = "ring[1]", to = "(rank + 1) % world", recv = "ring[0]", from = "(rank - 1) % world" }
"#,
    check: |end| {
        let left = (end.rank - 1).rem_euclid(end.world) as f64;
        let mine = end.rank as f64;
        end.is("ring", &[left, left, left, mine, mine, mine]);
    },
};

static STAGES: Pipeline = Pipeline {
    name: "two stages, with a bystander where the world is odd",
    text: r#"
[params]
first = "rank % 2 == 0 and rank + 1 < world"
second = "rank % 2 == 1"
[buffer.x]
dtype = "i32"
shape = [6]
init = { fill = "10 * rank + i" }
upload = "every"
save = "x-{rank}.npy"
[[task]]
when = "first"
kernel = "scale"
args = { data = "x", factor = 2 }
grid = "len(x)"
[[task]]
when = "first"
op = "send"
args = { buffer = "x", peer = "rank + 1" }
[[task]]
when = "second"
op = "recv"
args = { buffer = "x", peer = "rank - 1" }
[[task]]
when = "second"
kernel = "scale"
args = { data = "x", factor = 7 }
grid = "len(x)"
[[task]]                # so that the bystander has a task, too
kernel = "scale"
args = { data = "x", factor = -1 }
grid = "len(x)"
"#,
    check: |end| {
        let (of, factor) = match end.rank {
            rank if rank % 2 == 1 => (rank - 1, 14),
            rank if rank + 1 < end.world => (rank, 2),
            rank => (rank, 1),
        };
        let x: Vec<i32> = (0..6).map(|i| (-factor * (10 * of + i)) as i32).collect();
        end.is("x", &x);
    },
};

static EXCHANGE: Pipeline = Pipeline {
    name: "an all_to_all as one group of sends and receives",
    text: r#"
[buffer.out]
dtype = "u32"
shape = ["world", 2]
init = { fill = "100 * rank + i" }
[buffer.in]
dtype = "u32"
shape = ["world", 2]
save = "in-{rank}.npy"
[buffer.op]
dtype = "u32"
shape = ["world", 2]
save = "op-{rank}.npy"
[[task]]
group = [
  { for = "peer in world", op = "send", args = { buffer = "out[peer]", peer = "peer" } },
  { for = "peer in world", op = "recv", args = { buffer = "in[peer]", peer = "peer" } },
]
[[task]]
op = "all_to_all"
args = { send = "out", recv = "op" }
"#,
    check: |end| {
        let place = |peer: i64, i: i64| (100 * peer + 2 * end.rank + i) as u32;
        let got: Vec<u32> = (0..end.world).flat_map(|peer| [0, 1].map(|i| place(peer, i))).collect();
        end.is("in", &got);
        end.is("op", &got);
    },
};

static TWO_TYPES: Pipeline = Pipeline {
    name: "reductions of two types in one group between two kernels",
    text: r#"
[buffer.a]
dtype = "i32"
shape = [3]
init = { fill = "rank + i" }
upload = "every"
save = "a-{rank}.npy"
[buffer.b]
dtype = "f64"
shape = [1000]
init = { fill = "rank * 0.5" }
upload = "every"
save = "b-{rank}.npy"
[[task]]
kernel = "scale"
args = { data = "a", factor = 10 }
grid = "len(a)"
[[task]]
group = [
  { op = "all_reduce", args = { buffer = "a", reduce = "sum" } },
  { op = "all_reduce", args = { buffer = "b", reduce = "max" } },
]
[[task]]
kernel = "scale"
args = { data = "b", factor = 4 }
grid = "len(b)"
"#,
    check: |end| {
        let sums: Vec<i32> = (0..3).map(|i| end.over_ranks(|r| 10 * (r + i)) as i32).collect();
        end.is("a", &sums);
        end.is("b", &[2.0 * (end.world - 1) as f64; 1000]);
    },
};

static GRID: Pipeline = Pipeline {
    name: "rows and columns of ranks in one step",
    text: r#"
[communicator.row]
color = "rank / 2"
[communicator.col]
color = "rank % 2"
key = "-rank"           # the last rank of the world is the first of its column
[buffer.x]
dtype = "i64"
shape = [1]
init = { fill = "1 + rank" }
upload = "every"
save = "x-{rank}.npy"
[buffer.place]
dtype = "i64"
shape = [1]
init = { fill = "rank" }
upload = "every"
save = "place-{rank}.npy"
[[task]]
op = "all_reduce"
args = { comm = "row", buffer = "x", reduce = "sum" }
[[task]]
op = "all_reduce"
args = { comm = "col", buffer = "x", reduce = "sum" }
[[task]]
op = "broadcast"
args = { comm = "col", buffer = "place", root = 0 }
"#,
    check: |end| {
        let column = || (0..end.world).filter(|other| other % 2 == end.rank % 2);
        let row = |r: i64| (0..end.world).filter(|other| other / 2 == r / 2).map(|r| 1 + r).sum::<i64>();
        end.is("x", &[column().map(row).sum::<i64>()]);
        end.is("place", &[column().next_back().unwrap()]);
    },
};

static EMPTY: Pipeline = Pipeline {
    name: "zero-length everything",
    text: r#"
[buffer.x]
dtype = "f32"
shape = [0]
init = { fill = "rank" }
save = "x-{rank}.npy"
[buffer.all]
dtype = "f32"
shape = ["world", 0]
init = { fill = 0 }
[buffer.left]           # the one buffer with an element shows that the step came to its end
dtype = "i32"
shape = [1]
init = { fill = 1 }
upload = "every"
save = "left-{rank}.npy"
[[task]]
kernel = "scale"
args = { data = "x", factor = 2 }
grid = "len(x)"
[[task]]
op = "all_reduce"
args = { buffer = "x", reduce = "avg" }
[[task]]
op = "broadcast"
args = { buffer = "x", root = 0 }
[[task]]
op = "reduce"
args = { buffer = "x", reduce = "min", root = 0 }
[[task]]
op = "all_gather"
args = { send = "x", recv = "all" }
[[task]]
op = "reduce_scatter"
args = { send = "all", recv = "x", reduce = "sum" }
[[task]]
op = "all_to_all"
args = { send = "all", recv = "all" }
[[task]]
op = "send_recv"
args = { send = "x", to = "(rank + 1) % world", recv = "all", from = "(rank - 1) % world" }
[[task]]
group = []
[[task]]
op = "all_reduce"
args = { buffer = "left", reduce = "sum" }
"#,
    check: |end| {
        end.is::<f32>("x", &[]);
        end.is("left", &[end.world as i32]);
    },
};

/// Each step's input: 100 times the step, plus the rank.
struct Steps {
    rank: i64,
}

impl Feed for Steps {
    fn fill(&mut self, step: u64, out: &mut [u8]) -> Result<(), String> {
        let value = (100 * step as i64 + self.rank).to_ne_bytes();
        out.chunks_exact_mut(8).for_each(|element| element.copy_from_slice(&value));
        Ok(())
    }
}

/// kernel → average → kernel on so many devices of a kind, with input that is written, kept, fed, and written again.
pub fn averaged(kind: &'static str, world: u32, options: Options) {
    let scale = registry().kernel("scale").unwrap();
    let graphs = graphs_for(kind, world, |_, graph| {
        let decl = BufferDecl::new("x", DType::I64, [9]).upload(Upload::Every);
        let x = graph.buffer(decl.download(Download::Every));
        let times = |factor: i64| KernelSpec::new(scale).arg("data", x).arg("factor", factor).grid(9, 32);
        graph.step(times(2));
        graph.step(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Avg));
        graph.step(times(5));
    });
    let mut group = bind(graphs, options);
    let x = group.buffer("x").unwrap();
    // Twice the input, summed and divided toward zero, times five.
    let expected = |base: i64| {
        let sum = over_ranks(world.into(), |r| 2 * (base + r));
        vec![5 * (sum / i64::from(world)); 9]
    };
    for step in 0..4 {
        for rank in 0..world {
            group.write(rank, x, &[1000 * step + i64::from(rank); 9]).unwrap();
        }
        group.execute().unwrap();
        for rank in 0..world {
            assert_eq!(group.read::<i64>(rank, x).unwrap(), expected(1000 * step), "step {step}");
        }
    }
    // Steps 4 and on: what was written last is the input of every step, until a feed gives it.
    group.execute_many(2).unwrap();
    assert_eq!(group.read::<i64>(0, x).unwrap(), expected(3000));
    for rank in 0..world {
        group.feed(rank, x, Box::new(Steps { rank: rank.into() })).unwrap();
    }
    for (steps, last) in [(1, 6), (3, 9)] {
        group.execute_many(steps).unwrap();
        for rank in 0..world {
            assert_eq!(group.read::<i64>(rank, x).unwrap(), expected(100 * last), "step {last}");
        }
    }
    // A write takes the feed's place.
    for rank in 0..world {
        group.write(rank, x, &[i64::from(rank); 9]).unwrap();
    }
    group.execute().unwrap();
    assert_eq!(group.read::<i64>(world - 1, x).unwrap(), expected(0));
}

/// Two, three and four buffers that take turns, on so many devices of a kind: in each step `b1` becomes the negated sum of `b0`
/// over the ranks, and then `b0` goes to the end of the row. New input is written to a name, whatever it stands for; in the end `b0`
/// is negated, and swapped once more.
pub fn in_turns(kind: &'static str, world: u32, options: Options) {
    for buffers in 2..=4 {
        let scale = registry().kernel("scale").unwrap();
        let graphs = graphs_for(kind, world, |_, graph| {
            let name = |place| BufferDecl::new(&format!("b{place}"), DType::I64, [9]).upload(Upload::First);
            let row: Vec<BufferId> = (0..buffers).map(|place| graph.buffer(name(place))).collect();
            let negate =
                |buffer: BufferId| KernelSpec::new(scale).arg("data", buffer).arg("factor", -1).grid(9, 32);
            let sum = OpSpec::new("all_reduce").arg("send", row[0]).arg("recv", row[1]);
            graph.step(sum.arg("reduce", ReduceOp::Sum)).step(negate(row[1]));
            for pair in row.windows(2) {
                graph.step(SwapSpec::new(pair[0], pair[1]));
            }
            graph.finish(negate(row[0])).finish(SwapSpec::new(row[0], row[1]));
        });
        let mut group = bind(graphs, options);
        assert_eq!(group.verified().turns(), buffers);
        let names: Vec<BufferId> =
            (0..buffers).map(|place| group.buffer(&format!("b{place}")).unwrap()).collect();
        // Of each rank, what every element of each buffer is.
        let mut contents: Vec<Vec<i64>> =
            (0..i64::from(world)).map(|r| (0..buffers as i64).map(|b| 10 * r + b).collect()).collect();
        for (rank, on) in (0..).zip(&contents) {
            names.iter().zip(on).for_each(|(&name, &value)| group.write(rank, name, &[value; 9]).unwrap());
        }
        let step = |contents: &mut Vec<Vec<i64>>| {
            let sum: i64 = contents.iter().map(|on| on[0]).sum();
            for on in contents {
                on[1] = -sum;
                on.rotate_left(1);
            }
        };
        let mut done = 0;
        for steps in [1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 6, 1] {
            for rank in 0..world {
                let value = 1000 * done + i64::from(rank);
                group.write(rank, names[0], &[value; 9]).unwrap();
                contents[rank as usize][0] = value;
            }
            group.execute_many(steps).unwrap();
            (0..steps).for_each(|_| step(&mut contents));
            done += steps as i64;
            for (rank, on) in (0..).zip(&contents) {
                let read = |&name: &BufferId| group.read::<i64>(rank, name).unwrap();
                let read: Vec<Vec<i64>> = names.iter().map(read).collect();
                let expected: Vec<Vec<i64>> = on.iter().map(|&value| vec![value; 9]).collect();
                assert_eq!(read, expected, "{buffers} buffers on rank {rank} of {world} after {done} steps");
            }
        }
        group.finish().unwrap();
        for (rank, on) in (0..).zip(&contents) {
            let read = [0, 1].map(|place| group.read::<i64>(rank, names[place]).unwrap()[8]);
            assert_eq!(read, [on[1], -on[0]], "{buffers} buffers on rank {rank} of {world} in the end");
        }
    }
}
