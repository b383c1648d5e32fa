//! What each rank does of a collective's work, once all ranks' buffers are open to it.

use std::ops::Range;

use crate::collective::call::{Op, Signature};
use crate::collective::copy::copy;
use crate::collective::reduce::Pass;

/// Where the buffers of all ranks begin, by rank.
pub(crate) struct Buffers {
    pub(crate) send: Vec<u64>,
    pub(crate) recv: Vec<u64>,
}

/// Does the share of the rank `me`. Every element of every result is written by exactly one rank, as the same
/// function of the same inputs.
///
/// # Safety
/// All ranks must have called with `signature` and checked the lengths of their buffers against it. The buffers must
/// live, and be touched by nobody but the ranks that do their shares.
pub(crate) unsafe fn work(signature: &Signature, me: usize, buffers: &mut Buffers) {
    let Signature { op, count, dtype, reduce, root } = *signature;
    let Buffers { send, recv } = buffers;
    let (ranks, root, width) = (send.len(), root as usize, dtype.size() as usize);
    let count = count as usize;
    let bytes = count * width;
    let block = |rank: usize| (rank * bytes) as u64;
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
                let targets = if op == Op::Reduce { &recv[root..=root] } else { &recv[..] };
                Pass { sources: send, targets, len: share.len() }.run(dtype, reduce);
            }
            Op::ReduceScatter => {
                advance(send, me * bytes);
                Pass { sources: send, targets: &recv[me..=me], len: count }.run(dtype, reduce);
            }
            Op::Broadcast => {
                let share = share(count, width, ranks, me);
                let start = (share.start * width) as u64;
                recv.iter().for_each(|to| copy(to + start, send[root] + start, share.len() * width));
            }
            Op::AllGather => (0..ranks).for_each(|rank| copy(recv[me] + block(rank), send[rank], bytes)),
            Op::AllToAll => {
                (0..ranks).for_each(|rank| copy(recv[me] + block(rank), send[rank] + block(me), bytes))
            }
            Op::Gather => copy(recv[root] + block(me), send[me], bytes),
            Op::Scatter => copy(recv[me], send[root] + block(me), bytes),
        }
    }
}

fn advance(places: &mut [u64], bytes: usize) {
    places.iter_mut().for_each(|place| *place += bytes as u64);
}

/// The elements of `count` that fall to the rank `me`: even shares in whole cache lines.
fn share(count: usize, width: usize, ranks: usize, me: usize) -> Range<usize> {
    let share = count.div_ceil(ranks).next_multiple_of(64 / width);
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
