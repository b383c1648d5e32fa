//! Whether ranks wait for each other in a cycle.

use std::collections::{BTreeMap, VecDeque};

use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::graph::OpTask;
use crate::task::Meeting;
use crate::verify::columns::{Column, draw};
use crate::verify::matching::{Matched, Units};
use crate::words::count;
use crate::world::CommId;

/// Lets the ranks run to their end, and explains it if they cannot.
pub(super) fn check(units: &Units<'_>, matched: &Matched, problems: &mut Vec<Diagnostic>) {
    let mut components = Components::of(units, matched);
    let heads = components.run(units, |_, _| {});
    let stuck: Vec<u32> = (0..units.world.size()).filter(|&r| heads[r as usize] < units.of(r).end).collect();
    if stuck.is_empty() {
        return;
    }
    let meetings = Meetings::of(units, matched);
    let undefined = meetings.finish_apart(units);
    let awaited = meetings.awaited(units, &heads);
    let mut walks = vec![None; heads.len()];
    // Cycles through the same tasks are one report: its first cycle, and how many there are.
    let mut kinds: BTreeMap<Vec<(&str, &str)>, (Cycle, u64)> = BTreeMap::new();
    for &rank in &stuck {
        if let Some(cycle) = cycle(rank, units, &heads, &awaited, &mut walks) {
            kinds.entry(kind(units, &heads, &cycle)).or_insert((cycle, 0)).1 += 1;
        }
    }
    problems
        .extend(kinds.values().map(|(cycle, cycles)| report(units, &heads, cycle, undefined, cycles - 1)));
}

/// Ranks, each with the unit that it waits for: one of the next, and at the end one of the first.
type Cycle = Vec<(u32, u32)>;

/// The tasks of a cycle, each with the one that is waited for there.
fn kind<'a>(units: &Units<'a>, heads: &[u32], cycle: &[(u32, u32)]) -> Vec<(&'a str, &'a str)> {
    let name = |unit: u32| units.list[unit as usize].node.origin.name.as_str();
    let mut kind: Vec<_> =
        cycle.iter().map(|&(rank, awaited)| (name(heads[rank as usize]), name(awaited))).collect();
    kind.sort_unstable();
    kind.dedup();
    kind
}

/// Units that complete together, by union-find.
pub(super) struct Components {
    parent: Vec<u32>,
    /// Of each root: how many units it stands for, and how many of them are posted.
    size: Vec<u32>,
    posted: Vec<u32>,
    /// The units of a component as a ring, to walk them when it completes.
    next: Vec<u32>,
}

impl Components {
    pub(super) fn of(units: &Units<'_>, matched: &Matched) -> Components {
        let count = units.list.len() as u32;
        let mut components = Components {
            parent: (0..count).collect(),
            size: vec![1; count as usize],
            posted: vec![0; count as usize],
            next: (0..count).collect(),
        };
        for meeting in 0..matched.len() {
            if let Some((&first, others)) = matched.units(meeting).split_first() {
                others.iter().for_each(|&other| components.unite(first, other));
            }
        }
        components
    }

    fn find(&mut self, mut unit: u32) -> u32 {
        while self.parent[unit as usize] != unit {
            let grand = self.parent[self.parent[unit as usize] as usize];
            self.parent[unit as usize] = grand;
            unit = grand;
        }
        unit
    }

    fn unite(&mut self, a: u32, b: u32) {
        let (mut a, mut b) = (self.find(a), self.find(b));
        if a == b {
            return;
        }
        if self.size[a as usize] < self.size[b as usize] {
            std::mem::swap(&mut a, &mut b);
        }
        self.parent[b as usize] = a;
        self.size[a as usize] += self.size[b as usize];
        self.next.swap(a as usize, b as usize); // joins the two rings
    }

    /// Posts units until no component can complete; returns the unit that each rank stands at. `complete` is told of every
    /// component that does and of each of its units, one component after the other.
    pub(super) fn run(&mut self, units: &Units<'_>, mut complete: impl FnMut(u32, u32)) -> Vec<u32> {
        let ranks = units.world.size();
        let mut heads: Vec<u32> = (0..ranks).map(|rank| units.of(rank).start).collect();
        let mut ready: VecDeque<u32> = (0..ranks).collect();
        while let Some(rank) = ready.pop_front() {
            let head = heads[rank as usize];
            if head == units.of(rank).end {
                continue;
            }
            let root = self.find(head);
            self.posted[root as usize] += 1;
            // Two units of one rank in a component: the second is never posted, and the component never completes.
            if self.posted[root as usize] == self.size[root as usize] {
                let mut unit = root;
                loop {
                    complete(root, unit);
                    let rank = units.list[unit as usize].rank;
                    heads[rank as usize] += 1;
                    ready.push_back(rank);
                    unit = self.next[unit as usize];
                    if unit == root {
                        break;
                    }
                }
            }
        }
        heads
    }
}

