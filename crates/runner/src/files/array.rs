//! An array in a file, and the same array in memory.

use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use squall_core::DType;

use super::FileError;

/// An array in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// The type of its elements.
    pub dtype: DType,
    /// Entries along each axis; none for a single number.
    pub shape: Vec<u64>,
    /// The elements: the machine's byte order, row-major.
    pub bytes: Vec<u8>,
}

/// An array in an open file whose header was read and whose length agrees with it. Made by
/// [`npy::open`](super::npy::open) and [`safetensors::open`](super::safetensors::open); read as often as wanted.
#[derive(Debug)]
pub struct ArrayFile {
    path: PathBuf,
    reader: BufReader<File>,
    dtype: DType,
    shape: Vec<u64>,
    layout: Layout,
}

/// Where and how a file keeps its elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The first element's first byte.
    pub(super) start: u64,
    /// Whether the first axis varies fastest.
    pub(super) fortran: bool,
    /// Whether the elements are in big-endian byte order.
    pub(super) big_endian: bool,
}

impl ArrayFile {
    /// An array in `reader`. The caller has checked that [`byte_length`] of it fits into the file.
    pub(super) fn new(path: &Path, file: File, dtype: DType, shape: Vec<u64>, layout: Layout) -> ArrayFile {
        ArrayFile { path: path.to_owned(), reader: BufReader::new(file), dtype, shape, layout }
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Entries along each axis, in logical order whatever the order in the file.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Refuses an array of another type or shape than a buffer's.
    pub fn require(&self, dtype: DType, shape: &[u64]) -> Result<(), FileError> {
        self.require_dtype(dtype)?;
        self.require_shape(shape)
    }

    /// Refuses an array of another type: for a buffer that takes a part of it.
    pub fn require_dtype(&self, dtype: DType) -> Result<(), FileError> {
        if self.dtype == dtype {
            return Ok(());
        }
        Err(FileError::DType { file: self.path.clone(), expected: dtype, found: self.dtype })
    }

    /// Refuses an array of another shape: for a buffer that takes any type and converts it.
    pub fn require_shape(&self, shape: &[u64]) -> Result<(), FileError> {
        if self.shape == shape {
            return Ok(());
        }
        let (expected, found) = (shape.to_vec(), self.shape.clone());
        Err(FileError::Shape { file: self.path.clone(), expected, found })
    }

    /// Reads the whole array.
    pub fn read(&mut self) -> Result<Array, FileError> {
        self.read_slice(&[])
    }

    /// Reads the entries `rows` of the first axis. Of a file in C order nothing else is read.
    pub fn read_rows(&mut self, rows: Range<u64>) -> Result<Array, FileError> {
        self.read_slice(&[rows])
    }

    /// Reads a block: a range along each axis, and all of the axes after the last one named.
    pub fn read_slice(&mut self, ranges: &[Range<u64>]) -> Result<Array, FileError> {
        let slice = self.slice(ranges)?;
        let mut bytes = self.allocate(slice.bytes)?;
        self.copy(&slice, &mut bytes)?;
        Ok(Array { dtype: self.dtype, shape: slice.counts, bytes })
    }

    /// As [`read_slice`](ArrayFile::read_slice) into memory that is there, of the slice's exact length: how a feed
    /// reads each step's rows. A file in C order allocates only a few words for it; one in Fortran order is
    /// read whole each time, so that a feed does better to keep [`read`](ArrayFile::read)'s array.
    pub fn read_slice_into(&mut self, ranges: &[Range<u64>], out: &mut [u8]) -> Result<(), FileError> {
        let slice = self.slice(ranges)?;
        let found = out.len() as u64;
        if found != slice.bytes {
            return Err(FileError::Destination { file: self.path.clone(), expected: slice.bytes, found });
        }
        self.copy(&slice, out)
    }

    /// The shape of the block that [`read_slice`](ArrayFile::read_slice) would read.
    pub fn sliced_shape(&self, ranges: &[Range<u64>]) -> Result<Vec<u64>, FileError> {
        Ok(self.slice(ranges)?.counts)
    }

    /// Checks ranges against the shape.
    fn slice(&self, ranges: &[Range<u64>]) -> Result<Slice, FileError> {
        if ranges.len() > self.shape.len() {
            let (axes, shape) = (ranges.len(), self.shape.clone());
            return Err(FileError::Axes { file: self.path.clone(), axes, shape });
        }
        let mut slice = Slice { starts: Vec::new(), counts: Vec::new(), bytes: self.dtype.size() };
        for (axis, &length) in self.shape.iter().enumerate() {
            let range = ranges.get(axis).cloned().unwrap_or(0..length);
            let count = range.end.checked_sub(range.start).filter(|_| range.end <= length);
            let Some(count) = count else {
                return Err(FileError::Slice { file: self.path.clone(), axis, range, length });
            };
            slice.starts.push(range.start);
            slice.counts.push(count);
        }
        // Counts are at most lengths, whose product was computed when the file was opened.
        slice.bytes = slice.counts.iter().fold(slice.bytes, |product, &count| product.saturating_mul(count));
        Ok(slice)
    }

    /// Memory for a part of this file.
    fn allocate(&self, bytes: u64) -> Result<Vec<u8>, FileError> {
        zeroed(bytes).ok_or_else(|| FileError::Memory { file: self.path.clone(), bytes })
    }

    /// Copies a slice out of the file: rearranged to C order and the machine's byte order.
    fn copy(&mut self, slice: &Slice, out: &mut [u8]) -> Result<(), FileError> {
        if out.is_empty() {
            return Ok(());
        }
        if self.layout.fortran && self.shape.len() > 1 {
            self.copy_transposed(slice, out)?;
        } else {
            self.copy_runs(slice, out).map_err(FileError::io("read", &self.path))?;
        }
        let size = self.dtype.size() as usize;
        if self.layout.big_endian != cfg!(target_endian = "big") && size > 1 {
            out.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        Ok(())
    }

    /// C order: the trailing axes taken whole, and the one before, are one run of bytes in the file.
    fn copy_runs(&mut self, slice: &Slice, out: &mut [u8]) -> std::io::Result<()> {
        let mut strides = strides(self.shape.iter().rev(), self.dtype);
        strides.reverse();
        let partial = |(axis, count)| self.shape.get(axis) != Some(count);
        let outer = slice.counts.iter().enumerate().rposition(partial).unwrap_or(0);
        let (counts, inner) = slice.counts.split_at(outer);
        let run = inner.iter().product::<u64>() * self.dtype.size();
        let first: u64 = slice.starts.iter().zip(&strides).map(|(start, stride)| start * stride).sum();

        let mut at = 0;
        self.reader.seek(SeekFrom::Start(self.layout.start + first))?;
        let mut rest = out;
        visit_offsets(counts, &strides, |offset| {
            let (chunk, after) = std::mem::take(&mut rest).split_at_mut(run as usize);
            rest = after;
            // Offsets grow, and stay below the file's length, which is an i64. What is buffered stays so.
            self.reader.seek_relative((offset - at) as i64)?;
            at = offset + run;
            self.reader.read_exact(chunk)
        })
    }

    /// Fortran order: the file's array is read whole, and its elements are picked one by one.
    fn copy_transposed(&mut self, slice: &Slice, out: &mut [u8]) -> Result<(), FileError> {
        let size = self.dtype.size() as usize;
        let whole =
            self.shape.iter().fold(self.dtype.size(), |product, &length| product.saturating_mul(length));
        let mut data = self.allocate(whole)?;
        self.reader
            .seek(SeekFrom::Start(self.layout.start))
            .and_then(|_| self.reader.read_exact(&mut data))
            .map_err(FileError::io("read", &self.path))?;

        let strides = strides(self.shape.iter(), self.dtype);
        let first: u64 = slice.starts.iter().zip(&strides).map(|(start, stride)| start * stride).sum();
        let mut elements = out.chunks_exact_mut(size);
        visit_offsets(&slice.counts, &strides, |offset| {
            let from = (first + offset) as usize;
            if let (Some(to), Some(from)) = (elements.next(), data.get(from..from + size)) {
                to.copy_from_slice(from);
            }
            Ok(())
        })
    }
}

/// A checked block of an array.
struct Slice {
    starts: Vec<u64>,
    counts: Vec<u64>,
    bytes: u64,
}

/// Bytes from one entry to the next along each axis, the fastest axis first. Not for arrays without elements.
fn strides<'a>(fastest_first: impl Iterator<Item = &'a u64>, dtype: DType) -> Vec<u64> {
    let next = |stride: &mut u64, &length: &u64| {
        let this = *stride;
        *stride = this.saturating_mul(length);
        Some(this)
    };
    fastest_first.scan(dtype.size(), next).collect()
}

/// Calls `visit` with the offset of every index below `counts`, the last axis fastest. Counts are positive.
fn visit_offsets<E>(
    counts: &[u64],
    strides: &[u64],
    mut visit: impl FnMut(u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut index = vec![0; counts.len()];
    let mut offset = 0;
    'next: loop {
        visit(offset)?;
        for ((i, &count), &stride) in index.iter_mut().zip(counts).zip(strides).rev() {
            *i += 1;
            offset += stride;
            if *i < count {
                continue 'next;
            }
            *i = 0;
            offset -= stride * count;
        }
        return Ok(());
    }
}

/// Bytes of an array, or `None` beyond 64 bits. As NumPy, it counts an empty axis as one entry for the limit, so
/// that the product of any of the lengths is safe to take.
pub(super) fn byte_length(dtype: DType, shape: &[u64]) -> Option<u64> {
    let limit = shape.iter().try_fold(dtype.size(), |product, &length| product.checked_mul(length.max(1)))?;
    Some(if shape.contains(&0) { 0 } else { limit })
}

/// Zeroed memory, or `None` where there is not so much.
pub(super) fn zeroed(bytes: u64) -> Option<Vec<u8>> {
    let bytes = usize::try_from(bytes).ok()?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).ok()?;
    memory.resize(bytes, 0);
    Some(memory)
}

/// Opens a regular file and tells its length. Anything else is refused before it is opened, since opening a
/// pipe waits for its writer.
pub(crate) fn open_regular(path: &Path) -> Result<(File, u64), FileError> {
    let metadata = fs::metadata(path).map_err(FileError::io("read", path))?;
    require_regular(path, &metadata)?;
    let file = File::open(path).map_err(FileError::io("read", path))?;
    let length = file.metadata().map_err(FileError::io("read", path))?.len();
    Ok((file, length))
}

/// Refuses what is not a regular file, and says what it is.
pub(super) fn require_regular(path: &Path, metadata: &fs::Metadata) -> Result<(), FileError> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let found = if kind.is_dir() { "a folder" } else { special(kind) };
    Err(FileError::NotAFile { file: path.to_owned(), found })
}

#[cfg(unix)]
fn special(kind: fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => "something else",
    }
}

#[cfg(not(unix))]
fn special(_: fs::FileType) -> &'static str {
    "something else"
}

#[cfg(test)]
mod tests;
