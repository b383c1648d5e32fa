//! Runs that go well: steps, feeds, watched values, the summary, the progress bar.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use crate::harness::{Folder, scaled};

const COUNTED: &str = r#"manifest = 1
[pipeline]
name = "counted"
steps = 7
[params]
add = 3
[world]
devices = "host:0..2"
[buffer.count]
dtype = "u64"
shape = [1]
init = { fill = 1 }
download = "every"
save = "out/count-{rank}.npy"
[[task]]
op = "all_reduce"
args = { buffer = "count", reduce = "sum" }
[[watch]]
name = "some"
value = "count + add"
every = 3
[[watch]]
name = "all"
value = "count"
rank = 1
[[watch]]
name = "many"
value = "count >= 100"
every = 6
"#;

fn json(folder: &Folder, args: &[&str]) -> Value {
    let ended = folder.squall(&[&["run", "m.toml", "--json"], args].concat()).done();
    assert_eq!((ended.out.lines().count(), ended.err.as_str()), (1, ""), "{ended:#?}");
    serde_json::from_str(&ended.out).unwrap()
}

/// The steps, the ranks and the values of a watch.
fn read(summary: &Value, name: &str) -> Vec<(u64, u64, Option<f64>)> {
    let readings = summary["watched"][name].as_array().unwrap();
    let number = |reading: &Value, key: &str| reading[key].as_u64().unwrap();
    readings.iter().map(|r| (number(r, "step"), number(r, "rank"), r["value"].as_f64())).collect()
}

#[test]
fn json_is_one_object_alone() {
    let folder = Folder::with(COUNTED);
    let summary = json(&folder, &[]);
    let keys: Vec<&String> = summary.as_object().unwrap().keys().collect();
    let expected = ["devices", "elapsed_s", "outputs", "pipeline", "step_us", "steps", "watched", "world"];
    assert_eq!(
        keys.iter().map(|key| key.as_str()).collect::<std::collections::BTreeSet<_>>(),
        expected.into()
    );
    assert_eq!(summary["pipeline"], "counted");
    assert_eq!((summary["world"].as_u64(), summary["steps"].as_u64()), (Some(2), Some(7)));
    assert_eq!(summary["devices"], serde_json::json!(["host:0", "host:1"]));
    assert_eq!(summary["outputs"], serde_json::json!(["out/count-0.npy", "out/count-1.npy"]));
    assert!(
        summary["elapsed_s"].as_f64().unwrap() > 0.0 && summary["step_us"]["median"].as_f64().unwrap() > 0.0
    );
}

#[test]
fn watched_values_are_read_when_they_are_due() {
    let summary = json(&Folder::with(COUNTED), &[]);
    assert_eq!(read(&summary, "some"), [(3, 0, Some(11.0)), (6, 0, Some(67.0))]);
    assert_eq!(read(&summary, "many"), [(6, 0, Some(0.0))]);
    assert_eq!(read(&summary, "all"), [(7, 1, Some(128.0))]);
}

#[test]
fn steps_of_the_command_line_count() {
    let folder = Folder::with(COUNTED);
    let summary = json(&folder, &["--steps", "2"]);
    assert_eq!(summary["steps"], 2);
    assert_eq!(summary["watched"].get("some"), None);
    assert_eq!(read(&summary, "all"), [(2, 1, Some(4.0))]);
}

/// Beyond 64 signed bits a value alone is exact, and what is worked out of it the nearest floating-point number.
#[test]
fn large_unsigned_values_are_watched() {
    let folder = Folder::with(&COUNTED.replace("every = 3", "every = \"end\""));
    let summary = json(&folder, &["--steps", "63"]);
    assert_eq!(summary["watched"]["all"][0]["value"], serde_json::json!(1_u64 << 63));
    assert_eq!(read(&summary, "some"), [(63, 0, Some(2_f64.powi(63)))]);
    let summary = json(&folder, &["--steps", "64"]);
    assert_eq!(read(&summary, "all"), [(64, 1, Some(0.0))]); // sums wrap
}

/// As JSON and in words.
#[test]
fn watched_integers_are_exact() {
    let watch = "[[watch]]\nname = \"u\"\nvalue = \"u\"\n[[watch]]\nname = \"less\"\nvalue = \"u - 1\"\n";
    let text =
        scaled("init = { values = [4503599627370497] }").replace("[4]", "[1]").replace("f32", "i64") + watch;
    let folder = Folder::with(&text);
    let summary = json(&folder, &[]);
    assert_eq!(summary["watched"]["u"][0]["value"], serde_json::json!(9007199254740994_i64));
    assert_eq!(summary["watched"]["less"][0]["value"], serde_json::json!(9007199254740993_i64));
    let ended = folder.run().done();
    assert!(ended.out.contains("u = 9007199254740994\nless = 9007199254740993\n"), "{}", ended.out);
}

