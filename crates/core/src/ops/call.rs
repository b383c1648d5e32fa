//! The arguments of squall's own ops, read into types.

use std::sync::Arc;

use crate::args::{Arg, Args};
use crate::reduce::ReduceOp;
use crate::task::ArgError;

/// A call of one of squall's own ops. `B` is a range in a task graph, or one bound to memory.
///
/// Where an op takes `buffer` for its in-place form, `send` and `recv` are that same range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call<'a, B> {
    /// `recv = reduce(send of all ranks)`, on every rank.
    AllReduce {
        /// This rank's contribution.
        send: &'a B,
        /// The result, as long as `send`.
        recv: &'a B,
        /// How contributions combine.
        reduce: ReduceOp,
    },
    /// `recv = send of root`.
    Broadcast {
        /// Read on root alone.
        send: &'a B,
        /// Written on every rank.
        recv: &'a B,
        /// The rank that gives.
        root: u32,
    },
    /// `recv = reduce(send of all ranks)`, on root.
    Reduce {
        /// This rank's contribution.
        send: &'a B,
        /// Written on root alone.
        recv: &'a B,
        /// How contributions combine.
        reduce: ReduceOp,
        /// The rank that receives.
        root: u32,
    },
    /// `recv = send of rank 0, send of rank 1, …`, on every rank. The ranks' `send` may differ in length.
    AllGather {
        /// This rank's block.
        send: &'a B,
        /// All blocks.
        recv: &'a B,
    },
    /// `recv = block of this rank in reduce(send of all ranks)`. The ranks' `recv`, which are the blocks, may differ in length.
    ReduceScatter {
        /// One block for every rank, in rank order.
        send: &'a B,
        /// This rank's block.
        recv: &'a B,
        /// How contributions combine.
        reduce: ReduceOp,
    },
    /// Gives `buffer` to `peer`.
    Send {
        /// What is sent.
        buffer: &'a B,
        /// The rank that receives.
        peer: u32,
    },
    /// Takes `buffer` from `peer`.
    Recv {
        /// Where it lands.
        buffer: &'a B,
        /// The rank that sends.
        peer: u32,
    },
    /// A group of a send and a receive.
    SendRecv {
        /// What is sent.
        send: &'a B,
        /// The rank that receives it.
        to: u32,
        /// Where the other's lands.
        recv: &'a B,
        /// The rank that sends it.
        from: u32,
    },
    /// `block p of recv = block of this rank in send of rank p`.
    AllToAll {
        /// One block for every rank.
        send: &'a B,
        /// One block from every rank.
        recv: &'a B,
        /// How long the blocks are, where they are not all equal: of every rank the rows that it sends to every rank, row after row.
        /// See [`Counts`](crate::ops::Counts).
        counts: Option<&'a Arc<[i64]>>,
    },
    /// `recv = send of rank 0, send of rank 1, …`, on root. The ranks' `send` may differ in length.
    Gather {
        /// This rank's block.
        send: &'a B,
        /// All blocks; touched on root alone.
        recv: &'a B,
        /// The rank that receives.
        root: u32,
    },
    /// `recv = block of this rank in send of root`. The ranks' `recv`, which are the blocks, may differ in length.
    Scatter {
        /// One block for every rank; touched on root alone.
        send: &'a B,
        /// This rank's block.
        recv: &'a B,
        /// The rank that gives.
        root: u32,
    },
}

impl<'a, B> Call<'a, B> {
    /// Reads the arguments of the op called `op`. Errs on an op that is not squall's, on `buffer` given
    /// together with `send` or `recv`, and on a missing argument.
    pub fn read(op: &str, args: &Args<'a, B>) -> Result<Call<'a, B>, ArgError> {
        Ok(match op {
            "all_reduce" => {
                let (send, recv) = send_and_recv(args)?;
                Call::AllReduce { send, recv, reduce: reduce(args)? }
            }
            "broadcast" => {
                let (send, recv) = send_and_recv(args)?;
                Call::Broadcast { send, recv, root: rank(args, "root")? }
            }
            "reduce" => {
                let (send, recv) = send_and_recv(args)?;
                Call::Reduce { send, recv, reduce: reduce(args)?, root: rank(args, "root")? }
            }
            "all_gather" => Call::AllGather { send: buffer(args, "send")?, recv: buffer(args, "recv")? },
            "reduce_scatter" => Call::ReduceScatter {
                send: buffer(args, "send")?,
                recv: buffer(args, "recv")?,
                reduce: reduce(args)?,
            },
            "send" => Call::Send { buffer: buffer(args, "buffer")?, peer: rank(args, "peer")? },
            "recv" => Call::Recv { buffer: buffer(args, "buffer")?, peer: rank(args, "peer")? },
            "send_recv" => Call::SendRecv {
                send: buffer(args, "send")?,
                to: rank(args, "to")?,
                recv: buffer(args, "recv")?,
                from: rank(args, "from")?,
            },
            "all_to_all" => Call::AllToAll {
                send: buffer(args, "send")?,
                recv: buffer(args, "recv")?,
                counts: match args.get("counts") {
                    Arg::List(counts) => Some(counts),
                    _ => None,
                },
            },
            "gather" => Call::Gather {
                send: buffer(args, "send")?,
                recv: buffer(args, "recv")?,
                root: rank(args, "root")?,
            },
            "scatter" => Call::Scatter {
                send: buffer(args, "send")?,
                recv: buffer(args, "recv")?,
                root: rank(args, "root")?,
            },
            _ => return Err(ArgError::new("op", format!("`{op}` is not one of squall's own ops"))),
        })
    }
}

fn missing(param: &'static str) -> ArgError {
    ArgError::new(param, "is missing")
}

fn buffer<'a, B>(args: &Args<'a, B>, name: &'static str) -> Result<&'a B, ArgError> {
    args.buffer(name).ok_or_else(|| missing(name))
}

fn rank<B>(args: &Args<'_, B>, name: &'static str) -> Result<u32, ArgError> {
    args.rank(name).ok_or_else(|| missing(name))
}

fn reduce<B>(args: &Args<'_, B>) -> Result<ReduceOp, ArgError> {
    args.word("reduce").and_then(|i| ReduceOp::ALL.get(i).copied()).ok_or_else(|| missing("reduce"))
}

fn send_and_recv<'a, B>(args: &Args<'a, B>) -> Result<(&'a B, &'a B), ArgError> {
    match (args.buffer("buffer"), args.buffer("send"), args.buffer("recv")) {
        (Some(buffer), None, None) => Ok((buffer, buffer)),
        (None, Some(send), Some(recv)) => Ok((send, recv)),
        (None, Some(_), None) => {
            Err(missing("recv").with_help("give both `send` and `recv`, or `buffer` alone to work in place"))
        }
        (None, None, Some(_)) => {
            Err(missing("send").with_help("give both `send` and `recv`, or `buffer` alone to work in place"))
        }
        (None, None, None) => Err(ArgError::new("buffer", "is missing, and so are `send` and `recv`")
            .with_help("give `buffer` to work in place, or `send` and `recv`")),
        (Some(_), ..) => Err(ArgError::new("buffer", "excludes `send` and `recv`")
            .with_help("give `buffer` alone to work in place, or `send` and `recv`")),
    }
}
