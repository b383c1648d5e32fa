//! `squall run`: verify, then run.

use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use squall_core::{Diagnostic, Interrupt, Registry};
use squall_runner::manifest::{self, Manifest};
use squall_runner::run::{self, Readings, Request, RunError, Summary, Watcher};

use crate::args::{ManifestArgs, RunArgs};
use crate::output::{self, Source};

/// A manifest, read.
pub(crate) struct Loaded {
    pub(crate) text: String,
    pub(crate) manifest: Manifest,
    pub(crate) warnings: Vec<Diagnostic>,
}

/// Reads a manifest and sets what `--set` says; what is wrong is printed, and its exit status returned.
pub(crate) fn load(args: &ManifestArgs) -> Result<Loaded, u8> {
    let path = &args.manifest;
    let bytes =
        squall_runner::files::read_manifest(path).map_err(|error| output::fail(2, &error.to_string()))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let source = Source { path, text: &text };
    let (mut manifest, warnings) = match manifest::parse_bytes(&bytes) {
        Ok(parsed) => parsed,
        Err(problems) => {
            output::diagnostics(&source, &problems);
            return Err(2);
        }
    };
    for assignment in &args.set {
        manifest
            .set(assignment)
            .map_err(|message| output::fail(2, &format!("--set {assignment}: {message}")))?;
    }
    Ok(Loaded { text, manifest, warnings })
}

pub(crate) fn run(registry: &Registry, args: &RunArgs) -> u8 {
    let loaded = match load(&args.manifest) {
        Ok(loaded) => loaded,
        Err(status) => return status,
    };
    let path = &args.manifest.manifest;
    let source = Source { path, text: &loaded.text };
    output::diagnostics(&source, &loaded.warnings);
    let request = Request {
        manifest: &loaded.manifest,
        folder: path.parent().unwrap_or(Path::new("")),
        devices: args.manifest.devices.as_ref(),
        steps: args.steps,
    };
    let mut watcher = Terminal { bar: ProgressBar::hidden(), progress: !args.json };
    let result = run::run(registry, &request, &mut watcher);
    watcher.bar.finish_and_clear();
    match result {
        Ok(summary) if args.json => print_json(&summary),
        Ok(summary) => print(&summary),
        Err(error) => fail(&source, &error),
    }
}

fn fail(source: &Source<'_>, error: &RunError) -> u8 {
    match error.diagnostics() {
        Some(diagnostics) => output::diagnostics(source, &diagnostics),
        None => {
            output::fail(0, &error.to_string());
        }
    }
    error.exit_status()
}

fn print_json(summary: &Summary) -> u8 {
    match serde_json::to_string(summary) {
        Ok(text) => {
            output::line(&text);
            0
        }
        Err(error) => output::fail(1, &error.to_string()),
    }
}

fn print(summary: &Summary) -> u8 {
    output::line(&format!(
        "{}: {} step{} on {} in {:.3} s (median {:.1} µs, p99 {:.1} µs)",
        summary.pipeline,
        summary.steps,
        if summary.steps == 1 { "" } else { "s" },
        summary.devices.join(", "),
        summary.elapsed_s,
        summary.step_us.median,
        summary.step_us.p99
    ));
    for (name, readings) in &summary.watched {
        if let Some(last) = readings.last() {
            output::line(&format!("{name} = {}", value(last.value)));
        }
    }
    for file in &summary.outputs {
        output::line(&format!("wrote {file}"));
    }
    0
}

fn value(value: Option<f64>) -> String {
    value.map_or_else(|| "not a number".to_string(), |value| value.to_string())
}

/// Shows a run on a terminal, and stops it on Ctrl-C.
struct Terminal {
    bar: ProgressBar,
    progress: bool,
}

impl Watcher for Terminal {
    fn note(&mut self, note: &str) {
        output::note(note);
    }

    fn begin(&mut self, steps: u64, interrupt: &Interrupt) {
        let stop = interrupt.clone();
        // A second run in one process would find the handler taken; squall runs one.
        let _ = ctrlc::set_handler(move || stop.interrupt());
        if !self.progress {
            return;
        }
        // Drawn on standard error, and only where that is a terminal.
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} steps, {per_sec}  {msg}") {
            bar.set_style(style);
        }
        if bar.is_hidden() {
            return;
        }
        self.bar = bar.clone();
        let far = interrupt.clone();
        // Ends with the bar: a finished one is not drawn again.
        std::thread::spawn(move || {
            while !bar.is_finished() {
                bar.set_position(far.steps_done());
                std::thread::sleep(Duration::from_millis(100));
            }
        });
    }

    fn readings(&mut self, readings: &Readings) {
        let shown: Vec<String> = readings
            .iter()
            .filter_map(|(name, readings)| Some(format!("{name} = {}", value(readings.last()?.value))))
            .collect();
        self.bar.set_message(shown.join("  "));
    }
}
