//! Who meets whom: collectives by their order on a communicator, sends and receives by their order between two ranks.

use std::collections::BTreeMap;

use crate::codes;
use crate::diagnostic::{Diagnostic, Label};
use crate::graph::partial::Gap;
use crate::graph::{Node, OpTask, Phase, TaskGraph};
use crate::ops::Parts;
use crate::task::{Meeting, Message, Signature};
use crate::verify::collectives;
use crate::verify::lone::Lone;
use crate::world::{CommId, World};

/// The units of one phase on all ranks, rank by rank in program order. A node that meets nobody is no unit.
pub(super) struct Units<'a> {
    pub(super) world: &'a World,
    graphs: &'a [TaskGraph],
    pub(super) list: Vec<Unit<'a>>,
    /// Of each rank its first unit, and at the end the number of units.
    pub(super) first: Vec<u32>,
    /// On these communicators, what these ranks do is known only up to this unit, which is the first that is not.
    known: BTreeMap<(CommId, u32), u32>,
}

#[derive(Clone, Copy)]
pub(super) struct Unit<'a> {
    pub(super) rank: u32,
    /// Its place among the rank's tasks.
    pub(super) place: u32,
    pub(super) node: &'a Node,
}

/// Whether a node is a unit: whether it meets anybody.
pub(super) fn meets(node: &Node) -> bool {
    node.ops().iter().any(|op| !op.description.meetings.is_empty())
}

impl<'a> Units<'a> {
    /// `gaps` are where tasks are missing, by rank.
    pub(super) fn collect(graphs: &'a [TaskGraph], phase: Phase, gaps: &[(u32, Gap)]) -> Units<'a> {
        let world = graphs[0].world();
        let mut units = Units { world, graphs, list: Vec::new(), first: vec![0], known: BTreeMap::new() };
        for graph in graphs {
            let nodes =
                (0..).zip(graph.tasks(phase).iter().map(AsRef::as_ref)).filter(|(_, node)| meets(node));
            units.list.extend(nodes.map(|(place, node)| Unit { rank: graph.rank(), place, node }));
            units.first.push(units.list.len() as u32);
        }
        for (rank, gap) in gaps.iter().filter(|(_, gap)| gap.phase == phase) {
            let before = graphs[*rank as usize].tasks(phase).iter().take(gap.position);
            let before = before.filter(|node| meets(node)).count() as u32;
            let unit = units.of(*rank).start + before;
            for &comm in &gap.comms {
                let known = units.known.entry((comm, *rank)).or_insert(unit);
                *known = unit.min(*known);
            }
        }
        units
    }

    /// The first unit of a rank before which a task is missing on a communicator.
    pub(super) fn known(&self, comm: CommId, rank: u32) -> Option<u32> {
        self.known.get(&(comm, rank)).copied()
    }

    /// Whether no task is missing that meets other ranks.
    pub(super) fn are_all_known(&self) -> bool {
        self.known.is_empty()
    }

    /// The units of a rank, as indices.
    pub(super) fn of(&self, rank: u32) -> std::ops::Range<u32> {
        self.first[rank as usize]..self.first[rank as usize + 1]
    }

    pub(super) fn label(&self, unit: u32, text: impl Into<String>) -> Label {
        let Unit { rank, node, .. } = self.list[unit as usize];
        Label::at(node.origin.span, text).on_rank(rank).in_task(&node.origin.name)
    }
}

/// What was matched: each meeting as the units that take part in it.
#[derive(Default)]
pub(super) struct Matched {
    members: Vec<u32>,
    ends: Vec<u32>,
    /// Unequal parts of what is divided: of a unit and a member of it.
    pub(super) parts: Vec<(u32, usize, Parts)>,
}

impl Matched {
    pub(super) fn add(&mut self, units: impl IntoIterator<Item = u32>) {
        self.members.extend(units);
        self.ends.push(self.members.len() as u32);
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn units(&self, meeting: usize) -> &[u32] {
        let start = if meeting == 0 { 0 } else { self.ends[meeting - 1] };
        &self.members[start as usize..self.ends[meeting] as usize]
    }
}

/// A library's own communicator: only ops of one library can meet.
pub(super) type Channel = (&'static str, CommId);

/// A rank's call of a collective.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) unit: u32,
    pub(super) op: &'a OpTask,
    pub(super) signature: &'a Signature,
    /// Its place among the unit's collectives on the channel, and how many those are.
    pub(super) place: (u32, u32),
}

/// All calls on one channel, rank by rank in program order.
pub(super) struct Calls<'a> {
    pub(super) channel: Channel,
    list: Vec<Call<'a>>,
    /// Of each rank its first call, and at the end the number of calls.
    first: Vec<u32>,
}

impl<'a> Calls<'a> {
    /// The calls of a rank.
    pub(super) fn of(&self, rank: u32) -> &[Call<'a>] {
        &self.list[self.first[rank as usize] as usize..self.first[rank as usize + 1] as usize]
    }
}

/// A unit with collectives on several channels: each as its channel and its number among the rank's calls there.
pub(super) struct Mixed {
    pub(super) unit: u32,
    pub(super) calls: Vec<(usize, u32)>,
}

/// One side of a point-to-point transfer; `from` and `to` are world ranks.
pub(super) struct Side<'a> {
    pub(super) channel: usize,
    pub(super) from: u32,
    pub(super) to: u32,
    order: u32,
    pub(super) unit: u32,
    pub(super) op: &'a OpTask,
    message: Message,
}

