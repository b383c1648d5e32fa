//! The reading of squall's ops into calls of MPI and passes over this rank's own memory.

use std::ffi::c_int;

use squall_core::ops::{Call, Counts, rows};
use squall_core::{ArgError, BoundRange, DType, Parts, ReduceOp, count};

use super::{Form, Places, Record, Reduction, Wire};
use crate::local::Local;

/// The tag of `send` and `recv`.
const MESSAGE: c_int = 0;
/// The tag of the messages that collectives are made of.
const PART: c_int = 1;
/// What places in scratch memory are multiples of, in bytes: a cache line.
const LINE: u64 = 64;

/// Where an op stands: this rank of the communicator, how many there are, and the most that one call counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) me: u32,
    pub(crate) size: u32,
    pub(crate) largest: u64,
}

/// What ops become: passes over this rank's memory, calls, and passes again. Scratch memory begins at an address that is given; what is
/// laid out with a wrong one tells how much is needed.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    base: u64,
    used: u64,
    pub(crate) before: Vec<Local>,
    pub(crate) records: Vec<Record>,
    pub(crate) after: Vec<Local>,
}

/// Where a reduction's elements come from and go to, and how many.
struct Reduce {
    dtype: DType,
    how: Reduction,
    ranks: u32,
}

impl Layout {
    /// With scratch memory that begins there.
    pub(crate) fn new(base: u64) -> Layout {
        Layout { base, ..Layout::default() }
    }

    /// Bytes of scratch memory.
    pub(crate) fn scratch(&self) -> u64 {
        self.used
    }

    /// Appends an op; `parts` are unequal ones. Empty ranges make no calls. What does not fit the communicator or its other arguments is
    /// refused. Ranks that call alike make matching calls.
    pub(crate) fn add(
        &mut self,
        call: &Call<'_, BoundRange>,
        parts: Option<&Parts>,
        seat: Seat,
    ) -> Result<(), ArgError> {
        // Alone, a rank's part is the whole.
        let parts = parts.filter(|_| seat.size > 1);
        match *call {
            Call::AllReduce { send, recv, reduce } => {
                fits("recv", recv, send, 1)?;
                self.all_reduce(send, recv, reduce, seat);
            }
            Call::Broadcast { send, recv, root } => {
                fits("recv", recv, send, 1)?;
                let to = member("root", root, seat.size)?;
                if seat.me == root {
                    self.copy(send.ptr.0, recv.ptr.0, send.bytes());
                }
                let at = if seat.me == root { send } else { recv };
                if seat.size > 1 {
                    self.pieces(at.len(), seat.largest, |layout, done, count| {
                        let at = at.ptr.0 + done * at.dtype.size();
                        layout.moved(send.dtype, Form::Broadcast { at, count, root: to });
                    });
                }
            }
            Call::Reduce { send, recv, reduce, root } => {
                fits("recv", recv, send, 1)?;
                let to = member("root", root, seat.size)?;
                self.reduce(send, recv, reduce, (root, to), seat);
            }
            Call::AllGather { send, recv } => {
                self.all_gather(send, recv, parts, seat)?;
            }
            Call::ReduceScatter { send, recv, reduce } => {
                self.reduce_scatter(send, recv, reduce, parts, seat)?;
            }
            Call::Send { buffer, peer } => self.send(buffer, "peer", peer, seat)?,
            Call::Recv { buffer, peer } => self.recv(buffer, "peer", peer, seat)?,
            Call::SendRecv { send, to, recv, from } => {
                self.send(send, "to", to, seat)?;
                self.recv(recv, "from", from, seat)?;
            }
            Call::AllToAll { send, recv, counts: Some(counts) } => {
                self.exchange(counts, send, recv, seat)?;
            }
            Call::AllToAll { send, recv, counts: None } => {
                fits("recv", recv, send, 1)?;
                let block = block("send", send, seat.size)?;
                if seat.size == 1 {
                    self.copy(send.ptr.0, recv.ptr.0, send.bytes());
                } else if block > 0 {
                    let (send, recv, dtype) = (send.ptr.0, recv.ptr.0, send.dtype);
                    self.blocks(dtype, block, seat, |count| Form::AllToAll { send, recv, count });
                }
            }
            Call::Gather { send, recv, root } => self.gather(send, recv, root, parts, seat)?,
            Call::Scatter { send, recv, root } => self.scatter(send, recv, root, parts, seat)?,
        }
        Ok(())
    }

