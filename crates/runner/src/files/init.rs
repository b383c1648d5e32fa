//! What a buffer holds before the first step: its contents as bytes in host memory.
//!
//! Every function makes `count` elements of `dtype`. A value that the dtype cannot hold is refused, with both.

use squall_core::element::{Exact, ValueError};
use squall_core::{DType, Element, Scalar, with_element};

use super::array::{Array, byte_length};
use crate::render::count;

/// A buffer's contents cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// A value does not fit.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A value among many does not fit.
    #[error("element {index}: {error}")]
    Element {
        /// Where, from 0.
        index: u64,
        /// Which value, and why.
        #[source]
        error: ValueError,
    },
    /// The list has another length than the buffer.
    #[error("{} for {}", count(*found, "value"), count(*expected, "element"))]
    Count {
        /// Elements of the buffer.
        expected: u64,
        /// Values in the list.
        found: u64,
    },
    /// A random interval without a number of the dtype in it, or too wide.
    #[error(
        "{low} to {high} is no interval of {dtype}: the lower bound must lie below the upper one, at a finite distance"
    )]
    Interval {
        /// The lower bound.
        low: Scalar,
        /// The upper bound.
        high: Scalar,
        /// The buffer's dtype.
        dtype: DType,
    },
    /// A normal distribution of integers.
    #[error("a normal distribution needs a floating-point buffer, this one is {dtype}")]
    NormalIntegers {
        /// The buffer's dtype.
        dtype: DType,
    },
    /// A normal distribution that is none.
    #[error(
        "no normal distribution has the mean {mean:?} and the standard deviation {std:?}: both must be finite, the latter not negative"
    )]
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        std: f64,
    },
    /// The contents do not fit into memory.
    #[error("no memory for {} of {dtype}", squall_core::count(*count, "element"))]
    Memory {
        /// Elements of the buffer.
        count: u64,
        /// The buffer's dtype.
        dtype: DType,
    },
}

/// The same value everywhere.
pub fn fill(dtype: DType, count: u64, value: Scalar) -> Result<Vec<u8>, InitError> {
    with_element!(dtype, T => {
        let value = T::from_exact(value.into())?;
        generate(count, |_| Ok::<T, InitError>(value))
    })
}

/// A value computed from each element's index: a `fill` that names `i`.
pub fn fill_with<E: From<InitError>>(
    dtype: DType,
    count: u64,
    mut value: impl FnMut(u64) -> Result<Scalar, E>,
) -> Result<Vec<u8>, E> {
    with_element!(dtype, T => generate(count, |index| Ok(element::<T>(index, value(index)?.into())?)))
}

/// Each element its own index: 0, 1, 2, … (rounded, in a floating-point type too short for it).
pub fn iota(dtype: DType, count: u64) -> Result<Vec<u8>, InitError> {
    with_element!(dtype, T => generate(count, |index| element::<T>(index, Exact::Int(index.into()))))
}

/// The values of a list of `count`.
pub fn values(dtype: DType, count: u64, values: &[Scalar]) -> Result<Vec<u8>, InitError> {
    let found = values.len() as u64;
    if found != count {
        return Err(InitError::Count { expected: count, found });
    }
    with_element!(dtype, T => collect(count, values.iter().zip(0..).map(|(&value, i)| element::<T>(i, value.into()))))
}

impl Array {
    /// The same values in another dtype: what `convert = true` does to a file's.
    pub fn convert(self, dtype: DType) -> Result<Array, InitError> {
        if self.dtype == dtype {
            return Ok(self);
        }
        let bytes = with_element!(self.dtype, From => with_element!(dtype, To => {
            let values = self.bytes.chunks_exact(size_of::<From>()).map(bytemuck::pod_read_unaligned::<From>);
            collect(values.len() as u64, values.zip(0..).map(|(value, i)| element::<To>(i, value.to_exact())))?
        }));
        Ok(Array { dtype, shape: self.shape, bytes })
    }
}

/// One element of many.
pub(super) fn element<T: Element>(index: u64, value: Exact) -> Result<T, InitError> {
    T::from_exact(value).map_err(|error| InitError::Element { index, error })
}

/// The bytes of `count` elements, each made from its index.
pub(super) fn generate<T: Element, E: From<InitError>>(
    count: u64,
    element: impl FnMut(u64) -> Result<T, E>,
) -> Result<Vec<u8>, E> {
    collect(count, (0..count).map(element))
}

/// The bytes of `count` elements. Memory is reserved at once, so that too many are an error and no abort.
fn collect<T: Element, E: From<InitError>>(
    count: u64,
    elements: impl Iterator<Item = Result<T, E>>,
) -> Result<Vec<u8>, E> {
    let length = byte_length(T::DTYPE, &[count]).and_then(|bytes| usize::try_from(bytes).ok());
    let mut bytes = Vec::new();
    if length.is_none_or(|length| bytes.try_reserve_exact(length).is_err()) {
        return Err(InitError::Memory { count, dtype: T::DTYPE }.into());
    }
    for element in elements {
        bytes.extend_from_slice(bytemuck::bytes_of(&element?));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
