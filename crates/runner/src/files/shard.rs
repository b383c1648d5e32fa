//! How rows are dealt to ranks: in order, in blocks as equal as can be. The first `n % world` ranks get one more.

use std::ops::Range;

/// Rows of `n` that fall to `rank`. `None` unless `rank < world`.
pub fn share(n: u64, rank: u64, world: u64) -> Option<u64> {
    // `world` is positive wherever a rank is below it.
    (rank < world).then(|| n / world + u64::from(rank < n % world))
}

/// The first row that falls to `rank`: the sum of the shares before it. `None` unless `rank < world`.
pub fn offset(n: u64, rank: u64, world: u64) -> Option<u64> {
    // At most `n`, so it cannot overflow.
    (rank < world).then(|| rank * (n / world) + rank.min(n % world))
}

/// The rows of `n` that fall to `rank`: what `shard = "rows"` reads. `None` unless `rank < world`.
pub fn rows(n: u64, rank: u64, world: u64) -> Option<Range<u64>> {
    let start = offset(n, rank, world)?;
    Some(start..start + share(n, rank, world)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_ranks_get_one_more() {
        let shares: Vec<_> = (0..4).map(|rank| share(10, rank, 4)).collect();
        assert_eq!(shares, [Some(3), Some(3), Some(2), Some(2)]);
        let offsets: Vec<_> = (0..4).map(|rank| offset(10, rank, 4)).collect();
        assert_eq!(offsets, [Some(0), Some(3), Some(6), Some(8)]);
    }

    #[test]
    fn fewer_rows_than_ranks() {
        let all: Vec<_> = (0..4).map(|rank| rows(2, rank, 4)).collect();
        assert_eq!(all, [Some(0..1), Some(1..2), Some(2..2), Some(2..2)]);
        assert_eq!(rows(0, 0, 1), Some(0..0));
    }

    #[test]
    fn no_such_rank() {
        assert_eq!((share(5, 0, 0), offset(5, 0, 0), rows(5, 0, 0)), (None, None, None));
        assert_eq!((share(5, 3, 3), offset(5, 3, 3), rows(5, 3, 3)), (None, None, None));
    }

    #[test]
    fn the_largest_numbers() {
        assert_eq!(rows(u64::MAX, u64::MAX - 1, u64::MAX), Some(u64::MAX - 1..u64::MAX));
        assert_eq!(rows(u64::MAX, 1, 2), Some((1 << 63)..u64::MAX));
    }

    proptest! {
        #[test]
        fn ranks_tile_the_rows(n in 0u64..1000, world in 1u64..40) {
            let mut next = 0;
            for rank in 0..world {
                let rows = rows(n, rank, world).unwrap();
                prop_assert_eq!(rows.start, next);
                next = rows.end;
            }
            prop_assert_eq!(next, n);
        }
    }
}
