//! Feeds, epochs, slices, conversions and stops, from the manifest to what was computed.

use std::path::Path;

use serde_json::Value;
use squall_core::DType;
use squall_runner::files::npy;

use crate::harness::{Folder, scaled};

/// Counts what a softmax regression recognises of the digits' test rows, in batches that the rows do not fill.
const EVAL: &str = r#"manifest = 1
[pipeline]
epochs = 1
block = 256
[params]
rows = 20
pixels = 64
classes = 10
[world]
devices = "host:0..2"
[buffer.x]
dtype = "f32"
shape = ["rows", "pixels"]
feed = { npy = "data/digits-test-x.npy", shard = "rows", end = "pad", shuffle = true }
[buffer.labels]
dtype = "i32"
shape = ["rows"]
feed = { npy = "data/digits-test-y.npy", shard = "rows", end = "pad", pad = -1, shuffle = true }
[buffer.w]
dtype = "f32"
shape = ["pixels", "classes"]
init = { npy = "w.npy" }
[buffer.logits]
dtype = "f32"
shape = ["rows", "classes"]
[buffer.correct]
dtype = "i32"
shape = [1]
init = { fill = 0 }
[buffer.zeros]
dtype = "f32"
shape = ["rows", "classes"]
init = { fill = 0 }
[buffer.zeroes]
dtype = "i32"
shape = [1]
init = { fill = 0 }
[[task]]
kernel = "matmul_nn"
args = { a = "x", b = "w", c = "logits" }
grid = { threads = ["classes", "rows"], block = [16, 16] }
[[task]]
kernel = "accuracy_count"
args = { logits = "logits", labels = "labels", count = "correct" }
grid = "rows"
[[task]]
name = "all-zero"
kernel = "accuracy_count"
args = { logits = "zeros", labels = "labels", count = "zeroes" }
grid = "rows"
[[finish]]
group = [
  { op = "all_reduce", args = { buffer = "correct", reduce = "sum" } },
  { op = "all_reduce", args = { buffer = "zeroes", reduce = "sum" } },
]
[[watch]]
name = "correct"
value = "correct"
[[watch]]
name = "zeroes"
value = "zeroes"
"#;

fn json(folder: &Folder, args: &[&str]) -> Value {
    let ended = folder.squall(&[&["run", "m.toml", "--json"], args].concat()).done();
    serde_json::from_str(&ended.out).unwrap()
}

fn elements<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(path: &Path, dtype: DType) -> Vec<T> {
    bytemuck::pod_collect_to_vec(&npy::open(path, dtype).unwrap().read().unwrap().bytes)
}

#[test]
fn a_remainder_batch_counts_every_row_once_on_every_world() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/data");
    let folder = Folder::with(EVAL);
    for name in ["digits-test-x.npy", "digits-test-y.npy"] {
        folder.write(&format!("data/{name}"), &std::fs::read(data.join(name)).unwrap());
    }
    // Any weights do, as long as some rows are recognised and some are not.
    let w: Vec<f32> =
        (0..640).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as f32 / 256.0 - 0.5).collect();
    folder.npy("w.npy", &[64, 10], &w);

    let x: Vec<f32> = elements(&data.join("digits-test-x.npy"), DType::F32);
    let labels: Vec<i32> = elements(&data.join("digits-test-y.npy"), DType::I32);
    let best = |row: &[f32]| {
        let score = |class: usize| row.iter().zip(w.chunks(10)).map(|(x, w)| x * w[class]).sum::<f32>();
        (1..10).fold(0, |best, class| if score(class) > score(best) { class } else { best })
    };
    let rows = x.chunks(64).zip(&labels);
    let expected = rows.filter(|(row, label)| best(row) as i32 == **label).count() as u64;
    let zeroes = labels.iter().filter(|label| **label == 0).count() as u64;
    assert!(labels.len() == 352 && (1..352).contains(&expected));

    for world in [1, 2, 3, 4, 7] {
        let summary = json(&folder, &["--devices", &format!("host:0..{world}")]);
        let steps = 352_u64.div_ceil(world).div_ceil(20);
        let watched = |name: &str| summary["watched"][name][0]["value"].as_u64();
        let found = (summary["steps"].as_u64(), watched("correct"), watched("zeroes"));
        assert_eq!(found, (Some(steps), Some(expected), Some(zeroes)), "{world} ranks");
    }
}

