//! Calls of NCCL laid out as plain values, and the reading of squall's ops into them.

use std::ffi::{c_int, c_void};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use squall_core::ops::{Call, Parts};
use squall_core::{ArgError, BoundRange, DType, ReduceOp};

use crate::api::{Functions, RawComm, RawStream};

mod unequal;

/// One call of NCCL, but for its communicator and stream. Addresses are the device's; peers and roots are ranks of the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    AllReduce {
        send: u64,
        recv: u64,
        count: usize,
        dtype: c_int,
        reduce: c_int,
    },
    Broadcast {
        send: u64,
        recv: u64,
        count: usize,
        dtype: c_int,
        root: c_int,
    },
    Reduce {
        send: u64,
        recv: u64,
        count: usize,
        dtype: c_int,
        reduce: c_int,
        root: c_int,
    },
    /// `count` elements are sent.
    AllGather {
        send: u64,
        recv: u64,
        count: usize,
        dtype: c_int,
    },
    /// `count` elements are received.
    ReduceScatter {
        send: u64,
        recv: u64,
        count: usize,
        dtype: c_int,
        reduce: c_int,
    },
    Send {
        send: u64,
        count: usize,
        dtype: c_int,
        peer: c_int,
    },
    Recv {
        recv: u64,
        count: usize,
        dtype: c_int,
        peer: c_int,
    },
}

impl Record {
    /// The function that it calls.
    pub(crate) fn function(&self) -> &'static str {
        match self {
            Record::AllReduce { .. } => "ncclAllReduce",
            Record::Broadcast { .. } => "ncclBroadcast",
            Record::Reduce { .. } => "ncclReduce",
            Record::AllGather { .. } => "ncclAllGather",
            Record::ReduceScatter { .. } => "ncclReduceScatter",
            Record::Send { .. } => "ncclSend",
            Record::Recv { .. } => "ncclRecv",
        }
    }

    /// Makes the call.
    ///
    /// # Safety
    /// The addresses must be memory of the communicator's device that holds what the call reads and writes, untouched by others until
    /// the stream has passed it. The communicator must not have been freed; the stream must be its device's.
    pub(crate) unsafe fn issue(&self, functions: &Functions, comm: RawComm, stream: RawStream) -> c_int {
        let from = |address: u64| with_exposed_provenance::<c_void>(address as usize);
        let to = |address: u64| with_exposed_provenance_mut::<c_void>(address as usize);
        let f = functions;
        // SAFETY: the caller's.
        unsafe {
            match *self {
                Record::AllReduce { send, recv, count, dtype, reduce } => {
                    (f.all_reduce)(from(send), to(recv), count, dtype, reduce, comm, stream)
                }
                Record::Broadcast { send, recv, count, dtype, root } => {
                    (f.broadcast)(from(send), to(recv), count, dtype, root, comm, stream)
                }
                Record::Reduce { send, recv, count, dtype, reduce, root } => {
                    (f.reduce)(from(send), to(recv), count, dtype, reduce, root, comm, stream)
                }
                Record::AllGather { send, recv, count, dtype } => {
                    (f.all_gather)(from(send), to(recv), count, dtype, comm, stream)
                }
                Record::ReduceScatter { send, recv, count, dtype, reduce } => {
                    (f.reduce_scatter)(from(send), to(recv), count, dtype, reduce, comm, stream)
                }
                Record::Send { send, count, dtype, peer } => {
                    (f.send)(from(send), count, dtype, peer, comm, stream)
                }
                Record::Recv { recv, count, dtype, peer } => {
                    (f.recv)(to(recv), count, dtype, peer, comm, stream)
                }
            }
        }
    }
}

