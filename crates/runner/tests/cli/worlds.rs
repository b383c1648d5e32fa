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

fn objects(said: &str) -> Vec<serde_json::Value> {
    said.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn machines_are_told_of_diagnostics_and_verdicts() {
    let folder = Folder::with(&called("rank != 2", ""));
    let json = |worlds: &str| folder.squall(&["check", "m.toml", "--json", "--world", worlds]);
    let held = objects(&json("2").done().out);
    assert_eq!(held.len(), 1);
    assert_eq!(
        (&held[0]["world"], &held[0]["verified"], &held[0]["tasks"]),
        (&2.into(), &true.into(), &2.into())
    );
    assert_eq!(held[0]["plan_hash"].as_str().unwrap().len(), 32);

    let refused = json("3");
    let said = objects(&refused.out);
    assert_eq!((refused.status, said.len()), (2, 2));
    assert_eq!((&said[0]["severity"], &said[0]["code"]), (&"error".into(), &"E0222".into()));
    assert!(said[0]["message"].as_str().unwrap().contains("rank 2 never reaches it"));
    assert!(said[0]["help"].as_str().unwrap().contains("`when`"));
    let place = &said[0]["places"][0];
    assert_eq!((&place["line"], &place["column"], &place["rank"]), (&6.into(), &1.into(), &0.into()));
    let bytes = place["start"].as_u64().unwrap() as usize..place["end"].as_u64().unwrap() as usize;
    assert_eq!(&called("rank != 2", "")[bytes], "[[task]]");
    assert_eq!(said[1], serde_json::json!({ "world": 3, "verified": false, "meant": true }));

    let range = json("1..6");
    let said = objects(&range.out);
    assert_eq!((range.status, said.len()), (2, 6));
    let verdicts: Vec<bool> =
        said[..5].iter().map(|verdict| verdict["verified"].as_bool().unwrap()).collect();
    assert_eq!(verdicts, [true, true, false, false, false]);
    assert_eq!(said[5]["worlds"], serde_json::json!([3, 4, 5]));
}

#[test]
fn machines_are_told_of_texts_that_are_no_manifests() {
    let folder = Folder::with("manifest = 1\n[params]\nä = 1 # ü\n");
    let ended = folder.squall(&["check", "m.toml", "--json"]);
    let said = objects(&ended.out);
    assert_eq!((ended.status, said.len()), (2, 1), "{}", ended.out);
    assert_eq!((&said[0]["code"], &said[0]["places"][0]["line"]), (&"E0003".into(), &3.into()));
    // Warnings, too, in characters.
    let warned = Folder::with(&("# ä\n".to_owned() + &called("true", "[params]\nn = \"1\" # ü\n")));
    let said = objects(&warned.squall(&["check", "m.toml", "--json"]).done().out);
    assert_eq!((&said[0]["severity"], &said[0]["places"][0]["column"]), (&"warning".into(), &1.into()));
    assert_eq!(said[1]["verified"], true);
    // Of what it is not meant for, it says so.
    let even = Folder::with(&called("true", "[world]\nrequire = [\"world % 2 == 0\"]\n"));
    let ended = even.squall(&["check", "m.toml", "--json", "--world", "3"]);
    assert_eq!(objects(&ended.out)[1]["meant"], false);
}
