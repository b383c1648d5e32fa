//! Which calls each op becomes.

use squall_core::DevicePtr;

use super::*;

fn range(ptr: u64, len: u64, dtype: DType) -> BoundRange {
    BoundRange { ptr: DevicePtr(ptr), dtype, shape: [len].into() }
}

/// `f32` elements.
fn floats(ptr: u64, len: u64) -> BoundRange {
    range(ptr, len, DType::F32)
}

fn records(call: Call<'_, BoundRange>, me: u32, size: u32) -> Vec<Record> {
    let mut out = Vec::new();
    read(&call, None, me, size, &mut out).unwrap();
    out
}

fn send(send: u64, count: usize, peer: c_int) -> Record {
    Record::Send { send, count, dtype: 7, peer }
}

fn recv(recv: u64, count: usize, peer: c_int) -> Record {
    Record::Recv { recv, count, dtype: 7, peer }
}

#[test]
fn dtypes_and_reductions_are_nccls() {
    let numbers = [
        (DType::I8, 0),
        (DType::U8, 1),
        (DType::I32, 2),
        (DType::U32, 3),
        (DType::I64, 4),
        (DType::U64, 5),
        (DType::F16, 6),
        (DType::F32, 7),
        (DType::F64, 8),
        (DType::Bf16, 9),
    ];
    assert_eq!(numbers.len(), DType::ALL.len());
    let reductions =
        [(ReduceOp::Sum, 0), (ReduceOp::Prod, 1), (ReduceOp::Max, 2), (ReduceOp::Min, 3), (ReduceOp::Avg, 4)];
    assert_eq!(reductions.len(), ReduceOp::ALL.len());
    for (of, dtype) in numbers {
        for (reduce, number) in reductions {
            let buffer = range(256, 5, of);
            assert_eq!(
                records(Call::AllReduce { send: &buffer, recv: &buffer, reduce }, 0, 2),
                [Record::AllReduce { send: 256, recv: 256, count: 5, dtype, reduce: number }]
            );
        }
    }
}

#[test]
fn a_reduction_of_one_rank_is_a_copy() {
    let (from, to) = (&floats(8, 3), &floats(1028, 3));
    let reduce = ReduceOp::Avg;
    let copy = [Record::Broadcast { send: 8, recv: 1028, count: 3, dtype: 7, root: 0 }];
    assert_eq!(records(Call::AllReduce { send: from, recv: to, reduce }, 0, 1), copy);
    assert_eq!(records(Call::Reduce { send: from, recv: to, reduce, root: 0 }, 0, 1), copy);
    assert_eq!(records(Call::ReduceScatter { send: from, recv: to, reduce }, 0, 1), copy);
}

#[test]
fn collectives_are_one_call() {
    let (a, b, long) = (floats(0x1000, 6), floats(0x2000, 6), floats(0x4000, 18));
    let reduce = ReduceOp::Max;
    let (from, to) = (0x1000, 0x2000);
    for (call, want) in [
        (
            Call::AllReduce { send: &a, recv: &b, reduce },
            Record::AllReduce { send: from, recv: to, count: 6, dtype: 7, reduce: 2 },
        ),
        (
            Call::Broadcast { send: &a, recv: &b, root: 2 },
            Record::Broadcast { send: from, recv: to, count: 6, dtype: 7, root: 2 },
        ),
        (
            Call::Reduce { send: &a, recv: &b, reduce, root: 1 },
            Record::Reduce { send: from, recv: to, count: 6, dtype: 7, reduce: 2, root: 1 },
        ),
        (
            Call::AllGather { send: &a, recv: &long },
            Record::AllGather { send: from, recv: 0x4000, count: 6, dtype: 7 },
        ),
        (
            Call::ReduceScatter { send: &long, recv: &b, reduce },
            Record::ReduceScatter { send: 0x4000, recv: to, count: 6, dtype: 7, reduce: 2 },
        ),
        (Call::Send { buffer: &a, peer: 2 }, send(from, 6, 2)),
        (Call::Recv { buffer: &b, peer: 1 }, recv(to, 6, 1)),
    ] {
        assert_eq!(records(call, 0, 3), [want]);
    }
}

#[test]
fn send_recv_is_a_send_and_a_receive() {
    let (a, b, none) = (floats(0x1000, 6), floats(0x2000, 4), floats(0x3000, 0));
    assert_eq!(
        records(Call::SendRecv { send: &a, to: 1, recv: &b, from: 2 }, 0, 3),
        [send(0x1000, 6, 1), recv(0x2000, 4, 2)]
    );
    assert_eq!(records(Call::SendRecv { send: &none, to: 1, recv: &b, from: 2 }, 0, 3), [recv(0x2000, 4, 2)]);
}

#[test]
fn all_to_all_gives_block_p_to_rank_p() {
    let (a, b) = (floats(0x1000, 6), floats(0x2000, 6));
    assert_eq!(
        records(Call::AllToAll { send: &a, recv: &b, counts: None }, 1, 3),
        [
            send(0x1000, 2, 0),
            recv(0x2000, 2, 0),
            send(0x1008, 2, 1),
            recv(0x2008, 2, 1),
            send(0x1010, 2, 2),
            recv(0x2010, 2, 2),
        ]
    );
}

