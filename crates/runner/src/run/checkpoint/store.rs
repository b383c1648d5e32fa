//! The folder of the checkpoints: `step-000000100/` with a file a rank and, written last, `index.json`.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use squall_core::{BufferId, DType, Snapshot};

use super::index::{Index, Unread, crc32, rank_file};
use crate::files::safetensors::{self, Tensor};
use crate::files::{FileError, open_regular};

const INDEX: &str = "index.json";
const UNFINISHED: &str = "index.json.tmp";

/// The longest index that is read, in bytes: enough for a hundred thousand ranks.
const MAX_INDEX: u64 = 1 << 28;

/// The folder of a job's checkpoints.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) dir: PathBuf,
    /// How many checkpoints stay.
    pub(super) keep: usize,
    /// The index of each, but for what it has of its own.
    pub(super) index: Index,
}

/// A checkpoint that was looked at.
pub(super) enum Found {
    /// It is of another format.
    Format(u64),
    /// It is of another job: in what.
    OtherJob(Vec<String>),
    /// It is not whole: why.
    Damaged(String),
    /// It is whole.
    Whole,
}

impl Store {
    /// The folder of the checkpoint after so many steps.
    pub(super) fn folder(&self, step: u64) -> PathBuf {
        self.dir.join(format!("step-{step:09}"))
    }

    /// The steps of all folders that are named as checkpoints are, the newest first. None where the folder is not there.
    pub(super) fn steps(&self) -> Result<Vec<u64>, FileError> {
        let error = |error| FileError::io("read the folder", &self.dir)(error);
        let entries = match fs::read_dir(&self.dir) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(error)?,
        };
        let mut steps = Vec::new();
        for entry in entries {
            let name = entry.map_err(error)?.file_name();
            let step = name.to_str().and_then(|name| name.strip_prefix("step-")?.parse().ok());
            // Only under the very name that it is written under.
            steps.extend(step.filter(|&step| self.folder(step).file_name() == Some(&*name)));
        }
        steps.sort_unstable_by(|a, b| b.cmp(a));
        Ok(steps)
    }

    /// Whether a folder holds what once was a whole checkpoint.
    pub(super) fn has_index(&self, step: u64) -> bool {
        self.folder(step).join(INDEX).symlink_metadata().is_ok()
    }

    /// Reads a checkpoint to its end, and holds it against its index and against this job.
    pub(super) fn look(&self, step: u64) -> Found {
        let folder = self.folder(step);
        let index = match read_index(&folder.join(INDEX)) {
            Ok(text) => match Index::parse(&text) {
                Ok(index) => index,
                Err(Unread::Format(format)) => return Found::Format(format),
                Err(Unread::Damaged(why)) => return Found::Damaged(format!("`{INDEX}` is damaged: {why}")),
            },
            Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Found::Damaged(format!("it has no `{INDEX}`, so that it was not written to its end"));
            }
            Err(error) => return Found::Damaged(error.to_string()),
        };
        if index.step != step {
            return Found::Damaged(format!("its `{INDEX}` is that of step {}", index.step));
        }
        let differences = index.differences(&self.index);
        if !differences.is_empty() {
            return Found::OtherJob(differences);
        }
        // The files' names are those of this job, as was just compared.
        for rank in &index.ranks {
            let path = folder.join(&rank.file);
            match sum(&path) {
                Err(error) => return Found::Damaged(error.to_string()),
                Ok((bytes, _)) if bytes != rank.bytes => {
                    let (file, wanted) = (&rank.file, rank.bytes);
                    return Found::Damaged(format!("`{file}` has {bytes} bytes, and {wanted} were written"));
                }
                Ok((_, found)) if found != rank.crc32 => {
                    let (file, wanted) = (&rank.file, &rank.crc32);
                    return Found::Damaged(format!(
                        "`{file}` has the checksum {found}, and {wanted} was written"
                    ));
                }
                Ok(_) => {}
            }
        }
        Found::Whole
    }

    /// The contents of a rank's buffer in a checkpoint that is whole, as a buffer holds them.
    pub(super) fn read(&self, step: u64, rank: usize, name: &str) -> Result<Vec<u8>, FileError> {
        let mut array = safetensors::open(&self.folder(step).join(rank_file(rank)), name)?;
        Ok(array.read()?.bytes)
    }

    /// Writes a checkpoint, whole or not at all, and then removes those that need not stay. Returns its folder.
    ///
    /// At every moment there is another whole one, if there was: this one counts from the renaming of its index on, when all of it
    /// is on the disk, and only then are others removed.
    pub(super) fn write(&self, snapshot: &mut Snapshot) -> Result<PathBuf, FileError> {
        let step = snapshot.steps();
        let folder = self.folder(step);
        remove(&folder)?;
        fs::create_dir_all(&folder).map_err(FileError::io("create the folder", &folder))?;
        let mut index = Index { step, ..self.index.clone() };
        for (rank, contents) in index.ranks.iter_mut().zip(snapshot.ranks()) {
            let path = folder.join(&rank.file);
            let written = write_rank(&path, &rank.buffers, &contents);
            (rank.bytes, rank.crc32) = written.map_err(FileError::io("write", &path))?;
        }
        sync_folder(&folder)?;
        let (unfinished, place) = (folder.join(UNFINISHED), folder.join(INDEX));
        let whole = || -> io::Result<()> {
            let mut file = File::create(&unfinished)?;
            file.write_all(index.text()?.as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, &place)
        };
        whole().map_err(FileError::io("write", &place))?;
        sync_folder(&folder)?;
        sync_folder(&self.dir)?;
        self.prune(step)?;
        Ok(folder)
    }

    /// Removes all but the newest that are whole. Those after this step were found damaged before the run began.
    fn prune(&self, newest: u64) -> Result<(), FileError> {
        let mut kept = 0;
        for step in self.steps()? {
            if step <= newest && kept < self.keep && self.has_index(step) {
                kept += 1;
            } else {
                remove(&self.folder(step))?;
            }
        }
        Ok(())
    }
}

