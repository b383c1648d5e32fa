//! Aborts of what hangs, and closes while something is still going on.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use squall_core::conformance::{Buffer, Level, Op, Outcome, Rank, Ranks, Target};
use squall_core::{DType, DeviceError, ReduceOp, Stream, Work, World};
use squall_cuda_backend::memory_of;

use crate::joining::ints;

/// How soon after an abort a stream must come to its end.
const RELEASE: Duration = Duration::from_secs(4);
/// What NCCL may keep of a connection that was aborted while it was made, on the GPU whose rank made it. NCCL 2.28.9 kept 288 to
/// 320 MiB, of a program in C++ too.
const KEPT: u64 = 512 << 20;
/// What the last session's drop may take: the library's own limit, and some more.
const CLOSE: Duration = Duration::from_secs(7);

/// What this process holds, with so many GPUs.
pub(crate) fn level(gpus: u32) -> Result<Level, String> {
    Level::now(gpus, |gpu| Ok(memory_of(gpu)?.0))
}

fn world(size: u32) -> World {
    World::new(size.into()).unwrap()
}

/// A new connection works.
pub(crate) fn healthy(target: &Target<'static>, size: u32) -> Outcome {
    let ran = Ranks::connect(target, world(size))?.run(|rank| {
        let mut buffer = rank.upload(&ints([1]))?;
        rank.run_group(&[sum(&buffer)])?;
        if rank.read(&mut buffer)? == ints([size as i32]) { Ok(()) } else { Err("a wrong sum".to_string()) }
    });
    ran.map(|_| ()).map_err(|error| format!("a new connection: {error}"))
}

fn sum(buffer: &Buffer) -> Op {
    Op::new("all_reduce").buffer("buffer", buffer.whole(DType::I32)).reduce(ReduceOp::Sum)
}

/// What hangs on rank 0. On a new connection NCCL connects to the peer inside the call, on the host, and waits there; once that is
/// done, the call returns and the stream waits.
#[derive(Clone, Copy, Debug)]
enum Hang {
    /// A receive without a send, on a new connection.
    ColdReceive,
    /// A collective that the other rank leaves out, on a new connection.
    ColdCollective,
    /// A receive after one that was served.
    WarmReceive,
    /// A collective after one that both ranks called.
    WarmCollective,
    /// The same, replayed from a capture.
    Replay,
}

impl Hang {
    const COLD: [Hang; 2] = [Hang::ColdReceive, Hang::ColdCollective];
    const WARM: [Hang; 3] = [Hang::WarmReceive, Hang::WarmCollective, Hang::Replay];

    fn is_cold(self) -> bool {
        matches!(self, Hang::ColdReceive | Hang::ColdCollective)
    }

    /// What a rank calls. Rank 0 waits in its call while the other does not make its own.
    fn op(self, rank: u32, buffer: &Buffer) -> Op {
        let message = |name| Op::new(name).buffer("buffer", buffer.whole(DType::I32)).rank("peer", 1 - rank);
        match (self, rank) {
            (Hang::ColdReceive | Hang::WarmReceive, 0) => message("recv"),
            (Hang::ColdReceive | Hang::WarmReceive, _) => message("send"),
            _ => sum(buffer),
        }
    }
}

pub(crate) fn ten_aborts(target: &Target<'static>) -> Outcome {
    healthy(target, 2)?;
    let level = level(2)?;
    aborts(target, Hang::WARM.into_iter().cycle().take(10))?;
    level.reached()
}

pub(crate) fn aborts_while_connecting(target: &Target<'static>) -> Outcome {
    healthy(target, 2)?;
    let (threads, before) = (level(0)?, free()?);
    aborts(target, Hang::COLD.into_iter().cycle().take(4))?;
    threads.reached()?;
    let after = free()?;
    let [kept, other] = [0, 1].map(|gpu| before[gpu].saturating_sub(after[gpu]));
    println!(
        "recorded: NCCL keeps {} MiB of a connection that is aborted while it is made",
        (kept / 4) >> 20
    );
    match kept <= 4 * KEPT && other < 64 << 20 {
        true => Ok(()),
        false => Err(format!("{before:?} bytes were free before four aborts, {after:?} after them")),
    }
}

/// The free bytes of two GPUs.
fn free() -> Result<[u64; 2], String> {
    let of = |gpu| memory_of(gpu).map(|memory| memory.0).map_err(|error| error.to_string());
    Ok([of(0)?, of(1)?])
}

fn aborts(target: &Target<'static>, hangs: impl Iterator<Item = Hang>) -> Outcome {
    for (round, hang) in hangs.enumerate() {
        // When the abort began.
        let start = OnceLock::new();
        let job = Ranks::connect(target, world(2))?;
        let ended = job.run(|rank| aborted(rank, hang, &start)).map(|_| ()).and_then(|()| healthy(target, 2));
        ended.map_err(|error| format!("round {round}, {hang:?}: {error}"))?;
    }
    Ok(())
}

