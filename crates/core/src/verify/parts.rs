//! Collectives whose ranks divide a whole: whether their parts add up to it, and where each rank's part lies.

use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::ops::Parts;
use crate::task::Share;
use crate::verify::matching::{Call, Calls, Matched, Units, label};
use crate::verify::report::by_value;
use crate::words::count;

/// Checks collective `at` of the ranks `part`, which agree on all else; records their parts where these are unequal.
pub(super) fn check(
    units: &Units<'_>,
    calls: &Calls<'_>,
    part: &[u32],
    at: usize,
    matched: &mut Matched,
    problems: &mut Vec<Diagnostic>,
) {
    let call = |&rank: &u32| calls.of(rank).get(at);
    let Some(first) = part.first().and_then(call) else { return };
    let Some(share) = first.signature.share else { return };
    let known =
        share.whole.is_none_or(|(_, whole)| u128::from(whole) == widened(&share) * part.len() as u128);
    // Ranks that share a node have equal parts, and none in place beside another rank's.
    if known
        && part.len() > 1
        && part.iter().filter_map(call).all(|c| std::ptr::eq(c.signature, first.signature))
    {
        return;
    }
    let members: Vec<Member<'_>> = part
        .iter()
        .filter_map(|&rank| {
            let call = call(&rank)?;
            Some(Member { rank, call, share: call.signature.share? })
        })
        .collect();
    let division = Division { units, comm: units.world.name(calls.channel.1), at, members };
    let found = division.sums().or_else(|| division.places());
    match found {
        Some(report) => problems.push(report),
        None => division.record(matched),
    }
}

fn widened(share: &Share) -> u128 {
    share.part.1.into()
}

/// One rank's call.
struct Member<'a> {
    rank: u32,
    call: &'a Call<'a>,
    share: Share,
}

/// One collective, by rank in the communicator.
struct Division<'a> {
    units: &'a Units<'a>,
    comm: &'a str,
    at: usize,
    members: Vec<Member<'a>>,
}

impl Division<'_> {
    fn total(&self) -> u128 {
        self.members.iter().map(|member| widened(&member.share)).sum()
    }

    fn is_equal(&self) -> bool {
        self.members.windows(2).all(|pair| pair[0].share.part.1 == pair[1].share.part.1)
    }

    fn title(&self, member: &Member<'_>) -> String {
        format!("`{}`, collective {} on `{}`", member.call.signature.op, self.at, self.comm)
    }

    /// A rank whose whole is not the sum of all parts.
    fn sums(&self) -> Option<Diagnostic> {
        let total = self.total();
        let wrong =
            |member: &&Member<'_>| member.share.whole.is_some_and(|(_, whole)| u128::from(whole) != total);
        let member = self.members.iter().find(wrong)?;
        let ((whole, holds), (part, _)) = (member.share.whole?, member.share.part);
        // World ranks are said in their own order.
        let mut members: Vec<&Member<'_>> = self.members.iter().collect();
        members.sort_by_key(|member| member.rank);
        let wholes = members.iter().filter_map(|m| Some((m.rank, count(m.share.whole?.1, "element"))));
        let parts = members.iter().map(|m| (m.rank, m.share.part.1.to_string()));
        let left = match u128::from(holds).checked_sub(total) {
            Some(left) => format!("{left} left over"),
            None => format!("{} too many", total - u128::from(holds)),
        };
        let text = format!(
            "{}: `{whole}` has {}, but the parts in `{part}` are {}, which add up to {total}: {left}",
            self.title(member),
            by_value(wholes),
            by_value(parts)
        );
        let share = match self.comm {
            "world" => format!("share({holds})"),
            comm => format!("share({holds}, rank({comm}), size({comm}))"),
        };
        let unequal = format!("parts that add up to {holds}, as `{share}` on each rank");
        let help = if self.is_equal() {
            let (size, equal) = (count(self.members.len() as u64, "rank"), member.share.part.1);
            format!("give `{whole}` {size} × {equal} = {total} elements, or `{part}` {unequal}")
        } else {
            format!("give `{whole}` {total} elements, the sum of all parts, or `{part}` {unequal}")
        };
        let place = |member: &Member<'_>, param: &'static str, elements: u64| {
            let text = format!("`{param}` has {} here", count(elements, "element"));
            label(self.units, member.call.unit, member.call.op, &[param], text)
        };
        let mut report = Diagnostic::error(codes::PARTS, text, place(member, whole, holds)).with_help(help);
        if let Some(other) = self.members.iter().find(|other| other.share.part.1 != member.share.part.1) {
            report = report.with_related(place(other, part, other.share.part.1));
        }
        Some(report)
    }

    /// Ranks whose part lies in the whole where it does not belong.
    fn places(&self) -> Option<Diagnostic> {
        let mut end = 0u64;
        for member in &self.members {
            let (start, (part, len)) = (end, member.share.part);
            end = start.saturating_add(len);
            let (Some(at), Some((whole, _))) = (member.share.place, member.share.whole) else { continue };
            if at == start {
                continue;
            }
            let text = format!(
                "{}: `{part}` and `{whole}` overlap on rank {}: `{part}` is elements {at} to {} of `{whole}`, but this \
                 rank's own part of it is {start} to {end}",
                self.title(member),
                member.rank,
                at.saturating_add(len)
            );
            let help = format!(
                "to work in place, let `{part}` begin at element {start} of `{whole}`, after the parts of the ranks \
                 before; or let the ranges not overlap"
            );
            let place = label(self.units, member.call.unit, member.call.op, &[part], "not its own part");
            return Some(Diagnostic::error(codes::OVERLAP, text, place).with_help(help));
        }
        None
    }

    fn record(&self, matched: &mut Matched) {
        if self.is_equal() {
            return;
        }
        let Some(parts) = Parts::new(self.members.iter().map(|member| member.share.part.1)) else { return };
        for Member { call, .. } in &self.members {
            let ops = self.units.list[call.unit as usize].node.ops();
            if let Some(member) = ops.iter().position(|op| std::ptr::eq(op, call.op)) {
                matched.parts.push((call.unit, member, parts.clone()));
            }
        }
    }
}
