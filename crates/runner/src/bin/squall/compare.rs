//! `squall compare`: run on the host and on other devices in lockstep, and tell where they differ.

use std::fmt::Write as _;

use squall_core::{DType, Registry};
use squall_runner::compare::{self, Comparison, Request, Tolerances};
use squall_runner::render::count;
use squall_runner::run::{self, RunError};

use crate::args::CompareArgs;
use crate::output;
use crate::run::{Terminal, devices};
use crate::source::Source;

pub(crate) fn compare(registry: &Registry, args: &CompareArgs) -> u8 {
    let mut terminal = Terminal::on_signals();
    let source = match Source::load(registry, &args.manifest) {
        Ok(source) => source,
        Err(status) => return status,
    };
    terminal.draw_over(&source);
    let mut tolerances = Tolerances::default();
    args.tolerance.iter().for_each(|(dtype, tolerance)| tolerances.set(*dtype, *tolerance));
    let run = run::Request {
        manifest: &source.manifest,
        folder: source.folder(),
        file: Some(&args.manifest.manifest),
        devices: args.manifest.devices.as_ref(),
        steps: args.steps,
        process: None,
    };
    let request = Request { run, with: args.with, tolerances, each: args.each };
    let result = compare::compare(&source.registry, &request, &mut terminal);
    // The bar is gone before anything is printed.
    drop(terminal);
    let comparison = match &result {
        Ok(comparison) => comparison,
        Err(RunError::Differs(comparison)) => comparison,
        Err(error) => return source.fail(error),
    };
    let printed = if args.json {
        serde_json::to_string(comparison).map(|text| format!("{text}\n")).map_err(|error| error.to_string())
    } else {
        Ok(in_words(comparison))
    };
    let printed = match printed {
        Ok(text) => output::result(&text),
        Err(error) => output::fail(1, &error),
    };
    match &result {
        Ok(_) => printed,
        // What differs is told beside what was compared, which JSON has as a whole.
        Err(error) => {
            for difference in &comparison.differences {
                output::fail_with(error.code(), error.exit_status(), &difference.to_string());
            }
            error.exit_status()
        }
    }
}

fn in_words(comparison: &Comparison) -> String {
    let mut text = format!(
        "{}: {} on the host and on {}, compared task by task{}\n",
        comparison.pipeline,
        count(comparison.steps, "step"),
        devices(&comparison.devices),
        if comparison.each { ", each with the host's values" } else { "" }
    );
    for agreement in &comparison.agreement {
        let _ = writeln!(text, "{agreement}");
    }
    let tolerance =
        |dtype: DType| comparison.tolerances.of(dtype).map(|tolerance| format!("{dtype} {tolerance}"));
    let met = comparison.agreement.iter().filter_map(|agreement| tolerance(agreement.dtype));
    let tolerances: Vec<String> = met.chain(["integers exact".to_string()]).collect();
    let _ = writeln!(text, "allowed: {}", tolerances.join("; "));
    text
}