/// Removes a checkpoint, first of all the index: what is left of it when this is cut short counts for nothing.
fn remove(folder: &Path) -> Result<(), FileError> {
    let gone = |result: io::Result<()>, what: &Path| match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::io("remove", what)(error)),
        _ => Ok(()),
    };
    let index = folder.join(INDEX);
    if index.symlink_metadata().is_ok() {
        gone(fs::remove_file(&index), &index)?;
        sync_folder(folder)?;
    }
    gone(fs::remove_dir_all(folder), folder)
}

/// Makes what was made, renamed or removed in a folder outlast a crash.
fn sync_folder(folder: &Path) -> Result<(), FileError> {
    // Other systems cannot open a folder, and keep its entries themselves.
    match cfg!(unix) {
        true => File::open(folder).and_then(|file| file.sync_all()).map_err(FileError::io("sync", folder)),
        false => Ok(()),
    }
}

fn read_index(path: &Path) -> Result<String, FileError> {
    let (file, _) = open_regular(path)?;
    let mut text = String::new();
    file.take(MAX_INDEX).read_to_string(&mut text).map_err(FileError::io("read", path))?;
    Ok(text)
}

/// Writes a rank's file to the disk; returns its length and its checksum.
fn write_rank(
    path: &Path,
    buffers: &[super::index::Stored],
    contents: &[(BufferId, &[u8])],
) -> io::Result<(u64, String)> {
    let tensors: Vec<Tensor<'_>> = buffers
        .iter()
        .zip(contents)
        .map(|(stored, (_, bytes))| {
            let dtype = DType::from_str(&stored.dtype).map_err(io::Error::other)?;
            Ok(Tensor { name: &stored.name, dtype, shape: &stored.shape, bytes })
        })
        .collect::<io::Result<_>>()?;
    let mut out = Summed { file: File::create(path)?, bytes: 0, sum: crc32fast::Hasher::new() };
    safetensors::write(&mut out, &tensors)?;
    out.file.sync_all()?;
    Ok((out.bytes, crc32(out.sum.finalize())))
}

/// The length and the checksum of a file.
fn sum(path: &Path) -> Result<(u64, String), FileError> {
    let (mut file, _) = open_regular(path)?;
    let (mut bytes, mut sum, mut piece) = (0, crc32fast::Hasher::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece).map_err(FileError::io("read", path))? {
            0 => return Ok((bytes, crc32(sum.finalize()))),
            count => {
                sum.update(&piece[..count]);
                bytes += count as u64;
            }
        }
    }
}

/// What is summed and written in one go: small enough to be in the cache for both.
const PIECE: usize = 1 << 18;

/// A file whose checksum is worked out while it is written.
struct Summed {
    file: File,
    bytes: u64,
    sum: crc32fast::Hasher,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(&bytes[..bytes.len().min(PIECE)])?;
        self.sum.update(&bytes[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
