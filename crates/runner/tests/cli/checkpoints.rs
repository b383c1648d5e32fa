//! `[checkpoint]` and `run --resume`: a run that was stopped anywhere comes to the result of one that never was.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Ended, Folder};

/// Training with a momentum, a batch a step, values of the setup, a sum that begins anew in every step and is read after the
/// last, and one that goes on: all the ways in which a step depends on those before.
const TRAIN: &str = r#"manifest = 1
[pipeline]
name = "train"
steps = 60
block = 64
[params]
n = 512
[world]
devices = "host:0..2"
[checkpoint]
dir = "ckpt"
every = 10
[buffer.x]
dtype = "f32"
shape = ["n"]
feed = { npy = "x.npy", shard = "rows" }
[buffer.w]
dtype = "f32"
shape = ["n"]
init = { fill = "0.001 * i + rank" }
save = "out/w-{rank}.npy"
[buffer.m]
dtype = "f32"
shape = ["n"]
[buffer.same]
dtype = "f32"
shape = ["n"]
init = { random = { low = -1, high = 1 } }
[buffer.rate]
dtype = "f32"
shape = [1]
init = { fill = 0.125 }
[buffer.g]
dtype = "f32"
shape = ["n"]
[buffer.part]
dtype = "f32"
shape = [1]
[buffer.loss]
dtype = "f32"
shape = [1]
init = { fill = 0.5 }
upload = "every"
save = { npy = "out/loss.npy", rank = 0 }
[buffer.count]
dtype = "u64"
shape = [1]
init = { fill = 1 }
download = "every"
save = { npy = "out/count.npy", gather = true }
[[setup]]
kernel = "fill"
args = { dst = "m", value = 0 }
grid = "n"
[[setup]]
op = "broadcast"
args = { buffer = "same", root = 0 }
[[task]]
kernel = "sub"
args = { a = "w", b = "x", out = "g" }
grid = "n"
[[task]]
op = "all_reduce"
args = { buffer = "g", reduce = "avg" }
[[task]]
kernel = "axpy"
args = { a = "rate", x = "g", y = "m" }
grid = "n"
[[task]]
kernel = "axpy"
args = { a = 0.01, x = "m", y = "w", negate = true }
grid = "n"
[[task]]
kernel = "axpy"
args = { a = 0.001, x = "same", y = "w" }
grid = "n"
[[task]]
kernel = "dot"
args = { a = "g", b = "g", out = "part" }
grid = "n"
[[task]]
kernel = "axpy"
args = { a = 1, x = "part", y = "loss" }
grid = 1
[[task]]
op = "all_reduce"
args = { buffer = "count", reduce = "sum" }
[[finish]]
op = "all_reduce"
args = { buffer = "loss", reduce = "sum" }
[[watch]]
name = "loss"
value = "loss"
[[watch]]
name = "count"
value = "count"
every = 7
"#;

/// A folder with the manifest and 1700 rows to train on.
fn folder(manifest: &str) -> Folder {
    let folder = Folder::with(manifest);
    let rows: Vec<f32> = (0..1700).map(|i| ((i * 37) % 101) as f32 / 64.0).collect();
    folder.npy("x.npy", &[1700], &rows);
    folder
}

fn squall(folder: &Folder, args: &[&str]) -> Ended {
    folder.squall(&[&["run", "m.toml"], args].concat())
}

/// The saved files, with their contents; without what a process leaves that is killed (`.squall-….tmp`).
fn outputs(folder: &Folder) -> Vec<(String, Vec<u8>)> {
    let names = folder.files().into_iter().filter(|name| name.starts_with("out/") && name.ends_with(".npy"));
    names.map(|name| (name.clone(), std::fs::read(folder.path(&name)).unwrap())).collect()
}

/// What a run that never stopped saves.
fn uninterrupted(manifest: &str, args: &[&str]) -> Vec<(String, Vec<u8>)> {
    let folder = folder(manifest);
    squall(&folder, args).done();
    let saved = outputs(&folder);
    assert!(saved.len() >= 3, "{saved:?}");
    saved
}