    fn all_reduce(&mut self, send: &BoundRange, recv: &BoundRange, reduce: ReduceOp, seat: Seat) {
        if seat.size == 1 {
            return self.copy(send.ptr.0, recv.ptr.0, send.bytes());
        }
        let how = Reduce::new(send.dtype, reduce, seat.size);
        let from = self.given(&how, send.ptr.0, send.len(), send.ptr == recv.ptr);
        let to = self.wanted(&how, recv.ptr.0, send.len(), false);
        self.pieces(send.len(), seat.largest, |layout, done, count| {
            let operator = how.how.operator;
            layout.reducing(
                &how,
                Form::AllReduce { send: how.at(from, done), recv: how.at(to, done), count, operator },
            );
        });
        self.got(&how, to, recv.ptr.0, send.len());
    }

    /// `root` as it is and as MPI counts it.
    fn reduce(
        &mut self,
        send: &BoundRange,
        recv: &BoundRange,
        reduce: ReduceOp,
        (root, number): (u32, c_int),
        seat: Seat,
    ) {
        if seat.size == 1 {
            return self.copy(send.ptr.0, recv.ptr.0, send.bytes());
        }
        let how = Reduce::new(send.dtype, reduce, seat.size);
        let mine = seat.me == root;
        let from = self.given(&how, send.ptr.0, send.len(), mine && send.ptr == recv.ptr);
        let to = if mine { self.wanted(&how, recv.ptr.0, send.len(), false) } else { 0 };
        self.reduce_to(&how, from, to, send.len(), number, seat);
        if mine {
            self.got(&how, to, recv.ptr.0, send.len());
        }
    }

    fn reduce_to(&mut self, how: &Reduce, from: u64, to: u64, len: u64, root: c_int, seat: Seat) {
        self.pieces(len, seat.largest, |layout, done, count| {
            let recv = if to == 0 { 0 } else { how.at(to, done) };
            let operator = how.how.operator;
            layout.reducing(how, Form::Reduce { send: how.at(from, done), recv, count, operator, root });
        });
    }

    fn reduce_scatter(
        &mut self,
        send: &BoundRange,
        recv: &BoundRange,
        reduce: ReduceOp,
        parts: Option<&Parts>,
        seat: Seat,
    ) -> Result<(), ArgError> {
        let mine = divided(("send", send), ("recv", recv), parts, seat)?;
        if seat.size == 1 {
            self.copy(send.ptr.0, recv.ptr.0, send.bytes());
            return Ok(());
        }
        let how = Reduce::new(send.dtype, reduce, seat.size);
        let (operator, len) = (how.how.operator, recv.len());
        let from = self.given(&how, send.ptr.0, send.len(), false);
        // Where the result is a part of what is given, MPI writes it elsewhere.
        let placed = recv.ptr.0 == place(send, mine);
        let to = self.wanted(&how, recv.ptr.0, len, placed);
        if send.len() > seat.largest {
            for root in 0..seat.size {
                let (begin, len) = of(parts, root, len);
                let to = if root == seat.me { to } else { 0 };
                self.reduce_to(&how, how.at(from, begin), to, len, member("recv", root, seat.size)?, seat);
            }
        } else if let Some(parts) = parts {
            let counts = Places::new(parts).counts;
            self.reducing(&how, Form::ReduceScatter { send: from, recv: to, counts, operator });
        } else if len > 0 {
            let count = len as c_int; // at most `largest`
            self.reducing(&how, Form::ReduceScatterBlock { send: from, recv: to, count, operator });
        }
        self.got(&how, to, recv.ptr.0, len);
        Ok(())
    }

