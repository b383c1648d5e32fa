//! The host's collectives against `memcpy`, both on the same buffers, in turn, one thread a rank.
//!
//! A rate counts the bytes that an op must read and write. `memcpy` copies each rank's whole buffer, so that its rate is
//! what the memory gives to as many threads. Prints a table in Markdown; `-- WORLD` sets the number of ranks.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark stops at the first surprise, and prints"
)]

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use squall_core::conformance::{Op, Rank, Ranks, Target};
use squall_core::{DType, ReduceOp, Registry, World};
use squall_host_backend as _;

const MIB: u64 = 1 << 20;

/// An op in one form, and the bytes that all ranks together read and write, in buffers.
struct Subject {
    name: &'static str,
    /// Of a buffer: this rank's part of `send` and `recv`.
    op: fn(&Rank<'_>, [&squall_core::conformance::Buffer; 2], u64) -> Op,
    traffic: fn(f64) -> f64,
}

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "all_reduce, in place",
        op: |_, [_, recv], n| {
            Op::new("all_reduce").buffer("buffer", recv.range(DType::F32, 0, n)).reduce(ReduceOp::Sum)
        },
        traffic: |ranks| 2.0 * ranks,
    },
    Subject {
        name: "all_reduce",
        op: |_, [send, recv], n| {
            Op::new("all_reduce")
                .buffer("send", send.range(DType::F32, 0, n))
                .buffer("recv", recv.range(DType::F32, 0, n))
                .reduce(ReduceOp::Sum)
        },
        traffic: |ranks| 2.0 * ranks,
    },
    Subject {
        name: "all_reduce of f16",
        op: |_, [send, recv], n| {
            Op::new("all_reduce")
                .buffer("send", send.range(DType::F16, 0, 2 * n))
                .buffer("recv", recv.range(DType::F16, 0, 2 * n))
                .reduce(ReduceOp::Sum)
        },
        traffic: |ranks| 2.0 * ranks,
    },
    Subject {
        name: "all_reduce of bf16",
        op: |_, [send, recv], n| {
            Op::new("all_reduce")
                .buffer("send", send.range(DType::Bf16, 0, 2 * n))
                .buffer("recv", recv.range(DType::Bf16, 0, 2 * n))
                .reduce(ReduceOp::Sum)
        },
        traffic: |ranks| 2.0 * ranks,
    },
    Subject {
        name: "reduce_scatter",
        op: |rank, [send, recv], n| {
            let block = n / u64::from(rank.world.size());
            Op::new("reduce_scatter")
                .buffer("send", send.range(DType::F32, 0, block * u64::from(rank.world.size())))
                .buffer("recv", recv.range(DType::F32, 0, block))
                .reduce(ReduceOp::Sum)
        },
        traffic: |ranks| ranks + 1.0,
    },
    Subject {
        name: "all_gather",
        op: |rank, [send, recv], n| {
            let block = n / u64::from(rank.world.size());
            Op::new("all_gather")
                .buffer("send", send.range(DType::F32, 0, block))
                .buffer("recv", recv.range(DType::F32, 0, block * u64::from(rank.world.size())))
        },
        traffic: |ranks| 2.0 * ranks,
    },
    Subject {
        name: "broadcast, in place",
        op: |_, [_, recv], n| {
            Op::new("broadcast").buffer("buffer", recv.range(DType::F32, 0, n)).rank("root", 0)
        },
        traffic: |ranks| 1.0 + (ranks - 1.0),
    },
    Subject {
        name: "send_recv around a ring",
        op: |rank, [send, recv], n| {
            let size = rank.world.size();
            Op::new("send_recv")
                .buffer("send", send.range(DType::F32, 0, n))
                .rank("to", (rank.rank + 1) % size)
                .buffer("recv", recv.range(DType::F32, 0, n))
                .rank("from", (rank.rank + size - 1) % size)
        },
        traffic: |ranks| 2.0 * ranks,
    },
];

/// Lets all ranks begin at once: they poll, since a wake-up takes longer than the small ops.
#[derive(Default)]
struct Barrier(AtomicU64);

