//! The two observers of a comparison: one keeps what each task of the host's ranks wrote, the other compares with it.
//!
//! The host runs a step, then the other side does. What the host wrote in it waits in between, so that a rank needs as much
//! memory as its tasks of one step write; the next step takes the same memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use squall_core::element::Exact;
use squall_core::{
    BufferRange, DType, DeviceError, Element as _, Observer, Phase, TaskGraph, Written, with_element,
};

use super::tolerance::{Apart, Tolerances};

/// What both observers share.
pub(super) struct Sides {
    tolerances: Tolerances,
    /// Whether tasks are given the host's values.
    each: bool,
    ranks: Vec<Mutex<Findings>>,
}

/// One rank's part: what its tasks wrote on the host, and how the other side differs.
pub(super) struct Findings {
    /// Of each phase and task.
    pub(super) tasks: [Vec<TaskFindings>; 3],
    /// Of each dtype that was met.
    pub(super) agreement: Vec<DTypeFindings>,
}

#[derive(Default)]
pub(super) struct TaskFindings {
    /// What it wrote last on the host, range by range.
    recorded: Vec<Vec<u8>>,
    /// How the task differed when it first did.
    pub(super) first: Option<FoundDifference>,
    /// In how many steps it differed.
    pub(super) times: u64,
    /// The last of these steps.
    last: Option<u64>,
}

pub(super) struct FoundDifference {
    pub(super) at: Found,
    pub(super) differing: u64,
    pub(super) written: u64,
}

pub(super) struct DTypeFindings {
    pub(super) dtype: DType,
    pub(super) elements: u64,
    pub(super) greatest: Option<Found>,
}

/// An element in which the sides are apart, and where it was written.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) phase: Phase,
    pub(super) step: u64,
    pub(super) task: usize,
    pub(super) range: BufferRange,
    pub(super) pair: Pair,
}

/// An element of a range, on both sides.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    /// Its index in the range.
    pub(super) element: u64,
    pub(super) host: Exact,
    pub(super) other: Exact,
    pub(super) apart: Apart,
}

impl DTypeFindings {
    /// The greatest part of what is allowed that was used up.
    pub(super) fn share(&self) -> f64 {
        self.greatest.as_ref().map_or(0.0, |found| found.pair.apart.share())
    }
}

impl Sides {
    pub(super) fn new(graphs: &[TaskGraph], tolerances: Tolerances, each: bool) -> Arc<Sides> {
        let findings = |graph: &TaskGraph| {
            let tasks = Phase::ALL.map(|phase| {
                let tasks = graph.tasks(phase).iter();
                tasks
                    .map(|node| TaskFindings {
                        recorded: vec![Vec::new(); node.writes().count()],
                        ..TaskFindings::default()
                    })
                    .collect()
            });
            Mutex::new(Findings { tasks, agreement: Vec::new() })
        };
        Arc::new(Sides { tolerances, each, ranks: graphs.iter().map(findings).collect() })
    }

