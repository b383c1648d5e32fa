//! The two observers of a comparison: one keeps what each task of the host's ranks wrote, the other compares with it.
//!
//! The host runs a step, then the other side does. What the host wrote in it waits in between, so that a rank needs as much
//! memory as its tasks of one step write; the next step takes the same memory.

use std::sync::{Arc, Mutex, PoisonError};

use squall_core::element::Exact;
use squall_core::{
    BufferRange, DType, DeviceError, Element as _, Observer, TaskGraph, Written, with_element,
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

/// An element in which the sides are apart.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) phase: squall_core::Phase,
    pub(super) step: u64,
    pub(super) task: usize,
    pub(super) range: BufferRange,
    /// Its index in the range.
    pub(super) element: u64,
    pub(super) host: Exact,
    pub(super) other: Exact,
    pub(super) apart: Apart,
}

impl Sides {
    pub(super) fn new(graphs: &[TaskGraph], tolerances: Tolerances, each: bool) -> Arc<Sides> {
        let findings = |graph: &TaskGraph| {
            let tasks = squall_core::Phase::ALL.map(|phase| {
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

    /// Works on what was found on a rank.
    pub(super) fn of<R>(&self, rank: u32, work: impl FnOnce(&mut Findings) -> R) -> Option<R> {
        let rank = self.ranks.get(rank as usize)?;
        Some(work(&mut rank.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Whether a task differed on any rank.
    pub(super) fn differ(&self) -> bool {
        let differs =
            |findings: &mut Findings| findings.tasks.iter().flatten().any(|task| task.first.is_some());
        (0..self.ranks.len() as u32).any(|rank| self.of(rank, differs).unwrap_or(false))
    }
}

/// Keeps what the host's tasks write.
pub(super) struct Record(pub(super) Arc<Sides>);

impl Observer for Record {
    fn written(&self, written: &Written<'_>, bytes: &mut [u8]) -> Result<bool, DeviceError> {
        self.0
            .of(written.rank, |findings| match findings.recorded(written) {
                Some(kept) => {
                    kept.clear();
                    kept.try_reserve_exact(bytes.len()).map_err(|error| DeviceError::OutOfMemory {
                        device: "the host".to_string(),
                        bytes: bytes.len() as u64,
                        message: error.to_string(),
                    })?;
                    kept.extend_from_slice(bytes);
                    Ok(false)
                }
                None => Ok(false),
            })
            .unwrap_or(Ok(false))
    }
}

/// Compares what the other side's tasks write with what was kept.
pub(super) struct Judge(pub(super) Arc<Sides>);

impl Observer for Judge {
    fn written(&self, written: &Written<'_>, bytes: &mut [u8]) -> Result<bool, DeviceError> {
        let Sides { tolerances, each, .. } = &*self.0;
        self.0
            .of(written.rank, |findings| {
                let kept = findings.recorded(written).map(std::mem::take).unwrap_or_default();
                if kept.len() != bytes.len() {
                    // Both sides were looked at before they ran: their tasks write the same ranges.
                    let text = "the host wrote nothing to compare it with".to_string();
                    return Err(DeviceError::Failed(text));
                }
                let differs = findings.judge(written, &kept, bytes, tolerances);
                let give = *each && kept != bytes;
                if give {
                    bytes.copy_from_slice(&kept);
                }
                if let Some(place) = findings.recorded(written) {
                    *place = kept; // for its memory
                }
                if differs {
                    findings.count(written);
                }
                Ok(give)
            })
            .unwrap_or(Ok(false))
    }
}

impl Findings {
    fn task(&mut self, written: &Written<'_>) -> Option<&mut TaskFindings> {
        self.tasks[written.phase as usize].get_mut(written.task)
    }

    fn recorded(&mut self, written: &Written<'_>) -> Option<&mut Vec<u8>> {
        self.task(written)?.recorded.get_mut(written.index)
    }

    /// Compares a range; returns whether it differs.
    fn judge(&mut self, written: &Written<'_>, host: &[u8], other: &[u8], tolerances: &Tolerances) -> bool {
        let dtype = written.range.dtype;
        let compared = with_element!(dtype, T => {
            let size = size_of::<T>();
            let value = |bytes: &[u8]| bytemuck::pod_read_unaligned::<T>(bytes).to_exact();
            // Equal bytes are equal elements, which most are.
            let apart = host.chunks_exact(size).zip(other.chunks_exact(size)).enumerate().filter(|(_, (a, b))| a != b);
            Compared::of(dtype, tolerances, apart.map(|(index, (a, b))| (index as u64, value(a), value(b))))
        });
        let found = |one: One| Found {
            phase: written.phase,
            step: written.step,
            task: written.task,
            range: written.range.clone(),
            element: one.element,
            host: one.host,
            other: one.other,
            apart: one.apart,
        };
        let agreement = self.agreement(dtype);
        agreement.elements += written.range.len();
        if let Some(one) = compared.greatest
            && agreement.greatest.as_ref().is_none_or(|greatest| greatest.apart.share() < one.apart.share())
        {
            agreement.greatest = Some(found(one));
        }
        let (differing, written_len) = (compared.differing, written.range.len());
        let differs = compared.first.is_some();
        if let (Some(one), Some(task)) = (compared.first, self.task(written)) {
            let at = found(one);
            task.first.get_or_insert(FoundDifference { at, differing, written: written_len });
        }
        differs
    }

    /// Counts that a task differed in a step, once if in several ranges.
    fn count(&mut self, written: &Written<'_>) {
        if let Some(task) = self.task(written)
            && task.last.replace(written.step) != Some(written.step)
        {
            task.times += 1;
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
    first: Option<One>,
    greatest: Option<One>,
}

#[derive(Clone, Copy)]
struct One {
    element: u64,
    host: Exact,
    other: Exact,
    apart: Apart,
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
            let one = One { element, host, other, apart };
            if apart.share() > compared.greatest.map_or(0.0, |greatest| greatest.apart.share()) {
                compared.greatest = Some(one);
            }
            if apart.is_too_far() {
                compared.differing += 1;
                compared.first.get_or_insert(one);
            }
        }
        compared
    }
}
