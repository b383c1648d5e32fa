#![expect(clippy::single_range_in_vec_init, reason = "a slice of one axis")]

use super::super::testing::{bytes, file, header, npy};
use super::*;

/// The numbers 0, 1, … of a (4, 3) array in a file.
fn opened(folder: &Path, fortran: bool) -> ArrayFile {
    let values: Vec<i32> = match fortran {
        false => (0..12).collect(),
        true => (0..12).map(|i| (i % 4) * 3 + i / 4).collect(),
    };
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let path = file(folder, "x.npy", &npy(1, &header("<i4", fortran, "(4, 3)"), &data));
    super::super::npy::open(&path, DType::I32).unwrap()
}

#[test]
fn rows_and_blocks() {
    let folder = tempfile::tempdir().unwrap();
    for fortran in [false, true] {
        let mut array = opened(folder.path(), fortran);
        assert_eq!((array.dtype(), array.shape()), (DType::I32, &[4, 3][..]));
        let rows = array.read_rows(1..3).unwrap();
        assert_eq!(rows, Array { dtype: DType::I32, shape: vec![2, 3], bytes: bytes(&[3, 4, 5, 6, 7, 8]) });
        let block = array.read_slice(&[2..4, 1..2]).unwrap();
        assert_eq!(block, Array { dtype: DType::I32, shape: vec![2, 1], bytes: bytes(&[7, 10]) });
        // Back again, after a later part was read.
        assert_eq!(array.read_rows(0..1).unwrap().bytes, bytes(&[0, 1, 2]));
        assert_eq!(array.read_rows(4..4).unwrap().shape, [0, 3]);
        assert_eq!(array.read().unwrap().bytes, bytes(&(0..12).collect::<Vec<i32>>()));
    }
}

#[test]
#[expect(clippy::reversed_empty_ranges, reason = "what is tested")]
fn ranges_outside_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut array = opened(folder.path(), false);
    let shown = folder.path().join("x.npy").display().to_string();
    let mut refusal = |ranges: &[Range<u64>]| array.read_slice(ranges).unwrap_err().to_string();
    assert_eq!(refusal(&[2..5]), format!("`{shown}` is 4 long along axis 0: 2..5 is not a range of it"));
    assert_eq!(
        refusal(&[0..1, 3..2]),
        format!("`{shown}` is 3 long along axis 1: 3..2 is not a range of it")
    );
    assert_eq!(
        refusal(&[0..u64::MAX]),
        format!("`{shown}` is 4 long along axis 0: 0..{} is not a range of it", u64::MAX)
    );
    assert_eq!(
        refusal(&[0..1, 0..1, 0..1]),
        format!("`{shown}` has the shape (4, 3): 3 axes cannot be sliced")
    );
    let mut out = [0xAA; 11];
    assert_eq!(
        array.read_slice_into(&[0..1], &mut out).unwrap_err().to_string(),
        format!("`{shown}`: the slice has 12 bytes, the buffer to read it into 11")
    );
    assert_eq!(out, [0xAA; 11]);
}

#[test]
fn a_single_number_has_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "x.npy", &npy(1, &header("|u1", false, "()"), &[5]));
    let mut array = super::super::npy::open(&path, DType::U8).unwrap();
    assert!(matches!(array.read_rows(0..1), Err(FileError::Axes { axes: 1, .. })));
    assert_eq!(array.read().unwrap().bytes, [5]);
}

#[test]
fn a_file_that_shrinks_while_open_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut array = opened(folder.path(), false);
    File::options().write(true).open(folder.path().join("x.npy")).unwrap().set_len(80).unwrap();
    let error = array.read().unwrap_err().to_string();
    assert!(error.starts_with("cannot read `"), "{error}");
}

#[test]
fn lengths_are_counted_without_overflow() {
    assert_eq!(byte_length(DType::F32, &[]), Some(4));
    assert_eq!(byte_length(DType::F32, &[2, 3]), Some(24));
    assert_eq!(byte_length(DType::F32, &[2, 0]), Some(0));
    assert_eq!(byte_length(DType::U8, &[u64::MAX]), Some(u64::MAX));
    assert_eq!(byte_length(DType::F16, &[u64::MAX]), None);
    assert_eq!(byte_length(DType::U8, &[0, u64::MAX, 2]), None);
    assert_eq!(zeroed(u64::MAX), None);
}
