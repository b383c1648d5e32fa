//! Who meets whom: collectives by their order on a communicator, sends and receives by their order between two ranks.

use crate::codes;
use crate::diagnostic::{Code, Diagnostic, Label};
use crate::graph::{Node, OpTask, Phase, TaskGraph};
use crate::task::{Meeting, Message, Signature};
use crate::world::{CommId, World};

/// The units of one phase on all ranks, rank by rank in program order. A node that meets nobody is no unit.
pub(super) struct Units<'a> {
    pub(super) world: &'a World,
    pub(super) list: Vec<Unit<'a>>,
    /// Of each rank its first unit, and at the end the number of units.
    pub(super) first: Vec<u32>,
}

#[derive(Clone, Copy)]
pub(super) struct Unit<'a> {
    pub(super) rank: u32,
    pub(super) node: &'a Node,
}

impl<'a> Units<'a> {
    pub(super) fn collect(graphs: &'a [TaskGraph], phase: Phase) -> Units<'a> {
        let mut units = Units { world: graphs[0].world(), list: Vec::new(), first: vec![0] };
        for graph in graphs {
            let meets = |node: &&Node| node.ops().iter().any(|op| !op.description.meetings.is_empty());
            let nodes = graph.tasks(phase).iter().map(AsRef::as_ref).filter(meets);
            units.list.extend(nodes.map(|node| Unit { rank: graph.rank(), node }));
            units.first.push(units.list.len() as u32);
        }
        units
    }

    /// The units of a rank, as indices.
    pub(super) fn of(&self, rank: u32) -> std::ops::Range<u32> {
        self.first[rank as usize]..self.first[rank as usize + 1]
    }

    pub(super) fn label(&self, unit: u32, text: impl Into<String>) -> Label {
        let Unit { rank, node } = self.list[unit as usize];
        Label::at(node.origin.span, text).on_rank(rank).in_task(&node.origin.name)
    }
}

/// What was matched: each meeting as the units that take part in it.
#[derive(Default)]
pub(super) struct Matched {
    members: Vec<u32>,
    ends: Vec<u32>,
}

impl Matched {
    fn add(&mut self, units: impl IntoIterator<Item = u32>) {
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
type Channel = (&'static str, CommId);

/// A rank's call of a collective.
#[derive(Clone, Copy)]
struct Call<'a> {
    unit: u32,
    op: &'a OpTask,
    signature: &'a Signature,
    /// Its place among the unit's collectives on the channel, and how many those are.
    place: (u32, u32),
}

/// One side of a point-to-point transfer; `from` and `to` are world ranks.
struct Side<'a> {
    channel: usize,
    from: u32,
    to: u32,
    order: u32,
    unit: u32,
    op: &'a OpTask,
    message: Message,
}

/// Matches everything; reports what differs and what is left over.
pub(super) fn check(units: &Units<'_>, problems: &mut Vec<Diagnostic>) -> Matched {
    let mut channels: Vec<Channel> = Vec::new();
    // Calls by channel; of each channel rank by rank, with the start of each rank.
    let mut calls: Vec<(Vec<Call<'_>>, Vec<u32>)> = Vec::new();
    let (mut sends, mut recvs): (Vec<Side<'_>>, Vec<Side<'_>>) = (Vec::new(), Vec::new());
    for rank in 0..units.world.size() {
        for (list, first) in &mut calls {
            first.push(list.len() as u32);
        }
        let mut order = 0;
        for unit in units.of(rank) {
            let ops = units.list[unit as usize].node.ops();
            for op in ops {
                let key = (op.op.library(), op.comm);
                let channel = channels.iter().position(|c| *c == key).unwrap_or_else(|| {
                    channels.push(key);
                    calls.push((Vec::new(), vec![0; rank as usize + 1]));
                    channels.len() - 1
                });
                for meeting in &op.description.meetings {
                    let peer = |peer: u32| {
                        units
                            .world
                            .part(op.comm, rank)
                            .and_then(|p| p.members.get(peer as usize).copied())
                            .unwrap_or(rank)
                    };
                    order += 1;
                    match meeting {
                        Meeting::Collective(signature) => {
                            calls[channel].0.push(Call { unit, op, signature, place: (0, 1) });
                        }
                        Meeting::Send(m) => {
                            let to = peer(m.peer);
                            sends.push(Side { channel, from: rank, to, order, unit, op, message: *m });
                        }
                        Meeting::Recv(m) => {
                            let from = peer(m.peer);
                            recvs.push(Side { channel, from, to: rank, order, unit, op, message: *m });
                        }
                    }
                }
            }
            if ops.len() > 1 {
                for (list, _) in &mut calls {
                    let start = list.partition_point(|call| call.unit < unit);
                    let count = (list.len() - start) as u32;
                    list[start..].iter_mut().enumerate().for_each(|(i, call)| call.place = (i as u32, count));
                }
            }
        }
    }
    let mut matched = Matched::default();
    for (&channel, (list, first)) in channels.iter().zip(&mut calls) {
        first.push(list.len() as u32);
        for part in units.world.parts(channel.1) {
            let of = |rank: u32| &list[first[rank as usize] as usize..first[rank as usize + 1] as usize];
            collectives(units, channel, part, of, &mut matched, problems);
        }
    }
    transfers(units, &channels, sends, recvs, &mut matched, problems);
    matched
}

/// Compares the calls of the members of one communicator with those of its first member, one position after another.
fn collectives<'a>(
    units: &Units<'_>,
    channel: Channel,
    part: &[u32],
    of: impl Fn(u32) -> &'a [Call<'a>],
    matched: &mut Matched,
    problems: &mut Vec<Diagnostic>,
) {
    let Some((&reference, others)) = part.split_first() else { return };
    let theirs = of(reference);
    let mut shortest = theirs.len();
    let mut reports = Reports { seen: Vec::new(), problems };
    for &rank in others {
        let mine = of(rank);
        shortest = shortest.min(mine.len());
        let differing = theirs.iter().zip(mine).position(|(a, b)| {
            // Ranks that share a node share its signature.
            !(std::ptr::eq(a.signature, b.signature) || a.signature == b.signature) || a.place != b.place
        });
        match differing {
            Some(at) => {
                shortest = shortest.min(at);
                reports.differ(units, channel, at, &theirs[at], &mine[at]);
            }
            None if theirs.len() > mine.len() => {
                reports.unreached(units, channel, mine.len(), &theirs[mine.len()], rank)
            }
            None if mine.len() > theirs.len() => {
                reports.unreached(units, channel, theirs.len(), &mine[theirs.len()], reference);
            }
            None => cross_order(units, &mut reports, channel, theirs, mine),
        }
    }
    for at in 0..shortest {
        matched.add(part.iter().map(|&rank| of(rank)[at].unit));
    }
}

/// The collectives of a group on several communicators must come in one order wherever two ranks share them.
fn cross_order(
    units: &Units<'_>,
    reports: &mut Reports<'_>,
    channel: Channel,
    a: &[Call<'_>],
    b: &[Call<'_>],
) {
    for (at, (a, b)) in a.iter().zip(b).enumerate() {
        let (ua, ub) = (units.list[a.unit as usize], units.list[b.unit as usize]);
        if std::ptr::eq(ua.node, ub.node) || (ua.node.ops().len() < 2 && ub.node.ops().len() < 2) {
            continue;
        }
        let shared = |node: &Node| -> Vec<CommId> {
            let part = |comm, rank| units.world.part(comm, rank).map(|p| p.index);
            node.ops()
                .iter()
                .filter(|op| matches!(op.description.meetings.first(), Some(Meeting::Collective(_))))
                .map(|op| op.comm)
                .filter(|&comm| part(comm, ua.rank) == part(comm, ub.rank))
                .collect()
        };
        if shared(ua.node) != shared(ub.node) {
            reports.boundaries(units, channel, at, a, b);
            return;
        }
    }
}

/// Reports on one communicator, each pair of tasks once.
struct Reports<'p> {
    seen: Vec<(Code, usize, *const OpTask)>,
    problems: &'p mut Vec<Diagnostic>,
}

impl Reports<'_> {
    /// Whether this is the first report of its kind about that call. Bounded: a search must not cost more than the
    /// reports are worth.
    fn first(&mut self, code: Code, at: usize, op: &OpTask) -> bool {
        let key = (code, at, std::ptr::from_ref(op));
        if self.seen.len() >= 64 || self.seen.contains(&key) {
            return false;
        }
        self.seen.push(key);
        true
    }

    fn differ(&mut self, units: &Units<'_>, channel: Channel, at: usize, a: &Call<'_>, b: &Call<'_>) {
        let (a_rank, b_rank) = (units.list[a.unit as usize].rank, units.list[b.unit as usize].rank);
        let name = units.world.name(channel.1);
        if a.signature.op != b.signature.op {
            if !self.first(codes::ORDER, at, b.op) {
                return;
            }
            let text = format!(
                "collective {at} on `{name}` is `{}` on rank {a_rank} and `{}` on rank {b_rank}",
                a.signature.op, b.signature.op
            );
            let help = "let every rank issue the same collectives in the same order";
            self.push(units, codes::ORDER, text, Some(help), a, b);
        } else if a.signature != b.signature {
            if !self.first(codes::MISMATCH, at, b.op) {
                return;
            }
            let pairs = a.signature.fields.iter().zip(&b.signature.fields).filter(|(x, y)| x != y);
            let differing: Vec<String> = pairs
                .map(|(x, y)| format!("{} is {} on rank {a_rank} and {} on rank {b_rank}", x.0, x.1, y.1))
                .collect();
            let text = format!("`{}`, collective {at} on `{name}`: {}", a.signature.op, differing.join("; "));
            self.push(units, codes::MISMATCH, text, None, a, b);
        } else {
            self.boundaries(units, channel, at, a, b);
        }
    }

    fn boundaries(&mut self, units: &Units<'_>, channel: Channel, at: usize, a: &Call<'_>, b: &Call<'_>) {
        if !self.first(codes::BOUNDARIES, at, b.op) {
            return;
        }
        let say = |call: &Call<'_>| {
            let rank = units.list[call.unit as usize].rank;
            match call.place {
                (_, 1) => format!("alone on rank {rank}"),
                (place, count) => format!("number {place} of {count} in a group on rank {rank}"),
            }
        };
        let text = format!(
            "`{}`, collective {at} on `{}`, is grouped differently: {}, {}",
            a.signature.op,
            units.world.name(channel.1),
            say(a),
            say(b)
        );
        let help =
            "a collective needs the same group boundaries and the same order within the group on all ranks";
        self.push(units, codes::BOUNDARIES, text, Some(help), a, b);
    }

