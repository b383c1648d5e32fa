//! Kernels and collectives in a row, each on worlds of one to seven ranks, with whole numbers worked out by hand.

use squall_core::graph::KernelSpec;
use squall_core::{BufferDecl, DType, Download, Feed, OpSpec, Options, ReduceOp, Upload, verify};
use squall_runner::manifest::parse;
use squall_runner::resolve::resolve;
use squall_tests::{Ran, WORLDS, bind, graphs, registry, run_text};

/// Runs a manifest on every world, and checks each rank of each.
fn on_every_world(text: &str, check: impl Fn(&Ran, i64, i64)) {
    for world in WORLDS {
        let ran = run_text(world, text);
        (0..world.into()).for_each(|rank| check(&ran, rank, world.into()));
    }
}

/// The sum over all ranks of what `f` gives.
fn over_ranks(world: i64, f: impl Fn(i64) -> i64) -> i64 {
    (0..world).map(f).sum()
}

#[test]
fn the_sum_of_a_kernels_output_in_place() {
    let text = r#"
[buffer.x]
dtype = "i64"
shape = [5]
init = { fill = "10 * rank + i" }
save = "x-{rank}.npy"
[[task]]
kernel = "scale"
args = { data = "x", factor = 3 }
grid = "len(x)"
[[task]]
op = "all_reduce"
args = { buffer = "x", reduce = "sum" }
"#;
    on_every_world(text, |ran, rank, world| {
        let expected: Vec<i64> = (0..5).map(|i| over_ranks(world, |r| 3 * (10 * r + i))).collect();
        assert_eq!(ran.saved::<i64>("x", rank as u32), expected, "rank {rank} of {world}");
    });
}

#[test]
fn the_greatest_of_whole_numbers_out_of_place() {
    let text = r#"
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
"#;
    on_every_world(text, |ran, rank, world| {
        let value = |r: i64, i: i64| if i > 0 { (r + i) % 3 - 1 } else { -5 - r } as i32;
        let sent: Vec<i32> = (0..7).map(|i| value(rank, i)).collect();
        let most: Vec<i32> = (0..7).map(|i| (0..world).map(|r| value(r, i)).max().unwrap()).collect();
        assert_eq!(ran.saved::<i32>("x", rank as u32), sent);
        assert_eq!(ran.saved::<i32>("most", rank as u32), most, "rank {rank} of {world}");
    });
}

#[test]
fn a_broadcast_from_the_last_rank() {
    let text = r#"
[buffer.x]
dtype = "u8"
shape = [300]
init = { fill = "(100 * rank + i) % 251" }
save = "x-{rank}.npy"
[[task]]
op = "broadcast"
args = { buffer = "x", root = "world - 1" }
"#;
    on_every_world(text, |ran, rank, world| {
        let expected: Vec<u8> = (0..300).map(|i| ((100 * (world - 1) + i) % 251) as u8).collect();
        assert_eq!(ran.saved::<u8>("x", rank as u32), expected, "rank {rank} of {world}");
    });
}

#[test]
fn a_reduce_leaves_the_other_ranks_as_they_were() {
    let text = r#"
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
"#;
    on_every_world(text, |ran, rank, world| {
        let at_root = |i: i64| over_ranks(world, |r| r + i) as i32;
        let total: Vec<i32> =
            (0..4).map(|i| if rank == world / 2 { at_root(i) } else { -1 - rank as i32 }).collect();
        assert_eq!(ran.saved::<i32>("total", rank as u32), total, "rank {rank} of {world}");
        assert_eq!(ran.saved::<i32>("x", rank as u32), [0, 1, 2, 3].map(|i| rank as i32 + i));
    });
}

#[test]
fn gathered_and_scattered_by_the_formula() {
    let text = r#"
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
"#;
    on_every_world(text, |ran, rank, world| {
        let all: Vec<i32> = (0..3 * world).map(|at| (100 * (at / 3) + at % 3) as i32).collect();
        let block: Vec<i32> = (0..3).map(|i| (world * (100 * rank + i)) as i32).collect();
        let own: Vec<i32> = (0..3 * world).map(|at| over_ranks(world, |r| 1000 * r + at) as i32).collect();
        assert_eq!(ran.saved::<i32>("all", rank as u32), all, "rank {rank} of {world}");
        assert_eq!(ran.saved::<i32>("block", rank as u32), block, "rank {rank} of {world}");
        assert_eq!(ran.saved::<i32>("own", rank as u32), own, "rank {rank} of {world}");
    });
}

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

#[test]
fn kernel_average_kernel_with_new_input_in_every_step() {
    let scale = registry().kernel("scale").unwrap();
    for world in WORLDS {
        let graphs = graphs(world, |_, graph| {
            let decl = BufferDecl::new("x", DType::I64, [9]).upload(Upload::Every);
            let x = graph.buffer(decl.download(Download::Every));
            let times = |factor: i64| KernelSpec::new(scale).arg("data", x).arg("factor", factor).grid(9, 32);
            graph.step(times(2));
            graph.step(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Avg));
            graph.step(times(5));
        });
        let mut group = bind(graphs, Options::default());
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
}

