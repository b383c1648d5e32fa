//! Small values between the ranks of this process, while their plans are bound.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::device::DeviceError;
use crate::group::peers::{Ending, Peers};
use crate::library_op::Exchange;
use crate::verify::Ranks;
use crate::world::{CommId, World};

/// An [`Exchange`] among threads.
pub(crate) struct LocalExchange {
    world: Arc<World>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    aborted: bool,
    /// By communicator and part.
    rounds: BTreeMap<(CommId, u32), Round>,
}

#[derive(Default)]
struct Round {
    /// Rounds completed.
    completed: u64,
    /// What arrived for the next one, by rank.
    arrived: BTreeMap<u32, Vec<u8>>,
    /// The last one's result. Overwritten only when all ranks have come again, and so have taken it.
    result: Vec<Vec<u8>>,
}

impl LocalExchange {
    pub(crate) fn new(world: Arc<World>) -> LocalExchange {
        LocalExchange { world, state: Mutex::default(), changed: Condvar::new() }
    }
}

/// There is no other process.
impl Peers for LocalExchange {
    fn abort(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).aborted = true;
        self.changed.notify_all();
    }

    fn tell(&self, _ending: Ending) {}

    fn listen(&self, _heard: Box<dyn Fn(Ending) + Send + Sync>) {}

    fn endings(&self, _until: Instant) -> Vec<Ending> {
        Vec::new()
    }
}

impl Exchange for LocalExchange {
    fn all_gather(
        &self,
        comm: CommId,
        rank: u32,
        mine: &[u8],
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, DeviceError> {
        let no_part = || DeviceError::Failed(format!("rank {rank} is in no such communicator"));
        let part = self.world.part(comm, rank).ok_or_else(no_part)?;
        let key = (comm, part.index);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let round = state.rounds.entry(key).or_default();
        let awaited = round.completed + 1;
        round.arrived.insert(part.rank, mine.to_vec());
        if round.arrived.len() == part.members.len() {
            round.result = std::mem::take(&mut round.arrived).into_values().collect();
            round.completed = awaited;
            self.changed.notify_all();
        }
        loop {
            if state.aborted {
                return Err(DeviceError::Aborted);
            }
            if let Some(round) = state.rounds.get(&key).filter(|r| r.completed >= awaited) {
                return Ok(round.result.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let arrived = state.rounds.get(&key).map(|round| &round.arrived);
                let missing = (0..)
                    .zip(part.members)
                    .filter(|(place, _)| arrived.is_none_or(|a| !a.contains_key(place)));
                let missing: Vec<u32> = missing.map(|(_, &rank)| rank).collect();
                return Err(DeviceError::Late(format!(
                    "it waited for {}, to exchange values on `{}`, until the deadline passed",
                    Ranks(&missing),
                    self.world.name(comm)
                )));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn everyone_gets_everything_round_after_round() {
        let mut world = World::new(4).unwrap();
        let pairs = world.split("pair", |r| (i64::from(r % 2), 0)).unwrap();
        let exchange = LocalExchange::new(Arc::new(world));
        let deadline = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            for rank in 0..4u8 {
                let exchange = &exchange;
                scope.spawn(move || {
                    for round in 0..100 {
                        let all = exchange
                            .all_gather(CommId::WORLD, rank.into(), &[rank, round], deadline)
                            .unwrap();
                        assert_eq!(all, (0..4).map(|r| vec![r, round]).collect::<Vec<_>>());
                        let pair = exchange.all_gather(pairs, rank.into(), &[rank], deadline).unwrap();
                        assert_eq!(pair, [[rank % 2], [rank % 2 + 2]]);
                    }
                });
            }
        });
    }

    #[test]
    fn a_missing_rank_ends_in_the_deadline_and_an_abort_releases() {
        let exchange = LocalExchange::new(Arc::new(World::new(2).unwrap()));
        let soon = Instant::now() + Duration::from_millis(10);
        let late = "it waited for rank 1, to exchange values on `world`, until the deadline passed";
        let late = Err(DeviceError::Late(late.to_string()));
        assert_eq!(exchange.all_gather(CommId::WORLD, 0, &[], soon), late);
        exchange.abort();
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(exchange.all_gather(CommId::WORLD, 0, &[], later), Err(DeviceError::Aborted));
    }
}
