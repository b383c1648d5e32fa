//! `squall check`: parse, resolve and verify, without any device.

use std::ops::RangeInclusive;

use serde::Serialize;
use squall_core::{Code, Diagnostic, Problems, Registry, Verified};
use squall_runner::codes;
use squall_runner::render;
use squall_runner::resolve::Job;
use squall_runner::run::Schedule;

use crate::args::{CheckArgs, Worlds};
use crate::output;
use crate::source::Source;

pub(crate) fn check(registry: &Registry, args: &CheckArgs) -> u8 {
    check_or_status(registry, args).unwrap_or_else(|status| status)
}

fn check_or_status(registry: &Registry, args: &CheckArgs) -> Result<u8, u8> {
    if args.json {
        output::in_json();
    }
    let source = Source::load(registry, &args.manifest)?;
    let world = match args.world {
        None => None,
        Some(Worlds::One(world)) => Some(world),
        Some(Worlds::Range(first, last)) => return range(&source, args, first..=last),
    };
    let (world, kind) = source.world(world)?;
    let (job, verified) = source.judged(world, kind).map_err(|problems| {
        let meant = !is_not_meant(&problems);
        let status = source.fail(&problems.into());
        tell(args, &Verdict::refused(world, meant));
        status
    })?;
    let schedule = Schedule::of(&job, source.folder()).map_err(|problems| source.fail(&problems.into()))?;
    let warnings = [&job.warnings[..], &schedule.warnings].concat();
    source.show(&warnings);
    if let Some(unknown) = schedule.unknown() {
        output::note(&format!("how the feeds come out is not known: {unknown}"));
    }
    if args.deny_warnings && !(source.warnings.is_empty() && warnings.is_empty()) {
        return Err(output::fail(2, "there are warnings, and `--deny-warnings` is given"));
    }
    let status = if args.json {
        output::json(&Verdict::of(&job, &verified))
    } else {
        let (world, tasks) = (job.world.size(), tasks(&job));
        output::result(&format!(
            "{}: {world} rank{}, {tasks} task{}, verified (plan {:032x})\n",
            source.name(),
            if world == 1 { "" } else { "s" },
            if tasks == 1 { "" } else { "s" },
            verified.plan_hash()
        ))
    };
    // The process ends: to free a million tasks one by one is felt.
    std::mem::forget((job, verified));
    Ok(status)
}

/// Diagnostics that say of a number of ranks that the manifest is not meant for it.
const NOT_MEANT: [Code; 2] = [codes::REQUIRE, codes::MESH];

fn is_not_meant(problems: &Problems) -> bool {
    problems.0.iter().all(|problem| NOT_MEANT.contains(&problem.code))
}

/// Checks each of some numbers of ranks. What is wrong is printed once for all of them with which the same is wrong at the same places, with the
/// values of the least.
fn range(source: &Source<'_>, args: &CheckArgs, worlds: RangeInclusive<u64>) -> Result<u8, u8> {
    let (_, kind) = source.world(Some(*worlds.start()))?;
    let (mut verified, mut not_meant): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    let mut told: Vec<(Vec<u64>, Vec<Diagnostic>)> = Vec::new();
    let (mut refused, mut warned): (Vec<u64>, bool) = (Vec::new(), !source.warnings.is_empty());
    for world in worlds {
        let said = match source.judged(world, kind) {
            Ok((job, proven)) => {
                verified.push(world);
                tell(args, &Verdict::of(&job, &proven));
                let schedule = Schedule::of(&job, source.folder());
                let schedule = schedule.map_err(|problems| source.fail(&problems.into()))?;
                [&job.warnings[..], &schedule.warnings].concat()
            }
            Err(problems) if is_not_meant(&problems) => {
                not_meant.push(world);
                tell(args, &Verdict::refused(world, false));
                continue;
            }
            Err(problems) => {
                refused.push(world);
                tell(args, &Verdict::refused(world, true));
                problems.0
            }
        };
        let warns = said.iter().any(|diagnostic| !diagnostic.is_error());
        warned |= warns;
        let place = |diagnostic: &Diagnostic| (diagnostic.code, diagnostic.primary.span);
        let same = |(_, other): &&mut (Vec<u64>, Vec<Diagnostic>)| {
            other.iter().map(place).eq(said.iter().map(place))
        };
        match told.iter_mut().find(same) {
            _ if said.is_empty() => {}
            Some((worlds, _)) => worlds.push(world),
            None => told.push((vec![world], said)),
        }
    }
    for (worlds, said) in &told {
        if args.json {
            for diagnostic in said {
                output::json(&With { worlds, said: render::said(diagnostic, &source.text) });
            }
            continue;
        }
        output::note(&format!("with {}:", ranks(worlds)));
        source.show(said);
    }
    if !not_meant.is_empty() {
        output::note(&format!("not meant for {}, by `require` or the mesh", ranks(&not_meant)));
    }
    let name = source.name();
    if !refused.is_empty() {
        return Err(output::fail(2, &format!("{name}: refused with {}", ranks(&refused))));
    }
    if verified.is_empty() {
        return Err(output::fail(2, &format!("{name}: it is meant for none of these numbers of ranks")));
    }
    if args.deny_warnings && warned {
        return Err(output::fail(2, "there are warnings, and `--deny-warnings` is given"));
    }
    if args.json {
        return Ok(0);
    }
    Ok(output::result(&format!("{name}: verified with {}\n", ranks(&verified))))
}

/// A diagnostic of several numbers of ranks, for machines; its values are those of the first.
#[derive(Serialize)]
struct With<'a> {
    worlds: &'a [u64],
    #[serde(flatten)]
    said: render::Said<'a>,
}

/// What came of a number of ranks, for machines.
#[derive(Serialize)]
struct Verdict {
    world: u64,
    verified: bool,
    /// Whether the manifest is meant for so many, by `require` and the mesh.
    meant: bool,
    /// Of all ranks together.
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_hash: Option<String>,
}

impl Verdict {
    fn of(job: &Job<'_>, verified: &Verified) -> Verdict {
        Verdict {
            world: job.world.size().into(),
            verified: true,
            meant: true,
            tasks: Some(tasks(job)),
            plan_hash: Some(format!("{:032x}", verified.plan_hash())),
        }
    }

    fn refused(world: u64, meant: bool) -> Verdict {
        Verdict { world, verified: false, meant, tasks: None, plan_hash: None }
    }
}

fn tell(args: &CheckArgs, verdict: &Verdict) {
    if args.json {
        output::json(verdict);
    }
}

fn tasks(job: &Job<'_>) -> usize {
    job.graphs.iter().map(|graph| graph.len()).sum()
}

/// As many runs of numbers as are told.
const LISTED: usize = 12;

/// Ascending numbers of ranks in words, those that follow each other as `1 to 4`.
fn ranks(worlds: &[u64]) -> String {
    let runs = worlds.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[u64]| match run {
        [first, .., last] => format!("{first} to {last}"),
        other => other.iter().map(u64::to_string).collect(),
    };
    let mut runs: Vec<String> = runs.map(run).collect();
    let more = runs.len().saturating_sub(LISTED);
    runs.truncate(LISTED);
    runs.extend((more > 0).then(|| format!("… {more} more such")));
    let words = runs.join(", ");
    if worlds == [1] { format!("{words} rank") } else { format!("{words} ranks") }
}
