//! What can be wrong with a data file.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use squall_core::{DType, count};

/// A data file cannot be read, or an output cannot be written. Each message names the file, and where two
/// things disagree, both of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system refused.
    #[error("cannot {action} `{}`: {source}", file.display())]
    Io {
        /// What was being done: `read`, `write`, `create the folder`, …
        action: &'static str,
        /// The file or folder it was done to.
        file: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The path leads to a folder, a pipe, a device: something that has no fixed contents.
    #[error("`{}` is {found}, not a file", file.display())]
    NotAFile {
        /// The path.
        file: PathBuf,
        /// What is there, with its article.
        found: &'static str,
    },
    /// The contents are not of the format, or damaged.
    #[error("`{}` is not a {format} file that can be read: {problem}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The format it was opened as.
        format: &'static str,
        /// What was expected and what was found.
        problem: String,
    },
    /// The elements are of a type that no buffer has.
    #[error("`{}` holds elements of type {found}, which no buffer has: {hint}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The type, as the file writes it.
        found: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// The file is shorter or longer than its header says.
    #[error(
        "`{}` is too {}: its header announces {dtype} elements in the shape {}, {} in all; the file has {}",
        file.display(), if found < expected { "short" } else { "long" }, Shape(shape), count(*expected, "byte"), count(*found, "byte")
    )]
    Length {
        /// The file.
        file: PathBuf,
        /// The element type its header states.
        dtype: DType,
        /// The shape its header states.
        shape: Vec<u64>,
        /// Bytes the whole file should have.
        expected: u64,
        /// Bytes it has.
        found: u64,
    },
    /// The header states a shape whose size no machine can count.
    #[error("`{}` announces the shape {}, whose size in bytes exceeds 64 bits", file.display(), Shape(shape))]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// The shape its header states.
        shape: Vec<u64>,
    },
    /// The elements are of another type than the buffer's.
    #[error("`{}` holds {found}, but {expected} is expected", file.display())]
    DType {
        /// The file.
        file: PathBuf,
        /// The buffer's type.
        expected: DType,
        /// The file's type.
        found: DType,
    },
    /// The array is of another shape than the buffer's.
    #[error("`{}` has the shape {}, but {} is expected", file.display(), Shape(found), Shape(expected))]
    Shape {
        /// The file.
        file: PathBuf,
        /// The buffer's shape.
        expected: Vec<u64>,
        /// The file's shape.
        found: Vec<u64>,
    },
    /// A rank's rows of the array are of another shape than its buffer.
    #[error(
        "`{}` has the shape {}; the rows of it that rank {rank} takes have {}, but {} is expected",
        file.display(), Shape(whole), Shape(found), Shape(expected)
    )]
    Share {
        /// The file.
        file: PathBuf,
        /// The buffer's shape.
        expected: Vec<u64>,
        /// The rank.
        rank: u32,
        /// The shape of its rows.
        found: Vec<u64>,
        /// The file's shape.
        whole: Vec<u64>,
    },
    /// The slice of an array that a rank takes is of another shape than its buffer.
    #[error(
        "`{}` has the shape {}; the slice of it that rank {rank} takes has {}, but {} is expected",
        file.display(), Shape(whole), Shape(found), Shape(expected)
    )]
    Part {
        /// The file.
        file: PathBuf,
        /// The buffer's shape.
        expected: Vec<u64>,
        /// The rank.
        rank: u32,
        /// The slice's shape.
        found: Vec<u64>,
        /// The file's shape.
        whole: Vec<u64>,
    },
    /// A slice names more axes than there are.
    #[error("`{}` has the shape {}: {axes} axes cannot be sliced", file.display(), Shape(shape))]
    Axes {
        /// The file.
        file: PathBuf,
        /// Axes that the slice names.
        axes: usize,
        /// The file's shape.
        shape: Vec<u64>,
    },
    /// A slice reaches beyond the array.
    #[error(
        "`{}` is {length} long along axis {axis}: {}..{} is not a range of it",
        file.display(), range.start, range.end
    )]
    Slice {
        /// The file.
        file: PathBuf,
        /// The axis, from 0.
        axis: usize,
        /// The range asked for.
        range: Range<u64>,
        /// The entries there are.
        length: u64,
    },
    /// A buffer to read into has not the slice's length.
    #[error("`{}`: the slice has {expected} bytes, the buffer to read it into {found}", file.display())]
    Destination {
        /// The file.
        file: PathBuf,
        /// Bytes of the slice.
        expected: u64,
        /// Bytes of the buffer.
        found: u64,
    },
    /// No tensor of this name.
    #[error("`{}` has no tensor `{tensor}`; {}", file.display(), Present(present, suggestion))]
    NoTensor {
        /// The file.
        file: PathBuf,
        /// The name asked for.
        tensor: String,
        /// The names there are, sorted.
        present: Vec<String>,
        /// The name that was probably meant.
        suggestion: Option<String>,
    },
    /// The array does not fit into memory.
    #[error("`{}`: no memory for {}", file.display(), count(*bytes, "byte"))]
    Memory {
        /// The file.
        file: PathBuf,
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// An output's path ends in no file name.
    #[error("`{}` names a folder; an output needs a file's name", file.display())]
    NoName {
        /// The path.
        file: PathBuf,
    },
    /// The file that an output would replace is marked read-only.
    #[error("`{}` is read-only; an output would replace it", file.display())]
    ReadOnly {
        /// The file.
        file: PathBuf,
    },
}

impl FileError {
    /// For `map_err`: the system refused to do `action` to `file`.
    pub(crate) fn io(action: &'static str, file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> FileError {
        let file = file.into();
        move |source| FileError::Io { action, file, source }
    }
}

/// A shape as NumPy prints it: `()`, `(3,)`, `(3, 4)`.
pub(crate) struct Shape<'a>(pub(crate) &'a [u64]);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (axis, length) in self.0.iter().enumerate() {
            write!(f, "{}{length}", if axis == 0 { "" } else { ", " })?;
        }
        f.write_str(if self.0.len() == 1 { ",)" } else { ")" })
    }
}

/// The beginning of a text from a file, harmless on a terminal.
pub(crate) fn printable(text: &str) -> String {
    const SHOWN: usize = 200;
    let mut shown = String::new();
    for (i, c) in text.chars().enumerate() {
        match c {
            _ if i == SHOWN => return shown + "…",
            '\'' | '"' | '\\' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// What there is instead: the likely name, then all names up to a limit.
struct Present<'a>(&'a [String], &'a Option<String>);

impl fmt::Display for Present<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 20;
        let Present(names, suggestion) = *self;
        if let Some(name) = suggestion {
            write!(f, "did you mean `{}`? ", printable(name))?;
        }
        if names.is_empty() {
            return f.write_str("it has none at all");
        }
        f.write_str("it has ")?;
        for (i, name) in names.iter().take(SHOWN).enumerate() {
            write!(f, "{}`{}`", if i == 0 { "" } else { ", " }, printable(name))?;
        }
        match names.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, " and {more} more"),
        }
    }
}
