//! The proof before launch: that no rank can hang, mismatch, or read what was never written.
//!
//! All ranks' graphs are looked at together, with blocking semantics: a rank posts one *unit* (a group or a lone op)
//! at a time, and a unit completes together with every unit that it is matched with. Matching is symmetric, so units
//! fall into components that complete as a whole, once all their units are posted; the job reaches its end exactly if
//! the ranks' program orders over these components have no cycle. That takes one pass over all tasks, whatever the
//! number of ranks (`matching`, `collectives`, `deadlock`).
//!
//! Each phase is judged by itself, since the plan group waits for all ranks between phases; one step stands for all,
//! since it is repeated as it is. Where steps swap buffers, the next one has the same tasks over other memory that is as
//! large and of the same dtype: whom they meet, with how much, and what overlaps stay as they were. Only what was written
//! differs, and that is judged turn by turn (`swaps`, `dataflow`).

mod capture;
mod carried;
mod collectives;
mod columns;
mod dataflow;
mod deadlock;
mod hash;
mod lone;
mod matching;
mod order;
mod overwritten;
mod parts;
mod processes;
mod report;
mod swaps;

pub(crate) use report::{Ranks, fold, fold_where};

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::buffer::Upload;
use crate::codes;
use crate::diagnostic::{Diagnostic, Label};
use crate::error::Problems;
use crate::graph::partial::Gap;
use crate::graph::{Partial, Phase, TaskGraph};
use crate::ops::Parts;
use crate::words::count;

/// The graphs of all ranks, proven. Only [`verify`] makes one, and a plan group takes nothing else.
#[derive(Clone, Debug)]
pub struct Verified {
    graphs: Vec<TaskGraph>,
    plan_hash: u128,
    turns: usize,
    parts: AllParts,
}

/// Unequal parts, by rank, phase, place of the task in it, and member of the task.
type AllParts = BTreeMap<(u32, u8, u32, usize), Parts>;

impl Verified {
    /// The graphs, by rank.
    pub fn graphs(&self) -> &[TaskGraph] {
        &self.graphs
    }

    /// A fingerprint of what all ranks will do: equal on every machine and build exactly if the job is, but for
    /// chance. Processes that join one job compare it before their first collective.
    pub fn plan_hash(&self) -> u128 {
        self.plan_hash
    }

    /// How many steps and finishes a plan keeps, each a graph of its own where it is captured: 1, unless steps swap buffers. Step
    /// `k`, counted from 0, takes turn `k % turns`; after as many steps as there are turns all names stand for what they did.
    pub fn turns(&self) -> usize {
        self.turns
    }

    /// How the ranks that meet in op `member` of task `place` of a phase divide what it gathers or scatters; `None` where their
    /// parts are equal, and for an op that divides nothing. A lone op is member 0.
    pub fn parts(&self, rank: u32, phase: Phase, place: usize, member: usize) -> Option<&Parts> {
        self.parts.get(&(rank, phase as u8, u32::try_from(place).ok()?, member))
    }

    /// The unequal parts of one rank, as of [`Verified::parts`].
    pub(crate) fn parts_of(&self, rank: u32) -> RankParts {
        let of_rank = self.parts.range((rank, 0, 0, 0)..).take_while(|(key, _)| key.0 == rank);
        of_rank.map(|(&(_, phase, place, member), parts)| ((phase, place, member), parts.clone())).collect()
    }

    /// Proves that the step can be captured, or reports every op in it that may not be: see
    /// [`Needs::captures`](crate::Needs::captures). A plan group asks it where [`Options::capture`](crate::Options::capture) is on,
    /// before it binds anything; who wants to know sooner asks here, and needs no device.
    pub fn check_capture(&self) -> Result<(), Problems> {
        let problems = capture::check(&self.graphs);
        if problems.is_empty() { Ok(()) } else { Err(Problems(fold(problems))) }
    }

