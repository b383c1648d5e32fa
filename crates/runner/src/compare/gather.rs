//! From what the observers found on the ranks to a report over all of them.

use squall_core::{BufferDecl, DType, Phase, Verified};

use super::observe::{Found, Sides};
use super::report::{Agreement, Deviation, Difference};
use crate::resolve::Job;

/// What gives findings their place: tasks, buffers and devices by name.
pub(super) struct Place<'a> {
    job: &'a Job<'a>,
    /// Of each phase, rank and task.
    depths: [Vec<Vec<u32>>; 3],
    pub(super) devices: Vec<String>,
}

impl<'a> Place<'a> {
    pub(super) fn new(job: &'a Job<'a>, verified: &Verified, devices: Vec<String>) -> Place<'a> {
        Place { job, depths: Phase::ALL.map(|phase| verified.depths(phase)), devices }
    }

    /// Of each dtype, how well the sides agree on all ranks.
    pub(super) fn agreement(&self, sides: &Sides) -> Vec<Agreement> {
        let of_dtype = |&dtype: &DType| {
            let (mut elements, mut share, mut greatest) = (0, 0.0, None);
            for rank in 0..self.job.world.size() {
                let Some(findings) = sides.rank(rank) else { continue };
                for one in findings.agreement.iter().filter(|one| one.dtype == dtype) {
                    elements += one.elements;
                    if one.share() > share {
                        share = one.share();
                        greatest = one.greatest.as_ref().map(|found| self.deviation(rank, found));
                    }
                }
            }
            (elements > 0).then_some(Agreement { dtype, elements, greatest })
        };
        DType::ALL.iter().filter_map(of_dtype).collect()
    }

    /// What differs: the first, or the first of each task.
    ///
    /// Of what differs in one step, the origin comes first: a task is deeper than all that can have led to it. Of tasks that
    /// are equally deep, the one that stands first in the manifest, on the lowest rank.
    pub(super) fn differences(&self, sides: &Sides, each: bool) -> Vec<Difference> {
        let mut found = Vec::new();
        for rank in 0..self.job.world.size() {
            let Some(findings) = sides.rank(rank) else { continue };
            for task in findings.tasks.iter().flatten() {
                let Some(first) = &task.first else { continue };
                let (at, graph) = (&first.at, &self.job.graphs[rank as usize]);
                let span = graph.tasks(at.phase).get(at.task).and_then(|node| node.origin.span);
                let depth = self.depths[at.phase as usize][rank as usize].get(at.task).copied();
                let order = (at.phase as u8, at.step, depth, span.map(|span| span.start), rank);
                let difference = Difference {
                    first: self.deviation(rank, at),
                    differing: first.differing,
                    written: first.written,
                    times: task.times,
                };
                found.push((order, difference));
            }
        }
        found.sort_by_key(|(order, _)| *order);
        let mut differences: Vec<Difference> = Vec::new();
        for (_, difference) in found {
            // Tasks have names of their own, phase by phase.
            let task = |one: &Difference| (one.first.phase, one.first.task.clone());
            match differences.iter().position(|known| task(known) == task(&difference)) {
                Some(known) => differences[known].times += difference.times,
                None if each || differences.is_empty() => differences.push(difference),
                None => {}
            }
        }
        differences
    }

    fn deviation(&self, rank: u32, found: &Found) -> Deviation {
        let graph = &self.job.graphs[rank as usize];
        let node = graph.tasks(found.phase).get(found.task);
        let decl = graph.buffers().get(found.range.buffer.0 as usize);
        Deviation {
            phase: found.phase,
            step: found.step,
            rank,
            device: self.devices.get(rank as usize).cloned().unwrap_or_default(),
            task: node.map(|node| node.origin.name.clone()).unwrap_or_default(),
            buffer: decl.map(|decl| decl.name.to_string()).unwrap_or_default(),
            dtype: found.range.dtype,
            index: decl.map(|decl| index(decl, found.range.offset + found.pair.element)).unwrap_or_default(),
            host: found.pair.host,
            other: found.pair.other,
            distance: found.pair.apart.distance,
            allowed: found.pair.apart.allowed,
        }
    }
}

/// An element's index along each axis.
fn index(decl: &BufferDecl, element: u64) -> Vec<u64> {
    let mut rest = element;
    let mut index: Vec<u64> = decl
        .shape
        .iter()
        .rev()
        .map(|&axis| {
            let along = rest.checked_rem(axis).unwrap_or(0);
            rest = rest.checked_div(axis).unwrap_or(0);
            along
        })
        .collect();
    index.reverse();
    index
}
