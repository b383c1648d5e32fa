//! Unequal parts, which NCCL does not know.
//!
//! They are gathered, scattered and exchanged by sends and receives, the rank's own part by one to itself unless it is in place, and
//! reduced by one `ncclReduce` for each rank that has a part. All of an op's calls are issued as one group.

use std::ops::Range;

use squall_core::ops::{Call, Counts, Parts, rows};
use squall_core::{ArgError, BoundRange, DevicePtr};

use super::{Record, count, dtype, give, member, push, reduction, take};

/// Appends the calls of an op that divides a whole into `parts`, as the rank `me` of `size` makes them.
pub(super) fn read(
    call: &Call<'_, BoundRange>,
    parts: &Parts,
    me: u32,
    size: u32,
    out: &mut Vec<Record>,
) -> Result<(), ArgError> {
    match *call {
        Call::AllGather { send, recv } => {
            divides(parts, ("recv", recv), ("send", send), me, size)?;
            let placed = send.ptr == part(recv, parts, me).ptr;
            for peer in (0..size).filter(|&peer| !(placed && peer == me)) {
                give(out, send, send.ptr.0, "send", peer, size)?;
                let block = part(recv, parts, peer);
                take(out, &block, block.ptr.0, "recv", peer, size)?;
            }
        }
        Call::ReduceScatter { send, recv, reduce } => {
            divides(parts, ("send", send), ("recv", recv), me, size)?;
            for root in 0..size {
                let block = part(send, parts, root);
                let (count, dtype, reduce) = (count(&block)?, dtype(send), reduction(reduce));
                // Only root's is written; on other ranks it is an address of this rank's memory all the same.
                let recv = if root == me { recv.ptr.0 } else { block.ptr.0 };
                let root = member("recv", root, size)?;
                push(out, count, Record::Reduce { send: block.ptr.0, recv, count, dtype, reduce, root });
            }
        }
        Call::Gather { send, recv, root } => {
            length(parts, ("send", send), me, size)?;
            // In place, root's part is where it belongs.
            let placed = me == root && send.ptr == part(recv, parts, me).ptr;
            if !placed {
                give(out, send, send.ptr.0, "root", root, size)?;
            }
            if me == root {
                holds("recv", recv, send, parts)?;
                for peer in (0..size).filter(|&peer| !(placed && peer == me)) {
                    let block = part(recv, parts, peer);
                    take(out, &block, block.ptr.0, "recv", peer, size)?;
                }
            }
        }
        Call::Scatter { send, recv, root } => {
            length(parts, ("recv", recv), me, size)?;
            let placed = me == root && recv.ptr == part(send, parts, me).ptr;
            if me == root {
                holds("send", send, recv, parts)?;
                for peer in (0..size).filter(|&peer| !(placed && peer == me)) {
                    let block = part(send, parts, peer);
                    give(out, &block, block.ptr.0, "send", peer, size)?;
                }
            }
            if !placed {
                take(out, recv, recv.ptr.0, "root", root, size)?;
            }
        }
        _ => return Err(ArgError::new("op", "divides nothing, and was given parts")),
    }
    Ok(())
}

/// Appends the calls of an exchange by `counts`.
pub(super) fn exchange(
    counts: &[i64],
    send: &BoundRange,
    recv: &BoundRange,
    me: u32,
    size: u32,
    out: &mut Vec<Record>,
) -> Result<(), ArgError> {
    let row = rows(&send.shape).1;
    let counts = Counts::new(counts, size);
    let sent = counts.and_then(|counts| counts.send_parts(me, row));
    let received = counts.and_then(|counts| counts.recv_parts(me, row));
    let (Some(sent), Some(received)) = (sent, received) else {
        return Err(ArgError::new("counts", "does not fit the communicator"));
    };
    holds("send", send, send, &sent)?;
    holds("recv", recv, send, &received)?;
    for peer in 0..size {
        let (from, to) = (part(send, &sent, peer), part(recv, &received, peer));
        give(out, &from, from.ptr.0, "send", peer, size)?;
        take(out, &to, to.ptr.0, "recv", peer, size)?;
    }
    Ok(())
}