    /// Proves that the job can be run by so many processes, or reports every op that takes one alone: one with
    /// [`Needs::single_process`](crate::Needs::single_process), or that uses one, on a communicator of several ranks. Whoever runs a job
    /// in several processes asks here, before any device.
    pub fn check_processes(&self, processes: u32) -> Result<(), Problems> {
        let problems = if processes > 1 { processes::check(&self.graphs) } else { Vec::new() };
        if problems.is_empty() { Ok(()) } else { Err(Problems(fold(problems))) }
    }

    /// Of each rank and each of its tasks in a phase, how deep it lies: the longest chain of tasks that end with it, each
    /// waiting for the one before, on its own rank or on one that it meets. A task is deeper than every other whose result
    /// can have reached it, and as deep as those it meets. For tools that look for the origin of a fault.
    pub fn depths(&self, phase: Phase) -> Vec<Vec<u32>> {
        order::depths(&self.graphs, phase)
    }

    /// Of each rank and each of its buffers, by id, whether what it holds between two steps must be kept so that the job can go on
    /// from there as if it had never stopped. That is so where a setup task or a step may change the buffer, and
    ///
    /// - a step reads an element of it, or its end downloads it, before the step has written that: of buffers that are not
    ///   uploaded in every step;
    /// - or the finish reads it, or the end downloads it, before the finish has written that: then the job can go on after its
    ///   last step, too.
    ///
    /// What changes in no task is given again as before the first step. A buffer is carried whole, for one element of it too. Reads
    /// of the caller's own, of buffers with [`Download::Never`](crate::Download::Never), are not foreseen. For checkpoints:
    /// see [`PlanGroup::snapshot`](crate::PlanGroup::snapshot).
    pub fn carried(&self) -> Vec<Arc<[bool]>> {
        carried::carried(&self.graphs)
    }

    /// Graphs that nobody verified, for tests of what happens when a job hangs all the same.
    #[cfg(feature = "unverified")]
    #[doc(hidden)]
    pub fn unverified(graphs: Vec<TaskGraph>) -> Verified {
        let turns = swaps::turns(&graphs);
        Verified::of(graphs, turns, AllParts::new())
    }

    fn of(graphs: Vec<TaskGraph>, turns: u64, parts: AllParts) -> Verified {
        let plan_hash = hash::plan_hash(&graphs);
        Verified { graphs, plan_hash, turns: turns.min(swaps::MOST_TURNS) as usize, parts }
    }
}

/// One rank's unequal parts, by phase, place of the task in it, and member of the task.
pub(crate) type RankParts = BTreeMap<(u8, u32, usize), Parts>;

/// Proves that every rank reaches its end, or reports all that stands against it.
///
/// Takes one graph for every rank of a world, in any order. Called before anything is bound to a device; needs none.
pub fn verify(mut graphs: Vec<TaskGraph>) -> Result<Verified, Problems> {
    graphs.sort_by_key(TaskGraph::rank);
    let mut problems = Vec::new();
    if let Some(problem) = incomplete(&graphs) {
        return Err(Problems(vec![problem]));
    }
    let turns = swaps::turns(&graphs);
    problems.extend(swaps::check(&graphs, turns));
    dataflow::check(&graphs, &mut problems);
    let parts = phases(&graphs, &[], &mut problems);
    if !problems.is_empty() {
        return Err(Problems(fold(problems)));
    }
    Ok(Verified::of(graphs, turns, parts))
}

/// What is doubtful in a job that nothing stands against: warnings, with what ranks share said once, by place.
///
/// Takes one graph for every rank of a world. For reports, after [`verify`].
pub fn doubts(graphs: &[TaskGraph]) -> Vec<Diagnostic> {
    fold(overwritten::check(graphs))
}

