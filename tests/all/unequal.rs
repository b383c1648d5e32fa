//! Ranks that hold unequal parts: rows shared out and gathered again, and a mixture of experts whose tokens go by counts.

use squall_tests::run_text;

/// Ten rows over any number of ranks: gathered by all and by one, summed into parts, and scattered again; out of place and in place.
#[test]
fn ten_rows_over_any_number_of_ranks() {
    let text = r#"
[params]
n = 10
[buffer.mine]
dtype = "i32"
shape = ["share(n)", 2]
init = { fill = "2 * offset(n) + i" }
[buffer.all]
dtype = "i32"
shape = ["n", 2]
save = "all-{rank}.npy"
[buffer.placed]
dtype = "i32"
shape = ["n", 2]
init = { fill = "i if i / 2 >= offset(n) and i / 2 < offset(n) + share(n) else -1" }
save = "placed-{rank}.npy"
[buffer.one]
dtype = "i32"
shape = ["n", 2]
init = { fill = -1 }
save = "one-{rank}.npy"
[buffer.mean]
dtype = "i32"
shape = ["share(n)", 2]
save = "mean-{rank}.npy"
[buffer.back]
dtype = "i32"
shape = ["share(n)", 2]
save = "back-{rank}.npy"
[[task]]
op = "all_gather"
args = { send = "mine", recv = "all" }
[[task]]
op = "all_gather"
args = { send = "placed[offset(n) : offset(n) + share(n)]", recv = "placed" }
[[task]]
op = "gather"
args = { send = "mine", recv = "one", root = "world - 1" }
[[task]]
op = "reduce_scatter"
args = { send = "all", recv = "mean", reduce = "avg" }
[[task]]
op = "scatter"
args = { send = "one", recv = "back", root = "world - 1" }
"#;
    let rows: Vec<i32> = (0..20).collect();
    // With eleven, one rank has nothing.
    for world in [1, 2, 3, 4, 7, 11] {
        let ran = run_text(world, text);
        let mut start = 0;
        for rank in 0..world {
            let what = format!("rank {rank} of {world}");
            assert_eq!(ran.saved::<i32>("all", rank), rows, "{what}");
            assert_eq!(ran.saved::<i32>("placed", rank), rows, "{what}");
            let one = if rank == world - 1 { rows.clone() } else { vec![-1; 20] };
            assert_eq!(ran.saved::<i32>("one", rank), one, "{what}");
            let share = 2 * (10 / world + u32::from(rank < 10 % world)) as usize;
            let mine = &rows[start..start + share];
            assert_eq!(ran.saved::<i32>("mean", rank), mine, "{what}");
            assert_eq!(ran.saved::<i32>("back", rank), mine, "{what}");
            start += share;
        }
    }
}

/// Tokens that rank r sends to expert p: some none, some to the rank's own.
fn tokens(r: u32, p: u32) -> u32 {
    (2 * r + 3 * p + r * p) % 5
}

fn matrix(world: u32, of: impl Fn(u32, u32) -> u32) -> String {
    let rows = (0..world).map(|r| (0..world).map(|p| of(r, p)).collect::<Vec<_>>());
    format!("{:?}", rows.collect::<Vec<_>>())
}

/// Each rank is an expert: tokens are dispatched, scaled by the expert's factor, and come back to where they were.
#[test]
fn a_mixture_of_experts() {
    const WIDTH: usize = 3;
    for world in 1..=5 {
        let text = format!(
            r#"
[params]
counts = {}
returned = {}
[buffer.tokens]
dtype = "f32"
shape = ["sum(counts[rank])", {WIDTH}]
init = {{ fill = "rank * 100 + i" }}
[buffer.taken]
dtype = "f32"
shape = ["sum(returned[rank])", {WIDTH}]
[buffer.result]
dtype = "f32"
shape = ["sum(counts[rank])", {WIDTH}]
save = "result-{{rank}}.npy"
[[task]]
name = "dispatch"
op = "all_to_all"
args = {{ send = "tokens", recv = "taken", counts = "counts" }}
[[task]]
name = "expert"
kernel = "scale"
args = {{ data = "taken", factor = "rank + 2" }}
grid = {{ threads = "len(taken)" }}
[[task]]
name = "combine"
op = "all_to_all"
args = {{ send = "taken", recv = "result", counts = "returned" }}
"#,
            matrix(world, tokens),
            matrix(world, |r, p| tokens(p, r)),
        );
        let ran = run_text(world, &text);
        for rank in 0..world {
            let experts = (0..world).flat_map(|p| vec![p; tokens(rank, p) as usize * WIDTH]);
            let want: Vec<f32> =
                (0..).zip(experts).map(|(i, p)| (rank * 100 + i) as f32 * (p + 2) as f32).collect();
            assert_eq!(ran.saved::<f32>("result", rank), want, "rank {rank} of {world}");
        }
    }
}
