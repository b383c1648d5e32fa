//! A 2-D buffer as a grey picture: the smallest value black, the largest white.

use std::io::{self, Write};

use squall_core::{DType, with_element};

use super::scalar::{Number, Scalar};

/// The longest side that the format can state.
const MAX_SIDE: u64 = (1 << 31) - 1;

/// Writes a picture of 8-bit greys, `shape[0]` rows of `shape[1]` pixels, from the elements that a buffer holds.
///
/// Values between the extremes are scaled linearly. Not-a-numbers are black; infinities have no part in the
/// extremes and are black or white. Where all values are equal, all are black.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if [`check_shape`] refuses the shape or `bytes` is not an array of it.
pub fn write(out: &mut dyn Write, dtype: DType, shape: &[u64], bytes: &[u8]) -> io::Result<()> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
    let (height, width) = check_shape(shape).map_err(|why| invalid(&why))?;
    let pixels = with_element!(dtype, T => greys::<T>(bytes));
    if pixels.len() as u64 != u64::from(height) * u64::from(width) {
        return Err(invalid("as many elements as pixels are needed"));
    }
    let mut encoder = png::Encoder::new(out, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    Ok(writer.finish()?)
}

/// The height and width of the picture of an array, or why it has none: for a check before the run.
pub fn check_shape(shape: &[u64]) -> Result<(u32, u32), String> {
    let found = super::error::Shape(shape);
    match *shape {
        [height @ 1..=MAX_SIDE, width @ 1..=MAX_SIDE] => Ok((height as u32, width as u32)),
        [_, _] => Err(format!("a picture's sides are 1 to {MAX_SIDE} pixels, the shape is {found}")),
        _ => Err(format!("a picture has 2 axes, the shape is {found}")),
    }
}

fn greys<T: Number>(bytes: &[u8]) -> Vec<u8> {
    let values = || {
        bytes.chunks_exact(size_of::<T>()).map(|chunk| bytemuck::pod_read_unaligned::<T>(chunk).to_scalar())
    };
    let (mut ints, mut floats) = (None, None);
    for value in values() {
        match value {
            Scalar::Int(v) => {
                let (low, high) = ints.unwrap_or((v, v));
                ints = Some((v.min(low), v.max(high)));
            }
            Scalar::Float(v) if v.is_finite() => {
                let (low, high) = floats.unwrap_or((v, v));
                floats = Some((v.min(low), v.max(high)));
            }
            Scalar::Float(_) => {}
        }
    }
    let (low, high) = ints.unwrap_or((0, 0));
    let (float_low, float_high) = floats.unwrap_or((0.0, 0.0));
    values()
        .map(|value| match value {
            Scalar::Int(v) => grey_of_int(v, low, high),
            Scalar::Float(v) => grey_of_float(v, float_low, float_high),
        })
        .collect()
}

/// Exact, since neighbours among large 64-bit integers are one f64.
fn grey_of_int(value: i128, low: i128, high: i128) -> u8 {
    let span = (high - low).max(1);
    (((value - low) * 255 + span / 2) / span) as u8
}

fn grey_of_float(value: f64, low: f64, high: f64) -> u8 {
    // Halves, for the difference of the largest f64s.
    let span = high / 2.0 - low / 2.0;
    let part = if span > 0.0 || value.is_infinite() { (value / 2.0 - low / 2.0) / span } else { 0.0 };
    (part.clamp(0.0, 1.0) * 255.0).round() as u8 // a NaN becomes 0
}

#[cfg(test)]
mod tests;
