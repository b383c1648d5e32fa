//! Whole pipelines on GPUs, each as it is and with its step captured:
//!
//! - [`edges`]: what is empty, odd, huge, or rounded.
//! - [`examples`]: every example gives what it gives on the host.
//! - [`failing`]: ranks that fail, hang, are late or are dropped, and what is left afterwards.
//! - [`forbidden`]: an op that does in a step what no capture allows.
//! - [`kernels`]: kernels that take their time, or write where nothing is.
//! - [`lost`]: what a process does not get over, a GPU that is lost and a kernel that does not end.
//! - [`on`]: where a trial runs.
//! - [`pipelines`](squall_tests::pipelines): those of the host, with the same results.
//! - [`plugins`]: those of this repository, linked in, give what they give on the host.
//! - [`placement`]: devices in any order, missing, twice, or hidden.
//! - [`steps`]: captured steps with new input, and results that are read in time.
//!
//! What can, runs on host devices too, so that the trials themselves are tried on any machine. What needs more GPUs than there are is
//! ignored with the reason; `SQUALL_TEST_GPUS=2` says that there are two and NCCL, and makes their absence a failure.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests panic as tests do")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test program of its own says what it leaves out"
)]
#![allow(
    clippy::forget_non_drop,
    reason = "that forgetting a handle is safe must hold whatever it is made of"
)]

mod edges;
mod examples;
mod failing;
mod forbidden;
mod kernels;
mod lost;
mod on;
mod placement;
mod plugins;
mod steps;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};
use squall_core::conformance::Found;
use squall_cuda_backend as _;
use squall_nccl_ops::{NcclError, UniqueId};
use squall_tests::pipelines::{PIPELINES, Pipeline, averaged, in_turns};
use squall_tests::registry;

use on::{APART, APART_ON, On};

/// A trial.
#[derive(Clone, Copy)]
struct Test {
    name: &'static str,
    /// The GPUs that it needs.
    gpus: u32,
    /// Whether it is tried with its step captured too.
    captured: bool,
    /// Whether it runs on host devices too.
    host: bool,
    run: Run,
}

/// What a trial does.
#[derive(Clone, Copy)]
enum Run {
    Trial(fn(On)),
    /// On one rank, and on one a device.
    Pipeline(&'static Pipeline),
}

impl Run {
    fn on(self, on: On) {
        match self {
            Run::Trial(run) => run(on),
            Run::Pipeline(pipeline) => {
                for world in [1, on.ranks] {
                    pipeline.run(&on.devices(world), world, on.capture);
                }
            }
        }
    }
}

impl Test {
    /// A trial on so many GPUs.
    const fn gpu(name: &'static str, gpus: u32, run: fn(On)) -> Test {
        Test { name, gpus, captured: false, host: false, run: Run::Trial(run) }
    }

    fn pipeline(pipeline: &'static Pipeline) -> Test {
        let run = Run::Pipeline(pipeline);
        Test { name: pipeline.name, gpus: 2, captured: true, host: true, run }
    }

    const fn captured(self) -> Test {
        Test { captured: true, ..self }
    }

    const fn and_host(self) -> Test {
        Test { host: true, ..self }
    }

