//! How the feeds divide a run's steps into epochs: from the headers of their files, before anything runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use squall_core::{Diagnostic, Label, Problems};

use super::{Fault, Spot, part, split};
use crate::codes;
use crate::files::npy;
use crate::manifest::model::{self, FeedEnd, Part};
use crate::render::count;
use crate::resolve::Job;

/// How many steps a run has, and how many of them are an epoch.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// The steps that `epochs` asks for.
    epochs: Option<u64>,
    /// The steps after which a feed with `end = "stop"` has no more batches, and that feed's buffer.
    limit: Option<(u64, String)>,
    /// Batches in an epoch of the feeds with `end = "pad"`: as many as the longest of them needs on any rank.
    pub(super) pad_epoch: u64,
    /// Batches in an epoch of the feeds with `end = "stop"`: as many as the shortest of them fills on every rank.
    pub(super) stop_epoch: u64,
    /// Why the number of steps is not known: a file that could not be looked at.
    unknown: Option<String>,
    /// What the author should look at, in file order.
    pub warnings: Vec<Diagnostic>,
}

/// A feed on a rank.
struct Fed<'m> {
    name: &'m str,
    feed: &'m model::Feed,
    rank: u32,
    rows: u64,
    batch: u64,
}

impl Fed<'_> {
    fn label(&self, text: impl Into<String>) -> Label {
        Label::at(self.feed.file.name.place.span(), text)
    }

    fn pads(&self) -> bool {
        matches!(self.feed.end, FeedEnd::Pad(_))
    }

    fn stops(&self) -> bool {
        matches!(self.feed.end, FeedEnd::Stop)
    }

    fn wraps(&self) -> bool {
        matches!(self.feed.end, FeedEnd::Wrap)
    }
}

impl Schedule {
    /// Looks at the files of all feeds. One that cannot be looked at leaves the steps unknown; the run tells what is wrong with it.
    ///
    /// # Errors
    /// Feeds that cannot fill a batch, and epochs without a row.
    pub fn of(job: &Job<'_>, folder: &Path) -> Result<Schedule, Problems> {
        let pipeline = &job.manifest.pipeline;
        let fed = match feeds(job, folder)? {
            Ok(fed) => fed,
            Err(unknown) => {
                let warnings = split::dropped(job, folder);
                return Ok(Schedule { unknown: Some(unknown), warnings, ..Schedule::default() });
            }
        };
        let problems = too_short(&fed);
        if !problems.is_empty() {
            return Err(Problems(problems).folded());
        }
        let (pads, stops) = (fed.iter().filter(|fed| fed.pads()), fed.iter().filter(|fed| fed.stops()));
        let pad_epoch = pads.map(|fed| fed.rows.div_ceil(fed.batch)).max().unwrap_or(0);
        let shortest = stops.min_by_key(|fed| fed.rows / fed.batch);
        let stop_epoch = shortest.map_or(0, |fed| fed.rows / fed.batch);
        let epochs = pipeline.epochs.map_or(1, |epochs| epochs.value);
        let limit = shortest.map(|fed| (stop_epoch.saturating_mul(epochs), fed.name.to_owned()));
        let mut schedule = Schedule { limit, pad_epoch, stop_epoch, ..Schedule::default() };
        if let Some(written) = pipeline.epochs {
            let wraps = fed.iter().filter(|fed| fed.wraps());
            let wrapped = wraps.map(|fed| {
                let rows = u128::from(fed.rows) * u128::from(epochs);
                u64::try_from(rows.div_ceil(fed.batch.into())).unwrap_or(u64::MAX)
            });
            let longest = wrapped.max().unwrap_or(0).max(pad_epoch.saturating_mul(epochs));
            let steps = schedule.limit.as_ref().map_or(longest, |(limit, _)| *limit);
            if steps == 0 {
                let label = Label::at(written.span, "epochs of what?");
                let report = Diagnostic::error(codes::EPOCHS, "no feed has a row to give on any rank", label);
                return Err(Problems(vec![report.with_help("write `steps` in place of `epochs`")]));
            }
            schedule.epochs = Some(steps);
        }
        schedule.warnings = warnings(&fed, &schedule, epochs);
        schedule.warnings.extend(split::dropped(job, folder));
        schedule.warnings.sort_by_key(|warning| warning.primary.span.map(|span| span.start));
        Ok(schedule)
    }

