//! A collective's arguments as the ranks compare and serve them, and the reading of a batch into them.

use squall_core::ops::{self, Call as Args, Counts, Parts};
use squall_core::{ArgError, BoundRange, DType, Matched, ReduceOp, count};

use crate::collective::channel::Message;
use crate::collective::pieces::Pieces;

/// A collective of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) signature: Signature,
    /// Where this rank's `send` and `recv` begin. An argument that the op does not touch on this rank counts too.
    pub(crate) send: u64,
    pub(crate) recv: u64,
}

/// What must be equal on all ranks of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) op: Op,
    /// Elements of a block: of what one rank gives to or gets from one other.
    /// Of unequal parts, which have a layout, all of them together.
    pub(crate) count: u64,
    /// A fingerprint of unequal parts; 0 for equal ones.
    pub(crate) layout: u64,
    pub(crate) dtype: DType,
    /// `Sum` for ops that reduce nothing.
    pub(crate) reduce: ReduceOp,
    /// 0 for ops without a root.
    pub(crate) root: u32,
}

/// The collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    AllReduce,
    Broadcast,
    Reduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Gather,
    Scatter,
}

/// What a member of a batch asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// With what this rank does of it where parts are unequal.
    Collective(Call, Option<Pieces>),
    /// Messages to and from ranks of the communicator.
    Messages { send: Option<(Message, usize)>, recv: Option<(Message, usize)> },
}

impl Op {
    const NAMED: [(Op, &str); 8] = [
        (Op::AllReduce, "all_reduce"),
        (Op::Broadcast, "broadcast"),
        (Op::Reduce, "reduce"),
        (Op::AllGather, "all_gather"),
        (Op::ReduceScatter, "reduce_scatter"),
        (Op::AllToAll, "all_to_all"),
        (Op::Gather, "gather"),
        (Op::Scatter, "scatter"),
    ];

    fn reduces(self) -> bool {
        matches!(self, Op::AllReduce | Op::Reduce | Op::ReduceScatter)
    }

    /// Whether its ranks divide a whole.
    fn divides(self) -> bool {
        matches!(self, Op::AllGather | Op::ReduceScatter | Op::Gather | Op::Scatter)
    }

    /// The argument that is a rank's part.
    fn part(self) -> &'static str {
        if matches!(self, Op::ReduceScatter | Op::Scatter) { "recv" } else { "send" }
    }

    fn has_root(self) -> bool {
        matches!(self, Op::Broadcast | Op::Reduce | Op::Gather | Op::Scatter)
    }
}

impl Signature {
    /// All but the count and the layout in one word.
    pub(crate) fn pack(&self) -> u64 {
        u64::from(self.op as u8)
            | u64::from(self.dtype as u8) << 8
            | u64::from(self.reduce as u8) << 16
            | u64::from(self.root) << 32
    }

    /// What a packed signature says, for messages.
    pub(crate) fn describe(packed: u64, count: u64, layout: u64) -> String {
        let byte = |shift: u32| (packed >> shift) as u8;
        let Some(&(op, name)) = Op::NAMED.iter().find(|(op, _)| *op as u8 == byte(0)) else {
            return String::new();
        };
        let mut fields = vec![("count", Matched::Number(count.into()))];
        fields
            .extend(DType::ALL.iter().find(|d| **d as u8 == byte(8)).map(|&d| ("dtype", Matched::DType(d))));
        let reduce = ReduceOp::ALL.iter().find(|r| op.reduces() && **r as u8 == byte(16));
        fields.extend(reduce.map(|r| ("reduce", Matched::Word(r.name()))));
        fields.extend(op.has_root().then_some(("root", Matched::Number((packed >> 32).into()))));
        let parts = if layout == 0 { String::new() } else { format!(", in unequal parts {layout:016x}") };
        format!("{}{parts}", squall_core::Signature { op: name, fields, share: None })
    }
}

