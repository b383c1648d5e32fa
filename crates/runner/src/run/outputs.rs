//! Files written after the last step: checked before the first, whole or not at all.

use std::path::{Path, PathBuf};

use squall_core::{BufferId, Diagnostic, Label, PlanGroup};

use super::RunError;
use crate::codes;
use crate::files::output::Output;
use crate::files::{npy, png};
use crate::manifest::model::SaveFormat;
use crate::resolve::{Job, Target, Writers};

/// The outputs of a run, each with its place kept ready.
pub(super) struct Outputs {
    ready: Vec<(Target, PathBuf, Output)>,
}

impl Outputs {
    /// Makes sure that every output can be written, before anything runs.
    pub(super) fn prepare(job: &Job<'_>, folder: &Path) -> Result<Outputs, Vec<Diagnostic>> {
        let (mut ready, mut problems) = (Vec::new(), Vec::new());
        for target in job.targets()? {
            let declared = &job.manifest.buffers[target.buffer];
            let span = declared.save.as_ref().map(|save| save.value.file.place.span());
            let error = |message: String| {
                Diagnostic::error(
                    codes::OUTPUT,
                    format!("buffer `{}`: {message}", declared.name.value),
                    Label::at(span, ""),
                )
            };
            let checked = shape(job, &target).and_then(|shape| match target.format {
                SaveFormat::Npy => Ok(()),
                SaveFormat::Png => png::check_shape(&shape).map(|_| ()).map_err(|e| e.to_string()),
            });
            let path = folder.join(&target.file);
            match checked.and_then(|()| Output::prepare(&path).map_err(|e| e.to_string())) {
                Ok(output) => ready.push((target, path, output)),
                Err(message) => problems.push(error(message)),
            }
        }
        if problems.is_empty() { Ok(Outputs { ready }) } else { Err(problems) }
    }

    /// Writes them all; returns their names, in order. What was not written when one fails stays as it was.
    pub(super) fn write(self, job: &Job<'_>, group: &mut PlanGroup) -> Result<Vec<String>, RunError> {
        let mut written = Vec::with_capacity(self.ready.len());
        for (target, path, output) in self.ready {
            let buffer = BufferId(target.buffer as u32);
            let ranks: &[u32] = match &target.writers {
                Writers::One(rank) => std::slice::from_ref(rank),
                Writers::All(ranks) => ranks,
            };
            let mut bytes = Vec::new();
            for &rank in ranks {
                bytes.append(&mut group.read_bytes(rank, buffer)?);
            }
            let dtype = job.graphs[ranks[0] as usize].buffers()[target.buffer].dtype;
            let shape = shape(job, &target).map_err(RunError::Environment)?;
            output.commit(|out| match target.format {
                SaveFormat::Npy => npy::write(out, dtype, &shape, &bytes),
                SaveFormat::Png => png::write(out, dtype, &shape, &bytes),
            })?;
            written.push(path.display().to_string());
        }
        Ok(written)
    }
}

/// The shape of what is written: gathered, the ranks' rows together.
fn shape(job: &Job<'_>, target: &Target) -> Result<Vec<u64>, String> {
    let decl = |rank: u32| &job.graphs[rank as usize].buffers()[target.buffer];
    let ranks = match &target.writers {
        Writers::One(rank) => return Ok(decl(*rank).shape.to_vec()),
        Writers::All(ranks) => ranks,
    };
    let first = decl(ranks[0]);
    let Some((_, rest)) = first.shape.split_first() else {
        return Err("a single number has no rows to gather".to_string());
    };
    let mut rows = 0u64;
    for &rank in ranks {
        let other = decl(rank);
        if other.dtype != first.dtype || other.shape.get(1..) != Some(rest) {
            return Err(format!(
                "it cannot be gathered: rank {} has {} {:?} and rank {rank} has {} {:?}",
                ranks[0], first.dtype, first.shape, other.dtype, other.shape
            ));
        }
        rows += other.shape[0];
    }
    Ok(std::iter::once(rows).chain(rest.iter().copied()).collect())
}
