//! Files written after the last step: checked before the first, whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use squall_core::{BufferDecl, BufferId, DType, Diagnostic, Label, PlanGroup, Span};

use super::{Request, RunError};
use crate::codes;
use crate::files::output::Output;
use crate::files::{npy, png};
use crate::manifest::model::{Buffer, Init, SaveFormat};
use crate::manifest::template::Template;
use crate::resolve::{Job, Target, Writers};

/// The outputs of a run, each with its place kept ready.
pub(super) struct Outputs(Vec<Ready>);

struct Ready {
    /// As the user names it.
    path: PathBuf,
    output: Output,
    target: Target,
    dtype: DType,
    shape: Vec<u64>,
}

impl Outputs {
    /// Makes sure that every output can be written and costs no other file, before anything runs.
    pub(super) fn prepare(job: &Job<'_>, request: &Request<'_>) -> Result<Outputs, Vec<Diagnostic>> {
        let folder = request.folder;
        let inputs = inputs(job, folder);
        let manifest = request.file.and_then(|file| fs::canonicalize(file).ok());
        let (mut ready, mut problems) = (Vec::new(), Vec::new());
        let mut taken: BTreeMap<PathBuf, Span> = BTreeMap::new();
        // The buffer of the last output that cannot be written: what keeps one rank's file keeps the others' too.
        let mut refused = None;
        for target in job.targets()? {
            let buffer = target.buffer;
            let declared = &job.manifest.buffers[buffer];
            let Some(save) = &declared.save else { continue };
            let span = save.value.file.place.span();
            let error = |code, message: String| {
                let message = format!("buffer `{}`: {message}", declared.name.value);
                Diagnostic::error(code, message, Label::at(span, ""))
            };
            let one = match prepare(job, folder, target) {
                Ok(one) => one,
                Err(_) if refused == Some(buffer) => continue,
                Err(message) => {
                    refused = Some(buffer);
                    problems.push(error(codes::OUTPUT, message));
                    continue;
                }
            };
            // Where a file really is, whatever folders and links its name goes through.
            let place = one.output.place();
            let name = one.path.display();
            if manifest.as_ref() == Some(&place) {
                let report = error(codes::OUTPUT, format!("saving to `{name}` would overwrite the manifest"));
                problems.push(report.with_help("save it under another name"));
            } else if let Some(input) = inputs.get(&place) {
                let report = error(codes::OUTPUT, format!("saving to `{name}` would overwrite what is read"))
                    .with_related(Label::at(*input, "read here"));
                problems.push(report.with_help("save it under another name"));
            } else if let Some(other) = taken.insert(place, span) {
                let report = error(codes::SAVE, format!("`{name}` would be written twice"));
                problems.push(report.with_related(Label::at(other, "the other")));
            }
            ready.push(one);
        }
        if problems.is_empty() { Ok(Outputs(ready)) } else { Err(problems) }
    }

    /// Writes them all; returns their names, in order. What was not written when one fails stays as it was.
    pub(super) fn write(self, group: &mut PlanGroup) -> Result<Vec<String>, RunError> {
        let mut written = Vec::with_capacity(self.0.len());
        for Ready { path, output, target, dtype, shape } in self.0 {
            let ranks: &[u32] = match &target.writers {
                Writers::One(rank) => std::slice::from_ref(rank),
                Writers::All(ranks) => ranks,
            };
            let mut bytes = Vec::new();
            for &rank in ranks {
                let more = group.read_bytes(rank, BufferId(target.buffer as u32))?;
                bytes.try_reserve_exact(more.len()).map_err(|error| {
                    let size = bytes.len() + more.len();
                    RunError::Environment(format!(
                        "out of memory: {size} bytes for `{}`: {error}",
                        path.display()
                    ))
                })?;
                bytes.extend_from_slice(&more);
            }
            output.commit(|out| match target.format {
                SaveFormat::Npy => npy::write(out, dtype, &shape, &bytes),
                SaveFormat::Png => png::write(out, dtype, &shape, &bytes),
            })?;
            written.push(path.display().to_string());
        }
        Ok(written)
    }
}

fn prepare(job: &Job<'_>, folder: &Path, target: Target) -> Result<Ready, String> {
    let (dtype, shape) = contents(job, &target)?;
    if target.format == SaveFormat::Png {
        png::check_shape(&shape).map_err(|error| error.to_string())?;
    }
    let path = folder.join(&target.file);
    let output = Output::prepare(&path).map_err(|error| error.to_string())?;
    Ok(Ready { path, output, target, dtype, shape })
}

/// What a file will hold: gathered, the ranks' rows together.
fn contents(job: &Job<'_>, target: &Target) -> Result<(DType, Vec<u64>), String> {
    let decl = |rank: u32| &job.graphs[rank as usize].buffers()[target.buffer];
    let (first_rank, others) = match &target.writers {
        Writers::One(rank) => return Ok((decl(*rank).dtype, decl(*rank).shape.to_vec())),
        Writers::All(ranks) => ranks.split_first().ok_or("no rank has it")?,
    };
    let first = decl(*first_rank);
    let (&rows, rest) = first.shape.split_first().ok_or("a single number has no rows to gather")?;
    let mut total = rows;
    for &rank in others {
        let other = decl(rank);
        let joined = rows_of(other, rest).and_then(|rows| total.checked_add(rows));
        total = joined.ok_or_else(|| {
            format!(
                "it cannot be gathered: rank {first_rank} has the shape {:?} and rank {rank} has {:?}",
                first.shape, other.shape
            )
        })?;
    }
    Ok((first.dtype, std::iter::once(total).chain(rest.iter().copied()).collect()))
}

/// The rows of a buffer whose other axes are these.
fn rows_of(decl: &BufferDecl, rest: &[u64]) -> Option<u64> {
    decl.shape.split_first().filter(|(_, own)| *own == rest).map(|(rows, _)| *rows)
}

/// The files that the job reads, where they really are, each with a place that names it.
fn inputs(job: &Job<'_>, folder: &Path) -> BTreeMap<PathBuf, Span> {
    let mut files = BTreeMap::new();
    for template in job.manifest.buffers.iter().filter_map(input) {
        let names: BTreeSet<String> = (0..job.world.size()).map(|rank| template.for_rank(rank)).collect();
        // One that is missing is diagnosed where it is read.
        for place in names.iter().filter_map(|name| fs::canonicalize(folder.join(name)).ok()) {
            files.insert(place, template.place.span());
        }
    }
    files
}

/// The name of the file that a buffer is read from.
fn input(buffer: &Buffer) -> Option<&Template> {
    match (&buffer.feed, buffer.init.as_ref().map(|init| &init.value)) {
        (Some(feed), _) => Some(&feed.value.file.name),
        (None, Some(Init::Npy(file) | Init::Safetensors { file, .. })) => Some(&file.name),
        _ => None,
    }
}