    fn all_gather(
        &mut self,
        send: &BoundRange,
        recv: &BoundRange,
        parts: Option<&Parts>,
        seat: Seat,
    ) -> Result<(), ArgError> {
        let mine = divided(("recv", recv), ("send", send), parts, seat)?;
        let own = place(recv, mine);
        if seat.size == 1 {
            self.copy(send.ptr.0, own, send.bytes());
            return Ok(());
        }
        let dtype = send.dtype;
        match parts {
            Some(parts) if parts.total() > seat.largest => {
                self.copy(send.ptr.0, own, send.bytes());
                for peer in others(seat) {
                    self.part(send, send.ptr.0, send.len(), peer, seat, Way::Give)?;
                    let (begin, len) = of(Some(parts), peer, 0);
                    self.part(recv, place(recv, begin), len, peer, seat, Way::Take)?;
                }
            }
            Some(parts) => {
                let send = self.apart(send, send.ptr.0 == own);
                let (count, places) = (Places::count(parts, seat.me), Places::new(parts));
                self.moved(dtype, Form::AllGatherV { send, count, recv: recv.ptr.0, places });
            }
            None if send.is_empty() => {}
            None => {
                let (block, send) = (send.len(), self.apart(send, send.ptr.0 == own));
                let recv = recv.ptr.0;
                self.blocks(dtype, block, seat, |count| Form::AllGather { send, recv, count });
            }
        }
        Ok(())
    }

    fn gather(
        &mut self,
        send: &BoundRange,
        recv: &BoundRange,
        root: u32,
        parts: Option<&Parts>,
        seat: Seat,
    ) -> Result<(), ArgError> {
        let to = member("root", root, seat.size)?;
        let mine = if seat.me == root {
            divided(("recv", recv), ("send", send), parts, seat)?
        } else {
            part_of(("send", send), parts, seat)?
        };
        let dtype = send.dtype;
        // Off root, the long argument is another's, and may be anything.
        let (at_root, whole) = (seat.me == root, if seat.me == root { recv.ptr.0 } else { 0 });
        let placed = at_root && send.ptr.0 == place(recv, mine);
        if seat.size == 1 {
            self.copy(send.ptr.0, whole, send.bytes());
            return Ok(());
        }
        match parts {
            Some(parts) if parts.total() > seat.largest => {
                if !at_root {
                    return self.part(send, send.ptr.0, send.len(), root, seat, Way::Give);
                }
                self.copy(send.ptr.0, place(recv, mine), send.bytes());
                for peer in others(seat) {
                    let (begin, len) = of(Some(parts), peer, 0);
                    self.part(recv, place(recv, begin), len, peer, seat, Way::Take)?;
                }
            }
            Some(parts) => {
                let send = self.apart(send, placed);
                let (count, places) = (Places::count(parts, seat.me), Places::new(parts));
                self.moved(dtype, Form::GatherV { send, count, recv: whole, places, root: to });
            }
            None if send.is_empty() => {}
            None => {
                let (block, send) = (send.len(), self.apart(send, placed));
                self.blocks(dtype, block, seat, |count| Form::Gather { send, recv: whole, count, root: to });
            }
        }
        Ok(())
    }

    fn scatter(
        &mut self,
        send: &BoundRange,
        recv: &BoundRange,
        root: u32,
        parts: Option<&Parts>,
        seat: Seat,
    ) -> Result<(), ArgError> {
        let from = member("root", root, seat.size)?;
        let mine = if seat.me == root {
            divided(("send", send), ("recv", recv), parts, seat)?
        } else {
            part_of(("recv", recv), parts, seat)?
        };
        let dtype = recv.dtype;
        let (at_root, whole) = (seat.me == root, if seat.me == root { send.ptr.0 } else { 0 });
        let placed = at_root && recv.ptr.0 == place(send, mine);
        if seat.size == 1 {
            self.copy(whole, recv.ptr.0, recv.bytes());
            return Ok(());
        }
        // In place the part is where it belongs, and what MPI writes elsewhere is not looked at.
        let apart = |layout: &mut Layout| match placed {
            _ if recv.is_empty() => 0,
            true => layout.take(recv.bytes()),
            false => recv.ptr.0,
        };
        match parts {
            Some(parts) if parts.total() > seat.largest => {
                if !at_root {
                    return self.part(recv, recv.ptr.0, recv.len(), root, seat, Way::Take);
                }
                self.copy(place(send, mine), recv.ptr.0, recv.bytes());
                for peer in others(seat) {
                    let (begin, len) = of(Some(parts), peer, 0);
                    self.part(send, place(send, begin), len, peer, seat, Way::Give)?;
                }
            }
            Some(parts) => {
                let (recv, places) = (apart(self), Places::new(parts));
                let count = Places::count(parts, seat.me);
                self.moved(dtype, Form::ScatterV { send: whole, places, recv, count, root: from });
            }
            None if recv.is_empty() => {}
            None => {
                let (block, recv) = (recv.len(), apart(self));
                self.blocks(dtype, block, seat, |count| Form::Scatter {
                    send: whole,
                    recv,
                    count,
                    root: from,
                });
            }
        }
        Ok(())
    }

