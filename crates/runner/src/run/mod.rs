//! Runs a job: devices, contents, steps, watched values, outputs.

mod checkpoint;
mod contents;
pub mod devices;
mod error;
mod outputs;
mod processes;
mod stop;
mod summary;
mod watch;

use std::path::Path;
use std::time::Instant;

use squall_core::{Backend, Diagnostic, Interrupt, Options, PlanGroup, Problems, Registry, Verified, verify};

use crate::manifest::Manifest;
use crate::manifest::devices::Devices;
use crate::plugin::load_named;
use crate::render::count;
use crate::resolve::{Job, resolve};

use self::contents::Contents;
use self::outputs::Outputs;
use self::processes::{Joined, Part};

pub use contents::Schedule;
pub use error::RunError;
pub use processes::{NO_MPI, Process};
pub use stop::Stopped;
pub use summary::{CheckpointSummary, StepTimes, Summary};
pub use watch::{Number, Reading, Readings};

/// What a run is asked for, beside the manifest.
#[derive(Debug)]
pub struct Request<'a> {
    /// The manifest.
    pub manifest: &'a Manifest,
    /// The folder that file names in it are relative to.
    pub folder: &'a Path,
    /// The manifest's own file, if it came from one: no output may replace it.
    pub file: Option<&'a Path>,
    /// Devices in place of the manifest's.
    pub devices: Option<&'a Devices>,
    /// Steps in place of the manifest's.
    pub steps: Option<u64>,
    /// Which of a job's processes this is; `None` where there is one.
    pub process: Option<&'a Process>,
}

/// What a run tells while it goes on. All calls come from the thread that called [`run`].
pub trait Watcher {
    /// Something the user should know of the devices that were chosen, or of the libraries that serve them.
    fn note(&mut self, note: &str);
    /// What the author of the manifest should look at, before anything runs: see [`Job::warnings`] and [`Schedule::warnings`].
    fn warnings(&mut self, warnings: &[Diagnostic]) {
        let _ = warnings;
    }
    /// The ranks are bound and about to run so many steps. `interrupt` stops them, and tells how far they are. A comparison
    /// calls it for the ranks of each side.
    fn begin(&mut self, steps: u64, interrupt: &Interrupt);
    /// Watched values were read.
    fn readings(&mut self, readings: &Readings);
    /// Whether the run is to be given up: asked between the pieces of work that no [`Interrupt`] reaches.
    fn stopped(&self) -> bool {
        false
    }
}

/// Runs a manifest to its end.
///
/// # Errors
/// See [`RunError`]. Files that the run was to write are then as they were, but for outputs that were already
/// complete.
pub fn run(
    registry: &Registry,
    request: &Request<'_>,
    watcher: &mut dyn Watcher,
) -> Result<Summary, RunError> {
    ended(to_the_end(registry, request, false, watcher), watcher)
}

/// As [`run`], from the newest checkpoint that is whole, of those that a run of the same manifest has left; from the beginning where
/// there is none. What the watcher is told with [`Watcher::note`] says which. The result is that of a run that never stopped.
///
/// # Errors
/// As [`run`], and a manifest without `[checkpoint]`, or a checkpoint of another job.
pub fn resume(
    registry: &Registry,
    request: &Request<'_>,
    watcher: &mut dyn Watcher,
) -> Result<Summary, RunError> {
    ended(to_the_end(registry, request, true, watcher), watcher)
}

fn ended(result: Result<Summary, RunError>, watcher: &dyn Watcher) -> Result<Summary, RunError> {
    match result {
        // Whatever was going on, that it ended early is no fault of it.
        Err(error) if watcher.stopped() && !error.is_interrupt() => Err(RunError::Interrupted),
        result => result,
    }
}