/// A manifest whose one rank adds up, over the steps, the rows that it is fed.
fn summed(pipeline: &str, feed: &str) -> String {
    format!(
        r#"manifest = 1
[pipeline]
{pipeline}
block = 4
[world]
devices = "host:0..1"
[buffer.x]
dtype = "f32"
shape = [2]
feed = {{ npy = "x.npy", {feed} }}
[buffer.total]
dtype = "f32"
shape = [2]
init = {{ fill = 0 }}
save = "total.npy"
[[task]]
kernel = "add"
args = {{ a = "total", b = "x", out = "total" }}
grid = 2
"#
    )
}

/// The steps, what ended them, and the sums.
fn fed(pipeline: &str, feed: &str, args: &[&str]) -> (u64, Option<String>, Vec<f32>) {
    let folder = Folder::with(&summed(pipeline, feed));
    folder.npy("x.npy", &[5], &[1.0, 2.0, 4.0, 8.0, 16.0]);
    let summary = json(&folder, args);
    let stopped = summary["stopped"]["by"].as_str().map(str::to_owned);
    (summary["steps"].as_u64().unwrap(), stopped, folder.read_npy("total.npy"))
}

#[test]
fn epochs_are_as_many_steps_as_the_feed_needs() {
    assert_eq!(fed("epochs = 1", "end = \"wrap\"", &[]), (3, None, vec![21.0, 11.0]));
    assert_eq!(fed("epochs = 2", "end = \"wrap\"", &[]), (5, None, vec![31.0, 31.0]));
    assert_eq!(fed("epochs = 1", "end = \"pad\"", &[]), (3, None, vec![21.0, 10.0]));
    assert_eq!(fed("epochs = 2", "end = \"pad\", pad = 32", &[]), (6, None, vec![42.0, 84.0]));
    assert_eq!(fed("epochs = 1", "end = \"stop\"", &[]), (2, None, vec![5.0, 10.0]));
    assert_eq!(fed("epochs = 2", "end = \"stop\"", &[]), (4, None, vec![10.0, 20.0]));
    // The command line's steps count, but a feed that stops ends the run.
    assert_eq!(fed("epochs = 1", "end = \"wrap\"", &["--steps", "1"]), (1, None, vec![1.0, 2.0]));
    let by = Some("the end of the feed of x".to_owned());
    assert_eq!(fed("epochs = 1", "end = \"stop\"", &["--steps", "9"]), (2, by.clone(), vec![5.0, 10.0]));
    assert_eq!(fed("steps = 9", "end = \"stop\"", &[]), (2, by, vec![5.0, 10.0]));
    assert_eq!(fed("steps = 4", "end = \"pad\"", &[]), (4, None, vec![22.0, 12.0]));
}

#[test]
fn a_shuffled_epoch_has_every_row_once() {
    let (steps, _, sum) = fed("epochs = 2\nseed = 3", "shuffle = true", &[]);
    assert_eq!((steps, sum.iter().sum::<f32>()), (5, 62.0));
    let one = |seed: u32| fed(&format!("steps = 1\nseed = {seed}"), "shuffle = true", &[]).2;
    assert!((0..8).any(|seed| one(seed) != one(100)), "the seed decides");
}

#[test]
fn check_reads_the_headers_where_the_files_are() {
    let folder = Folder::with(&summed("epochs = 1", "end = \"stop\""));
    let ended = folder.squall(&["check", "m.toml"]).done();
    assert!(
        ended.err.contains("note: how the feeds come out is not known: cannot read `x.npy`"),
        "{ended:#?}"
    );
    folder.run().failed(2, &["error[E0310]", "No such file"]);
    folder.npy("x.npy", &[5], &[0.0; 5]);
    let named = ["warning[W0104]", "the feed of `x` drops 1 of 5 rows in every epoch", "m.toml:10:16"];
    let ended = folder.squall(&["check", "m.toml"]).done();
    named.iter().for_each(|part| assert!(ended.err.contains(part), "{part}: {ended:#?}"));
    folder.squall(&["check", "m.toml", "--deny-warnings"]).failed(2, &named);
    let ended = folder.run().done();
    assert_eq!(ended.count("warning[W0104]"), 1, "{ended:#?}");
    folder.npy("x.npy", &[1], &[0.0]);
    folder.squall(&["check", "m.toml"]).failed(2, &["error[E0159]", "rank 0 has 1 row, and a batch has 2"]);
}

