//! Aborts: every rank leaves, and a new connection works.

use std::time::{Duration, Instant};

use crate::conformance::values::{encode, equal};
use crate::conformance::{Op, Outcome, Random, Ranks, Target};
use crate::device::DeviceError;
use crate::dtype::DType;
use crate::reduce::ReduceOp;
use crate::world::World;

/// How soon after an abort every rank must have left.
const RELEASE: Duration = Duration::from_secs(4);

fn world(size: u32) -> Result<World, String> {
    World::new(size.into()).map_err(|error| error.to_string())
}

fn healthy(target: &Target<'_>, size: u32) -> Outcome {
    Ranks::connect(target, world(size)?)?
        .run(|rank| {
            let mut buffer = rank.upload(&encode(DType::I32, [1]))?;
            rank.run_group(&[Op::new("all_reduce")
                .buffer("buffer", buffer.whole(DType::I32))
                .reduce(ReduceOp::Sum)])?;
            let want = encode(DType::I32, [i128::from(size)]);
            equal("a new connection", DType::I32, &rank.read(&mut buffer)?, &want, false)
        })
        .map(|_| ())
}

pub(super) fn receive(target: &Target<'_>) -> Outcome {
    for _ in 0..3 {
        Ranks::connect(target, world(2)?)?.run(|rank| {
            let buffer = rank.upload(&encode(DType::F32, [0; 1000]))?;
            let op = Op::new("recv").buffer("buffer", buffer.whole(DType::F32)).rank("peer", 1 - rank.rank);
            let mut recv = rank.prepare(&[op])?;
            if rank.rank == 0 {
                std::thread::sleep(Duration::from_millis(50));
                rank.abort().abort();
                rank.abort().abort();
                if !rank.abort().is_aborted() {
                    return Err("an aborted connection does not say so".to_string());
                }
            }
            let start = Instant::now();
            let outcome = rank.run(&mut *recv);
            if outcome != Err(DeviceError::Aborted) {
                return Err(format!("the receive ended with {outcome:?}"));
            }
            let outcome = recv.enqueue(&mut *rank.stream);
            if outcome != Err(DeviceError::Aborted) {
                return Err(format!("a later call ended with {outcome:?}"));
            }
            if start.elapsed() > RELEASE {
                return Err(format!("it took {:?} to leave", start.elapsed()));
            }
            Ok(())
        })?;
        healthy(target, 2)?;
    }
    Ok(())
}

pub(super) fn any_moment(target: &Target<'_>) -> Outcome {
    let mut random = Random::new(3);
    for round in 0..20 {
        let size = target.worlds(2).nth(round % target.worlds(2).count()).unwrap_or(2);
        let job = Ranks::connect(target, world(size)?)?;
        let abort = job.abort();
        let pause = Duration::from_micros(random.below(3000));
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(pause);
                abort.abort();
            });
            job.run(|rank| {
                let buffers = [0; 3].map(|_| rank.upload(&vec![1; 40_000]));
                let [a, b, c] = buffers;
                let (a, b, c) = (a?, b?, c?);
                let (to, from) = ((rank.rank + 1) % size, (rank.rank + size - 1) % size);
                let group = [
                    Op::new("send").buffer("buffer", a.whole(DType::U32)).rank("peer", to),
                    Op::new("recv").buffer("buffer", b.whole(DType::U32)).rank("peer", from),
                    Op::new("all_reduce").buffer("buffer", c.whole(DType::U32)).reduce(ReduceOp::Sum),
                ];
                let mut work = match rank.prepare(&group) {
                    Err(_) if rank.abort().is_aborted() => return Ok([a, b, c]),
                    prepared => prepared?,
                };
                // Held until all ranks have left, as a plan group does: another's kernel may still be on its way out.
                loop {
                    match rank.run(&mut *work) {
                        Ok(()) => {}
                        Err(DeviceError::Aborted) => return Ok([a, b, c]),
                        Err(error) => return Err(error.to_string()),
                    }
                }
            })
        });
        outcome.map_err(|error| format!("world {size}, aborted after {pause:?}: {error}"))?;
    }
    healthy(target, target.ranks)
}
