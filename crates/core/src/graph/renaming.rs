//! What names stand for once buffers were swapped.
//!
//! A task names a buffer, and a swap changes whose memory a name stands for. A step that swaps begins the next one under
//! other names, and after as many steps as its renaming has an order, under the same ones again: that many turns there are.

use crate::buffer::BufferId;
use crate::graph::{Body, Node, Phase, TaskGraph};

/// Of each name of a buffer, the buffer whose memory it stands for: as it was declared, before the first swap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Renaming(
    /// As long as the names that were swapped reach; every other stands for itself. So it takes no memory without a swap.
    Vec<BufferId>,
);

impl Renaming {
    /// Whose memory a name stands for.
    pub(crate) fn of(&self, name: BufferId) -> BufferId {
        self.0.get(name.0 as usize).copied().unwrap_or(name)
    }

    /// Lets each of two names stand for what the other stood for.
    pub(crate) fn swap(&mut self, [a, b]: [BufferId; 2]) {
        let reach = a.0.max(b.0);
        self.0.extend((self.0.len() as u32..=reach).map(BufferId));
        self.0.swap(a.0 as usize, b.0 as usize);
    }

    /// Goes past a task: a swap renames.
    pub(crate) fn pass(&mut self, node: &Node) {
        if let Body::Swap(pair) = node.body {
            self.swap(pair);
        }
    }

    /// The same after the tasks of a phase.
    pub(crate) fn after(mut self, graph: &TaskGraph, phase: Phase) -> Renaming {
        graph.tasks(phase).iter().for_each(|node| self.pass(node));
        self
    }

    /// The names that it takes around, cycle by cycle: each stands for the next one's memory, the last for the first one's.
    pub(crate) fn cycles(&self) -> Vec<Vec<BufferId>> {
        let mut seen = vec![false; self.0.len()];
        let mut cycles = Vec::new();
        for start in (0..self.0.len() as u32).map(BufferId) {
            let mut cycle = Vec::new();
            let mut name = start;
            while !std::mem::replace(&mut seen[name.0 as usize], true) {
                cycle.push(name);
                name = self.of(name);
            }
            if cycle.len() > 1 {
                cycles.push(cycle);
            }
        }
        cycles
    }

    /// After how many times it has renamed nothing: 1 where it renames nothing at once.
    pub(crate) fn order(&self) -> u64 {
        self.cycles().iter().fold(1, |order, cycle| common_multiple(order, cycle.len() as u64))
    }
}

/// The least common multiple of two counts that are not 0; the greatest number beyond 64 bits.
pub(crate) fn common_multiple(a: u64, b: u64) -> u64 {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor.max(1)).saturating_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[[u32; 2]]) -> Renaming {
        let mut renaming = Renaming::default();
        pairs.iter().for_each(|pair| renaming.swap(pair.map(BufferId)));
        renaming
    }

    #[test]
    fn a_name_stands_for_what_the_swaps_left_it() {
        let names =
            |pairs: &[[u32; 2]]| (0..4).map(|name| of(pairs).of(BufferId(name)).0).collect::<Vec<_>>();
        assert_eq!(names(&[]), [0, 1, 2, 3]);
        assert_eq!(names(&[[2, 1]]), [0, 2, 1, 3]);
        assert_eq!(names(&[[0, 1], [1, 2]]), [1, 2, 0, 3], "the second swap takes what the first left");
        assert_eq!(names(&[[0, 1], [1, 0]]), [0, 1, 2, 3]);
    }

    #[test]
    fn an_order_is_the_common_multiple_of_its_cycles() {
        let order = |pairs: &[[u32; 2]]| of(pairs).order();
        assert_eq!(order(&[]), 1);
        assert_eq!(order(&[[0, 1], [0, 1]]), 1);
        assert_eq!(order(&[[4, 9]]), 2);
        assert_eq!(order(&[[0, 1], [2, 3]]), 2);
        assert_eq!(order(&[[0, 1], [1, 2]]), 3);
        assert_eq!(order(&[[0, 1], [1, 2], [2, 3]]), 4);
        assert_eq!(order(&[[0, 1], [1, 2], [5, 6]]), 6);
        assert_eq!(of(&[[0, 1], [1, 2]]).cycles(), [[0, 1, 2].map(BufferId)]);
        assert_eq!(common_multiple(u64::MAX, u64::MAX - 1), u64::MAX);
    }

    /// As many times as its order, and no fewer, it leaves every name as it was.
    #[test]
    fn an_order_is_the_least_number_of_times_that_renames_nothing() {
        let mut seed = 7u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((seed >> 33) % n) as u32
        };
        for _ in 0..500 {
            let pairs: Vec<[u32; 2]> = (0..next(6)).map(|_| [next(8), next(8)]).collect();
            let (mut renaming, mut times) = (of(&pairs), 1);
            while (0..8).any(|name| renaming.of(BufferId(name)) != BufferId(name)) {
                pairs.iter().for_each(|pair| renaming.swap(pair.map(BufferId)));
                times += 1;
            }
            assert_eq!(of(&pairs).order(), times, "{pairs:?}");
        }
    }
}
