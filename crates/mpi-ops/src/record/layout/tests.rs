use std::sync::Arc;

use squall_core::DevicePtr;

use super::*;
use crate::record::Operator;

const SUM: Operator = Operator::WrappingSum(Wire::U32);

fn range(ptr: u64, len: u64, dtype: DType) -> BoundRange {
    BoundRange { ptr: DevicePtr(ptr), dtype, shape: [len].into() }
}

fn ints(ptr: u64, len: u64) -> BoundRange {
    range(ptr, len, DType::I32)
}

/// Of three ranks, with scratch memory at 0x10000.
fn layout(call: &Call<'_, BoundRange>, parts: Option<&Parts>, me: u32, largest: u64) -> Layout {
    let mut layout = Layout::new(0x10000);
    layout.add(call, parts, Seat { me, size: 3, largest }).unwrap();
    layout
}

fn forms(layout: &Layout) -> Vec<Form> {
    layout.records.iter().map(|record| record.call.clone()).collect()
}

fn many() -> u64 {
    i32::MAX as u64
}

#[test]
fn what_is_reduced_in_place_is_copied_first() {
    let (a, b) = (ints(0x1000, 5), ints(0x2000, 5));
    let reduce = ReduceOp::Avg;
    let apart = layout(&Call::AllReduce { send: &a, recv: &b, reduce }, None, 0, many());
    let form = |send, recv| Form::AllReduce { send, recv, count: 5, operator: SUM };
    assert_eq!((forms(&apart), apart.before, apart.used), (vec![form(0x1000, 0x2000)], vec![], 0));
    assert_eq!(apart.after, [Local::Average { at: 0x2000, len: 5, dtype: DType::I32, ranks: 3 }]);
    let placed = layout(&Call::AllReduce { send: &a, recv: &a, reduce: ReduceOp::Sum }, None, 0, many());
    assert_eq!((forms(&placed), placed.used), (vec![form(0x10000, 0x1000)], 64));
    assert_eq!(placed.before, [Local::Copy { from: 0x1000, to: 0x10000, bytes: 20 }]);
    // Off root nothing is written, and so nothing is in place.
    let off = layout(&Call::Reduce { send: &a, recv: &a, reduce, root: 2 }, None, 1, many());
    let form = Form::Reduce { send: 0x1000, recv: 0, count: 5, operator: SUM, root: 2 };
    assert_eq!((forms(&off), off.before, off.after, off.used), (vec![form], vec![], vec![], 0));
}

#[test]
fn halves_are_reduced_as_floats_elsewhere() {
    let half = range(0x1000, 40, DType::Bf16);
    let call = Call::AllReduce { send: &half, recv: &half, reduce: ReduceOp::Avg };
    let layout = layout(&call, None, 0, many());
    let operator = Operator::Sum;
    assert_eq!(
        layout.records,
        [Record {
            call: Form::AllReduce { send: 0x10000, recv: 0x100c0, count: 40, operator },
            wire: Wire::F32,
            unit: 1
        }]
    );
    let (len, dtype) = (40, DType::Bf16);
    assert_eq!(layout.before, [Local::Widen { from: 0x1000, to: 0x10000, len, dtype }]);
    assert_eq!(layout.after, [Local::Narrow { from: 0x100c0, to: 0x1000, len, dtype, divisor: Some(3) }]);
    assert_eq!(layout.used, 384);
}

#[test]
fn more_than_a_call_counts_is_split() {
    let (a, b, long) = (ints(0x1000, 7), ints(0x2000, 7), ints(0x3000, 21));
    let reduced = layout(&Call::AllReduce { send: &a, recv: &b, reduce: ReduceOp::Sum }, None, 0, 5);
    let form = |send, recv, count| Form::AllReduce { send, recv, count, operator: SUM };
    assert_eq!(forms(&reduced), [form(0x1000, 0x2000, 5), form(0x1014, 0x2014, 2)]);
    let gathered = layout(&Call::AllGather { send: &a, recv: &long }, None, 0, 20);
    let call = Form::AllGather { send: 0x1000, recv: 0x3000, count: 1 };
    assert_eq!(gathered.records, [Record { call, wire: Wire::U32, unit: 7 }]);
    let gathered = layout(&Call::AllGather { send: &a, recv: &long }, None, 0, 21);
    assert_eq!(forms(&gathered), [Form::AllGather { send: 0x1000, recv: 0x3000, count: 7 }]);
    let sent = layout(&Call::Send { buffer: &a, peer: 2 }, None, 0, 6);
    assert_eq!(
        (sent.records[0].unit, forms(&sent)),
        (7, vec![Form::Send { at: 0x1000, count: 1, peer: 2, tag: 0 }])
    );
    // A reduction cannot be of units: each part is reduced to its rank.
    let call = Call::ReduceScatter { send: &long, recv: &a, reduce: ReduceOp::Sum };
    let form = |send, recv, count, root| Form::Reduce { send, recv, count, operator: SUM, root };
    assert_eq!(
        forms(&layout(&call, None, 1, 20)),
        [form(0x3000, 0, 7, 0), form(0x301c, 0x1000, 7, 1), form(0x3038, 0, 7, 2)]
    );
}

