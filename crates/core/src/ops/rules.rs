//! Rules between the arguments of an op that one rank can check alone.

use crate::buffer::BufferRange;
use crate::ops::{Counts, rows};
use crate::task::ArgError;
use crate::words::count;

/// Both are as long.
pub(super) fn same_length(send: &BufferRange, recv: &BufferRange) -> Result<(), ArgError> {
    if send.len() == recv.len() {
        return Ok(());
    }
    let message =
        format!("has {}, but `send` has {}; they must be equal", count(recv.len(), "element"), send.len());
    Err(ArgError::new("recv", message))
}

/// What rank `me` of `size` exchanges by `counts`.
pub(super) fn counted(
    counts: &[i64],
    send: &BufferRange,
    recv: &BufferRange,
    me: u32,
    size: u32,
) -> Result<(), ArgError> {
    let Some(counts) = Counts::new(counts, size) else {
        return Err(ArgError::new(
            "counts",
            format!("needs a row and a column for each of {}", count(size, "rank")),
        ));
    };
    let sent = (0..).zip(counts.sent(me)).map(|(peer, rows)| (me, peer, rows));
    let received = (0..).zip(counts.received(me)).map(|(peer, rows)| (peer, me, rows));
    if let Some((from, to, rows)) = sent.chain(received).find(|(_, _, rows)| *rows < 0) {
        let message = format!(
            "has {rows} at [{from}][{to}], and rank {from} cannot send fewer than 0 rows to rank {to}"
        );
        return Err(ArgError::new("counts", message));
    }
    let ((_, row), (_, other)) = (rows(&send.shape), rows(&recv.shape));
    if row != other {
        let message = format!("has rows of {}, but those of `send` have {row}", count(other, "element"));
        let help = "let both have the same axes after the first, which `counts` counts";
        return Err(ArgError::new("recv", message).with_help(help));
    }
    let adds_up = |param, range: &BufferRange, line: &str, all: &[i64]| {
        let (rows, sum) = (rows(&range.shape).0, all.iter().map(|&rows| i128::from(rows)).sum::<i128>());
        if i128::from(rows) == sum {
            return Ok(());
        }
        let message = format!("has {}, but {line} {me} of `counts` adds up to {sum}", count(rows, "row"));
        Err(ArgError::new(param, message).with_help(format!("let its first axis be {sum} on this rank")))
    };
    adds_up("send", send, "row", &counts.sent(me).collect::<Vec<_>>())?;
    adds_up("recv", recv, "column", &counts.received(me).collect::<Vec<_>>())
}

/// `size` ranks have equal blocks of it.
pub(super) fn divides(name: &'static str, len: u64, size: u32) -> Result<(), ArgError> {
    match len % u64::from(size) {
        0 => Ok(()),
        rest => Err(ArgError::new(
            name,
            format!(
                "has {}, which cannot be divided among {}: the remainder is {rest}",
                count(len, "element"),
                count(size, "rank")
            ),
        )
        .with_help("pad the buffer to a multiple of the ranks, or give `counts`, the rows that each rank sends to each")),
    }
}