    /// What was found on a rank.
    pub(super) fn rank(&self, rank: u32) -> Option<MutexGuard<'_, Findings>> {
        let findings = self.ranks.get(rank as usize)?;
        Some(findings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a task differed on any rank.
    pub(super) fn differ(&self) -> bool {
        let mut ranks = (0..self.ranks.len() as u32).filter_map(|rank| self.rank(rank));
        ranks.any(|findings| findings.tasks.iter().flatten().any(|task| task.first.is_some()))
    }
}

/// Keeps what the host's tasks write.
pub(super) struct Record(pub(super) Arc<Sides>);

impl Observer for Record {
    fn written(&self, written: &Written<'_>, bytes: &mut [u8]) -> Result<bool, DeviceError> {
        let mut findings = self.0.rank(written.rank);
        if let Some(kept) = findings.as_mut().and_then(|findings| findings.recorded(written)) {
            kept.clear();
            kept.try_reserve_exact(bytes.len()).map_err(|error| DeviceError::OutOfMemory {
                device: "the host".to_string(),
                bytes: bytes.len() as u64,
                message: error.to_string(),
            })?;
            kept.extend_from_slice(bytes);
        }
        Ok(false)
    }
}

/// Compares what the other side's tasks write with what was kept.
pub(super) struct Judge(pub(super) Arc<Sides>);

impl Observer for Judge {
    fn written(&self, written: &Written<'_>, bytes: &mut [u8]) -> Result<bool, DeviceError> {
        // Both sides were looked at before they ran: their tasks write the same ranges.
        let nothing = || DeviceError::Failed("the host wrote nothing to compare it with".to_string());
        let mut findings = self.0.rank(written.rank).ok_or_else(nothing)?;
        let host = findings.recorded(written).map(std::mem::take);
        let host = host.filter(|host| host.len() == bytes.len()).ok_or_else(nothing)?;
        findings.judge(written, &host, bytes, &self.0.tolerances);
        let give = self.0.each && *host != *bytes;
        if give {
            bytes.copy_from_slice(&host);
        }
        if let Some(kept) = findings.recorded(written) {
            *kept = host; // for the memory
        }
        Ok(give)
    }
}

impl Findings {
    fn task(&mut self, written: &Written<'_>) -> Option<&mut TaskFindings> {
        self.tasks[written.phase as usize].get_mut(written.task)
    }

    fn recorded(&mut self, written: &Written<'_>) -> Option<&mut Vec<u8>> {
        self.task(written)?.recorded.get_mut(written.index)
    }

    /// Compares a range.
    fn judge(&mut self, written: &Written<'_>, host: &[u8], other: &[u8], tolerances: &Tolerances) {
        let Written { phase, step, task, range, .. } = *written;
        let dtype = range.dtype;
        let compared = with_element!(dtype, T => {
            let size = size_of::<T>();
            let value = |bytes: &[u8]| bytemuck::pod_read_unaligned::<T>(bytes).to_exact();
            let pairs = (0..).zip(host.chunks_exact(size).zip(other.chunks_exact(size)));
            // Equal bytes are equal elements, which most are.
            let unequal = pairs.filter(|(_, (host, other))| host != other);
            Compared::of(dtype, tolerances, unequal.map(|(element, (host, other))| (element, value(host), value(other))))
        });
        let found = |pair| Found { phase, step, task, range: range.clone(), pair };
        let agreement = self.agreement(dtype);
        agreement.elements += range.len();
        if let Some(pair) = compared.greatest
            && agreement.share() < pair.apart.share()
        {
            agreement.greatest = Some(found(pair));
        }
        if let (Some(pair), Some(task)) = (compared.first, self.task(written)) {
            let (differing, written) = (compared.differing, range.len());
            task.first.get_or_insert(FoundDifference { at: found(pair), differing, written });
            // Once in a step, also if in several ranges.
            task.times += u64::from(task.last.replace(step) != Some(step));
        }
    }

    fn agreement(&mut self, dtype: DType) -> &mut DTypeFindings {
        let place = self.agreement.iter().position(|one| one.dtype == dtype).unwrap_or_else(|| {
            self.agreement.push(DTypeFindings { dtype, elements: 0, greatest: None });
            self.agreement.len() - 1
        });
        &mut self.agreement[place]
    }
}

/// How two ranges compare.
#[derive(Default)]
struct Compared {
    differing: u64,
    first: Option<Pair>,
    greatest: Option<Pair>,
}

impl Compared {
    fn of(
        dtype: DType,
        tolerances: &Tolerances,
        pairs: impl Iterator<Item = (u64, Exact, Exact)>,
    ) -> Compared {
        let mut compared = Compared::default();
        for (element, host, other) in pairs {
            let apart = tolerances.judge(dtype, host, other);
            let pair = Pair { element, host, other, apart };
            if apart.share() > compared.greatest.map_or(0.0, |greatest| greatest.apart.share()) {
                compared.greatest = Some(pair);
            }
            if apart.is_too_far() {
                compared.differing += 1;
                compared.first.get_or_insert(pair);
            }
        }
        compared
    }
}
