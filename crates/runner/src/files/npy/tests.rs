use half::{bf16, f16};
use proptest::prelude::*;
use squall_core::Element;

use super::super::Array;
use super::super::testing::{any_dtype, bytes, file, header, in_time, npy};
use super::*;

/// Opens and reads a file made of `contents`.
fn load(contents: &[u8], expected: DType) -> Result<Array, FileError> {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "x.npy", contents);
    open(&path, expected)?.read()
}

/// The error of a file made of `contents`, without the folder's name.
fn refusal(contents: &[u8], expected: DType) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "x.npy", contents);
    let error = open(&path, expected).unwrap_err().to_string();
    error.replace(&path.display().to_string(), "x.npy")
}

fn array<T: Element>(shape: &[u64], elements: &[T]) -> Array {
    Array { dtype: T::DTYPE, shape: shape.to_vec(), bytes: bytes(elements) }
}

fn little_f32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

// The odd files that other readers stumble over.

#[test]
fn fortran_order_comes_out_in_c_order() {
    // NumPy's own bytes for `numpy.asfortranarray(numpy.arange(6, dtype='f4').reshape(2, 3))`.
    let contents = npy(1, &header("<f4", true, "(2, 3)"), &little_f32(&[0., 3., 1., 4., 2., 5.]));
    assert_eq!(load(&contents, DType::F32).unwrap(), array(&[2, 3], &[0f32, 1., 2., 3., 4., 5.]));
}

#[test]
fn one_byte_elements() {
    assert_eq!(
        load(&npy(1, &header("|u1", false, "(2,)"), &[7, 200]), DType::U8).unwrap(),
        array(&[2], &[7u8, 200])
    );
    assert_eq!(
        load(&npy(1, &header("|i1", false, "(2,)"), &[7, 200]), DType::I8).unwrap(),
        array(&[2], &[7i8, -56])
    );
    assert_eq!(load(&npy(1, &header("<u1", false, "(1,)"), &[7]), DType::U8).unwrap(), array(&[1], &[7u8]));
}

#[test]
fn booleans_are_refused_with_the_way_out() {
    assert_eq!(
        refusal(&npy(1, &header("|b1", false, "(2,)"), &[1, 0]), DType::U8),
        "`x.npy` holds elements of type |b1, which no buffer has: save booleans as bytes, `x.astype(numpy.uint8)`"
    );
}

#[test]
fn half_floats() {
    let contents = npy(1, &header("<f2", false, "(2,)"), &[0x00, 0x3C, 0x00, 0xC0]);
    assert_eq!(load(&contents, DType::F16).unwrap(), array(&[2], &[f16::from_f32(1.0), f16::from_f32(-2.0)]));
    let contents = npy(1, &header(">f2", false, "(2,)"), &[0x3C, 0x00, 0xC0, 0x00]);
    assert_eq!(load(&contents, DType::F16).unwrap(), array(&[2], &[f16::from_f32(1.0), f16::from_f32(-2.0)]));
}

#[test]
fn two_unknown_bytes_are_bf16_where_bf16_is_expected() {
    for descr in ["<V2", "|V2"] {
        let contents = npy(1, &header(descr, false, "(2,)"), &[0x80, 0x3F, 0x00, 0xC0]);
        let expected = array(&[2], &[bf16::from_f32(1.0), bf16::from_f32(-2.0)]);
        assert_eq!(load(&contents, DType::Bf16).unwrap(), expected, "{descr}");
        for other in [DType::F16, DType::F32, DType::U8] {
            assert_eq!(
                refusal(&contents, other),
                format!(
                    "`x.npy` holds elements of type {descr}, which no buffer has: \
                     two bytes of unknown meaning are taken for bf16 where the buffer is bf16"
                )
            );
        }
    }
}

#[test]
fn a_single_number_has_no_axes() {
    let contents = npy(1, &header("<f8", false, "()"), &2.5f64.to_le_bytes());
    assert_eq!(load(&contents, DType::F64).unwrap(), array(&[], &[2.5f64]));
    let contents = npy(1, &header("<f8", true, "()"), &2.5f64.to_le_bytes());
    assert_eq!(load(&contents, DType::F64).unwrap(), array(&[], &[2.5f64]));
}

#[test]
fn every_version_loads_and_no_other() {
    for version in 1..=3 {
        let contents = npy(version, &header(">i4", false, "(2,)"), &[0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFE]);
        assert_eq!(load(&contents, DType::I32).unwrap(), array(&[2], &[1, -2]), "version {version}");
    }
    assert_eq!(
        refusal(&npy(4, &header("<f4", false, "()"), &[0; 4]), DType::F32),
        "`x.npy` is not a .npy file that can be read: it is of version 4.0; 1.0, 2.0 and 3.0 are known"
    );
    let mut minor = npy(1, &header("<f4", false, "()"), &[0; 4]);
    minor[7] = 1;
    assert!(refusal(&minor, DType::F32).contains("version 1.1;"));
}

