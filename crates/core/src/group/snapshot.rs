//! Copies of buffers between steps, for checkpoints, and the return to such a state.

use std::fmt;

use crate::buffer::BufferId;
use crate::device::DeviceError;
use crate::error::{GroupError, Moment};
use crate::group::PlanGroup;
use crate::group::rank::Seen;
use crate::group::transfer::RankCall;
use crate::plan::{Copied, ExecutionPlan};

/// Copies of buffers of every rank, in memory that devices write at full speed and that is the snapshot's own: it may be read by
/// another thread while steps go on. Drop it before the group.
pub struct Snapshot {
    steps: u64,
    /// By the ranks' places.
    copies: Vec<Vec<Copied>>,
}

impl Snapshot {
    /// Steps that were done when it was taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The contents of each buffer of each rank, ranks by their places among the group's graphs, buffers by their ids.
    pub fn ranks(&mut self) -> impl Iterator<Item = Vec<(BufferId, &[u8])>> {
        self.copies.iter_mut().map(|copies| {
            let contents = copies.iter_mut().map(|copied| {
                let bytes: &[u8] = copied.memory.host().unwrap_or_default();
                (BufferId(copied.buffer as u32), bytes)
            });
            contents.collect()
        })
    }

    /// Their size in bytes.
    pub fn bytes(&self) -> u64 {
        self.copies.iter().flatten().map(|copied| copied.memory.bytes()).sum()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("steps", &self.steps)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl PlanGroup {
    /// Room for copies of buffers: `buffers[place][id]` says which, as [`Verified::carried`](crate::Verified::carried) does. Made
    /// once, before the first step, since getting such memory takes long; [`PlanGroup::copy_to`] fills it.
    ///
    /// # Errors
    /// No memory; [`GroupError::Buffer`] where the lists are not those of this group's ranks and buffers.
    pub fn snapshot(&mut self, buffers: &[impl AsRef<[bool]>]) -> Result<Snapshot, GroupError> {
        self.usable()?;
        let graphs = &self.graphs;
        let fit = |(list, graph): (&[bool], &crate::TaskGraph)| list.len() == graph.buffers().len();
        if buffers.len() != graphs.len() || !buffers.iter().map(AsRef::as_ref).zip(graphs).all(fit) {
            return Err(GroupError::Buffer(
                "a snapshot takes one list a rank, of all its buffers".to_string(),
            ));
        }
        let rooms = self.call_all(Moment::Transfer, |place| {
            let list = buffers[place].as_ref().iter().enumerate();
            let wanted: Vec<usize> = list.filter(|(_, wanted)| **wanted).map(|(index, _)| index).collect();
            Box::new(move |plan| plan.as_ref().ok_or_else(no_plan)?.room_for(&wanted))
        })?;
        Ok(Snapshot { steps: 0, copies: self.sound(rooms)? })
    }

    /// Takes a snapshot: copies the buffers of all ranks at once as they are now, once what is in flight has ended. Called
    /// between steps, which wait for it. What the snapshot held before is gone.
    ///
    /// # Errors
    /// A device's, and those of a step that was in flight; the snapshot's memory is gone, too.
    pub fn copy_to(&mut self, snapshot: Snapshot) -> Result<Snapshot, GroupError> {
        self.usable()?;
        let steps = self.interrupt_handle().steps_done();
        let mut copies = snapshot.copies.into_iter();
        let copied = self.call_all(Moment::Transfer, |_| {
            let mut mine = copies.next().unwrap_or_default();
            let call = move |plan: &mut Option<ExecutionPlan>| {
                plan.as_mut().ok_or_else(no_plan)?.copy_out(&mut mine)?;
                Ok(mine)
            };
            Box::new(call) as RankCall<_>
        })?;
        Ok(Snapshot { steps, copies: self.sound(copied)? })
    }

    /// Lets the job begin with step `step`, counted from 0, instead of with the setup tasks and step 0: feeds, observers and errors
    /// count from there, and names that are swapped stand for what they did then. Called before anything has run, when all buffers were given
    /// their first contents; those that earlier steps would have left their values in ([`Verified::carried`](crate::Verified::carried)) are
    /// then [`PlanGroup::restore`]d.
    ///
    /// # Errors
    /// [`GroupError::Buffer`] where a phase has run.
    pub fn resume_at(&mut self, step: u64) -> Result<(), GroupError> {
        self.usable()?;
        if self.set_up || self.interrupt_handle().steps_done() != self.first_step {
            return Err(GroupError::Buffer("a group that has run cannot be resumed elsewhere".to_string()));
        }
        self.call_all(Moment::Transfer, |_| {
            Box::new(move |plan| plan.iter_mut().for_each(|plan| plan.resume_at(step)))
        })?;
        self.shared.ranks.iter().for_each(|rank| rank.resume_at(step));
        self.seen.fill(Seen { steps: step, ..Seen::default() });
        self.first_step = step;
        self.set_up = true;
        Ok(())
    }

    /// Gives a buffer of a rank the contents that a step left in it, as bytes in native order. Unlike [`PlanGroup::write_bytes`] it
    /// leaves alone what the steps to come upload. Called after [`PlanGroup::resume_at`], by whose step the group knows what its buffers
    /// are then.
    pub fn restore(&mut self, rank: u32, buffer: BufferId, bytes: Vec<u8>) -> Result<(), GroupError> {
        let (place, decl) = self.locate(rank, buffer)?;
        if bytes.len() as u64 != decl.bytes() {
            let text = format!("buffer `{}` on rank {rank} is not as long as what is restored", decl.name);
            return Err(GroupError::Buffer(text));
        }
        let index = buffer.0 as usize;
        self.on_plan(place, buffer, move |plan| plan.restore(index, &bytes))
    }

    /// What all ranks gave, or the first one's error, with its buffer.
    fn sound<R>(&self, results: Vec<Result<R, (usize, DeviceError)>>) -> Result<Vec<R>, GroupError> {
        let each = self.graphs.iter().zip(results);
        each.map(|(graph, result)| {
            result.map_err(|(buffer, error)| {
                let name = graph.buffers().get(buffer).map_or_else(String::new, |decl| decl.name.to_string());
                GroupError::Transfer { rank: graph.rank(), buffer: name, error }
            })
        })
        .collect()
    }
}

fn no_plan() -> (usize, DeviceError) {
    (0, DeviceError::Failed("the rank has no plan".to_string()))
}
