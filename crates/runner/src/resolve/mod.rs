//! From a manifest to one task graph per rank, for any world size, with no device at hand.
//!
//! What depends on no rank is worked out once: each task becomes a template, and a rank whose numbers are those of the
//! rank before shares its node. A rank that differs adds only its own.

mod args;
mod buffers;
mod checkpoint;
mod depends;
mod env;
mod matrix;
mod names;
mod outputs;
mod quotients;
mod range;
mod ranks;
mod replicated;
mod stop;
mod tasks;
mod watch;
mod world;

use std::cell::RefCell;
use std::sync::Arc;

use self::ranks::Ranks;
use squall_core::graph::Partial;
use squall_core::{Diagnostic, Label, Problems, Registry, TaskGraph, World, doubts, verify_partial};

use crate::codes;
use crate::manifest::Manifest;

pub use env::{RankEnv, WithIndex};
pub use names::Symbols;
pub use outputs::{Target, Writers};
pub(crate) use stop::{RANK as STOP_RANK, buffers as stop_buffers};
pub(crate) use watch::{Watched, buffers as watched_buffers, rank as watched_rank};

/// What a manifest means for a world: the graphs of all ranks, and the surroundings to work out the rest in.
#[derive(Debug)]
pub struct Job<'m> {
    /// The manifest.
    pub manifest: &'m Manifest,
    /// All ranks and communicators.
    pub world: Arc<World>,
    /// The task graphs, by rank.
    pub graphs: Vec<TaskGraph>,
    /// What each name stands for.
    pub symbols: Symbols<'m>,
    /// What the author should look at, in file order: nothing in it keeps the job from running.
    pub warnings: Vec<Diagnostic>,
}

impl<'m> Job<'m> {
    /// What expressions see on a rank.
    pub fn env(&self, rank: u32) -> RankEnv<'_> {
        RankEnv::new(&self.symbols, &self.world, rank)
    }
}

/// Resolves a manifest for `world` ranks on devices of one kind.
///
/// # Errors
/// All that is wrong, with what ranks share said once. Then that includes what verification has against the tasks
/// that could be made; a job without errors here is still to be verified.
pub fn resolve<'m>(
    manifest: &'m Manifest,
    registry: &Registry,
    world: u64,
    device: &str,
) -> Result<Job<'m>, Problems> {
    let symbols = Symbols::new(manifest);
    let world = Arc::new(world::make(&symbols, world)?);
    let problems = RefCell::new(Vec::new());
    outputs::check(&symbols, &problems);
    watch::check(&symbols, &problems);
    stop::check(&symbols, &problems);
    if let Some(epochs) = manifest.pipeline.epochs
        && manifest.buffers.iter().all(|buffer| buffer.feed.is_none())
    {
        let label = Label::at(epochs.span, "epochs of what?");
        let report = Diagnostic::error(
            codes::EPOCHS,
            "`epochs` count the rows of feeds, and no buffer has a feed",
            label,
        );
        problems
            .borrow_mut()
            .push(report.with_help("give a buffer a `feed`, or write `steps` in place of `epochs`"));
    }
    let ranks = Ranks { symbols: &symbols, registry, world: &world, device };
    let mut made = ranks.make(&problems);
    let partials = std::mem::take(&mut made.partials);
    let mut problems = problems.into_inner();
    let graphs: Option<Vec<TaskGraph>> = if problems.is_empty() {
        partials.into_iter().map(Partial::whole).collect()
    } else {
        if made.every_rank {
            problems.extend(verify_partial(partials));
        }
        None
    };
    let Some(graphs) = graphs else {
        return Err(Problems(distinct(problems)).folded_where(|report| made.tells_of_few(report)));
    };
    let mut job = Job { manifest, world, graphs, symbols, warnings: Vec::new() };
    let mut problems = watch::check_ranks(&job);
    problems.extend(stop::check_ranks(&job));
    match job.targets() {
        Ok(targets) => problems.extend(checkpoint::check(&job, &targets)),
        Err(found) => problems.extend(found),
    }
    if !problems.is_empty() {
        return Err(Problems(problems).folded());
    }
    let mut warnings = quotients::check(&job, registry);
    warnings.extend(replicated::check(&job));
    warnings.extend(buffers::unread(&job.symbols));
    warnings.extend(doubts(&job.graphs));
    warnings.sort_by_key(|warning| warning.primary.span.map(|span| span.start));
    job.warnings = warnings;
    Ok(job)
}

/// One fault can be met more than once: when the manifest is looked at as a whole, and again on a rank.
fn distinct(problems: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let placed = |problem: &Diagnostic| (problem.code, problem.primary.span, problem.message.clone());
    let known: Vec<_> = problems.iter().filter(|p| p.primary.rank.is_none()).map(placed).collect();
    let again = |problem: &Diagnostic| problem.primary.rank.is_some() && known.contains(&placed(problem));
    problems.into_iter().filter(|problem| !again(problem)).collect()
}