    /// An all_to_all by `counts`.
    fn exchange(
        &mut self,
        counts: &[i64],
        send: &BoundRange,
        recv: &BoundRange,
        seat: Seat,
    ) -> Result<(), ArgError> {
        let Seat { me, size, largest } = seat;
        let row = rows(&send.shape).1;
        let misfit = || ArgError::new("counts", "does not fit the communicator");
        let counts = Counts::new(counts, size).ok_or_else(misfit)?;
        let sent = counts.send_parts(me, row).ok_or_else(misfit)?;
        let received = counts.recv_parts(me, row).ok_or_else(misfit)?;
        holds("send", send, send.dtype, sent.total())?;
        holds("recv", recv, send.dtype, received.total())?;
        // Of all ranks, so that all go the same way.
        let totals = (0..size).flat_map(|rank| [counts.send_parts(rank, row), counts.recv_parts(rank, row)]);
        let most = totals.map(|parts| parts.map_or(u64::MAX, |parts| parts.total())).max().unwrap_or(0);
        if size == 1 || most > largest {
            let ((begin, len), (to, _)) = (of(Some(&sent), me, 0), of(Some(&received), me, 0));
            self.copy(place(send, begin), place(recv, to), len * send.dtype.size());
            for peer in others(seat) {
                let ((begin, len), (to, taken)) = (of(Some(&sent), peer, 0), of(Some(&received), peer, 0));
                self.part(send, place(send, begin), len, peer, seat, Way::Give)?;
                self.part(recv, place(recv, to), taken, peer, seat, Way::Take)?;
            }
        } else if most > 0 {
            let (sent, received) = (Places::new(&sent), Places::new(&received));
            let address = |range: &BoundRange| if range.is_empty() { 0 } else { range.ptr.0 };
            let (from, to) = (address(send), address(recv));
            self.moved(send.dtype, Form::AllToAllV { send: from, sent, recv: to, received });
        }
        Ok(())
    }

    fn send(
        &mut self,
        buffer: &BoundRange,
        param: &'static str,
        peer: u32,
        seat: Seat,
    ) -> Result<(), ArgError> {
        let peer = member(param, peer, seat.size)?;
        self.message(buffer.dtype, buffer.len(), seat.largest, |count| Form::Send {
            at: buffer.ptr.0,
            count,
            peer,
            tag: MESSAGE,
        });
        Ok(())
    }

    fn recv(
        &mut self,
        buffer: &BoundRange,
        param: &'static str,
        peer: u32,
        seat: Seat,
    ) -> Result<(), ArgError> {
        let peer = member(param, peer, seat.size)?;
        self.message(buffer.dtype, buffer.len(), seat.largest, |count| Form::Recv {
            at: buffer.ptr.0,
            count,
            peer,
            tag: MESSAGE,
        });
        Ok(())
    }

    /// A message of a collective: `len` elements of `like` at an address.
    fn part(
        &mut self,
        like: &BoundRange,
        at: u64,
        len: u64,
        peer: u32,
        seat: Seat,
        way: Way,
    ) -> Result<(), ArgError> {
        let peer = member("root", peer, seat.size)?;
        self.message(like.dtype, len, seat.largest, |count| match way {
            Way::Give => Form::Send { at, count, peer, tag: PART },
            Way::Take => Form::Recv { at, count, peer, tag: PART },
        });
        Ok(())
    }