/// The order is that of the manifest, whichever was read first.
#[test]
fn watched_values_are_in_file_order() {
    let ended = Folder::with(COUNTED).squall(&["run", "m.toml", "--json"]).done();
    let places = ["some", "all", "many"].map(|name| ended.out.find(&format!("\"{name}\":")).unwrap());
    assert!(places.is_sorted(), "{}", ended.out);
}

#[test]
fn large_floats_are_short() {
    let watch = "[[watch]]\nname = \"u\"\nvalue = \"u\"\n";
    let text = scaled("init = { fill = 5e299 }").replace("[4]", "[1]").replace("f32", "f64") + watch;
    let ended = Folder::with(&text).run().done();
    assert!(ended.out.contains("u = 1e300\n"), "{}", ended.out);
}

#[test]
fn a_value_that_is_no_number_is_null() {
    let watch =
        "[[watch]]\nname = \"ratio\"\nvalue = \"1 / (u - u)\"\n[[watch]]\nname = \"root\"\nvalue = \"u\"\n";
    let infinite =
        scaled("init = { fill = 1e38 }").replace("[4]", "[1]").replace("factor = 2", "factor = 1e38");
    let folder = Folder::with(&(infinite + watch));
    let summary = json(&folder, &[]);
    assert_eq!((read(&summary, "ratio"), read(&summary, "root")), (vec![(1, 0, None)], vec![(1, 0, None)]));
    let ended = folder.run().done();
    assert!(ended.out.contains("root = not a number\n"), "{ended:#?}");
}

/// A file of five rows feeds four a step, and begins again within a step.
#[test]
fn a_feed_wraps_within_a_batch() {
    let fed = |batch: &str| {
        let folder = Folder::with(
            &scaled("feed = { npy = \"x.npy\" }\nsave = { npy = \"u.npy\", rank = 0 }")
                .replace("shape = [4]", &format!("shape = [{batch}]"))
                .replace("threads = 4", &format!("threads = {batch}")),
        );
        folder.npy("x.npy", &[5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
        folder.squall(&["run", "m.toml", "--steps", "3"]).done();
        folder.read_npy("u.npy")
    };
    assert_eq!(fed("4"), [8.0, 10.0, 2.0, 4.0]); // rows 8 to 11, modulo 5
    assert_eq!(fed("7"), [10.0, 2.0, 4.0, 6.0, 8.0, 10.0, 2.0]); // the file has fewer rows than a batch
}

#[test]
fn a_feed_that_does_not_fit_is_refused() {
    let folder =
        Folder::with(&scaled("feed = { npy = \"x.npy\", shard = \"rows\" }").replace("[4]", "[2, 2]"));
    folder.npy("x.npy", &[3, 3], &[0.0; 9]);
    folder.run().failed(2, &["error[E0310]", "m.toml:11:16", "has the shape (3, 3), but (3, 2) is expected"]);
    folder.npy("x.npy", &[1, 2], &[0.0; 2]);
    folder.run().failed(2, &["error[E0310]", "m.toml:11:16", "`x.npy` has no rows for rank 1"]);
}

#[test]
fn auto_says_what_it_took() {
    let ended = Folder::with(&scaled("init = { fill = 1 }").replace("host:0..2", "auto")).run().done();
    let note = "note: no GPU is usable here (the NVIDIA driver cannot be opened as SQUALL_CUDA_DRIVER says; \
                `squall doctor` tells more), so that `auto` takes one rank on the host; `--devices host:0..4` takes four\n";
    assert_eq!(ended.err, note);
    assert!(ended.out.contains(" on host:0 in "), "{ended:#?}");
}

#[test]
fn names_are_relative_to_the_manifest() {
    let folder = Folder::new();
    folder.write(
        "deep/m.toml",
        scaled("init = { npy = \"x.npy\" }\nsave = { npy = \"u.npy\", rank = 1 }").as_bytes(),
    );
    folder.npy("deep/x.npy", &[4], &[1.0; 4]);
    folder.squall(&["run", "deep/m.toml"]).done();
    assert_eq!(folder.read_npy("deep/u.npy"), [2.0; 4]);
}

/// A pipe gets no bar; a terminal gets one, with the rate and the watched values, and it is gone in the end.
#[test]
fn a_terminal_shows_how_far_it_is() {
    let folder = Folder::with(&COUNTED.replace("every = 3", "every = 100000"));
    let args = ["run", "m.toml", "--steps", "300000"];
    assert_eq!(folder.squall(&args).done().err, "");

    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let other_end = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = folder.command(&args);
    let mut child = command.stderr(Stdio::from(other_end)).env("TERM", "xterm").spawn().unwrap();
    drop(command); // its copy of the terminal's other end
    let mut shown = Vec::new();
    // The read fails when the last copy is closed.
    let _ = File::from(terminal).read_to_end(&mut shown);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let shown = String::from_utf8_lossy(&shown);
    for part in ["/300000 steps, ", "/s  ", "some = "] {
        assert!(shown.contains(part), "{part:?} is not in {shown:?}");
    }
}