#[test]
fn short_and_long_files_tell_both_lengths() {
    let header = header("<f4", false, "(8,)");
    let start = 10 + header.len();
    assert_eq!(
        refusal(&npy(1, &header, &[0; 20]), DType::F32),
        format!(
            "`x.npy` is too short: its header announces f32 elements in the shape (8,), {} bytes in all; \
             the file has {} bytes",
            start + 32,
            start + 20
        )
    );
    let error = refusal(&npy(1, &header, &[0; 36]), DType::F32);
    assert!(error.contains("too long") && error.contains(&format!("{} bytes in all", start + 32)), "{error}");
    assert!(error.ends_with(&format!("the file has {} bytes", start + 36)), "{error}");
}

#[test]
fn another_type_or_shape_than_the_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "x.npy", &npy(1, &header("<f8", false, "(2, 1)"), &[0; 16]));
    let array = open(&path, DType::F32).unwrap();
    let shown = path.display();
    assert_eq!(
        array.require(DType::F32, &[2, 1]).unwrap_err().to_string(),
        format!("`{shown}` holds f64, but f32 is expected")
    );
    assert_eq!(
        array.require(DType::F64, &[2]).unwrap_err().to_string(),
        format!("`{shown}` has the shape (2, 1), but (2,) is expected")
    );
    array.require(DType::F64, &[2, 1]).unwrap();
    array.require_shape(&[2, 1]).unwrap();
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let shown = path.display();
    assert_eq!(
        open(&path, DType::F32).unwrap_err().to_string(),
        format!("`{shown}` is a folder, not a file")
    );
    let missing = folder.path().join("none.npy");
    let error = open(&missing, DType::F32).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read `{}`: ", missing.display())), "{error}");
}

#[test]
#[cfg(unix)]
fn pipes_and_devices_do_not_hang() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.npy");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = in_time(move || open(&pipe, DType::F32).unwrap_err().to_string());
    assert!(error.ends_with("is a pipe, not a file"), "{error}");
    let error = in_time(|| open(Path::new("/dev/zero"), DType::F32).unwrap_err().to_string());
    assert_eq!(error, "`/dev/zero` is a device, not a file");
}

// Headers that lie or are damaged.

#[test]
fn every_cut_of_a_file_is_refused() {
    let whole = npy(2, &header("<f4", true, "(2, 2)"), &little_f32(&[1., 2., 3., 4.]));
    load(&whole, DType::F32).unwrap();
    for length in 0..whole.len() {
        let error = refusal(&whole[..length], DType::F32);
        assert!(error.starts_with("`x.npy` is "), "{length} bytes: {error}");
    }
    assert_eq!(
        refusal(&[], DType::F32),
        "`x.npy` is not a .npy file that can be read: it has 0 bytes, the shortest such file 12"
    );
}

#[test]
fn a_foreign_file_shows_how_it_begins() {
    assert_eq!(
        refusal(b"PK\x03\x04 and so on", DType::F32),
        "`x.npy` is not a .npy file that can be read: it begins with PK\\x03\\x04 and, not \\x93NUMPY"
    );
}

