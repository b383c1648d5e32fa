//! `squall plan`: what each rank will do.

use squall_core::Registry;
use squall_runner::render::count;

use crate::args::PlanArgs;
use crate::output;
use crate::source::Source;

pub(crate) fn plan(registry: &Registry, args: &PlanArgs) -> u8 {
    plan_or_status(registry, args).unwrap_or_else(|status| status)
}

fn plan_or_status(registry: &Registry, args: &PlanArgs) -> Result<u8, u8> {
    let source = Source::load(registry, &args.manifest)?;
    let (job, verified) = source.verified(args.world.world)?;
    if let Some(rank) = args.rank.filter(|rank| *rank >= job.world.size()) {
        let message = format!("there is no rank {rank}: the world has {}", count(job.world.size(), "rank"));
        return Err(output::fail(2, &message));
    }
    Ok(output::result(&squall_runner::plan::describe(&job, &verified, args.rank)))
}
