//! Random small jobs: 2 to 5 ranks with up to three communicators that do the same events in order, and mistakes that are worked into them.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use squall_core::{
    ArgValue, BufferDecl, CommId, DType, GroupSpec, OpSpec, Problems, Registry, TaskGraph, Upload, World,
};

/// A job, as the rules see it.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Of each communicator its parts, and of each part the world ranks by rank in it. The first is the world.
    pub(crate) comms: Vec<Vec<Vec<usize>>>,
    /// Of each rank its units, in order.
    pub(crate) ranks: Vec<Vec<Unit>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unit {
    pub(crate) ops: Vec<Op>,
    pub(crate) group: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Op {
    pub(crate) comm: usize,
    pub(crate) kind: Kind,
    pub(crate) count: u64,
    pub(crate) dtype: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    AllReduce {
        reduce: usize,
    },
    Broadcast {
        root: usize,
    },
    /// Of `count` elements, which differ between ranks, into `whole`.
    AllGather {
        whole: u64,
    },
    AllToAll,
    /// As all_gather, on root alone.
    Gather {
        root: usize,
        whole: u64,
    },
    Send {
        peer: usize,
    },
    Recv {
        peer: usize,
    },
    SendRecv {
        to: usize,
        from: usize,
        recv_count: u64,
    },
}

/// Of each rank its colour and key: a communicator.
pub(crate) type Split = Vec<(i64, i64)>;

/// Something that several ranks do together. Numbers are taken modulo what they choose from.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Whether it stands in one group with the event before.
    joined: bool,
    what: usize,
    comm: usize,
    part: usize,
    a: usize,
    b: usize,
    count: u64,
    dtype: usize,
}

/// A mistake, somewhere.
#[derive(Clone, Debug)]
struct Mistake {
    what: usize,
    rank: usize,
    unit: usize,
    op: usize,
    value: usize,
}

pub(crate) fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (
        prop::bool::weighted(0.4),
        0..9usize,
        0..3usize,
        0..5usize,
        0..20usize,
        0..20usize,
        0..4u64,
        0..2usize,
    )
        .prop_map(|(joined, what, comm, part, a, b, count, dtype)| Event {
            joined,
            what,
            comm,
            part,
            a,
            b,
            count,
            dtype,
        });
    prop::collection::vec(event, 1..6)
}

fn mistakes() -> impl Strategy<Value = Vec<Mistake>> {
    prop::collection::vec(mistake(0..13), 0..4)
}

/// A mistake among some kinds of them.
fn mistake(kinds: std::ops::Range<usize>) -> impl Strategy<Value = Mistake> {
    (kinds, 0..5usize, 0..8usize, 0..6usize, 0..8usize).prop_map(|(what, rank, unit, op, value)| Mistake {
        what,
        rank,
        unit,
        op,
        value,
    })
}

/// Jobs, most of them with some mistakes of any kind, or with units that have changed places on a rank, which makes cycles.
pub(crate) fn jobs() -> impl Strategy<Value = (Vec<Split>, Job)> {
    let swaps = prop::collection::vec(mistake(2..3), 1..4);
    (comms(), events(), prop_oneof![3 => mistakes(), 1 => swaps]).prop_map(|(splits, events, mistakes)| {
        let mut job = valid(&splits, &events);
        mistakes.iter().for_each(|mistake| make(&mut job, mistake));
        (splits, job)
    })
}

/// The world and two splits of it: of each rank its colour and key.
pub(crate) fn comms() -> impl Strategy<Value = Vec<Split>> {
    (2..=5usize).prop_flat_map(|ranks| {
        prop::collection::vec(prop::collection::vec((0..2i64, 0..3i64), ranks), 2).prop_map(move |splits| {
            let mut all = vec![vec![(0, 0); ranks]];
            all.extend(splits);
            all
        })
    })
}

/// The parts of a split, by the definition: ranks of one colour, by key and then by rank.
fn parts(split: &Split) -> Vec<Vec<usize>> {
    let mut parts = Vec::new();
    for color in split.iter().map(|&(color, _)| color).collect::<BTreeSet<_>>() {
        let mut part: Vec<usize> = (0..split.len()).filter(|&rank| split[rank].0 == color).collect();
        part.sort_by_key(|&rank| (split[rank].1, rank));
        parts.push(part);
    }
    parts
}

