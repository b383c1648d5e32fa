//! `squall check`: parse, resolve and verify, without any device.

use squall_core::Registry;
use squall_runner::run::Schedule;

use crate::args::CheckArgs;
use crate::output;
use crate::source::Source;

pub(crate) fn check(registry: &Registry, args: &CheckArgs) -> u8 {
    check_or_status(registry, args).unwrap_or_else(|status| status)
}

fn check_or_status(registry: &Registry, args: &CheckArgs) -> Result<u8, u8> {
    let source = Source::load(registry, &args.manifest)?;
    let (job, verified) = source.verified(args.world.world)?;
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