#[test]
fn a_slice_is_read_and_converted() {
    let init = "init = { npy = \"x.npy\", slice = [\"1:3\", \"offset(4) : offset(4) + share(4)\"], convert = true }\n\
                save = \"u-{rank}.npy\"";
    let folder = Folder::with(&scaled(init).replace("[4]", "[2, 2]"));
    let mut bytes = Vec::new();
    let values: Vec<i64> = (0..12).collect();
    npy::write(&mut bytes, DType::I64, &[3, 4], bytemuck::cast_slice(&values)).unwrap();
    folder.write("x.npy", &bytes);
    folder.run().done();
    assert_eq!(folder.read_npy("u-0.npy"), [8.0, 10.0, 16.0, 18.0]);
    assert_eq!(folder.read_npy("u-1.npy"), [12.0, 14.0, 20.0, 22.0]);
}

/// A slice of a feed: its columns; and another dtype.
#[test]
fn a_feed_is_sliced_and_converted() {
    let feed = "feed = { npy = \"x.npy\", slice = [\":\", \"rank : rank + 2\"], convert = true }\nsave = \"u-{rank}.npy\"";
    let folder = Folder::with(&scaled(feed).replace("[4]", "[2, 2]"));
    let values: Vec<u8> = (0..12).collect();
    let mut bytes = Vec::new();
    npy::write(&mut bytes, DType::U8, &[4, 3], &values).unwrap();
    folder.write("x.npy", &bytes);
    folder.squall(&["run", "m.toml", "--steps", "2"]).done();
    assert_eq!(folder.read_npy("u-0.npy"), [12.0, 14.0, 18.0, 20.0]);
    assert_eq!(folder.read_npy("u-1.npy"), [14.0, 16.0, 20.0, 22.0]);
}

/// Every rank halves its `r`, and their sum is `rs`.
const HALVED: &str = r#"manifest = 1
[pipeline]
steps = 100
stop_when = "rs < limit"
stop_every = 4
block = 1
[params]
limit = 0.1
[world]
devices = "host:0..2"
[buffer.r]
dtype = "f32"
shape = [1]
init = { fill = 1.0 }
[buffer.rs]
dtype = "f32"
shape = [1]
save = "rs-{rank}.npy"
[[task]]
kernel = "scale"
args = { data = "r", factor = 0.5 }
grid = 1
[[task]]
op = "all_reduce"
args = { send = "r", recv = "rs", reduce = "sum" }
[[finish]]
kernel = "scale"
args = { data = "rs", factor = 1024 }
grid = 1
[[watch]]
name = "rs"
value = "rs"
"#;

#[test]
fn a_run_stops_when_its_condition_holds_and_says_so() {
    let folder = Folder::with(HALVED);
    let summary = json(&folder, &[]);
    // 2 / 2^5 is below 0.1 after step 5; it is looked at after steps 4 and 8.
    assert_eq!(summary["steps"], 8);
    assert_eq!(summary["stopped"], serde_json::json!({ "step": 8, "by": "rs < limit" }));
    assert_eq!(folder.read_npy("rs-1.npy"), [8.0]); // the finish ran, and files were saved
    let ended = folder.run().done();
    assert!(ended.out.contains("8 steps on host:0, host:1"), "{ended:#?}");
    assert!(ended.out.contains("stopped after step 8 by `rs < limit`\n"), "{ended:#?}");
    let summary = json(&folder, &["--steps", "7"]);
    assert_eq!((&summary["steps"], &summary["stopped"]), (&serde_json::json!(7), &Value::Null));
}

#[test]
fn a_value_that_is_no_number_stops_nothing() {
    let stopped = |start: &str, condition: &str| {
        let text = HALVED.replace("rs < limit", condition).replace("limit = 0.1\n", "").replace("100", "9");
        let folder =
            Folder::with(&text.replace("0.5", "1e30").replace("fill = 1.0", &format!("fill = \"{start}\"")));
        json(&folder, &[])["stopped"]["step"].as_u64()
    };
    // Infinity less infinity.
    let nan = "1e38 if rank == 0 else -1e38";
    assert_eq!(stopped(nan, "not (rs >= 0)"), None);
    assert_eq!(stopped(nan, "rs != 1 or true"), None);
    assert_eq!(stopped("1e38", "rs > 1e300"), Some(4)); // an infinity is a number here
    assert_eq!(stopped("0.0", "1 / rs > 0"), None);
    assert_eq!(stopped("0.0", "rs == 0"), Some(4));
}
