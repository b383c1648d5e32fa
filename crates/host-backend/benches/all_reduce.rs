//! The host's collectives against `memcpy`, both on the same buffers, in turn, a thread a rank.
//!
//! A rate counts the bytes that an op must read and write. `memcpy` copies each rank's whole buffer, so that its rate is
//! what the memory gives to as many threads at once. Times are medians over rounds; a round takes as long as its slowest
//! rank. Prints a table in Markdown. `cargo bench -p squall-host-backend --bench all_reduce -- 4 reduce` runs four ranks
//! and the ops with `reduce` in their names.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark stops at a surprise, and prints")]

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use squall_core::conformance::{Buffer, Op, Rank, Ranks, Target};
use squall_core::{DType, ReduceOp, Registry, World};
use squall_host_backend as _;

const MIB: u64 = 1 << 20;

/// Bytes of a rank's longer buffer, and how many rounds to time.
const SIZES: [(u64, usize); 4] = [(MIB / 64, 401), (MIB, 201), (16 * MIB, 41), (64 * MIB, 21)];

/// What is timed.
struct Subject {
    name: &'static str,
    /// The call of one rank on two buffers of so many bytes.
    op: fn(&Rank<'_>, &Buffer, &Buffer, u64) -> Op,
    /// What all ranks together read and write, in buffers, by the number of ranks.
    traffic: fn(f64) -> f64,
}

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "all_reduce f32, in place",
        op: |_, _, recv, _| {
            Op::new("all_reduce").buffer("buffer", recv.whole(DType::F32)).reduce(ReduceOp::Sum)
        },
        traffic: |ranks| 2.0 * ranks,
    },
    Subject {
        name: "all_reduce f32",
        op: |_, send, recv, _| pair("all_reduce", DType::F32, send, recv).reduce(ReduceOp::Sum),
        traffic: |ranks| 2.0 * ranks,
    },
    Subject {
        name: "all_reduce f16",
        op: |_, send, recv, _| pair("all_reduce", DType::F16, send, recv).reduce(ReduceOp::Sum),
        traffic: |ranks| 2.0 * ranks,
    },
    Subject {
        name: "all_reduce bf16",
        op: |_, send, recv, _| pair("all_reduce", DType::Bf16, send, recv).reduce(ReduceOp::Sum),
        traffic: |ranks| 2.0 * ranks,
    },
    Subject {
        name: "reduce_scatter f32",
        op: |rank, send, recv, bytes| {
            let (ranks, block) = blocks(rank, bytes);
            Op::new("reduce_scatter")
                .buffer("send", send.range(DType::F32, 0, block * ranks))
                .buffer("recv", recv.range(DType::F32, 0, block))
                .reduce(ReduceOp::Sum)
        },
        traffic: |ranks| ranks + 1.0,
    },
    Subject {
        name: "all_gather",
        op: |rank, send, recv, bytes| {
            let (ranks, block) = blocks(rank, bytes);
            Op::new("all_gather")
                .buffer("send", send.range(DType::F32, 0, block))
                .buffer("recv", recv.range(DType::F32, 0, block * ranks))
        },
        traffic: |ranks| 2.0 * ranks,
    },
    Subject {
        name: "broadcast, in place",
        op: |_, _, recv, _| Op::new("broadcast").buffer("buffer", recv.whole(DType::F32)).rank("root", 0),
        traffic: |ranks| ranks,
    },
    Subject {
        name: "send_recv around a ring",
        op: |rank, send, recv, _| {
            let size = rank.world.size();
            let (to, from) = ((rank.rank + 1) % size, (rank.rank + size - 1) % size);
            pair("send_recv", DType::F32, send, recv).rank("to", to).rank("from", from)
        },
        traffic: |ranks| 2.0 * ranks,
    },
];

fn pair(op: &'static str, dtype: DType, send: &Buffer, recv: &Buffer) -> Op {
    Op::new(op).buffer("send", send.whole(dtype)).buffer("recv", recv.whole(dtype))
}

/// The ranks, and the elements of a block when as many as there are ranks fill a buffer.
fn blocks(rank: &Rank<'_>, bytes: u64) -> (u64, u64) {
    let ranks = u64::from(rank.world.size());
    (ranks, bytes / 4 / ranks)
}