impl Request {
    /// Reads the call that the member `place` of `size` ranks makes; `parts` are unequal ones. Checks all that the safety of the memory
    /// hangs on, though verification has done so.
    pub(crate) fn read(
        args: &Args<'_, BoundRange>,
        parts: Option<&Parts>,
        place: usize,
        size: usize,
    ) -> Result<Request, ArgError> {
        let is = |root: u32| root as usize == place;
        let collective = |op, block: &BoundRange, send: &BoundRange, recv: &BoundRange| {
            let signature = Signature {
                op,
                count: block.len(),
                layout: 0,
                dtype: block.dtype,
                reduce: ReduceOp::Sum,
                root: 0,
            };
            Call { signature, send: send.ptr.0, recv: recv.ptr.0 }
        };
        let reducing =
            |call: Call, reduce| Call { signature: Signature { reduce, ..call.signature }, ..call };
        let rooted = |call: Call, root| {
            member("root", root, size)?;
            Ok(Call { signature: Signature { root, ..call.signature }, ..call })
        };
        // Alone, a rank's part is the whole.
        let parts = parts.filter(|_| size > 1);
        let fits_whole = |param, whole: &BoundRange, part: &BoundRange| match parts {
            None => fits(param, whole, part, size),
            Some(parts) => fits_parts(param, whole, part, parts),
        };
        let call = match *args {
            Args::AllReduce { send, recv, reduce } => {
                fits("recv", recv, send, 1)?;
                reducing(collective(Op::AllReduce, send, send, recv), reduce)
            }
            Args::Broadcast { send, recv, root } => {
                fits("recv", recv, send, 1)?;
                rooted(collective(Op::Broadcast, send, send, recv), root)?
            }
            Args::Reduce { send, recv, reduce, root } => {
                fits("recv", recv, send, 1)?;
                rooted(reducing(collective(Op::Reduce, send, send, recv), reduce), root)?
            }
            Args::AllGather { send, recv } => {
                fits_whole("recv", recv, send)?;
                collective(Op::AllGather, send, send, recv)
            }
            Args::ReduceScatter { send, recv, reduce } => {
                fits_whole("send", send, recv)?;
                reducing(collective(Op::ReduceScatter, recv, send, recv), reduce)
            }
            Args::AllToAll { send, recv, counts: Some(counts) } => {
                let row = ops::rows(&send.shape).1;
                let width = send.dtype.size() as usize;
                let pieces = Pieces::of_counts(counts, size, row, width, place);
                let pieces =
                    pieces.ok_or_else(|| ArgError::new("counts", "does not fit the communicator"))?;
                let counts = Counts::new(counts, size as u32);
                let mine = |parts: Option<Parts>| parts.map(|parts| parts.total());
                for (param, range, len) in [
                    ("send", send, mine(counts.and_then(|counts| counts.send_parts(place as u32, row)))),
                    ("recv", recv, mine(counts.and_then(|counts| counts.recv_parts(place as u32, row)))),
                ] {
                    if range.dtype != send.dtype || Some(range.len()) != len {
                        return Err(ArgError::new(param, "does not hold what `counts` tells"));
                    }
                }
                return Ok(Request::divided(collective(Op::AllToAll, send, send, recv), pieces));
            }
            Args::AllToAll { send, recv, counts: None } => {
                fits("recv", recv, send, 1)?;
                let block = send.len() / size as u64;
                if block * size as u64 != send.len() {
                    let message = format!(
                        "has {}, which cannot be divided among {}",
                        count(send.len(), "element"),
                        count(size as u64, "rank")
                    );
                    return Err(ArgError::new("send", message));
                }
                let mut call = collective(Op::AllToAll, send, send, recv);
                call.signature.count = block;
                call
            }
            Args::Gather { send, recv, root } => {
                if is(root) {
                    fits_whole("recv", recv, send)?;
                }
                rooted(collective(Op::Gather, send, send, recv), root)?
            }
            Args::Scatter { send, recv, root } => {
                if is(root) {
                    fits_whole("send", send, recv)?;
                }
                rooted(collective(Op::Scatter, recv, send, recv), root)?
            }
            Args::Send { buffer, peer } => {
                return Ok(Request::Messages {
                    send: Some((message(buffer), member("peer", peer, size)?)),
                    recv: None,
                });
            }
            Args::Recv { buffer, peer } => {
                return Ok(Request::Messages {
                    send: None,
                    recv: Some((message(buffer), member("peer", peer, size)?)),
                });
            }
            Args::SendRecv { send, to, recv, from } => {
                return Ok(Request::Messages {
                    send: Some((message(send), member("to", to, size)?)),
                    recv: Some((message(recv), member("from", from, size)?)),
                });
            }
        };
        let Signature { op, count, dtype, root, .. } = call.signature;
        let Some(parts) = parts.filter(|_| op.divides()) else { return Ok(Request::Collective(call, None)) };
        let mine = u32::try_from(place).map_or(0..0, |place| parts.of(place));
        if parts.ranks() != size || mine.end - mine.start != count {
            return Err(ArgError::new(op.part(), "is not as long as this rank's part"));
        }
        let width = dtype.size() as usize;
        Ok(Request::divided(call, Pieces::of_parts(op, parts, root as usize, width, place)))
    }

