//! A job for every code of verification. Each must give that one report, at its rank, task and argument, with the
//! values in conflict.

mod one_rank;
mod several_ranks;

use squall_core::{Code, Diagnostic, codes};

use crate::job::place;

struct Case {
    code: Code,
    /// Where the primary label points: a task, a task's argument, or a buffer.
    place: &'static str,
    /// The rank it names.
    rank: Option<u32>,
    /// What the message says.
    says: &'static [&'static str],
    problems: fn() -> Vec<Diagnostic>,
}

fn cases() -> impl Iterator<Item = &'static Case> {
    one_rank::CASES.iter().chain(several_ranks::CASES)
}

#[test]
fn every_case_gives_its_one_report() {
    for case in cases() {
        let problems = (case.problems)();
        let [problem] = problems.as_slice() else {
            panic!("one report of {} at {} expected: {problems:#?}", case.code, case.place)
        };
        let found = (problem.code, place(&problem.primary), problem.primary.rank);
        assert_eq!(found, (case.code, case.place.to_string(), case.rank), "{problem}");
        // A place in a task names the task.
        let task = problem.primary.task.as_deref().unwrap_or(case.place);
        assert_eq!(task, case.place.split('.').next().unwrap(), "{problem}");
        for part in case.says {
            assert!(problem.message.contains(part), "`{part}` is not said by: {problem}");
        }
    }
}

#[test]
fn every_code_of_verification_has_a_case() {
    for (code, meaning) in codes::ALL.iter().filter(|(code, _)| code.0.starts_with("E02")) {
        assert!(cases().any(|case| case.code == *code), "no case for {code}: {meaning}");
    }
}
