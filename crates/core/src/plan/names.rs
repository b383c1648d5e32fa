//! What names stand for on a rank, run by run: where each turn of its steps and its finish begins, and where it stands now.

use crate::buffer::BufferId;
use crate::graph::renaming::Renaming;
use crate::graph::{Phase, TaskGraph};

/// What the names of a rank's buffers stand for.
///
/// Further steps, and further runs of the finish, begin where the steps left the names: what a finish swaps holds until then.
pub(super) struct Names {
    /// Of each turn, at the beginning of its step and at the end of a finish in its place.
    turns: Vec<[Renaming; 2]>,
    /// The turn that the next step takes.
    turn: usize,
    now: Now,
}

/// Since when the names stand as they do.
#[derive(Clone, Copy)]
enum Now {
    Declared,
    /// The setup, or a step.
    Begun,
    Finished,
}

impl Names {
    /// Of a rank's graph, in a job whose steps take so many turns.
    pub(super) fn of(graph: &TaskGraph, turns: usize) -> Names {
        let mut begin = Renaming::default().after(graph, Phase::Setup);
        let turn = |_| {
            let next = begin.clone().after(graph, Phase::Step);
            let finished = begin.clone().after(graph, Phase::Finish);
            [std::mem::replace(&mut begin, next), finished]
        };
        Names { turns: (0..turns).map(turn).collect(), turn: 0, now: Now::Declared }
    }

    /// The turn that the next step takes.
    pub(super) fn turn(&self) -> usize {
        self.turn
    }

    /// The turn that the next run of a phase takes.
    pub(super) fn turn_of(&self, phase: Phase) -> usize {
        if phase == Phase::Setup { 0 } else { self.turn }
    }

    /// As many steps are taken as done, and the setup before them.
    pub(super) fn resume_at(&mut self, step: u64) {
        self.turn = usize::try_from(step % self.turns.len().max(1) as u64).unwrap_or(0);
        self.now = Now::Begun;
    }

    /// A phase was run.
    pub(super) fn ran(&mut self, phase: Phase) {
        self.now = if phase == Phase::Finish { Now::Finished } else { Now::Begun };
        if phase == Phase::Step {
            self.turn += 1;
            if self.turn >= self.turns.len() {
                self.turn = 0;
            }
        }
    }

    /// Whose memory a name stands for now.
    pub(super) fn place(&self, name: usize) -> usize {
        let turn = self.turns.get(self.turn);
        let renaming = match self.now {
            Now::Declared => None,
            Now::Begun => turn.map(|[begun, _]| begun),
            Now::Finished => turn.map(|[_, finished]| finished),
        };
        let id = u32::try_from(name).map(BufferId);
        renaming.zip(id.ok()).map_or(name, |(renaming, name)| renaming.of(name).0 as usize)
    }

    /// What names stand for where a turn of a phase begins.
    pub(super) fn begin(&self, phase: Phase, turn: usize) -> Renaming {
        match phase {
            Phase::Setup => Renaming::default(),
            Phase::Step | Phase::Finish => {
                self.turns.get(turn).map_or(Renaming::default(), |[begun, _]| begun.clone())
            }
        }
    }

    /// How many times a phase is made ready.
    pub(super) fn turns(&self, phase: Phase) -> usize {
        if phase == Phase::Setup { 1 } else { self.turns.len() }
    }
}