/// A job in which all ranks do the events in order: valid, since each can complete before the next begins.
pub(crate) fn valid(splits: &[Split], events: &[Event]) -> Job {
    let comms: Vec<_> = splits.iter().map(parts).collect();
    let mut ranks = vec![Vec::new(); splits[0].len()];
    let mut rest = events;
    while let Some((_, others)) = rest.split_first() {
        let together = 1 + others.iter().take_while(|event| event.joined).count();
        let mut units = vec![Vec::new(); ranks.len()];
        rest[..together].iter().for_each(|event| add(&comms, event, &mut units));
        for (rank, ops) in units.into_iter().enumerate().filter(|(_, ops)| !ops.is_empty()) {
            let group = together > 1 || ops.len() > 1;
            ranks[rank].push(Unit { ops, group });
        }
        rest = &rest[together..];
    }
    Job { comms, ranks }
}

fn add(comms: &[Vec<Vec<usize>>], event: &Event, units: &mut [Vec<Op>]) {
    let Event { comm, count, dtype, .. } = *event;
    let part = &comms[comm][event.part % comms[comm].len()];
    let (size, op) = (part.len(), |kind| Op { comm, kind, count, dtype });
    let (a, b) = (event.a % size, event.b % size);
    // Equal parts, or such as 0, 3, 2, 1.
    let step = if event.b < 10 { 0 } else { event.b as u64 };
    let of = |place: usize| (count + step * place as u64) % 4;
    let divided = |units: &mut [Vec<Op>], kind: Kind| {
        for (place, &rank) in part.iter().enumerate() {
            units[rank].push(Op { count: of(place), ..op(kind.clone()) });
        }
    };
    let whole = (0..size).map(of).sum();
    let kind = match event.what {
        0 | 1 => {
            units[part[a]].push(op(Kind::Send { peer: b }));
            units[part[b]].push(op(Kind::Recv { peer: a }));
            return;
        }
        2 => {
            for (place, &rank) in part.iter().enumerate() {
                let kind = Kind::SendRecv {
                    to: (place + 1) % size,
                    from: (place + size - 1) % size,
                    recv_count: count,
                };
                units[rank].push(op(kind));
            }
            return;
        }
        3 | 4 => Kind::AllReduce { reduce: event.a % 2 },
        5 => Kind::Broadcast { root: a },
        6 => return divided(units, Kind::AllGather { whole }),
        7 => Kind::AllToAll,
        _ => return divided(units, Kind::Gather { root: a, whole }),
    };
    part.iter().for_each(|&rank| units[rank].push(op(kind.clone())));
}

fn make(job: &mut Job, mistake: &Mistake) {
    let rank = mistake.rank % job.ranks.len();
    let comms = &job.comms;
    let units = &mut job.ranks[rank];
    if units.is_empty() {
        return;
    }
    let (at, other) = (mistake.unit % units.len(), mistake.value % units.len());
    if units[at].ops.is_empty() {
        return;
    }
    let member = mistake.op % units[at].ops.len();
    let next = at + 1;
    match mistake.what {
        0 => drop(units.remove(at)),
        1 => drop(units[at].ops.remove(member)),
        2 => units.swap(at, other),
        3 => {
            let other = mistake.value % units[at].ops.len();
            units[at].ops.swap(member, other);
        }
        // Out of its group, before or after it.
        4 => {
            let op = units[at].ops.remove(member);
            units.insert(at + mistake.value % 2, Unit { ops: vec![op], group: false });
        }
        5 if next < units.len() => {
            let merged = units.remove(next);
            units[at].ops.extend(merged.ops);
            units[at].group = true;
        }
        6 => units[at].group |= mistake.value > 2,
        _ => {
            let op = &mut units[at].ops[member];
            let size = |comm: usize| comms[comm].iter().find(|part| part.contains(&rank)).map_or(1, Vec::len);
            let number = mistake.value % size(op.comm);
            match (mistake.what, &mut op.kind) {
                (7, Kind::SendRecv { recv_count, .. }) => *recv_count += 1,
                (7, _) => op.count += 1,
                (8, _) => op.dtype = 1 - op.dtype,
                (9, Kind::AllReduce { reduce }) => *reduce = 1 - *reduce,
                (9, kind) => *kind = Kind::AllGather { whole: op.count * size(op.comm) as u64 },
                (12, Kind::AllGather { whole } | Kind::Gather { whole, .. }) => *whole += 1,
                (10, Kind::Broadcast { root: it } | Kind::Gather { root: it, .. }) => *it = number,
                (10, Kind::Send { peer: it } | Kind::Recv { peer: it } | Kind::SendRecv { to: it, .. }) => {
                    *it = number
                }
                // Another communicator, where whatever it names exists.
                (11, kind) => {
                    op.comm = mistake.value % comms.len();
                    let size = size(op.comm);
                    match kind {
                        Kind::Broadcast { root: it } => *it %= size,
                        Kind::Gather { root: it, whole } => {
                            (*it, *whole) = (*it % size, op.count * size as u64)
                        }
                        Kind::AllGather { whole } => *whole = op.count * size as u64,
                        Kind::Send { peer: it } | Kind::Recv { peer: it } => *it %= size,
                        Kind::SendRecv { to, from, .. } => (*to, *from) = (*to % size, *from % size),
                        Kind::AllReduce { .. } | Kind::AllToAll => {}
                    }
                }
                _ => {}
            }
        }
    }
    // A lone op is one op, and a unit without ops is an empty group.
    units.iter_mut().for_each(|unit| unit.group |= unit.ops.len() != 1);
}