    /// The steps of a run: `asked` on the command line, or else the manifest's; and the buffer whose feed ends the run before, if one
    /// does. `None` where they are unknown.
    pub fn steps(&self, pipeline: &model::Pipeline, asked: Option<u64>) -> Option<(u64, Option<&str>)> {
        if self.unknown.is_some() {
            return None;
        }
        let steps = asked.or(self.epochs).unwrap_or(pipeline.steps.value);
        Some(match &self.limit {
            Some((limit, name)) if *limit < steps => (*limit, Some(name)),
            _ => (steps, None),
        })
    }

    /// Why the number of steps is not known, where it depends on a file that could not be looked at.
    pub fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }
}

/// Every feed on every rank that has its buffer, with a batch that is not empty; or why a file could not be looked at.
fn feeds<'m>(job: &Job<'m>, folder: &Path) -> Result<Result<Vec<Fed<'m>>, String>, Problems> {
    let mut fed = Vec::new();
    let mut shapes: BTreeMap<PathBuf, Vec<u64>> = BTreeMap::new();
    let mut problems = Vec::new();
    if job.manifest.buffers.iter().all(|buffer| buffer.feed.is_none()) {
        return Ok(Ok(fed));
    }
    for graph in &job.graphs {
        let uses = graph.uses();
        for (place, buffer) in job.manifest.buffers.iter().enumerate() {
            let (Some(feed), true) = (&buffer.feed, uses[place]) else { continue };
            let (decl, feed, rank) = (&graph.buffers()[place], &feed.value, graph.rank());
            let Some(batch) = decl.shape.first().copied().filter(|_| !decl.is_empty()) else { continue };
            let path = folder.join(feed.file.name.for_rank(rank));
            let shape = match shapes.get(&path) {
                Some(shape) => shape,
                None => match npy::open(&path, decl.dtype) {
                    Ok(array) => shapes.entry(path).or_insert(array.shape().to_vec()),
                    Err(error) => return Ok(Err(error.to_string())),
                },
            };
            let span = Some(feed.file.name.place.span());
            let at = Spot { rank, decl, span, code: codes::DATA, tensor: None };
            let env = job.env(rank);
            let all = shape.first().copied().unwrap_or(0);
            let rows = match part::ranges(&at, &env, job.world.size(), &feed.file.part, shape) {
                // That it lies inside is checked when the file is read.
                Ok(ranges) => ranges.first().map_or(all, |rows| rows.end.min(all).saturating_sub(rows.start)),
                Err(Fault::Refused(problem)) => {
                    problems.push(env.take_problems().into_iter().next().unwrap_or(*problem));
                    continue;
                }
                Err(Fault::Ended(error)) => return Ok(Err(error.to_string())),
            };
            fed.push(Fed { name: &buffer.name.value, feed, rank, rows, batch });
        }
    }
    if problems.is_empty() { Ok(Ok(fed)) } else { Err(Problems(problems).folded()) }
}

/// Feeds that stop before their first batch is full.
fn too_short(fed: &[Fed<'_>]) -> Vec<Diagnostic> {
    let short = fed.iter().filter(|fed| fed.stops() && fed.rows < fed.batch);
    let report = |fed: &Fed<'_>| {
        let message = format!(
            "the feed of `{}` stops before its first batch is full: rank {} has {}, and a batch has {}",
            fed.name,
            fed.rank,
            count(fed.rows, "row"),
            fed.batch
        );
        let help = "let the batch be shorter, or `end` be \"pad\" or \"wrap\"";
        Diagnostic::error(codes::FEED, message, fed.label("").on_rank(fed.rank)).with_help(help)
    };
    short.map(report).collect()
}

