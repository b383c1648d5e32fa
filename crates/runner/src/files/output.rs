//! Outputs that appear whole or not at all.
//!
//! An output is written to a temporary file in its own folder, flushed to the disk, and then renamed over its
//! place. Whatever goes wrong before the rename, a full disk too, leaves the old file as it was. The temporary file
//! is made before the run's first step, so that a place that cannot be written costs no run; only a process that
//! is killed leaves it behind (`.squall-….tmp`).
//!
//! A symbolic link is followed: the file that it leads to is replaced, beside itself, and the link stays. A link
//! that leads to nothing is refused.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::FileError;
use super::array::require_regular;

/// A place for one file, checked and held ready. Dropping it leaves nothing behind but folders it had to make.
#[derive(Debug)]
pub struct Output {
    /// As the user names it, for messages.
    path: PathBuf,
    target: PathBuf,
    temporary: NamedTempFile,
}

impl Output {
    /// Checks that `path` can be written, making its folders. Called before a run's first step.
    ///
    /// Refuses a path that is a folder or another thing than a file, a file marked read-only, and a folder that
    /// does not let a file be made in it.
    pub fn prepare(path: &Path) -> Result<Output, FileError> {
        let target = follow(path)?;
        let names_folder = path.as_os_str().to_string_lossy().ends_with(std::path::is_separator);
        let (Some(name), false) = (target.file_name(), names_folder) else {
            return Err(FileError::NoName { file: path.to_owned() });
        };
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let target = folder.join(name);
        fs::create_dir_all(folder).map_err(FileError::io("create the folder", folder))?;
        match fs::metadata(&target) {
            Ok(metadata) => {
                require_regular(path, &metadata)?;
                if metadata.permissions().readonly() {
                    return Err(FileError::ReadOnly { file: path.to_owned() });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(FileError::io("write", path)(error)),
        }
        let temporary = temporary_in(folder).map_err(FileError::io("create a file in", folder))?;
        Ok(Output { path: path.to_owned(), target, temporary })
    }

    /// Where the file will really be, whatever folders and links its name goes through.
    pub fn place(&self) -> PathBuf {
        // The temporary file lies in the folder that the output will.
        let folder = self.temporary.path().parent().and_then(|folder| fs::canonicalize(folder).ok());
        match folder.zip(self.target.file_name()) {
            Some((folder, name)) => folder.join(name),
            None => self.target.clone(),
        }
    }

    /// Calls `write` with the file, and puts it into its place if that succeeds.
    pub fn commit(mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), FileError> {
        let mut out = BufWriter::new(self.temporary.as_file_mut());
        let written = write(&mut out).and_then(|()| out.flush());
        // Not into_inner: a failed flush is reported once, and dropping the writer must not try again.
        let (file, _) = out.into_parts();
        written.and_then(|()| file.sync_all()).map_err(FileError::io("write", &self.path))?;
        self.temporary.persist(&self.target).map_err(|e| FileError::io("write", &self.path)(e.error))?;
        Ok(())
    }
}

/// Makes a folder, and makes sure that files can be made in it.
pub(crate) fn writable(folder: &Path) -> Result<(), FileError> {
    fs::create_dir_all(folder).map_err(FileError::io("create the folder", folder))?;
    temporary_in(folder).map(drop).map_err(FileError::io("create a file in", folder))
}

/// Where a link leads; a path that is no link is its own target.
fn follow(path: &Path) -> Result<PathBuf, FileError> {
    if path.is_symlink() {
        fs::canonicalize(path).map_err(FileError::io("follow the link", path))
    } else {
        Ok(path.to_owned())
    }
}

/// A file beside an output, removed when it is dropped.
pub(crate) fn temporary_in(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".squall-").suffix(".tmp");
    // The file is to become the output: permissions as any new file's, narrowed by the umask.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

#[cfg(test)]
mod tests;