/// The graphs of a job; every op has buffers of its own.
pub(crate) fn graphs(
    job: &Job,
    splits: &[Split],
    registry: &Registry,
    device: &str,
) -> Result<Vec<TaskGraph>, Problems> {
    let mut world = World::new(job.ranks.len() as u64).unwrap();
    for (index, split) in splits.iter().enumerate().skip(1) {
        world.split(&format!("comm {index}"), |rank| split[rank as usize]).unwrap();
    }
    let world = Arc::new(world);
    let (mut graphs, mut problems) = (Vec::new(), Vec::new());
    for (rank, units) in job.ranks.iter().enumerate() {
        let mut builder = TaskGraph::builder(registry, &world, rank as u32, device);
        let mut buffers = 0;
        for (place, unit) in units.iter().enumerate() {
            let ops: Vec<OpSpec> = unit
                .ops
                .iter()
                .map(|op| {
                    let size =
                        job.comms[op.comm].iter().find(|part| part.contains(&rank)).map_or(1, Vec::len);
                    spec(op, size as u64, |len| {
                        buffers += 1;
                        let dtype = [DType::F32, DType::I32][op.dtype];
                        let name = format!("b{buffers}");
                        builder.buffer(BufferDecl::new(&name, dtype, [len]).upload(Upload::First)).into()
                    })
                })
                .collect();
            let name = format!("rank {rank} unit {place}");
            if unit.group {
                builder.step(ops.into_iter().fold(GroupSpec::new(), GroupSpec::with).named(name));
            } else {
                builder.step(ops[0].clone().named(name));
            }
        }
        match builder.build() {
            Ok(graph) => graphs.push(graph),
            Err(Problems(found)) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(graphs) } else { Err(Problems(problems)) }
}

fn spec(op: &Op, size: u64, mut buffer: impl FnMut(u64) -> ArgValue) -> OpSpec {
    let number = |n: usize| ArgValue::Int(n as i64);
    let (count, all) = (op.count, op.count * size);
    let spec = match op.kind {
        Kind::AllReduce { reduce } => {
            OpSpec::new("all_reduce").arg("buffer", buffer(count)).arg("reduce", ["sum", "max"][reduce])
        }
        Kind::Broadcast { root } => {
            OpSpec::new("broadcast").arg("buffer", buffer(count)).arg("root", number(root))
        }
        Kind::AllGather { whole } => {
            OpSpec::new("all_gather").arg("send", buffer(count)).arg("recv", buffer(whole))
        }
        Kind::AllToAll => OpSpec::new("all_to_all").arg("send", buffer(all)).arg("recv", buffer(all)),
        Kind::Gather { root, whole } => {
            let gather = OpSpec::new("gather").arg("send", buffer(count)).arg("recv", buffer(whole));
            gather.arg("root", number(root))
        }
        Kind::Send { peer } => OpSpec::new("send").arg("buffer", buffer(count)).arg("peer", number(peer)),
        Kind::Recv { peer } => OpSpec::new("recv").arg("buffer", buffer(count)).arg("peer", number(peer)),
        Kind::SendRecv { to, from, recv_count } => {
            let both = OpSpec::new("send_recv").arg("send", buffer(count)).arg("recv", buffer(recv_count));
            both.arg("to", number(to)).arg("from", number(from))
        }
    };
    spec.on(CommId(op.comm as u32))
}
