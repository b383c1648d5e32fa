//! A 2-D buffer as a grey picture: the smallest value black, the largest white.

use std::io::{self, Write};

use squall_core::element::Exact;
use squall_core::{DType, Element, count, with_element};

use super::error::Shape;

/// The longest side that the format can state.
const MAX_SIDE: u64 = (1 << 31) - 1;

/// Writes a picture of 8-bit greys, `shape[0]` rows of `shape[1]` pixels, from the elements that a buffer holds.
///
/// Values between the extremes are scaled linearly. Not-a-numbers are black; infinities have no part in the
/// extremes and are black or white. Where all values are equal, all are black.
///
/// # Errors
/// A [`PictureError`] as [`io::ErrorKind::InvalidInput`], or what `out` returns.
pub fn write(out: &mut dyn Write, dtype: DType, shape: &[u64], bytes: &[u8]) -> io::Result<()> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let (height, width) = check_shape(shape).map_err(invalid)?;
    let pixels = with_element!(dtype, T => greys::<T>(bytes));
    let (expected, found) = (u64::from(height) * u64::from(width), pixels.len() as u64);
    if expected != found {
        return Err(invalid(PictureError::Elements { expected, found }));
    }
    let mut encoder = png::Encoder::new(out, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    Ok(writer.finish()?)
}

/// An array is no picture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PictureError {
    /// Not 2-D.
    #[error("a picture has 2 axes, an array of shape {} has {}", Shape(shape), shape.len())]
    Axes {
        /// The array's shape.
        shape: Vec<u64>,
    },
    /// Empty, or too large for the format.
    #[error("a picture's sides are 1 to {MAX_SIDE} pixels, the array's shape is {}", Shape(shape))]
    Side {
        /// The array's shape.
        shape: Vec<u64>,
    },
    /// Too few or too many elements for the shape.
    #[error("the picture needs {}, and is given {found}", count(*expected, "element"))]
    Elements {
        /// Pixels.
        expected: u64,
        /// Elements.
        found: u64,
    },
}

/// The height and width of an array's picture, or why it has none: for a check before the run.
pub fn check_shape(shape: &[u64]) -> Result<(u32, u32), PictureError> {
    match *shape {
        [height @ 1..=MAX_SIDE, width @ 1..=MAX_SIDE] => Ok((height as u32, width as u32)),
        [_, _] => Err(PictureError::Side { shape: shape.to_vec() }),
        _ => Err(PictureError::Axes { shape: shape.to_vec() }),
    }
}

fn greys<T: Element>(bytes: &[u8]) -> Vec<u8> {
    let values = || {
        bytes.chunks_exact(size_of::<T>()).map(|chunk| bytemuck::pod_read_unaligned::<T>(chunk).to_exact())
    };
    let ints =
        extremes(values().filter_map(|value| if let Exact::Int(value) = value { Some(value) } else { None }));
    let floats = extremes(values().filter_map(|value| match value {
        Exact::Float(value) if value.is_finite() => Some(value),
        _ => None,
    }));
    let grey = |value| match value {
        Exact::Int(value) => grey_of_int(value, ints.unwrap_or_default()),
        Exact::Float(value) => grey_of_float(value, floats.unwrap_or_default()),
    };
    values().map(grey).collect()
}

fn extremes<V: PartialOrd + Copy>(values: impl Iterator<Item = V>) -> Option<(V, V)> {
    values.fold(None, |so_far, value| {
        let (low, high) = so_far.unwrap_or((value, value));
        Some((if value < low { value } else { low }, if value > high { value } else { high }))
    })
}

/// Exact, since a large 64-bit integer and its neighbours are one f64.
fn grey_of_int(value: i128, (low, high): (i128, i128)) -> u8 {
    let span = (high - low).max(1);
    (((value - low) * 255 + span / 2) / span) as u8
}

fn grey_of_float(value: f64, (low, high): (f64, f64)) -> u8 {
    // The largest f64s are more than an f64 apart.
    let scale = if (high - low).is_finite() { 1.0 } else { 0.5 };
    let (above, span) = (value * scale - low * scale, high * scale - low * scale);
    // A NaN, that of a constant picture's 0/0 too, becomes 0.
    ((above / span).clamp(0.0, 1.0) * 255.0).round() as u8
}

#[cfg(test)]
mod tests;
