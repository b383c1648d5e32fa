//! Sizes, halves, devices and captures.

use squall_core::conformance::{Op, Outcome, Ranks, Target};
use squall_core::{BoundRange, DType, DevicePtr, ReduceOp, World};
use squall_nccl_ops::UniqueId;

use crate::device;
use crate::ending::{capture, text};
use crate::joining::{ints, joined};

/// Counts that 31 bits do not hold, and the last bytes of the result.
pub(crate) fn large(target: &Target<'static>) -> Outcome {
    const LEN: u64 = (1 << 31) + 8;
    let ran = Ranks::connect(target, World::new(2).unwrap())?.run(|rank| {
        let memory = text(rank.device.alloc(LEN))?;
        let mut staging = text(rank.device.alloc_staging(16))?;
        let me = rank.rank as u8;
        // Rank 0 has the greater of even bytes, rank 1 of odd ones.
        let bytes: Vec<u8> = (0..16).map(|i| if i % 2 == me { 100 + i } else { i }).collect();
        staging.host().unwrap().copy_from_slice(&bytes);
        let end = DevicePtr(memory.ptr().0 + LEN - 16);
        // SAFETY: both places hold 16 bytes; the copy is waited for.
        text(unsafe { rank.stream.copy(end, staging.ptr(), 16) })?;
        text(rank.finish())?;
        let all = BoundRange { ptr: memory.ptr(), dtype: DType::U8, shape: [LEN].into() };
        rank.run_group(&[Op::new("all_reduce").buffer("buffer", all).reduce(ReduceOp::Max)])?;
        // SAFETY: as above.
        text(unsafe { rank.stream.copy(staging.ptr(), end, 16) })?;
        text(rank.finish())?;
        let (got, want) = (staging.host().unwrap().to_vec(), (100..116).collect::<Vec<u8>>());
        if got == want { Ok(()) } else { Err(format!("the last bytes are {got:?}, not {want:?}")) }
    });
    ran.map(|_| ())
}

/// Whether an average divides before it sums is NCCL's choice: the sum of these halves is beyond them.
pub(crate) fn large_halves(target: &Target<'static>) -> Outcome {
    const LARGE: u16 = 0x7b53; // 60000
    const INFINITY: u16 = 0x7c00;
    let got = Ranks::connect(target, World::new(2).unwrap())?.run(|rank| {
        let mut buffer = rank.upload(&LARGE.to_ne_bytes())?;
        let whole = buffer.whole(DType::F16);
        rank.run_group(&[Op::new("all_reduce").buffer("buffer", whole).reduce(ReduceOp::Avg)])?;
        let got = rank.read(&mut buffer)?;
        Ok(u16::from_ne_bytes([got[0], got[1]]))
    })?;
    println!("recorded: the f16 average of 60000 and 60000 is {:#06x} and {:#06x}", got[0], got[1]);
    if got[0] == got[1] && [LARGE, INFINITY].contains(&got[0]) { Ok(()) } else { Err(format!("{got:x?}")) }
}

/// Rank 0 is on the second GPU, rank 1 on the first.
pub(crate) fn turned_devices(target: &Target<'static>) -> Outcome {
    let id = UniqueId::new().map_err(|error| error.to_string())?;
    let ran = joined(target, id, &[(0, device(1)), (1, device(0))])?.run(|rank| {
        let own = rank.upload(&ints([rank.rank as i32]))?;
        let mut all = rank.upload(&ints([7, 7]))?;
        let [send, recv] = [&own, &all].map(|buffer| buffer.whole(DType::I32));
        rank.run_group(&[Op::new("all_gather").buffer("send", send).buffer("recv", recv)])?;
        let gathered = rank.read(&mut all)?;
        let mut given = rank.upload(&ints([10 * rank.rank as i32]))?;
        rank.run_group(&[Op::new("broadcast").buffer("buffer", given.whole(DType::I32)).rank("root", 1)])?;
        match (gathered == ints([0, 1]), rank.read(&mut given)? == ints([10])) {
            (true, true) => Ok(()),
            other => Err(format!("gathered and broadcast: {other:?}")),
        }
    });
    ran.map(|_| ())
}

/// A group in two communicators, captured after one run and replayed.
pub(crate) fn replays(target: &Target<'static>) -> Outcome {
    let mut world = World::new(2).unwrap();
    let turned = world.split("turned", |rank| (0, -i64::from(rank))).unwrap();
    let ran = Ranks::connect(target, world)?.run(|rank| {
        let (me, other) = (rank.rank as i32, 1 - rank.rank);
        let mut sum = rank.upload(&ints([1; 5000]))?;
        let mut first = rank.upload(&ints([me; 3]))?;
        let (sent, mut got) = (rank.upload(&ints([me + 5; 7]))?, rank.upload(&ints([0; 7]))?);
        let mut work = rank.prepare(&[
            Op::new("all_reduce").buffer("buffer", sum.whole(DType::I32)).reduce(ReduceOp::Sum),
            Op::new("send").buffer("buffer", sent.whole(DType::I32)).rank("peer", other),
            Op::new("recv").buffer("buffer", got.whole(DType::I32)).rank("peer", other),
            Op::new("broadcast").on(turned).buffer("buffer", first.whole(DType::I32)).rank("root", 0),
        ])?;
        text(rank.run(&mut *work))?;
        let mut replay = capture(rank, &mut *work)?;
        for step in 2..=6 {
            rank.write(&mut got, &ints([0; 7]))?;
            text(rank.run(&mut *replay))?;
            // Rank 1 is rank 0 of the turned communicator.
            let right = rank.read(&mut sum)? == ints([1 << step; 5000])
                && rank.read(&mut got)? == ints([other as i32 + 5; 7])
                && rank.read(&mut first)? == ints([1; 3]);
            if !right {
                return Err(format!("replay {step} is not right"));
            }
        }
        Ok(())
    });
    ran.map(|_| ())
}