#[test]
fn gather_takes_every_block_on_root_but_one_that_is_in_place() {
    let (all, apart) = (floats(0x1000, 6), floats(0x2000, 2));
    let apart = |me| records(Call::Gather { send: &apart, recv: &all, root: 1 }, me, 3);
    assert_eq!(apart(0), [send(0x2000, 2, 1)]);
    let takes = [recv(0x1000, 2, 0), recv(0x1008, 2, 1), recv(0x1010, 2, 2)];
    assert_eq!(apart(1), [&[send(0x2000, 2, 1)][..], &takes].concat());
    let placed = floats(0x1008, 2);
    let placed = records(Call::Gather { send: &placed, recv: &all, root: 1 }, 1, 3);
    assert_eq!(placed, [takes[0], takes[2]]);
}

#[test]
fn scatter_gives_every_block_on_root_but_one_that_is_in_place() {
    let (all, apart) = (floats(0x1000, 6), floats(0x2000, 2));
    let apart = |me| records(Call::Scatter { send: &all, recv: &apart, root: 2 }, me, 3);
    assert_eq!(apart(0), [recv(0x2000, 2, 2)]);
    let gives = [send(0x1000, 2, 0), send(0x1008, 2, 1), send(0x1010, 2, 2)];
    assert_eq!(apart(2), [&gives[..], &[recv(0x2000, 2, 2)]].concat());
    let placed = floats(0x1010, 2);
    let placed = records(Call::Scatter { send: &all, recv: &placed, root: 2 }, 2, 3);
    assert_eq!(placed, gives[..2]);
}

/// Off root, the long argument of gather and scatter is not looked at.
#[test]
fn off_root_only_the_block_counts() {
    let (block, other) = (floats(0x1000, 4), range(0x2000, 3, DType::U8));
    assert_eq!(records(Call::Gather { send: &block, recv: &other, root: 1 }, 0, 2), [send(0x1000, 4, 1)]);
    assert_eq!(records(Call::Scatter { send: &other, recv: &block, root: 1 }, 0, 2), [recv(0x1000, 4, 1)]);
}

#[test]
fn empty_ranges_are_no_calls() {
    let none = &floats(0x1000, 0);
    let reduce = ReduceOp::Sum;
    for call in [
        Call::AllReduce { send: none, recv: none, reduce },
        Call::Broadcast { send: none, recv: none, root: 0 },
        Call::Reduce { send: none, recv: none, reduce, root: 0 },
        Call::AllGather { send: none, recv: none },
        Call::ReduceScatter { send: none, recv: none, reduce },
        Call::Send { buffer: none, peer: 1 },
        Call::Recv { buffer: none, peer: 1 },
        Call::SendRecv { send: none, to: 1, recv: none, from: 1 },
        Call::AllToAll { send: none, recv: none, counts: None },
        Call::Gather { send: none, recv: none, root: 0 },
        Call::Scatter { send: none, recv: none, root: 0 },
    ] {
        assert_eq!(records(call.clone(), 0, 2), [], "{call:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (four, eight, bytes) = (&floats(256, 4), &floats(256, 8), &range(256, 8, DType::U8));
    let reduce = ReduceOp::Sum;
    let refused = |call: &Call<'_, BoundRange>| read(call, None, 0, 2, &mut Vec::new()).unwrap_err();
    for call in [
        Call::AllReduce { send: four, recv: eight, reduce },
        Call::Broadcast { send: eight, recv: four, root: 0 },
        Call::Reduce { send: eight, recv: bytes, reduce, root: 0 },
        Call::AllGather { send: eight, recv: four },
        Call::ReduceScatter { send: four, recv: four, reduce },
        Call::AllToAll { send: four, recv: eight, counts: None },
        Call::Gather { send: four, recv: four, root: 0 },
        Call::Scatter { send: four, recv: four, root: 0 },
    ] {
        assert!(refused(&call).message.contains("but must hold"), "{call:?}");
    }
    let odd = &floats(256, 3);
    assert!(
        refused(&Call::AllToAll { send: odd, recv: odd, counts: None }).message.contains("cannot be divided")
    );
    for call in [
        Call::Broadcast { send: four, recv: four, root: 2 },
        Call::Reduce { send: four, recv: four, reduce, root: 9 },
        Call::Gather { send: four, recv: eight, root: 2 },
        Call::Scatter { send: eight, recv: four, root: 2 },
        Call::Send { buffer: four, peer: 2 },
        Call::Recv { buffer: four, peer: u32::MAX },
        Call::SendRecv { send: four, to: 0, recv: four, from: 5 },
    ] {
        assert!(refused(&call).message.contains("has 2 ranks"), "{call:?}");
    }
}

/// More than 32 bits can count.
#[test]
fn large_counts_stay_whole() {
    let len = (1 << 31) + 8;
    let (a, b) = (range(1 << 40, 2 * len, DType::U8), range(1 << 41, 2 * len, DType::U8));
    let got = records(Call::AllToAll { send: &a, recv: &b, counts: None }, 0, 2);
    assert_eq!(got[2], Record::Send { send: (1 << 40) + len, count: len as usize, dtype: 1, peer: 1 });
}
