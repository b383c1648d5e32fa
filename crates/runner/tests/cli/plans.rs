//! `plan`.

use std::path::Path;

use crate::harness::Folder;

/// What `plan` says, without the plan's hash.
fn plan(folder: &Folder, args: &[&str]) -> String {
    let plan = folder.squall(&[&["plan"], args].concat()).done().out;
    let (before, hash) = plan.split_once(", plan ").unwrap();
    assert!(hash[..32].bytes().all(|digit| digit.is_ascii_hexdigit()), "{plan}");
    format!("{before}, plan [hash]{}", &hash[32..])
}

/// What `plan` says of an example of the repository.
fn example(name: &str, args: &[&str]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let path = path.canonicalize().unwrap();
    plan(&Folder::new(), &[&[path.to_str().unwrap()], args].concat())
}

#[test]
fn ranks_that_do_the_same_are_one_class() {
    insta::assert_snapshot!(example("average-gradients/average-gradients.toml", &["--world", "4"]));
}

#[test]
fn a_rank_between_two_neighbours() {
    insta::assert_snapshot!(example("heat/heat.toml", &["--rank", "1"]));
}

/// Its axes are communicators, and the tasks of its loops have the names of their rounds.
#[test]
fn a_mesh_and_a_loop() {
    let folder = Folder::with(
        r#"manifest = 1
[world]
devices = "host:0..4"
mesh = [{ dp = "world / 2" }, { tp = 2 }]
[communicator.ends]
color = "1 if rank % 3 == 0 and tp.size == 2 else 0 if rank == 1 else 2"
[buffer.u]
dtype = "f32"
shape = ["4 / tp.size", 8]
init = { fill = "dp.rank" }
[[task]]
name = "rows"
for = "m in tp.size"
do = [
  { name = "sum", op = "all_reduce", args = { buffer = "u[m]", reduce = "sum", comm = "tp" } },
  { op = "broadcast", args = { buffer = "u[m]", root = 0, comm = "ends" }, when = "m == 1" },
]
"#,
    );
    insta::assert_snapshot!(plan(&folder, &["m.toml"]));
}

/// Rows and columns of 2 x 3 ranks, a group, a root, all three phases.
const GRID: &str = r#"manifest = 1
[pipeline]
name = "grid"
steps = 10
[params]
width = 3
[world]
devices = "host:0..6"
[communicator.row]
color = "rank / width"
[communicator.col]
color = "rank % width"
[buffer.u]
dtype = "f32"
shape = [3, 8]
init = { fill = "rank" }
save = { npy = "out/u.npy", gather = true }
[buffer.total]
dtype = "f64"
shape = [1]
init = { fill = 1 }
download = "every"
save = { npy = "out/total.npy", rank = 0 }
[buffer.scale]
dtype = "f32"
shape = [1]
init = { fill = 0.5 }
upload = "every"
[[setup]]
name = "same"
op = "broadcast"
args = { buffer = "u", root = 2, comm = "row" }
[[task]]
name = "shrink"
kernel = "scale"
args = { data = "u[1]", factor = "scale" }
grid = { threads = 8, block = 32 }
[[task]]
name = "swap-halves"
group = [
  { op = "send", args = { buffer = "u[1]", peer = "1 - rank / 3", comm = "col" } },
  { op = "recv", args = { buffer = "u[2]", peer = "1 - rank / 3", comm = "col" } },
]
[[task]]
name = "nobody"
group = []
[[finish]]
name = "clear"
kernel = "fill"
args = { dst = "total", value = 0 }
grid = { threads = 1, block = 1 }
when = "rank == 0"
"#;

#[test]
fn communicators_groups_and_phases_are_told() {
    let folder = Folder::with(GRID);
    insta::assert_snapshot!(plan(&folder, &["m.toml", "--rank", "4"]));
    let all = plan(&folder, &["m.toml"]);
    let classes: Vec<&str> = all.lines().filter(|line| line.starts_with("rank")).collect();
    // In its col each rank has another partner; rank 0 has more to do.
    assert_eq!(classes, ["rank 0", "rank 1", "rank 2", "rank 3", "rank 4", "rank 5"]);
}

/// The swap stands where it is written, tasks name buffers as the manifest does, and the graphs are counted.
#[test]
fn swaps_are_told_with_the_graphs_that_are_kept() {
    let text = "manifest = 1\n[pipeline]\nblock = 64\nsteps = 5\n[world]\ndevices = \"host:0..2\"\n\
                [buffer.u]\ndtype = \"f32\"\nshape = [4]\ninit = { fill = 1 }\nsave = \"u-{rank}.npy\"\n\
                [buffer.u_new]\ndtype = \"f32\"\nshape = [4]\n\
                [[task]]\nname = \"double\"\nkernel = \"add\"\nargs = { a = \"u\", b = \"u\", out = \"u_new\" }\ngrid = 4\n\
                [[task]]\nname = \"flip\"\nswap = [\"u\", \"u_new\"]\n";
    insta::assert_snapshot!(plan(&Folder::with(text), &["m.toml"]));
}

#[test]
fn ranks_that_differ_are_told_apart() {
    let edges = crate::harness::scaled("init = { fill = 1 }")
        .replace("threads = 4", "threads = \"4 + rank % 4 / 3\"");
    let folder = Folder::with(&edges);
    let all = plan(&folder, &["m.toml", "--world", "9"]);
    let classes: Vec<&str> = all.lines().filter(|line| line.starts_with("rank")).collect();
    assert_eq!(classes, ["ranks 0..3, 4..7, 8", "ranks 3, 7"]);
    let one = plan(&folder, &["m.toml", "--world", "9", "--rank", "7"]);
    assert!(one.contains("\nrank 7\n") && one.contains("5 threads, 2 blocks of 4"), "{one}");
}

/// Unequal parts and counts; how a library serves them is said where it is not one call.
const PARTS: &str = r#"manifest = 1
[pipeline]
name = "parts"
[params]
n = 5
counts = [[1, 2], [0, 3]]
[buffer.mine]
dtype = "f32"
shape = ["share(n)"]
init = { fill = 1 }
[buffer.all]
dtype = "f32"
shape = ["n"]
[buffer.even]
dtype = "f32"
shape = [4]
init = { fill = 1 }
[buffer.both]
dtype = "f32"
shape = [8]
[buffer.tokens]
dtype = "f32"
shape = ["sum(counts[rank])", 2]
init = { fill = 1 }
[buffer.taken]
dtype = "f32"
shape = ["1 if rank == 0 else 5", 2]
[[task]]
name = "gather"
op = "all_gather"
args = { send = "mine", recv = "all" }
[[task]]
name = "equal"
op = "all_gather"
args = { send = "even", recv = "both" }
[[task]]
name = "scatter"
op = "reduce_scatter"
args = { send = "all", recv = "mine", reduce = "avg" }
[[task]]
name = "dispatch"
op = "all_to_all"
args = { send = "tokens", recv = "taken", counts = "counts" }
"#;

#[test]
fn ops_that_are_served_as_several_calls() {
    let folder = Folder::with(PARTS);
    let on_gpus = plan(&folder, &["m.toml", "--devices", "cuda:0..2", "--rank", "1"]);
    insta::assert_snapshot!(on_gpus);
    assert!(!plan(&folder, &["m.toml", "--devices", "host:0..2"]).contains("as a group"));
}