/// The meetings of each unit. Only made when there is a deadlock to explain.
struct Meetings<'a> {
    matched: &'a Matched,
    of_unit: Vec<Vec<u32>>,
}

impl<'a> Meetings<'a> {
    fn of(units: &Units<'_>, matched: &'a Matched) -> Meetings<'a> {
        let mut of_unit = vec![Vec::new(); units.list.len()];
        for meeting in 0..matched.len() {
            for &unit in matched.units(meeting) {
                of_unit[unit as usize].push(meeting as u32);
            }
        }
        Meetings { matched, of_unit }
    }

    /// Of each unit a partner to wait for: the next one on the shortest way, over meetings, to a unit that its rank
    /// does not stand at.
    fn awaited(&self, units: &Units<'_>, heads: &[u32]) -> Vec<Option<u32>> {
        let posted = |unit: u32| heads[units.list[unit as usize].rank as usize] == unit;
        let count = units.list.len() as u32;
        let mut next: Vec<Option<u32>> = (0..count).map(|unit| (!posted(unit)).then_some(unit)).collect();
        let mut passed = vec![false; self.matched.len()];
        let mut queue: VecDeque<u32> = (0..count).filter(|&unit| !posted(unit)).collect();
        while let Some(unit) = queue.pop_front() {
            for &meeting in &self.of_unit[unit as usize] {
                if std::mem::replace(&mut passed[meeting as usize], true) {
                    continue;
                }
                for &partner in self.matched.units(meeting as usize) {
                    let next = &mut next[partner as usize];
                    if next.is_none() {
                        *next = Some(unit);
                        queue.push_back(partner);
                    }
                }
            }
        }
        next
    }

    /// Whether the ranks would finish if each member of a group completed as soon as its own partners are posted.
    fn finish_apart(&self, units: &Units<'_>) -> bool {
        let mut missing: Vec<u32> =
            (0..self.matched.len()).map(|m| self.matched.units(m).len() as u32).collect();
        let mut open: Vec<u32> = self.of_unit.iter().map(|m| m.len() as u32).collect();
        let mut heads: Vec<u32> = (0..units.world.size()).map(|rank| units.of(rank).start).collect();
        let mut ready: VecDeque<u32> = (0..units.world.size()).collect();
        while let Some(rank) = ready.pop_front() {
            let head = heads[rank as usize];
            if head == units.of(rank).end {
                continue;
            }
            for &meeting in &self.of_unit[head as usize] {
                missing[meeting as usize] -= 1;
                if missing[meeting as usize] > 0 {
                    continue;
                }
                for &unit in self.matched.units(meeting as usize) {
                    open[unit as usize] -= 1;
                    if open[unit as usize] == 0 {
                        let rank = units.list[unit as usize].rank;
                        heads[rank as usize] += 1;
                        ready.push_back(rank);
                    }
                }
            }
        }
        (0..units.world.size()).all(|rank| heads[rank as usize] == units.of(rank).end)
    }
}

/// Follows who waits for whom from a stuck rank until a rank comes again: ranks, each with the unit it waits for.
/// `None` if that leads into a walk that was made before. `walks` holds of each rank the walk it was passed on, by where
/// that began, and its place there.
fn cycle(
    start: u32,
    units: &Units<'_>,
    heads: &[u32],
    awaited: &[Option<u32>],
    walks: &mut [Option<(u32, usize)>],
) -> Option<Cycle> {
    let mut path = Cycle::new();
    let mut rank = start;
    loop {
        match walks[rank as usize] {
            Some((walk, place)) if walk == start => return Some(path.split_off(place)),
            Some(_) => return None,
            None => walks[rank as usize] = Some((start, path.len())),
        }
        let unit = awaited[heads[rank as usize] as usize]?;
        path.push((rank, unit));
        rank = units.list[unit as usize].rank;
    }
}

/// The most ranks of a cycle that a report names.
const MOST: usize = 8;