/// Verifies a job, that its step can be captured if it is to be, and what its buffers are to begin with, as far as neither a file
/// nor all elements are needed for that.
///
/// # Errors
/// All that stands against it.
pub fn verified(registry: &Registry, job: &Job<'_>) -> Result<Verified, Problems> {
    let verified = proven(job)?;
    let mut problems = contents::check(job);
    problems.extend(capturable(registry, job, &verified).err().into_iter().flat_map(|found| found.0));
    if problems.is_empty() { Ok(verified) } else { Err(Problems(problems).folded()) }
}

/// What stands against a job, with what is wrong with its buffers' first values.
fn with_contents(job: &Job<'_>, problems: Problems) -> Problems {
    Problems(contents::check(job).into_iter().chain(problems.0).collect()).folded()
}

/// Verifies a job. First values are told when they are made, together with what is wrong with files; of a job that cannot be,
/// what is wrong with them is told at once.
pub(crate) fn proven(job: &Job<'_>) -> Result<Verified, Problems> {
    verify(job.graphs.clone()).map_err(|problems| with_contents(job, problems))
}

/// Checks that the step can be captured, where `cuda_graph` asks for it and the job's devices can. Asks no device.
fn capturable(registry: &Registry, job: &Job<'_>, verified: &Verified) -> Result<(), Problems> {
    let kind = job.graphs.first().map_or("", |graph| graph.device());
    let captures = registry.backend(kind).is_some_and(Backend::captures);
    if captures && job.manifest.pipeline.cuda_graph.value { verified.check_capture() } else { Ok(()) }
}

/// Divides the steps among the feeds, and tells what the author should look at.
pub(crate) fn schedule(
    job: &Job<'_>,
    folder: &Path,
    watcher: &mut dyn Watcher,
) -> Result<Schedule, Problems> {
    let schedule = Schedule::of(job, folder)?;
    watcher.warnings(&[&job.warnings[..], &schedule.warnings].concat());
    Ok(schedule)
}

/// How many steps to run, and the buffer whose feed ends them early.
///
/// # Errors
/// A feed's file that could not be looked at before, and could be read since: it changes meanwhile.
pub(crate) fn steps<'s>(
    schedule: &'s Schedule,
    request: &Request<'_>,
) -> Result<(u64, Option<&'s str>), RunError> {
    let changed =
        || RunError::Environment(format!("a feed's file changes: {}", schedule.unknown().unwrap_or("")));
    schedule.steps(&request.manifest.pipeline, request.steps).ok_or_else(changed)
}

/// Gives every buffer its first contents, or its feed.
pub(crate) fn fill(
    job: &Job<'_>,
    folder: &Path,
    schedule: &Schedule,
    watcher: &dyn Watcher,
    group: &mut PlanGroup,
) -> Result<(), RunError> {
    Contents { job, folder, schedule, stopped: &|| watcher.stopped() }.fill(group)
}

fn to_the_end(
    registry: &Registry,
    request: &Request<'_>,
    resume: bool,
    watcher: &mut dyn Watcher,
) -> Result<Summary, RunError> {
    let manifest = request.manifest;
    let registry = &load_named(registry, manifest, request.folder)?;
    let part = Part::of(registry, request)?;
    let registry = &part.registry(registry.clone());
    if let Some(note) = part.note() {
        watcher.note(note);
    }
    let job = resolve(manifest, registry, part.world, part.kind)?;
    let verified = proven(&job)?;
    capturable(registry, &job, &verified).map_err(|problems| with_contents(&job, problems))?;
    let schedule = schedule(&job, request.folder, watcher)?;
    // A place that cannot be written costs no run.
    let outputs = Outputs::prepare(&job, request, &part.ranks())?;
    let checkpoints = checkpoint::prepare(&job, &verified, request, resume, watcher)?;
    let joined = part.meet(registry, &job, &verified, &schedule, request)?;
    let ended = bound(registry, request, &job, verified, &schedule, outputs, checkpoints, &joined, watcher);
    joined.leave(ended)
}

