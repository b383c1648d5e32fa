//! Memory, copies and progress of one device.

use crate::conformance::{Outcome, Random, Ranks, Target};
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
        for mark in [0, 1, 7, u64::from(u32::MAX)] {
            rank.stream.mark(mark).map_err(|error| error.to_string())?;
            rank.finish().map_err(|error| error.to_string())?;
            if progress.read() != mark {
                return Err(format!("the progress word is {}, not {mark}", progress.read()));
            }
        }
        Ok(())
    })
}