/// Lets all ranks begin at once. They poll: a wake-up takes longer than the small ops.
#[derive(Default)]
struct Start(AtomicU64);

impl Start {
    fn together(&self, ranks: u64) -> Instant {
        let all = (self.0.fetch_add(1, Ordering::AcqRel) + 1).next_multiple_of(ranks);
        while self.0.load(Ordering::Acquire) < all {
            std::thread::yield_now();
        }
        Instant::now()
    }
}

/// Keeps the calling thread on a core of its own, where the system has a command for it: beside other processes two ranks
/// may end up on one.
fn pin(rank: u32) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    if let Ok(thread) = std::fs::read_link("/proc/thread-self") {
        let core = (rank % cores).to_string();
        let _ =
            Command::new("taskset").arg("-cp").arg(core).arg(thread.file_name().unwrap_or_default()).output();
    }
}

/// Times of one rank: the op's and memcpy's, by round.
fn measure(
    rank: &mut Rank<'_>,
    start: &Start,
    subject: &Subject,
    bytes: u64,
    rounds: usize,
) -> Vec<[Duration; 2]> {
    pin(rank.rank);
    let ones = 1f32.to_ne_bytes().repeat(bytes as usize / 4);
    let (send, recv) = (rank.upload(&ones).unwrap(), rank.upload(&ones).unwrap());
    let op = (subject.op)(rank, &send, &recv, bytes);
    let mut work = rank.prepare(&[op]).unwrap();
    let [to, from] = [&recv, &send].map(|buffer| buffer.whole(DType::U8).ptr);
    let ranks = rank.world.size().into();
    // Small ones several times in a row, so that the clock does not count.
    let repeats = (MIB / bytes).clamp(1, 64) as u32;
    let mut round = || {
        let begin = start.together(ranks);
        (0..repeats).for_each(|_| rank.run(&mut *work).unwrap());
        let op = begin.elapsed();
        let begin = start.together(ranks);
        for _ in 0..repeats {
            // SAFETY: both are this rank's buffers of so many bytes, and nothing else runs.
            unsafe { rank.stream.copy(to, from, bytes) }.unwrap();
        }
        [op, begin.elapsed()].map(|time| time / repeats)
    };
    (0..rounds).map(|_| round()).collect()
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test` runs benchmarks without this flag, to see them build.
    if !args.iter().any(|arg| arg == "--bench") {
        return;
    }
    args.retain(|arg| !arg.starts_with('-'));
    let ranks = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(2u64);
    let part = args.into_iter().find(|arg| arg.parse::<u64>().is_err()).unwrap_or_default();
    let registry = Registry::linked().unwrap();
    let target = Target::new(&registry, "host", "host").unwrap();
    println!("| op, {ranks} ranks | MiB a rank | µs | GB/s | memcpy, GB/s | ratio |");
    println!("|---|--:|--:|--:|--:|--:|");
    for subject in SUBJECTS.iter().filter(|subject| subject.name.contains(&part)) {
        for (bytes, rounds) in SIZES {
            let start = Start::default();
            let job = Ranks::connect(&target, World::new(ranks).unwrap()).unwrap();
            let times = job.run(|rank| Ok(measure(rank, &start, subject, bytes, rounds))).unwrap();
            let median = |which: usize| {
                let slowest = |round: usize| times.iter().map(|rank| rank[round][which]).max().unwrap();
                let mut all: Vec<Duration> = (0..rounds).map(slowest).collect();
                all.sort_unstable();
                all[rounds / 2].as_secs_f64()
            };
            let (op, copy) = (median(0), median(1));
            let rate = (subject.traffic)(ranks as f64) * bytes as f64 / op / 1e9;
            let memcpy = 2.0 * ranks as f64 * bytes as f64 / copy / 1e9;
            let (name, mib) = (subject.name, bytes as f64 / MIB as f64);
            println!("| {name} | {mib} | {:.1} | {rate:.1} | {memcpy:.1} | {:.2} |", op * 1e6, rate / memcpy);
        }
    }
}
