//! One report a cause: what many ranks share is said once.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use crate::codes;
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::words::count;

/// Reports each of which speaks of all ranks of a communicator's part.
const OF_MANY: [Code; 5] = [codes::MISMATCH, codes::ORDER, codes::UNREACHED, codes::BOUNDARIES, codes::PARTS];

/// What was folded into a report.
#[derive(Default)]
struct Folded {
    more: u64,
    /// Whether one of them said something else.
    differs: bool,
    ranks: BTreeSet<Option<u32>>,
    tasks: BTreeSet<Option<String>>,
}

impl Folded {
    /// Of how many others it was said: what comes behind the message.
    fn others(&self, first: &Diagnostic) -> String {
        let (ranks, tasks) = (self.ranks.len() as u64, self.tasks.len() as u64);
        match (self.more, self.differs) {
            (0, _) => String::new(),
            (_, false) if ranks > 1 && tasks == 1 => format!(" (and on {})", count_more(ranks - 1, "rank")),
            (_, false) if ranks == 1 && tasks > 1 => format!(" (and in {})", count_more(tasks - 1, "task")),
            (more, true) if ranks == more + 1 && tasks == 1 && !OF_MANY.contains(&first.code) => {
                format!(" (and likewise on {})", count_more(more, "rank"))
            }
            (more, _) => {
                let place =
                    if tasks == 1 && first.primary.task.is_some() { "this task" } else { "this place" };
                format!(" (and {} for {place})", count_more(more, "such report"))
            }
        }
    }
}

fn count_more(number: u64, what: &str) -> String {
    count(number, &format!("more {what}"))
}

/// Folds reports of one kind about one place into the first of them, with a count, and sorts by place. Ranks and the rounds of a loop
/// have a place in common; without a place, a task.
pub(crate) fn fold(problems: Vec<Diagnostic>) -> Vec<Diagnostic> {
    fold_where(problems, |_| false)
}

/// The same where not all ranks were looked at: of reports for which `few` holds, others are not counted.
pub(crate) fn fold_where(problems: Vec<Diagnostic>, few: impl Fn(&Diagnostic) -> bool) -> Vec<Diagnostic> {
    type Key = (&'static str, Option<Span>, Option<String>, String);
    let mut places: HashMap<Key, usize> = HashMap::new();
    let mut folded: Vec<(Diagnostic, Folded)> = Vec::new();
    for problem in problems {
        // A task may read several buffers that nothing wrote: each is a matter of its own.
        let subject =
            if problem.code == codes::UNWRITTEN { problem.primary.text.clone() } else { String::new() };
        let task = if problem.primary.span.is_none() { problem.primary.task.clone() } else { None };
        let key = (problem.code.0, problem.primary.span, task, subject);
        // Each deadlock has its own tasks.
        let once = problem.code == codes::DEADLOCK || problem.code == codes::UNDEFINED;
        let (rank, task) = (problem.primary.rank, problem.primary.task.clone());
        let index = match places.get(&key) {
            Some(&index) if !once => {
                let (first, others) = &mut folded[index];
                others.more += 1;
                others.differs |= first.message != problem.message;
                index
            }
            _ => {
                places.insert(key, folded.len());
                folded.push((problem, Folded::default()));
                folded.len() - 1
            }
        };
        let others = &mut folded[index].1;
        others.ranks.insert(rank);
        others.tasks.insert(task);
    }
    let told = |(mut problem, others): (Diagnostic, Folded)| {
        problem.message += &match few(&problem) {
            true => " (and on other ranks)".to_string(),
            false => others.others(&problem),
        };
        problem
    };
    let mut out: Vec<Diagnostic> = folded.into_iter().map(told).collect();
    out.sort_by_key(|p| p.primary.span.map_or(u32::MAX, |span| span.start));
    out
}

/// Ranks in words, ascending: `rank 0`, `ranks 1 to 5 and 7`.
pub(crate) struct Ranks<'a>(pub(crate) &'a [u32]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 8;
        // Each as its words and how many ranks they stand for.
        let runs = self.0.chunk_by(|a, b| a + 1 == *b).flat_map(|run| match run {
            [first, .., last] if run.len() > 2 => vec![(format!("{first} to {last}"), run.len())],
            few => few.iter().map(|rank| (rank.to_string(), 1)).collect(),
        });
        let (mut items, counts): (Vec<String>, Vec<usize>) = runs.take(MOST).unzip();
        let more = self.0.len() - counts.iter().sum::<usize>();
        if more > 0 {
            items.push(format!("{more} more"));
        }
        let noun = if self.0.len() == 1 { "rank" } else { "ranks" };
        match items.as_slice() {
            [] => write!(f, "no rank"),
            [only] => write!(f, "{noun} {only}"),
            [items @ .., last] => write!(f, "{noun} {} and {last}", items.join(", ")),
        }
    }
}

/// Which ranks have which value: `bf16 on rank 0 and f32 on ranks 1 to 3`. In the order of the pairs.
pub(super) fn by_value(pairs: impl Iterator<Item = (u32, String)>) -> String {
    const MOST: usize = 4;
    let mut values: Vec<(String, Vec<u32>)> = Vec::new();
    let mut others = Vec::new();
    for (rank, value) in pairs {
        match values.iter().position(|(other, _)| *other == value) {
            Some(index) => values[index].1.push(rank),
            None if values.len() < MOST => values.push((value, vec![rank])),
            None => others.push(rank),
        }
    }
    let mut items: Vec<String> =
        values.into_iter().map(|(value, ranks)| format!("{value} on {}", Ranks(&ranks))).collect();
    if !others.is_empty() {
        items.push(format!("other values on {}", Ranks(&others)));
    }
    match items.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => items.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_words() {
        let say = |ranks: &[u32]| Ranks(ranks).to_string();
        assert_eq!(say(&[3]), "rank 3");
        assert_eq!(say(&[1, 2]), "ranks 1 and 2");
        assert_eq!(say(&[0, 2, 3, 4, 9]), "ranks 0, 2 to 4 and 9");
        let even: Vec<u32> = (0..100).map(|r| 2 * r).collect();
        assert_eq!(say(&even), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 92 more");
        let mixed: Vec<u32> = (0..7).map(|r| 2 * r).chain([20, 21]).chain(30..40).collect();
        assert_eq!(say(&mixed), "ranks 0, 2, 4, 6, 8, 10, 12, 20 and 11 more");
    }

    #[test]
    fn values_with_their_ranks() {
        let say = |values: &[&str]| by_value((0..).zip(values.iter().map(ToString::to_string)));
        assert_eq!(say(&["a", "b"]), "a on rank 0 and b on rank 1");
        assert_eq!(say(&["a", "b", "a", "c"]), "a on ranks 0 and 2, b on rank 1 and c on rank 3");
        assert_eq!(
            say(&["a", "b", "c", "d", "e", "f", "a"]),
            "a on ranks 0 and 6, b on rank 1, c on rank 2, d on rank 3 and other values on ranks 4 and 5"
        );
    }
}
