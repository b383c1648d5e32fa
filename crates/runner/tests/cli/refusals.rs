//! Manifests and command lines that cannot be: a status of 2, and the place.

use crate::harness::{Folder, scaled};

const ONES: &str = "init = { fill = 1 }";

#[test]
fn manifests_that_are_none() {
    let folder = Folder::new();
    folder.run().failed(2, &["cannot read `m.toml`: No such file"]);
    std::fs::create_dir(folder.path("m.toml")).unwrap();
    folder.run().failed(2, &["`m.toml` is a folder, not a file"]);
    Folder::with("").run().failed(2, &["error[E0101]: the manifest is empty"]);
    let folder = Folder::new();
    folder.write("m.toml", b"manifest = 1 # caf\xe9\n");
    folder.run().failed(2, &["error[E0001]", "m.toml:1:19"]);
    Folder::with(&"[".repeat(10 << 20)).run().failed(2, &["error[E0002]", "1048576"]);
    Folder::with(&format!("a = {}", "[".repeat(1 << 19))).run().failed(2, &["error[E0003]"]);
}

#[test]
fn numbers_that_leave_nothing_to_do() {
    let pipeline = |line: &str| Folder::with(&format!("{}[pipeline]\n{line}\n", scaled(ONES))).run();
    pipeline("steps = 0").failed(2, &["error[E0106]", "m.toml:13:9"]);
    pipeline("step_timeout = \"0s\"").failed(2, &["error[E0106]", "m.toml:13:17", "zero"]);
    let folder = Folder::with(&scaled(ONES));
    folder.squall(&["run", "m.toml", "--steps", "0"]).failed(2, &["'0'", "--steps"]);
    folder.squall(&["check", "m.toml", "--world", "0"]).failed(2, &["'0'", "--world", "1 to 1048576"]);
    folder.squall(&["plan", "m.toml", "--world", "0"]).failed(2, &["'0'", "--world"]);
    folder.squall(&["plan", "m.toml", "--rank", "2"]).failed(2, &["no rank 2", "2 ranks"]);
}

#[test]
fn devices_that_cannot_be() {
    let devices = |devices: &str| Folder::with(&scaled(ONES).replace("\"host:0..2\"", devices)).run();
    devices("\"host:0..0\"").failed(2, &["error[E0106]", "m.toml:3:17"]);
    devices("\"hots:0..2\"").failed(2, &["error[E0106]", "m.toml:3:12", "did you mean `host`?"]);
    devices("[]").failed(2, &["error[E0106]", "m.toml:3:11"]);
    devices("[\"host:0\", \"cuda:1\"]").failed(2, &["error[E0313]", "m.toml:3:11", "host and cuda"]);
    // More ranks than a world has, without making a list of them first.
    devices("\"host:0..4294967295\"").failed(2, &["error[E0149]", "m.toml:3:11", "1048576", "4294967295"]);

    let folder = Folder::with(&scaled(ONES));
    let devices = |devices: &str| folder.squall(&["run", "m.toml", "--devices", devices]);
    devices("host:0..0").failed(2, &["--devices", "holds no device"]);
    devices("gpu:0").failed(2, &["--devices", "did you mean `cuda`?"]);
    devices("host:0,cuda:0").failed(2, &["--devices", "host and cuda"]);
    let ran = devices("host:3,host:3,host:0").done();
    assert!(ran.out.contains(" on host:3, host:3, host:0 in "), "{ran:#?}");
}

#[test]
fn what_several_ranks_share_is_said_once() {
    let missing = scaled("init = { npy = \"x.npy\" }").replace("host:0..2", "host:0..8");
    let ended = Folder::with(&missing).run().failed(2, &["error[E0310]", "1 error"]);
    assert_eq!(ended.count("error["), 1, "{ended:#?}");
}

#[test]
fn independent_faults_come_together_in_file_order() {
    let both = scaled(ONES).replace("\"scale\"", "\"scales\"");
    let both =
        format!("{both}[[task]]\nop = \"all_reduec\"\nargs = {{ buffer = \"u\", reduce = \"sum\" }}\n");
    let ended = Folder::with(&both).run();
    let ended = ended.failed(2, &["did you mean `scale`?", "did you mean `all_reduce`?", "2 errors"]);
    assert!(ended.err.find("E0140") < ended.err.find("E0141"), "{ended:#?}");
}

#[test]
fn a_job_that_would_hang_is_refused() {
    let lonely = scaled(ONES)
        + "[[task]]\nop = \"all_reduce\"\nargs = { buffer = \"u\", reduce = \"sum\" }\nwhen = \"rank == 0\"\n";
    let folder = Folder::with(&lonely);
    folder.run().failed(2, &["error[E0222]", "m.toml:12:1"]);
    folder.squall(&["check", "m.toml"]).failed(2, &["error[E0222]"]);
    folder.squall(&["plan", "m.toml"]).failed(2, &["error[E0222]"]);
    folder.squall(&["check", "m.toml", "--world", "1"]).done();
}

#[test]
fn messages_of_a_pipe_have_no_colours() {
    let ended = Folder::with("manifest = 2").run().failed(2, &["error[E0101]"]);
    assert!(!ended.err.contains('\u{1b}'), "{ended:#?}");
}
