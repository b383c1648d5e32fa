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

/// Waits until the process has worked for so many hundredths of a second, which do not depend on how busy the machine is.
fn at_work(child: &mut Child, ticks: u64) {
    let until = Instant::now() + Duration::from_secs(120);
    while cpu_ticks(child.id()) < ticks {
        assert!(Instant::now() < until && child.try_wait().unwrap().is_none(), "it does not work");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Time of the processor that a process has used, in hundredths of a second.
fn cpu_ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The fields behind the name, which may hold spaces: from the third on. Wanted are the 14th and the 15th.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn stopped_by(folder: &Folder, signal: Signal) -> Ended {
    let mut child = folder.command(&["run", "m.toml"]).spawn().unwrap();
    at_work(&mut child, 20);
    send(&child, signal);
    Ended::of(child.wait_with_output().unwrap())
}

#[test]
fn a_signal_stops_the_steps() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = endless();
        stopped_by(&folder, signal).failed(130, &["error[E0403]: interrupted in step "]);
        assert_eq!(folder.files(), ["m.toml", "out/u-0.npy"]);
        assert_eq!(std::fs::read(folder.path("out/u-0.npy")).unwrap(), b"old");
    }
}

#[test]
fn a_signal_stops_a_comparison() {
    let folder = endless();
    let mut child = folder.command(&["compare", "m.toml", "--with", "host"]).spawn().unwrap();
    at_work(&mut child, 20);
    send(&child, Signal::INT);
    Ended::of(child.wait_with_output().unwrap()).failed(130, &["error[E0403]: "]);
    assert_eq!(folder.files(), ["m.toml", "out/u-0.npy"]);
}

#[test]
fn a_signal_stops_the_filling_of_buffers() {
    let slow = scaled("init = { fill = \"(i * 7 + rank) % 251\" }\nsave = \"out/u-{rank}.npy\"")
        .replace("f32", "u8")
        .replace("shape = [4]", "shape = [\"128Mi\"]")
        .replace("threads = 4, block = 4", "threads = \"128Mi\", block = 256");
    let folder = Folder::with(&slow);
    stopped_by(&folder, Signal::INT).failed(130, &["error[E0403]: interrupted\n"]);
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
[buffer.c]
dtype = "f64"
shape = [4000, 4000]
save = "out/c-{rank}.npy"
[[setup]]
kernel = "fill"
args = { dst = "a", value = 1 }
grid = { threads = 16000000, block = 256 }
[[task]]
kernel = "matmul_nn"
args = { a = "a", b = "a", c = "c" }
grid = { threads = [4000, 4000], block = [16, 16] }
"#;
    let folder = Folder::with(long);
    let mut child = folder.command(&["run", "m.toml"]).spawn().unwrap();
    // Far beyond what memory and the first kernel take, and far below the second.
    at_work(&mut child, 100);
    send(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    send(&child, Signal::INT);
    let ended = Ended::of(child.wait_with_output().unwrap()).failed(130, &[]);
    assert_eq!(ended.err, "");
    assert!(!folder.path("out/c-0.npy").exists());
}