/// Runs a job whose processes have met.
#[allow(clippy::too_many_arguments, reason = "all of a run that is prepared, given over once")]
fn bound(
    registry: &Registry,
    request: &Request<'_>,
    job: &Job<'_>,
    verified: Verified,
    schedule: &Schedule,
    outputs: Outputs,
    checkpoints: Option<checkpoint::Prepared>,
    joined: &Joined,
    watcher: &mut dyn Watcher,
) -> Result<Summary, RunError> {
    let manifest = request.manifest;
    let chosen = joined.chosen();
    let opened = chosen.open(registry)?;
    let pipeline = &manifest.pipeline;
    let options = Options::default()
        .step_timeout(Some(pipeline.step_timeout.value))
        .init_timeout(pipeline.init_timeout.value)
        .capture(pipeline.cuda_graph.value && opened.iter().all(|device| device.captures()));
    let mut group = joined.bind(registry, verified, &opened, options)?;
    let libraries = libraries(registry, chosen.kind);
    for warning in libraries.iter().filter_map(|line| line.strip_prefix("warning: ")) {
        watcher.note(warning);
    }
    fill(job, request.folder, schedule, watcher, &mut group)?;

    let (steps, ended) = steps(schedule, request)?;
    let mut checkpoints = checkpoints.map(|prepared| prepared.begin(&mut group, steps)).transpose()?;
    let before = checkpoints.as_ref().map_or(0, |checkpoints| checkpoints.done_before());
    if let Some(checkpoint) = manifest.checkpoint.as_ref().filter(|declared| steps < declared.every.value) {
        let every = checkpoint.every.value;
        watcher.note(&format!(
            "no checkpoint is due: there are {}, and `every` is {every}",
            count(steps, "step")
        ));
    }
    watcher.begin(steps, &group.interrupt_handle());
    let mut readings = Readings::new(&manifest.watches);
    let start = Instant::now();
    let mut done = before;
    let mut stopped = None;
    while done < steps && stopped.is_none() {
        // Between points that the host must see, steps are queued.
        let mut count = stop::until_due(job, done, watch::until_due(&manifest.watches, done, steps - done));
        if let Some(checkpoints) = &checkpoints {
            count = count.min(checkpoints.until_due(done));
        }
        group.execute_many(count)?;
        done += count;
        watch::read(job, &mut group, joined, done, false, &mut readings)?;
        watcher.readings(&readings);
        stopped = stop::holds(job, &mut group, done)?;
        if let (Some(checkpoints), None) = (&mut checkpoints, &stopped) {
            checkpoints.take(&mut group, done)?;
        }
    }
    let stopped = stopped
        .or(ended.map(|buffer| Stopped { step: done, by: format!("the end of the feed of {buffer}") }));
    group.finish()?;
    let elapsed = start.elapsed();
    watch::read(job, &mut group, joined, done, true, &mut readings)?;
    watcher.readings(&readings);
    if let Some(checkpoints) = &mut checkpoints {
        checkpoints.settle()?;
    }
    let outputs = outputs.write(&mut group, joined)?;
    Ok(Summary {
        pipeline: manifest.name().to_string(),
        world: job.world.size(),
        devices: joined.gather("devices", chosen.names())?.concat(),
        libraries,
        steps: done.saturating_sub(before),
        stopped,
        elapsed_s: elapsed.as_secs_f64(),
        step_us: StepTimes::of(group.step_times()),
        watched: readings,
        checkpoint: checkpoints.as_ref().map(|checkpoints| checkpoints.summary()),
        outputs: joined.gather("outputs", outputs)?.concat(),
    })
}

/// Steps until the next multiple of `every`, which is at least 1, after `done` of them.
fn until_next(every: u64, done: u64) -> u64 {
    every - done % every
}

/// What this process has opened for devices of a kind.
fn libraries(registry: &Registry, kind: &str) -> Vec<String> {
    let backend = registry.backend(kind).into_iter().flat_map(|backend| backend.in_use());
    let libraries = registry.libraries().filter(|library| library.device() == kind);
    backend.chain(libraries.flat_map(|library| library.in_use())).collect()
}
