//! A slow simulator of the rules of verification, written from their text alone: it shares no code with the verifier,
//! looks at every pair, and plays the job round by round.

use std::collections::BTreeSet;

use crate::random::{Job, Kind, Op};

/// What must become of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    SelfSend,
    Mismatch,
    Parts,
    Order,
    Unreached,
    Boundaries,
    UnmatchedSend,
    UnmatchedRecv,
    Sides,
    Deadlock,
    Undefined,
}

/// One thing to be met by others: everything that distinguishes it, spelled out.
#[derive(Clone, Debug, PartialEq)]
enum Meeting {
    /// The `number`-th collective of this rank on this communicator.
    Collective {
        comm: usize,
        number: usize,
        op: &'static str,
        values: Vec<u64>,
        /// This rank's part, and what it holds of the whole: not compared, but added up.
        parts: Option<(u64, Option<u64>)>,
    },
    Send {
        comm: usize,
        number: usize,
        to: usize,
        size: (u64, usize),
    },
    Recv {
        comm: usize,
        number: usize,
        from: usize,
        size: (u64, usize),
    },
}

/// Of each rank, of each of its units the meetings.
type Meetings = Vec<Vec<Vec<Meeting>>>;

impl Job {
    fn part(&self, comm: usize, rank: usize) -> &[usize] {
        self.comms[comm].iter().find(|part| part.contains(&rank)).unwrap()
    }

    fn meetings(&self) -> Meetings {
        (0..self.ranks.len()).map(|rank| self.meetings_of(rank)).collect()
    }

    fn meetings_of(&self, rank: usize) -> Vec<Vec<Meeting>> {
        // Everything issued so far, to count from.
        let mut issued: Vec<Meeting> = Vec::new();
        let mut units = Vec::new();
        for unit in &self.ranks[rank] {
            let start = issued.len();
            for Op { comm, kind, count, dtype } in &unit.ops {
                let comm = *comm;
                let peer = |p: &usize| self.part(comm, rank)[*p];
                let collective = |issued: &[Meeting], op, more: &[u64]| {
                    let same = |m: &&Meeting| matches!(m, Meeting::Collective { comm: c, .. } if *c == comm);
                    let number = issued.iter().filter(same).count();
                    let parts = match kind {
                        Kind::AllGather { whole } => Some((*count, Some(*whole))),
                        Kind::Gather { root, whole } => {
                            Some((*count, (self.part(comm, rank)[*root] == rank).then_some(*whole)))
                        }
                        _ => None,
                    };
                    let mut values = vec![*dtype as u64];
                    values.extend(parts.is_none().then_some(*count));
                    values.extend(more);
                    Meeting::Collective { comm, number, op, values, parts }
                };
                let send = |issued: &[Meeting], to: usize| {
                    let same = |m: &&Meeting| matches!(m, Meeting::Send { comm: c, to: t, .. } if (*c, *t) == (comm, to));
                    Meeting::Send {
                        comm,
                        number: issued.iter().filter(same).count(),
                        to,
                        size: (*count, *dtype),
                    }
                };
                let recv = |issued: &[Meeting], from: usize, count: u64| {
                    let same = |m: &&Meeting| matches!(m, Meeting::Recv { comm: c, from: f, .. } if (*c, *f) == (comm, from));
                    Meeting::Recv {
                        comm,
                        number: issued.iter().filter(same).count(),
                        from,
                        size: (count, *dtype),
                    }
                };
                let next = match kind {
                    Kind::AllReduce { reduce } => collective(&issued, "all_reduce", &[*reduce as u64]),
                    Kind::Broadcast { root } => collective(&issued, "broadcast", &[*root as u64]),
                    Kind::AllGather { .. } => collective(&issued, "all_gather", &[]),
                    Kind::AllToAll => collective(&issued, "all_to_all", &[]),
                    Kind::Gather { root, .. } => collective(&issued, "gather", &[*root as u64]),
                    Kind::Send { peer: to } => send(&issued, peer(to)),
                    Kind::Recv { peer: from } => recv(&issued, peer(from), *count),
                    Kind::SendRecv { to, from, recv_count } => {
                        issued.push(send(&issued, peer(to)));
                        recv(&issued, peer(from), *recv_count)
                    }
                };
                issued.push(next);
            }
            units.push(issued[start..].to_vec());
        }
        units
    }