/// Appends the calls that an op is made of, as the rank `me` of `size` makes them; `parts` are unequal ones. Empty ranges make none.
/// What does not fit the communicator or its other arguments is refused.
pub(crate) fn read(
    call: &Call<'_, BoundRange>,
    parts: Option<&Parts>,
    me: u32,
    size: u32,
    out: &mut Vec<Record>,
) -> Result<(), ArgError> {
    // Alone, a rank's part is the whole.
    if let Some(parts) = parts.filter(|_| size > 1) {
        return unequal::read(call, parts, me, size, out);
    }
    match *call {
        Call::AllReduce { send, recv, reduce } => {
            fits("recv", recv, send, 1)?;
            let (count, dtype, reduce) = (count(send)?, dtype(send), reduction(reduce));
            let (send, recv) = (send.ptr.0, recv.ptr.0);
            let all_reduce = Record::AllReduce { send, recv, count, dtype, reduce };
            push(out, count, if size == 1 { alone(send, recv, count, dtype) } else { all_reduce });
        }
        Call::Broadcast { send, recv, root } => {
            fits("recv", recv, send, 1)?;
            let (count, dtype, root) = (count(send)?, dtype(send), member("root", root, size)?);
            push(out, count, Record::Broadcast { send: send.ptr.0, recv: recv.ptr.0, count, dtype, root });
        }
        Call::Reduce { send, recv, reduce, root } => {
            fits("recv", recv, send, 1)?;
            let (count, dtype, root) = (count(send)?, dtype(send), member("root", root, size)?);
            let (send, recv, reduce) = (send.ptr.0, recv.ptr.0, reduction(reduce));
            let to_root = Record::Reduce { send, recv, count, dtype, reduce, root };
            push(out, count, if size == 1 { alone(send, recv, count, dtype) } else { to_root });
        }
        Call::AllGather { send, recv } => {
            fits("recv", recv, send, size)?;
            let (count, dtype) = (count(send)?, dtype(send));
            push(out, count, Record::AllGather { send: send.ptr.0, recv: recv.ptr.0, count, dtype });
        }
        Call::ReduceScatter { send, recv, reduce } => {
            fits("send", send, recv, size)?;
            let (count, dtype, reduce) = (count(recv)?, dtype(recv), reduction(reduce));
            let (send, recv) = (send.ptr.0, recv.ptr.0);
            let scatter = Record::ReduceScatter { send, recv, count, dtype, reduce };
            push(out, count, if size == 1 { alone(send, recv, count, dtype) } else { scatter });
        }
        Call::Send { buffer, peer } => give(out, buffer, buffer.ptr.0, "peer", peer, size)?,
        Call::Recv { buffer, peer } => take(out, buffer, buffer.ptr.0, "peer", peer, size)?,
        Call::SendRecv { send, to, recv, from } => {
            give(out, send, send.ptr.0, "to", to, size)?;
            take(out, recv, recv.ptr.0, "from", from, size)?;
        }
        Call::AllToAll { send, recv, counts: Some(counts) } => {
            unequal::exchange(counts, send, recv, me, size, out)?;
        }
        Call::AllToAll { send, recv, counts: None } => {
            fits("recv", recv, send, 1)?;
            let block = block("send", send, size)?;
            for peer in 0..size {
                give(out, &block, address(send, peer, &block), "send", peer, size)?;
                take(out, &block, address(recv, peer, &block), "recv", peer, size)?;
            }
        }
        Call::Gather { send, recv, root } => {
            // In place, root's block is where it belongs.
            let placed = me == root && send.ptr.0 == address(recv, me, send);
            if !placed {
                give(out, send, send.ptr.0, "root", root, size)?;
            }
            if me == root {
                fits("recv", recv, send, size)?;
                for peer in (0..size).filter(|&peer| !(placed && peer == me)) {
                    take(out, send, address(recv, peer, send), "recv", peer, size)?;
                }
            }
        }
        Call::Scatter { send, recv, root } => {
            let placed = me == root && recv.ptr.0 == address(send, me, recv);
            if me == root {
                fits("send", send, recv, size)?;
                for peer in (0..size).filter(|&peer| !(placed && peer == me)) {
                    give(out, recv, address(send, peer, recv), "send", peer, size)?;
                }
            }
            if !placed {
                take(out, recv, recv.ptr.0, "root", root, size)?;
            }
        }
    }
    Ok(())
}