    /// One message, of a unit of as many elements where MPI cannot count them. An empty one is none on both sides.
    fn message(&mut self, dtype: DType, len: u64, largest: u64, form: impl FnOnce(c_int) -> Form) {
        match len {
            0 => {}
            _ if len > largest => self.push(Wire::moved(dtype), len, form(1)),
            _ => self.moved(dtype, form(len as c_int)),
        }
    }

    /// A collective of equal blocks, which are one unit each where MPI cannot count all of them.
    fn blocks(&mut self, dtype: DType, block: u64, seat: Seat, form: impl FnOnce(c_int) -> Form) {
        if block.saturating_mul(seat.size.into()) > seat.largest {
            self.push(Wire::moved(dtype), block, form(1));
        } else {
            self.moved(dtype, form(block as c_int));
        }
    }

    /// Calls for so many elements, as many at a time as one can count.
    fn pieces(&mut self, len: u64, largest: u64, mut call: impl FnMut(&mut Layout, u64, c_int)) {
        let mut done = 0;
        while done < len {
            let count = (len - done).min(largest);
            call(self, done, count as c_int);
            done += count;
        }
    }

    /// Where MPI reads what this rank gives to a reduction: where it is, or its copy in scratch memory.
    fn given(&mut self, how: &Reduce, from: u64, len: u64, in_place: bool) -> u64 {
        if len == 0 || !(in_place || how.how.widened) {
            return from;
        }
        let to = self.take(how.bytes(len));
        if how.how.widened {
            self.before.push(Local::Widen { from, to, len, dtype: how.dtype });
        } else {
            self.copy(from, to, how.bytes(len));
        }
        to
    }

    /// Where MPI writes the result of a reduction.
    fn wanted(&mut self, how: &Reduce, to: u64, len: u64, apart: bool) -> u64 {
        match len {
            0 => 0,
            _ if apart || how.how.widened => self.take(how.bytes(len)),
            _ => to,
        }
    }

    /// Brings a result home from where MPI wrote it.
    fn got(&mut self, how: &Reduce, from: u64, to: u64, len: u64) {
        let (dtype, ranks, averaged) = (how.dtype, how.ranks, how.how.averaged);
        if len == 0 {
            return;
        }
        if how.how.widened {
            self.after.push(Local::Narrow { from, to, len, dtype, divisor: averaged.then_some(ranks) });
            return;
        }
        if from != to {
            self.after.push(Local::Copy { from, to, bytes: how.bytes(len) });
        }
        if averaged {
            self.after.push(Local::Average { at: to, len, dtype, ranks });
        }
    }

    /// A range that is not within what MPI writes: itself, or a copy of it. Where an empty one is said to be means nothing.
    fn apart(&mut self, range: &BoundRange, within: bool) -> u64 {
        if range.is_empty() {
            return 0;
        }
        if !within {
            return range.ptr.0;
        }
        let to = self.take(range.bytes());
        self.copy(range.ptr.0, to, range.bytes());
        to
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) {
        if from != to && bytes > 0 {
            self.before.push(Local::Copy { from, to, bytes });
        }
    }

    /// Scratch memory.
    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.base.wrapping_add(self.used);
        self.used = self.used.saturating_add(bytes.div_ceil(LINE).saturating_mul(LINE));
        at
    }

    fn moved(&mut self, dtype: DType, call: Form) {
        self.push(Wire::moved(dtype), 1, call);
    }

    fn reducing(&mut self, how: &Reduce, call: Form) {
        self.push(how.how.wire, 1, call);
    }

    fn push(&mut self, wire: Wire, unit: u64, call: Form) {
        self.records.push(Record { call, wire, unit });
    }
}

/// Which way a message goes.
#[derive(Clone, Copy)]
enum Way {
    Give,
    Take,
}

impl Reduce {
    fn new(dtype: DType, reduce: ReduceOp, ranks: u32) -> Reduce {
        Reduce { dtype, how: Reduction::new(dtype, reduce), ranks }
    }

    /// Bytes of so many elements on their way.
    fn bytes(&self, len: u64) -> u64 {
        len.saturating_mul(self.how.wire.size())
    }

    /// The address of an element on its way.
    fn at(&self, from: u64, index: u64) -> u64 {
        from.wrapping_add(self.bytes(index))
    }
}

