//! Groups, repeated steps, and communicators beside the world.

use crate::conformance::values::{encode, equal};
use crate::conformance::{Op, Outcome, Ranks, Target};
use crate::dtype::DType;
use crate::reduce::ReduceOp;
use crate::world::{CommId, World};

fn world(size: u32) -> Result<World, String> {
    World::new(size.into()).map_err(|error| error.to_string())
}

fn sum(buffer: &super::Buffer, comm: CommId) -> Op {
    Op::new("all_reduce").on(comm).buffer("buffer", buffer.whole(DType::I32)).reduce(ReduceOp::Sum)
}

fn i32s(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    encode(DType::I32, values.into_iter().map(i128::from))
}

pub(super) fn mixed(target: &Target<'_>) -> Outcome {
    for size in target.worlds(2) {
        Ranks::connect(target, world(size)?)?.run(|rank| {
            let me = rank.rank;
            let (to, from) = ((me + 1) % size, (me + size - 1) % size);
            let mut summed = rank.upload(&i32s([me, 1]))?;
            let mut given = rank.upload(&i32s([if me == size - 1 { 5 } else { 0 }]))?;
            let sent = rank.upload(&i32s([me + 40]))?;
            let mut got = rank.upload(&i32s([0]))?;
            rank.run_group(&[
                Op::new("recv").buffer("buffer", got.whole(DType::I32)).rank("peer", from),
                sum(&summed, CommId::WORLD),
                Op::new("send").buffer("buffer", sent.whole(DType::I32)).rank("peer", to),
                Op::new("broadcast").buffer("buffer", given.whole(DType::I32)).rank("root", size - 1),
            ])?;
            let what = |part| format!("world {size}, {part}");
            let total = (0..size).sum();
            equal(&what("all_reduce"), DType::I32, &rank.read(&mut summed)?, &i32s([total, size]), false)?;
            equal(&what("broadcast"), DType::I32, &rank.read(&mut given)?, &i32s([5]), false)?;
            equal(&what("recv"), DType::I32, &rank.read(&mut got)?, &i32s([from + 40]), false)
        })?;
    }
    Ok(())
}

pub(super) fn steps(target: &Target<'_>) -> Outcome {
    for size in target.worlds(1) {
        Ranks::connect(target, world(size)?)?.run(|rank| {
            let mut buffer = rank.upload(&i32s([1, rank.rank]))?;
            let mut sums = rank.prepare(&[sum(&buffer, CommId::WORLD)])?;
            let to = (rank.rank + 1) % size;
            let from = (rank.rank + size - 1) % size;
            let token = rank.upload(&i32s([0]))?;
            let mut got = rank.upload(&i32s([0]))?;
            let mut shift = rank.prepare(&[Op::new("send_recv")
                .buffer("send", token.whole(DType::I32))
                .rank("to", to)
                .buffer("recv", got.whole(DType::I32))
                .rank("from", from)])?;
            let mut token = token;
            let total: u32 = (0..size).sum();
            let mut want = [1u32, total];
            for step in 0..10u32 {
                rank.write(&mut token, &i32s([step * 100 + rank.rank]))?;
                rank.run(&mut *sums).map_err(|error| error.to_string())?;
                rank.run(&mut *shift).map_err(|error| error.to_string())?;
                want[0] = want[0].wrapping_mul(size);
                if step > 0 {
                    want[1] = want[1].wrapping_mul(size);
                }
                let what = format!("world {size}, step {step}");
                equal(&what, DType::I32, &rank.read(&mut buffer)?, &i32s(want), false)?;
                equal(&what, DType::I32, &rank.read(&mut got)?, &i32s([step * 100 + from]), false)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

pub(super) fn split(target: &Target<'_>) -> Outcome {
    for size in target.worlds(2) {
        let mut all = world(size)?;
        // Even and odd ranks, in reverse order of rank.
        let halves = all
            .split("halves", |rank| (i64::from(rank % 2), -i64::from(rank)))
            .map_err(|error| error.to_string())?;
        Ranks::connect(target, all)?.run(|rank| {
            let me = rank.rank;
            let members: Vec<u32> = (0..size).rev().filter(|r| r % 2 == me % 2).collect();
            let mine = rank.upload(&i32s([me]))?;
            let mut order = rank.upload(&i32s(members.iter().map(|_| 0)))?;
            let mut total = rank.upload(&i32s([me]))?;
            rank.run_group(&[Op::new("all_gather")
                .on(halves)
                .buffer("send", mine.whole(DType::I32))
                .buffer("recv", order.whole(DType::I32))])?;
            rank.run_group(&[sum(&total, halves)])?;
            rank.run_group(&[sum(&total, CommId::WORLD)])?;
            let halves = |parity: u32| (0..size).filter(move |r| r % 2 == parity);
            // Each rank brought its half's sum into the sum over the world.
            let want = (0..2).map(|parity| halves(parity).sum::<u32>() * halves(parity).count() as u32).sum();
            let what = |part| format!("world {size}, {part}");
            equal(&what("all_gather"), DType::I32, &rank.read(&mut order)?, &i32s(members), false)?;
            equal(&what("all_reduce"), DType::I32, &rank.read(&mut total)?, &i32s([want]), false)
        })?;
    }
    Ok(())
}

pub(super) fn two_communicators(target: &Target<'_>) -> Outcome {
    for size in target.worlds(2) {
        let mut all = world(size)?;
        let turned = all.split("turned", |rank| (0, -i64::from(rank))).map_err(|error| error.to_string())?;
        Ranks::connect(target, all)?.run(|rank| {
            let me = rank.rank;
            let place = size - 1 - me;
            let mut a = rank.upload(&i32s([me]))?;
            let mut b = rank.upload(&i32s([1]))?;
            let sent = rank.upload(&i32s([me]))?;
            let mut got = rank.upload(&i32s([0]))?;
            rank.run_group(&[
                sum(&b, turned),
                Op::new("send")
                    .on(turned)
                    .buffer("buffer", sent.whole(DType::I32))
                    .rank("peer", (place + 1) % size),
                Op::new("recv")
                    .on(turned)
                    .buffer("buffer", got.whole(DType::I32))
                    .rank("peer", (place + size - 1) % size),
                sum(&a, CommId::WORLD),
            ])?;
            let what = |part| format!("world {size}, {part}");
            equal(&what("world"), DType::I32, &rank.read(&mut a)?, &i32s([(0..size).sum()]), false)?;
            equal(&what("turned"), DType::I32, &rank.read(&mut b)?, &i32s([size]), false)?;
            // The left neighbour in the turned order is the right one in the world.
            equal(&what("recv"), DType::I32, &rank.read(&mut got)?, &i32s([(me + 1) % size]), false)
        })?;
    }
    Ok(())
}