    fn unreached(&mut self, units: &Units<'_>, channel: Channel, at: usize, call: &Call<'_>, without: u32) {
        if !self.first(codes::UNREACHED, at, call.op) {
            return;
        }
        let rank = units.list[call.unit as usize].rank;
        let text = format!(
            "`{}`, collective {at} on `{}`, is called on rank {rank}, but rank {without} never reaches it: its \
             graph has {at} collective{} there",
            call.signature.op,
            units.world.name(channel.1),
            if at == 1 { "" } else { "s" }
        );
        let report = Diagnostic::error(
            codes::UNREACHED,
            text,
            label(units, call.unit, call.op, call.signature.to_string()),
        );
        self.problems.push(report.with_help(
            "every rank of the communicator must call it: drop the `when`, or split a communicator",
        ));
    }

    fn push(
        &mut self,
        units: &Units<'_>,
        code: Code,
        text: String,
        help: Option<&str>,
        a: &Call<'_>,
        b: &Call<'_>,
    ) {
        let report = Diagnostic::error(code, text, label(units, b.unit, b.op, b.signature.to_string()))
            .with_related(label(units, a.unit, a.op, a.signature.to_string()));
        self.problems.push(match help {
            Some(help) => report.with_help(help),
            None => report,
        });
    }
}

