//! Sends and receives.

use crate::conformance::values::{encode, equal};
use crate::conformance::{Op, Outcome, Ranks, Target};
use crate::dtype::DType;
use crate::world::World;

fn world(size: u32) -> Result<World, String> {
    World::new(size.into()).map_err(|error| error.to_string())
}

pub(super) fn ring(target: &Target<'_>) -> Outcome {
    for size in target.worlds(1) {
        Ranks::connect(target, world(size)?)?.run(|rank| {
            let (to, from) = ((rank.rank + 1) % size, (rank.rank + size - 1) % size);
            for &dtype in DType::ALL {
                for len in [0, 1, 3, 1000] {
                    let values =
                        |of: u32| encode(dtype, (0..len).map(|i| i128::from((i + u64::from(of)) % 100)));
                    let guard = encode(dtype, [77; 2]);
                    let send = rank.upload(&values(rank.rank))?;
                    let mut recv = rank.upload(&guard.repeat(len as usize / 2 + 3))?;
                    let op = Op::new("send_recv")
                        .buffer("send", send.whole(dtype))
                        .rank("to", to)
                        .buffer("recv", recv.range(dtype, 1, len))
                        .rank("from", from);
                    rank.run_group(&[op])?;
                    let mut want = guard.repeat(len as usize / 2 + 3);
                    let element = dtype.size() as usize;
                    want[element..element * (len as usize + 1)].copy_from_slice(&values(from));
                    equal(
                        &format!("world {size}, {len} of {dtype}"),
                        dtype,
                        &rank.read(&mut recv)?,
                        &want,
                        false,
                    )?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// More than any cache holds, and neither even nor aligned.
pub(super) fn large_and_odd(target: &Target<'_>) -> Outcome {
    const COUNT: u64 = 10_556_587;
    let message = |from: u32| -> Vec<u8> {
        (0..COUNT + 2).flat_map(|i| (i as u32 ^ from << 30).to_ne_bytes()).collect()
    };
    Ranks::connect(target, world(2)?)?.run(|rank| {
        let peer = 1 - rank.rank;
        let send = rank.upload(&message(rank.rank))?;
        let mut recv = rank.upload(&vec![0xa5; (COUNT as usize + 2) * 4])?;
        let range = |buffer: &super::Buffer| buffer.range(DType::U32, 1, COUNT);
        let call = Op::new("send_recv").buffer("send", range(&send)).buffer("recv", range(&recv));
        rank.run_group(&[call.rank("to", peer).rank("from", peer)])?;
        let mut want = message(peer);
        let end = want.len() - 4;
        want[..4].fill(0xa5);
        want[end..].fill(0xa5);
        equal("the message", DType::U32, &rank.read(&mut recv)?, &want, false)
    })?;
    Ok(())
}

pub(super) fn in_order(target: &Target<'_>) -> Outcome {
    let f32s = |values: &[f32]| values.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>();
    // The second message has another length than the first in one of the two runs.
    for second in [&[2.0, 2.0][..], &[2.0, 2.0, 2.0]] {
        let (a, b) = (f32s(&[1.0, 1.0]), f32s(second));
        Ranks::connect(target, world(2)?)?.run(|rank| {
            let peer = 1 - rank.rank;
            let (first, second) =
                if rank.rank == 0 { (a.clone(), b.clone()) } else { (vec![0; a.len()], vec![0; b.len()]) };
            let (mut y, mut x) = (rank.upload(&first)?, rank.upload(&second)?);
            let name = if rank.rank == 0 { "send" } else { "recv" };
            let op = |buffer: &super::Buffer| {
                Op::new(name).buffer("buffer", buffer.whole(DType::F32)).rank("peer", peer)
            };
            rank.run_group(&[op(&y), op(&x)])?;
            equal("the first", DType::F32, &rank.read(&mut y)?, &a, false)?;
            equal("the second", DType::F32, &rank.read(&mut x)?, &b, false)
        })?;
    }
    Ok(())
}

pub(super) fn all_pairs(target: &Target<'_>) -> Outcome {
    for size in target.worlds(1) {
        // From rank p to rank q go p + q elements, so that the rank 0 sends nothing to itself.
        let message = |from: u32, to: u32| {
            encode(DType::I32, (0..from + to).map(|i| i128::from(100 * from + 10 * to + i)))
        };
        Ranks::connect(target, world(size)?)?.run(|rank| {
            let me = rank.rank;
            let mut buffers = Vec::new();
            for peer in 0..size {
                let send = rank.upload(&message(me, peer))?;
                let recv = rank.upload(&vec![0; message(peer, me).len()])?;
                buffers.push((peer, send, recv));
            }
            let mut group = Vec::new();
            for (peer, send, recv) in &buffers {
                group.push(Op::new("recv").buffer("buffer", recv.whole(DType::I32)).rank("peer", *peer));
                group.push(Op::new("send").buffer("buffer", send.whole(DType::I32)).rank("peer", *peer));
            }
            rank.run_group(&group)?;
            for (peer, _, recv) in &mut buffers {
                let what = format!("world {size}, from {peer} to {me}");
                equal(&what, DType::I32, &rank.read(recv)?, &message(*peer, me), false)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

pub(super) fn line(target: &Target<'_>) -> Outcome {
    for size in target.worlds(2) {
        // Down the line, each rank after it has received.
        Ranks::connect(target, world(size)?)?.run(|rank| {
            let me = rank.rank;
            let start = if me == 0 { 9i64 } else { 0 };
            let mut buffer = rank.upload(&start.to_ne_bytes())?;
            let op = |name, peer| Op::new(name).buffer("buffer", buffer.whole(DType::I64)).rank("peer", peer);
            if me > 0 {
                rank.run_group(&[op("recv", me - 1)])?;
            }
            if me + 1 < size {
                rank.run_group(&[op("send", me + 1)])?;
            }
            equal(&format!("world {size}"), DType::I64, &rank.read(&mut buffer)?, &9i64.to_ne_bytes(), false)
        })?;
    }
    Ok(())
}