    fn trials(&self, found: &Found) -> Vec<Trial> {
        let run = self.run;
        let on_gpus = |capture: bool| {
            let (lacks, on) = (found.lacks(self.gpus), On::gpus(found.count(), capture));
            Trial::ignorable_test(format!("{}: {}", on.how(), self.name), move || {
                if let Some(reason) = &lacks {
                    return Ok(Completion::ignored_with(reason));
                }
                run.on(on);
                Ok(Completion::Completed)
            })
        };
        let mut trials = vec![on_gpus(false)];
        if self.captured {
            trials.push(on_gpus(true));
        }
        if self.host {
            trials.push(Trial::test(format!("host: {}", self.name), move || {
                run.on(On::HOST);
                Ok(())
            }));
        }
        trials
    }
}

const TESTS: &[Test] = &[
    Test::gpu("the first step of a process is captured", 2, steps::cold),
    Test::gpu("examples agree task by task", 1, examples::task_by_task),
    Test::gpu("examples save what they save on the host", 1, examples::saved).captured().and_host(),
    Test::gpu("digits are learnt as on the host", 1, examples::digits).captured(),
    Test::gpu("an all_reduce with new input every step", 2, steps::all_reduce).captured().and_host(),
    Test::gpu("a ring with new input every step", 2, steps::ring).captured().and_host(),
    Test::gpu("a pipeline with new input every step", 2, steps::pipeline).captured().and_host(),
    Test::gpu("a grouped exchange with new input every step", 2, steps::exchange).captured().and_host(),
    Test::gpu("a kernel, an average and a kernel with new input every step", 2, |on| {
        averaged(on.kind, on.ranks, on.options());
    })
    .captured()
    .and_host(),
    Test::gpu("buffers that are swapped take turns", 2, |on| in_turns(on.kind, on.ranks, on.options()))
        .captured()
        .and_host(),
    Test::gpu("results are never of another step", 2, steps::never_of_another_step).captured().and_host(),
    Test::gpu("roots and blocks go by rank and not by device", 2, placement::turned).captured().and_host(),
    Test::gpu("a device twice is refused", 1, placement::twice),
    Test::gpu("a missing device is refused", 1, placement::missing),
    Test::gpu("a hidden device does not exist", 2, placement::hidden),
    Test::gpu("visible devices in another order are other devices", 2, placement::reordered),
    Test::gpu("an empty group and an empty grid are nothing", 2, edges::empty).captured().and_host(),
    Test::gpu("odd counts and views leave their neighbours alone", 2, edges::views).captured().and_host(),
    Test::gpu("ten million and some elements are summed", 2, edges::odd_and_large).captured().and_host(),
    Test::gpu("more than 2^31 elements are reduced", 2, edges::huge).captured(),
    Test::gpu("halves and sums are the same bits on every rank", 2, edges::rounding).captured().and_host(),
    Test::gpu("the largest elements are the host's, bit for bit", 1, plugins::top_k).captured().and_host(),
    Test::gpu("what is not sent is fed back as on the host", 1, plugins::top_k_with_feedback)
        .captured()
        .and_host(),
    Test::gpu("norms are clipped as on the host", 1, plugins::clip_norm).captured().and_host(),
    Test::gpu("products by cuBLAS are the host's", 1, plugins::gemm).captured().and_host(),
    Test::gpu("digits are trained with the plugin for products", 1, plugins::digits).captured().and_host(),
    Test::gpu("an unmatched receive ends at the deadline", 2, failing::receive).captured().and_host(),
    Test::gpu("a skipped collective ends at the deadline", 2, failing::skipped).captured().and_host(),
    Test::gpu("nothing is left of aborted groups", 2, failing::ten_rounds).captured().and_host(),
    Test::gpu("a rank late in a kernel is named and comes back", 2, failing::late).captured().and_host(),
    Test::gpu("a rank late in a feed is named and comes back", 2, failing::late_feed).captured().and_host(),
    Test::gpu("one of a thousand queued steps hangs", 2, failing::queued).captured().and_host(),
    Test::gpu("a feed that fails releases the others", 2, failing::feed).captured().and_host(),
    Test::gpu("a kernel that fails is named", 2, failing::kernel_that_fails).captured().and_host(),
    Test::gpu("a group is dropped with steps in flight", 2, failing::in_flight).captured().and_host(),
    Test::gpu("groups are dropped in any order", 2, failing::any_order).captured().and_host(),
    Test::gpu("queued steps are interrupted", 2, failing::interrupt).captured().and_host(),
    Test::gpu("what cannot be captured is said, and runs as it is", 2, forbidden::allocation),
    Test::gpu("a rank that loses its GPU releases the others", 2, lost::stray).captured(),
    Test::gpu(
        "a kernel that does not end holds neither the drop nor an exit without handlers",
        2,
        lost::endless,
    )
    .captured()
    .and_host(),
];

/// What a process of its own does, by name.
type Apart = (&'static str, fn(On));

const APARTS: &[Apart] = &[
    ("cold", steps::cold_apart),
    ("endless", lost::endless_apart),
    ("hidden", placement::hidden_apart),
    ("reordered", placement::reordered_apart),
    ("stray", lost::stray_apart),
];

/// The GPUs that there are, or why there is nothing to test with.
fn found() -> Found {
    match UniqueId::new() {
        Err(error @ (NcclError::Missing(_) | NcclError::TooOld { .. } | NcclError::NoFunction { .. })) => {
            Found::nothing(error.to_string())
        }
        _ => Found::devices(registry(), "cuda"),
    }
}

fn main() -> ExitCode {
    squall_tests::load_plugins();
    if let Ok(name) = std::env::var(APART) {
        let on = On::of(&std::env::var(APART_ON).unwrap()).unwrap();
        // A panic ends the process with another status.
        APARTS.iter().find(|(known, _)| *known == name).unwrap().1(on);
        return ExitCode::SUCCESS;
    }
    // One at a time: trials count threads and memory.
    let args = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let found = if args.list { Found::nothing("listed only") } else { found() };
    if let Err(reason) = found.as_promised().or_else(|reason| if args.list { Ok(()) } else { Err(reason) }) {
        eprintln!("{reason}");
        return ExitCode::FAILURE;
    }
    if let (Some(reason), false) = (found.missing(), args.list) {
        println!("all trials on GPUs are ignored: {reason}");
    }
    let compiled = Trial::ignorable_test("the kernels of these trials compile", || Ok(kernels::compiled()));
    let tests = TESTS.iter().copied().chain(PIPELINES.map(Test::pipeline));
    let trials = tests.flat_map(|test| test.trials(&found)).chain([compiled]).collect();
    libtest_mimic::run(&args, trials).exit_code()
}
