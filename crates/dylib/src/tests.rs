//! Libraries that are compiled for the tests, found, refused and missed.

use super::*;

const WANTED: Wanted = Wanted {
    what: "Probe",
    names: &["libsquall-probe.so.2", "libsquall-probe.so"],
    variable: "SQUALL_PROBE",
    wheels: &["maker/probe/lib", "maker/probe/lib64"],
    install: "Probe: `pip install probe`",
};

/// Compiles a library with the function `answer`.
fn compile(file: &Path, answer: i32) {
    let source = file.with_extension("rs");
    let text = format!("#[unsafe(no_mangle)] pub extern \"C\" fn answer() -> i32 {{ {answer} }}");
    std::fs::write(&source, text).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let mut command = std::process::Command::new(rustc);
    command.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=probe", "-Cpanic=abort"]);
    let status = command.arg("-o").arg(file).arg(source).status().unwrap();
    assert!(status.success());
}

fn answer(found: &Found) -> i32 {
    // SAFETY: `compile` made a function of this type.
    let answer = unsafe { found.library.get::<extern "C" fn() -> i32>("answer") }.unwrap();
    answer()
}

/// A prefix with a folder for packages, and the folder of the wheel in it.
fn prefix(root: &Path) -> (PathBuf, PathBuf) {
    let wheel = root.join("lib/python3.12/site-packages/maker/probe/lib64");
    std::fs::create_dir_all(&wheel).unwrap();
    (root.to_path_buf(), wheel)
}

#[test]
fn a_missing_library_lists_every_place_with_the_loaders_reason() {
    let root = tempfile::tempdir().unwrap();
    let (prefix, wheel) = prefix(root.path());
    std::fs::write(wheel.join("libsquall-probe.so"), "this is no library").unwrap();
    let error = open_in(&WANTED, None, &[prefix]).unwrap_err();
    let site = root.path().join("lib/python3.12/site-packages/maker/probe");
    let places: Vec<&Path> = error.tried.iter().map(|tried| &*tried.place).collect();
    assert_eq!(
        places,
        [
            Path::new("libsquall-probe.so.2"),
            Path::new("libsquall-probe.so"),
            &site.join("lib/libsquall-probe.so.2"),
            &site.join("lib/libsquall-probe.so"),
            &site.join("lib64/libsquall-probe.so.2"),
            &site.join("lib64/libsquall-probe.so"),
        ]
    );
    let text = error.to_string();
    for Tried { reason, .. } in &error.tried {
        assert!(!reason.is_empty() && !reason.contains("libsquall-probe"), "{reason}");
    }
    // The file that is there is refused for another reason than those that are not.
    let (absent, broken) = (&error.tried[0].reason, &error.tried[5].reason);
    assert!(absent.contains("No such file") && !broken.contains("No such file"), "{text}");
    let site = site.display();
    let want = [
        "Probe cannot be opened:".to_string(),
        format!("  libsquall-probe.so.2, libsquall-probe.so: {absent}"),
        format!("  the same in {site}/lib"),
        format!("  {site}/lib64/libsquall-probe.so.2: {absent}"),
        format!("  {site}/lib64/libsquall-probe.so: {broken}"),
        "install Probe: `pip install probe`; or set SQUALL_PROBE to its file".to_string(),
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), want);
}

#[test]
fn places_that_fail_alike_share_a_line_in_their_order() {
    let tried = |place: &str, reason: &str| Tried { place: place.into(), reason: reason.into() };
    let places = [
        ("/a/x.so.2", "absent"),
        ("/a/x.so", "absent"),
        ("/b/x.so.2", "absent"),
        ("/b/x.so", "broken"),
        ("/c/x.so", "broken"),
        ("/d/x.so", "absent"),
    ];
    let missing = NotFound {
        what: "X",
        tried: places.map(|(place, reason)| tried(place, reason)).into(),
        overridden: true,
        variable: "X",
        install: "",
    };
    let text = missing.to_string();
    let lines: Vec<&str> = text.lines().skip(1).take(5).map(str::trim_start).collect();
    let want = [
        "x.so.2, x.so in /a: absent",
        "/b/x.so.2: absent",
        "/b/x.so: broken",
        "the same in /c",
        "/d/x.so: absent",
    ];
    assert_eq!(lines, want);
}