#[test]
fn a_ring_shift() {
    let text = r#"
[buffer.ring]
dtype = "f64"
shape = [2, 3]
init = { fill = "rank" }
save = "ring-{rank}.npy"
[[task]]
op = "send_recv"
args = { send = "ring[1]", to = "(rank + 1) % world", recv = "ring[0]", from = "(rank - 1) % world" }
"#;
    on_every_world(text, |ran, rank, world| {
        let left = (rank - 1).rem_euclid(world) as f64;
        let mine = rank as f64;
        assert_eq!(ran.saved::<f64>("ring", rank as u32), [left, left, left, mine, mine, mine]);
    });
}

#[test]
fn two_stages_with_a_bystander_where_the_world_is_odd() {
    let text = r#"
[params]
first = "rank % 2 == 0 and rank + 1 < world"
second = "rank % 2 == 1"
[buffer.x]
dtype = "i32"
shape = [6]
init = { fill = "10 * rank + i" }
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
"#;
    on_every_world(text, |ran, rank, world| {
        let (of, factor) = match rank {
            _ if rank % 2 == 1 => (rank - 1, 14),
            _ if rank + 1 < world => (rank, 2),
            _ => (rank, 1),
        };
        let expected: Vec<i32> = (0..6).map(|i| (-factor * (10 * of + i)) as i32).collect();
        assert_eq!(ran.saved::<i32>("x", rank as u32), expected, "rank {rank} of {world}");
    });
}

#[test]
fn all_to_all_as_one_group_of_sends_and_receives() {
    let text = r#"
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
"#;
    on_every_world(text, |ran, rank, world| {
        let expected: Vec<u32> =
            (0..world).flat_map(|peer| [0, 1].map(|i| (100 * peer + 2 * rank + i) as u32)).collect();
        assert_eq!(ran.saved::<u32>("in", rank as u32), expected, "rank {rank} of {world}");
        assert_eq!(ran.saved::<u32>("op", rank as u32), expected, "rank {rank} of {world}");
    });
}

#[test]
fn reductions_of_two_types_in_one_group_between_two_kernels() {
    let text = r#"
[buffer.a]
dtype = "i32"
shape = [3]
init = { fill = "rank + i" }
save = "a-{rank}.npy"
[buffer.b]
dtype = "f64"
shape = [1000]
init = { fill = "rank * 0.5" }
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
"#;
    on_every_world(text, |ran, rank, world| {
        let sums: Vec<i32> = (0..3).map(|i| over_ranks(world, |r| 10 * (r + i)) as i32).collect();
        assert_eq!(ran.saved::<i32>("a", rank as u32), sums, "rank {rank} of {world}");
        assert_eq!(ran.saved::<f64>("b", rank as u32), vec![2.0 * (world - 1) as f64; 1000]);
    });
}

#[test]
fn rows_and_columns_of_ranks_in_one_step() {
    let text = r#"
[communicator.row]
color = "rank / 2"
[communicator.col]
color = "rank % 2"
key = "-rank"           # the last rank of the world is the first of its column
[buffer.x]
dtype = "i64"
shape = [1]
init = { fill = "1 + rank" }
save = "x-{rank}.npy"
[buffer.place]
dtype = "i64"
shape = [1]
init = { fill = "rank" }
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
"#;
    on_every_world(text, |ran, rank, world| {
        let row = |r: i64| (0..world).filter(|other| other / 2 == r / 2).map(|r| 1 + r).sum::<i64>();
        let sum: i64 = (0..world).filter(|other| other % 2 == rank % 2).map(row).sum();
        assert_eq!(ran.saved::<i64>("x", rank as u32), [sum], "rank {rank} of {world}");
        let last = (0..world).rfind(|other| other % 2 == rank % 2);
        assert_eq!(ran.saved::<i64>("place", rank as u32), [last.unwrap()]);
    });
}

#[test]
fn zero_length_everything() {
    let text = r#"
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
"#;
    on_every_world(text, |ran, rank, world| {
        assert_eq!(ran.saved::<f32>("x", rank as u32), Vec::<f32>::new());
        assert_eq!(ran.saved::<i32>("left", rank as u32), [world as i32]);
    });
}

#[test]
fn the_plan_hash_of_a_job_is_its_own_and_the_same_everywhere() {
    let text = |n: u32| {
        format!(
            "manifest = 1\n[params]\nn = {n}\n[buffer.x]\ndtype = \"f32\"\nshape = [\"n\"]\ninit = {{ fill = 1 }}\n\
             [[task]]\nop = \"all_reduce\"\nargs = {{ buffer = \"x\", reduce = \"sum\" }}\n"
        )
    };
    let hash = |n: u32, world: u64| {
        let (manifest, _) = parse(&text(n)).unwrap();
        verify(resolve(&manifest, registry(), world, "host").unwrap().graphs).unwrap().plan_hash()
    };
    assert_eq!(hash(8, 2), hash(8, 2));
    assert_ne!(hash(8, 2), hash(9, 2));
    assert_ne!(hash(8, 2), hash(8, 3));
    // From another process and build. A change of what is hashed, or how, comes with another version in it.
    assert_eq!(format!("{:032x}", hash(8, 2)), "c88183212cf84064fd21c866ae143dd4");
}
