//! How a run went.

use std::time::Duration;

use serde::Serialize;

use super::{Readings, Stopped};

/// How a run went: what `--json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The pipeline's name.
    pub pipeline: String,
    /// Number of ranks.
    pub world: u32,
    /// Their devices, by rank.
    pub devices: Vec<String>,
    /// The libraries that the run opened for its devices: what each is, its version and its file. None on the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<String>,
    /// Steps run.
    pub steps: u64,
    /// Why the run ended before all the steps that were asked for; `None` if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// From the first step's start to the last task's end.
    pub elapsed_s: f64,
    /// How long steps took, on the first rank; the last 16384 of them.
    pub step_us: StepTimes,
    /// Every watched value.
    pub watched: Readings,
    /// The run's checkpoints, if its manifest has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointSummary>,
    /// Files written, in the order of the manifest's buffers.
    pub outputs: Vec<String>,
}

/// The checkpoints of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CheckpointSummary {
    /// Steps of earlier runs that this one went on after; `None` where it began anew.
    pub resumed_at: Option<u64>,
    /// Checkpoints that this run wrote.
    pub written: u64,
    /// The folder of the last of these.
    pub newest: Option<String>,
}

/// How long steps took, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepTimes {
    /// Half of them took longer.
    pub median: f64,
    /// One in a hundred took longer.
    pub p99: f64,
}

impl StepTimes {
    /// From the time of each step in nanoseconds, in any order.
    pub(super) fn of(mut nanoseconds: Vec<u64>) -> StepTimes {
        nanoseconds.sort_unstable();
        let at = |percent: usize| {
            let time = nanoseconds.get(nanoseconds.len() * percent / 100);
            time.map_or(0.0, |&time| Duration::from_nanos(time).as_secs_f64() * 1e6)
        };
        StepTimes { median: at(50), p99: at(99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_middle_and_of_the_end() {
        assert_eq!(StepTimes::of(Vec::new()), StepTimes::default());
        assert_eq!(StepTimes::of(vec![2000]), StepTimes { median: 2.0, p99: 2.0 });
        let many = (1..=200).rev().map(|n| n * 1000).collect();
        assert_eq!(StepTimes::of(many), StepTimes { median: 101.0, p99: 199.0 });
    }
}
