//! Random jobs, judged by the verifier and by the oracle: valid ones, and ones with a few mistakes worked in.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use squall_core::{Code, Problems, TaskGraph, codes, verify};

use crate::oracle::Fault;
use crate::random::{Job, Split, comms, events, graphs, jobs, valid};
use crate::stub::REGISTRY;

const FAULTS: [(Code, Fault); 11] = [
    (codes::PARTS, Fault::Parts),
    (codes::SELF_SEND, Fault::SelfSend),
    (codes::MISMATCH, Fault::Mismatch),
    (codes::ORDER, Fault::Order),
    (codes::UNREACHED, Fault::Unreached),
    (codes::BOUNDARIES, Fault::Boundaries),
    (codes::UNMATCHED_SEND, Fault::UnmatchedSend),
    (codes::UNMATCHED_RECV, Fault::UnmatchedRecv),
    (codes::SIDES, Fault::Sides),
    (codes::DEADLOCK, Fault::Deadlock),
    (codes::UNDEFINED, Fault::Undefined),
];

fn found(result: Result<Vec<TaskGraph>, Problems>) -> BTreeSet<Fault> {
    let Err(Problems(problems)) = result.and_then(|graphs| verify(graphs).map(|v| v.graphs().to_vec()))
    else {
        return BTreeSet::new();
    };
    assert!(!problems.is_empty());
    let fault = |code: Code| FAULTS.iter().find(|(c, _)| *c == code).map(|&(_, fault)| fault);
    problems.iter().map(|p| fault(p.code).unwrap_or_else(|| panic!("not about meeting: {p}"))).collect()
}

/// The two verdicts agree. Collectives are compared in another way here and there (with the communicator's first rank;
/// with every rank), so that of several kinds of difference the verifier may name fewer.
fn judge(job: &Job, splits: &[Split]) -> Result<BTreeSet<Fault>, TestCaseError> {
    let (expected, found) = (job.faults(), found(graphs(job, splits, &REGISTRY, "test")));
    let of_collectives = |faults: &BTreeSet<Fault>| -> BTreeSet<Fault> {
        let kinds = [Fault::Mismatch, Fault::Parts, Fault::Order, Fault::Unreached, Fault::Boundaries];
        faults.iter().copied().filter(|fault| kinds.contains(fault)).collect()
    };
    let (expected_kinds, found_kinds) = (of_collectives(&expected), of_collectives(&found));
    prop_assert_eq!(&expected - &expected_kinds, &found - &found_kinds);
    prop_assert!(found_kinds.is_subset(&expected_kinds), "{:?} is not in {:?}", found_kinds, expected_kinds);
    prop_assert_eq!(expected_kinds.is_empty(), found_kinds.is_empty(), "expected {:?}", expected_kinds);
    Ok(found)
}

/// So many cases, or more with `PROPTEST_CASES`; the same ones in every run.
fn runner(least: u32) -> TestRunner {
    let config = Config { failure_persistence: None, ..Config::default() };
    let config = Config { cases: config.cases.max(least), ..config };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn valid_jobs_are_accepted() {
    let jobs = (comms(), events());
    let result = runner(20_000).run(&jobs, |(splits, events)| {
        prop_assert_eq!(judge(&valid(&splits, &events), &splits)?, BTreeSet::new());
        Ok(())
    });
    result.unwrap();
}

#[test]
fn jobs_with_mistakes_get_the_same_verdict() {
    let seen: RefCell<BTreeMap<Option<Fault>, u32>> = RefCell::default();
    let result = runner(100_000).run(&jobs(), |(splits, job)| {
        let faults = judge(&job, &splits)?;
        let mut seen = seen.borrow_mut();
        if faults.is_empty() {
            *seen.entry(None).or_default() += 1;
        }
        faults.iter().for_each(|&fault| *seen.entry(Some(fault)).or_default() += 1);
        Ok(())
    });
    result.unwrap();
    // The jobs are of all kinds, or the test above says little.
    let seen = seen.into_inner();
    for verdict in std::iter::once(None).chain(FAULTS.map(|(_, fault)| Some(fault))) {
        let count = seen.get(&verdict).copied().unwrap_or(0);
        assert!(count >= 500, "{verdict:?} came {count} times: {seen:?}");
    }
}