    /// A collective of unequal parts.
    fn divided(call: Call, pieces: Pieces) -> Request {
        let signature = Signature { count: pieces.total, layout: pieces.layout, ..call.signature };
        Request::Collective(Call { signature, ..call }, Some(pieces))
    }
}

fn message(range: &BoundRange) -> Message {
    Message { ptr: range.ptr.0, count: range.len(), dtype: range.dtype }
}

fn member(param: &'static str, rank: u32, size: usize) -> Result<usize, ArgError> {
    if (rank as usize) < size {
        return Ok(rank as usize);
    }
    Err(ArgError::new(param, format!("is {rank}, but the communicator has the ranks 0 to {}", size - 1)))
}

/// `whole` holds `blocks` times what `block` does.
fn fits(param: &'static str, whole: &BoundRange, block: &BoundRange, blocks: usize) -> Result<(), ArgError> {
    if whole.dtype == block.dtype && Some(whole.len()) == block.len().checked_mul(blocks as u64) {
        return Ok(());
    }
    let message = format!(
        "holds {} of {}, but must hold {blocks} times {} of {}",
        count(whole.len(), "element"),
        whole.dtype,
        count(block.len(), "element"),
        block.dtype
    );
    Err(ArgError::new(param, message))
}

/// `whole` holds all parts, of the dtype of `part`.
fn fits_parts(
    param: &'static str,
    whole: &BoundRange,
    part: &BoundRange,
    parts: &Parts,
) -> Result<(), ArgError> {
    if whole.dtype == part.dtype && whole.len() == parts.total() {
        return Ok(());
    }
    let message = format!(
        "holds {} of {}, but must hold {} of {}",
        count(whole.len(), "element"),
        whole.dtype,
        parts.total(),
        part.dtype
    );
    Err(ArgError::new(param, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::DevicePtr;

    fn range(len: u64, dtype: DType) -> BoundRange {
        BoundRange { ptr: DevicePtr(256), dtype, shape: [len].into() }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (four, eight, bytes) = (&range(4, DType::F32), &range(8, DType::F32), &range(8, DType::U8));
        let refused = |args: &Args<'_, BoundRange>| Request::read(args, None, 0, 2).unwrap_err();
        for args in [
            Args::AllReduce { send: four, recv: eight, reduce: ReduceOp::Sum },
            Args::Broadcast { send: eight, recv: four, root: 0 },
            Args::Reduce { send: eight, recv: bytes, reduce: ReduceOp::Sum, root: 0 },
            Args::AllGather { send: eight, recv: four },
            Args::ReduceScatter { send: four, recv: four, reduce: ReduceOp::Sum },
            Args::Gather { send: four, recv: four, root: 0 },
            Args::Scatter { send: four, recv: four, root: 0 },
        ] {
            assert!(refused(&args).message.contains("but must hold"), "{args:?}");
        }
        let odd = &range(3, DType::F32);
        assert!(
            refused(&Args::AllToAll { send: odd, recv: odd, counts: None })
                .message
                .contains("cannot be divided")
        );
        for args in [
            Args::Broadcast { send: four, recv: four, root: 2 },
            Args::Send { buffer: four, peer: 2 },
            Args::Recv { buffer: four, peer: u32::MAX },
            Args::SendRecv { send: four, to: 0, recv: four, from: 5 },
        ] {
            assert!(refused(&args).message.contains("the ranks 0 to 1"), "{args:?}");
        }
    }

    #[test]
    fn off_root_only_the_block_counts() {
        let (four, none) = (&range(4, DType::F32), &range(0, DType::U8));
        assert!(Request::read(&Args::Gather { send: four, recv: none, root: 1 }, None, 0, 2).is_ok());
        assert!(Request::read(&Args::Scatter { send: none, recv: four, root: 1 }, None, 0, 2).is_ok());
    }

    #[test]
    fn a_packed_signature_says_what_it_was() {
        let mut signature = Signature {
            op: Op::Reduce,
            count: 7,
            layout: 0,
            dtype: DType::U64,
            reduce: ReduceOp::Avg,
            root: 300,
        };
        assert_eq!(
            Signature::describe(signature.pack(), 7, 0),
            "reduce count = 7, dtype = u64, reduce = avg, root = 300"
        );
        signature.op = Op::AllToAll;
        assert_eq!(Signature::describe(signature.pack(), 0, 0), "all_to_all count = 0, dtype = u64");
    }
}