fn report(units: &Units<'_>, heads: &[u32], cycle: &[(u32, u32)], undefined: bool, more: u64) -> Diagnostic {
    let name = |unit: u32| &units.list[unit as usize].node.origin.name;
    let several = units.world.comms().count() > 1;
    let ops = |unit: u32| match units.list[unit as usize].node.ops() {
        [one] if several => format!("`{}` on `{}`", one.op.name(), units.world.name(one.comm)),
        [one] => format!("`{}`", one.op.name()),
        _ => format!("the group `{}`", name(unit)),
    };
    let mut waits: Vec<String> = cycle
        .iter()
        .take(MOST)
        .map(|&(rank, awaited)| {
            let head = ops(heads[rank as usize]);
            match units.list[awaited as usize].rank {
                other if other == rank => {
                    format!("rank {rank} waits in {head} for its own `{}`", name(awaited))
                }
                other => format!("rank {rank} waits in {head} for rank {other}"),
            }
        })
        .collect();
    if cycle.len() > MOST {
        waits.push(format!("and so on over {} more ranks to rank {}", cycle.len() - MOST, cycle[0].0));
    }
    if more > 0 {
        waits.push(format!("and {} like this", count(more, "more cycle")));
    }
    let (code, text) = if undefined {
        let text =
            "finishes only if members of a group progress apart from each other, which NCCL leaves undefined";
        (codes::UNDEFINED, format!("this {text}: {}", waits.join("; ")))
    } else {
        (codes::DEADLOCK, format!("deadlock: {}", waits.join("; ")))
    };
    let lone_transfers = cycle.iter().all(|&(rank, _)| {
        let ops = units.list[heads[rank as usize] as usize].node.ops();
        ops.iter().all(|op| op.description.meetings.iter().all(|m| !matches!(m, Meeting::Collective(_))))
    });
    let help = if lone_transfers {
        "let the sends and receives that belong together stand in one group on every rank, or use `send_recv`"
    } else {
        "let all ranks come to these tasks in the same order"
    };
    let mut labels = cycle.iter().take(MOST).map(|&(rank, awaited)| {
        let text = format!("waits for `{}` of rank {}", name(awaited), units.list[awaited as usize].rank);
        units.label(heads[rank as usize], text)
    });
    let primary = labels.next().unwrap_or_default();
    let mut report = Diagnostic::error(code, text, primary).with_help(help);
    report.related = labels.collect();
    report.with_drawing(drawing(units, heads, cycle))
}

/// The most ranks of a cycle that a drawing shows, and the most units that it shows of one between where the rank stands and what is
/// awaited of it.
const DRAWN: usize = 3;
const BETWEEN: usize = 2;

/// Who waits for whom; and of some ranks, side by side, the unit each stands at (`>`) and the one that the rank before waits for (`*`), which may be the same.
fn drawing(units: &Units<'_>, heads: &[u32], cycle: &[(u32, u32)]) -> String {
    let ranks = cycle.iter().take(MOST).map(|(rank, _)| format!("rank {rank} -> "));
    let more = if cycle.len() > MOST { "... -> " } else { "" };
    let chain: String = ranks.collect();
    let columns = (0..cycle.len().min(DRAWN)).map(|place| {
        let (rank, _) = cycle[place];
        let (_, awaited) = cycle[(place + cycle.len() - 1) % cycle.len()];
        let head = heads[rank as usize];
        let between: Vec<u32> = (head + 1..awaited).collect();
        let left_out = between.len().saturating_sub(BETWEEN);
        let line = |mark: &str, unit| format!("{mark:<2} {}", what(units, unit));
        let mut lines = vec![line(if head == awaited { ">*" } else { ">" }, head)];
        lines.extend(between.iter().take(BETWEEN).map(|&unit| line("", unit)));
        lines.extend((left_out > 0).then(|| format!("   {left_out} more")));
        lines.extend((head != awaited).then(|| line("*", awaited)));
        Column { head: format!("   rank {rank}"), lines }
    });
    let columns: Vec<Column> = columns.collect();
    format!(
        "{chain}{more}rank {}; each stands at `>`, and the one before it waits for `*`\n{}",
        cycle[0].0,
        draw(&columns)
    )
}

/// A unit in a few words: its task, and what it does.
fn what(units: &Units<'_>, unit: u32) -> String {
    let node = units.list[unit as usize].node;
    let op = |op: &OpTask| {
        let peers: String = op
            .description
            .meetings
            .iter()
            .map(|meeting| match meeting {
                Meeting::Send(message) => format!(" to {}", message.peer),
                Meeting::Recv(message) => format!(" from {}", message.peer),
                Meeting::Collective(_) => String::new(),
            })
            .collect();
        let comm = if op.comm == CommId::WORLD {
            String::new()
        } else {
            format!(" on {}", units.world.name(op.comm))
        };
        format!("{}{peers}{comm}", op.op.name())
    };
    let ops: Vec<String> = node.ops().iter().map(op).collect();
    format!("{}: {}", node.origin.name, ops.join(", "))
}