/// The part of a rank in a whole that holds all of them.
fn part(whole: &BoundRange, parts: &Parts, rank: u32) -> BoundRange {
    let Range { start, end } = parts.of(rank);
    let ptr = whole.ptr.0.wrapping_add(start.wrapping_mul(whole.dtype.size()));
    BoundRange { ptr: DevicePtr(ptr), dtype: whole.dtype, shape: [end - start].into() }
}

/// `whole` holds the parts of all ranks, and `mine` is that of the rank `me`.
fn divides(
    parts: &Parts,
    (param, whole): (&'static str, &BoundRange),
    mine: (&'static str, &BoundRange),
    me: u32,
    size: u32,
) -> Result<(), ArgError> {
    holds(param, whole, mine.1, parts)?;
    length(parts, mine, me, size)
}

/// The parts are those of `size` ranks, and `mine` is as long as that of the rank `me`.
fn length(
    parts: &Parts,
    (param, mine): (&'static str, &BoundRange),
    me: u32,
    size: u32,
) -> Result<(), ArgError> {
    let Range { start, end } = parts.of(me);
    if parts.ranks() == size as usize && mine.len() == end - start {
        return Ok(());
    }
    let elements = squall_core::count(mine.len(), "element");
    Err(ArgError::new(param, format!("holds {elements}, but this rank's part has {}", end - start)))
}

/// `whole` holds all parts, of the dtype of `part`.
fn holds(param: &'static str, whole: &BoundRange, part: &BoundRange, parts: &Parts) -> Result<(), ArgError> {
    if whole.dtype == part.dtype && whole.len() == parts.total() {
        return Ok(());
    }
    let elements = squall_core::count(whole.len(), "element");
    let must = format!("but must hold {} of {}", parts.total(), part.dtype);
    Err(ArgError::new(param, format!("holds {elements} of {}, {must}", whole.dtype)))
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;
    use std::sync::Arc;

    use super::super::read;
    use super::*;
    use squall_core::{DType, ReduceOp};

    fn floats(ptr: u64, len: u64) -> BoundRange {
        BoundRange { ptr: DevicePtr(ptr), dtype: DType::F32, shape: [len].into() }
    }

    fn send(send: u64, count: usize, peer: c_int) -> Record {
        Record::Send { send, count, dtype: 7, peer }
    }

    fn recv(recv: u64, count: usize, peer: c_int) -> Record {
        Record::Recv { recv, count, dtype: 7, peer }
    }

    /// Of three ranks 3, 0 and 2 elements.
    fn divided(call: &Call<'_, BoundRange>, me: u32) -> Result<Vec<Record>, ArgError> {
        let mut out = Vec::new();
        read(call, Parts::new([3, 0, 2]).as_ref(), me, 3, &mut out).map(|()| out)
    }

    #[test]
    fn all_gather_is_sends_and_receives() {
        let (part, none, all) = (floats(0x1000, 3), floats(0x1100, 0), floats(0x2000, 5));
        let both = [
            vec![send(0x1000, 3, 0), recv(0x2000, 3, 0)],
            vec![send(0x1000, 3, 1)],
            vec![send(0x1000, 3, 2), recv(0x200c, 2, 2)],
        ];
        assert_eq!(divided(&Call::AllGather { send: &part, recv: &all }, 0), Ok(both.concat()));
        let placed = floats(0x2000, 3);
        let others = vec![send(0x2000, 3, 1), send(0x2000, 3, 2), recv(0x200c, 2, 2)];
        assert_eq!(divided(&Call::AllGather { send: &placed, recv: &all }, 0), Ok(others));
        let takes = vec![recv(0x2000, 3, 0), recv(0x200c, 2, 2)];
        assert_eq!(divided(&Call::AllGather { send: &none, recv: &all }, 1), Ok(takes));
    }

    #[test]
    fn reduce_scatter_is_a_reduction_for_each_part() {
        let (all, apart, placed) = (floats(0x1000, 5), floats(0x2000, 2), floats(0x100c, 2));
        let reduce =
            |send, recv, count, root| Record::Reduce { send, recv, count, dtype: 7, reduce: 4, root };
        let call = |recv| Call::ReduceScatter { send: &all, recv, reduce: ReduceOp::Avg };
        let first = reduce(0x1000, 0x1000, 3, 0);
        assert_eq!(divided(&call(&apart), 2), Ok(vec![first, reduce(0x100c, 0x2000, 2, 2)]));
        assert_eq!(divided(&call(&placed), 2), Ok(vec![first, reduce(0x100c, 0x100c, 2, 2)]));
        let none = floats(0, 0);
        assert_eq!(divided(&call(&none), 1), Ok(vec![first, reduce(0x100c, 0x100c, 2, 2)]));
    }

    #[test]
    fn gather_and_scatter_take_each_part_from_its_place() {
        let (part, placed, all, none) =
            (floats(0x1000, 2), floats(0x200c, 2), floats(0x2000, 5), floats(0, 0));
        let gather = |send, me| divided(&Call::Gather { send, recv: &all, root: 2 }, me);
        assert_eq!(gather(&part, 2), Ok(vec![send(0x1000, 2, 2), recv(0x2000, 3, 0), recv(0x200c, 2, 2)]));
        assert_eq!(gather(&placed, 2), Ok(vec![recv(0x2000, 3, 0)]));
        assert_eq!(gather(&none, 1), Ok(vec![]));
        let scatter = |recv, me| divided(&Call::Scatter { send: &all, recv, root: 2 }, me);
        assert_eq!(scatter(&part, 2), Ok(vec![send(0x2000, 3, 0), send(0x200c, 2, 2), recv(0x1000, 2, 2)]));
        assert_eq!(scatter(&placed, 2), Ok(vec![send(0x2000, 3, 0)]));
        assert_eq!(scatter(&floats(0x1000, 3), 0), Ok(vec![recv(0x1000, 3, 2)]));
    }

    /// Of two ranks; rows of three elements.
    #[test]
    fn an_exchange_goes_by_rows_and_columns() {
        let counts: Arc<[i64]> = [1, 2, 0, 4].into();
        let range = |ptr, rows| BoundRange { shape: [rows, 3].into(), ..floats(ptr, 0) };
        let calls = |me, send: &BoundRange, recv: &BoundRange| {
            let mut out = Vec::new();
            read(&Call::AllToAll { send, recv, counts: Some(&counts) }, None, me, 2, &mut out).map(|()| out)
        };
        assert_eq!(
            calls(0, &range(0x1000, 3), &range(0x2000, 1)),
            Ok(vec![send(0x1000, 3, 0), recv(0x2000, 3, 0), send(0x100c, 6, 1)])
        );
        assert_eq!(
            calls(1, &range(0x1000, 4), &range(0x2000, 6)),
            Ok(vec![recv(0x2000, 6, 0), send(0x1000, 12, 1), recv(0x2018, 12, 1)])
        );
        let error = calls(1, &range(0x1000, 4), &range(0x2000, 5)).unwrap_err();
        assert_eq!(error.message, "holds 15 elements of f32, but must hold 18 of f32");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (part, all, short) = (&floats(256, 3), &floats(512, 5), &floats(512, 4));
        let reduce = ReduceOp::Sum;
        for (call, me, text) in [
            (Call::AllGather { send: part, recv: short }, 0, "must hold 5 of f32"),
            (Call::AllGather { send: part, recv: all }, 2, "this rank's part has 2"),
            (Call::ReduceScatter { send: short, recv: part, reduce }, 0, "must hold 5 of f32"),
            (Call::Gather { send: part, recv: all, root: 0 }, 1, "this rank's part has 0"),
            (Call::Scatter { send: short, recv: part, root: 0 }, 0, "must hold 5 of f32"),
            (Call::Scatter { send: all, recv: part, root: 3 }, 0, "has 3 ranks"),
            (Call::Broadcast { send: all, recv: all, root: 0 }, 0, "divides nothing"),
        ] {
            let error = divided(&call, me).unwrap_err();
            assert!(error.message.contains(text), "{call:?}: {error}");
        }
        let mut out = Vec::new();
        let parts = Parts::new([3, 2]);
        assert!(read(&Call::AllGather { send: part, recv: all }, parts.as_ref(), 0, 3, &mut out).is_err());
    }
}