/// Rank 0 waits for the other in vain, which aborts after a while; both are released. The buffer is to be held until both have left.
fn aborted(rank: &mut Rank<'_>, hang: Hang, start: &OnceLock<Instant>) -> Result<Buffer, String> {
    let buffer = rank.upload(&vec![0; 4 << 20])?;
    let mut work = rank.prepare(&[hang.op(rank.rank, &buffer)])?;
    if !hang.is_cold() {
        text(rank.run(&mut *work))?;
    }
    let mut replay = match hang {
        Hang::Replay => Some(capture(rank, &mut *work)?),
        _ => None,
    };
    if rank.rank == 0 {
        let hanging = replay.as_mut().unwrap_or(&mut work);
        match hanging.enqueue(&mut *rank.stream) {
            Err(DeviceError::Aborted) if hang.is_cold() => {}
            enqueued => text(enqueued)?,
        }
        // If the call did not wait, the stream does.
        expect("the wait", rank.stream.wait(Some(soon(20_000))), Ok(()))?;
        let start = start.get().ok_or("rank 0 did not hang")?;
        if start.elapsed() > RELEASE {
            return Err(format!("rank 0 was released {:?} after the abort began", start.elapsed()));
        }
    } else {
        std::thread::sleep(Duration::from_millis(300));
        let start = start.get_or_init(Instant::now);
        rank.abort().abort();
        if start.elapsed() > Duration::from_millis(100) {
            return Err(format!("the abort took {:?}", start.elapsed()));
        }
        expect("the wait after the abort", rank.stream.wait(Some(*start + RELEASE)), Ok(()))?;
    }
    expect("a later call", work.enqueue(&mut *rank.stream), Err(DeviceError::Aborted))?;
    Ok(buffer)
}

fn soon(millis: u64) -> Instant {
    Instant::now() + Duration::from_millis(millis)
}

pub(crate) fn text<T>(outcome: Result<T, DeviceError>) -> Result<T, String> {
    outcome.map_err(|error| error.to_string())
}

fn expect(what: &str, got: Result<(), DeviceError>, want: Result<(), DeviceError>) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("{what} came to {got:?}, not {want:?}")) }
}

/// Records work instead of running it.
pub(crate) fn capture(rank: &mut Rank<'_>, work: &mut dyn Work) -> Result<Box<dyn Work>, String> {
    let missing = "a CUDA stream that captures nothing";
    text(rank.stream.capture().ok_or(missing)?.begin())?;
    let enqueued = work.enqueue(&mut *rank.stream);
    let captured = rank.stream.capture().ok_or(missing)?.end();
    text(enqueued)?;
    text(captured)
}

/// Takes the stream away from a rank, which gets another.
fn take_stream(rank: &mut Rank<'_>) -> Result<Box<dyn Stream>, String> {
    let other = text(rank.device.stream())?;
    Ok(std::mem::replace(&mut rank.stream, other))
}

/// Sessions are dropped while their collectives are under way; these come to their end.
pub(crate) fn live_stream(target: &Target<'static>) -> Outcome {
    let job = Ranks::connect(target, world(2))?;
    let start = Instant::now();
    let mut live = job.run(|rank| {
        let buffer = rank.upload(&vec![0; 64 << 20])?;
        let mut work = rank.prepare(&[sum(&buffer)])?;
        for _ in 0..50 {
            text(work.enqueue(&mut *rank.stream))?;
        }
        Ok((take_stream(rank)?, buffer))
    })?;
    if start.elapsed() > CLOSE {
        return Err(format!("the close took {:?}", start.elapsed()));
    }
    for (stream, _buffer) in &mut live {
        expect("the stream", stream.wait(Some(soon(20_000))), Ok(()))?;
    }
    drop(live);
    healthy(target, 2)
}

/// NCCL does not close a communicator while a captured graph has its work: the close is let go, and ends when the graph does.
pub(crate) fn live_graph(target: &Target<'static>) -> Outcome {
    healthy(target, 2)?;
    let level = level(2)?;
    let job = Ranks::connect(target, world(2))?;
    let start = Instant::now();
    let live = job.run(|rank| {
        let buffer = rank.upload(&ints([0; 1000]))?;
        let mut work = rank.prepare(&[sum(&buffer)])?;
        text(rank.run(&mut *work))?;
        let mut replay = capture(rank, &mut *work)?;
        text(rank.run(&mut *replay))?;
        Ok((replay, take_stream(rank)?, buffer))
    })?;
    if start.elapsed() > CLOSE {
        return Err(format!("the close took {:?}", start.elapsed()));
    }
    // Graphs before streams before memory, as plans drop them.
    let (graphs, rest): (Vec<_>, Vec<_>) =
        live.into_iter().map(|(graph, stream, buffer)| (graph, (stream, buffer))).unzip();
    drop(graphs);
    drop(rest);
    level.reached()?;
    healthy(target, 2)
}
