//! What verification says, held against runs: whatever is accepted comes to its end, and whatever is refused as hanging does not. Random small
//! jobs on host devices; what is refused as undefined is not run.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

#[path = "../../crates/core/tests/verify/random.rs"]
mod random;

use std::cell::Cell;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use squall_core::{
    BufferId, Code, GroupError, Options, PlanGroup, Problems, TaskGraph, Upload, Verified, codes, verify,
};
use squall_tests::registry;

use crate::random::{Job, Kind, Split, graphs, jobs};

/// What is refused since some rank would wait for good, whatever a library does.
const HANGING: [Code; 4] = [codes::UNREACHED, codes::UNMATCHED_SEND, codes::UNMATCHED_RECV, codes::DEADLOCK];

/// Long enough for any of these jobs on a busy machine: one that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a job that hangs is given. One that would end takes some microseconds.
const IMPATIENCE: Duration = Duration::from_millis(20);

/// So many cases, or more with `PROPTEST_CASES`; the same ones in every run.
fn runner(least: u32) -> TestRunner {
    let config = Config { failure_persistence: None, max_global_rejects: u32::MAX, ..Config::default() };
    let config = Config { cases: config.cases.max(least), ..config };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

fn made(job: &Job, splits: &[Split]) -> Result<Vec<TaskGraph>, Problems> {
    graphs(job, splits, registry(), "host")
}

/// Runs one step within a limit: in a second one, ranks that are ahead could meet what is meant for the first.
fn run(verified: Verified, limit: Duration) -> Result<(), GroupError> {
    let devices: Vec<_> =
        (0..verified.graphs().len() as u32).map(|i| registry().open("host", i).unwrap()).collect();
    let graphs = verified.graphs().to_vec();
    let mut options = Options::default();
    (options.step_timeout, options.init_timeout) = (Some(limit), limit.max(PATIENCE / 60));
    let mut group = PlanGroup::new(registry(), verified, &devices, options)?;
    for graph in &graphs {
        for (index, decl) in
            graph.buffers().iter().enumerate().filter(|(_, decl)| decl.upload == Upload::First)
        {
            let zeros = vec![0u8; decl.bytes() as usize];
            group.write_bytes(graph.rank(), BufferId(index as u32), &zeros).unwrap();
        }
    }
    group.execute()
}

fn divides_unequally(job: &Job) -> bool {
    (0..).zip(&job.ranks).any(|(rank, units)| {
        units.iter().flat_map(|unit| &unit.ops).any(|op| match op.kind {
            Kind::AllGather { whole } | Kind::Gather { whole, .. } => {
                let part = job.comms[op.comm].iter().find(|part| part.contains(&rank));
                part.map_or(1, Vec::len) as u64 * op.count != whole
            }
            _ => false,
        })
    })
}

#[test]
fn whatever_is_accepted_comes_to_its_end() {
    let (accepted, mistaken) = (Cell::new(0), Cell::new(0));
    let result = runner(4000).run(&jobs(), |(splits, job)| {
        match made(&job, &splits).and_then(verify) {
            Ok(verified) => {
                run(verified, PATIENCE).map_err(|error| TestCaseError::fail(error.to_string()))?;
                accepted.set(accepted.get() + 1);
            }
            Err(_) => mistaken.set(mistaken.get() + 1),
        }
        Ok(())
    });
    result.unwrap();
    let (accepted, mistaken) = (accepted.get(), mistaken.get());
    assert!(accepted >= 1000 && mistaken >= 1000, "{accepted} of {} were accepted", accepted + mistaken);
}

#[test]
fn whatever_is_refused_as_hanging_hangs() {
    let hung = Cell::new([0u32; HANGING.len()]);
    let result = runner(2500).run(&jobs(), |(splits, job)| {
        let Ok(graphs) = made(&job, &splits) else { return Ok(()) };
        let Err(Problems(problems)) = verify(graphs.clone()) else { return Ok(()) };
        let place = |code| HANGING.iter().position(|&hanging| hanging == code);
        // Of a job that is undefined as well, nobody knows what becomes.
        let Some(places) = problems.iter().map(|problem| place(problem.code)).collect::<Option<Vec<_>>>()
        else {
            return Ok(());
        };
        // Ranks that divide something unequally are not made ready as they should without what verification tells them.
        if divides_unequally(&job) {
            return Ok(());
        }
        let ended = run(Verified::unverified(graphs), IMPATIENCE);
        let timed_out = matches!(ended, Err(GroupError::TimedOut { .. }));
        prop_assert!(timed_out, "refused with {problems:?}, and came to {ended:?}");
        let mut counts = hung.get();
        places.into_iter().for_each(|place| counts[place] += 1);
        hung.set(counts);
        Ok(())
    });
    result.unwrap();
    let hung = hung.get();
    assert!(hung.iter().all(|&count| count >= 20), "{hung:?} of {HANGING:?}");
}
