//! The library on GPUs: core's conformance suite, and what only NCCL can show.
//!
//! | module | shows |
//! |---|---|
//! | `joining` | ranks of several processes, by an id |
//! | `ending` | aborts and closes, in the middle of work |
//! | `values` | sizes, devices and captures |
//!
//! What needs more GPUs than there are, or NCCL where there is none, is ignored with the reason. `SQUALL_TEST_GPUS=2` says that there
//! must be two and NCCL, and makes their absence a failure.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test binary of its own says what it leaves out"
)]

mod ending;
mod joining;
mod values;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use squall_core::conformance::{CASES, Found, Outcome, Target};
use squall_core::{Backend as _, Device, Registry};
use squall_cuda_backend::CUDA;
use squall_nccl_ops::{NcclError, UniqueId};

/// A test of this file: its name, the GPUs that it needs, and what it does.
type Test = (&'static str, u32, fn(&Target<'static>) -> Outcome);

const TESTS: &[Test] = &[
    ("two processes join by an id", 2, joining::two_processes),
    ("one process joins with both ranks", 2, joining::one_process),
    ("joining alone ends at the deadline", 1, joining::alone),
    ("two ranks on one GPU are refused", 1, joining::same_gpu),
    ("what hangs is aborted, ten times over", 2, ending::ten_aborts),
    ("what hangs while it connects is aborted", 2, ending::aborts_while_connecting),
    ("a close waits for the stream", 2, ending::live_stream),
    ("a close does not wait for a captured graph", 2, ending::live_graph),
    ("more than 2^31 elements are reduced", 2, values::large),
    ("an average of large halves is recorded", 2, values::large_halves),
    ("ranks go by rank and not by device", 2, values::turned_devices),
    ("what was captured is replayed", 2, values::replays),
];

/// The GPU with that number.
fn device(index: u32) -> Arc<dyn Device> {
    CUDA.open(index).unwrap()
}

/// The GPUs that there are, or why there is nothing to test with.
fn found(registry: &Registry) -> Found {
    match UniqueId::new() {
        Err(error @ (NcclError::Missing(_) | NcclError::TooOld { .. } | NcclError::NoFunction { .. })) => {
            Found::nothing(error.to_string())
        }
        _ => Found::devices(registry, "cuda"),
    }
}

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().collect();
    let registry: &'static Registry = Box::leak(Box::new(Registry::linked().unwrap()));
    let target = || Target::new(registry, "cuda", "nccl");
    if let [_, joining::CHILD, rank, id] = &*given.iter().map(String::as_str).collect::<Vec<_>>() {
        joining::child(&target().unwrap(), rank, id).unwrap();
        return ExitCode::SUCCESS;
    }
    // One at a time: tests count threads and memory.
    let args = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let found = if args.list { Found::nothing("listed only") } else { found(registry) };
    if let Err(reason) = found.as_promised() {
        eprintln!("{reason}");
        return ExitCode::FAILURE;
    }
    if let (Some(reason), false) = (found.missing(), args.list) {
        println!("all ignored: {reason}");
    }
    let target = match found.lacks(1) {
        Some(reason) => Err(reason),
        None => target(),
    };
    let done = |outcome: Outcome| outcome.map(|()| Completion::Completed).map_err(Failed::from);
    let cases = CASES.iter().map(|case| {
        let target = target.clone();
        Trial::ignorable_test(case.name, move || match &target {
            Err(reason) => Ok(Completion::ignored_with(reason)),
            Ok(target) => match case.missing(target) {
                Some(reason) => Ok(Completion::ignored_with(reason)),
                None => done(case.check(target)),
            },
        })
    });
    let own = TESTS.iter().map(|&(name, needs, test)| {
        let (target, lacks) = (target.clone(), found.lacks(needs));
        Trial::ignorable_test(name, move || match (&target, &lacks) {
            (_, Some(reason)) | (Err(reason), _) => Ok(Completion::ignored_with(reason)),
            (Ok(target), None) => done(test(target)),
        })
    });
    let trials = cases.chain(own).collect();
    libtest_mimic::run(&args, trials).exit_code()
}