/// Everything that must meet, sorted by what it must meet.
#[derive(Default)]
struct Meets<'a> {
    calls: Vec<Calls<'a>>,
    mixed: Vec<Mixed>,
    sends: Vec<Side<'a>>,
    recvs: Vec<Side<'a>>,
}

/// Matches everything; reports what differs and what is left over.
pub(super) fn check(units: &Units<'_>, problems: &mut Vec<Diagnostic>) -> Matched {
    let mut meets = Meets::default();
    for rank in 0..units.world.size() {
        meets.calls.iter_mut().for_each(|calls| calls.first.push(calls.list.len() as u32));
        let mut order = 0;
        for unit in units.of(rank) {
            meets.add(units, unit, rank, &mut order);
        }
    }
    meets.calls.iter_mut().for_each(|calls| calls.first.push(calls.list.len() as u32));
    let mut matched = Matched::default();
    collectives::check(units, &meets.calls, &meets.mixed, &mut matched, problems);
    transfers(units, meets, &mut matched, problems);
    matched
}

impl<'a> Meets<'a> {
    /// Adds what a unit must meet; `order` counts the meetings of its rank.
    fn add(&mut self, units: &Units<'a>, unit: u32, rank: u32, order: &mut u32) {
        let ops = units.list[unit as usize].node.ops();
        // The unit's collectives, each by its channel and its number on it.
        let mut collectives: Vec<(usize, u32)> = Vec::new();
        for op in ops {
            let channel = self.channel(op, rank);
            let world_rank = |peer: u32| {
                let part = units.world.part(op.comm, rank);
                part.and_then(|p| p.members.get(peer as usize).copied()).unwrap_or(rank)
            };
            for meeting in &op.description.meetings {
                *order += 1;
                let side = |from, to, message| Side { channel, from, to, order: *order, unit, op, message };
                match meeting {
                    Meeting::Send(m) => self.sends.push(side(rank, world_rank(m.peer), *m)),
                    Meeting::Recv(m) => self.recvs.push(side(world_rank(m.peer), rank, *m)),
                    Meeting::Collective(signature) => {
                        let Calls { list, first, .. } = &mut self.calls[channel];
                        if ops.len() > 1 || op.description.meetings.len() > 1 {
                            collectives.push((channel, list.len() as u32 - first[rank as usize]));
                        }
                        list.push(Call { unit, op, signature, place: (0, 1) });
                    }
                }
            }
        }
        if collectives.len() > 1 {
            for calls in &mut self.calls {
                let start = calls.list.partition_point(|call| call.unit < unit);
                let count = (calls.list.len() - start) as u32;
                (0..count).zip(&mut calls.list[start..]).for_each(|(i, call)| call.place = (i, count));
            }
            if collectives.iter().any(|&(channel, _)| channel != collectives[0].0) {
                self.mixed.push(Mixed { unit, calls: collectives });
            }
        }
    }

    /// The channel that an op of `rank` meets on.
    fn channel(&mut self, op: &OpTask, rank: u32) -> usize {
        let channel = (op.op.library(), op.comm);
        self.calls.iter().position(|calls| calls.channel == channel).unwrap_or_else(|| {
            self.calls.push(Calls { channel, list: Vec::new(), first: vec![0; rank as usize + 1] });
            self.calls.len() - 1
        })
    }
}