#[test]
fn unequal_parts_are_counted_or_sent() {
    let parts = Parts::new([3, 0, 2]).unwrap();
    let (part, all) = (ints(0x1000, 3), ints(0x2000, 5));
    let call = Call::AllGather { send: &part, recv: &all };
    let places = Places { counts: [3, 0, 2].into(), begins: [0, 3, 3].into() };
    let form = Form::AllGatherV { send: 0x1000, count: 3, recv: 0x2000, places };
    assert_eq!(forms(&layout(&call, Some(&parts), 0, 5)), [form]);
    let sent = layout(&call, Some(&parts), 0, 4);
    assert_eq!(sent.before, [Local::Copy { from: 0x1000, to: 0x2000, bytes: 12 }]);
    let give = |peer| Form::Send { at: 0x1000, count: 3, peer, tag: 1 };
    assert_eq!(forms(&sent), [give(1), give(2), Form::Recv { at: 0x200c, count: 2, peer: 2, tag: 1 }]);
    let (none, call) = (ints(0x20, 0), Call::Scatter { send: &all, recv: &part, root: 2 });
    let mut takes = layout(&call, Some(&parts), 0, 4);
    assert_eq!(forms(&takes), [Form::Recv { at: 0x1000, count: 3, peer: 2, tag: 1 }]);
    takes = layout(&Call::Gather { send: &none, recv: &all, root: 2 }, Some(&parts), 1, 4);
    assert_eq!(forms(&takes), []);
}

/// What moves by its own counts goes one way on all ranks, whatever each of them has.
#[test]
fn an_exchange_is_counted_where_all_ranks_can() {
    let counts: Arc<[i64]> = [0, 1, 0, 0, 0, 9, 0, 0, 0].into();
    let exchange = |me: u32, sent: u64, taken: u64, largest| {
        let (send, recv) = (ints(0x1000, sent), ints(0x2000, taken));
        layout(&Call::AllToAll { send: &send, recv: &recv, counts: Some(&counts) }, None, me, largest)
    };
    for (me, sent, taken) in [(0, 1, 0), (1, 9, 1), (2, 0, 9)] {
        assert!(matches!(forms(&exchange(me, sent, taken, 9))[..], [Form::AllToAllV { .. }]));
        let messages = forms(&exchange(me, sent, taken, 8));
        assert!(
            messages.iter().all(|form| matches!(form, Form::Send { .. } | Form::Recv { .. })),
            "{messages:?}"
        );
    }
}

#[test]
fn nothing_and_nobody_else_make_no_calls() {
    let none = &ints(0x1000, 0);
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
        let layout = layout(&call, None, 0, many());
        assert!(layout.records.is_empty() && layout.before.is_empty() && layout.after.is_empty(), "{call:?}");
    }
    let (a, b) = (&ints(0x1000, 4), &ints(0x2000, 4));
    for call in [
        Call::AllReduce { send: a, recv: b, reduce },
        Call::Broadcast { send: a, recv: b, root: 0 },
        Call::Reduce { send: a, recv: b, reduce, root: 0 },
        Call::AllGather { send: a, recv: b },
        Call::ReduceScatter { send: a, recv: b, reduce },
        Call::AllToAll { send: a, recv: b, counts: None },
        Call::Gather { send: a, recv: b, root: 0 },
        Call::Scatter { send: a, recv: b, root: 0 },
    ] {
        let mut layout = Layout::new(0);
        layout.add(&call, None, Seat { me: 0, size: 1, largest: many() }).unwrap();
        let copy = Local::Copy { from: 0x1000, to: 0x2000, bytes: 16 };
        assert!(layout.records.is_empty() && layout.before == [copy] && layout.after.is_empty(), "{call:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (four, eight, bytes) = (&ints(256, 4), &ints(256, 8), &range(256, 8, DType::U8));
    let reduce = ReduceOp::Sum;
    let refused = |call: &Call<'_, BoundRange>, parts: Option<&Parts>| {
        Layout::new(0).add(call, parts, Seat { me: 0, size: 2, largest: many() }).unwrap_err().message
    };
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
        assert!(refused(&call, None).contains("but must hold"), "{call:?}");
    }
    let odd = &ints(256, 3);
    assert!(
        refused(&Call::AllToAll { send: odd, recv: odd, counts: None }, None).contains("cannot be divided")
    );
    let counts: Arc<[i64]> = [1, 2, -3, 4].into();
    let exchange = Call::AllToAll { send: odd, recv: four, counts: Some(&counts) };
    assert_eq!(refused(&exchange, None), "does not fit the communicator", "no rank sends fewer than no rows");
    for call in [
        Call::Broadcast { send: four, recv: four, root: 2 },
        Call::Reduce { send: four, recv: four, reduce, root: 9 },
        Call::Gather { send: four, recv: eight, root: 2 },
        Call::Scatter { send: eight, recv: four, root: 2 },
        Call::Send { buffer: four, peer: 2 },
        Call::Recv { buffer: four, peer: u32::MAX },
        Call::SendRecv { send: four, to: 0, recv: four, from: 5 },
    ] {
        assert!(refused(&call, None).contains("has 2 ranks"), "{call:?}");
    }
    let parts = |lens: &[u64]| Parts::new(lens.iter().copied()).unwrap();
    let gather = Call::AllGather { send: four, recv: eight };
    assert_eq!(refused(&gather, Some(&parts(&[3, 5]))), "holds 4 elements, but this rank's part has 3");
    assert!(refused(&gather, Some(&parts(&[4, 5]))).contains("must hold 9"));
    assert!(refused(&gather, Some(&parts(&[4, 2, 2]))).contains("this rank's part"));
    assert!(
        refused(&Call::Gather { send: four, recv: eight, root: 1 }, Some(&parts(&[3, 5])))
            .contains("part has 3")
    );
}

/// Addresses beyond what an address can be are refused by who gives memory, and meet no overflow here.
#[test]
fn sizes_saturate() {
    let huge = range(0x1000, u64::MAX / 2, DType::F16);
    let mut layout = Layout::new(0x10000);
    let seat = Seat { me: 0, size: 3, largest: u64::MAX };
    layout.add(&Call::AllReduce { send: &huge, recv: &huge, reduce: ReduceOp::Sum }, None, seat).unwrap();
    assert_eq!(layout.scratch(), u64::MAX);
}
