//! Loops over tasks, meshes and required conditions: what they stand for, and whole workloads written with them.

use std::sync::Arc;

use squall_core::{Phase, TaskGraph, verify};
use squall_runner::manifest::parse;
use squall_runner::plan;
use squall_runner::resolve::resolve;
use squall_tests::{WORLDS, registry, run_text};

/// What each rank of a manifest's job does, without the first line, which has the plan's hash.
fn plan_of(text: &str, world: u64) -> String {
    let (manifest, warnings) = parse(text).unwrap_or_else(|errors| panic!("{errors:#?}\n{text}"));
    assert!(warnings.is_empty(), "{warnings:#?}\n{text}");
    let job = resolve(&manifest, registry(), world, "host").unwrap_or_else(|e| panic!("{e}\n{text}"));
    let verified = verify(job.graphs.clone()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    plan::describe(&job, &verified, None).split_once('\n').unwrap().1.to_owned()
}

fn graphs(text: &str, world: u64) -> Vec<TaskGraph> {
    let (manifest, _) = parse(text).unwrap_or_else(|errors| panic!("{errors:#?}"));
    resolve(&manifest, registry(), world, "host").unwrap_or_else(|e| panic!("{e}")).graphs
}

const HEAD: &str = "manifest = 1\n[buffer.u]\ndtype = \"f32\"\nshape = [6, 8]\ninit = { fill = 1 }\n";

/// A kernel task and an op, named `scale` and `sum`, of one row.
fn row_tasks(row: &str, extra: [&str; 2]) -> [String; 2] {
    let [of_scale, of_sum] = extra;
    [
        format!(
            "kernel = \"scale\", args = {{ data = \"u[{row}]\", factor = \"2.0 + {row}\" }}, \
             grid = {{ threads = 8, block = 8 }}{of_scale}"
        ),
        format!("op = \"all_reduce\", args = {{ buffer = \"u[{row}]\", reduce = \"sum\" }}{of_sum}"),
    ]
}

/// A loop over tasks is those tasks one after another, each with the loop's value for its variable.
#[test]
fn a_loop_is_what_it_stands_for() {
    let [scale, sum] = row_tasks("m + k", [", when = \"rank <= m\"", ""]);
    let looped = format!(
        "{HEAD}[[task]]\nname = \"outer\"\nfor = \"m in 1..world + 1\"\nwhen = \"m != 2\"\ndo = [\n\
         {{ name = \"inner\", for = \"k in m\", when = \"k < 2\", do = [{{ name = \"scale\", {scale} }}, {{ {sum} }}] }},\n\
         {{ group = [{{ for = \"p in m\", op = \"send\", args = {{ buffer = \"u[m, p:p+1]\", peer = \"rank\" }} }}, \
         {{ for = \"p in m\", op = \"recv\", args = {{ buffer = \"u[0, p:p+1]\", peer = \"rank\" }} }}] }},\n]\n"
    );
    for world in [1_i64, 2, 3, 4] {
        let mut by_hand = HEAD.to_owned();
        let mut names = Vec::new();
        let mut task = |name: String, body: String| {
            by_hand += &format!("[[task]]\nname = \"t{}\"\n{}\n", names.len(), body);
            names.push((format!("t{}", names.len()), name));
        };
        for m in (1..=world).filter(|m| *m != 2) {
            for k in 0..m.min(2) {
                let when = format!(", when = \"rank <= {m}\"");
                let [scale, sum] = row_tasks(&format!("{m} + {k}"), [&when, ""]);
                task(
                    format!("outer[{m}].inner[{k}].scale"),
                    scale.replace(", ", "\n").replace("\nfactor", ", factor").replace("\nblock", ", block"),
                );
                task(format!("outer[{m}].inner[{k}].do[1]"), sum.replace(", args", "\nargs"));
            }
            let entries = |op: &str, row: i64| -> String {
                let entry = |p| {
                    format!(
                        "{{ op = \"{op}\", args = {{ buffer = \"u[{row}, {p}:{p}+1]\", peer = \"rank\" }} }}, "
                    )
                };
                (0..m).map(entry).collect()
            };
            task(
                format!("outer[{m}].do[1]"),
                format!("group = [{}{}]", entries("send", m), entries("recv", 0)),
            );
        }
        let mut expected = plan_of(&by_hand, world as u64);
        for (written, unrolled) in names {
            expected = expected.replace(&format!("    {written}:"), &format!("    {unrolled}:"));
            // An entry's place counts the written ones, and then the rounds.
            for (place, op) in (0..2).flat_map(|op| (0..world).map(move |place| (place, op))) {
                let m: i64 = unrolled[6..].split(']').next().unwrap().parse().unwrap();
                if unrolled.ends_with("].do[1]") && !unrolled.contains("inner") && place < m {
                    expected = expected.replace(
                        &format!("      {written}[{}]:", op * m + place),
                        &format!("      {unrolled}[{op}].{place}:"),
                    );
                }
            }
        }
        assert_eq!(plan_of(&looped, world as u64), expected, "world {world}");
    }
}

/// A plain sequence under one condition, and a loop over one task.
#[test]
fn a_body_without_a_loop_and_a_loop_without_a_body() {
    let [scale, sum] = row_tasks("0", ["", ""]);
    let text = format!(
        "{HEAD}[[setup]]\nname = \"both\"\nwhen = \"rank == 0\"\ndo = [{{ name = \"a\", {scale} }}, {{ {scale} }}]\n\
         [[finish]]\nfor = \"m in 2..4\"\n{}\n[[task]]\nfor = \"m in 0\"\ndo = [{{ {sum} }}]\n",
        sum.replace(", args", "\nargs").replace("u[0]", "u[m]")
    );
    let names = |phase| -> Vec<Vec<String>> {
        let of_rank =
            |graph: &TaskGraph| graph.tasks(phase).iter().map(|node| node.origin.name.clone()).collect();
        graphs(&text, 2).iter().map(of_rank).collect()
    };
    assert_eq!(names(Phase::Setup), [vec!["both.a".to_owned(), "both.do[1]".to_owned()], vec![]]);
    assert_eq!(names(Phase::Finish), vec![["finish[0][2]", "finish[0][3]"]; 2]);
    assert_eq!(names(Phase::Step), [Vec::<String>::new(), vec![]]);
}

/// What does not depend on the rank is made once for all ranks, in every round.
#[test]
fn ranks_share_the_nodes_of_loops() {
    let [scale, sum] = row_tasks("m", ["", ""]);
    let [own, _] = row_tasks("rank", ["", ""]);
    let text = format!("{HEAD}[[task]]\nfor = \"m in 3\"\ndo = [{{ {scale} }}, {{ {sum} }}, {{ {own} }}]\n");
    let graphs = graphs(&text, 5);
    let first = graphs[0].tasks(Phase::Step);
    assert_eq!(first.len(), 9);
    for graph in &graphs[1..] {
        for (place, (here, there)) in graph.tasks(Phase::Step).iter().zip(first).enumerate() {
            assert_eq!(Arc::ptr_eq(here, there), place % 3 != 2, "{}", here.origin.name);
        }
    }
}

/// Each axis joins the ranks that differ in it alone.
#[test]
fn a_mesh_is_row_major_and_its_axes_are_communicators() {
    for [a, b, c] in [[1, 1, 1], [2, 3, 1], [2, 3, 4], [5, 1, 2], [1, 7, 1]] {
        let world: u32 = a * b * c;
        let text = format!(
            "{HEAD}[world]\nmesh = [{{ a = \"world / (b_size * {c})\" }}, {{ b = \"b_size\" }}, {{ c = {c} }}]\n\
             [params]\nb_size = {b}\nplace = \"(a.rank * b.size + b.rank) * size(c) + rank(c)\"\n\
             [[task]]\ngroup = []\nwhen = \"place == rank and len(u) > 0 and a.size == {a}\"\nname = \"in-order\"\n"
        );
        let (manifest, _) = parse(&text).unwrap_or_else(|errors| panic!("{errors:#?}"));
        let job = resolve(&manifest, registry(), world.into(), "host").unwrap_or_else(|e| panic!("{e}"));
        let coordinates = |rank: u32| [rank / (b * c), rank / c % b, rank % c];
        for (axis, name) in ["a", "b", "c"].into_iter().enumerate() {
            let comm = job.world.find(name).unwrap();
            for rank in 0..world {
                let others = |other: &u32| {
                    (0..3).all(|at| at == axis || coordinates(*other)[at] == coordinates(rank)[at])
                };
                let members: Vec<u32> = (0..world).filter(others).collect();
                let part = job.world.part(comm, rank).unwrap();
                assert_eq!(part.members, members, "{name} of {a} x {b} x {c}");
                assert_eq!(part.rank, coordinates(rank)[axis]);
            }
        }
    }
}

/// The longest rows of definitions that are taken are worked out on a small stack.
#[test]
fn definitions_that_need_each_other_end_before_the_stack_does() {
    let check = |forms: [&str; 2], levels: usize| {
        let links = 510 / levels;
        let link = |n: usize| {
            let [before, behind] = forms;
            format!("p{n} = \"{before}p{}{behind}\"\n", n + 1)
        };
        let links: String = (0..links).map(link).collect();
        let last = 510 / levels;
        let text =
            format!("{HEAD}[params]\n{links}p{last} = 1\n[[task]]\ngroup = []\nwhen = \"p0 == len(u)\"\n");
        let (manifest, _) = parse(&text).unwrap_or_else(|errors| panic!("{errors:?}"));
        assert!(resolve(&manifest, registry(), 1, "host").is_ok(), "{forms:?}");
    };
    let all = move || {
        let forms = [
            ("0 + ", "", 2),
            ("max([", "])", 3),
            ("-(-", ")", 3),
            ("[", "][0]", 3),
            ("0 if false else ", "", 2),
            ("column([[", "]], 0)[0]", 5),
        ];
        for (before, behind, levels) in forms {
            check([before, behind], levels);
        }
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(all).unwrap().join().unwrap();
}

/// A rank has the tasks of the loops that it has rounds of.
#[test]
fn bounds_may_differ_between_ranks() {
    let [scale, _] = row_tasks("m", ["", ""]);
    let text = format!(
        "{HEAD}[[task]]\nname = \"mine\"\nfor = \"m in rank..2 * rank\"\ndo = [{{ name = \"a\", {scale} }}]\n"
    );
    for (rank, graph) in graphs(&text, 4).iter().enumerate() {
        let names: Vec<&str> =
            graph.tasks(Phase::Step).iter().map(|node| node.origin.name.as_str()).collect();
        let expected: Vec<String> = (rank..2 * rank).map(|m| format!("mine[{m}].a")).collect();
        assert_eq!(names, expected);
    }
}

/// One step of the heat equation on ranks in a grid, whose edges are exchanged; then the same on one grid.
#[test]
fn heat_on_a_mesh_is_heat_on_one_grid() {
    const N: usize = 11;
    const STEPS: usize = 4;
    let text = format!(
        r#"steps = {STEPS}
[params]
n = {N}
px = "2 if world % 2 == 0 else 1"
h = "share(n, y.rank, y.size)"
w = "share(n, x.rank, x.size)"
row = "w + 2"
[world]
mesh = [{{ y = "world / px" }}, {{ x = "px" }}]
require = ["h > 0 and w > 0", "y.size * x.size == world"]
[buffer.u]
dtype = "f64"
shape = ["h + 2", "row"]
init = {{ fill = "((offset(n, y.rank, y.size) + i / row) * 7 + (offset(n, x.rank, x.size) + i % row) * 3) % 11" }}
save = "u-{{rank}}.npy"
[buffer.v]
dtype = "f64"
shape = ["h + 2", "row"]
[buffer.side]
dtype = "f64"
shape = [4, "h"]
init = {{ fill = 0 }}
[[task]]
name = "pack"
for = "s in 2"
kernel = "copy_2d"
args = {{ src = "u", dst = "side[s]", rows = "h", cols = 1, src_at = "row + 1 + s * (w - 1)", dst_stride = 1 }}
grid = {{ threads = [1, "h"], block = [1, 64] }}
[[task]]
name = "halo-x"
group = [
  {{ when = "x.rank > 0", op = "send", args = {{ buffer = "side[0]", peer = "x.rank - 1", comm = "x" }} }},
  {{ when = "x.rank > 0", op = "recv", args = {{ buffer = "side[2]", peer = "x.rank - 1", comm = "x" }} }},
  {{ when = "x.rank < x.size - 1", op = "send", args = {{ buffer = "side[1]", peer = "x.rank + 1", comm = "x" }} }},
  {{ when = "x.rank < x.size - 1", op = "recv", args = {{ buffer = "side[3]", peer = "x.rank + 1", comm = "x" }} }},
]
[[task]]
name = "halo-y"
group = [
  {{ when = "y.rank > 0", op = "send", args = {{ buffer = "u[1]", peer = "y.rank - 1", comm = "y" }} }},
  {{ when = "y.rank > 0", op = "recv", args = {{ buffer = "u[0]", peer = "y.rank - 1", comm = "y" }} }},
  {{ when = "y.rank < y.size - 1", op = "send", args = {{ buffer = "u[h]", peer = "y.rank + 1", comm = "y" }} }},
  {{ when = "y.rank < y.size - 1", op = "recv", args = {{ buffer = "u[h + 1]", peer = "y.rank + 1", comm = "y" }} }},
]
[[task]]
name = "unpack"
for = "s in 2"
when = "x.rank > 0 if s == 0 else x.rank < x.size - 1"
kernel = "copy_2d"
args = {{ src = "side[s + 2]", dst = "u", rows = "h", cols = 1, src_stride = 1, dst_at = "row + s * (w + 1)" }}
grid = {{ threads = [1, "h"], block = [1, 64] }}
[[task]]
name = "step"
kernel = "stencil5"
args = {{ src = "u", dst = "v", k = 0.2 }}
grid = {{ threads = ["row", "h + 2"], block = [32, 8] }}
[[task]]
name = "back"
kernel = "copy"
args = {{ src = "v", dst = "u" }}
grid = "len(u)"
"#
    );
    let width = N + 2;
    let mut grid: Vec<f64> =
        (0..width * width).map(|at| ((at / width * 7 + at % width * 3) % 11) as f64).collect();
    for _ in 0..STEPS {
        let before = grid.clone();
        for (y, x) in (1..=N).flat_map(|y| (1..=N).map(move |x| (y, x))) {
            let at = y * width + x;
            let around = before[at - 1] + before[at + 1] + before[at - width] + before[at + width];
            grid[at] = before[at] + 0.2 * (around - 4.0 * before[at]);
        }
    }
    for world in [1, 2, 3, 4, 5, 6, 7_u32] {
        let ran = run_text(world, &text);
        let columns = if world % 2 == 0 { 2 } else { 1 };
        let rows = world as usize / columns;
        let part = |part: usize, parts: usize| {
            let begin = part * (N / parts) + part.min(N % parts);
            (begin, N / parts + usize::from(part < N % parts))
        };
        for rank in 0..world as usize {
            let ((top, h), (left, w)) = (part(rank / columns, rows), part(rank % columns, columns));
            let found: Vec<f64> = ran.saved("u", rank as u32);
            assert_eq!(found.len(), (h + 2) * (w + 2));
            for (y, x) in (1..=h).flat_map(|y| (1..=w).map(move |x| (y, x))) {
                let (found, expected) = (found[y * (w + 2) + x], grid[(top + y) * width + left + x]);
                assert!(
                    (found - expected).abs() < 1e-12,
                    "world {world}, rank {rank}, {y}, {x}: {found}, not {expected}"
                );
            }
        }
    }
}

const MICRO: usize = 4;
const ROWS: usize = 3;
const D: usize = 5;

/// `a[r, d] · b[d, d]`, or with `b` transposed.
fn product(a: &[f64], b: &[f64], transposed: bool) -> Vec<f64> {
    let at = |row: usize, column: usize| if transposed { b[column * D + row] } else { b[row * D + column] };
    let element = |place: usize| (0..D).map(|k| a[place / D * D + k] * at(k, place % D)).sum();
    (0..a.len()).map(element).collect()
}

/// Stages in a row, each with its layer; micro-batches go forward and their gradients back.
#[test]
fn a_pipeline_of_stages_is_the_layers_one_after_another() {
    const STEPS: usize = 3;
    let text = format!(
        r#"steps = {STEPS}
[params]
micro = {MICRO}
rows = {ROWS}
d = {D}
first = "rank == 0"
last = "rank == world - 1"
[buffer.data]
dtype = "f64"
shape = ["micro", "rows", "d"]
init = {{ fill = "(i * 5 % 7) * 0.1" }}
[buffer.target]
dtype = "f64"
shape = ["micro", "rows", "d"]
init = {{ fill = "(i * 3 % 4) * 0.25" }}
[buffer.inp]
dtype = "f64"
shape = ["micro", "rows", "d"]
[buffer.out]
dtype = "f64"
shape = ["micro", "rows", "d"]
[buffer.dout]
dtype = "f64"
shape = ["micro", "rows", "d"]
[buffer.din]
dtype = "f64"
shape = ["micro", "rows", "d"]
[buffer.w]
dtype = "f64"
shape = ["d", "d"]
init = {{ fill = "((i * 7 + rank * 3) % 5 - 2) * 0.2" }}
save = "w-{{rank}}.npy"
[buffer.dw]
dtype = "f64"
shape = ["d", "d"]
[[task]]
name = "forward"
for = "m in micro"
do = [
  {{ name = "load", when = "first", kernel = "copy", args = {{ src = "data[m]", dst = "inp[m]" }}, grid = "rows * d" }},
  {{ name = "recv", when = "not first", op = "recv", args = {{ buffer = "inp[m]", peer = "rank - 1" }} }},
  {{ name = "layer", kernel = "matmul_nn", args = {{ a = "inp[m]", b = "w", c = "out[m]" }}, grid = {{ threads = ["d", "rows"], block = [16, 16] }} }},
  {{ name = "send", when = "not last", op = "send", args = {{ buffer = "out[m]", peer = "rank + 1" }} }},
]
[[task]]
name = "backward"
for = "m in micro"
do = [
  {{ name = "loss", when = "last", kernel = "sub", args = {{ a = "out[m]", b = "target[m]", out = "dout[m]" }}, grid = "rows * d" }},
  {{ name = "recv", when = "not last", op = "recv", args = {{ buffer = "dout[m]", peer = "rank + 1" }} }},
  {{ name = "layer", kernel = "matmul_nt", args = {{ a = "dout[m]", b = "w", c = "din[m]" }}, grid = {{ threads = ["d", "rows"], block = [16, 16] }} }},
  {{ name = "send", when = "not first", op = "send", args = {{ buffer = "din[m]", peer = "rank - 1" }} }},
]
[[task]]
name = "gradient"
kernel = "matmul_tn"
args = {{ a = "inp", b = "dout", c = "dw", m = "d", k = "micro * rows", n = "d" }}
grid = {{ threads = ["d", "d"], block = [16, 16] }}
[[task]]
name = "sgd"
kernel = "sgd"
args = {{ param = "w", grad = "dw", lr = 0.01 }}
grid = "len(w)"
"#
    );
    let size = MICRO * ROWS * D;
    let data: Vec<f64> = (0..size).map(|i| (i * 5 % 7) as f64 * 0.1).collect();
    let target: Vec<f64> = (0..size).map(|i| (i * 3 % 4) as f64 * 0.25).collect();
    for world in WORLDS {
        let weight =
            |rank: usize| (0..D * D).map(|i| (((i * 7 + rank * 3) % 5) as f64 - 2.0) * 0.2).collect();
        let mut weights: Vec<Vec<f64>> = (0..world as usize).map(weight).collect();
        for _ in 0..STEPS {
            let mut inputs = vec![data.clone()];
            for w in &weights {
                inputs.push(product(&inputs[inputs.len() - 1], w, false));
            }
            let out = inputs.pop().unwrap();
            let mut gradient: Vec<f64> = out.iter().zip(&target).map(|(out, target)| out - target).collect();
            for (w, input) in weights.iter_mut().zip(&inputs).rev() {
                let back = product(&gradient, w, true);
                for (place, w) in w.iter_mut().enumerate() {
                    let (row, column) = (place / D, place % D);
                    let terms = (0..size / D).map(|k| input[k * D + row] * gradient[k * D + column]);
                    *w -= 0.01 * terms.sum::<f64>();
                }
                gradient = back;
            }
        }
        let ran = run_text(world, &text);
        for (rank, expected) in weights.iter().enumerate() {
            let found: Vec<f64> = ran.saved("w", rank as u32);
            let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9);
            assert!(
                near && found.len() == expected.len(),
                "world {world}, rank {rank}: {found:?}, not {expected:?}"
            );
        }
    }
}
