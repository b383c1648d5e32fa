use proptest::prelude::*;

use super::*;

/// Rows 0, 1, 2, … of `length` equal bytes each.
fn rows(count: u64, length: u64, end: End, order: Option<Stream>) -> Rows {
    let data = (0..count).flat_map(|row| vec![row as u8; length as usize]).collect();
    Rows::new(data, count, length, end, order).unwrap()
}

/// The first byte of each row of a step's batch; all bytes of a row are asserted to be its own.
fn batch(rows: &mut Rows, step: u64, batch: u64) -> Vec<u8> {
    let mut out = vec![200; batch as usize * rows.row];
    rows.fill(step, &mut out).unwrap();
    out.chunks(rows.row).for_each(|row| assert!(row.iter().all(|byte| *byte == row[0])));
    out.chunks(rows.row).map(|row| row[0]).collect()
}

const PAD: u8 = 255;

fn padded(batches: u64) -> End {
    End::Epoch { batches, pad: vec![PAD] }
}

fn stream() -> Option<Stream> {
    Some(Stream::of_orders(7, 0))
}

#[test]
fn rows_wrap_at_any_batch() {
    let mut feed = rows(3, 1, End::Wrap, None);
    for (step, expected) in [(0, [0, 1]), (1, [2, 0]), (2, [1, 2]), (3, [0, 1]), (u64::MAX, [0, 1])] {
        assert_eq!(batch(&mut feed, step, 2), expected, "step {step}");
    }
    assert_eq!(batch(&mut feed, 1, 7), [1, 2, 0, 1, 2, 0, 1]);
}

#[test]
fn an_epoch_is_padded_to_its_end() {
    let mut feed = rows(3, 1, padded(2), None);
    let steps: Vec<_> = (0..4).map(|step| batch(&mut feed, step, 2)).collect();
    assert_eq!(steps, [[0, 1], [2, PAD], [0, 1], [2, PAD]]);
    // Another rank has more rows: the epoch is as long here.
    let mut feed = rows(3, 1, padded(3), None);
    assert_eq!(batch(&mut feed, 2, 2), [PAD, PAD]);
    assert_eq!(batch(&mut feed, 3, 2), [0, 1]);
    assert_eq!(batch(&mut rows(0, 1, padded(1), None), 5, 2), [PAD, PAD]);
}

#[test]
fn a_short_batch_is_left_out() {
    let mut feed = rows(5, 1, End::Epoch { batches: 2, pad: Vec::new() }, None);
    assert_eq!([0, 1, 2].map(|step| batch(&mut feed, step, 2)), [[0, 1], [2, 3], [0, 1]]);
}

/// A pad of several bytes is an element, not a byte.
#[test]
fn the_pad_is_one_element() {
    let end = End::Epoch { batches: 1, pad: (-1i32).to_ne_bytes().to_vec() };
    let mut feed = Rows::new(7i32.to_ne_bytes().to_vec(), 1, 4, end, None).unwrap();
    let mut out = [0i32; 3];
    feed.fill(0, bytemuck::cast_slice_mut(&mut out)).unwrap();
    assert_eq!(out, [7, -1, -1]);
}

#[test]
fn no_rows_fill_no_batch() {
    assert!(rows(0, 1, End::Wrap, None).fill(0, &mut [0]).is_err());
    rows(0, 0, End::Wrap, None).fill(0, &mut []).unwrap();
}

/// The stream of rows that a feed gives, made the plain way: epoch after epoch, each a list.
fn model(count: u64, epochs: u64, batch: u64, end: &End, order: Option<Stream>) -> Vec<u8> {
    let mut all = Vec::new();
    for epoch in 0..epochs {
        let mut places: Vec<u64> = (0..count).collect();
        if let Some(order) = order {
            order.shuffle(epoch, &mut places);
        }
        let mut places: Vec<u8> = places.into_iter().map(|row| row as u8).collect();
        if let End::Epoch { batches, .. } = end {
            places.resize((batches * batch) as usize, PAD);
        }
        all.extend(places);
    }
    all
}

proptest! {
    #[test]
    fn feeds_agree_with_the_model(
        count in 1u64..40, length in 1u64..4, size in 1u64..50, kind in 0..3, more in 0u64..3, shuffled: bool, seed: u64,
        steps in proptest::collection::vec(0u64..12, 1..8),
    ) {
        let end = || match kind {
            0 => End::Wrap,
            1 => padded(count.div_ceil(size) + more),
            _ => End::Epoch { batches: (count / size).max(1), pad: vec![PAD] },
        };
        let order = shuffled.then(|| Stream::of_orders(seed, 3));
        let expected = model(count, 12 * size.div_ceil(count) + 12, size, &end(), order);
        let mut feed = rows(count, length, end(), order);
        // In any order of the steps, and again: a step's rows depend on its number alone.
        for step in steps {
            let at = (step * size) as usize;
            prop_assert_eq!(&batch(&mut feed, step, size)[..], &expected[at..at + size as usize], "step {}", step);
        }
    }

    #[test]
    fn every_epoch_is_a_permutation_of_its_own(count in 5u64..60, seed: u64) {
        let mut feed = rows(count, 2, End::Wrap, Some(Stream::of_orders(seed, 0)));
        let epochs: Vec<Vec<u8>> = (0..3).map(|epoch| batch(&mut feed, epoch, count)).collect();
        for epoch in &epochs {
            let mut sorted = epoch.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..count as u8).collect::<Vec<_>>());
        }
        prop_assert!(epochs[0] != epochs[1] || epochs[1] != epochs[2]);
    }

    /// Rows of other lengths, other batches: what they are called or hold plays no part.
    #[test]
    fn feeds_of_as_many_rows_stay_together(count in 1u64..60, size in 1u64..20, seed: u64) {
        let (mut x, mut labels) = (
            rows(count, 5, End::Wrap, Some(Stream::of_orders(seed, 1))),
            rows(count, 1, End::Wrap, Some(Stream::of_orders(seed, 1))),
        );
        for step in 0..6 {
            prop_assert_eq!(batch(&mut x, step, size), batch(&mut labels, step, size));
        }
    }
}

#[test]
fn orders_differ_by_seed_and_rank() {
    let first = |seed, rank| batch(&mut rows(50, 1, End::Wrap, Some(Stream::of_orders(seed, rank))), 0, 50);
    assert_eq!(first(7, 0), batch(&mut rows(50, 1, End::Wrap, stream()), 0, 50));
    assert_ne!(first(7, 0), first(8, 0));
    assert_ne!(first(7, 0), first(7, 1));
}
