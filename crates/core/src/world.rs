//! Ranks and the communicators among them.

use std::sync::Arc;

/// A communicator of a job: 0 is the world, others come from [`World::split`], in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommId(pub u32);

impl CommId {
    /// All ranks.
    pub const WORLD: CommId = CommId(0);
}

/// The ranks of a job and how they are split into communicators. Known in full on every process, since what a
/// task means depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    size: u32,
    comms: Vec<Split>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Split {
    name: Arc<str>,
    /// The parts, by ascending colour: the world ranks of each in the order of their key.
    parts: Vec<Arc<[u32]>>,
    /// Of each world rank: its part and its rank there.
    places: Vec<(u32, u32)>,
}

/// One part of a split: the ranks that meet in it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its number among the parts of the split, by ascending colour.
    pub index: u32,
    /// World ranks of its members, by rank in the communicator.
    pub members: &'a [u32],
    /// The rank in the communicator of the rank that was asked for.
    pub rank: u32,
}

impl Part<'_> {
    /// Ranks in the communicator.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }
}

/// The world cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// No ranks.
    #[error("a world has at least one rank")]
    Empty,
    /// More ranks than are supported.
    #[error("a world has at most {MAX_WORLD} ranks, not {0}")]
    TooLarge(u64),
    /// A colour below zero.
    #[error("communicator `{name}`: rank {rank} has the colour {color}; colours are not negative")]
    NegativeColor {
        /// The communicator.
        name: String,
        /// The rank.
        rank: u32,
        /// Its colour.
        color: i64,
    },
}

/// The most ranks a world may have.
pub const MAX_WORLD: u32 = 1 << 20;

impl World {
    /// A world of `size` ranks and no other communicator.
    pub fn new(size: u64) -> Result<World, WorldError> {
        let ranks = match u32::try_from(size) {
            Ok(0) => return Err(WorldError::Empty),
            Ok(ranks) if ranks <= MAX_WORLD => ranks,
            _ => return Err(WorldError::TooLarge(size)),
        };
        let all = Split {
            name: "world".into(),
            parts: vec![(0..ranks).collect()],
            places: (0..ranks).map(|rank| (0, rank)).collect(),
        };
        Ok(World { size: ranks, comms: vec![all] })
    }

    /// Splits the world: the ranks of one colour become one communicator, ordered by key and then by rank.
    pub fn split(
        &mut self,
        name: &str,
        mut color_and_key: impl FnMut(u32) -> (i64, i64),
    ) -> Result<CommId, WorldError> {
        let mut order: Vec<(i64, i64, u32)> = Vec::with_capacity(self.size as usize);
        for rank in 0..self.size {
            let (color, key) = color_and_key(rank);
            if color < 0 {
                return Err(WorldError::NegativeColor { name: name.to_string(), rank, color });
            }
            order.push((color, key, rank));
        }
        order.sort_unstable();
        let mut split =
            Split { name: name.into(), parts: Vec::new(), places: vec![(0, 0); self.size as usize] };
        for part in order.chunk_by(|a, b| a.0 == b.0) {
            for (place, &(_, _, rank)) in part.iter().enumerate() {
                split.places[rank as usize] = (split.parts.len() as u32, place as u32);
            }
            split.parts.push(part.iter().map(|&(_, _, rank)| rank).collect());
        }
        self.comms.push(split);
        Ok(CommId(self.comms.len() as u32 - 1))
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// All communicators, the world first.
    pub fn comms(&self) -> impl Iterator<Item = CommId> {
        (0..self.comms.len() as u32).map(CommId)
    }

    /// The communicator of that name.
    pub fn find(&self, name: &str) -> Option<CommId> {
        self.comms.iter().position(|c| &*c.name == name).map(|i| CommId(i as u32))
    }

    /// A communicator's name; `world` for the world.
    pub fn name(&self, comm: CommId) -> &str {
        self.comms.get(comm.0 as usize).map_or("?", |c| &c.name)
    }

    /// The part of a communicator that a world rank belongs to. `None` when either does not exist.
    pub fn part(&self, comm: CommId, rank: u32) -> Option<Part<'_>> {
        let split = self.comms.get(comm.0 as usize)?;
        let &(index, rank) = split.places.get(rank as usize)?;
        Some(Part { index, members: split.parts.get(index as usize)?, rank })
    }

    /// All parts of a communicator, by ascending colour: the world ranks of each.
    pub fn parts(&self, comm: CommId) -> &[Arc<[u32]>] {
        self.comms.get(comm.0 as usize).map_or(&[], |c| &c.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_ordered_by_color_then_key_then_rank() {
        let mut world = World::new(6).unwrap();
        let comm = world.split("row", |r| (i64::from(1 - r / 3), -i64::from(r))).unwrap();
        assert_eq!(world.parts(comm).iter().map(|p| p.to_vec()).collect::<Vec<_>>(), [[5, 4, 3], [2, 1, 0]]);
        let part = world.part(comm, 1).unwrap();
        assert_eq!((part.index, part.rank, part.size()), (1, 1, 3));
        assert_eq!(world.find("row"), Some(comm));
        assert!(world.part(comm, 6).is_none());
    }

    #[test]
    fn odd_worlds_are_refused() {
        assert_eq!(World::new(0).unwrap_err(), WorldError::Empty);
        assert_eq!(World::new(u64::MAX).unwrap_err(), WorldError::TooLarge(u64::MAX));
        let error = World::new(2).unwrap().split("c", |r| (i64::from(r) - 1, 0)).unwrap_err();
        assert_eq!(error, WorldError::NegativeColor { name: "c".into(), rank: 0, color: -1 });
    }
}
