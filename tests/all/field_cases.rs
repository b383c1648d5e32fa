//! What people who run pipelines on several GPUs ran into, each as a small input with the values that are right.

use std::time::Duration;

use half::{bf16, f16};
use squall_core::graph::{GroupSpec, KernelSpec};
use squall_core::{
    BufferDecl, DType, Download, Feed, HostCall, KernelDef, OpSpec, Options, ParamDef, Type, Upload, verify,
};
use squall_runner::manifest::devices::{DeviceSpec, Devices, Which};
use squall_runner::manifest::parse;
use squall_runner::resolve::resolve;
use squall_tests::{bind, graphs, read_npy, registry, run_file, run_text};

/// Two messages between the same ranks in one group meet in order, whatever the buffers are called.
#[test]
fn messages_to_one_peer_meet_in_order() {
    let ran = run_text(
        2,
        r#"
[buffer.a]
dtype = "f32"
shape = [2]
init = { fill = 1 }
[buffer.b]
dtype = "f32"
shape = [2]
init = { fill = 2 }
[buffer.x]
dtype = "f32"
shape = [2]
save = { npy = "x-1.npy", rank = 1 }
[buffer.y]
dtype = "f32"
shape = [2]
save = { npy = "y-1.npy", rank = 1 }
[[task]]
group = [
  { when = "rank == 0", op = "send", args = { buffer = "a", peer = 1 } },
  { when = "rank == 0", op = "send", args = { buffer = "b", peer = 1 } },
  { when = "rank == 1", op = "recv", args = { buffer = "y", peer = 0 } },
  { when = "rank == 1", op = "recv", args = { buffer = "x", peer = 0 } },
]
"#,
    );
    assert_eq!(ran.saved::<f32>("y", 1), [1.0, 1.0]);
    assert_eq!(ran.saved::<f32>("x", 1), [2.0, 2.0]);
}

