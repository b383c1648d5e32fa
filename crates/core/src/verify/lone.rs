//! Sends without a receive, and receives without a send.

use std::collections::BTreeMap;

use crate::codes;
use crate::diagnostic::{Diagnostic, Label};
use crate::verify::matching::{Calls, FROM, Side, TO, Units, label, size};
use crate::world::CommId;

const ONE_COMM: &str = "a send and its receive meet on one communicator: let both name it, by `comm`";

/// Sends and receives that meet nothing.
#[derive(Default)]
pub(super) struct Lone<'m, 'a> {
    pub(super) sends: Vec<&'m Side<'a>>,
    pub(super) recvs: Vec<&'m Side<'a>>,
}

impl Lone<'_, '_> {
    /// One report each. Where the other rank has one, too, that goes elsewhere, the report shows it: mostly the two were meant to meet.
    pub(super) fn report(&self, units: &Units<'_>, calls: &[Calls<'_>], problems: &mut Vec<Diagnostic>) {
        let first = |sides: &[&Side<'_>], rank: fn(&Side<'_>) -> u32| {
            let mut first: BTreeMap<(usize, u32), usize> = BTreeMap::new();
            for (at, side) in sides.iter().enumerate() {
                first.entry((side.channel, rank(side))).or_insert(at);
            }
            first
        };
        let (of_sender, of_receiver) = (first(&self.sends, |s| s.from), first(&self.recvs, |s| s.to));
        // The other side of the same two ranks, on another communicator.
        let astray = |sides: &[&Side<'_>]| {
            let mut astray: BTreeMap<(u32, u32), usize> = BTreeMap::new();
            for (at, side) in sides.iter().enumerate() {
                astray.entry((side.from, side.to)).or_insert(at);
            }
            astray
        };
        let (sent, received) = (astray(&self.sends), astray(&self.recvs));
        let comm = |side: &Side<'_>| units.world.name(calls[side.channel].channel.1);
        // A rank as the other side is to name it.
        let peer = |side: &Side<'_>, param: &str, rank| match calls[side.channel].channel.1 {
            CommId::WORLD => format!("`{param} = {rank}`"),
            comm => {
                let place = units.world.part(comm, rank).map_or(rank, |part| part.rank);
                format!("`{param} = {place}` and `comm = \"{}\"`", units.world.name(comm))
            }
        };
        // What the other rank is called in a task: an op that does both has a name for each.
        let named = |side: &Side<'_>, of_both: &'static str| {
            let has = side.op.op.params().iter().any(|param| param.name == of_both);
            if has { of_both } else { "peer" }
        };
        let mut report = |code, text, side: &Side<'_>, params, help, instead: Option<Label>| {
            let report = Diagnostic::error(code, text, label(units, side.unit, side.op, params, size(side)));
            problems.push(instead.into_iter().fold(report, Diagnostic::with_related).with_help(help));
        };
        for send in &self.sends {
            let (from, to) = (send.from, send.to);
            let text = format!(
                "rank {from} sends {} to rank {to} on `{}`, and rank {to} never receives it",
                size(send),
                comm(send)
            );
            if let Some(recv) = received.get(&(from, to)).map(|&at| self.recvs[at]) {
                let label = label(
                    units,
                    recv.unit,
                    recv.op,
                    FROM,
                    format!("receives {} on `{}`", size(recv), comm(recv)),
                );
                report(codes::UNMATCHED_SEND, text, send, TO, ONE_COMM.to_string(), Some(label));
                continue;
            }
            let instead = of_receiver.get(&(send.channel, to)).map(|&at| self.recvs[at]);
            let help = format!(
                "let rank {to} receive it: {} with {}; or leave this send out with `when`",
                instead.map_or("a `recv`".to_string(), |recv| format!("its `{}`", recv.op.origin.name)),
                peer(send, instead.map_or("peer", |recv| named(recv, "from")), from)
            );
            let instead = instead.map(|recv| {
                let text = format!("receives {} from rank {} instead", size(recv), recv.from);
                label(units, recv.unit, recv.op, FROM, text)
            });
            report(codes::UNMATCHED_SEND, text, send, TO, help, instead);
        }
        for recv in &self.recvs {
            let (from, to) = (recv.from, recv.to);
            let text = format!(
                "rank {to} receives {} from rank {from} on `{}`, and rank {from} never sends it",
                size(recv),
                comm(recv)
            );
            if let Some(send) = sent.get(&(from, to)).map(|&at| self.sends[at]) {
                let label =
                    label(units, send.unit, send.op, TO, format!("sends {} on `{}`", size(send), comm(send)));
                report(codes::UNMATCHED_RECV, text, recv, FROM, ONE_COMM.to_string(), Some(label));
                continue;
            }
            let instead = of_sender.get(&(recv.channel, from)).map(|&at| self.sends[at]);
            let help = format!(
                "let rank {from} send it: {} with {}; or leave this receive out with `when`",
                instead.map_or("a `send`".to_string(), |send| format!("its `{}`", send.op.origin.name)),
                peer(recv, instead.map_or("peer", |send| named(send, "to")), to)
            );
            let instead = instead.map(|send| {
                let text = format!("sends {} to rank {} instead", size(send), send.to);
                label(units, send.unit, send.op, TO, text)
            });
            report(codes::UNMATCHED_RECV, text, recv, FROM, help, instead);
        }
    }
}
