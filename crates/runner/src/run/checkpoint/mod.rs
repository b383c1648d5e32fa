//! Checkpoints: what a run keeps of its steps on the disk, and how another goes on from there.
//!
//! A checkpoint holds the buffers that the job carries from step to step ([`Verified::carried`]) and the number of steps done;
//! all else follows from the manifest and that number. `docs/checkpoints.md` has the format and what is promised.

mod index;
mod store;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use squall_core::{BufferId, Diagnostic, Label, PlanGroup, Snapshot, Span, Verified};

use super::{Request, RunError, Watcher, until_next};
use crate::codes;
use crate::files::{FileError, writable};
use crate::render::count;
use crate::resolve::Job;
use crate::run::summary::CheckpointSummary;

use self::index::{FORMAT, Index};
use self::store::{Found, Store};
use self::writer::Writer;

/// A job's checkpoints, looked at before anything runs.
pub(super) struct Prepared {
    store: Store,
    every: u64,
    carried: Vec<Arc<[bool]>>,
    /// The step to go on from.
    resumed_at: Option<u64>,
}

/// The checkpoints of a run that goes on.
pub(super) struct Checkpoints {
    every: u64,
    store: Store,
    /// The snapshot, where it is not with the writer; and none where no checkpoint will be due.
    snapshot: Option<Snapshot>,
    writer: Option<Writer>,
    summary: CheckpointSummary,
}

/// Finds the checkpoint to go on from, if the run is to be resumed, and makes sure that new ones can be written.
///
/// # Errors
/// No `[checkpoint]` in a manifest that is to be resumed; checkpoints that are there though the run begins anew; one of another
/// job; a folder that cannot be used.
pub(super) fn prepare(
    job: &Job<'_>,
    verified: &Verified,
    request: &Request<'_>,
    resume: bool,
    watcher: &mut dyn Watcher,
) -> Result<Option<Prepared>, RunError> {
    let Some(checkpoint) = &job.manifest.checkpoint else {
        if !resume {
            return Ok(None);
        }
        let message = "the run is to be resumed, and the manifest has no `[checkpoint]`";
        let report = Diagnostic::error(codes::NO_CHECKPOINTS, message, Label::default());
        return Err(report
            .with_help("write `[checkpoint]` with `dir` and `every`, and run without `--resume` first")
            .into());
    };
    let span = checkpoint.dir.span;
    let keep = usize::try_from(checkpoint.keep.value).unwrap_or(usize::MAX);
    let store =
        Store { dir: request.folder.join(&checkpoint.dir.value), keep, index: Index::of(job, verified) };
    let unusable = |error: FileError| {
        let message = format!("the checkpoints' folder cannot be used: {error}");
        let report = Diagnostic::error(codes::CHECKPOINT_DIR, message, Label::at(span, ""));
        report.with_help("name a folder that files can be made in")
    };
    let steps = store.steps().map_err(unusable)?;
    let resumed_at = match resume {
        true => newest(&store, &steps, span, watcher)?,
        false => match steps.iter().find(|&&step| store.has_index(step)) {
            None => None,
            Some(&step) => return Err(there(&store, step, span).into()),
        },
    };
    writable(&store.dir).map_err(unusable)?;
    Ok(Some(Prepared { store, every: checkpoint.every.value, carried: verified.carried(), resumed_at }))
}

/// A run begins anew where an earlier one has left checkpoints.
fn there(store: &Store, step: u64, span: Option<Span>) -> Diagnostic {
    let message = format!("there is a checkpoint already, `{}`", store.folder(step).display());
    Diagnostic::error(codes::CHECKPOINTS_THERE, message, Label::at(span, ""))
        .with_help("`--resume` goes on from it; to begin anew, remove the folder or name another")
}