/// What stands against a job some of whose tasks were refused, whatever these would have done: a refused task counts as
/// having written its buffers, nothing is compared on its communicators from where it is missing, and a deadlock is
/// looked for only in phases without one.
///
/// Takes one partial graph for every rank of a world, in any order. For reports, together with why the tasks were refused.
pub fn verify_partial(partials: Vec<Partial>) -> Vec<Diagnostic> {
    let mut gaps: Vec<(u32, Gap)> = Vec::new();
    let mut graphs: Vec<TaskGraph> = Vec::with_capacity(partials.len());
    for Partial { mut graph, gaps: mine } in partials {
        let written = mine.iter().flat_map(|gap| &gap.buffers);
        let written: Vec<usize> = written.map(|buffer| buffer.0 as usize).collect();
        if !written.is_empty() {
            let buffers = Arc::make_mut(&mut graph.buffers);
            for index in written {
                if let Some(decl) = buffers.get_mut(index) {
                    decl.upload = Upload::First;
                }
            }
        }
        gaps.extend(mine.into_iter().map(|gap| (graph.rank, gap)));
        graphs.push(graph);
    }
    graphs.sort_by_key(TaskGraph::rank);
    let mut problems: Vec<Diagnostic> = incomplete(&graphs).into_iter().collect();
    if problems.is_empty() {
        problems.extend(swaps::check(&graphs, swaps::turns(&graphs)));
        dataflow::check(&graphs, &mut problems);
        phases(&graphs, &gaps, &mut problems);
    }
    fold(problems)
}

/// Judges what ranks do together, phase by phase; gives what parts they divide things into.
fn phases(graphs: &[TaskGraph], gaps: &[(u32, Gap)], problems: &mut Vec<Diagnostic>) -> AllParts {
    let mut all = AllParts::new();
    for phase in Phase::ALL {
        let before = problems.len();
        let units = matching::Units::collect(graphs, phase, gaps);
        let matched = matching::check(&units, problems);
        // A rank that waits for something unmatched waits for good; reporting that as a deadlock too would hide
        // the cause among its consequences.
        if problems.len() == before && units.are_all_known() {
            deadlock::check(&units, &matched, problems);
        }
        all.extend(matched.parts.into_iter().map(|(unit, member, parts)| {
            let unit = units.list[unit as usize];
            ((unit.rank, phase as u8, unit.place, member), parts)
        }));
    }
    all
}

/// Whether the graphs are not exactly one for every rank of one world.
fn incomplete(graphs: &[TaskGraph]) -> Option<Diagnostic> {
    let report = |text: String| Some(Diagnostic::error(codes::RANKS, text, Label::default()));
    let Some(first) = graphs.first() else {
        return report("there are no task graphs".to_string());
    };
    let size = first.world().size();
    let sizes = graphs.iter().find(|g| g.world().size() != size);
    if let Some(other) = sizes {
        return report(format!(
            "rank {} is of a world of {} and rank {} of a world of {size}",
            other.rank(),
            other.world().size(),
            first.rank()
        ));
    }
    if let Some(pair) = graphs.windows(2).find(|pair| pair[0].rank() == pair[1].rank()) {
        return report(format!("there are two task graphs for rank {}", pair[0].rank()));
    }
    let missing = (0..size).zip(graphs.iter().map(Some).chain(std::iter::repeat(None)));
    for (rank, graph) in missing {
        if graph.is_none_or(|g| g.rank() != rank) {
            return report(format!(
                "the world has {}, and there is no task graph for rank {rank}",
                count(size, "rank")
            ));
        }
    }
    let world = first.world();
    if let Some(other) = graphs.iter().find(|g| !Arc::ptr_eq(g.world(), world) && g.world() != world) {
        return report(format!(
            "rank {} and rank {} are of worlds that are split into different communicators",
            first.rank(),
            other.rank()
        ));
    }
    (graphs.len() != size as usize)
        .then(|| Diagnostic::error(codes::RANKS, "there are more task graphs than ranks", Label::default()))
}
