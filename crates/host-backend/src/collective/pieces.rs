//! Unequal parts: which ranges of the ranks' buffers each rank copies or reduces.
//!
//! The work is shared by elements, whoever owns them, so that one large part keeps no rank waiting for its owner. What a rank does is
//! worked out when its batch is prepared.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use squall_core::ops::{Counts, Parts};

use crate::collective::call::Op;
use crate::collective::share::share;

/// One range that a rank copies from `send` of one rank to `recv` of another, or reduces from all ranks' `send`. In elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The rank whose `send` it comes from; of no meaning for a reduction.
    pub(crate) from: usize,
    /// The rank whose `recv` it goes to.
    pub(crate) to: usize,
    /// Where it begins in `send` and in `recv`.
    pub(crate) send: u64,
    pub(crate) recv: u64,
    pub(crate) len: u64,
}

/// The pieces of one rank, and what all ranks' must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    pub(crate) mine: Vec<Piece>,
    /// Elements that all ranks move or reduce together.
    pub(crate) total: u64,
    /// A fingerprint of the layout. Ranks of one process compare it before they touch each other's memory.
    pub(crate) layout: u64,
}

impl Pieces {
    /// What the rank `me` does of an op that divides a whole into `parts`; elements are `width` bytes wide.
    pub(crate) fn of_parts(op: Op, parts: &Parts, root: usize, width: usize, me: usize) -> Pieces {
        // Every rank writes its own copy of what all gather, which is as long on each.
        let share = match op {
            Op::AllGather => 0..parts.total(),
            _ => share_of(parts.total(), width, parts.ranks(), me),
        };
        let mine = parts.iter().enumerate().filter_map(|(rank, part)| {
            let range = common(&part, &share)?;
            let (whole, within, len) = (range.start, range.start - part.start, range.end - range.start);
            Some(match op {
                Op::AllGather => Piece { from: rank, to: me, send: within, recv: whole, len },
                Op::Gather => Piece { from: rank, to: root, send: within, recv: whole, len },
                _ => Piece { from: root, to: rank, send: whole, recv: within, len },
            })
        });
        Pieces { mine: mine.collect(), total: parts.total(), layout: fingerprint(parts) }
    }

    /// What the rank `me` does of an exchange by counts of rows, which have `row` elements. `None` where a count is negative or a sum
    /// does not fit 64 bits.
    pub(crate) fn of_counts(
        matrix: &[i64],
        ranks: usize,
        row: u64,
        width: usize,
        me: usize,
    ) -> Option<Pieces> {
        let size = u32::try_from(ranks).ok()?;
        let counts = Counts::new(matrix, size)?;
        let sent = (0..size).map(|rank| counts.send_parts(rank, row)).collect::<Option<Vec<_>>>()?;
        let total = sent.iter().try_fold(0u64, |sum, parts| sum.checked_add(parts.total()))?;
        let share = share_of(total, width, ranks, me);
        // Receivers one after the other, so that a rank writes few buffers.
        let (mut mine, mut at) = (Vec::new(), 0);
        for to in 0..size {
            let mut recv = 0;
            for (from, parts) in sent.iter().enumerate() {
                let block = parts.of(to);
                let len = block.end - block.start;
                if let Some(range) = common(&(at..at + len), &share) {
                    let skip = range.start - at;
                    let (send, recv, len) = (block.start + skip, recv + skip, range.end - range.start);
                    mine.push(Piece { from, to: to as usize, send, recv, len });
                }
                (at, recv) = (at + len, recv + len);
            }
        }
        Some(Pieces { mine, total, layout: fingerprint(&(matrix, row)) })
    }
}

/// The elements of `total` that fall to a rank.
fn share_of(total: u64, width: usize, ranks: usize, me: usize) -> Range<u64> {
    let share = share(total as usize, width, ranks, me);
    share.start as u64..share.end as u64
}

/// What two ranges have in common, if anything.
fn common(a: &Range<u64>, b: &Range<u64>) -> Option<Range<u64>> {
    let (start, end) = (a.start.max(b.start), a.end.min(b.end));
    (start < end).then_some(start..end)
}

/// Not zero, which stands for equal parts.
fn fingerprint(layout: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    layout.hash(&mut hasher);
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ranks' pieces together are every element of every part, once.
    #[test]
    fn pieces_are_disjoint_and_complete() {
        let parts = Parts::new([0, 100, 3, 0, 1000]).unwrap();
        for op in [Op::Gather, Op::Scatter, Op::ReduceScatter, Op::AllGather] {
            let pieces: Vec<Piece> =
                (0..5).flat_map(|me| Pieces::of_parts(op, &parts, 1, 4, me).mine).collect();
            for to in 0..5 {
                for (rank, part) in parts.iter().enumerate() {
                    let mut seen: Vec<u64> = pieces
                        .iter()
                        .filter(|piece| match op {
                            Op::AllGather => piece.to == to && piece.from == rank,
                            Op::Gather => (piece.to, piece.from) == (1, rank),
                            _ => piece.to == rank,
                        })
                        .flat_map(|piece| {
                            let gathers = matches!(op, Op::AllGather | Op::Gather);
                            let (whole, within) =
                                if gathers { (piece.recv, piece.send) } else { (piece.send, piece.recv) };
                            assert_eq!(whole - within, part.start, "{op:?}");
                            whole..whole + piece.len
                        })
                        .collect();
                    seen.sort_unstable();
                    assert_eq!(seen, part.collect::<Vec<u64>>(), "{op:?}");
                }
            }
        }
    }

    #[test]
    fn exchanges_are_shared_evenly() {
        let matrix = [0, 0, 0, 640, 0, 0, 0, 1, 0];
        let of = |me| Pieces::of_counts(&matrix, 3, 2, 4, me).unwrap();
        let piece = |send, len| Piece { from: 1, to: 0, send, recv: send, len };
        assert_eq!(of(0).mine, [piece(0, 432)]);
        assert_eq!(of(1).mine, [piece(432, 432)]);
        let last = Piece { from: 2, to: 1, send: 0, recv: 0, len: 2 };
        assert_eq!(of(2).mine, [piece(864, 416), last]);
        assert_eq!((of(0).total, of(0).layout), (1282, of(2).layout));
        assert_eq!(Pieces::of_counts(&[0, -1, 0, 0], 2, 1, 4, 0), None);
    }
}