fn label(units: &Units<'_>, unit: u32, op: &OpTask, text: impl Into<String>) -> Label {
    let rank = units.list[unit as usize].rank;
    Label::at(op.origin.span, text).on_rank(rank).in_task(&op.origin.name)
}

/// Lets the k-th send of each ordered pair of ranks meet its k-th receive.
fn transfers(
    units: &Units<'_>,
    channels: &[Channel],
    mut sends: Vec<Side<'_>>,
    mut recvs: Vec<Side<'_>>,
    matched: &mut Matched,
    problems: &mut Vec<Diagnostic>,
) {
    let key = |s: &Side<'_>| (s.channel, s.from, s.to);
    sends.sort_unstable_by_key(|s| (key(s), s.order));
    recvs.sort_unstable_by_key(|s| (key(s), s.order));
    let (mut sends, mut recvs) = (sends.iter().peekable(), recvs.iter().peekable());
    loop {
        let (send, recv) = match (sends.peek(), recvs.peek()) {
            (None, None) => return,
            (Some(send), Some(recv)) => match key(send).cmp(&key(recv)) {
                std::cmp::Ordering::Less => (sends.next(), None),
                std::cmp::Ordering::Equal => (sends.next(), recvs.next()),
                std::cmp::Ordering::Greater => (None, recvs.next()),
            },
            (Some(_), None) => (sends.next(), None),
            (None, Some(_)) => (None, recvs.next()),
        };
        let place = |side: &Side<'_>| label(units, side.unit, side.op, size(side));
        match (send, recv) {
            (Some(send), Some(recv)) => {
                if (send.message.count, send.message.dtype) != (recv.message.count, recv.message.dtype) {
                    let text = format!(
                        "rank {} sends {} to rank {}, which receives {} on `{}`",
                        send.from,
                        size(send),
                        send.to,
                        size(recv),
                        units.world.name(channels[send.channel].1)
                    );
                    let help = "messages of a pair of ranks are matched by order: the first send meets the first receive";
                    let report = Diagnostic::error(codes::SIDES, text, place(recv));
                    problems.push(report.with_related(place(send)).with_help(help));
                }
                matched.add([send.unit, recv.unit]);
            }
            (Some(send), None) => {
                let text = format!(
                    "rank {} sends {} to rank {} on `{}`, and rank {} never receives it",
                    send.from,
                    size(send),
                    send.to,
                    units.world.name(channels[send.channel].1),
                    send.to
                );
                problems.push(Diagnostic::error(codes::UNMATCHED_SEND, text, place(send)));
            }
            (None, Some(recv)) => {
                let text = format!(
                    "rank {} receives {} from rank {} on `{}`, and rank {} never sends it",
                    recv.to,
                    size(recv),
                    recv.from,
                    units.world.name(channels[recv.channel].1),
                    recv.from
                );
                problems.push(Diagnostic::error(codes::UNMATCHED_RECV, text, place(recv)));
            }
            (None, None) => return,
        }
    }
}

fn size(side: &Side<'_>) -> String {
    format!("{} {}", side.message.count, side.message.dtype)
}
