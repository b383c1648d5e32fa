//! Ctrl-C and termination: ranks stop, nothing half-written stays, and the status says so.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Ended, Folder, scaled};

/// Runs for as long as it is let.
fn endless() -> Folder {
    let folder = Folder::with(&format!(
        "{}[pipeline]\nsteps = 9000000000000000000\n",
        scaled("init = { fill = 1 }\nsave = \"out/u-{rank}.npy\"")
            + "[[task]]\nop = \"all_reduce\"\nargs = { buffer = \"u\", reduce = \"max\" }\n"
    ));
    folder.write("out/u-0.npy", b"old");
    folder
}

/// Waits until the outputs are prepared, which is done before buffers are filled, and a little longer.
fn prepared(folder: &Folder, child: &mut Child) {
    let until = Instant::now() + Duration::from_secs(60);
    while !folder.files().iter().any(|name| name.contains(".squall-")) {
        assert!(Instant::now() < until && child.try_wait().unwrap().is_none(), "outputs were not prepared");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(200));
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn stopped_by(folder: &Folder, signals: &[Signal]) -> Ended {
    let mut child = folder.command(&["run", "m.toml"]).spawn().unwrap();
    prepared(folder, &mut child);
    for (index, signal) in signals.iter().enumerate() {
        if index > 0 {
            std::thread::sleep(Duration::from_millis(300));
        }
        send(&child, *signal);
    }
    Ended::of(child.wait_with_output().unwrap())
}

#[test]
fn a_signal_stops_the_steps() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = endless();
        stopped_by(&folder, &[signal]).failed(130, &["error[E0403]: interrupted in step "]);
        assert_eq!(folder.files(), ["m.toml", "out/u-0.npy"]);
        assert_eq!(std::fs::read(folder.path("out/u-0.npy")).unwrap(), b"old");
    }
}

#[test]
fn a_signal_stops_the_filling_of_buffers() {
    let slow = scaled("init = { fill = \"(i * 7 + rank) % 251\" }\nsave = \"out/u-{rank}.npy\"")
        .replace("f32", "u8")
        .replace("shape = [4]", "shape = [\"512Mi\"]")
        .replace("threads = 4, block = 4", "threads = \"512Mi\", block = 256");
    let folder = Folder::with(&slow);
    stopped_by(&folder, &[Signal::INT]).failed(130, &["error[E0403]: interrupted\n"]);
    assert_eq!(folder.files(), ["m.toml"]);
}

/// A kernel that runs on keeps the first signal waiting; the second does not wait, nor say anything.
#[test]
fn a_second_signal_ends_at_once() {
    let long = r#"manifest = 1
[world]
devices = "host:0"
[buffer.a]
dtype = "f64"
shape = [4000, 4000]
init = { fill = 1 }
[buffer.c]
dtype = "f64"
shape = [4000, 4000]
save = "out/c-{rank}.npy"
[[task]]
kernel = "matmul_nn"
args = { a = "a", b = "a", c = "c" }
grid = { threads = [4000, 4000], block = [16, 16] }
"#;
    let folder = Folder::with(long);
    let mut child = folder.command(&["run", "m.toml"]).spawn().unwrap();
    prepared(&folder, &mut child);
    // Until the kernel runs: nothing else keeps the rank's thread busy for so long.
    while rank_time(child.id()) < 50 {
        assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
        std::thread::sleep(Duration::from_millis(20));
    }
    send(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    send(&child, Signal::INT);
    let ended = Ended::of(child.wait_with_output().unwrap()).failed(130, &[]);
    assert_eq!(ended.err, "");
    assert!(!folder.path("out/c-0.npy").exists());
}

/// Processor time that the thread of rank 0 has used, in hundredths of a second; 0 before it exists.
fn rank_time(process: u32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    let stats =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    let mut times = stats.filter_map(|stat| {
        let (head, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        head.ends_with("(squall-rank-0")
            .then(|| Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?))?
    });
    times.next().unwrap_or(0)
}
