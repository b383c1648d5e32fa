//! Memory, copies and progress of one device.

use crate::conformance::{Outcome, Random, Ranks, Target};
use crate::device::{DeviceError, Position};
use crate::world::World;

fn alone<T: Send>(
    target: &Target<'_>,
    body: impl Fn(&mut super::Rank<'_>) -> Result<T, String> + Sync,
) -> Result<(), String> {
    let world = World::new(1).map_err(|error| error.to_string())?;
    Ranks::connect(target, world)?.run(body).map(|_| ())
}

pub(super) fn zeroed_and_aligned(target: &Target<'_>) -> Outcome {
    alone(target, |rank| {
        for bytes in [0u64, 1, 255, 4096, 100_001] {
            let memory = rank.device.alloc(bytes).map_err(|error| error.to_string())?;
            if memory.bytes() != bytes || memory.ptr().0 % 256 != 0 {
                return Err(format!("asked for {bytes} bytes, got {} at {:?}", memory.bytes(), memory.ptr()));
            }
            let mut staging = rank.device.alloc_staging(bytes).map_err(|error| error.to_string())?;
            if staging.host().is_none_or(|host| host.iter().any(|&byte| byte != 0)) {
                return Err(format!("{bytes} bytes of staging memory are not zeros that the host sees"));
            }
            staging.host().ok_or("the host does not see staging memory")?.fill(1);
            // SAFETY: both hold so many bytes, and this thread waits before it touches them again.
            unsafe { rank.stream.copy(staging.ptr(), memory.ptr(), bytes) }
                .map_err(|error| error.to_string())?;
            rank.finish().map_err(|error| error.to_string())?;
            if staging.host().is_none_or(|host| host.iter().any(|&byte| byte != 0)) {
                return Err(format!("{bytes} bytes of memory are not zeros"));
            }
        }
        Ok(())
    })
}

pub(super) fn copies(target: &Target<'_>) -> Outcome {
    alone(target, |rank| {
        let mut random = Random::new(1);
        for bytes in [0, 1, 3, 1000, 65_537] {
            let contents = random.bytes(bytes);
            let mut buffer = rank.upload(&contents)?;
            if rank.read(&mut buffer)? != contents {
                return Err(format!("{bytes} bytes came back changed"));
            }
        }
        Ok(())
    })
}

pub(super) fn progress(target: &Target<'_>) -> Outcome {
    alone(target, |rank| {
        let progress = rank.stream.progress();
        let at = |rank: &mut super::Rank<'_>, runs, tasks| {
            rank.finish().map_err(|error| error.to_string())?;
            let (read, want) = (progress.read(), Position { runs, tasks });
            if read == want { Ok(()) } else { Err(format!("the stream is at {read:?}, not {want:?}")) }
        };
        let mut runs = 0;
        for next in [1, 2, 3] {
            at(rank, runs, 0)?;
            for tasks in [1, 7, u32::MAX] {
                rank.stream.mark(tasks).map_err(|error| error.to_string())?;
                at(rank, runs, tasks)?;
            }
            rank.stream.complete(next).map_err(|error| error.to_string())?;
            runs = next;
        }
        at(rank, runs, 0)?;
        if rank.device.captures() != target.backend.captures() {
            return Err("the backend and its device differ in whether it captures".to_string());
        }
        if rank.device.captures() { replayed_marks(rank, at) } else { Ok(()) }
    })
}

/// What was enqueued before a checkpoint is done when it has been waited for, whatever is queued behind it.
pub(super) fn checkpoints(target: &Target<'_>) -> Outcome {
    const BYTES: u64 = 1 << 16;
    alone(target, |rank| {
        let text = |error: DeviceError| error.to_string();
        let unseen = || "the host does not see staging memory".to_string();
        let progress = rank.stream.progress();
        let (memory, behind) =
            (rank.device.alloc(BYTES).map_err(text)?, rank.device.alloc(BYTES).map_err(text)?);
        let mut from = rank.device.alloc_staging(BYTES).map_err(text)?;
        let mut to = rank.device.alloc_staging(BYTES).map_err(text)?;
        for round in 1..=50u32 {
            let (runs, byte) = (2 * round - 1, round as u8);
            from.host().ok_or_else(unseen)?.fill(byte);
            // SAFETY: all hold so many bytes; this thread touches the staging again when it has waited for both copies.
            unsafe {
                rank.stream.copy(memory.ptr(), from.ptr(), BYTES).map_err(text)?;
                rank.stream.copy(to.ptr(), memory.ptr(), BYTES).map_err(text)?;
            }
            rank.stream.complete(runs).map_err(text)?;
            rank.stream.checkpoint().map_err(text)?;
            // SAFETY: both hold so many bytes, and nobody touches them.
            unsafe { rank.stream.copy(behind.ptr(), memory.ptr(), BYTES) }.map_err(text)?;
            rank.stream.complete(runs + 1).map_err(text)?;
            if round % 2 == 0 {
                // A later checkpoint does as well.
                rank.stream.checkpoint().map_err(text)?;
            }
            rank.stream.wait_for(runs, None).map_err(text)?;
            if to.host().ok_or_else(unseen)?.iter().any(|&found| found != byte) {
                return Err(format!("run {runs} had not ended at its checkpoint"));
            }
            let (known, read) = (progress.known(), progress.read());
            if read.runs < runs || read.runs > runs + 1 || known.runs > read.runs {
                return Err(format!(
                    "after run {runs} the stream is at {read:?}, and known to be at {known:?}"
                ));
            }
        }
        rank.finish().map_err(text)
    })
}

/// Marks are captured, and do not count before they are replayed. With no task behind it, a mark need not be told.
fn replayed_marks(
    rank: &mut super::Rank<'_>,
    at: impl Fn(&mut super::Rank<'_>, u32, u32) -> Outcome,
) -> Outcome {
    let text = |error: DeviceError| error.to_string();
    let missing = || "the device captures, and its stream does not".to_string();
    rank.stream.capture().ok_or_else(missing)?.begin().map_err(text)?;
    let marked = [1, 2].map(|tasks| rank.stream.mark(tasks));
    let mut captured = rank.stream.capture().ok_or_else(missing)?.end().map_err(text)?;
    marked.into_iter().collect::<Result<(), _>>().map_err(text)?;
    at(rank, 3, 0)?;
    for runs in [4, 5] {
        rank.run(&mut *captured).map_err(text)?;
        at(rank, runs - 1, 2).or_else(|_| at(rank, runs - 1, 0))?;
        rank.stream.complete(runs).map_err(text)?;
        at(rank, runs, 0)?;
    }
    Ok(())
}