/// A label on an op, as part of a unit, that names its buffers. It stands at the first of `params` that the op was
/// given, or else at the task.
pub(super) fn label(
    units: &Units<'_>,
    unit: u32,
    op: &OpTask,
    params: &[&str],
    text: impl std::fmt::Display,
) -> Label {
    let rank = units.list[unit as usize].rank;
    let given = params.iter().find(|&&param| op.origin.args.iter().any(|(name, _)| name == param));
    let span = op.origin.span_of(given.unwrap_or(&""));
    let mut names: Vec<String> = Vec::new();
    for access in &op.description.accesses {
        let buffer = units.graphs[rank as usize].buffers().get(access.buffer.0 as usize);
        let name = buffer.map(|buffer| format!("`{}`", buffer.name));
        names.extend(name.filter(|name| !names.contains(name)));
    }
    let text =
        if names.is_empty() { text.to_string() } else { format!("{text}, of {}", names.join(" and ")) };
    Label::at(span, text).on_rank(rank).in_task(&op.origin.name)
}

/// What a transfer's sides call the other rank, and their buffer.
pub(super) const TO: &[&str] = &["peer", "to"];
pub(super) const FROM: &[&str] = &["peer", "from"];
const SENT: &[&str] = &["buffer", "send"];
const RECEIVED: &[&str] = &["buffer", "recv"];

/// Lets the k-th send of each ordered pair of ranks meet its k-th receive.
fn transfers(units: &Units<'_>, meets: Meets<'_>, matched: &mut Matched, problems: &mut Vec<Diagnostic>) {
    let Meets { calls, mut sends, mut recvs, .. } = meets;
    let comm = |side: &Side<'_>| units.world.name(calls[side.channel].channel.1);
    // Which message meets which depends on all that a pair of ranks sends.
    let known = |side: &Side<'_>| {
        let comm = calls[side.channel].channel.1;
        [side.from, side.to].iter().all(|&rank| units.known(comm, rank).is_none())
    };
    sends.retain(known);
    recvs.retain(known);
    let key = |s: &Side<'_>| (s.channel, s.from, s.to);
    sends.sort_unstable_by_key(|s| (key(s), s.order));
    recvs.sort_unstable_by_key(|s| (key(s), s.order));
    let (mut sends, mut recvs) = (sends.iter().peekable(), recvs.iter().peekable());
    let mut lone = Lone::default();
    loop {
        let (send, recv) = match (sends.peek(), recvs.peek()) {
            (None, None) => break,
            (Some(send), Some(recv)) => match key(send).cmp(&key(recv)) {
                std::cmp::Ordering::Less => (sends.next(), None),
                std::cmp::Ordering::Equal => (sends.next(), recvs.next()),
                std::cmp::Ordering::Greater => (None, recvs.next()),
            },
            (Some(_), None) => (sends.next(), None),
            (None, Some(_)) => (None, recvs.next()),
        };
        let place = |side: &Side<'_>, params| label(units, side.unit, side.op, params, size(side));
        match (send, recv) {
            (Some(send), Some(recv)) => {
                if (send.message.count, send.message.dtype) != (recv.message.count, recv.message.dtype) {
                    let text = format!(
                        "rank {} sends {} to rank {}, which receives {} on `{}`",
                        send.from,
                        size(send),
                        send.to,
                        size(recv),
                        comm(send)
                    );
                    let help = format!(
                        "receive {}, as is sent; the first send of a pair of ranks meets its first receive, the second its second",
                        size(send)
                    );
                    let report = Diagnostic::error(codes::SIDES, text, place(recv, RECEIVED));
                    problems.push(report.with_related(place(send, SENT)).with_help(help));
                }
                matched.add([send.unit, recv.unit]);
            }
            (Some(send), None) => lone.sends.push(send),
            (None, Some(recv)) => lone.recvs.push(recv),
            (None, None) => break,
        }
    }
    // In the order of the ranks that stand before them.
    lone.recvs.sort_unstable_by_key(|recv| (recv.to, recv.order));
    lone.report(units, &calls, problems);
}

pub(super) fn size(side: &Side<'_>) -> String {
    format!("{} {}", side.message.count, side.message.dtype)
}