    /// What is wrong with the job by the rules; empty when every rank reaches its end.
    pub(crate) fn faults(&self) -> BTreeSet<Fault> {
        let mut faults = BTreeSet::new();
        for (rank, units) in self.ranks.iter().enumerate() {
            for unit in units.iter().filter(|unit| !unit.group) {
                let to_itself = |op: &Op| match op.kind {
                    Kind::Send { peer } | Kind::Recv { peer } => self.part(op.comm, rank)[peer] == rank,
                    _ => false,
                };
                if unit.ops.iter().any(to_itself) {
                    faults.insert(Fault::SelfSend);
                }
            }
        }
        if !faults.is_empty() {
            return faults; // the graph of that rank does not come to be
        }
        let meetings = self.meetings();
        self.collective_faults(&meetings, &mut faults);
        self.transfer_faults(&meetings, &mut faults);
        if faults.is_empty() && !self.runs_jointly(&meetings) {
            faults.insert(if self.runs_apart(&meetings) { Fault::Undefined } else { Fault::Deadlock });
        }
        faults
    }

    /// Compares every two members of every communicator, one position after another, up to the first that differs in
    /// more than its group.
    fn collective_faults(&self, meetings: &Meetings, faults: &mut BTreeSet<Fault>) {
        for (comm, parts) in self.comms.iter().enumerate() {
            for part in parts {
                for (i, &a) in part.iter().enumerate() {
                    for &b in &part[i + 1..] {
                        self.pair_faults(meetings, comm, (a, b), faults);
                    }
                }
                self.part_faults(meetings, comm, part, faults);
            }
        }
    }

    /// Adds up the parts of every collective that all ranks call alike.
    fn part_faults(&self, meetings: &Meetings, comm: usize, part: &[usize], faults: &mut BTreeSet<Fault>) {
        for position in 0.. {
            let calls: Vec<&Meeting> = part
                .iter()
                .filter_map(|&rank| {
                    let all = meetings[rank].iter().flatten();
                    all.filter(|m| matches!(m, Meeting::Collective { comm: c, .. } if *c == comm))
                        .nth(position)
                })
                .collect();
            if calls.len() < part.len() {
                return;
            }
            if calls.iter().any(|call| !alike(call, calls[0])) {
                continue;
            }
            let parts = || {
                calls.iter().filter_map(|call| match call {
                    Meeting::Collective { parts, .. } => *parts,
                    _ => None,
                })
            };
            let sum: u64 = parts().map(|(part, _)| part).sum();
            if parts().any(|(_, whole)| whole.is_some_and(|whole| whole != sum)) {
                faults.insert(Fault::Parts);
            }
        }
    }

    fn pair_faults(
        &self,
        meetings: &Meetings,
        comm: usize,
        (a, b): (usize, usize),
        faults: &mut BTreeSet<Fault>,
    ) {
        let calls = |rank: usize| -> Vec<(usize, &Meeting)> {
            let units = meetings[rank].iter().enumerate();
            units
                .flat_map(|(unit, all)| all.iter().map(move |m| (unit, m)))
                .filter(|(_, m)| matches!(m, Meeting::Collective { comm: c, .. } if *c == comm))
                .collect()
        };
        // What a call's unit does together, as far as both ranks take part in it.
        let together = |rank: usize, unit: usize| -> Vec<(usize, usize)> {
            meetings[rank][unit]
                .iter()
                .filter_map(|m| match m {
                    Meeting::Collective { comm, number, .. } => Some((*comm, *number)),
                    _ => None,
                })
                .filter(|(comm, _)| self.part(*comm, a) == self.part(*comm, b))
                .collect()
        };
        let (of_a, of_b) = (calls(a), calls(b));
        for ((unit_a, x), (unit_b, y)) in of_a.iter().zip(&of_b) {
            let (Meeting::Collective { op: op_x, .. }, Meeting::Collective { op: op_y, .. }) = (x, y) else {
                unreachable!("only collectives were taken");
            };
            if !alike(x, y) {
                faults.insert(if op_x == op_y { Fault::Mismatch } else { Fault::Order });
                return;
            }
            if together(a, *unit_a) != together(b, *unit_b) {
                faults.insert(Fault::Boundaries);
            }
        }
        if of_a.len() != of_b.len() {
            faults.insert(Fault::Unreached);
        }
    }

