//! What each rank does of a collective's work, once all ranks' buffers are open to it.

use std::ops::Range;

use crate::collective::call::{Op, Signature};
use crate::collective::copy::{LINE, copy, past_cache};
use crate::collective::pieces::{Piece, Pieces};
use crate::collective::reduce::Pass;

/// Where the buffers of all ranks begin, by rank.
pub(crate) struct Buffers {
    pub(crate) send: Vec<u64>,
    pub(crate) recv: Vec<u64>,
    /// Whether results are written past the cache, which could not hold them.
    streaming: bool,
    /// What this rank does where parts are unequal.
    pieces: Option<Vec<Piece>>,
}

impl Buffers {
    /// Room for the buffers of a collective among so many ranks.
    pub(crate) fn new(signature: &Signature, pieces: Option<Pieces>, ranks: usize) -> Buffers {
        let room = || Vec::with_capacity(ranks);
        let block = signature.count.saturating_mul(signature.dtype.size());
        // Per rank, one argument is as long as all blocks, or neither is.
        let blocks = match signature.op {
            Op::AllReduce | Op::Broadcast | Op::Reduce => 2,
            _ => ranks + 1,
        };
        let all = match &pieces {
            None => block.saturating_mul(blocks as u64).saturating_mul(ranks as u64),
            Some(pieces) => pieces.total.saturating_mul(signature.dtype.size()).saturating_mul(ranks as u64),
        };
        let pieces = pieces.map(|pieces| pieces.mine);
        Buffers { send: room(), recv: room(), streaming: past_cache(all), pieces }
    }
}

/// Does the share of the rank `me`. Every element of every result is written by exactly one rank, as the same
/// function of the same inputs.
///
/// # Safety
/// All ranks must have called with `signature` and checked the lengths of their buffers against it. The buffers must
/// live, and be touched by nobody but the ranks that do their shares.
pub(crate) unsafe fn work(signature: &Signature, me: usize, buffers: &mut Buffers) {
    let Signature { op, count, dtype, reduce, root, .. } = *signature;
    let Buffers { send, recv, streaming, pieces } = buffers;
    let streaming = *streaming;
    let (ranks, root, width) = (send.len(), root as usize, dtype.size() as usize);
    let count = count as usize;
    let bytes = count * width;
    let block = |rank: usize| (rank * bytes) as u64;
    if let Some(pieces) = pieces {
        // SAFETY: the caller's; pieces are within the parts, whose lengths were checked, and those of different ranks are disjoint.
        return unsafe { work_pieces(signature, send, recv, pieces, streaming) };
    }
    // Alone, a rank's result is its input, bit for bit.
    let op = if ranks == 1 { Op::AllGather } else { op };
    // SAFETY: places and lengths are within the buffers of the op, by the lengths that were checked. What one rank
    // writes no other touches: the ranks' shares, their blocks and their buffers are disjoint.
    unsafe {
        match op {
            Op::AllReduce | Op::Reduce => {
                let share = share(count, width, ranks, me);
                advance(send, share.start * width);
                advance(recv, share.start * width);
                let targets = if op == Op::Reduce { root..root + 1 } else { 0..ranks };
                pass(send, recv, targets, share.len(), streaming).run(dtype, reduce);
            }
            Op::ReduceScatter => {
                advance(send, me * bytes);
                pass(send, recv, me..me + 1, count, streaming).run(dtype, reduce);
            }
            Op::Broadcast => {
                let share = share(count, width, ranks, me);
                let start = (share.start * width) as u64;
                recv.iter()
                    .for_each(|to| copy(to + start, send[root] + start, share.len() * width, streaming));
            }
            Op::AllGather => {
                (0..ranks).for_each(|rank| copy(recv[me] + block(rank), send[rank], bytes, streaming))
            }
            Op::AllToAll => (0..ranks)
                .for_each(|rank| copy(recv[me] + block(rank), send[rank] + block(me), bytes, streaming)),
            Op::Gather => copy(recv[root] + block(me), send[me], bytes, streaming),
            Op::Scatter => copy(recv[me], send[root] + block(me), bytes, streaming),
        }
    }
}

/// # Safety
/// As for [`work`]; `pieces` must be those of this rank.
unsafe fn work_pieces(
    signature: &Signature,
    send: &mut [u64],
    recv: &[u64],
    pieces: &[Piece],
    streaming: bool,
) {
    let (dtype, width) = (signature.dtype, signature.dtype.size());
    let mut at = 0;
    for piece in pieces {
        let to = recv[piece.to] + piece.recv * width;
        if signature.op == Op::ReduceScatter {
            // Pieces ascend in the whole.
            advance(send, ((piece.send - at) * width) as usize);
            at = piece.send;
            let stream = streaming && !send.contains(&to);
            let (targets, streamed) = if stream { (&[][..], &[to][..]) } else { (&[to][..], &[][..]) };
            // SAFETY: the caller's.
            unsafe {
                Pass { sources: send, targets, streamed, len: piece.len as usize }
                    .run(dtype, signature.reduce);
            }
        } else {
            let from = send[piece.from] + piece.send * width;
            // SAFETY: the caller's.
            unsafe { copy(to, from, (piece.len * width) as usize, streaming) };
        }
    }
}

/// The pass from all ranks' sources to some ranks' targets. A target in place is in the cache by having been read.
fn pass<'a>(
    sources: &'a [u64],
    recv: &'a mut [u64],
    targets: Range<usize>,
    len: usize,
    streaming: bool,
) -> Pass<'a> {
    let mut ordinary = targets.start;
    for rank in targets.clone() {
        if !streaming || recv[rank] == sources[rank] {
            recv.swap(ordinary, rank);
            ordinary += 1;
        }
    }
    let (targets, streamed) = recv[targets.clone()].split_at(ordinary - targets.start);
    Pass { sources, targets, streamed, len }
}

fn advance(places: &mut [u64], bytes: usize) {
    places.iter_mut().for_each(|place| *place += bytes as u64);
}

/// The elements of `count` that fall to the rank `me`: even shares in whole cache lines.
pub(crate) fn share(count: usize, width: usize, ranks: usize, me: usize) -> Range<usize> {
    let share = count.div_ceil(ranks).next_multiple_of(LINE / width);
    let edge = |rank: usize| share.saturating_mul(rank).min(count);
    edge(me)..edge(me + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_disjoint_and_complete() {
        for count in [0, 1, 15, 16, 17, 1000, 10556587] {
            for ranks in [1, 2, 3, 7, 100] {
                let mut end = 0;
                for me in 0..ranks {
                    let share = share(count, 4, ranks, me);
                    assert_eq!(share.start, end);
                    end = share.end;
                }
                assert_eq!(end, count);
            }
        }
    }
}