/// A reduction of one rank, which is a copy. NCCL's own kernel for it loses the last elements of an average whose buffers begin off
/// a sixteen-byte boundary (seen with 2.28.9); a broadcast of one rank is a plain copy.
fn alone(send: u64, recv: u64, count: usize, dtype: c_int) -> Record {
    Record::Broadcast { send, recv, count, dtype, root: 0 }
}

fn push(out: &mut Vec<Record>, count: usize, record: Record) {
    if count > 0 {
        out.push(record);
    }
}

/// Sends as many elements as `like` has.
fn give(
    out: &mut Vec<Record>,
    like: &BoundRange,
    send: u64,
    param: &'static str,
    peer: u32,
    size: u32,
) -> Result<(), ArgError> {
    let (count, dtype, peer) = (count(like)?, dtype(like), member(param, peer, size)?);
    push(out, count, Record::Send { send, count, dtype, peer });
    Ok(())
}

/// Receives as many elements as `like` has.
fn take(
    out: &mut Vec<Record>,
    like: &BoundRange,
    recv: u64,
    param: &'static str,
    peer: u32,
    size: u32,
) -> Result<(), ArgError> {
    let (count, dtype, peer) = (count(like)?, dtype(like), member(param, peer, size)?);
    push(out, count, Record::Recv { recv, count, dtype, peer });
    Ok(())
}

/// Where block `index` of `whole` begins, blocks being as long as `block`. Only used as an address when it lies within.
fn address(whole: &BoundRange, index: u32, block: &BoundRange) -> u64 {
    whole.ptr.0.wrapping_add(block.bytes().wrapping_mul(index.into()))
}

/// The first of `size` equal blocks.
fn block(param: &'static str, whole: &BoundRange, size: u32) -> Result<BoundRange, ArgError> {
    match whole.len() % u64::from(size) {
        0 => Ok(BoundRange { shape: [whole.len() / u64::from(size)].into(), ..whole.clone() }),
        rest => Err(ArgError::new(
            param,
            format!(
                "has {}, which cannot be divided among {}: the remainder is {rest}",
                squall_core::count(whole.len(), "element"),
                squall_core::count(size, "rank")
            ),
        )),
    }
}

/// `whole` holds `blocks` times what `block` does.
fn fits(param: &'static str, whole: &BoundRange, block: &BoundRange, blocks: u32) -> Result<(), ArgError> {
    if whole.dtype == block.dtype && Some(whole.len()) == block.len().checked_mul(blocks.into()) {
        return Ok(());
    }
    let elements = |range: &BoundRange| squall_core::count(range.len(), "element");
    let must = format!("but must hold {blocks} times {} of {}", elements(block), block.dtype);
    Err(ArgError::new(param, format!("holds {} of {}, {must}", elements(whole), whole.dtype)))
}

/// A rank of a communicator of so many.
fn member(param: &'static str, rank: u32, size: u32) -> Result<c_int, ArgError> {
    let out = || {
        ArgError::new(
            param,
            format!("is {rank}, but the communicator has {}, from 0 on", squall_core::count(size, "rank")),
        )
    };
    if rank < size { c_int::try_from(rank).map_err(|_| out()) } else { Err(out()) }
}

fn count(range: &BoundRange) -> Result<usize, ArgError> {
    usize::try_from(range.len()).map_err(|_| {
        ArgError::new("count", format!("{} elements are more than an address can tell", range.len()))
    })
}

/// `ncclDataType_t`.
fn dtype(range: &BoundRange) -> c_int {
    match range.dtype {
        DType::I8 => 0,
        DType::U8 => 1,
        DType::I32 => 2,
        DType::U32 => 3,
        DType::I64 => 4,
        DType::U64 => 5,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::Bf16 => 9,
    }
}

/// `ncclRedOp_t`.
fn reduction(reduce: ReduceOp) -> c_int {
    match reduce {
        ReduceOp::Sum => 0,
        ReduceOp::Prod => 1,
        ReduceOp::Max => 2,
        ReduceOp::Min => 3,
        ReduceOp::Avg => 4,
    }
}

#[cfg(test)]
mod tests;
