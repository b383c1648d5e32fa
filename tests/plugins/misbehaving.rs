//! Ops of a plugin that panic, fail or never end: the run fails and says why, and squall ends as it should.

use crate::built::{Folder, Said, checkout, rust_plugin};

/// Runs the op's example on so many ranks.
fn run(op: &str, world: u32) -> Said {
    let folder = Folder::new();
    let manifest = checkout().join(format!("plugins/misbehaving/examples/{op}.toml"));
    folder.write("m.toml", &std::fs::read_to_string(manifest).unwrap());
    let (plugin, devices) = (rust_plugin("misbehaving"), format!("host:0..{world}"));
    folder.squall(&["run", "m.toml", "--plugin", plugin.to_str().unwrap(), "--devices", &devices])
}

fn failed(op: &str, status: i32) -> String {
    let said = run(op, 3);
    assert_eq!(said.status, Some(status), "{}", said.error);
    said.error
}

#[test]
fn a_panic_while_an_op_is_made_ready() {
    // All ranks panic; which is the first is chance.
    let said = run("panics_in_prepare", 1);
    assert_eq!(said.status, Some(1), "{}", said.error);
    insta::assert_snapshot!("a_panic_in_prepare", said.error);
    failed("panics_in_prepare", 1);
}

#[test]
fn a_panic_in_a_step() {
    let said = run("panics_in_enqueue", 1);
    assert_eq!(said.status, Some(1), "{}", said.error);
    insta::assert_snapshot!("a_panic_in_enqueue", said.error);
    failed("panics_in_enqueue", 1);
}

#[test]
fn an_error_on_one_rank_alone() {
    insta::assert_snapshot!("an_error_on_one_rank", failed("fails_on_one_rank", 1));
}

#[test]
fn an_endless_loop_on_one_rank() {
    insta::assert_snapshot!("an_endless_loop", failed("never_ends_on_one_rank", 3));
}

#[test]
fn threads_that_end_with_something_of_the_plugin_to_take_down() {
    let said = run("leaves_a_destructor", 4);
    assert_eq!((said.status, said.error.as_str()), (Some(0), ""));
}
