//! Files written after the last step: checked before the first, whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use squall_core::{BufferDecl, BufferId, DType, Diagnostic, Label, PlanGroup, Span};

use super::processes::Joined;
use super::{Request, RunError};
use crate::codes;
use crate::files::output::{Output, temporary_in};
use crate::files::{FileError, npy, png};
use crate::manifest::model::{Buffer, Init, SaveFormat};
use crate::manifest::template::Template;
use crate::resolve::{Job, Target, Writers};

/// The outputs of a run, each with its place kept ready.
pub(super) struct Outputs(Vec<Ready>);

struct Ready {
    /// As the user names it.
    path: PathBuf,
    /// The place for the file, where this process writes it.
    output: Option<Output>,
    target: Target,
    dtype: DType,
    shape: Vec<u64>,
}

impl Outputs {
    /// Makes sure that every output can be written and costs no other file, before anything runs.
    /// Of a job of several processes, each makes sure of those that it writes: those of its `own` ranks, and what is gathered
    /// where it has rank 0.
    pub(super) fn prepare(
        job: &Job<'_>,
        request: &Request<'_>,
        own: &Range<u32>,
    ) -> Result<Outputs, Vec<Diagnostic>> {
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
            if matches!(target.writers, Writers::One(rank) if !own.contains(&rank)) {
                continue;
            }
            let one = match prepare(job, folder, target, own.contains(&0)) {
                Ok(one) => one,
                Err(_) if refused == Some(buffer) => continue,
                Err(message) => {
                    refused = Some(buffer);
                    problems.push(error(codes::OUTPUT, message));
                    continue;
                }
            };
            // Where a file really is, whatever folders and links its name goes through.
            let Some(place) = one.output.as_ref().map(Output::place) else {
                ready.push(one);
                continue;
            };
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

    /// Writes them all; returns the names of those that this process writes, in order. What was not written when one fails stays as it
    /// was.
    pub(super) fn write(self, group: &mut PlanGroup, joined: &Joined) -> Result<Vec<String>, RunError> {
        let mut written = Vec::with_capacity(self.0.len());
        for Ready { path, output, target, dtype, shape } in self.0 {
            let buffer = BufferId(target.buffer as u32);
            let bytes = match &target.writers {
                Writers::One(rank) => group.read_bytes(*rank, buffer)?,
                Writers::All(ranks) => {
                    let mut rows = Rows::default();
                    for &rank in ranks.iter().filter(|&&rank| joined.has(rank)) {
                        rows.push(&path, &group.read_bytes(rank, buffer)?)?;
                    }
                    gathered(&path, rows.0, joined)?
                }
            };
            let Some(output) = output else { continue };
            output.commit(|out| match target.format {
                SaveFormat::Npy => npy::write(out, dtype, &shape, &bytes),
                SaveFormat::Png => png::write(out, dtype, &shape, &bytes),
            })?;
            written.push(path.display().to_string());
        }
        Ok(written)
    }
}

/// Rows that are put together for one file.
#[derive(Default)]
struct Rows(Vec<u8>);

impl Rows {
    fn push(&mut self, path: &Path, more: &[u8]) -> Result<(), RunError> {
        self.0.try_reserve_exact(more.len()).map_err(|error| {
            let size = self.0.len() + more.len();
            RunError::Environment(format!("out of memory: {size} bytes for `{}`: {error}", path.display()))
        })?;
        self.0.extend_from_slice(more);
        Ok(())
    }
}

/// The rows of all processes, on the one that has rank 0. What carries them is the file system: each leaves its rows in a file beside
/// the output, so that little crosses the processes' own connections.
fn gathered(path: &Path, mine: Vec<u8>, joined: &Joined) -> Result<Vec<u8>, RunError> {
    if !joined.has_others() {
        return Ok(mine);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut left = None;
    let mut name = String::new();
    if !joined.leads() {
        let mut file = temporary_in(folder).map_err(FileError::io("create a file in", folder))?;
        file.write_all(&mine).and_then(|()| file.flush()).map_err(FileError::io("write", path))?;
        name = file.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        left = Some(file);
    }
    // In the order of the processes' lowest ranks, which is that of their rows: a process has ranks that follow one another.
    let files = joined.gather(&format!("the rows of {}", path.display()), name)?;
    let mut rows = Rows(mine);
    if joined.leads() {
        for file in files.iter().filter(|file| !file.is_empty()) {
            let file = folder.join(file);
            let more = fs::read(&file).map_err(|error| {
                RunError::Environment(format!(
                    "`{}` is gathered by files beside it, which all processes must see, and `{}`, of another process, cannot be read: {error}; \
                     save it on a file system that all share",
                    path.display(),
                    file.display()
                ))
            })?;
            rows.push(path, &more)?;
        }
    }
    // Nobody takes its rows away before they are read.
    joined.gather(&format!("the end of {}", path.display()), ())?;
    drop(left);
    Ok(rows.0)
}

fn prepare(job: &Job<'_>, folder: &Path, target: Target, leads: bool) -> Result<Ready, String> {
    let (dtype, shape) = contents(job, &target)?;
    if target.format == SaveFormat::Png {
        png::check_shape(&shape).map_err(|error| error.to_string())?;
    }
    let path = folder.join(&target.file);
    let writes = leads || matches!(target.writers, Writers::One(_));
    let output = writes.then(|| Output::prepare(&path)).transpose().map_err(|error| error.to_string())?;
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