/// What the author should know of how the rows come out, each matter once.
fn warnings(fed: &[Fed<'_>], schedule: &Schedule, epochs: u64) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for first in fed {
        if seen.contains(&first.name) {
            continue;
        }
        seen.push(first.name);
        let ranks = || fed.iter().filter(|other| other.name == first.name);
        warnings.extend(dropped(first, &ranks().collect::<Vec<_>>(), schedule, epochs));
        if let Some(short) = ranks().find(|fed| fed.wraps() && (1..fed.batch).contains(&fed.rows)) {
            let message = format!(
                "a batch of `{}` has {} rows and rank {} only {}: rows come more than once in a batch",
                short.name, short.batch, short.rank, short.rows
            );
            let help = "let the batch be shorter, or fill it up with `end = \"pad\"`, and labels with `pad = -1` besides";
            warnings
                .push(Diagnostic::warning(codes::REPEATED_ROWS, message, short.label("")).with_help(help));
        }
        if schedule.epochs.is_some() {
            warnings.extend(ranks().find_map(|one| unequal(fed, one)));
        }
    }
    warnings
}

/// The rows of a feed that are in no batch.
fn dropped(first: &Fed<'_>, ranks: &[&Fed<'_>], schedule: &Schedule, epochs: u64) -> Option<Diagnostic> {
    let left_out = |fed: &Fed<'_>| match (fed.stops(), &schedule.limit, schedule.epochs) {
        (true, ..) => fed.rows.saturating_sub(schedule.stop_epoch.saturating_mul(fed.batch)),
        // Another feed stops the run.
        (false, Some((steps, _)), Some(_)) => {
            let (batches, all) = match fed.pads() {
                true => (schedule.pad_epoch.saturating_mul(epochs), fed.rows.saturating_mul(epochs)),
                false => (u64::MAX, fed.rows.saturating_mul(epochs)),
            };
            if *steps >= batches {
                return 0;
            }
            let whole = if fed.pads() { steps / schedule.pad_epoch.max(1) } else { 0 };
            let rest = steps - whole * schedule.pad_epoch;
            let more = rest.saturating_mul(fed.batch);
            let more = if fed.pads() { more.min(fed.rows) } else { more };
            all.saturating_sub(whole.saturating_mul(fed.rows).saturating_add(more))
        }
        _ => 0,
    };
    // Ranks that read the same rows leave out the same.
    let is_split = matches!(first.feed.file.part, Part::Rows);
    let over = |number: &dyn Fn(&Fed<'_>) -> u64| match is_split {
        true => ranks.iter().fold(0u64, |sum, fed| sum.saturating_add(number(fed))),
        false => ranks.iter().map(|fed| number(fed)).max().unwrap_or(0),
    };
    let (rows, all) = (over(&left_out), over(&|fed| fed.rows));
    if rows == 0 {
        return None;
    }
    let (message, help) = match (&schedule.limit, first.stops()) {
        (Some((steps, name)), false) => (
            format!(
                "{} of the feed of `{}` {} not read: the feed of `{name}` ends the run after {}",
                count(rows, "row"),
                first.name,
                if rows == 1 { "is" } else { "are" },
                count(*steps, "step")
            ),
            "let both have as many rows for each batch",
        ),
        _ => (
            format!("the feed of `{}` drops {rows} of {} in every epoch", first.name, count(all, "row")),
            "choose a batch that divides the rows, or `end = \"pad\"`, which drops none",
        ),
    };
    let text = match (first.stops(), schedule.stop_epoch) {
        (false, _) => String::new(),
        (true, 1) => "one whole batch on every rank".to_owned(),
        (true, batches) => format!("{batches} whole batches on every rank"),
    };
    Some(Diagnostic::warning(codes::DROPPED_ROWS, message, first.label(text)).with_help(help))
}

/// That a feed does not keep in step with the first one of its rank.
fn unequal(fed: &[Fed<'_>], one: &Fed<'_>) -> Option<Diagnostic> {
    let first = fed.iter().find(|other| other.rank == one.rank)?;
    let product = |rows: u64, batch: u64| u128::from(rows) * u128::from(batch);
    if product(first.rows, one.batch) == product(one.rows, first.batch) {
        return None;
    }
    let rank = one.rank;
    let message = format!(
        "the feeds of `{}` and `{}` do not stay together: in an epoch rank {rank} has {} for batches of {}, and {} for batches of {}",
        first.name,
        one.name,
        count(first.rows, "row"),
        first.batch,
        count(one.rows, "row"),
        one.batch
    );
    let warning = Diagnostic::warning(codes::UNEQUAL_FEEDS, message, one.label(""));
    Some(warning.with_related(first.label("the other")))
}
