//! `check --world A..B`: many numbers of ranks at once.

use crate::harness::Folder;

/// Which ranks call a collective.
fn called(when: &str, more: &str) -> String {
    format!(
        "manifest = 1\n{more}[buffer.x]\ndtype = \"f32\"\nshape = [8]\ninit = {{ fill = 1 }}\n\
         [[task]]\nop = \"all_reduce\"\nargs = {{ buffer = \"x\", reduce = \"sum\" }}\nwhen = \"{when}\"\n"
    )
}

fn check(manifest: &str, worlds: &str) -> crate::harness::Ended {
    Folder::with(manifest).squall(&["check", "m.toml", "--world", worlds])
}

#[test]
fn numbers_that_hold_are_told_in_a_line() {
    assert_eq!(check(&called("true", ""), "1..65").done().out, "m.toml: verified with 1 to 64 ranks\n");
    assert_eq!(check(&called("true", ""), "1..2").done().out, "m.toml: verified with 1 rank\n");
    assert_eq!(check(&called("true", ""), "1048576..1048577").status, 0);
}

#[test]
fn what_is_wrong_with_several_is_told_once() {
    let ended = check(&called("rank != 2", ""), "1..9");
    assert_eq!((ended.err.matches("error[E0222]").count(), ended.out.as_str()), (1, ""));
    // With the values of the least.
    let parts =
        ["note: with 3 to 8 ranks:\n", "m.toml:6:1", "rank 2 never reaches it", "refused with 3 to 8 ranks"];
    ended.failed(2, &parts);
    // Another place is another fault.
    let two = called("rank != 2", "")
        + "[[task]]\nop = \"broadcast\"\nargs = { buffer = \"x\", root = \"4 % world\" }\nwhen = \"world != 5 or rank > 0\"\n";
    let ended = check(&two, "1..9");
    assert_eq!(ended.err.matches("note: with").count(), 2, "{}", ended.err);
    ended.failed(2, &["note: with 3 to 4, 6 to 8 ranks:", "note: with 5 ranks:"]);
}

#[test]
fn numbers_that_are_not_meant_are_told_apart() {
    let even = called("true", "[world]\nrequire = [\"world % 2 == 0\"]\n");
    let ended = check(&even, "1..9").done();
    assert_eq!(ended.out, "m.toml: verified with 2, 4, 6, 8 ranks\n");
    assert_eq!(ended.err, "note: not meant for 1, 3, 5, 7 ranks, by `require` or the mesh\n");
    let ended = check(&even, "1..100").done();
    assert!(ended.out.ends_with("22, 24, … 37 more such ranks\n"), "{}", ended.out);
    check(&even, "3..4").failed(2, &["meant for none of these numbers of ranks"]);
}

#[test]
fn warnings_count_where_they_are_to() {
    let unused = called("true", "[params]\nn = 1\n");
    let folder = Folder::with(&unused);
    folder.squall(&["check", "m.toml", "--world", "1..4"]).done();
    folder
        .squall(&["check", "m.toml", "--world", "1..4", "--deny-warnings"])
        .failed(2, &["W0102", "--deny-warnings"]);
}

#[test]
fn ranges_that_are_none() {
    for worlds in ["0", "0..4", "4..4", "5..4", "x", "1..", "..4", "1..1048578", "1048577"] {
        check(&called("true", ""), worlds)
            .failed(2, &["--world", "write a number of ranks from 1 to 1048576"]);
    }
}
