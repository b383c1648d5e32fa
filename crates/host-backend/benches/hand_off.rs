//! What it costs to hand a step to the ranks and to learn that it is done: the time of an empty step, by number of
//! ranks, one by one (`execute`) and queued (`execute_many`); and the processor time an idle group burns.
//!
//! `cargo bench -p squall-host-backend --bench hand_off`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and may stop where it stands"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use squall_core::{Options, PlanGroup, Registry, TaskGraph, World, verify};
use squall_host_backend as _;

const ROUNDS: usize = 20_000;

fn group(registry: &Registry, ranks: u32) -> PlanGroup {
    let world = Arc::new(World::new(ranks.into()).unwrap());
    let graphs = (0..ranks).map(|rank| TaskGraph::builder(registry, &world, rank, "host").build().unwrap());
    let verified = verify(graphs.collect()).unwrap();
    let backend = registry.backend("host").unwrap();
    let devices: Vec<_> = (0..ranks).map(|rank| backend.open(rank).unwrap()).collect();
    PlanGroup::new(registry, verified, &devices, Options::default()).unwrap()
}

/// Nanoseconds of processor time that this process has used.
fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // After the name in parentheses: state, then … utime and stime as the 12th and 13th, in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

fn main() {
    let registry = Registry::linked().unwrap();
    println!("| ranks | one by one, median µs | p99 µs | queued, µs a step | idle after 5 ms, % of a core |");
    println!("|---:|---:|---:|---:|---:|");
    for ranks in [1, 2, 4] {
        let mut group = group(&registry, ranks);
        group.execute_many(1000).unwrap();
        let mut times: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                group.execute().unwrap();
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        let start = Instant::now();
        group.execute_many(ROUNDS as u64).unwrap();
        let queued = start.elapsed() / ROUNDS as u32;
        std::thread::sleep(Duration::from_millis(5));
        let before = processor_time();
        std::thread::sleep(Duration::from_millis(500));
        let idle = processor_time().zip(before).map_or(Duration::ZERO, |(now, before)| now - before);
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        println!(
            "| {ranks} | {:.2} | {:.2} | {:.3} | {:.1} |",
            us(times[ROUNDS / 2]),
            us(times[ROUNDS * 99 / 100]),
            us(queued),
            idle.as_secs_f64() / 0.5 * 100.0
        );
    }
}
