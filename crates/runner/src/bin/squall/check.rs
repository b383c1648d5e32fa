//! `squall check`: parse, resolve and verify, without any device.

use std::ops::RangeInclusive;

use squall_core::{Code, Diagnostic, Registry};
use squall_runner::codes;
use squall_runner::run::Schedule;

use crate::args::{CheckArgs, Worlds};
use crate::output;
use crate::source::Source;

pub(crate) fn check(registry: &Registry, args: &CheckArgs) -> u8 {
    check_or_status(registry, args).unwrap_or_else(|status| status)
}

fn check_or_status(registry: &Registry, args: &CheckArgs) -> Result<u8, u8> {
    let source = Source::load(registry, &args.manifest)?;
    let world = match args.world {
        None => None,
        Some(Worlds::One(world)) => Some(world),
        Some(Worlds::Range(first, last)) => return range(&source, args, first..=last),
    };
    let (job, verified) = source.verified(world)?;
    let schedule = Schedule::of(&job, source.folder()).map_err(|problems| source.fail(&problems.into()))?;
    let warnings = [&job.warnings[..], &schedule.warnings].concat();
    source.show(&warnings);
    if let Some(unknown) = schedule.unknown() {
        output::note(&format!("how the feeds come out is not known: {unknown}"));
    }
    if args.deny_warnings && !(source.warnings.is_empty() && warnings.is_empty()) {
        return Err(output::fail(2, "there are warnings, and `--deny-warnings` is given"));
    }
    let (world, tasks) = (job.world.size(), job.graphs.iter().map(|graph| graph.len()).sum::<usize>());
    Ok(output::result(&format!(
        "{}: {world} rank{}, {tasks} task{}, verified (plan {:032x})\n",
        source.name(),
        if world == 1 { "" } else { "s" },
        if tasks == 1 { "" } else { "s" },
        verified.plan_hash()
    )))
}

/// Diagnostics that say of a number of ranks that the manifest is not meant for it.
const NOT_MEANT: [Code; 2] = [codes::REQUIRE, codes::MESH];

/// Checks each of some numbers of ranks. What is wrong is printed once for all of them with which the same is wrong at the same places, with the
/// values of the least.
fn range(source: &Source<'_>, args: &CheckArgs, worlds: RangeInclusive<u64>) -> Result<u8, u8> {
    let (_, kind) = source.world(Some(*worlds.start()))?;
    let (mut verified, mut not_meant): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    let mut told: Vec<(Vec<u64>, Vec<Diagnostic>)> = Vec::new();
    let (mut refused, mut warned): (Vec<u64>, bool) = (Vec::new(), !source.warnings.is_empty());
    for world in worlds {
        let said = match source.judged(world, kind) {
            Ok((job, _)) => {
                verified.push(world);
                let schedule = Schedule::of(&job, source.folder());
                let schedule = schedule.map_err(|problems| source.fail(&problems.into()))?;
                [&job.warnings[..], &schedule.warnings].concat()
            }
            Err(problems) if problems.0.iter().all(|problem| NOT_MEANT.contains(&problem.code)) => {
                not_meant.push(world);
                continue;
            }
            Err(problems) => {
                refused.push(world);
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
    Ok(output::result(&format!("{name}: verified with {}\n", ranks(&verified))))
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
