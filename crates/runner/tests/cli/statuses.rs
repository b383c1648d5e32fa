//! Exit statuses, and which stream says what.

use std::io::Read as _;

use crate::harness::{Folder, scaled};

const ONES: &str = "init = { fill = 1 }";

#[test]
fn done_is_0() {
    let ended = Folder::with(&scaled(ONES)).run().done();
    assert!(ended.out.starts_with("pipeline: 1 step on host:0, host:1 in "), "{ended:#?}");
    assert_eq!(ended.err, "");
}

#[test]
fn a_failed_run_is_1_and_names_the_rank_and_the_task() {
    let divides = scaled("init = { values = [1, 2, 3, \"rank\"] }")
        .replace("f32", "i32")
        .replace("kernel = \"scale\"", "name = \"divide\"\nkernel = \"div\"")
        .replace("data = \"u\", factor = 2", "a = \"u\", b = \"u\", out = \"u\"");
    Folder::with(&divides)
        .run()
        .failed(1, &["error[E0401]: rank 0 failed in task `divide` of step 0", "zero"]);
}

#[test]
fn a_refused_manifest_is_2() {
    Folder::with(&scaled("init = 1")).run().failed(2, &["error[E0105]", "m.toml:11:8"]);
}

#[test]
fn a_refused_command_line_is_2() {
    let folder = Folder::with(&scaled(ONES));
    folder.squall(&[]).failed(2, &["Usage"]);
    folder.squall(&["runs", "m.toml"]).failed(2, &["'runs'", "run"]);
    folder.squall(&["run"]).failed(2, &["MANIFEST.toml"]);
    folder.squall(&["run", "m.toml", "--world", "2"]).failed(2, &["--world"]);
}

#[test]
fn a_passed_deadline_is_3() {
    let long = r#"manifest = 1
[pipeline]
step_timeout = "1ms"
[world]
devices = "host:0..2"
[buffer.a]
dtype = "f32"
shape = [700, 700]
init = { fill = 1 }
[buffer.c]
dtype = "f32"
shape = [700, 700]
[[task]]
name = "long"
kernel = "matmul_nn"
args = { a = "a", b = "a", c = "c" }
grid = { threads = [700, 700], block = [16, 16] }
"#;
    Folder::with(long).run().failed(3, &["error[E0402]: step 0 took longer than 1ms", "`long`"]);
}

#[test]
fn what_the_environment_lacks_is_4() {
    let folder = Folder::with(&scaled(ONES));
    for devices in ["cuda:0..2", "cuda"] {
        let ended = folder.squall(&["run", "m.toml", "--devices", devices]);
        let ended = ended.failed(4, &["error[E0313]: no cuda device is usable here:\n    the NVIDIA driver"]);
        assert_eq!(ended.err.matches("error").count(), 1, "{ended:#?}");
    }
}

#[test]
fn memory_that_is_not_there_is_4() {
    let huge = scaled(ONES)
        .replace("shape = [4]", "shape = [\"1Gi * 256Mi\"]")
        .replace("threads = 4", "threads = 1Gi");
    let huge = huge.replace("1Gi,", "\"1Gi\",").replace("\"scale\"", "\"dot\"");
    let huge = huge.replace("data = \"u\", factor = 2", "a = \"u\", b = \"u\", out = \"v\"");
    let huge = format!("{huge}[buffer.v]\ndtype = \"f32\"\nshape = [1]\n");
    // 2^58 elements of 4 bytes.
    Folder::with(&huge)
        .run()
        .failed(4, &["error[E0302]: rank 0 on host:0: out of memory: 1152921504606846976 bytes: "]);
}

#[test]
fn help_and_version_are_results() {
    let folder = Folder::new();
    let help = folder.squall(&["--help"]).done();
    assert!(
        help.out.contains("Exit status: 0 done; 1 a run failed, or a comparison found a difference; 2")
            && help.err.is_empty(),
        "{help:#?}"
    );
    assert_eq!(folder.squall(&["--version"]).done().out, format!("squall {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = Folder::new().command(&["list"]).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 1]).unwrap();
    drop(out);
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}

#[test]
fn a_result_that_cannot_be_written_is_1() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Folder::new().command(&["list"]).stdout(full).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.starts_with("error: cannot write to standard output: "), "{err}");
}

#[test]
fn check_needs_no_device() {
    let folder = Folder::with(&scaled(ONES));
    for verb in ["check", "plan"] {
        folder.squall(&[verb, "m.toml", "--devices", "cuda:0..2"]).done();
        let alone = folder.squall(&[verb, "m.toml", "--devices", "cuda"]);
        alone.failed(
            2,
            &["error[E0313]: how many ranks `cuda` makes", "do not ask", "= help: ", "`--world 2`"],
        );
        let named = Folder::with(&scaled(ONES).replace("\"host:0..2\"", "\"cuda\""));
        named
            .squall(&[verb, "m.toml"])
            .failed(2, &["error[E0313]: how many ranks", "devices = \"cuda\"", "^^^^^^"]);
        named.squall(&[verb, "m.toml", "--world", "2"]).done();
        named.squall(&[verb, "m.toml", "--devices", "host:0..2"]).done();
        folder.squall(&[verb, "m.toml", "--devices", "cuda", "--world", "3"]).done();
    }
    // What every machine would refuse.
    for verb in ["check", "plan"] {
        for (devices, said) in [
            ("cuda:0,cuda:0", "error[E0313]: ranks 0 and 1 are both given cuda:0"),
            ("cuda:1,cuda:0..2", "error[E0313]: ranks 0 and 2 are both given cuda:1"),
        ] {
            let twice = folder.squall(&[verb, "m.toml", "--devices", devices]);
            twice.failed(2, &[said, "help: name cuda devices that differ: each has room for one rank"]);
        }
        folder.squall(&[verb, "m.toml", "--devices", "cuda:0..4294967295"]).failed(2, &["error[E0149]"]);
        folder.squall(&[verb, "m.toml", "--devices", "host:3,host:3"]).done();
    }
    let checked = folder.squall(&["check", "m.toml"]).done();
    assert!(checked.out.starts_with("m.toml: 2 ranks, 2 tasks, verified (plan "), "{checked:#?}");
    let checked = folder.squall(&["check", "m.toml", "--world", "1000"]).done();
    assert!(checked.out.starts_with("m.toml: 1000 ranks, 1000 tasks, "), "{checked:#?}");
}

#[test]
fn warnings_pass_unless_they_are_denied() {
    let folder = Folder::with(&format!("{}[params]\nspare = 1\n", scaled(ONES)));
    let checked = folder.squall(&["check", "m.toml"]).done();
    assert!(checked.err.contains("warning[W0102]") && checked.out.contains("verified"), "{checked:#?}");
    folder.squall(&["check", "m.toml", "--deny-warnings"]).failed(2, &["warning[W0102]", "--deny-warnings"]);
}