#[test]
fn a_library_in_a_wheel_is_found_by_its_real_path() {
    let root = tempfile::tempdir().unwrap();
    let (prefix, wheel) = prefix(root.path());
    let real = root.path().canonicalize().unwrap().join("real.so.2.1");
    compile(&real, 42);
    std::os::unix::fs::symlink(&real, wheel.join("libsquall-probe.so.2")).unwrap();
    let found = open_in(&WANTED, None, &[prefix]).unwrap();
    assert_eq!((answer(&found), &found.path), (42, &real));
    assert_eq!(mapped("real.so"), [real]);
}

#[test]
fn what_wheels_have_installed_is_listed_once_and_not_opened() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let wheels = ["a", "b", "c"].map(|name| prefix(&root.join(name)));
    std::fs::write(wheels[0].1.join("libsquall-probe.so"), "this is no library").unwrap();
    std::fs::write(wheels[1].1.join("libsquall-probe.so.2.1"), "nor is this").unwrap();
    for name in WANTED.names {
        std::os::unix::fs::symlink(wheels[1].1.join("libsquall-probe.so.2.1"), wheels[1].1.join(name))
            .unwrap();
    }
    let prefixes = wheels.clone().map(|(prefix, _)| prefix);
    let want = [wheels[0].1.join("libsquall-probe.so"), wheels[1].1.join("libsquall-probe.so.2.1")];
    assert_eq!(installed_in(&WANTED, &prefixes), want);
}

/// The loader's own choice comes before wheels, whatever their versions.
#[test]
fn the_loaders_choice_comes_first() {
    let root = tempfile::tempdir().unwrap();
    let (prefix, wheel) = prefix(root.path());
    let wanted = Wanted { names: &["libc.so.6"], ..WANTED };
    compile(&wheel.join("libc.so.6"), 1);
    let found = open_in(&wanted, None, std::slice::from_ref(&prefix)).unwrap();
    let wheel = wheel.join("libc.so.6").canonicalize().unwrap();
    assert_ne!(found.path, wheel);
    assert_eq!(installed_in(&wanted, &[prefix]), [wheel]);
}

#[test]
fn what_the_loader_finds_by_name_is_told_by_its_path() {
    let wanted = Wanted { names: &["libsquall-probe.so.2", "libc.so.6"], ..WANTED };
    let found = open_in(&wanted, None, &[]).unwrap();
    assert!(found.path.is_absolute() && found.path.is_file(), "{}", found.path.display());
    assert_eq!(mapped("libc.so.6"), [found.path]);
}

#[test]
fn the_variable_is_tried_alone() {
    let root = tempfile::tempdir().unwrap();
    let (prefix, wheel) = prefix(root.path());
    compile(&wheel.join("libsquall-probe.so.2"), 1);
    let other = root.path().canonicalize().unwrap().join("other.so");
    compile(&other, 2);
    let with = |file: &Path| open_in(&WANTED, Some(file.into()), std::slice::from_ref(&prefix));
    let found = with(&other).unwrap();
    assert_eq!((answer(&found), &found.path), (2, &other));

    let nowhere = root.path().join("nowhere.so");
    let error = with(&nowhere).unwrap_err();
    assert_eq!(error.tried.len(), 1);
    let text = error.to_string();
    assert!(text.starts_with("Probe cannot be opened as SQUALL_PROBE says:\n"), "{text}");
    assert!(text.contains("nowhere.so: cannot open shared object file: No such file"), "{text}");

    // Set to nothing, it is as if it were not set.
    assert_eq!(answer(&open_in(&WANTED, Some("".into()), &[prefix]).unwrap()), 1);
}

#[test]
fn a_library_whose_needs_are_not_met_is_refused_with_what_it_needs() {
    let root = tempfile::tempdir().unwrap();
    let needed = root.path().join("libsquall-needed.so");
    compile(&needed, 1);
    let needy = root.path().join("needy.so");
    std::fs::write(
        root.path().join("needy.rs"),
        "#[link(name = \"squall-needed\")] unsafe extern \"C\" { fn answer() -> i32; }\n\
         #[unsafe(no_mangle)] pub extern \"C\" fn ask() -> i32 { unsafe { answer() } }",
    )
    .unwrap();
    let mut command = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    command.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=needy", "-Cpanic=abort"]);
    command.arg("-L").arg(root.path()).arg("-o").arg(&needy).arg(root.path().join("needy.rs"));
    assert!(command.status().unwrap().success());
    std::fs::remove_file(&needed).unwrap();
    let error = open_in(&WANTED, Some(needy.into()), &[]).unwrap_err();
    assert!(error.tried[0].reason.starts_with("libsquall-needed.so: cannot open"), "{error}");
}