#[test]
fn a_header_longer_than_the_file_is_not_allocated() {
    let mut contents = npy(2, &header("<f4", false, "(1,)"), &[0; 4]);
    contents[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = refusal(&contents, DType::F32);
    assert!(error.contains("its header claims 4294967295 bytes, the file has "), "{error}");
    // One that the file has, but no array needs.
    let long = format!("{}{}", header("<f4", false, "(1,)"), " ".repeat(0x10000));
    assert!(refusal(&npy(2, &long, &[0; 4]), DType::F32).contains("at most 65535 are read"));
}

#[test]
fn impossible_shapes() {
    for shape in ["(4294967296, 4294967296)", "(0, 9223372036854775807, 4)", "(18446744073709551615,)"] {
        let error = refusal(&npy(1, &header("<f4", false, shape), &[0; 4]), DType::F32);
        assert!(
            error.ends_with(&format!("announces the shape {shape}, whose size in bytes exceeds 64 bits")),
            "{error}"
        );
    }
    // As large as can be counted: refused by its length, not by trying to hold it.
    let error = refusal(&npy(1, &header("|u1", false, "(9223372036854775807,)"), &[0; 4]), DType::U8);
    assert!(error.contains("is too short"), "{error}");
}

#[test]
fn empty_axes() {
    let contents = npy(1, &header("<f4", true, "(3, 0, 2)"), &[]);
    assert_eq!(load(&contents, DType::F32).unwrap(), array::<f32>(&[3, 0, 2], &[]));
}

#[test]
fn header_forms_that_other_writers_use() {
    for text in [
        "{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}",
        "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (2, )}\n",
        "  { 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 2L , ) , }  \n",
    ] {
        let contents = npy(1, text, &little_f32(&[1., 2.]));
        assert_eq!(load(&contents, DType::F32).unwrap(), array(&[2], &[1f32, 2.]), "{text}");
    }
}

#[test]
fn damaged_headers() {
    for text in [
        "",
        "{}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} more",
        "{'descr': <f4, 'fortran_order': False, 'shape': (1,)}",
    ] {
        // Padded, so that it is the header and not the file's length that is wrong.
        let error = refusal(&npy(1, &format!("{text}\n"), &[0; 16]), DType::F32);
        let wanted = "its header is no dictionary of 'descr', 'fortran_order' and 'shape': ";
        assert!(error.contains(wanted) && error.contains(text.get(..20).unwrap_or(text)), "{text}: {error}");
    }
    // Not text at all; shown without its control characters.
    let mut contents = npy(1, &header("<f4", false, "(1,)"), &[0; 4]);
    contents[10..13].copy_from_slice(b"\x1b[\xFF");
    assert!(refusal(&contents, DType::F32).contains("'shape': \\u{1b}[�"));
}

#[test]
fn types_that_no_buffer_has() {
    for (descr, hint) in [
        ("<c8", "`x.real` and `x.imag`"),
        ("|O", "save Python objects as numbers"),
        ("|S7", "save text as numbers"),
        ("<U3", "save text as numbers"),
        ("<M8[ns]", "save times as numbers"),
        ("<i2", "`x.astype(numpy.int32)`"),
        (">u2", "`x.astype(numpy.int32)`"),
        ("<f16", "`x.astype(numpy.float32)`"),
        ("<V1", "`x.astype(numpy.float32)`"),
        ("|f4", "its byte order is not given"),
        ("bfloat16", "`x.astype(numpy.float32)`"),
        ("", "`x.astype(numpy.float32)`"),
    ] {
        let error = refusal(&npy(1, &header(descr, false, "(1,)"), &[0; 64]), DType::Bf16);
        assert!(error.contains(&format!("holds elements of type {descr}, which")), "{descr}: {error}");
        assert!(error.contains(hint), "{descr}: {error}");
    }
    let record = "{'descr': [('a', '<f4'), ('b', '<i4')], 'fortran_order': False, 'shape': (1,), }";
    assert_eq!(
        refusal(&npy(1, record, &[0; 8]), DType::F32),
        "`x.npy` holds elements of type a structure, which no buffer has: save each field as an array of its own"
    );
}

// Writing.

#[test]
fn what_is_written_is_what_numpy_writes() {
    let mut out = Vec::new();
    write(&mut out, DType::F32, &[2], &bytes(&[1f32, 2.])).unwrap();
    let mut expected = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    expected.extend(format!("{:117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }").bytes());
    expected.extend(little_f32(&[1., 2.]));
    assert_eq!(out, expected);
}

#[test]
fn data_begins_at_a_multiple_of_64() {
    for axes in 0..40 {
        let mut out = Vec::new();
        write_header(&mut out, DType::U8, &vec![1; axes]).unwrap();
        assert_eq!(out.len() % 64, 0, "{axes} axes");
        assert_eq!(out.last(), Some(&b'\n'));
    }
    let error = write_header(&mut Vec::new(), DType::U8, &vec![1; 30_000]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

/// A dtype and an array's shape and element bytes.
fn any_array() -> impl Strategy<Value = (DType, Vec<u64>, Vec<u8>)> {
    (any_dtype(), proptest::collection::vec(0u64..5, 0..4)).prop_flat_map(|(dtype, shape)| {
        let length = (shape.iter().product::<u64>() * dtype.size()) as usize;
        (Just(dtype), Just(shape), proptest::collection::vec(any::<u8>(), length))
    })
}

/// The file of an array of bytes, in any of the forms it can have.
fn encode(dtype: DType, shape: &[u64], data: &[u8], version: u8, fortran: bool, big: bool) -> Vec<u8> {
    let size = dtype.size() as usize;
    let mut elements: Vec<Vec<u8>> = data.chunks(size).map(<[u8]>::to_vec).collect();
    if big != cfg!(target_endian = "big") {
        elements.iter_mut().for_each(|element| element.reverse());
    }
    if fortran {
        // The element at (i, j, …) of the C order goes where its reversed index leads in the reversed shape.
        let mut moved = elements.clone();
        for (c, element) in elements.into_iter().enumerate() {
            let (mut rest, mut index) = (c as u64, Vec::new());
            for &length in shape.iter().rev() {
                index.push(rest % length);
                rest /= length;
            }
            let place = index.iter().zip(shape.iter().rev()).fold(0, |place, (i, length)| place * length + i);
            moved[place as usize] = element;
        }
        elements = moved;
    }
    let order = match (size, big) {
        (1, _) => '|',
        (_, true) => '>',
        (_, false) => '<',
    };
    let kind = match dtype.name() {
        "bf16" => 'V',
        name if name.starts_with('f') => 'f',
        name if name.starts_with('u') => 'u',
        _ => 'i',
    };
    npy(
        version,
        &header(&format!("{order}{kind}{size}"), fortran, &Shape(shape).to_string()),
        &elements.concat(),
    )
}

proptest! {
    #[test]
    fn written_arrays_read_back((dtype, shape, data) in any_array()) {
        let mut contents = Vec::new();
        write(&mut contents, dtype, &shape, &data).unwrap();
        prop_assert_eq!(load(&contents, dtype).unwrap(), Array { dtype, shape, bytes: data });
    }

    #[test]
    fn any_version_order_and_byte_order(
        (dtype, shape, data) in any_array(), version in 1u8..=3, fortran: bool, big: bool
    ) {
        let contents = encode(dtype, &shape, &data, version, fortran, big);
        prop_assert_eq!(load(&contents, dtype).unwrap(), Array { dtype, shape, bytes: data });
    }

    #[test]
    fn any_slice(
        (dtype, shape, data) in any_array(), fortran: bool, big: bool,
        cuts in proptest::collection::vec((0u64..5, 0u64..5), 0..4)
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path(), "x.npy", &encode(dtype, &shape, &data, 1, fortran, big));
        let ranges: Vec<_> = cuts.iter().zip(&shape).map(|(&(a, b), &length)| {
            let (a, b) = (a.min(length), b.min(length));
            a.min(b)..a.max(b)
        }).collect();
        let range = |axis: usize| ranges.get(axis).cloned().unwrap_or(0..shape[axis]);

        let size = dtype.size() as usize;
        let inside = |c: usize| {
            let mut rest = c as u64;
            (0..shape.len()).rev().all(|axis| {
                let i = rest % shape[axis];
                rest /= shape[axis];
                range(axis).contains(&i)
            })
        };
        let kept = data.chunks(size).enumerate().filter(|(c, _)| inside(*c)).flat_map(|(_, e)| e.to_vec()).collect();
        let counts = (0..shape.len()).map(|axis| range(axis).end - range(axis).start).collect();

        let mut opened = open(&path, dtype).unwrap();
        let expected = Array { dtype, shape: counts, bytes: kept };
        prop_assert_eq!(opened.read_slice(&ranges).unwrap(), expected.clone());
        let mut into = vec![0xAA; expected.bytes.len()];
        opened.read_slice_into(&ranges, &mut into).unwrap();
        prop_assert_eq!(into, expected.bytes);
    }

    /// Whatever the bytes, there is an answer.
    #[test]
    fn no_header_panics(version in 0u8..5, text in "\\PC{0,80}", data in proptest::collection::vec(any::<u8>(), 0..40)) {
        let result = load(&npy(version, &text, &data), DType::Bf16);
        prop_assert!(result.is_err());
    }

    #[test]
    fn no_damaged_byte_panics(at in 0usize..84, byte: u8) {
        let mut contents = npy(1, &header("<f4", true, "(2, 2)"), &[0; 16]);
        contents[at] = byte;
        if let Ok(array) = load(&contents, DType::F32) {
            prop_assert_eq!(array.bytes.len() as u64, byte_length(array.dtype, &array.shape).unwrap());
        }
    }
}

/// The data of the digits example has the types, shapes and ranges that its notice states.
#[test]
fn the_digits_are_as_their_notice_says() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/data"));
    for (part, rows) in [("train", 1440), ("test", 352)] {
        let mut pictures = open(&folder.join(format!("digits-{part}-x.npy")), DType::F32).unwrap();
        pictures.require(DType::F32, &[rows, 64]).unwrap();
        let pixels = pictures.read().unwrap().bytes;
        let mut pixels = pixels.chunks_exact(4).map(bytemuck::pod_read_unaligned::<f32>);
        assert!(pixels.all(|pixel| (0.0..=1.0).contains(&pixel)));

        let mut labels = open(&folder.join(format!("digits-{part}-y.npy")), DType::I32).unwrap();
        labels.require(DType::I32, &[rows]).unwrap();
        let digits = labels.read().unwrap().bytes;
        let mut digits = digits.chunks_exact(4).map(bytemuck::pod_read_unaligned::<i32>);
        assert!(digits.all(|digit| (0..10).contains(&digit)));
    }
}
