//! Opening: the version first, then every function, each by name.

use std::path::Path;

use libloading::Library;

use super::*;

/// Compiles a library that exports functions returning 0, and a version.
fn library(folder: &Path, version: c_int, functions: &[&str]) -> Found {
    let (source, file) =
        (folder.join("fake.rs"), folder.join(format!("libfake-{version}-{}.so", functions.len())));
    let mut text = format!(
        "#[unsafe(no_mangle)] pub unsafe extern \"C\" fn ncclGetVersion(version: *mut i32) -> i32 {{\n\
             unsafe {{ *version = {version} }};\n    0\n}}\n"
    );
    for function in functions {
        text += &format!("#[unsafe(no_mangle)] pub extern \"C\" fn {function}() -> i32 {{ 0 }}\n");
    }
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(&source, text).unwrap();
    let mut rustc = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc.args([
        "--edition=2024",
        "--crate-type=cdylib",
        "--crate-name=fake",
        "-Cpanic=abort",
        "-Anon_snake_case",
    ]);
    assert!(rustc.arg("-o").arg(&file).arg(source).status().unwrap().success());
    // SAFETY: what was compiled here needs nothing.
    let library = unsafe { Library::new(&file) }.unwrap();
    Found { library: Box::leak(Box::new(library)), path: file }
}

#[test]
fn a_version_too_old_is_refused_before_anything_else_is_looked_up() {
    let folder = tempfile::tempdir().unwrap();
    let found = library(folder.path(), 22105, &[]);
    let error = Api::load(&found).err().unwrap();
    assert_eq!(error, NcclError::TooOld { path: found.path.clone(), version: Version::of(2, 21, 5) });
    let text = error.to_string();
    assert!(text.starts_with("NCCL 2.21.5 in "), "{text}");
    assert!(text.contains("libfake-22105-0.so is too old: 2.22.0 or later is needed\n"), "{text}");
    assert!(text.contains("pip install nvidia-nccl-cu13") && text.contains("SQUALL_NCCL"), "{text}");
}

#[test]
fn a_function_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let all = Functions::NAMES;
    let complete = library(folder.path(), 22203, all);
    assert_eq!(Api::load(&complete).map(|api| api.version).ok(), Some(Version::of(2, 22, 3)));
    for missing in ["ncclCommSplit", "ncclRecv"] {
        let rest: Vec<&str> = all.iter().copied().filter(|name| *name != missing).collect();
        let found = library(&folder.path().join(missing), 22203, &rest);
        let error = Api::load(&found).err().unwrap();
        assert!(matches!(&error, NcclError::NoFunction { function, .. } if *function == missing), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("has no `{missing}`: ")) && text.contains("undefined symbol"),
            "{text}"
        );
    }
}

#[test]
fn a_library_that_is_not_nccl_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libother.so");
    std::fs::write(folder.path().join("other.rs"), "").unwrap();
    let mut rustc = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=other", "-Cpanic=abort"]);
    assert!(rustc.arg("-o").arg(&file).arg(folder.path().join("other.rs")).status().unwrap().success());
    // SAFETY: the library is empty.
    let library = Box::leak(Box::new(unsafe { Library::new(&file) }.unwrap()));
    let error = Api::load(&Found { library, path: file }).err().unwrap().to_string();
    assert!(
        error.contains("libother.so is no NCCL that can be used: it has no `ncclGetVersion`: "),
        "{error}"
    );
}

#[test]
fn versions_read_as_nccl_writes_them() {
    for (code, text) in [(22203, "2.22.3"), (23000, "2.30.0"), (2805, "2.8.5"), (20905, "2.9.5")] {
        assert_eq!(Version(code).to_string(), text);
    }
}

/// The layout that NCCL 2.22 gives its configuration on 64-bit machines.
#[test]
fn the_configuration_is_laid_out_as_nccl_reads_it() {
    assert_eq!(size_of::<Config>(), 48);
    assert_eq!(std::mem::offset_of!(Config, blocking), 16);
    assert_eq!(std::mem::offset_of!(Config, net_name), 32);
    assert_eq!(std::mem::offset_of!(Config, split_share), 40);
    let config = Config::new(false);
    assert_eq!((config.size, config.magic, config.version, config.blocking), (48, 0xcafe_beef, 22200, 0));
    assert_eq!(Config::new(true).blocking, 1);
}
