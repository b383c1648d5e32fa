//! When NCCL is opened and what is said of it, each in a process of its own, which finds the library by the variable.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::path::Path;
use std::process::Command;

use squall_core::Registry;
use squall_dylib::mapped;
use squall_nccl_ops::{NcclError, UniqueId, findings};

/// Where the wheel lies in an environment.
const WHEEL: &str = "lib/python3.12/site-packages/nvidia/nccl/lib";

/// Runs the test `name` of this file again, with the variable set to `file`. There it is the child.
fn again(name: &str, file: &Path) {
    again_in(name, file, Path::new(""));
}

/// [`again`], in a virtual environment.
fn again_in(name: &str, file: &Path, environment: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("VIRTUAL_ENV", environment);
    command.args(["--exact", name, "--nocapture"]).env("SQUALL_NCCL", file).env("SQUALL_TEST_CHILD", name);
    let output = command.output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn is_child(name: &str) -> bool {
    std::env::var_os("SQUALL_TEST_CHILD").is_some_and(|child| child == name)
}

#[test]
fn a_missing_library_is_missed_only_when_it_is_needed() {
    let name = "a_missing_library_is_missed_only_when_it_is_needed";
    if !is_child(name) {
        return again(name, Path::new("/nowhere/libnccl.so.2"));
    }
    assert!(Registry::linked().unwrap().op("all_reduce", "cuda", None).is_ok());
    let NcclError::Missing(missing) = UniqueId::new().unwrap_err() else { panic!("{:?}", UniqueId::new()) };
    assert_eq!(missing.tried.len(), 1);
    let lines = findings();
    assert_eq!(lines[0], "NCCL cannot be opened as SQUALL_NCCL says:");
    assert!(lines[1].starts_with("  /nowhere/libnccl.so.2: cannot open shared object file"), "{lines:?}");
}

#[test]
fn what_is_found_is_told_with_its_version_and_file() {
    let name = "what_is_found_is_told_with_its_version_and_file";
    if !is_child(name) {
        let folder = tempfile::tempdir().unwrap();
        compile(folder.path(), 23001);
        // A wheel that is not used, and not opened: it is no library.
        let wheel = folder.path().join(WHEEL);
        std::fs::create_dir_all(&wheel).unwrap();
        std::fs::write(wheel.join("libnccl.so.2"), "").unwrap();
        return again_in(name, &folder.path().join("libnccl.so.2"), folder.path());
    }
    // Naming the crate and asking what it serves opens nothing.
    assert!(Registry::linked().unwrap().library("nccl", "cuda").is_some());
    assert_eq!(mapped("libnccl.so"), [""; 0].map(Path::new));
    let file = Path::new(&std::env::var_os("SQUALL_NCCL").unwrap()).canonicalize().unwrap();
    let lines = findings();
    assert_eq!(lines[0], format!("NCCL 2.30.1 in {}", file.display()));
    // This machine may have more of them.
    let unused = file.with_file_name(WHEEL).join("libnccl.so.2");
    let want = format!("  not used: {} (set SQUALL_NCCL to a file to choose it)", unused.display());
    assert_eq!(lines[1], want);
    assert!(lines[2..].iter().all(|line| line.starts_with("  not used: ")), "{lines:?}");
    assert_eq!(mapped("libnccl.so"), [file]);
    assert_eq!(UniqueId::new().unwrap().as_bytes(), &[0; 128]);
}

#[test]
fn a_copy_too_old_is_told_with_those_that_may_do() {
    let name = "a_copy_too_old_is_told_with_those_that_may_do";
    if !is_child(name) {
        let folder = tempfile::tempdir().unwrap();
        compile(folder.path(), 22105);
        std::fs::create_dir_all(folder.path().join(WHEEL)).unwrap();
        std::fs::write(folder.path().join(WHEEL).join("libnccl.so.2"), "").unwrap();
        return again_in(name, &folder.path().join("libnccl.so.2"), folder.path());
    }
    let lines = findings();
    assert!(lines[0].ends_with("is too old: 2.22.0 or later is needed"), "{lines:?}");
    assert!(lines[1].starts_with("install NCCL 2.22 or later: "), "{lines:?}");
    assert!(
        lines[1].ends_with("and set SQUALL_NCCL to its file where the older one is found first"),
        "{lines:?}"
    );
    assert!(lines[2].starts_with("  not used: ") && lines[2].contains(WHEEL), "{lines:?}");
}

/// A library that has the functions of NCCL, which say that all is well.
fn compile(folder: &Path, version: i32) {
    let functions = [
        "ncclGetErrorString",
        "ncclGetLastError",
        "ncclGetUniqueId",
        "ncclCommInitRankConfig",
        "ncclCommSplit",
        "ncclCommGetAsyncError",
        "ncclCommAbort",
        "ncclCommDestroy",
        "ncclGroupStart",
        "ncclGroupEnd",
        "ncclAllReduce",
        "ncclBroadcast",
        "ncclReduce",
        "ncclAllGather",
        "ncclReduceScatter",
        "ncclSend",
        "ncclRecv",
    ];
    let mut text = format!(
        "#[unsafe(no_mangle)] pub unsafe extern \"C\" fn ncclGetVersion(version: *mut i32) -> i32 {{\n\
             unsafe {{ *version = {version} }};\n    0\n}}\n"
    );
    for function in functions {
        text += &format!("#[unsafe(no_mangle)] pub extern \"C\" fn {function}() -> usize {{ 0 }}\n");
    }
    let source = folder.join("nccl.rs");
    std::fs::write(&source, text).unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc.args([
        "--edition=2024",
        "--crate-type=cdylib",
        "--crate-name=nccl",
        "-Cpanic=abort",
        "-Anon_snake_case",
    ]);
    assert!(rustc.arg("-o").arg(folder.join("libnccl.so.2")).arg(source).status().unwrap().success());
}