impl Barrier {
    fn wait(&self, ranks: u64) {
        let all = (self.0.fetch_add(1, Ordering::AcqRel) + 1).next_multiple_of(ranks);
        while self.0.load(Ordering::Acquire) < all {
            std::thread::yield_now();
        }
    }
}

/// Keeps the calling thread on the core of its rank, where the system has a command for it: otherwise two ranks may be put
/// on one core while another process has the other.
fn pin(rank: u32) {
    let Ok(thread) = std::fs::read_link("/proc/thread-self") else { return };
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let id = thread.file_name().unwrap_or_default();
    let quiet = Command::new("taskset").arg("-cp").arg((rank % cores).to_string()).arg(id).output();
    drop(quiet);
}

/// Times of one rank: the op's and memcpy's, by round.
fn measure(
    rank: &mut Rank<'_>,
    together: &Barrier,
    subject: &Subject,
    bytes: u64,
    rounds: usize,
) -> Vec<[Duration; 2]> {
    pin(rank.rank);
    let n = bytes / 4;
    let contents = 1f32.to_ne_bytes().repeat(n as usize);
    let (send, recv) = (rank.upload(&contents).unwrap(), rank.upload(&contents).unwrap());
    let mut work = rank.prepare(&[(subject.op)(rank, [&send, &recv], n)]).unwrap();
    let [to, from] = [&recv, &send].map(|buffer| buffer.whole(DType::U8).ptr);
    let ranks = rank.world.size().into();
    // Small ones several times in a row.
    let repeats = (MIB / bytes).clamp(1, 64) as u32;
    let mut times = Vec::new();
    for _ in 0..rounds {
        together.wait(ranks);
        let start = Instant::now();
        (0..repeats).for_each(|_| rank.run(&mut *work).unwrap());
        let op = start.elapsed();
        together.wait(ranks);
        let start = Instant::now();
        for _ in 0..repeats {
            // SAFETY: both are this rank's buffers of so many bytes, and nothing else runs.
            unsafe { rank.stream.copy(to, from, bytes) }.unwrap();
        }
        times.push([op, start.elapsed()].map(|time| time / repeats));
    }
    times
}

fn main() {
    let quick = std::env::var("BEST").is_ok();
    // Cargo passes flags such as `--bench`.
    let ranks = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(2u64);
    let registry = Registry::linked().unwrap();
    let target = Target::new(&registry, "host", "host").unwrap();
    println!("| op, {ranks} ranks, f32 | MiB a rank | µs | GB/s | memcpy GB/s | ratio |");
    println!("|---|--:|--:|--:|--:|--:|");
    for subject in SUBJECTS
        .iter()
        .filter(|s| std::env::var("ONLY").is_ok_and(|o| s.name == o) || std::env::var("ONLY").is_err())
    {
        for (bytes, rounds) in [(MIB / 64, 401), (MIB, 201), (16 * MIB, 41), (64 * MIB, 21)] {
            let together = Barrier::default();
            let job = Ranks::connect(&target, World::new(ranks).unwrap()).unwrap();
            let times = job.run(|rank| Ok(measure(rank, &together, subject, bytes, rounds))).unwrap();
            // A round takes as long as its slowest rank.
            let median = |which: usize| {
                let slowest = |round: usize| times.iter().map(|rank| rank[round][which]).max().unwrap();
                let mut all: Vec<Duration> = (0..rounds).map(slowest).collect();
                all.sort_unstable();
                all[if quick { 0 } else { rounds / 2 }].as_secs_f64()
            };
            let (op, copy) = (median(0), median(1));
            let buffers = (subject.traffic)(ranks as f64);
            let rate = buffers * bytes as f64 / op / 1e9;
            let memcpy = 2.0 * ranks as f64 * bytes as f64 / copy / 1e9;
            let (name, mib) = (subject.name, bytes as f64 / MIB as f64);
            println!("| {name} | {mib} | {:.1} | {rate:.1} | {memcpy:.1} | {:.2} |", op * 1e6, rate / memcpy);
        }
    }
}
