//! What a process holds, before and after.

use std::time::{Duration, Instant};

use crate::conformance::Outcome;
use crate::device::DeviceError;

/// Memory that may be missing at the end: less than a communicator takes.
const SLACK: u64 = 64 << 20;
/// How long what was let go may take to be given back.
const PATIENCE: Duration = Duration::from_secs(15);

/// The threads of this process, and the free memory of its devices.
#[derive(Clone, Debug)]
pub struct Level {
    ask: Free,
    threads: usize,
    free: Vec<u64>,
}

/// Tells how many bytes of a device's memory are free.
pub type Free = fn(u32) -> Result<u64, DeviceError>;

impl Level {
    /// The level now, with that of the first so many devices.
    ///
    /// # Errors
    /// What the system or a device did not tell.
    pub fn now(devices: u32, ask: Free) -> Result<Level, String> {
        let threads = std::fs::read_dir("/proc/self/task").map_err(|error| format!("threads: {error}"))?;
        let free = (0..devices).map(ask).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        Ok(Level { ask, threads: threads.count(), free })
    }

    /// Waits until all is as it was at this level.
    ///
    /// # Errors
    /// What is missing after a while.
    pub fn reached(&self) -> Outcome {
        let start = Instant::now();
        loop {
            let now = Level::now(self.free.len() as u32, self.ask)?;
            let missing =
                self.free.iter().zip(&now.free).any(|(before, now)| now.saturating_add(SLACK) < *before);
            if now.threads <= self.threads && !missing {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!(
                    "{} threads where there were {}, {:?} bytes free where there were {:?}",
                    now.threads, self.threads, now.free, self.free
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
