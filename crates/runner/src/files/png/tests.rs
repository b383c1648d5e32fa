use half::{bf16, f16};
use squall_core::Element;

use super::super::testing::bytes;
use super::*;

/// The picture of a single row of pixels, decoded again.
fn row<T: Element>(elements: &[T]) -> Vec<u8> {
    decode(T::DTYPE, &[1, elements.len() as u64], &bytes(elements)).1
}

fn decode(dtype: DType, shape: &[u64], bytes: &[u8]) -> ((u32, u32), Vec<u8>) {
    let mut file = Vec::new();
    write(&mut file, dtype, shape, bytes).unwrap();
    let mut reader = png::Decoder::new(io::Cursor::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Grayscale, png::BitDepth::Eight));
    ((info.width, info.height), pixels)
}

#[test]
fn rows_are_lines() {
    let (size, pixels) = decode(DType::U8, &[2, 3], &[0, 1, 2, 3, 4, 5]);
    assert_eq!(size, (3, 2));
    assert_eq!(pixels, [0, 51, 102, 153, 204, 255]);
}

#[test]
fn every_kind_of_number() {
    assert_eq!(row(&[-1f32, 0.0, 1.0]), [0, 128, 255]);
    assert_eq!(row(&[-1f64, 0.0, 1.0]), [0, 128, 255]);
    assert_eq!(row(&[-1.0, 0.0, 1.0].map(f16::from_f64)), [0, 128, 255]);
    assert_eq!(row(&[-1.0, 0.0, 1.0].map(bf16::from_f64)), [0, 128, 255]);
    assert_eq!(row(&[i8::MIN, -1, i8::MAX]), [0, 127, 255]);
    assert_eq!(row(&[i32::MIN, 0, i32::MAX]), [0, 128, 255]);
    assert_eq!(row(&[i64::MIN, 0, i64::MAX]), [0, 128, 255]);
    assert_eq!(row(&[0, u32::MAX]), [0, 255]);
    assert_eq!(row(&[0, u64::MAX]), [0, 255]);
}

#[test]
fn large_integers_and_floats_keep_their_differences() {
    assert_eq!(row(&[u64::MAX - 255, u64::MAX - 254, u64::MAX]), [0, 1, 255]);
    assert_eq!(row(&[-f64::MAX, 0.0, f64::MAX]), [0, 128, 255]);
    assert_eq!(row(&[0.0, f64::from_bits(1), f64::from_bits(5)]), [0, 51, 255]);
}

#[test]
fn constant_pictures_are_black() {
    assert_eq!(row(&[7f32, 7.0]), [0, 0]);
    assert_eq!(row(&[7u8, 7]), [0, 0]);
}

#[test]
fn numbers_that_are_none() {
    assert_eq!(row(&[f32::NAN, 1.0, 2.0, f32::INFINITY, f32::NEG_INFINITY]), [0, 0, 255, 255, 0]);
    assert_eq!(row(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]), [0, 255, 0]);
    assert_eq!(row(&[3f32, f32::NAN, f32::INFINITY]), [0, 0, 255]);
}

#[test]
fn shapes_without_a_picture() {
    assert_eq!(check_shape(&[4, 5]), Ok((4, 5)));
    assert_eq!(
        check_shape(&[4]).unwrap_err().to_string(),
        "a picture has 2 axes, an array of shape (4,) has 1"
    );
    for shape in [[0, 5], [5, 0], [5, 1 << 31]] {
        assert_eq!(
            check_shape(&shape).unwrap_err().to_string(),
            format!(
                "a picture's sides are 1 to 2147483647 pixels, the array's shape is ({}, {})",
                shape[0], shape[1]
            )
        );
    }
    let error = write(&mut Vec::new(), DType::U8, &[2, 2], &[1, 2, 3]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "the picture needs 4 elements, and is given 3");
}
