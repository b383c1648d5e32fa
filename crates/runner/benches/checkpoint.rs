//! Checkpoints: how fast they are written beside a plain write and sync of as many bytes, and how long a step stands still for
//! one beside a plain copy in memory.
//!
//! `cargo bench -p squall-runner --bench checkpoint [MiB a rank [folder]]`: 256 MiB and the system's temporary folder if left out.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and may stop where it stands"
)]

// The providers of this program.
use squall_host_backend as _;
use squall_kernels_std as _;

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use squall_core::{BufferId, Interrupt, Options, PlanGroup, Registry, verify};
use squall_runner::manifest::parse;
use squall_runner::resolve::resolve;
use squall_runner::run::{self, Readings, Request, Watcher};

const RANKS: u64 = 2;
const CHECKPOINTS: u64 = 5;

struct Quiet;

impl Watcher for Quiet {
    fn note(&mut self, _: &str) {}
    fn begin(&mut self, _: u64, _: &Interrupt) {}
    fn readings(&mut self, _: &Readings) {}
}

/// A job that carries so many bytes on each rank, and whose steps take next to nothing.
fn manifest(mib: u64, checkpoint: bool) -> String {
    let checkpoint = if checkpoint { "[checkpoint]\ndir = \"ckpt\"\nevery = 1\n" } else { "" };
    format!(
        r#"manifest = 1
[pipeline]
steps = {CHECKPOINTS}
[world]
devices = "host:0..{RANKS}"
{checkpoint}[buffer.w]
dtype = "u8"
shape = ["{mib}Mi"]
init = {{ fill = 7 }}
[[task]]
kernel = "scale"
args = {{ data = "w[0:1]", factor = 2 }}
grid = {{ threads = 1, block = 1 }}
"#
    )
}

fn timed(registry: &Registry, mib: u64, checkpoint: bool, folder: &Path) -> Duration {
    let (manifest, _) = parse(&manifest(mib, checkpoint)).unwrap();
    let request =
        Request { manifest: &manifest, folder, file: None, devices: None, steps: None, process: None };
    let start = Instant::now();
    run::run(registry, &request, &mut Quiet).unwrap();
    let elapsed = start.elapsed();
    let _ = std::fs::remove_dir_all(folder.join("ckpt"));
    elapsed
}

/// As many files as a checkpoint's ranks, each written in one go and synced.
fn plain(bytes: &[u8], folder: &Path) -> Duration {
    let start = Instant::now();
    for checkpoint in 0..CHECKPOINTS {
        for rank in 0..RANKS {
            let mut file = File::create(folder.join(format!("{}-{rank}", checkpoint % 3))).unwrap();
            file.write_all(bytes).unwrap();
            file.sync_all().unwrap();
        }
    }
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

/// The time that steps stand still, and that of a copy of as many bytes by as many threads.
fn stopped(registry: &Registry, mib: u64) -> (f64, f64) {
    let (manifest, _) = parse(&manifest(mib, true)).unwrap();
    let verified = verify(resolve(&manifest, registry, RANKS, "host").unwrap().graphs).unwrap();
    let devices: Vec<_> =
        (0..RANKS as u32).map(|i| registry.backend("host").unwrap().open(i).unwrap()).collect();
    let carried = verified.carried();
    let mut group = PlanGroup::new(registry, verified, &devices, Options::default()).unwrap();
    let bytes = vec![7; (mib << 20) as usize];
    for rank in 0..RANKS as u32 {
        group.write_bytes(rank, BufferId(0), &bytes).unwrap();
    }
    let mut snapshot = Some(group.snapshot(&carried).unwrap());
    let stops = (0..11).map(|_| {
        group.execute().unwrap();
        let start = Instant::now();
        snapshot = Some(group.copy_to(snapshot.take().unwrap()).unwrap());
        start.elapsed()
    });
    let stops = median(stops.collect());
    drop((snapshot, group));
    let mut copies = vec![vec![1; bytes.len()]; RANKS as usize];
    let sources = vec![bytes; RANKS as usize];
    let times = (0..11).map(|_| {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for (copy, source) in copies.iter_mut().zip(&sources) {
                scope.spawn(|| copy.copy_from_slice(source));
            }
        });
        start.elapsed()
    });
    (stops, median(times.collect()))
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mib: u64 = args.next().map_or(256, |mib| mib.parse().unwrap());
    let folder = args.next().map_or_else(tempfile::tempdir, tempfile::tempdir_in).unwrap();
    let registry = Registry::linked().unwrap();
    let total = (RANKS * (mib << 20)) as f64;
    println!("| {RANKS} ranks of {mib} MiB | | beside | |\n|---|---:|---|---:|");
    let (stop, copy) = stopped(&registry, mib);
    println!(
        "| steps stand still, ms | {:.1} | a copy of as many bytes, ms | {:.1} |",
        stop * 1e3,
        copy * 1e3
    );
    // In turns, since a disk is not the same all the time.
    let (mut with, mut without, mut plainly) = (Vec::new(), Vec::new(), Vec::new());
    let bytes = vec![7; (mib << 20) as usize];
    for _ in 0..3 {
        with.push(timed(&registry, mib, true, folder.path()));
        without.push(timed(&registry, mib, false, folder.path()));
        plainly.push(plain(&bytes, folder.path()));
    }
    let rate = |seconds: f64| total * CHECKPOINTS as f64 / seconds / 1e6;
    let (written, plainly) = (rate(median(with) - median(without)), rate(median(plainly)));
    println!(
        "| checkpoints one after the other, MB/s | {written:.0} | write and sync of as many bytes, MB/s | {plainly:.0} |"
    );
}