/// The names of the folders of checkpoints, sorted.
fn checkpoints(folder: &Folder) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder.path("ckpt"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_resumed_run_is_one_that_never_stopped() {
    for devices in ["host:0", "host:0..2", "host:0..3"] {
        let whole = uninterrupted(TRAIN, &["--devices", devices]);
        for stopped in ["10", "25", "30", "59", "60"] {
            let folder = folder(TRAIN);
            squall(&folder, &["--devices", devices, "--steps", stopped]).done();
            std::fs::remove_dir_all(folder.path("out")).unwrap();
            let ended = squall(&folder, &["--devices", devices, "--resume"]).done();
            let from = stopped.parse::<u64>().unwrap() / 10 * 10;
            let note = format!("note: resumed after {from} steps from `ckpt/step-0000000{from}`\n");
            assert_eq!(ended.err, note);
            assert!(outputs(&folder) == whole, "{devices}, stopped after {stopped}");
        }
    }
}

/// With `--json`, and with steps numbered as of the whole.
#[test]
fn the_summary_tells_of_checkpoints() {
    let folder = folder(TRAIN);
    let json = |args: &[&str]| -> Value {
        serde_json::from_str(&squall(&folder, &[&["--json"], args].concat()).done().out).unwrap()
    };
    let read = |summary: &Value, name: &str| -> Vec<(u64, f64)> {
        let readings = summary["watched"][name].as_array().unwrap();
        let reading = |r: &Value| (r["step"].as_u64().unwrap(), r["value"].as_f64().unwrap());
        readings.iter().map(reading).collect()
    };
    let first = json(&["--steps", "20"]);
    let written = |resumed: Value, written: u64, newest: &str| serde_json::json!({ "resumed_at": resumed, "written": written, "newest": newest });
    assert_eq!(first["checkpoint"], written(Value::Null, 2, "ckpt/step-000000020"));
    let second = json(&["--steps", "35", "--resume"]);
    assert_eq!(second["checkpoint"], written(20.into(), 1, "ckpt/step-000000030"));
    assert_eq!(second["steps"], 15);
    assert_eq!(read(&second, "count"), [(21, (1 << 21) as f64), (28, (1 << 28) as f64), (35, 2f64.powi(35))]);
    // No step is left: only the finish runs, on what the last one left.
    let third = json(&["--steps", "30", "--resume"]);
    assert_eq!((&third["steps"], &third["checkpoint"]["newest"]), (&0.into(), &Value::Null));
    let whole = {
        let other = self::folder(TRAIN);
        squall(&other, &["--steps", "30"]).done();
        outputs(&other)
    };
    assert!(outputs(&folder) == whole);
    assert_eq!(read(&third, "loss")[0].0, 30);
}

#[test]
fn the_newest_stay() {
    let folder = folder(TRAIN);
    squall(&folder, &["--steps", "35"]).done();
    assert_eq!(checkpoints(&folder), ["step-000000020", "step-000000030"]);
    let one = self::folder(&TRAIN.replace("every = 10", "every = 10\nkeep = 1"));
    squall(&one, &[]).done();
    assert_eq!(checkpoints(&one), ["step-000000060"]);
    let files: Vec<String> = one.files().into_iter().filter(|name| name.starts_with("ckpt/")).collect();
    let of = |file: &str| format!("ckpt/step-000000060/{file}");
    assert_eq!(files, ["index.json", "rank-0.safetensors", "rank-1.safetensors"].map(of));
}

/// What a checkpoint holds, read as any program reads it.
#[test]
fn a_checkpoint_holds_what_crosses_steps() {
    let folder = folder(TRAIN);
    squall(&folder, &["--steps", "10"]).done();
    let bytes = std::fs::read(folder.path("ckpt/step-000000010/rank-1.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut names: Vec<&str> = tensors.names();
    names.sort_unstable();
    assert_eq!(names, ["count", "loss", "m", "same", "w"]);
    assert_eq!(tensors.tensor("count").unwrap().data(), (1u64 << 10).to_le_bytes());
    let index: Value =
        serde_json::from_slice(&std::fs::read(folder.path("ckpt/step-000000010/index.json")).unwrap())
            .unwrap();
    assert_eq!(
        (&index["format"], &index["step"], &index["pipeline"]),
        (&1.into(), &10.into(), &"train".into())
    );
    assert_eq!(index["job"]["params"]["n"], "512");
    assert_eq!(index["ranks"][1]["buffers"][0]["name"], "w");
    let plan = folder.squall(&["plan", "m.toml"]).done().out;
    assert!(plan.contains("  checkpoint: 6156 bytes in 5 buffers: w, m, same, loss, count\n"), "{plan}");
    assert!(plan.contains(index["job"]["plan"].as_str().unwrap()), "{plan}");
}

/// Does something to the newest of two checkpoints; the one before is used, and that is said.
fn passed_over(damage: impl Fn(&Path), said: &str) {
    let whole = uninterrupted(TRAIN, &[]);
    let folder = folder(TRAIN);
    squall(&folder, &["--steps", "30"]).done();
    damage(&folder.path("ckpt/step-000000030"));
    let ended = squall(&folder, &["--resume"]).done();
    let note = "note: the checkpoint `ckpt/step-000000030` is not used: ";
    let (first, second) = ended.err.split_once('\n').unwrap();
    assert!(first.starts_with(note) && first.contains(said), "{said}: {}", ended.err);
    assert_eq!(second, "note: resumed after 20 steps from `ckpt/step-000000020`\n");
    assert!(outputs(&folder) == whole, "{said}");
    assert_eq!(checkpoints(&folder), ["step-000000050", "step-000000060"]);
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let rank = |folder: &Path| folder.join("rank-1.safetensors");
    passed_over(
        |folder| {
            let bytes = std::fs::read(rank(folder)).unwrap();
            std::fs::write(rank(folder), &bytes[..bytes.len() - 1]).unwrap();
        },
        "`rank-1.safetensors` has ",
    );
    passed_over(
        |folder| {
            let mut bytes = std::fs::read(rank(folder)).unwrap();
            let at = bytes.len() - 100;
            bytes[at] ^= 1;
            std::fs::write(rank(folder), bytes).unwrap();
        },
        "`rank-1.safetensors` has the checksum ",
    );
    passed_over(
        |folder| std::fs::remove_file(rank(folder)).unwrap(),
        "cannot read `ckpt/step-000000030/rank-1.",
    );
    passed_over(|folder| std::fs::remove_file(folder.join("index.json")).unwrap(), "it has no `index.json`");
    passed_over(
        |folder| {
            // As a process leaves it that is killed before the renaming.
            std::fs::rename(folder.join("index.json"), folder.join("index.json.tmp")).unwrap();
        },
        "it has no `index.json`",
    );
    passed_over(
        |folder| {
            let text = std::fs::read_to_string(folder.join("index.json")).unwrap();
            std::fs::write(folder.join("index.json"), text.replace("\"step\": 30", "\"step\": 31")).unwrap();
        },
        "`index.json` is damaged",
    );
    passed_over(|folder| std::fs::write(folder.join("index.json"), [0xff; 9]).unwrap(), "");
    passed_over(
        |folder| {
            std::fs::copy(
                folder.with_file_name("step-000000020").join("index.json"),
                folder.join("index.json"),
            )
            .unwrap();
        },
        "is that of step 20",
    );
}

/// Damaged ones that are newer never count for those to be kept.
#[test]
fn a_damaged_checkpoint_does_not_cost_a_whole_one() {
    let folder = folder(&TRAIN.replace("every = 10", "every = 10\nkeep = 1"));
    squall(&folder, &["--steps", "20"]).done();
    let damaged = folder.path("ckpt/step-000000050");
    std::fs::create_dir(&damaged).unwrap();
    std::fs::write(damaged.join("index.json"), "{}").unwrap();
    squall(&folder, &["--steps", "30", "--resume"]).done();
    assert_eq!(checkpoints(&folder), ["step-000000030"]);
}

#[test]
fn without_a_whole_checkpoint_the_run_begins_at_the_beginning() {
    let whole = uninterrupted(TRAIN, &[]);
    let folder = folder(TRAIN);
    let ended = squall(&folder, &["--resume", "--steps", "9"]).done();
    let nothing = "note: `ckpt` has no whole checkpoint: the run starts from the beginning\n";
    let said = format!("{nothing}note: no checkpoint is due: there are 9 steps, and `every` is 10\n");
    assert_eq!((ended.err, checkpoints(&folder).len()), (said, 0));
    // What was begun by a process that was killed, and things that are not squall's.
    folder.write("ckpt/step-000000010/rank-0.safetensors", b"half");
    folder.write("ckpt/notes.txt", b"mine");
    let ended = squall(&folder, &["--resume"]).done();
    assert_eq!(ended.count("is not used: it has no `index.json`, so that it was not written to its end"), 1);
    assert!(ended.err.ends_with(nothing), "{ended:#?}");
    assert!(outputs(&folder) == whole);
    assert_eq!(checkpoints(&folder), ["notes.txt", "step-000000050", "step-000000060"]);
}

#[test]
fn checkpoints_of_an_earlier_run_are_not_overwritten() {
    let folder = folder(TRAIN);
    squall(&folder, &["--steps", "10"]).done();
    let before = folder.files();
    squall(&folder, &[]).failed(
        2,
        &[
            "error[E0315]",
            "m.toml:11:7",
            "`ckpt/step-000000010`",
            "`--resume` goes on from it; to begin anew, remove the folder",
        ],
    );
    assert_eq!(folder.files(), before);
}

#[test]
fn another_job_is_refused() {
    let folder = folder(TRAIN);
    squall(&folder, &["--steps", "10"]).done();
    let refused = |manifest: &str, args: &[&str], said: &str| {
        folder.write("m.toml", manifest.as_bytes());
        let args = [&["--resume"], args].concat();
        squall(&folder, &args)
            .failed(2, &["error[E0316]", "`ckpt/step-000000010` is of another job: ", said]);
    };
    refused(TRAIN, &["--devices", "host:0..3"], "the world was 2 and is 3");
    refused(TRAIN, &["--set", "n=256"], "the param `n` was 512 and is 256");
    refused(&TRAIN.replace("block = 64", "block = 64\nseed = 9"), &[], "`seed` was 0 and is 9");
    refused(&TRAIN.replace("a = 0.01", "a = 0.02"), &[], "the plan was ");
    let rate =
        "what buffer `rate` is given was { init = { fill = 0.125 } } and is { init = { fill = 0.25 } }";
    refused(&TRAIN.replace("0.125", "0.25"), &[], rate);
    refused(
        &TRAIN.replace(", shard = \"rows\" }", " }"),
        &[],
        "what buffer `x` is given was { feed = { npy = \"x.npy\", shard = \"rows\"",
    );
    // What changes nothing of the job may change.
    folder.write(
        "m.toml",
        TRAIN.replace("every = 7", "every = 6").replace("every = 10", "every = 20").as_bytes(),
    );
    squall(&folder, &["--resume"]).done();
    // An index of a later version of the format.
    folder.write("ckpt/step-000000090/index.json", b"{ \"format\": 2 }");
    squall(&folder, &["--resume"]).failed(2, &["error[E0316]", "is of format 2, and this build reads 1"]);
}

/// Lists of lists of lists that share their items are short where they are written, and endless where they are told.
#[test]
fn an_index_is_no_longer_than_the_manifest() {
    let params: String = (0..40).map(|level| format!("a{level} = \"[a{0}, a{0}]\"\n", level + 1)).collect();
    let folder = folder(
        &TRAIN
            .replace("[world]", &format!("[params]\n{params}a40 = 1\n[world]"))
            .replacen("[params]\nn = 512\n", "", 1)
            .replace("shape = [\"n\"]", "shape = [512]")
            .replace("grid = \"n\"", "grid = 512"),
    );
    squall(&folder, &["--steps", "10"]).done();
    let index = std::fs::metadata(folder.path("ckpt/step-000000010/index.json")).unwrap();
    assert!(index.len() < 10_000, "{}", index.len());
}

#[test]
fn resuming_needs_checkpoints_and_a_folder() {
    let without = folder(&TRAIN.replace("[checkpoint]\ndir = \"ckpt\"\nevery = 10\n", ""));
    squall(&without, &["--resume"]).failed(2, &["error[E0165]", "the manifest has no `[checkpoint]`"]);
    let taken = folder(TRAIN);
    taken.write("ckpt", b"a file");
    for args in [&[][..], &["--resume"]] {
        squall(&taken, args).failed(
            2,
            &["error[E0318]", "m.toml:11:7", "the checkpoints' folder cannot be used: cannot ", "`ckpt`"],
        );
    }
    assert_eq!(taken.files(), ["ckpt", "m.toml", "x.npy"]);
}

/// The run ends, nothing is saved, and the checkpoints before are as they were.
#[test]
fn a_full_disk_ends_the_run() {
    let whole = uninterrupted(TRAIN, &[]);
    let folder = folder(TRAIN);
    squall(&folder, &["--steps", "20"]).done();
    std::fs::remove_dir_all(folder.path("out")).unwrap();
    // No file may grow beyond 8 blocks, which the saved files do not need.
    let script = format!("ulimit -f 8; exec {} run m.toml --resume", env!("CARGO_BIN_EXE_squall"));
    let limited = folder.within(Command::new("sh"), &["-c", &script]).output().unwrap();
    Ended::of(limited)
        .failed(1, &["error[E0317]: cannot write `ckpt/step-000000030/rank-0.safetensors`: File too large"]);
    assert_eq!(outputs(&folder), []);
    let ended = squall(&folder, &["--resume"]).done();
    assert!(ended.err.ends_with("note: resumed after 20 steps from `ckpt/step-000000020`\n"), "{ended:#?}");
    assert!(outputs(&folder) == whole);
}

/// The index of the newest checkpoint, when there is one.
fn newest_index(folder: &Folder) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder.path("ckpt")).ok()?;
    let indices = entries.filter_map(|entry| Some(entry.ok()?.path().join("index.json")));
    indices.filter(|path| path.exists()).max()
}

/// Killed at moments that differ from run to run, and killed again when resumed, training comes to the same weights.
/// `SQUALL_TEST_KILLS` says how many runs.
#[test]
fn a_killed_run_is_resumed_to_the_same_weights() {
    let manifest = TRAIN.replace("steps = 60", "steps = 600").replace("every = 10", "every = 3");
    let whole = uninterrupted(&manifest, &[]);
    let runs = std::env::var("SQUALL_TEST_KILLS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(10);
    let mut seed = u64::from(std::process::id());
    let mut random = |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    let mut killed = 0;
    for run in 0..runs {
        let folder = folder(&manifest);
        for args in [&["run", "m.toml"][..], &["run", "m.toml", "--resume"]] {
            let mut child = folder.command(args).spawn().unwrap();
            while newest_index(&folder).is_none() && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(random(200_000)));
            child.kill().unwrap();
            let ended = Ended::of(child.wait_with_output().unwrap());
            if ended.status == 0 {
                break;
            }
            assert_eq!(ended.status, -1, "{ended:#?}");
            killed += 1;
            assert!(newest_index(&folder).is_some(), "run {run}");
        }
        let ended = squall(&folder, &["--resume"]).done();
        assert!(ended.err.contains("note: resumed after "), "run {run}: {ended:#?}");
        assert!(outputs(&folder) == whole, "run {run}: {ended:#?}");
    }
    assert!(killed > 0, "every run came to its end before it was killed");
}
