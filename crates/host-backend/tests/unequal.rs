//! Unequal parts and counts on the host, against a plain model, at sizes and places that proptest picks; and calls that do not match.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise, in its helpers too")]

use std::sync::Arc;

use proptest::prelude::*;
use squall_core::conformance::{Op, Random, Rank, Ranks, Target};
use squall_core::{BoundRange, DType, Parts, ReduceOp, Registry, World};
use squall_host_backend as _;

fn run<T: Send>(
    world: usize,
    body: impl Fn(&mut Rank<'_>) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let registry = Box::leak(Box::new(Registry::linked().unwrap()));
    let target = Target::new(registry, "host", "host").unwrap();
    Ranks::connect(&target, World::new(world as u64).unwrap()).unwrap().run(body)
}

/// What each rank's `recv` is, from all ranks' `send`; wrapping sums of bytes.
fn model(op: &str, lens: &[usize], sent: &[Vec<u8>], root: usize) -> Vec<Option<Vec<u8>>> {
    let start = |rank: usize| lens[..rank].iter().sum::<usize>();
    let part = |rank: usize| start(rank)..start(rank) + lens[rank];
    let ranks = 0..lens.len();
    match op {
        "all_gather" => ranks.map(|_| Some(sent.concat())).collect(),
        "gather" => ranks.map(|rank| (rank == root).then(|| sent.concat())).collect(),
        "scatter" => ranks.map(|rank| Some(sent[root][part(rank)].to_vec())).collect(),
        _ => {
            let sum = |i: usize| sent.iter().fold(0u8, |sum, sent| sum.wrapping_add(sent[i]));
            ranks.map(|rank| Some(part(rank).map(sum).collect())).collect()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_come_where_they_belong(
        op in prop::sample::select(vec!["all_gather", "gather", "scatter", "reduce_scatter"]),
        lens in prop::collection::vec(prop::sample::select(vec![0usize, 1, 5, 63, 64, 200, 5000]), 2..7),
        root in 0usize..7,
        in_place in any::<bool>(),
        offset in 0usize..70,
        rounds in 1usize..3,
        seed in any::<u64>(),
    ) {
        let root = root % lens.len();
        let total: usize = lens.iter().sum();
        let gathers = op.contains("gather");
        let mut random = Random::new(seed);
        let sent: Vec<Vec<u8>> =
            lens.iter().map(|&len| random.bytes(if gathers { len } else { total })).collect();
        let want = model(op, &lens, &sent, root);
        let parts = Parts::new(lens.iter().map(|&len| len as u64)).unwrap();
        let uneven = lens.iter().any(|&len| len != lens[0]);
        let got = run(lens.len(), |rank| {
            let me = rank.rank as usize;
            let own = lens[..me].iter().sum::<usize>();
            // The whole stands in one buffer, and the part in it or in another.
            let mut whole = vec![0x5a; offset + total + 9];
            let mut part = vec![0x5a; offset + lens[me] + 9];
            match (gathers, in_place) {
                (true, true) => whole[offset + own..][..lens[me]].copy_from_slice(&sent[me]),
                (true, false) => part[offset..][..lens[me]].copy_from_slice(&sent[me]),
                (false, _) => whole[offset..][..total].copy_from_slice(&sent[me]),
            }
            let mut buffers = [rank.upload(&whole)?, rank.upload(&part)?];
            let range = |which: usize, start: usize, len: usize| -> BoundRange {
                buffers[which].range(DType::U8, (offset + start) as u64, len as u64)
            };
            let whole_range = range(0, 0, total);
            let part_range = if in_place { range(0, own, lens[me]) } else { range(1, 0, lens[me]) };
            let (send, recv) = if gathers { (part_range, whole_range) } else { (whole_range, part_range) };
            let mut call = Op::new(op).buffer("send", send).buffer("recv", recv);
            if op == "reduce_scatter" {
                call = call.reduce(ReduceOp::Sum);
            } else if op != "all_gather" {
                call = call.rank("root", root as u32);
            }
            if uneven {
                call = call.parts(parts.clone());
            }
            let mut work = rank.prepare(&[call])?;
            // A reduction in place changes its own input.
            let rounds = if op == "reduce_scatter" && in_place { 1 } else { rounds };
            for _ in 0..rounds {
                rank.run(&mut *work).map_err(|error| error.to_string())?;
            }
            let (which, at, len) = match (gathers, in_place) {
                (true, _) => (0, offset, total),
                (false, true) => (0, offset + own, lens[me]),
                (false, false) => (1, offset, lens[me]),
            };
            let got = rank.read(&mut buffers[which])?;
            let mut around = if which == 0 { whole } else { part };
            if want[me].is_some() {
                around[at..at + len].copy_from_slice(&got[at..at + len]);
            }
            assert!(got == around, "something beside the result was written");
            Ok(got[at..at + len].to_vec())
        });
        for (got, want) in got.unwrap().iter().zip(&want) {
            prop_assert!(want.as_ref().is_none_or(|want| got == want), "{op} of {lens:?}");
        }
    }

    #[test]
    fn rows_go_by_counts(
        matrix in (1usize..6).prop_flat_map(|n| {
            let row = prop::collection::vec(prop::sample::select(vec![0usize, 0, 1, 3, 40, 700]), n);
            prop::collection::vec(row, n)
        }),
        row in 1usize..5,
    ) {
        let counts: Arc<[i64]> = matrix.iter().flatten().map(|&count| count as i64).collect();
        // A row says where it comes from, where it goes and which of them it is.
        let block = |from: usize, to: usize| -> Vec<u16> {
            let rows = 0..matrix[from][to] * row;
            rows.map(|i| (i + 1000 * from + 7919 * to) as u16).collect()
        };
        let bytes = |rows: Vec<u16>| -> Vec<u8> { rows.into_iter().flat_map(u16::to_ne_bytes).collect() };
        let got = run(matrix.len(), |rank| {
            let me = rank.rank as usize;
            let send = bytes((0..matrix.len()).flat_map(|to| block(me, to)).collect());
            let want = bytes((0..matrix.len()).flat_map(|from| block(from, me)).collect());
            let (send, mut recv) = (rank.upload(&send)?, rank.upload(&vec![0x5a; want.len()])?);
            let rows = |range: BoundRange| BoundRange {
                shape: [range.len() / row as u64, row as u64].into(),
                ..range
            };
            let (from, to) = (rows(send.whole(DType::F16)), rows(recv.whole(DType::F16)));
            let call = Op::new("all_to_all").buffer("send", from).buffer("recv", to);
            rank.run_group(&[call.matrix("counts", &counts)])?;
            Ok((rank.read(&mut recv)?, want))
        });
        for (got, want) in got.unwrap() {
            prop_assert!(got == want, "{matrix:?}");
        }
    }
}

/// Ranks that were told of different parts touch none of each other's memory.
#[test]
fn parts_that_differ_are_refused() {
    let error = run(2, |rank| {
        let lens = [[1, 3], [2, 2]][rank.rank as usize];
        let (send, recv) = (rank.upload(&vec![0; lens[rank.rank as usize]])?, rank.upload(&[0; 4])?);
        let call = Op::new("all_gather").buffer("send", send.whole(DType::U8));
        let call = call.buffer("recv", recv.whole(DType::U8));
        rank.run_group(&[call.parts(Parts::new(lens.map(|len| len as u64)).unwrap())])
    })
    .unwrap_err();
    assert!(error.contains("the ranks' calls differ: ") && error.contains("in unequal parts"), "{error}");
}

/// What verification has checked is checked again where memory hangs on it.
#[test]
fn what_does_not_fit_is_refused() {
    let refused = |call: &(dyn Fn(BoundRange, BoundRange) -> Op + Sync), lens: [usize; 2]| {
        run(2, |rank| {
            let (send, recv) = (rank.upload(&vec![0; lens[0]])?, rank.upload(&vec![0; lens[1]])?);
            rank.run_group(&[call(send.whole(DType::U8), recv.whole(DType::U8))])
        })
        .unwrap_err()
    };
    let gather = |send, recv| Op::new("all_gather").buffer("send", send).buffer("recv", recv);
    let parts = || Parts::new([1, 3]).unwrap();
    let error = refused(&|send, recv| gather(send, recv).parts(parts()), [1, 5]);
    assert!(error.contains("holds 5 elements of u8, but must hold 4 of u8"), "{error}");
    let error = refused(&|send, recv| gather(send, recv).parts(parts()), [2, 4]);
    assert!(error.contains("`send`: is not as long as this rank's part"), "{error}");
    let of_three = || Parts::new([1, 1, 2]).unwrap();
    let error = refused(&|send, recv| gather(send, recv).parts(of_three()), [1, 4]);
    assert!(error.contains("is not as long as this rank's part"), "{error}");
    let counts: Arc<[i64]> = [1, 1, 1, 1].into();
    let exchange = |send, recv| Op::new("all_to_all").buffer("send", send).buffer("recv", recv);
    let error = refused(&|send, recv| exchange(send, recv).matrix("counts", &counts), [2, 3]);
    assert!(error.contains("`recv`: does not hold what `counts` tells"), "{error}");
    let error = refused(&|send, recv| exchange(send, recv).matrix("counts", &[1, 1].into()), [2, 2]);
    assert!(error.contains("`counts`: does not fit the communicator"), "{error}");
}
