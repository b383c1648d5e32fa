//! Data files that are missing, wrong, or no files at all.

use std::process::Command;

use crate::harness::{Folder, scaled};

/// A folder whose manifest starts the four numbers of `u` from `x.npy`.
fn from_file() -> Folder {
    Folder::with(&scaled("init = { npy = \"x.npy\" }\nsave = \"out/u-{rank}.npy\""))
}

#[test]
fn a_file_gives_the_first_contents() {
    let folder = from_file();
    folder.npy("x.npy", &[4], &[1.0, 2.0, 3.0, 4.0]);
    folder.run().done();
    assert_eq!(folder.read_npy("out/u-1.npy"), [2.0, 4.0, 6.0, 8.0]);
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_both_sides() {
    let folder = from_file();
    let refused = |named: &[&str]| {
        let ended = folder.run().failed(2, &["error[E0310]", "m.toml:11:16", "x.npy", "buffer `u`"]);
        ended.failed(2, named);
        assert!(!folder.path("out/u-0.npy").exists());
    };
    refused(&["No such file"]);
    folder.npy("x.npy", &[5], &[0.0; 5]);
    refused(&["has the shape (5,), but (4,) is expected"]);
    folder.npy("x.npy", &[4, 1], &[0.0; 4]);
    refused(&["has the shape (4, 1), but (4,) is expected"]);
    let mut doubles = Vec::new();
    squall_runner::files::npy::write(&mut doubles, squall_core::DType::F64, &[4], &[0; 32]).unwrap();
    folder.write("x.npy", &doubles);
    refused(&["holds f64, but f32 is expected"]);
    folder.npy("x.npy", &[4], &[0.0; 4]);
    let whole = std::fs::read(folder.path("x.npy")).unwrap();
    folder.write("x.npy", &whole[..whole.len() - 1]);
    refused(&["is too short"]);
    folder.write("x.npy", &[&whole[..], &[0]].concat());
    refused(&["is too long"]);
    folder.write("x.npy", b"1, 2, 3, 4");
    refused(&["not a .npy file"]);
    folder.write("x.npy", b"");
    refused(&["not a .npy file"]);
    std::fs::remove_file(folder.path("x.npy")).unwrap();
    std::fs::create_dir(folder.path("x.npy")).unwrap();
    refused(&["is a folder, not a file"]);
}

/// Opening a pipe would wait for its writer.
#[test]
fn a_pipe_is_refused_unopened() {
    let folder = from_file();
    assert!(Command::new("mkfifo").arg(folder.path("x.npy")).status().unwrap().success());
    folder.run().failed(2, &["error[E0310]", "m.toml:11:16", "`x.npy` is a pipe, not a file"]);
}

#[test]
fn columns_first_is_read_as_rows() {
    let folder = Folder::with(
        &scaled("init = { npy = \"x.npy\" }\nsave = { npy = \"u.npy\", rank = 0 }").replace("[4]", "[2, 3]"),
    );
    let header = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(117_u16.to_le_bytes());
    bytes.extend(format!("{header:116}\n").bytes());
    [0.0_f32, 3.0, 1.0, 4.0, 2.0, 5.0].iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    folder.write("x.npy", &bytes);
    folder.squall(&["run", "m.toml"]).failed(2, &["error[E0208]"]); // the grid covers four of six
    let covered =
        std::fs::read_to_string(folder.path("m.toml")).unwrap().replace("threads = 4", "threads = 6");
    folder.write("m.toml", covered.as_bytes());
    folder.run().done();
    assert_eq!(folder.read_npy("u.npy"), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
}

#[test]
fn each_rank_takes_its_rows() {
    let folder =
        Folder::with(&scaled("init = { npy = \"x.npy\", shard = \"rows\" }\nsave = \"u-{rank}.npy\""));
    folder.npy("x.npy", &[8], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    folder.run().done();
    assert_eq!(folder.read_npy("u-1.npy"), [10.0, 12.0, 14.0, 16.0]);
    folder.npy("x.npy", &[9], &[0.0; 9]);
    let shares =
        "`x.npy` has the shape (9,); the rows of it that rank 0 takes have (5,), but (4,) is expected";
    folder.run().failed(2, &["error[E0310]", "m.toml:11:16", shares]);
}

#[test]
fn contents_that_no_element_can_hold() {
    let refused = |init: &str, named: &[&str]| {
        Folder::with(&scaled(init).replace("f32", "i32")).run().failed(2, named);
    };
    refused("init = { fill = 1.5 }", &["error[E0311]", "m.toml:11:17", "1.5 is not a whole number"]);
    refused(
        "init = { fill = \"i * 1000000000\" }",
        &["error[E0311]", "m.toml:11:17", "element 3", "3000000000"],
    );
    refused("init = { fill = \"1 / (i - 2)\" }", &["error[E0124]", "m.toml:11:"]);
    refused("init = { fill = \"[i]\" }", &["error[E0311]", "m.toml:11:17", "a list"]);
    refused("init = { values = [1, 2, 3] }", &["error[E0311]", "m.toml:11:8", "3 values for 4 elements"]);
    refused("init = { random = { mean = 0, std = 1 } }", &["error[E0311]", "m.toml:11:37", "i32"]);
    refused("init = { random = { low = 2, high = 2 } }", &["error[E0311]", "m.toml:11:27"]);
}

/// No file has to be read and no buffer to be made whole to tell these.
#[test]
fn values_that_no_element_can_hold_are_found_by_check() {
    let check = |init: &str, dtype: &str, named: &[&str]| {
        let folder = Folder::with(&scaled(init).replace("f32", dtype));
        folder.squall(&["check", "m.toml", "--world", "1000"]).failed(2, named);
        folder.run().failed(2, named);
    };
    check("init = { fill = 300 }", "u8", &["error[E0311]", "m.toml:11:17", "300"]);
    check("init = { fill = \"rank - 1\" }", "u8", &["error[E0311]", "m.toml:11:17", "-1"]);
    check("init = { fill = \"[1, 2][i]\" }", "f32", &["error[E0128]", "m.toml:11:"]);
    check("init = { fill = \"i * 100\" }", "u8", &["error[E0311]", "element 3", "300"]);
    check("init = { values = [1, 2, 3] }", "f32", &["error[E0311]", "3 values for 4 elements"]);
    check("init = { random = { low = 2, high = 1 } }", "f32", &["error[E0311]", "m.toml:11:27"]);
    check("init = { random = { mean = 0, std = -1 } }", "f32", &["error[E0311]", "m.toml:11:37"]);
    check("init = { random = { mean = 0, std = 1 } }", "i32", &["error[E0311]", "m.toml:11:37", "i32"]);
    // Nothing to hold, nothing wrong.
    let folder = Folder::with(&scaled("init = { fill = \"1 / (i - 2)\" }").replace("[4]", "[0]"));
    folder.squall(&["check", "m.toml"]).done();
}

#[test]
fn a_share_of_a_tensor_is_told_with_the_whole() {
    let folder =
        Folder::with(&scaled("init = { safetensors = \"m.safetensors\", tensor = \"w\", shard = \"rows\" }"));
    let header = r#"{"w":{"dtype":"F32","shape":[7],"data_offsets":[0,28]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend([0; 28]);
    folder.write("m.safetensors", &bytes);
    folder.run().failed(
        2,
        &["tensor `w`: `m.safetensors` has the shape (7,); the rows of it that rank 1 takes have (3,), but (4,) is expected"],
    );
}
