//! Outputs: checked before the first step, whole or not at all, never over an input.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::harness::{Ended, Folder, scaled};

/// A manifest that would fail in its first step, so that whatever is refused before shows that nothing ran.
fn failing(save: &str) -> String {
    scaled(&format!("init = {{ values = [0, 1, 2, 3] }}\n{save}"))
        .replace("f32", "i32")
        .replace("\"scale\"", "\"div\"")
        .replace("data = \"u\", factor = 2", "a = \"u\", b = \"u\", out = \"u\"")
}

#[test]
fn places_that_cannot_be_written_are_found_before_the_first_step() {
    let folder = Folder::with(&failing("save = \"out/u-{rank}.npy\""));
    folder.write("out", b"a file");
    let ended = folder.run().failed(2, &["error[E0312]", "m.toml:12:8", "buffer `u`", "out"]);
    assert_eq!(ended.count("error[E0312]"), 1, "one folder is one error: {ended:#?}");
    std::fs::remove_file(folder.path("out")).unwrap();
    std::fs::create_dir_all(folder.path("out/u-1.npy")).unwrap();
    folder.run().failed(2, &["error[E0312]", "m.toml:12:8", "`out/u-1.npy` is a folder"]);
    std::fs::remove_dir(folder.path("out/u-1.npy")).unwrap();
    folder.write("out/u-1.npy", b"old");
    let mut permissions = std::fs::metadata(folder.path("out/u-1.npy")).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(folder.path("out/u-1.npy"), permissions).unwrap();
    folder.run().failed(2, &["error[E0312]", "m.toml:12:8", "`out/u-1.npy` is read-only"]);
    assert_eq!(folder.files(), ["m.toml", "out/u-1.npy"]);
    Folder::with(&failing("save = \"u/\"")).run().failed(2, &["m.toml:12:8"]);
}

#[test]
fn a_run_that_fails_leaves_old_outputs_alone() {
    let folder = Folder::with(&failing("save = \"out/u-{rank}.npy\""));
    folder.write("out/u-0.npy", b"old");
    folder.run().failed(1, &["error[E0401]", "failed in task `task[0]` of step 0"]);
    assert_eq!(std::fs::read(folder.path("out/u-0.npy")).unwrap(), b"old");
    assert_eq!(folder.files(), ["m.toml", "out/u-0.npy"]);
}

#[test]
fn a_full_disk_leaves_the_old_output() {
    let folder = Folder::with(
        &scaled("init = { fill = 1 }\nsave = { npy = \"u.npy\", gather = true }")
            .replace('4', "65536")
            .replace("block = 65536", "block = 256"),
    );
    folder.write("u.npy", b"old");
    // No file may grow beyond 8 blocks; the signal that says so is not wanted, the error is.
    let script = format!("ulimit -f 8; exec {} run m.toml", env!("CARGO_BIN_EXE_squall"));
    let limited = folder.within(Command::new("sh"), &["-c", &script]).output().unwrap();
    Ended::of(limited).failed(1, &["error[E0312]: cannot write `u.npy`: File too large"]);
    assert_eq!(std::fs::read(folder.path("u.npy")).unwrap(), b"old");
    assert_eq!(folder.files(), ["m.toml", "u.npy"]);
}

#[test]
fn two_outputs_in_one_file_are_refused() {
    let both = |other: &str| {
        let more =
            format!("save = \"out/u-{{rank}}.npy\"\n[buffer.v]\ndtype = \"i32\"\nshape = [4]\n{other}");
        let task = "[[task]]\nkernel = \"copy\"\nargs = { src = \"u\", dst = \"v\" }\ngrid = { threads = 4, block = 4 }\n";
        let folder = Folder::with(&format!("{}{task}", failing(&more)));
        // Another way to the same folder.
        symlink(".", folder.path("here")).unwrap();
        folder.run()
    };
    both("save = \"out/u-{rank}.npy\"").failed(2, &["error[E0147]", "m.toml:16:8", "12 | save"]);
    both("save = \"./here/out/u-{rank}.npy\"").failed(2, &["error[E0147]", "m.toml:16:8", "12 | save"]);
    // The same file on one rank alone.
    both("save = { npy = \"out/u-1.npy\", rank = 0 }")
        .failed(2, &["error[E0147]", "m.toml:16:16", "out/u-1.npy"]);
    Folder::with(&failing("save = \"u.npy\""))
        .run()
        .failed(2, &["error[E0147]", "m.toml:12:8", "ranks 0 and 1"]);
}

#[test]
fn an_input_is_not_overwritten() {
    let folder = Folder::with(&failing("").replace(
        "init = { values = [0, 1, 2, 3] }",
        "init = { npy = \"x.npy\" }\nsave = { npy = \"here/x.npy\", rank = 0 }",
    ));
    symlink(".", folder.path("here")).unwrap();
    let mut bytes = Vec::new();
    squall_runner::files::npy::write(&mut bytes, squall_core::DType::I32, &[4], &[0; 16]).unwrap();
    folder.write("x.npy", &bytes);
    folder.run().failed(
        2,
        &["error[E0312]", "m.toml:12:16", "`here/x.npy` would overwrite what is read", "read here"],
    );
    assert_eq!(std::fs::read(folder.path("x.npy")).unwrap(), bytes);
}

#[test]
fn what_cannot_be_gathered_is_refused() {
    let gather = "init = { fill = 1 }\nsave = { npy = \"u.npy\", gather = true }";
    let ragged = scaled(gather)
        .replace("shape = [4]", "shape = [2, \"2 + rank\"]")
        .replace("threads = 4", "threads = 6");
    Folder::with(&ragged).run().failed(2, &["error[E0312]", "m.toml:12:16", "[2, 2]", "[2, 3]"]);
    let single = scaled(gather).replace("shape = [4]", "shape = []");
    Folder::with(&single).run().failed(2, &["error[E0312]", "m.toml:12:16", "no rows to gather"]);
    // Rows beyond what can be counted, and far beyond any memory.
    let many = scaled(gather).replace("[4]", "[\"16Ti\", \"256Ki\"]").replace("f32", "u8");
    Folder::with(&many.replace("host:0..2", "host:0..8")).squall(&["run", "m.toml"]).failed(2, &["error["]);
    let picture = "init = { fill = 1 }\nsave = { png = \"u.png\", gather = true }";
    Folder::with(&scaled(picture)).run().failed(2, &["error[E0312]", "m.toml:12:16"]);
}

#[test]
fn a_rank_without_the_buffer_saves_nothing() {
    let lonely = scaled("init = { fill = 1 }\nsave = \"u-{rank}.npy\"")
        .replace("[buffer.u]", "when = \"rank == 1\"\n[buffer.u]");
    let folder = Folder::with(&lonely);
    let ran = folder.run().done();
    assert!(ran.out.contains("wrote u-1.npy\n") && !ran.out.contains("u-0.npy"), "{ran:#?}");
    assert_eq!(folder.files(), ["m.toml", "u-1.npy"]);
}

/// A buffer that is downloaded in every step is saved as the finish left it.
#[test]
fn what_the_finish_writes_is_saved() {
    let saved = "init = { fill = 1 }\ndownload = \"every\"\nsave = { npy = \"u.npy\", rank = 0 }";
    let finish = "[[finish]]\nkernel = \"scale\"\nargs = { data = \"u\", factor = 10 }\ngrid = { threads = 4, block = 4 }\n";
    let folder = Folder::with(&(scaled(saved) + finish));
    folder.run().done();
    assert_eq!(folder.read_npy("u.npy"), [20.0; 4]);
}
