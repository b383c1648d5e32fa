use std::path::PathBuf;

use super::super::testing::file;
use super::*;

/// Names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn put(path: &Path, contents: &[u8]) -> Result<(), FileError> {
    Output::prepare(path)?.commit(|out| out.write_all(contents))
}

#[test]
fn a_new_file_in_new_folders() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/x.npy");
    put(&path, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(names(path.parent().unwrap()), ["x.npy"]);
}

#[test]
fn the_old_file_stays_until_the_new_one_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "x.npy", b"old");
    let output = Output::prepare(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    output
        .commit(|out| {
            out.write_all(b"new")?;
            out.flush()?;
            assert_eq!(fs::read(&path)?, b"old");
            Ok(())
        })
        .unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(names(folder.path()), ["x.npy"]);
}

#[test]
fn a_failed_write_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "x.npy", b"old");
    let error = Output::prepare(&path)
        .unwrap()
        .commit(|out| {
            out.write_all(&[0; 100_000])?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        })
        .unwrap_err()
        .to_string();
    assert_eq!(error, format!("cannot write `{}`: no storage space", path.display()));
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(folder.path()), ["x.npy"]);
}

#[test]
fn a_place_that_was_taken_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let output = Output::prepare(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = output.commit(|out| out.write_all(b"new")).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot write `{}`: ", path.display())), "{error}");
    assert!(path.is_dir());
    assert_eq!(names(folder.path()), ["x.npy"]);
}

#[test]
fn a_panic_while_writing_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "x.npy", b"old");
    let output = Output::prepare(&path).unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        output.commit(|out| {
            out.write_all(b"new")?;
            panic!("as a test");
        })
    }));
    assert!(caught.is_err());
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(folder.path()), ["x.npy"]);
}

/// The system refuses to write on, as on a full disk: a child process has a limit on the size of its files.
#[test]
#[cfg(unix)]
fn a_full_disk_changes_nothing() {
    const CHILD: &str = "SQUALL_TEST_OUTPUT_IN_A_LIMIT";
    if let Some(path) = std::env::var_os(CHILD) {
        let path = PathBuf::from(path);
        // The shorter one stays in the writer's own buffer until that is flushed.
        for length in [10_000, 2_000] {
            let error = put(&path, &vec![1; length]).unwrap_err();
            assert!(matches!(error, FileError::Io { action: "write", .. }), "{error:?}");
            assert_eq!(fs::read(&path).unwrap(), b"old");
            assert_eq!(names(path.parent().unwrap()), ["x.npy"]);
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "x.npy", b"old");
    let name = concat!(module_path!(), "::a_full_disk_changes_nothing");
    let (_, name) = name.split_once("::").unwrap();
    // One block is 512 bytes, or 1024 in some shells; the signal that comes with the limit is ignored.
    let child = std::process::Command::new("sh")
        .args(["-c", r#"trap '' XFSZ; ulimit -f 1; exec "$0" --exact "$1""#])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env(CHILD, &path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&child.stderr)
    );
}

#[test]
fn dropping_an_output_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out/x.npy");
    let output = Output::prepare(&path).unwrap();
    let held = names(&folder.path().join("out"));
    assert!(
        matches!(held.as_slice(), [name] if name.starts_with(".squall-") && name.ends_with(".tmp")),
        "{held:?}"
    );
    drop(output);
    assert_eq!(names(&folder.path().join("out")), [""; 0]);
}

#[test]
fn places_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |path: &Path| Output::prepare(path).unwrap_err().to_string();

    let shown = folder.path().display();
    assert_eq!(refusal(folder.path()), format!("`{shown}` is a folder, not a file"));
    let named = PathBuf::from(format!("{shown}/new/"));
    assert_eq!(refusal(&named), format!("`{shown}/new/` names a folder; an output needs a file's name"));
    assert!(!named.exists());
    for nameless in ["", "/", ".."] {
        let error = refusal(Path::new(nameless));
        assert_eq!(error, format!("`{nameless}` names a folder; an output needs a file's name"));
    }

    let in_the_way = file(folder.path(), "file", b"kept");
    let error = refusal(&in_the_way.join("x.npy"));
    assert!(error.starts_with(&format!("cannot create the folder `{}`: ", in_the_way.display())), "{error}");
    assert_eq!(fs::read(&in_the_way).unwrap(), b"kept");

    let mut permissions = fs::metadata(&in_the_way).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&in_the_way, permissions).unwrap();
    let shown = in_the_way.display();
    assert_eq!(refusal(&in_the_way), format!("`{shown}` is read-only; an output would replace it"));

    let long = folder.path().join("x".repeat(300));
    assert!(refusal(&long).starts_with(&format!("cannot write `{}`: ", long.display())));
    assert_eq!(names(folder.path()), ["file"]);
}

/// A folder that lets nobody make a file in it, not even root.
#[test]
#[cfg(target_os = "linux")]
fn a_folder_that_cannot_be_written() {
    let error = Output::prepare(Path::new("/proc/x.npy")).unwrap_err().to_string();
    assert!(error.starts_with("cannot create a file in `/proc`: "), "{error}");
}

#[test]
#[cfg(unix)]
fn links_are_followed() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("far")).unwrap();
    let target = file(&folder.path().join("far"), "target.npy", b"old");
    let link = folder.path().join("x.npy");
    symlink("far/target.npy", &link).unwrap();
    put(&link, b"new").unwrap();
    assert!(link.is_symlink());
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert_eq!(names(folder.path()), ["far", "x.npy"]);

    let astray = folder.path().join("astray.npy");
    symlink("nowhere/x.npy", &astray).unwrap();
    let error = Output::prepare(&astray).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot follow the link `{}`: ", astray.display())), "{error}");
    assert!(!folder.path().join("nowhere").exists());
}

#[test]
#[cfg(unix)]
fn pipes_and_devices_are_not_replaced() {
    let error = Output::prepare(Path::new("/dev/null")).unwrap_err().to_string();
    assert_eq!(error, "`/dev/null` is a device, not a file");
}

#[test]
#[cfg(unix)]
fn permissions_are_those_of_any_new_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let ordinary = file(folder.path(), "ordinary", b"");
    let path = folder.path().join("x.npy");
    put(&path, b"new").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&ordinary));
}
