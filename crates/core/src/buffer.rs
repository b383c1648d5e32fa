//! Buffers of a rank and the ranges of them that tasks name.

use std::sync::Arc;

use crate::diagnostic::Span;
use crate::dtype::DType;

/// A buffer, by its place in the job's list of declarations. The same buffer has the same id on every rank;
/// its shape and dtype may differ between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Lengths of the axes, row-major, the first axis slowest. Shared, since tasks mostly name whole buffers.
pub type Shape = Arc<[u64]>;

/// Number of elements of a shape; `None` beyond 64 bits. An empty axis makes it empty, however long the others are.
pub(crate) fn checked_count(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1u64, |n, &axis| n.checked_mul(axis))
}

/// Number of elements of a shape; the greatest number beyond 64 bits, which no accepted buffer has.
pub(crate) fn count(shape: &[u64]) -> u64 {
    checked_count(shape).unwrap_or(u64::MAX)
}

/// When a buffer's contents come from the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Upload {
    /// Never: undefined until a task writes it.
    #[default]
    Never,
    /// Once, before the first step.
    First,
    /// At the start of every step.
    Every,
}

/// When a buffer's contents go to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Download {
    /// Only when it is read explicitly.
    #[default]
    Never,
    /// At the end of every step.
    Every,
    /// After the last step.
    Last,
    /// Between steps, whenever the host asks: what is read then must be written in the first step.
    Asked,
}

/// What a rank's buffer is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BufferDecl {
    /// The name, unique in the job.
    pub name: Arc<str>,
    /// Type of the elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Shape,
    /// When the host gives it.
    pub upload: Upload,
    /// When the host takes it.
    pub download: Download,
    /// Where it was declared.
    pub span: Option<Span>,
}

impl BufferDecl {
    /// A buffer that is neither uploaded nor downloaded.
    pub fn new(name: &str, dtype: DType, shape: impl Into<Vec<u64>>) -> BufferDecl {
        let shape: Vec<u64> = shape.into();
        BufferDecl {
            name: name.into(),
            dtype,
            shape: shape.into(),
            upload: Upload::Never,
            download: Download::Never,
            span: None,
        }
    }

    /// The same buffer with contents from the host.
    pub fn upload(mut self, upload: Upload) -> BufferDecl {
        self.upload = upload;
        self
    }

    /// The same buffer with contents for the host.
    pub fn download(mut self, download: Download) -> BufferDecl {
        self.download = download;
        self
    }

    /// Number of elements; `None` when that many elements have no size in bytes that fits 63 bits.
    pub fn checked_len(&self) -> Option<u64> {
        let len = checked_count(&self.shape)?;
        let bytes = len.checked_mul(self.dtype.size())?;
        (bytes <= i64::MAX as u64).then_some(len)
    }

    /// Number of elements of a declaration that a graph has accepted.
    pub fn len(&self) -> u64 {
        self.checked_len().unwrap_or(u64::MAX)
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size in bytes of a declaration that a graph has accepted.
    pub fn bytes(&self) -> u64 {
        self.len().saturating_mul(self.dtype.size())
    }
}

/// A contiguous range of a buffer, as an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BufferRange {
    /// The buffer.
    pub buffer: BufferId,
    /// Type of the elements.
    pub dtype: DType,
    /// First element.
    pub offset: u64,
    /// Lengths of the axes that the range keeps; their product is its number of elements.
    pub shape: Shape,
}

impl BufferRange {
    /// The whole of a buffer.
    pub fn whole(buffer: BufferId, decl: &BufferDecl) -> BufferRange {
        BufferRange { buffer, dtype: decl.dtype, offset: 0, shape: decl.shape.clone() }
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        count(&self.shape)
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Elements `start..end` of a range seen as one axis; `None` when they are outside it.
    pub fn elements(&self, range: std::ops::Range<u64>) -> Option<BufferRange> {
        let len = range.end.checked_sub(range.start)?;
        if range.end > self.len() {
            return None;
        }
        let offset = self.offset.checked_add(range.start)?;
        Some(BufferRange { buffer: self.buffer, dtype: self.dtype, offset, shape: Arc::new([len]) })
    }

    /// Rows `start..end`: a range of the first axis, the others whole; `None` when they are outside it.
    pub fn rows(&self, range: std::ops::Range<u64>) -> Option<BufferRange> {
        let (&first, rest) = self.shape.split_first()?;
        let rows = range.end.checked_sub(range.start)?;
        if range.end > first {
            return None;
        }
        let offset = self.offset.checked_add(range.start.checked_mul(checked_count(rest)?)?)?;
        let shape: Vec<u64> = std::iter::once(rows).chain(rest.iter().copied()).collect();
        Some(BufferRange { buffer: self.buffer, dtype: self.dtype, offset, shape: shape.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_overflow_are_seen() {
        assert_eq!(BufferDecl::new("a", DType::U8, [2147483656]).checked_len(), Some(2147483656));
        assert_eq!(BufferDecl::new("a", DType::F64, [1 << 60]).checked_len(), None);
        assert_eq!(BufferDecl::new("a", DType::U8, [u64::MAX, 2]).checked_len(), None);
        assert_eq!(BufferDecl::new("a", DType::U8, [u64::MAX, 2, 0]).checked_len(), Some(0));
    }

    #[test]
    fn ranges_stay_inside() {
        let decl = BufferDecl::new("a", DType::F32, [4, 3]);
        let whole = BufferRange::whole(BufferId(0), &decl);
        let rows = whole.rows(1..3).unwrap();
        assert_eq!((rows.offset, &rows.shape[..], rows.len()), (3, &[2, 3][..], 6));
        assert_eq!(rows.elements(2..4).unwrap().offset, 5);
        assert!(whole.rows(1..5).is_none() && whole.elements(0..13).is_none());
        #[expect(clippy::reversed_empty_ranges, reason = "the mistake under test")]
        let reversed = whole.rows(3..2);
        assert!(reversed.is_none());
    }

    #[test]
    fn ranges_of_long_axes_do_not_overflow() {
        let range = |offset, shape: &[u64]| BufferRange {
            buffer: BufferId(0),
            dtype: DType::F32,
            offset,
            shape: shape.into(),
        };
        assert_eq!(range(0, &[u64::MAX, 2, 0]).len(), 0);
        assert_eq!(range(0, &[u64::MAX, 2]).len(), u64::MAX);
        assert_eq!(range(0, &[2, u64::MAX, 0]).rows(1..2).unwrap().len(), 0);
        assert_eq!(range(0, &[2, u64::MAX]).rows(1..2).unwrap().offset, u64::MAX);
        assert_eq!(range(0, &[3, u64::MAX]).rows(2..3), None);
        assert_eq!(range(u64::MAX, &[4]).elements(1..2), None);
    }
}
