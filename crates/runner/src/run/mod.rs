//! Runs a job: devices, contents, steps, watched values, outputs.

mod contents;
pub mod devices;
mod error;
mod outputs;
mod watch;

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use squall_core::{BufferId, Diagnostic, Interrupt, Options, PlanGroup, Registry, Upload, verify};

use crate::manifest::Manifest;
use crate::manifest::devices::Devices;
use crate::resolve::{Job, resolve};

pub use error::RunError;
pub use watch::{Reading, Readings};

/// What a run is asked for, beside the manifest.
#[derive(Debug)]
pub struct Request<'a> {
    /// The manifest.
    pub manifest: &'a Manifest,
    /// The folder that file names in it are relative to.
    pub folder: &'a Path,
    /// Devices in place of the manifest's.
    pub devices: Option<&'a Devices>,
    /// Steps in place of the manifest's.
    pub steps: Option<u64>,
}

/// What a run tells while it goes on.
pub trait Watcher {
    /// The devices were chosen; something the user should know of the choice.
    fn note(&mut self, note: &str);
    /// The ranks are bound and about to run so many steps. `interrupt` stops them, and tells how far they are.
    fn begin(&mut self, steps: u64, interrupt: &Interrupt);
    /// Watched values were read.
    fn readings(&mut self, readings: &Readings);
}

/// How a run went: what `--json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The pipeline's name.
    pub pipeline: String,
    /// Number of ranks.
    pub world: u32,
    /// Their devices, by rank.
    pub devices: Vec<String>,
    /// Steps run.
    pub steps: u64,
    /// From the first step's start to the last task's end.
    pub elapsed_s: f64,
    /// How long steps took, on the first rank; the last 16384 of them.
    pub step_us: StepTimes,
    /// Every watched value.
    pub watched: Readings,
    /// Files written, in the order of the manifest's buffers.
    pub outputs: Vec<String>,
}

/// How long steps took, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepTimes {
    /// Half of them took longer.
    pub median: f64,
    /// One in a hundred took longer.
    pub p99: f64,
}

/// Runs a manifest to its end.
pub fn run(
    registry: &Registry,
    request: &Request<'_>,
    watcher: &mut dyn Watcher,
) -> Result<Summary, RunError> {
    let manifest = request.manifest;
    let chosen = devices::choose(registry, request.devices.unwrap_or(&manifest.world.devices.value))?;
    if let Some(note) = &chosen.note {
        watcher.note(note);
    }
    let job = resolve(manifest, registry, chosen.indices.len() as u64, chosen.kind)?;
    let verified = verify(job.graphs.clone())?;
    // All that can be wrong with files is found before a device is opened.
    let outputs = outputs::Outputs::prepare(&job, request.folder)?;
    let contents = contents::Contents { job: &job, folder: request.folder };
    let opened = chosen.open(registry)?;
    let pipeline = &manifest.pipeline;
    let options = Options::default()
        .step_timeout(Some(pipeline.step_timeout.value))
        .init_timeout(pipeline.init_timeout.value)
        .capture(pipeline.cuda_graph.value && opened.iter().all(|device| device.captures()));
    let mut group = PlanGroup::new(registry, verified, &opened, options)?;
    fill(&job, &contents, &mut group)?;

    let steps = request.steps.unwrap_or(pipeline.steps.value);
    watcher.begin(steps, &group.interrupt_handle());
    let mut readings = Readings::new();
    let start = Instant::now();
    let mut done = 0;
    while done < steps {
        // Between points that the host must see, steps are queued.
        let count = watch::until_due(&manifest.watches, done, steps - done);
        group.execute_many(count)?;
        done += count;
        watch::read(&job, &mut group, done, false, &mut readings)?;
        watcher.readings(&readings);
    }
    group.finish()?;
    let elapsed = start.elapsed();
    watch::read(&job, &mut group, done, true, &mut readings)?;
    watcher.readings(&readings);
    let written = outputs.write(&job, &mut group)?;
    Ok(Summary {
        pipeline: name(manifest),
        world: job.world.size(),
        devices: chosen.names(),
        steps,
        elapsed_s: elapsed.as_secs_f64(),
        step_us: step_times(group.step_times()),
        watched: readings,
        outputs: written,
    })
}

/// The pipeline's name; `pipeline` where it has none.
pub fn name(manifest: &Manifest) -> String {
    manifest.pipeline.name.as_ref().map_or_else(|| "pipeline".to_string(), |name| name.value.clone())
}

/// Gives every buffer of every rank its first contents, or its feed. Reports all that is wrong, not the first alone.
fn fill(job: &Job<'_>, contents: &contents::Contents<'_>, group: &mut PlanGroup) -> Result<(), RunError> {
    let mut problems: Vec<Diagnostic> = Vec::new();
    for graph in &job.graphs {
        for (place, used) in graph.uses().into_iter().enumerate() {
            let declared = &job.manifest.buffers[place];
            if !used || graph.buffers()[place].upload == Upload::Never {
                continue;
            }
            let (rank, buffer) = (graph.rank(), BufferId(place as u32));
            if let Some(feed) = &declared.feed {
                match contents.feed(rank, place, &feed.value) {
                    Ok(feed) if problems.is_empty() => group.feed(rank, buffer, feed)?,
                    Ok(_) => {}
                    Err(problem) => problems.push(*problem),
                }
            } else if let Some(init) = &declared.init {
                match contents.init(rank, place, &init.value) {
                    Ok(bytes) if problems.is_empty() => group.write_bytes(rank, buffer, &bytes)?,
                    Ok(_) => {}
                    Err(problem) => problems.push(*problem),
                }
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(squall_core::Problems(problems).folded().into()) }
}

fn step_times(mut nanoseconds: Vec<u64>) -> StepTimes {
    nanoseconds.sort_unstable();
    let at = |part: f64| {
        let index = ((nanoseconds.len() as f64 * part) as usize).min(nanoseconds.len().saturating_sub(1));
        nanoseconds.get(index).map_or(0.0, |&time| Duration::from_nanos(time).as_secs_f64() * 1e6)
    };
    StepTimes { median: at(0.5), p99: at(0.99) }
}
