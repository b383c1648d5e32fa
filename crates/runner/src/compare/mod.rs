//! Runs a job on the host and on other devices in lockstep, and compares what every task writes.
//!
//! Both sides are the same manifest for the same world, and a run's contents are worked out by the runner, so that they
//! begin with the same values. Each side runs as it always does, every rank in its own order; an observer looks at each
//! task when it has ended. A step is run by the host first, then by the other side.

mod gather;
mod observe;
mod report;
mod tolerance;

use std::sync::Arc;

use squall_core::graph::Node;
use squall_core::{
    Diagnostic, GroupError, Label, Observer, Options, Phase, PlanGroup, Registry, TaskGraph, Verified,
};

use self::gather::Place;
use self::observe::{Judge, Record, Sides};
use crate::codes;
use crate::manifest::devices::{DeviceSpec, Devices, Which};
use crate::plugin::load_named;
use crate::resolve::{Job, resolve};
use crate::run::devices::{self, Chosen};
use crate::run::{self, RunError, Watcher};

pub use report::{Agreement, Comparison, Deviation, Difference};
pub use tolerance::{Tolerance, Tolerances};

/// The side that is compared with.
const HOST: &str = "host";

/// What a comparison is asked for, beside the run.
#[derive(Debug)]
pub struct Request<'a> {
    /// The run. No output is written: its `file` is not looked at. Its `devices`, if any, are those to compare with the
    /// host's, and are of the kind `with`.
    pub run: run::Request<'a>,
    /// The kind of the devices to compare with the host's: as many as the manifest's devices, as far as there are so many, or all
    /// that there are where it says `auto`.
    pub with: &'static str,
    /// How far results may lie apart.
    pub tolerances: Tolerances,
    /// Whether to give each task the host's values after it was compared, so that it is judged alone. The comparison then goes
    /// on to the last step; otherwise it ends with the first step in which a task differs, since all that comes after it
    /// may differ too.
    pub each: bool,
}

/// Runs a manifest on the host and on other devices, and compares what every task writes. No step is captured; a step may
/// take as long as `init_timeout`, if that is longer than `step_timeout`, since ranks wait for every task.
///
/// # Errors
/// [`RunError::Differs`] when a task writes something else than on the host; it holds what was found. A side that fails
/// gives its own error, as [`RunError::Side`].
pub fn compare(
    registry: &Registry,
    request: &Request<'_>,
    watcher: &mut dyn Watcher,
) -> Result<Comparison, RunError> {
    match in_lockstep(registry, request, watcher) {
        Err(error) if watcher.stopped() && !error.is_interrupt() => Err(RunError::Interrupted),
        result => result,
    }
}

fn in_lockstep(
    registry: &Registry,
    request: &Request<'_>,
    watcher: &mut dyn Watcher,
) -> Result<Comparison, RunError> {
    let manifest = request.run.manifest;
    let registry = &load_named(registry, manifest, request.run.folder)?;
    let chosen = devices::choose(registry, manifest, Some(&others(registry, request)?))?;
    let world = chosen.indices.len() as u64;
    // A world is no larger than a rank's number.
    let hosts = Chosen { kind: HOST, indices: (0..world as u32).collect(), note: None };
    let (host_job, job) =
        (resolve(manifest, registry, world, HOST)?, resolve(manifest, registry, world, chosen.kind)?);
    let (host_verified, verified) = (run::proven(&host_job)?, run::proven(&job)?);
    if let Some(problem) = unlike(&host_job.graphs, &job.graphs) {
        return Err(problem.into());
    }

    let schedule = run::schedule(&job, request.run.folder, watcher)?;
    let sides = Sides::new(&job.graphs, request.tolerances, request.each);
    let place = Place::new(&job, &verified, chosen.names());
    let mut host = side(
        registry,
        request,
        (&host_job, host_verified),
        &hosts,
        &schedule,
        Arc::new(Record(sides.clone())),
        watcher,
    )
    .map_err(on(HOST))?;
    let mut other = side(
        registry,
        request,
        (&job, verified),
        &chosen,
        &schedule,
        Arc::new(Judge(sides.clone())),
        watcher,
    )
    .map_err(on(chosen.kind))?;

    let (steps, _) = run::steps(&schedule, &request.run)?;
    watcher.begin(steps, &host.interrupt_handle());
    watcher.begin(steps, &other.interrupt_handle());
    let mut both = |run: fn(&mut PlanGroup) -> Result<(), GroupError>| {
        run(&mut host).map_err(|error| on(HOST)(error.into()))?;
        run(&mut other).map_err(|error| on(chosen.kind)(error.into()))
    };
    let mut done = 0;
    let goes_on = || request.each || !sides.differ();
    while done < steps && goes_on() {
        both(PlanGroup::execute)?;
        done += 1;
    }
    if goes_on() {
        both(PlanGroup::finish)?;
    }
    let comparison = Comparison {
        pipeline: manifest.name().to_string(),
        world: job.world.size(),
        steps: done,
        each: request.each,
        tolerances: request.tolerances,
        agreement: place.agreement(&sides),
        differences: place.differences(&sides, request.each),
        devices: place.devices,
    };
    if comparison.differences.is_empty() {
        Ok(comparison)
    } else {
        Err(RunError::Differs(Box::new(comparison)))
    }
}

