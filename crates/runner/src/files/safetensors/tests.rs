use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

use proptest::prelude::*;
use safetensors::tensor::TensorView;

use super::super::Array;
use super::super::testing::{any_dtype, bytes, file, safetensors as contents};
use super::*;

const TWO: &str = r#"{"weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},
    "bias":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}, "__metadata__": {"by": "hand"}}"#;

fn two(folder: &Path) -> std::path::PathBuf {
    let mut data: Vec<u8> = [1f32, 2., 3., 4.].iter().flat_map(|value| value.to_le_bytes()).collect();
    data.extend([0x80, 0x3F, 0x00, 0xC0, 0x00, 0x00]);
    file(folder, "m.safetensors", &contents(TWO, &data))
}

fn refusal(bytes: &[u8], tensor: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "m.safetensors", bytes);
    open(&path, tensor).unwrap_err().to_string().replace(&path.display().to_string(), "m.safetensors")
}

#[test]
fn one_tensor_of_several() {
    let folder = tempfile::tempdir().unwrap();
    let path = two(folder.path());
    let mut weight = open(&path, "weight").unwrap();
    weight.require(DType::F32, &[2, 2]).unwrap();
    assert_eq!(weight.read().unwrap().bytes, bytes(&[1f32, 2., 3., 4.]));
    assert_eq!(weight.read_rows(1..2).unwrap().bytes, bytes(&[3f32, 4.]));
    assert_eq!(weight.read_slice(&[0..2, 1..2]).unwrap().bytes, bytes(&[2f32, 4.]));
    let bias = open(&path, "bias").unwrap().read().unwrap();
    assert_eq!((bias.dtype, bias.shape.as_slice()), (DType::Bf16, &[3][..]));
    assert_eq!(bias.bytes, bytes(&[1f32, -2., 0.].map(half::bf16::from_f32)));
}

#[test]
fn unknown_names_list_the_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = two(folder.path());
    let shown = path.display();
    assert_eq!(
        open(&path, "wieght").unwrap_err().to_string(),
        format!("`{shown}` has no tensor `wieght`; did you mean `weight`? it has `bias`, `weight`")
    );
    assert_eq!(
        open(&path, "q").unwrap_err().to_string(),
        format!("`{shown}` has no tensor `q`; it has `bias`, `weight`")
    );
    assert_eq!(refusal(&contents("{}", &[]), "w"), "`m.safetensors` has no tensor `w`; it has none at all");
    let many: Vec<_> =
        (0..25).map(|i| format!(r#""t{i:02}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#)).collect();
    let error = refusal(&contents(&format!("{{{}}}", many.join(",")), &[]), "layer");
    assert!(error.contains("it has `t00`, `t01`") && error.ends_with("`t19` and 5 more"), "{error}");
}

#[test]
fn names_are_harmless_on_a_terminal() {
    let header = r#"{"\u001b[2Jx":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#;
    assert!(refusal(&contents(header, &[]), "layer").ends_with(r"it has `\u{1b}[2Jx`"));
}

#[test]
fn types_that_no_buffer_has() {
    for (dtype, bytes, hint) in [
        ("BOOL", 1, "save booleans as bytes"),
        ("I16", 2, "save 16-bit integers as 32-bit ones"),
        ("C64", 8, "save the parts of complex numbers as two tensors"),
        ("F8_E4M3", 1, "save it as a larger floating-point type"),
    ] {
        let header = format!(r#"{{"w":{{"dtype":"{dtype}","shape":[1],"data_offsets":[0,{bytes}]}}}}"#);
        assert_eq!(
            refusal(&contents(&header, &vec![0; bytes]), "w"),
            format!("`m.safetensors` holds elements of type {dtype}, which no buffer has: {hint}")
        );
    }
}

#[test]
fn damaged_files() {
    let header = r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let start = "`m.safetensors` is not a .safetensors file that can be read: ";
    for (bytes, problem) in [
        (vec![], "it has 0 bytes, and its first 8 tell its header's length"),
        (vec![1, 2, 3], "it has 3 bytes, and its first 8 tell its header's length"),
        (contents(header, &[0; 5]), "its tensors have 8 bytes, the file has 5 for them"),
        (contents(header, &[0; 9]), "its tensors have 8 bytes, the file has 9 for them"),
        (
            u64::MAX.to_le_bytes().to_vec(),
            "its header claims 18446744073709551615 bytes, the file has 0 after it begins, and at most 100000000 are read",
        ),
    ] {
        assert_eq!(refusal(&bytes, "w"), format!("{start}{problem}"));
    }
    for header in [
        "",
        "[]",
        "{",
        r#"{"w":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}}"#,
        r#"{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#,
        r#"{"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}"#,
        r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#,
        r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#,
        r#"{"w":{"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,8]}}"#,
        &"[".repeat(100_000),
    ] {
        let error = refusal(&contents(header, &[0; 8]), "w");
        assert!(error.starts_with(start), "{header:.60}: {error:.200}");
    }
}

#[test]
fn a_header_of_any_length_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "m.safetensors", &100_000_001u64.to_le_bytes());
    File::options().write(true).open(&path).unwrap().set_len(200_000_000).unwrap();
    let error = open(&path, "w").unwrap_err().to_string();
    assert!(error.contains("claims 100000001 bytes, the file has 199999992 after it begins"), "{error}");
}