    /// Looks for the partner of every send and of every receive.
    fn transfer_faults(&self, meetings: &Meetings, faults: &mut BTreeSet<Fault>) {
        for rank in 0..self.ranks.len() {
            for meeting in meetings[rank].iter().flatten() {
                let (fault, size) = match meeting {
                    Meeting::Collective { .. } => continue,
                    Meeting::Send { size, .. } => (Fault::UnmatchedSend, size),
                    Meeting::Recv { size, .. } => (Fault::UnmatchedRecv, size),
                };
                let partner = partners(self, rank, meeting)[0];
                match meetings[partner].iter().flatten().find(|m| meets(rank, meeting, partner, m)) {
                    None => {
                        faults.insert(fault);
                    }
                    Some(Meeting::Send { size: other, .. } | Meeting::Recv { size: other, .. })
                        if other != size =>
                    {
                        faults.insert(Fault::Sides);
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// Whether every rank comes to its end when a unit completes as a whole.
    fn runs_jointly(&self, meetings: &Meetings) -> bool {
        let mut at = vec![0; self.ranks.len()];
        loop {
            // Start from all posted units, and take out what has a partner outside until nothing is left to take.
            let mut set: Vec<usize> = (0..at.len()).filter(|&rank| at[rank] < meetings[rank].len()).collect();
            if set.is_empty() {
                return true;
            }
            loop {
                let stays = |&rank: &usize| {
                    meetings[rank][at[rank]].iter().all(|meeting| {
                        partners(self, rank, meeting).iter().all(|&partner| {
                            set.contains(&partner)
                                && meetings[partner][at[partner]]
                                    .iter()
                                    .any(|m| meets(rank, meeting, partner, m))
                        })
                    })
                };
                let left: Vec<usize> = set.iter().copied().filter(stays).collect();
                if left.len() == set.len() {
                    break;
                }
                set = left;
            }
            if set.is_empty() {
                return false;
            }
            set.iter().for_each(|&rank| at[rank] += 1);
        }
    }

    /// Whether every rank comes to its end when each member of a group completes as soon as its partners are posted.
    fn runs_apart(&self, meetings: &Meetings) -> bool {
        let mut at = vec![0; self.ranks.len()];
        // A member that was posted is done with once its partners have been posted too, now or before.
        let posted = |at: &[usize], rank: usize, m: &dyn Fn(&Meeting) -> bool| {
            meetings[rank].iter().take(at[rank] + 1).flatten().any(m)
        };
        loop {
            let finished = |rank: usize| {
                meetings[rank].get(at[rank]).is_some_and(|unit| {
                    unit.iter().all(|meeting| {
                        partners(self, rank, meeting)
                            .iter()
                            .all(|&partner| posted(&at, partner, &|m| meets(rank, meeting, partner, m)))
                    })
                })
            };
            let done: Vec<usize> = (0..at.len()).filter(|&rank| finished(rank)).collect();
            if done.is_empty() {
                return (0..at.len()).all(|rank| at[rank] == meetings[rank].len());
            }
            done.into_iter().for_each(|rank| at[rank] += 1);
        }
    }
}

/// Whether two collectives at one position are one, but for their parts.
fn alike(x: &Meeting, y: &Meeting) -> bool {
    match (x, y) {
        (
            Meeting::Collective { comm, number, op, values, .. },
            Meeting::Collective { comm: c, number: n, op: o, values: v, .. },
        ) => (comm, number, op, values) == (c, n, o, v),
        _ => false,
    }
}

/// The world ranks whom a meeting needs.
fn partners(job: &Job, rank: usize, meeting: &Meeting) -> Vec<usize> {
    match meeting {
        Meeting::Collective { comm, .. } => job.part(*comm, rank).to_vec(),
        Meeting::Send { to: other, .. } | Meeting::Recv { from: other, .. } => vec![*other],
    }
}

/// Whether `a` of rank `rank` and `b` of rank `other` meet, be their values equal or not.
fn meets(rank: usize, a: &Meeting, other: usize, b: &Meeting) -> bool {
    match (a, b) {
        (Meeting::Collective { comm, number, .. }, Meeting::Collective { comm: c, number: n, .. }) => {
            (comm, number) == (c, n)
        }
        (Meeting::Send { comm, number, to, .. }, Meeting::Recv { comm: c, number: n, from, .. })
        | (
            Meeting::Recv { comm, number, from: to, .. },
            Meeting::Send { comm: c, number: n, to: from, .. },
        ) => (comm, number) == (c, n) && *to == other && *from == rank,
        _ => false,
    }
}