impl Places {
    /// Parts of no more elements than MPI counts.
    fn new(parts: &Parts) -> Places {
        let number = |value: u64| value as c_int;
        Places {
            counts: parts.iter().map(|part| number(part.end - part.start)).collect(),
            begins: parts.iter().map(|part| number(part.start)).collect(),
        }
    }

    fn count(parts: &Parts, rank: u32) -> c_int {
        let part = parts.of(rank);
        (part.end - part.start) as c_int
    }
}

fn others(seat: Seat) -> impl Iterator<Item = u32> {
    (0..seat.size).filter(move |peer| *peer != seat.me)
}

/// Where a rank's part begins, and its length; of equal ones `len` each.
fn of(parts: Option<&Parts>, rank: u32, len: u64) -> (u64, u64) {
    match parts {
        Some(parts) => {
            let part = parts.of(rank);
            (part.start, part.end - part.start)
        }
        None => (len.saturating_mul(rank.into()), len),
    }
}

/// The address of an element.
fn place(whole: &BoundRange, index: u64) -> u64 {
    whole.ptr.0.wrapping_add(index.wrapping_mul(whole.dtype.size()))
}

/// Where this rank's part begins in the whole, after both were found to fit.
fn divided(
    (param, whole): (&'static str, &BoundRange),
    mine: (&'static str, &BoundRange),
    parts: Option<&Parts>,
    seat: Seat,
) -> Result<u64, ArgError> {
    match parts {
        None => fits(param, whole, mine.1, seat.size)?,
        Some(parts) => holds(param, whole, mine.1.dtype, parts.total())?,
    }
    part_of(mine, parts, seat)
}

/// Where this rank's part begins in the whole, which may be another rank's.
fn part_of(
    (param, mine): (&'static str, &BoundRange),
    parts: Option<&Parts>,
    seat: Seat,
) -> Result<u64, ArgError> {
    let (begin, len) = of(parts, seat.me, mine.len());
    if len == mine.len() && parts.is_none_or(|parts| parts.ranks() == seat.size as usize) {
        return Ok(begin);
    }
    Err(ArgError::new(
        param,
        format!("holds {}, but this rank's part has {len}", count(mine.len(), "element")),
    ))
}

/// The elements of each of `size` equal blocks.
fn block(param: &'static str, whole: &BoundRange, size: u32) -> Result<u64, ArgError> {
    match whole.len() % u64::from(size) {
        0 => Ok(whole.len() / u64::from(size)),
        rest => Err(ArgError::new(
            param,
            format!(
                "has {}, which cannot be divided among {}: the remainder is {rest}",
                count(whole.len(), "element"),
                count(size, "rank")
            ),
        )),
    }
}

/// `whole` holds `blocks` times what `block` does.
fn fits(param: &'static str, whole: &BoundRange, block: &BoundRange, blocks: u32) -> Result<(), ArgError> {
    if whole.dtype == block.dtype && Some(whole.len()) == block.len().checked_mul(blocks.into()) {
        return Ok(());
    }
    let elements = |range: &BoundRange| count(range.len(), "element");
    let must = format!("but must hold {blocks} times {} of {}", elements(block), block.dtype);
    Err(ArgError::new(param, format!("holds {} of {}, {must}", elements(whole), whole.dtype)))
}

/// `whole` holds so many elements.
fn holds(param: &'static str, whole: &BoundRange, dtype: DType, total: u64) -> Result<(), ArgError> {
    if whole.dtype == dtype && whole.len() == total {
        return Ok(());
    }
    let elements = count(whole.len(), "element");
    Err(ArgError::new(
        param,
        format!("holds {elements} of {}, but must hold {total} of {dtype}", whole.dtype),
    ))
}

/// A rank of a communicator of so many.
fn member(param: &'static str, rank: u32, size: u32) -> Result<c_int, ArgError> {
    let out = || {
        let ranks = count(size, "rank");
        ArgError::new(param, format!("is {rank}, but the communicator has {ranks}, from 0 on"))
    };
    if rank < size { c_int::try_from(rank).map_err(|_| out()) } else { Err(out()) }
}

#[cfg(test)]
mod tests;
