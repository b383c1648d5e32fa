//! Ranks that are brought together by an id, and ranks that are not.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use squall_core::conformance::{Op, Outcome, Rank, Ranks, Target};
use squall_core::{DType, Device, ReduceOp, World};
use squall_nccl_ops::{Communicators, NcclError, UniqueId};

use crate::device;
use crate::ending::{capture, healthy, level, text};

/// The argument that makes a process of this test the second of two: after it come the rank and the id.
pub(crate) const CHILD: &str = "--join";

/// How long joining may take.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn ints(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_ne_bytes).collect()
}

/// Joins a job of two with these ranks of it.
pub(crate) fn joined<'a>(
    target: &Target<'a>,
    id: UniqueId,
    local: &[(u32, Arc<dyn Device>)],
) -> Result<Ranks<'a>, String> {
    let joined = Communicators::join(id, 2, local, Instant::now() + LIMIT).map_err(|e| e.to_string())?;
    let world = Arc::new(World::new(2).map_err(|error| error.to_string())?);
    let sessions = joined.into_sessions().into_iter().map(Some);
    let members = local.iter().cloned().zip(sessions);
    Ok(Ranks::of(target, world, members.map(|((rank, device), session)| (rank, device, session))))
}

/// Sums and exchanges some numbers between two ranks, of which these are here: as they are called, and captured and replayed.
fn works(ranks: Ranks<'_>) -> Outcome {
    let ran = ranks.run(|rank| {
        let (me, other) = (rank.rank as i32, 1 - rank.rank);
        for step in 0..3 {
            let mut sum = rank.upload(&ints((0..1000).map(|i| i * step + me)))?;
            let mut got = rank.upload(&ints([0; 10]))?;
            let sent = rank.upload(&ints([step * 10 + me; 10]))?;
            rank.run_group(&[
                Op::new("all_reduce").buffer("buffer", sum.whole(DType::I32)).reduce(ReduceOp::Sum),
                Op::new("send").buffer("buffer", sent.whole(DType::I32)).rank("peer", other),
                Op::new("recv").buffer("buffer", got.whole(DType::I32)).rank("peer", other),
            ])?;
            if rank.read(&mut sum)? != ints((0..1000).map(|i| 2 * i * step + 1)) {
                return Err(format!("step {step}: the sum is not right"));
            }
            if rank.read(&mut got)? != ints([step * 10 + other as i32; 10]) {
                return Err(format!("step {step}: what was received is not right"));
            }
        }
        replays(rank)
    });
    ran.map(|_| ())
}

/// The same from a capture, with new numbers in every replay.
fn replays(rank: &mut Rank<'_>) -> Outcome {
    let (me, other) = (rank.rank as i32, 1 - rank.rank);
    let mut sum = rank.upload(&ints([0; 1000]))?;
    let (mut sent, mut got) = (rank.upload(&ints([0; 10]))?, rank.upload(&ints([0; 10]))?);
    let mut work = rank.prepare(&[
        Op::new("all_reduce").buffer("buffer", sum.whole(DType::I32)).reduce(ReduceOp::Sum),
        Op::new("send").buffer("buffer", sent.whole(DType::I32)).rank("peer", other),
        Op::new("recv").buffer("buffer", got.whole(DType::I32)).rank("peer", other),
    ])?;
    // As plans do: once as it is, and then captured.
    text(rank.run(&mut *work))?;
    let mut replay = capture(rank, &mut *work)?;
    for step in 1..=4 {
        rank.write(&mut sum, &ints((0..1000).map(|i| i * step + me)))?;
        rank.write(&mut sent, &ints([step * 10 + me; 10]))?;
        rank.write(&mut got, &ints([-1; 10]))?;
        text(rank.run(&mut *replay))?;
        if rank.read(&mut sum)? != ints((0..1000).map(|i| 2 * i * step + 1)) {
            return Err(format!("replay {step}: the sum is not right"));
        }
        if rank.read(&mut got)? != ints([step * 10 + other as i32; 10]) {
            return Err(format!("replay {step}: what was received is not right"));
        }
    }
    Ok(())
}

pub(crate) fn two_processes(target: &Target<'static>) -> Outcome {
    let id = UniqueId::new().map_err(|error| error.to_string())?;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([CHILD, "1", &id.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut other = command.spawn().unwrap();
    let outcome = joined(target, id, &[(0, device(0))]).and_then(works);
    if outcome.is_err() {
        let _ = other.kill();
    }
    let output = other.wait_with_output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    outcome.map_err(|error| format!("{error}; the other process: {text}"))?;
    if output.status.success() { Ok(()) } else { Err(text) }
}

/// The second process: its rank is on the GPU of that number.
pub(crate) fn child(target: &Target<'static>, rank: &str, id: &str) -> Outcome {
    let rank = rank.parse().unwrap();
    let id = id.parse().map_err(|error: NcclError| error.to_string())?;
    works(joined(target, id, &[(rank, device(rank))])?)
}

pub(crate) fn one_process(target: &Target<'static>) -> Outcome {
    let id = UniqueId::new().map_err(|error| error.to_string())?;
    works(joined(target, id, &[(0, device(0)), (1, device(1))])?)
}

pub(crate) fn alone(target: &Target<'static>) -> Outcome {
    healthy(target, 1)?;
    // With its thread that waits for ranks, which NCCL does not end.
    let id = UniqueId::new().map_err(|error| error.to_string())?;
    let (level, start) = (level(1)?, Instant::now());
    let outcome = Communicators::join(id, 2, &[(0, device(0))], start + Duration::from_secs(1));
    match outcome.err() {
        Some(NcclError::Deadline { rank: 0, world: 2, .. }) => {}
        other => return Err(format!("joining alone came to {other:?}")),
    }
    if start.elapsed() > Duration::from_secs(7) {
        return Err(format!("joining took {:?} to give up", start.elapsed()));
    }
    level.reached()?;
    healthy(target, 1)
}

pub(crate) fn same_gpu(_target: &Target<'static>) -> Outcome {
    let local = [(0, device(0)), (1, device(0))];
    let id = UniqueId::from_bytes([0; UniqueId::BYTES]);
    match Communicators::join(id, 2, &local, Instant::now()).err() {
        Some(error @ NcclError::SameDevice { .. })
            if error.to_string() == "ranks 0 and 1 are both on cuda:0, but NCCL takes one rank a GPU" =>
        {
            Ok(())
        }
        other => Err(format!("{other:?}")),
    }
}