/// The newest checkpoint that is whole. Damaged ones are passed over, and said.
fn newest(
    store: &Store,
    steps: &[u64],
    span: Option<Span>,
    watcher: &mut dyn Watcher,
) -> Result<Option<u64>, RunError> {
    let refused = |step: u64, why: String, help: &str| {
        let message = format!("the checkpoint `{}` {why}", store.folder(step).display());
        Diagnostic::error(codes::OTHER_JOB, message, Label::at(span, "")).with_help(help)
    };
    for &step in steps {
        if watcher.stopped() {
            return Err(RunError::Interrupted);
        }
        match store.look(step) {
            Found::Whole => {
                let folder = store.folder(step);
                watcher.note(&format!("resumed after {} from `{}`", count(step, "step"), folder.display()));
                return Ok(Some(step));
            }
            Found::Damaged(why) => {
                let folder = store.folder(step);
                watcher.note(&format!("the checkpoint `{}` is not used: {why}", folder.display()));
            }
            Found::Format(format) => {
                let why = format!("is of format {format}, and this build reads {FORMAT}");
                return Err(refused(step, why, "resume with the version of squall that wrote it").into());
            }
            Found::OtherJob(differences) => {
                let why = format!("is of another job: {}", differences.join("; "));
                let help = "resume with the manifest, the devices and the `--set`s that it was written with, or begin anew in another folder";
                return Err(refused(step, why, help).into());
            }
        }
    }
    watcher.note(&format!(
        "`{}` has no whole checkpoint: the run starts from the beginning",
        store.dir.display()
    ));
    Ok(None)
}

impl Prepared {
    /// Brings the ranks to where the run goes on from, and makes ready for the checkpoints of `steps` steps. Called when every
    /// buffer has its first contents.
    pub(super) fn begin(self, group: &mut PlanGroup, steps: u64) -> Result<Checkpoints, RunError> {
        if let Some(step) = self.resumed_at {
            self.restore(group, step)?;
        }
        let done = self.resumed_at.unwrap_or(0);
        let summary = CheckpointSummary { resumed_at: self.resumed_at, written: 0, newest: None };
        let (mut snapshot, mut writer) = (None, None);
        if done < steps && until_next(self.every, done) <= steps - done {
            snapshot = Some(group.snapshot(&self.carried)?);
            let started = Writer::start(self.store.clone());
            writer = Some(started.map_err(|error| {
                RunError::Environment(format!("no thread to write checkpoints with: {error}"))
            })?);
        }
        Ok(Checkpoints { every: self.every, store: self.store, snapshot, writer, summary })
    }

    fn restore(&self, group: &mut PlanGroup, step: u64) -> Result<(), RunError> {
        group.resume_at(step)?;
        let ranks: Vec<u32> = group.verified().graphs().iter().map(|graph| graph.rank()).collect();
        for (place, (rank, file)) in ranks.into_iter().zip(&self.store.index.ranks).enumerate() {
            let carried = self.carried.get(place).into_iter().flat_map(|carried| carried.iter().enumerate());
            let ids = carried.filter(|(_, carried)| **carried).map(|(id, _)| BufferId(id as u32));
            for (id, stored) in ids.zip(&file.buffers) {
                let bytes = self.store.read(step, place, &stored.name).map_err(RunError::Checkpoint)?;
                group.restore(rank, id, bytes)?;
            }
        }
        Ok(())
    }
}

impl Checkpoints {
    /// Steps that an earlier run has done.
    pub(super) fn done_before(&self) -> u64 {
        self.summary.resumed_at.unwrap_or(0)
    }

    /// Steps until a checkpoint is due.
    pub(super) fn until_due(&self, done: u64) -> u64 {
        until_next(self.every, done)
    }

    /// Takes a checkpoint after `done` steps, if one is due; it is written while steps go on. Waits for the one before. Called
    /// between steps.
    ///
    /// # Errors
    /// What went wrong with the one before, or with copying.
    pub(super) fn take(&mut self, group: &mut PlanGroup, done: u64) -> Result<(), RunError> {
        if !done.is_multiple_of(self.every) {
            return Ok(());
        }
        self.settle()?;
        let (Some(snapshot), Some(writer)) = (self.snapshot.take(), &self.writer) else { return Ok(()) };
        writer.write(group.copy_to(snapshot)?).map_err(|_| self.gone())
    }

    /// Waits for the checkpoint that is being written.
    pub(super) fn settle(&mut self) -> Result<(), RunError> {
        let Some(writer) = self.writer.as_ref().filter(|_| self.snapshot.is_none()) else { return Ok(()) };
        let (snapshot, written) = writer.wait().ok_or_else(|| self.gone())?;
        self.snapshot = Some(snapshot);
        self.summary.newest = Some(written.map_err(RunError::Checkpoint)?.display().to_string());
        self.summary.written += 1;
        Ok(())
    }

    /// How it went. Called when all is settled.
    pub(super) fn summary(&self) -> CheckpointSummary {
        self.summary.clone()
    }

    /// The thread that writes has panicked.
    fn gone(&self) -> RunError {
        let file: PathBuf = self.store.dir.clone();
        let source = std::io::Error::other("the thread that writes checkpoints has ended");
        RunError::Checkpoint(FileError::Io { action: "write", file, source })
    }
}