/// A group without members on one rank, and a kernel without threads there, are nothing at all.
#[test]
fn empty_groups_and_empty_grids() {
    let ran = run_text(
        3,
        r#"
[buffer.x]
dtype = "i32"
shape = ["0 if rank == 1 else 512"]
init = { fill = "rank" }
save = "x-{rank}.npy"
[buffer.edge]
dtype = "i32"
shape = [1]
init = { fill = "rank" }
save = "edge-{rank}.npy"
[buffer.total]
dtype = "i32"
shape = [1]
init = { fill = 1 }
save = "total-{rank}.npy"
[[task]]
group = [
  { when = "rank == 1", op = "send", args = { buffer = "edge", peer = 2 } },
  { when = "rank == 2", op = "recv", args = { buffer = "edge", peer = 1 } },
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
    for rank in 0..3 {
        // A rank saves only what a task of its own names.
        if rank != 1 {
            assert_eq!(ran.saved::<i32>("x", rank), [3 * rank as i32; 512]);
        }
        if rank != 0 {
            assert_eq!(ran.saved::<i32>("edge", rank), [1]);
        }
        assert_eq!(ran.saved::<i32>("total", rank), [3]);
    }
}

/// A root counts ranks, not devices.
#[test]
fn the_root_is_a_rank_whatever_the_devices_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("root.toml");
    let text = "manifest = 1\n[buffer.x]\ndtype = \"i32\"\nshape = [2]\ninit = { fill = \"10 * rank\" }\n\
                save = \"x-{rank}.npy\"\n[[task]]\nop = \"broadcast\"\nargs = { buffer = \"x\", root = 1 }\n";
    std::fs::write(&path, text).unwrap();
    let one = |index| DeviceSpec { backend: "host", which: Which::One(index) };
    let summary = run_file(&path, Some(&Devices::Listed(vec![one(1), one(0)])), None).unwrap();
    assert_eq!(summary.devices, ["host:1", "host:0"]);
    for rank in 0..2 {
        assert_eq!(read_npy::<i32>(&folder.path().join(format!("x-{rank}.npy"))).0, [10, 10]);
    }
}

/// 5120 rows over any number of ranks, gathered without a rule that it must divide.
#[test]
fn sizes_that_do_not_divide() {
    let text = r#"
[params]
n = 5120
[buffer.mine]
dtype = "u32"
shape = ["share(n)"]
init = { fill = "offset(n) + i" }
save = "mine-{rank}.npy"
[buffer.all]
dtype = "u32"
shape = ["n"]
save = { npy = "all-0.npy", rank = 0 }
[[task]]
group = [
  { op = "send", args = { buffer = "mine", peer = 0 } },
  { for = "peer in world", when = "rank == 0", op = "recv", args = { buffer = "all[offset(n, peer, world) : offset(n, peer, world) + share(n, peer, world)]", peer = "peer" } },
]
"#;
    for world in [1, 3, 5, 6, 7] {
        let ran = run_text(world, text);
        assert_eq!(ran.saved::<u32>("all", 0), (0..5120).collect::<Vec<u32>>(), "world {world}");
        if world == 3 {
            let lengths = [0, 1, 2].map(|rank| ran.saved::<u32>("mine", rank).len());
            assert_eq!(lengths, [1707, 1707, 1706]);
        }
    }
    let divided = "manifest = 1\n[buffer.x]\ndtype = \"f32\"\nshape = [5120]\ninit = { fill = 0 }\n\
                   [buffer.y]\ndtype = \"f32\"\nshape = [1706]\n\
                   [[task]]\nop = \"reduce_scatter\"\nargs = { send = \"x\", recv = \"y\", reduce = \"sum\" }\n";
    let (manifest, _) = parse(divided).unwrap();
    let job = resolve(&manifest, registry(), 3, "host").unwrap();
    let text = verify(job.graphs).unwrap_err().to_string();
    for part in ["5120 elements", "1706 on ranks 0 to 2, which add up to 5118", "`share(5120)`"] {
        assert!(text.contains(part), "{text}");
    }
}

/// Averages of whole numbers: of the wrapped sum, toward zero.
#[test]
fn averages_of_whole_numbers() {
    let ran = run_text(
        2,
        r#"
[params]
small = [[3, -3, 7], [4, -4, 0]]
[buffer.a]
dtype = "i32"
shape = [3]
init = { fill = "small[rank][i]" }
save = "a-{rank}.npy"
[buffer.total]
dtype = "u8"
shape = [1]
init = { fill = "200 if rank == 0 else 100" }
save = "total-{rank}.npy"
[buffer.avg]
dtype = "u8"
shape = [1]
init = { fill = "200 if rank == 0 else 100" }
save = "avg-{rank}.npy"
[buffer.limit]
dtype = "i64"
shape = [2]
init = { fill = "9223372036854775807 - i if rank == 0 else 1 + i" }
save = "limit-{rank}.npy"
[[task]]
op = "all_reduce"
args = { buffer = "a", reduce = "avg" }
[[task]]
op = "all_reduce"
args = { buffer = "total", reduce = "sum" }
[[task]]
op = "all_reduce"
args = { buffer = "avg", reduce = "avg" }
[[task]]
op = "all_reduce"
args = { buffer = "limit", reduce = "avg" }
"#,
    );
    for rank in 0..2 {
        assert_eq!(ran.saved::<i32>("a", rank), [3, -3, 3]);
        assert_eq!(ran.saved::<u8>("total", rank), [44]);
        assert_eq!(ran.saved::<u8>("avg", rank), [22]);
        assert_eq!(ran.saved::<i64>("limit", rank), [i64::MIN / 2; 2]);
    }
}

/// Halves: no overflow on the way to an average, and the same bits on every rank and in every run.
#[test]
fn sums_and_averages_of_floats() {
    let text = r#"
[params]
parts = [100000000, 1, -100000000, 1]
[buffer.avg]
dtype = "f16"
shape = [1]
init = { fill = 60000 }
save = "avg-{rank}.npy"
[buffer.half]
dtype = "bf16"
shape = [1]
init = { fill = "256 if rank == 0 else 1" }
save = "half-{rank}.npy"
[buffer.total]
dtype = "f32"
shape = [1000]
init = { fill = "parts[rank % 4]" }
save = "total-{rank}.npy"
[[task]]
op = "all_reduce"
args = { buffer = "avg", reduce = "avg" }
[[task]]
op = "all_reduce"
args = { buffer = "half", reduce = "sum" }
[[task]]
op = "all_reduce"
args = { buffer = "total", reduce = "sum" }
"#;
    for (world, sums) in [(2, [257.0, 256.0]), (3, [258.0, 256.0])] {
        let ran = run_text(world, text);
        for rank in 0..world {
            assert_eq!(ran.saved::<f16>("avg", rank), [f16::from_f32(60000.0)]);
            let half = ran.saved::<bf16>("half", rank);
            assert!(sums.contains(&half[0].to_f32()), "{half:?}");
            assert_eq!(half, ran.saved::<bf16>("half", 0));
        }
    }
    let bits = |ran: &squall_tests::Ran, rank| {
        ran.saved::<f32>("total", rank).into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let first = run_text(4, text);
    let any_order = [0.0f32, 1.0, 2.0].map(f32::to_bits);
    assert!(
        bits(&first, 0).iter().all(|sum| any_order.contains(sum)),
        "{:?}",
        first.saved::<f32>("total", 0)
    );
    for run in [&first, &run_text(4, text)] {
        for rank in 0..4 {
            assert_eq!(bits(run, rank), bits(&first, 0));
        }
    }
}

/// Takes its time, and copies.
static SLOW_COPY: KernelDef = KernelDef {
    name: "slow_copy",
    params: &[
        ParamDef::read("src", Type::Is(DType::I32), "[n]"),
        ParamDef::write("dst", Type::Is(DType::I32), "[n]"),
    ],
    host: Some(&slow_copy),
    ..KernelDef::EMPTY
};

fn slow_copy(call: &HostCall<'_>) -> Result<(), String> {
    let (src, dst) = (call.cells::<i32>("src")?, call.cells::<i32>("dst")?);
    for (half, (src, dst)) in src.chunks(src.len() / 2).zip(dst.chunks(dst.len() / 2)).enumerate() {
        if half == 1 {
            std::thread::sleep(Duration::from_micros(200));
        }
        src.iter().zip(dst).for_each(|(src, dst)| dst.set(src.get()));
    }
    Ok(())
}

static PLUS_ONE: KernelDef = KernelDef {
    name: "plus_one",
    params: &[ParamDef::read_write("data", Type::Is(DType::I32), "[n]")],
    host: Some(&plus_one),
    ..KernelDef::EMPTY
};

fn plus_one(call: &HostCall<'_>) -> Result<(), String> {
    call.cells::<i32>("data")?.iter().for_each(|x| x.set(x.get() + 1));
    Ok(())
}

/// The step's number, everywhere.
struct Number;

impl Feed for Number {
    fn fill(&mut self, step: u64, out: &mut [u8]) -> Result<(), String> {
        let number = (step as i32).to_ne_bytes();
        out.chunks_exact_mut(4).for_each(|element| element.copy_from_slice(&number));
        Ok(())
    }
}

/// What is read after a step is of that step, however soon the next one starts.
#[test]
fn results_are_never_of_another_step() {
    let n = 1 << 16;
    let job = || {
        let graphs = graphs(2, |rank, graph| {
            let (input, output) = (Upload::Every, Download::Every);
            let x = graph.buffer(BufferDecl::new("x", DType::I32, [n]).upload(input));
            let sent = graph.buffer(BufferDecl::new("sent", DType::I32, [n]));
            let got = graph.buffer(BufferDecl::new("got", DType::I32, [n]).download(output));
            graph.step(KernelSpec::new(&SLOW_COPY).arg("src", x).arg("dst", sent).grid(n, 256));
            let send = OpSpec::new("send").arg("buffer", sent).arg("peer", 1 - rank);
            let recv = OpSpec::new("recv").arg("buffer", got).arg("peer", 1 - rank);
            graph.step(GroupSpec::new().with(send).with(recv));
            graph.step(KernelSpec::new(&PLUS_ONE).arg("data", got).grid(n, 256));
        });
        let group = bind(graphs, Options::default());
        let (x, got) = (group.buffer("x").unwrap(), group.buffer("got").unwrap());
        (group, x, got)
    };
    let (mut group, x, got) = job();
    let mut kept: Vec<Vec<i32>> = Vec::new();
    for step in 0..200 {
        for rank in 0..2 {
            group.write(rank, x, &vec![step; n as usize]).unwrap();
        }
        let running = group.start(1).unwrap();
        // The copy of the step before, while this one runs.
        assert!(kept.last().is_none_or(|last| *last == vec![step; n as usize]), "step {step}");
        running.wait().unwrap();
        let (one, other) = (group.read::<i32>(0, got).unwrap(), group.read::<i32>(1, got).unwrap());
        assert!(one == vec![step + 1; n as usize] && other == one, "step {step}");
        kept.push(one);
    }

    // Queued, with a feed: the last step's number alone.
    let (mut group, x, got) = job();
    for rank in 0..2 {
        group.feed(rank, x, Box::new(Number)).unwrap();
    }
    for round in 1..=20 {
        group.execute_many(10).unwrap();
        for rank in 0..2 {
            assert!(group.read::<i32>(rank, got).unwrap() == vec![10 * round; n as usize], "round {round}");
        }
    }
}
