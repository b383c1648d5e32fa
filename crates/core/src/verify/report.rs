//! One report a cause: what many ranks share is said once.

use std::collections::HashMap;

use crate::codes;
use crate::diagnostic::{Diagnostic, Span};

/// Folds reports of one kind about one task into the first of them, with a count, and sorts by place.
pub(crate) fn fold(problems: Vec<Diagnostic>) -> Vec<Diagnostic> {
    type Key = (&'static str, Option<Span>, Option<String>);
    let mut places: HashMap<Key, usize> = HashMap::new();
    let mut folded: Vec<(Diagnostic, usize)> = Vec::new();
    for problem in problems {
        let key = (problem.code.0, problem.primary.span, problem.primary.task.clone());
        // Each deadlock has its own cycle.
        let once = problem.code == codes::DEADLOCK || problem.code == codes::UNDEFINED;
        match places.get(&key) {
            Some(&index) if !once => folded[index].1 += 1,
            _ => {
                places.insert(key, folded.len());
                folded.push((problem, 0));
            }
        }
    }
    let mut out: Vec<Diagnostic> = folded
        .into_iter()
        .map(|(mut problem, more)| {
            if more > 0 {
                let plural = if more == 1 { "" } else { "s" };
                problem.message += &format!(" (and {more} more such report{plural} for this task)");
            }
            problem
        })
        .collect();
    out.sort_by_key(|p| p.primary.span.map_or(u32::MAX, |span| span.start));
    out
}