#[test]
fn a_folder_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let shown = folder.path().display();
    assert_eq!(
        open(folder.path(), "w").unwrap_err().to_string(),
        format!("`{shown}` is a folder, not a file")
    );
}

/// A file far larger than memory, whose tensor lies at its end. The file is sparse: it takes no room.
#[test]
#[cfg(unix)]
fn only_the_tensor_is_read() {
    const BEFORE: u64 = 1 << 36;
    let header = format!(
        r#"{{"big":{{"dtype":"U8","shape":[{BEFORE}],"data_offsets":[0,{BEFORE}]}},
            "last":{{"dtype":"U8","shape":[3],"data_offsets":[{BEFORE},{}]}}}}"#,
        BEFORE + 3
    );
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "m.safetensors", &contents(&header, &[]));
    let mut out = File::options().write(true).open(&path).unwrap();
    out.seek(SeekFrom::End(BEFORE as i64)).unwrap();
    out.write_all(&[7, 8, 9]).unwrap();
    assert_eq!(open(&path, "last").unwrap().read().unwrap().bytes, [7, 8, 9]);
    assert_eq!(open(&path, "big").unwrap().read_rows(BEFORE - 2..BEFORE).unwrap().bytes, [0, 0]);
}

proptest! {
    #[test]
    fn what_the_crate_writes_is_read(
        dtype in any_dtype(), shape in proptest::collection::vec(0usize..4, 0..4), seed: u8
    ) {
        let length = shape.iter().product::<usize>() * dtype.size() as usize;
        let data: Vec<u8> = (0..length).map(|i| (i as u8).wrapping_add(seed)).collect();
        let theirs = match dtype {
            DType::F16 => Dtype::F16,
            DType::Bf16 => Dtype::BF16,
            DType::F32 => Dtype::F32,
            DType::F64 => Dtype::F64,
            DType::I8 => Dtype::I8,
            DType::U8 => Dtype::U8,
            DType::I32 => Dtype::I32,
            DType::U32 => Dtype::U32,
            DType::I64 => Dtype::I64,
            DType::U64 => Dtype::U64,
        };
        let other = [1, 2, 3];
        let tensors = [
            ("a", TensorView::new(Dtype::U8, vec![3], &other).unwrap()),
            ("b", TensorView::new(theirs, shape.clone(), &data).unwrap()),
            ("c", TensorView::new(Dtype::U8, vec![3], &other).unwrap()),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path(), "m.safetensors", &safetensors::serialize(tensors, None).unwrap());
        let shape = shape.iter().map(|&length| length as u64).collect();
        // The format is little-endian, and so are the machines these tests run on.
        prop_assert_eq!(open(&path, "b").unwrap().read().unwrap(), Array { dtype, shape, bytes: data });
    }
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let bytes: Vec<u8> = (0..48).collect();
    let tensor = |name, dtype, shape, bytes| Tensor { name, dtype, shape, bytes };
    let tensors = [
        tensor("w", DType::F32, &[2, 3][..], &bytes[..24]),
        tensor("one", DType::Bf16, &[], &bytes[24..26]),
        tensor("none", DType::I64, &[0, 4], &[]),
        tensor("b", DType::U8, &[3], &bytes[26..29]),
    ];
    let mut out = Vec::new();
    write(&mut out, &tensors).unwrap();
    std::fs::write(&path, &out).unwrap();
    for Tensor { name, dtype, shape, bytes } in tensors {
        let array = open(&path, name).unwrap().read().unwrap();
        assert_eq!((array.dtype, &*array.shape, &*array.bytes), (dtype, shape, bytes), "{name}");
    }
    let length = u64::from_le_bytes(out[..8].try_into().unwrap());
    assert_eq!(length % 8, 0, "the data begin at a whole word");
    let error = write(&mut out, &[tensor("w", DType::F32, &[2], &bytes[..4])]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    write(&mut Vec::new(), &[]).unwrap();
}
