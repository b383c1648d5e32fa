//! `--set`.

use crate::harness::{Ended, Folder};

const MANIFEST: &str = r#"manifest = 1
[params]
n = 4
m = "n + 1"
table = [[0, 0], [0, 0]]
[world]
devices = "host:0..2"
[buffer.u]
dtype = "f32"
shape = ["n"]
init = { fill = "table[rank][1] + m" }
save = { npy = "u.npy", gather = true }
[[task]]
kernel = "scale"
args = { data = "u", factor = 1 }
grid = { threads = "n", block = 32 }
"#;

fn set(assignments: &[&str]) -> (Folder, Ended) {
    let folder = Folder::with(MANIFEST);
    let mut args = vec!["run", "m.toml"];
    assignments.iter().for_each(|assignment| args.extend(["--set", assignment]));
    let ended = folder.squall(&args);
    (folder, ended)
}

#[test]
fn a_param_takes_what_the_manifest_could_say() {
    let (folder, ended) = set(&["table=[[1,2],[3,4]]", "n = 1 + 1"]);
    ended.done();
    assert_eq!(folder.read_npy("u.npy"), [5.0, 5.0, 7.0, 7.0]);
    let (folder, ended) = set(&["n=2Ki"]);
    ended.done();
    assert_eq!(folder.read_npy("u.npy").len(), 2 * 2048);
}

#[test]
fn the_last_of_several_counts() {
    let (folder, ended) = set(&["n=7", "n=1"]);
    ended.done();
    assert_eq!(folder.read_npy("u.npy"), [2.0, 2.0]);
}

#[test]
fn a_fault_has_its_place_in_the_value() {
    set(&["n=2 * k"]).1.failed(2, &["error[E0121]", "--set:1:7", "n=2 * k"]);
    set(&["n=2 *"]).1.failed(2, &["error[E0120]", "--set:1:6"]);
    set(&["n=1 / 0"]).1.failed(2, &["error[E0124]", "--set:1:"]);
    set(&["n=m"]).1.failed(2, &["error[E0111]", "--set:1:3", "n -> m -> n"]);
    set(&["n"]).1.failed(2, &["error[E0106]", "--set:1:1", "n=8192"]);
    set(&["tabel=1"]).1.failed(2, &["error[E0121]", "--set:1:1", "did you mean `table`?"]);
}

#[test]
fn a_value_that_does_not_do_is_shown_where_the_manifest_gives_it() {
    set(&["n=rank - 1"])
        .1
        .failed(2, &["error[E0146]", "m.toml:10:10", "note: set on the command line: n=rank - 1"]);
    set(&["table=1 / rank"]).1.failed(2, &["error[E0124]", "m.toml:5:", "note: set on the command line"]);
}

#[test]
fn check_and_plan_take_it_too() {
    let folder = Folder::with(MANIFEST);
    folder.squall(&["check", "m.toml", "--set", "n=rank - 1"]).failed(2, &["error[E0146]"]);
    let plan = folder.squall(&["plan", "m.toml", "--set", "n=64"]).done();
    assert!(plan.out.contains("u: f32 (64,), 256 bytes"), "{plan:#?}");
}