/// The devices to compare with the host's.
fn others(registry: &Registry, request: &Request<'_>) -> Result<Devices, RunError> {
    let with = request.with;
    let which = match (request.run.devices, &request.run.manifest.world.devices.value) {
        (Some(Devices::Listed(specs)), _) if specs.iter().any(|spec| spec.backend != with) => {
            let message = format!("the devices to compare with are to be of the kind {with}");
            return Err(Diagnostic::error(codes::DEVICES, message, Label::default()).into());
        }
        (Some(given @ Devices::Listed(_)), _) => return Ok(given.clone()),
        (None, named @ Devices::Listed(specs)) => {
            if specs.iter().all(|spec| spec.backend == with) {
                return Ok(named.clone());
            }
            // What is amiss with the backend is told when they are chosen.
            let there = registry.backend(with).and_then(|backend| backend.count().ok().flatten());
            match devices::ranks(specs).map(|count| u32::try_from(count).unwrap_or(u32::MAX)) {
                Some(count) => Which::Range(0..there.map_or(count, |there| count.min(there).max(1))),
                None => Which::All,
            }
        }
        _ => Which::All,
    };
    Ok(Devices::Listed(vec![DeviceSpec { backend: with, which }]))
}

/// Binds one side, with its buffers filled.
fn side(
    registry: &Registry,
    request: &Request<'_>,
    (job, verified): (&Job<'_>, Verified),
    chosen: &Chosen,
    schedule: &run::Schedule,
    observer: Arc<dyn Observer>,
    watcher: &dyn Watcher,
) -> Result<PlanGroup, RunError> {
    let pipeline = &request.run.manifest.pipeline;
    let (step, init) = (pipeline.step_timeout.value, pipeline.init_timeout.value);
    let options = Options::default().step_timeout(Some(step.max(init))).init_timeout(init);
    let mut group = PlanGroup::new(registry, verified, &chosen.open(registry)?, options)?;
    group.observe(&observer)?;
    run::fill(job, request.run.folder, schedule, watcher, &mut group)?;
    Ok(group)
}

/// Says on which side it happened.
fn on(side: &'static str) -> impl Fn(RunError) -> RunError {
    move |error| match error {
        // What is wrong with the job is wrong on either side.
        error @ (RunError::Refused(_) | RunError::Interrupted) => error,
        error => RunError::Side { side, error: Box::new(error) },
    }
}

/// What stands against comparing: a task that does not write the same on both sides. Tasks do, unless a library describes an
/// op in its own way.
fn unlike(host: &[TaskGraph], other: &[TaskGraph]) -> Option<Diagnostic> {
    let writes = |node: &Node| {
        let ranges = node.writes().map(|access| (access.buffer, access.range.clone()));
        (node.origin.name.clone(), ranges.collect::<Vec<_>>())
    };
    for (host, other) in host.iter().zip(other) {
        for phase in Phase::ALL {
            let (host, tasks) = (host.tasks(phase), other.tasks(phase));
            let same =
                |place: usize| host.get(place).map(|n| writes(n)) == tasks.get(place).map(|n| writes(n));
            let Some(place) = (0..host.len().max(tasks.len())).find(|&place| !same(place)) else { continue };
            let kind = other.device();
            let message = format!("on {kind} devices this does not write what it writes on the host");
            let origin =
                host.get(place).or(tasks.get(place)).map(|node| node.origin.clone()).unwrap_or_default();
            let label = Label::at(origin.span, "").on_rank(other.rank()).in_task(&origin.name);
            return Some(Diagnostic::error(squall_core::codes::LIBRARY, message, label));
        }
    }
    None
}
