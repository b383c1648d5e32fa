//! Unequal parts: how ranks divide a whole among themselves, and what they exchange by counts.

use std::ops::Range;
use std::sync::Arc;

/// How the ranks of a communicator divide a whole among themselves where their parts are not equal: one after the other in rank
/// order, without gaps. A part may be empty. Shared by all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parts(
    /// Where each part begins, and at the end where the last one ends.
    Arc<[u64]>,
);

impl Parts {
    /// Parts of these lengths, by rank; `None` if their sum does not fit 64 bits.
    pub fn new(lens: impl IntoIterator<Item = u64>) -> Option<Parts> {
        let (mut edges, mut end) = (vec![0], 0u64);
        for len in lens {
            end = end.checked_add(len)?;
            edges.push(end);
        }
        Some(Parts(edges.into()))
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.0.len() - 1
    }

    /// The part of a rank of the communicator; empty, at the end, for one that it lacks.
    pub fn of(&self, rank: u32) -> Range<u64> {
        let edge = |rank: usize| self.0.get(rank).copied().unwrap_or(self.total());
        let rank = rank as usize;
        edge(rank)..edge(rank.saturating_add(1))
    }

    /// All parts, by rank.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.windows(2).map(|edges| edges[0]..edges[1])
    }

    /// The sum of all parts.
    pub fn total(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }
}

/// The `counts` of an all_to_all: how many rows each rank of the communicator sends to each. Row r of the matrix is what rank r
/// sends, column p what rank p receives.
#[derive(Clone, Copy, Debug)]
pub struct Counts<'a> {
    matrix: &'a [i64],
    ranks: usize,
}

impl<'a> Counts<'a> {
    /// Reads the matrix, row after row; `None` unless it has a row and a column for each rank.
    pub fn new(matrix: &'a [i64], ranks: u32) -> Option<Counts<'a>> {
        let ranks = ranks as usize;
        (Some(matrix.len()) == ranks.checked_mul(ranks)).then_some(Counts { matrix, ranks })
    }

    /// What `from` sends to each rank.
    pub fn sent(&self, from: u32) -> impl Iterator<Item = i64> + use<'a> {
        self.matrix.iter().copied().skip((from as usize).saturating_mul(self.ranks)).take(self.ranks)
    }

    /// What `to` receives from each rank.
    pub fn received(&self, to: u32) -> impl Iterator<Item = i64> + use<'a> {
        self.matrix.iter().copied().skip(to as usize).step_by(self.ranks.max(1))
    }

    /// How the `send` of rank `from` is divided among those it is for, in elements, a row being `row` of them. `None` where a count
    /// is negative or the sum does not fit 64 bits.
    pub fn send_parts(&self, from: u32, row: u64) -> Option<Parts> {
        elements(self.sent(from), row)
    }

    /// As [`Counts::send_parts`], how the `recv` of rank `to` is divided among those it is from.
    pub fn recv_parts(&self, to: u32, row: u64) -> Option<Parts> {
        elements(self.received(to), row)
    }
}

fn elements(rows: impl Iterator<Item = i64>, row: u64) -> Option<Parts> {
    let lens: Option<Vec<u64>> = rows.map(|rows| u64::try_from(rows).ok()?.checked_mul(row)).collect();
    Parts::new(lens?)
}

/// How many rows a range of that shape has, which are its first axis, and the elements of each.
pub fn rows(shape: &[u64]) -> (u64, u64) {
    match shape.split_first() {
        Some((&rows, row)) => (rows, crate::buffer::count(row)),
        None => (1, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other() {
        let parts = Parts::new([3, 0, 2]).unwrap();
        assert_eq!(parts.iter().collect::<Vec<_>>(), [0..3, 3..3, 3..5]);
        assert_eq!((parts.ranks(), parts.total()), (3, 5));
        assert_eq!((parts.of(0), parts.of(2), parts.of(3), parts.of(u32::MAX)), (0..3, 3..5, 5..5, 5..5));
        assert_eq!(Parts::new([u64::MAX, 1]), None);
    }

    #[test]
    fn counts_are_read_by_row_and_by_column() {
        let matrix = [1, 2, 0, 0, 0, 4, 5, -1, 0];
        let counts = Counts::new(&matrix, 3).unwrap();
        assert!(Counts::new(&matrix, 2).is_none());
        assert_eq!(counts.send_parts(1, 10), Parts::new([0, 0, 40]));
        assert_eq!(counts.recv_parts(0, 2), Parts::new([2, 0, 10]));
        assert_eq!((counts.send_parts(2, 1), counts.recv_parts(1, 1)), (None, None));
        assert_eq!(counts.send_parts(0, u64::MAX), None);
    }

    #[test]
    fn rows_are_the_first_axis() {
        assert_eq!(
            (rows(&[5, 2, 3]), rows(&[0, 4]), rows(&[7]), rows(&[])),
            ((5, 6), (0, 4), (7, 1), (1, 1))
        );
    }
}
