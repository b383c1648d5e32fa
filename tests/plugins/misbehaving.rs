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

/// Where in the plugin's source it is told to be, changes with every line above it.
fn without_its_line(error: &str) -> String {
    let (before, place) = error.split_once("src/lib.rs:").unwrap();
    let rest = place.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':');
    assert!(rest.len() < place.len(), "{error}");
    format!("{before}src/lib.rs:[PLACE]{rest}")
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
    insta::assert_snapshot!("a_panic_in_prepare", without_its_line(&said.error));
    failed("panics_in_prepare", 1);
}

#[test]
fn a_panic_in_a_step() {
    let said = run("panics_in_enqueue", 1);
    assert_eq!(said.status, Some(1), "{}", said.error);
    insta::assert_snapshot!("a_panic_in_enqueue", without_its_line(&said.error));
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

/// By what each op declares: nothing else decides.
#[test]
fn a_group_is_made_ready_as_one_or_refused() {
    let said = |op: &str| {
        let folder = Folder::new();
        let group = format!("group = [ {{ op = \"{op}\" }}, {{ op = \"{op}\" }} ]");
        folder.write("m.toml", &format!("manifest = 1\n[[task]]\nlibrary = \"misbehaving\"\n{group}\n"));
        let plugin = rust_plugin("misbehaving");
        folder.squall(&["run", "m.toml", "--plugin", plugin.to_str().unwrap(), "--devices", "host:0..3"])
    };
    let supported = said("does_nothing");
    assert_eq!((supported.status, supported.error.as_str()), (Some(0), ""));
    let refused = said("leaves_a_destructor");
    assert_eq!(refused.status, Some(2), "{}", refused.error);
    assert!(refused.error.contains("error[E0212]"), "{}", refused.error);
}

#[test]
fn threads_that_end_with_something_of_the_plugin_to_take_down() {
    let said = run("leaves_a_destructor", 4);
    assert_eq!((said.status, said.error.as_str()), (Some(0), ""));
}
