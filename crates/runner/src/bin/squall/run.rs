//! `squall run`: verify, then run.

use std::fmt::Write as _;

use squall_core::{Diagnostic, Interrupt, Registry};
use squall_runner::render::count;
use squall_runner::run::{self, Number, Readings, Request, Summary, Watcher};

use crate::args::RunArgs;
use crate::launch;
use crate::output;
use crate::processes;
use crate::progress::Progress;
use crate::signals::Stop;
use crate::source::Source;

pub(crate) fn run(registry: &Registry, args: &RunArgs) -> u8 {
    if let Some(processes) = args.processes {
        return launch::launch(registry, args, processes);
    }
    let mut terminal = Terminal::on_signals();
    let mut source = match Source::load(registry, &args.manifest) {
        Ok(source) => source,
        Err(status) => return status,
    };
    if let Some(limit) = args.process.init_timeout {
        source.manifest.pipeline.init_timeout.value = limit;
    }
    terminal.draw_over(&source);
    let process = match processes::process(&args.process, source.manifest.pipeline.init_timeout.value) {
        Ok(process) => process,
        Err(status) => return status,
    };
    // Of several processes the one with rank 0 tells of the run.
    terminal.quiet = process.as_ref().is_some_and(|process| process.identity.ranks.start > 0);
    let quiet = terminal.quiet;
    let request = Request {
        manifest: &source.manifest,
        folder: source.folder(),
        file: Some(&args.manifest.manifest),
        devices: args.manifest.devices.as_ref(),
        steps: args.steps,
        process: process.as_ref(),
    };
    let run = if args.resume { run::resume } else { run::run };
    let result = run(&source.registry, &request, &mut terminal);
    // The bar is gone before anything is printed.
    drop(terminal);
    match result {
        Ok(_) if quiet => 0,
        Ok(summary) if args.json => match serde_json::to_string(&summary) {
            Ok(text) => output::result(&format!("{text}\n")),
            Err(error) => output::fail(1, &error.to_string()),
        },
        Ok(summary) => output::result(&in_words(&summary)),
        Err(error) => source.fail(&error),
    }
}

fn in_words(summary: &Summary) -> String {
    let mut text = format!(
        "{}: {} on {} in {:.3} s (median {:.1} µs, p99 {:.1} µs)\n",
        summary.pipeline,
        count(summary.steps, "step"),
        devices(&summary.devices),
        summary.elapsed_s,
        summary.step_us.median,
        summary.step_us.p99
    );
    if let Some(stopped) = &summary.stopped {
        let _ = writeln!(text, "stopped after step {} by `{}`", stopped.step, stopped.by);
    }
    for value in last_values(&summary.watched) {
        let _ = writeln!(text, "{value}");
    }
    for file in &summary.outputs {
        let _ = writeln!(text, "wrote {file}");
    }
    text
}

/// The devices by rank, but of very many only how many.
pub(crate) fn devices(devices: &[String]) -> String {
    const MOST: usize = 8;
    if devices.len() <= MOST { devices.join(", ") } else { format!("{} devices", devices.len()) }
}

/// What was last read of each watched value.
fn last_values(readings: &Readings) -> Vec<String> {
    let last = readings.iter().filter_map(|(name, readings)| Some((name, readings.last()?.value)));
    let shown =
        |value: Option<Number>| value.map_or_else(|| "not a number".to_string(), |value| value.to_string());
    last.map(|(name, value)| format!("{name} = {}", shown(value))).collect()
}

/// Shows a run on a terminal, and stops it on Ctrl-C.
pub(crate) struct Terminal {
    stop: Stop,
    progress: Option<Progress>,
    /// The manifest's name and its text.
    manifest: (String, String),
    /// Whether another process shows all this.
    quiet: bool,
}

impl Terminal {
    /// From here on, signals stop the run.
    pub(crate) fn on_signals() -> Terminal {
        Terminal { stop: Stop::on_signals(), progress: None, manifest: Default::default(), quiet: false }
    }

    /// The manifest that warnings are about.
    pub(crate) fn draw_over(&mut self, source: &Source<'_>) {
        self.manifest = (source.name(), source.text.clone());
    }
}

impl Watcher for Terminal {
    fn note(&mut self, note: &str) {
        if !self.quiet {
            output::note(note);
        }
    }

    fn warnings(&mut self, warnings: &[Diagnostic]) {
        if !self.quiet {
            output::diagnostics(&self.manifest.0, &self.manifest.1, warnings);
        }
    }

    fn begin(&mut self, steps: u64, interrupt: &Interrupt) {
        self.stop.through(interrupt);
        self.progress = if self.quiet { None } else { Progress::start(steps, interrupt) };
    }

    fn readings(&mut self, readings: &Readings) {
        if let Some(progress) = &self.progress {
            progress.show(last_values(readings).join("  "));
        }
    }

    fn stopped(&self) -> bool {
        self.stop.is_wanted()
    }
}
