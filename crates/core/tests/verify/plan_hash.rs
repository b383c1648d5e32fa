//! The plan hash: equal for equal jobs, and changed by any single change.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_core::{BufferDecl, DType, Download, GroupSpec, Phase, SwapSpec, TaskSpec, Upload, World};

use crate::job::*;

/// What the jobs are made from; a test changes one thing of it.
#[derive(Clone)]
struct Recipe {
    device: &'static str,
    size: u64,
    color: fn(u32) -> i64,
    key: fn(u32) -> i64,
    buffer: BufferDecl,
    grid: [u64; 2],
    factor: Factor,
    reduce: &'static str,
    root: u32,
    row: bool,
    grouped: bool,
    swapped: bool,
    phase: Phase,
    half: bool,
    op: &'static str,
    /// Which buffers the step swaps in the end.
    renamed: Option<[usize; 2]>,
    names: &'static str,
}

#[derive(Clone)]
enum Factor {
    Int(i64),
    Float(f64),
    Buffer,
}

fn recipe() -> Recipe {
    Recipe {
        device: "host",
        size: 4,
        color: |rank| i64::from(rank / 2),
        key: |_| 0,
        buffer: BufferDecl::new("x", DType::F32, [2, 4]).upload(Upload::First),
        grid: [8, 4],
        factor: Factor::Int(2),
        reduce: "sum",
        root: 0,
        row: false,
        grouped: false,
        swapped: false,
        phase: Phase::Step,
        half: false,
        op: "broadcast",
        renamed: None,
        names: "",
    }
}

fn hash(recipe: &Recipe) -> u128 {
    let mut world = World::new(recipe.size).unwrap();
    let row = world.split("row", |rank| ((recipe.color)(rank), (recipe.key)(rank))).unwrap();
    let graphs = graphs(&Arc::new(world), recipe.device, |g, _| {
        let x = g.buffer(recipe.buffer.clone());
        let one = g.buffer(BufferDecl::new("one", recipe.buffer.dtype, [1]).upload(Upload::First));
        let other = g.buffer(BufferDecl::new("other", DType::F32, [8]).upload(Upload::First));
        let name = |name: &str| format!("{}{name}", recipe.names);
        let whole = g.whole(x).unwrap();
        let range = if recipe.half { whole.rows(1..2).unwrap() } else { whole.rows(0..1).unwrap() };
        if recipe.device == "host" {
            let kernel = scale(&name("k")).arg("x", x).arg("y", x);
            let kernel = match recipe.factor {
                Factor::Int(n) => kernel.arg("factor", n),
                Factor::Float(f) => kernel.arg("factor", f),
                Factor::Buffer => kernel.arg("factor", one),
            };
            g.add(recipe.phase, kernel.grid(recipe.grid[0], recipe.grid[1]));
        }
        let mut sum = task(&name("sum"), "all_reduce").arg("buffer", range).arg("reduce", recipe.reduce);
        if recipe.row {
            sum = sum.on(row);
        }
        let second = task(&name("second"), recipe.op).arg("buffer", other).arg("root", recipe.root);
        let second = if recipe.op == "reduce" { second.arg("reduce", "sum") } else { second };
        let tasks: Vec<TaskSpec> = match (recipe.grouped, recipe.swapped) {
            (true, false) => vec![GroupSpec::new().with(sum).with(second).named(name("both")).into()],
            (true, true) => vec![GroupSpec::new().with(second).with(sum).named(name("both")).into()],
            (false, false) => vec![sum.into(), second.into()],
            (false, true) => vec![second.into(), sum.into()],
        };
        tasks.into_iter().for_each(|task| drop(g.add(Phase::Step, task)));
        if let Some([a, b]) = recipe.renamed {
            let like = ["p", "q", "r"].map(|name| g.buffer(BufferDecl::new(name, DType::F32, [8])));
            g.step(SwapSpec::new(like[a], like[b]).named(name("flip")));
        }
    });
    squall_core::verify(graphs.unwrap()).unwrap().plan_hash()
}

#[test]
fn equal_jobs_have_equal_hashes() {
    assert_eq!(hash(&recipe()), hash(&recipe()));
    // Names and places of tasks say nothing of what is done.
    assert_eq!(hash(&recipe()), hash(&Recipe { names: "renamed ", ..recipe() }));
    // The hash is the same on every machine and in every build: it changes with its version alone.
    assert_eq!(format!("{:032x}", hash(&recipe())), "68d354d3f222975fe9d502c81cc3967e");
}

#[test]
fn any_single_change_changes_the_hash() {
    let base = recipe();
    let decl = |change: fn(&mut BufferDecl)| {
        let mut recipe = recipe();
        change(&mut recipe.buffer);
        recipe
    };
    let grouped = Recipe { grouped: true, ..base.clone() };
    let changes = [
        ("nothing", base.clone()),
        ("device", Recipe { device: "test", ..base.clone() }),
        ("world", Recipe { size: 5, ..base.clone() }),
        ("colours", Recipe { color: |rank| i64::from(rank % 2), ..base.clone() }),
        ("keys", Recipe { key: |rank| -i64::from(rank), ..base.clone() }),
        ("a buffer's name", decl(|x| x.name = "z".into())),
        ("a buffer's dtype", decl(|x| x.dtype = DType::F16)),
        ("a buffer's shape", decl(|x| x.shape = [2, 2, 2].into())),
        ("a buffer's upload", decl(|x| x.upload = Upload::Every)),
        ("a buffer's download", decl(|x| x.download = Download::Last)),
        ("threads", Recipe { grid: [9, 4], ..base.clone() }),
        ("block", Recipe { grid: [8, 8], ..base.clone() }),
        ("a number", Recipe { factor: Factor::Int(3), ..base.clone() }),
        ("a number's type", Recipe { factor: Factor::Float(2.0), ..base.clone() }),
        ("a sign", Recipe { factor: Factor::Float(-2.0), ..base.clone() }),
        ("a number in a buffer", Recipe { factor: Factor::Buffer, ..base.clone() }),
        ("a word", Recipe { reduce: "max", ..base.clone() }),
        ("a root", Recipe { root: 1, ..base.clone() }),
        ("a communicator", Recipe { row: true, ..base.clone() }),
        ("an op", Recipe { op: "reduce", ..base.clone() }),
        ("a range", Recipe { half: true, ..base.clone() }),
        ("order", Recipe { swapped: true, ..base.clone() }),
        ("a group", grouped.clone()),
        ("order in a group", Recipe { swapped: true, ..grouped }),
        ("a swap", Recipe { renamed: Some([0, 1]), ..base.clone() }),
        ("another swap", Recipe { renamed: Some([1, 2]), ..base.clone() }),
        ("a phase", Recipe { phase: Phase::Setup, ..base.clone() }),
        ("another phase", Recipe { phase: Phase::Finish, ..base }),
    ];
    let mut seen: BTreeMap<u128, &str> = BTreeMap::new();
    for (what, recipe) in &changes {
        if let Some(other) = seen.insert(hash(recipe), what) {
            panic!("{what} and {other} give one hash");
        }
    }
}
