//! `squall check` as a whole process: on 10,000 ranks × 100 collectives, on worlds that grow, and on a loop over 1,000 bodies; and the digits example
//! as a whole process.
//!
//! `cargo bench -p squall-runner --bench check`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and may stop where it stands"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const RUNS: usize = 7;
const TASKS: usize = 100;

const HEAD: &str = r#"manifest = 1
[world]
devices = "host:0..2"
[buffer.x]
dtype = "f32"
shape = [2, 1024]
init = { fill = "rank" }
"#;

const SAME: &str = r#"op = "all_reduce"
args = { buffer = "x", reduce = "sum" }"#;

const ROOTED: &str = r#"op = "broadcast"
args = { buffer = "x", root = "world - 1" }"#;

const RING: &str = r#"op = "send_recv"
args = { send = "x[1]", to = "(rank + 1) % world", recv = "x[0]", from = "(rank - 1) % world" }"#;

const PEERS: &str = r#"manifest = 1
[world]
devices = "host:0..2"
[buffer.out]
dtype = "f32"
shape = ["world", 4]
init = { fill = "rank" }
[buffer.back]
dtype = "f32"
shape = ["world", 4]
save = "back-{rank}.npy"
[[task]]
group = [
  { for = "peer in world", op = "send", args = { buffer = "out[peer]", peer = "peer" } },
  { for = "peer in world", op = "recv", args = { buffer = "back[peer]", peer = "peer" } },
]
"#;

/// Numbers of ranks that show how the time grows.
const WORLDS: [u32; 6] = [16, 64, 256, 1024, 4096, 16384];

const BODIES: &str = r#"[[task]]
for = "m in 1000"
do = [
  { kernel = "scale", args = { data = "x[m % 2]", factor = "m" }, grid = { threads = 1024, block = 256 } },
  { op = "all_reduce", args = { buffer = "x[m % 2]", reduce = "sum" } },
]
"#;

/// The median of several runs in `folder`, after one that warms caches.
fn median(arguments: &[&str], folder: &Path) -> Duration {
    let run = || {
        let start = Instant::now();
        let mut squall = Command::new(env!("CARGO_BIN_EXE_squall"));
        let ended = squall.args(arguments).current_dir(folder).stdout(Stdio::null()).status().unwrap();
        assert!(ended.success(), "{arguments:?}");
        start.elapsed()
    };
    run();
    let mut times: Vec<Duration> = (0..RUNS).map(|_| run()).collect();
    times.sort_unstable();
    times[RUNS / 2]
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    println!("| whole process | median s |\n|---|---:|");
    for (what, task) in [("all_reduce", SAME), ("broadcast", ROOTED), ("send_recv in a ring", RING)] {
        let manifest = HEAD.to_string() + &format!("[[task]]\n{task}\n").repeat(TASKS);
        std::fs::write(folder.path().join("m.toml"), manifest).unwrap();
        let time = median(&["check", "m.toml", "--world", "10000"], folder.path());
        println!("| `check`, 10,000 ranks × {TASKS} {what} | {:.2} |", time.as_secs_f64());
    }
    println!(
        "\n| ranks | × {TASKS} all_reduce, s | × {TASKS} send_recv in a ring, s | every pair in one group, s |\n|---:|---:|---:|---:|"
    );
    let tasks = |task: &str| HEAD.to_string() + &format!("[[task]]\n{task}\n").repeat(TASKS);
    for world in WORLDS {
        let time = |manifest: String| {
            std::fs::write(folder.path().join("m.toml"), manifest).unwrap();
            format!(
                "{:.3}",
                median(&["check", "m.toml", "--world", &world.to_string()], folder.path()).as_secs_f64()
            )
        };
        // Of twice as many ranks there are four times as many pairs.
        let pairs = if world <= 1024 { time(PEERS.to_string()) } else { "-".to_string() };
        println!("| {world} | {} | {} | {pairs} |", time(tasks(SAME)), time(tasks(RING)));
    }
    println!("\n| whole process | median s |\n|---|---:|");
    std::fs::write(folder.path().join("m.toml"), HEAD.to_string() + BODIES).unwrap();
    let time = median(&["check", "m.toml", "--world", "4"], folder.path());
    println!("| `check`, 4 ranks, a `for` over 1,000 bodies of two tasks | {:.3} |", time.as_secs_f64());
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits");
    let copy = folder.path().join("digits");
    std::fs::create_dir_all(copy.join("data")).unwrap();
    for file in ["train.toml", "data/digits-train-x.npy", "data/digits-train-y.npy"] {
        std::fs::copy(digits.join(file), copy.join(file)).unwrap();
    }
    println!(
        "| `run examples/digits/train.toml` | {:.3} |",
        median(&["run", "train.toml"], &copy).as_secs_f64()
    );
}
