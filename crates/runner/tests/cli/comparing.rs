//! `compare`, of the host with itself: two backends are compared by the workspace's tests.

use squall_core::DType;
use squall_runner::compare::Tolerances;

use crate::harness::{Folder, scaled};

const SAVED: &str = "init = { fill = \"i + rank\" }\nsave = \"out/u-{rank}.npy\"";

#[test]
fn sides_that_agree_are_0_and_the_report_says_how_well() {
    let folder = Folder::with(&scaled(SAVED));
    let ended = folder.squall(&["compare", "m.toml", "--with", "host", "--steps", "3"]).done();
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(
        lines,
        [
            "pipeline: 3 steps on the host and on host:0, host:1, compared task by task",
            "f32: 24 elements compared, all equal",
            "allowed: f32 1e-5 × |host| + 1e-5; integers exact",
        ]
    );
    assert_eq!((ended.err.as_str(), folder.files()), ("", vec!["m.toml".to_string()]), "nothing is saved");
    let args = [
        "compare",
        "m.toml",
        "--with",
        "host",
        "--devices",
        "host:0..3",
        "--each",
        "--tolerance",
        "f32=0.5,0",
    ];
    let ended = folder.squall(&args).done();
    assert!(
        ended.out.starts_with("pipeline: 1 step on the host and on host:0, host:1, host:2, "),
        "{ended:#?}"
    );
    assert!(ended.out.contains(", each with the host's values\n"), "{ended:#?}");
    assert!(ended.out.contains("allowed: f32 5e-1 × |host| + 0e0;"), "{ended:#?}");
}

#[test]
fn the_report_is_one_object_for_machines() {
    let folder = Folder::with(&scaled(SAVED));
    let ended = folder.squall(&["compare", "m.toml", "--with", "host", "--json", "--set", "n=1"]);
    ended.failed(2, &["--set"]);
    let ended = folder.squall(&["compare", "m.toml", "--with", "host", "--json"]).done();
    let json: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&json["world"], &json["steps"], &json["each"]), (&2.into(), &1.into(), &false.into()));
    assert_eq!(json["devices"], serde_json::json!(["host:0", "host:1"]));
    assert_eq!(json["agreement"], serde_json::json!([{ "dtype": "f32", "elements": 8, "greatest": null }]));
    assert_eq!(json["differences"], serde_json::json!([]));
    assert_eq!(json["tolerances"]["bf16"], serde_json::json!({ "relative": 0.03, "absolute": 0.008 }));
}

#[test]
fn command_lines_that_cannot_be_are_2() {
    let folder = Folder::with(&scaled(SAVED));
    let compare = |args: &[&str]| folder.squall(&[&["compare", "m.toml"], args].concat());
    compare(&[]).failed(2, &["--with <KIND>"]);
    compare(&["--with", "gpu"]).failed(2, &["'gpu'", "no kind of device; one of cuda, host"]);
    for (tolerance, said) in [
        ("f32", "write `f32=1e-4`"),
        ("f32=-1", "write `f32=1e-4`"),
        ("i32=1", "i32 has no tolerance: integers are compared exactly"),
        ("float=1", "`float` is not a dtype"),
    ] {
        compare(&["--with", "host", "--tolerance", tolerance]).failed(2, &[tolerance, said]);
    }
    compare(&["--with", "host", "--steps", "0"]).failed(2, &["--steps"]);
    let mixed = compare(&["--with", "cuda", "--devices", "host:0..2"]);
    mixed.failed(2, &["error[E0313]: the devices to compare with are to be of the kind cuda"]);
}

#[test]
fn a_backend_that_is_missing_is_4() {
    let folder = Folder::with(&scaled(SAVED));
    let missing = folder.squall(&["compare", "m.toml", "--with", "cuda"]);
    missing.failed(4, &["error[E0313]: no cuda device is usable here:"]);
}

#[test]
fn help_states_the_tolerances() {
    let help = Folder::new().squall(&["compare", "--help"]).done().out;
    for dtype in DType::FLOATS {
        let tolerance = Tolerances::default().of(*dtype).unwrap();
        let stated = format!("{dtype}: {:e},{:e}", tolerance.relative, tolerance.absolute);
        assert!(help.contains(&stated), "{stated} is not in: {help}");
    }
}
