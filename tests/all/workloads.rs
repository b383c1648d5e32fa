//! Every example on several numbers of ranks, against what numpy gives: `tests/reference/workloads.py` says how.

use std::fs;
use std::path::Path;

use squall_core::Element;
use squall_runner::manifest::{self, Manifest};
use squall_runner::run::{self, Request, Watcher};
use squall_tests::{Copied, hosts, read_npy, registry, run_file, run_manifest, with_gemm};

const WORLDS: [u32; 5] = [1, 2, 3, 4, 7];

/// What numpy gives.
fn expected<T: Element>(name: &str) -> (Vec<T>, Vec<u64>) {
    read_npy(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("reference/expected/{name}.npy")))
}

/// An absolute and a relative part: sums are taken in another order.
fn near(name: &str, got: &[f32], wanted: &[f32], tolerance: f32) {
    assert_eq!(got.len(), wanted.len(), "{name}");
    for (index, (a, b)) in got.iter().zip(wanted).enumerate() {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{name}: element {index} is {a}, by numpy {b}");
    }
}

fn parse(text: &str) -> Manifest {
    manifest::parse(text).unwrap_or_else(|problems| panic!("{problems:#?}")).0
}

fn run(copied: &Copied, manifest: &str, world: u32, steps: Option<u64>) {
    run_file(&copied.path(manifest), Some(&hosts(world)), steps)
        .unwrap_or_else(|error| panic!("{manifest} on {world} ranks: {error}"));
}

#[test]
fn digits_are_trained_data_parallel() {
    let copied = Copied::new("digits");
    for world in WORLDS {
        let name = format!("digits-{world}");
        run(&copied, "train.toml", world, Some(60));
        let got = [copied.read::<f32>("out/w.npy").0, copied.read("out/b.npy").0].concat();
        near(&name, &got, &expected(&name).0, 1e-4);
        // The same with products by the plugin `blas`.
        run_file(&with_gemm(&copied), Some(&hosts(world)), Some(60)).unwrap();
        let got = [copied.read::<f32>("out/w.npy").0, copied.read("out/b.npy").0].concat();
        near(&name, &got, &expected(&name).0, 1e-4);
        // The same with every parameter on one rank alone.
        run(&copied, "sharded.toml", world, Some(60));
        near(&name, &copied.read::<f32>("out/parameters.npy").0, &expected(&name).0, 1e-4);
    }
}

#[test]
fn digits_are_trained_by_epochs() {
    let copied = Copied::new("digits");
    for world in WORLDS {
        let name = format!("digits-epochs-{world}");
        run(&copied, "epochs.toml", world, None);
        let got = [copied.read::<f32>("out/epochs-w.npy").0, copied.read("out/epochs-b.npy").0].concat();
        near(&name, &got, &expected(&name).0, 1e-4);
    }
}

#[test]
fn digits_are_trained_on_after_a_stop() {
    let copied = Copied::new("digits");
    for world in WORLDS {
        run(&copied, "train.toml", world, None);
        run(&copied, "resume.toml", world, Some(130));
        let manifest = parse(&fs::read_to_string(copied.path("resume.toml")).unwrap());
        let (folder, devices) = (copied.path(""), hosts(world));
        let request = Request {
            manifest: &manifest,
            folder: &folder,
            file: None,
            devices: Some(&devices),
            steps: None,
            process: None,
        };
        let summary = run::resume(registry(), &request, &mut Noting).unwrap();
        assert_eq!(summary.steps, 350, "from the checkpoint after 100 steps on");
        for (name, whole) in [("out/resume-w.npy", "out/w.npy"), ("out/resume-b.npy", "out/b.npy")] {
            assert!(copied.read::<f32>(name) == copied.read::<f32>(whole), "{name} on {world} ranks");
        }
        fs::remove_dir_all(copied.path("out")).unwrap();
    }
}

/// Is told where the run goes on.
struct Noting;

impl Watcher for Noting {
    fn note(&mut self, note: &str) {
        assert!(note.contains("resumed after 100 steps"), "{note}");
    }
    fn begin(&mut self, _: u64, _: &squall_core::Interrupt) {}
    fn readings(&mut self, _: &run::Readings) {}
}

#[test]
fn a_network_is_spread_over_tensors() {
    let copied = Copied::new("tensor-parallel");
    let (wanted, shape) = expected::<f32>("mlp");
    for world in WORLDS {
        run(&copied, "mlp.toml", world, None);
        let (got, found) = copied.read::<f32>("out/y.npy");
        assert_eq!(found, shape);
        near(&format!("mlp on {world} ranks"), &got, &wanted, 1e-5);
    }
}

#[test]
fn layers_are_trained_in_a_pipeline() {
    for world in WORLDS {
        let copied = Copied::new("pipeline");
        run(&copied, "train.toml", world, None);
        let layers: Vec<Vec<f32>> =
            (0..world).map(|rank| copied.read(&format!("out/w-{rank}.npy")).0).collect();
        let name = format!("pipeline-{world}");
        near(&name, &layers.concat(), &expected(&name).0, 1e-4);
    }
}

#[test]
fn heat_spreads_in_rows_and_in_blocks() {
    let copied = Copied::new("heat");
    for world in WORLDS {
        run(&copied, "heat.toml", world, Some(200));
        near("heat", &copied.read::<f32>("out/heat.npy").0, &expected("heat").0, 1e-6);
    }
    let (plate, shape) = expected::<f32>("heat-grid");
    let n = shape[0] as usize;
    for (world, px) in [(1, 1), (2, 2), (3, 3), (4, 2), (6, 3), (7, 7), (7, 1)] {
        let text = fs::read_to_string(copied.path("grid.toml")).unwrap();
        let text = text.replace("px = 2 ", &format!("px = {px} "));
        let manifest = parse(&text);
        let folder = copied.path("");
        run_manifest(&manifest, &folder, Some(&hosts(world)), None).unwrap();
        // Rank r has block (r / px, r % px).
        let (mut top, mut rank) = (0, 0);
        for _ in 0..world / px {
            let (mut left, mut height) = (0, 0);
            for _ in 0..px {
                let (block, size) = copied.read::<f32>(&format!("out/block-{rank}.npy"));
                let (h, w) = (size[0] as usize, size[1] as usize);
                for (y, row) in block.chunks(w).enumerate() {
                    let from = (top + y) * n + left;
                    near(&format!("block {rank} of {world}, {px} wide"), row, &plate[from..from + w], 1e-6);
                }
                (left, height, rank) = (left + w, h, rank + 1);
            }
            assert_eq!(left, n);
            top += height;
        }
        assert_eq!(top, n);
    }
}

#[test]
fn tokens_come_back_from_their_experts() {
    let copied = Copied::new("experts");
    for world in WORLDS {
        let name = format!("experts-{world}");
        run(&copied, "experts.toml", world, None);
        assert_eq!(copied.read::<f32>("out/results.npy"), expected(&name), "{name}");
    }
}

#[test]
fn a_system_is_solved_until_the_residual_is_small() {
    let copied = Copied::new("conjugate-gradient");
    let (wanted, _) = expected::<f64>("cg");
    for world in WORLDS {
        let summary = run_file(&copied.path("cg.toml"), Some(&hosts(world)), None).unwrap();
        assert!(summary.steps < 100, "{} steps", summary.steps);
        let (x, _) = copied.read::<f64>("out/x.npy");
        let worst = x.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(x.len() == wanted.len() && worst < 1e-8, "{world} ranks: {worst}");
    }
}

#[test]
fn a_matrix_is_transposed() {
    let copied = Copied::new("all-to-all");
    for world in WORLDS {
        run(&copied, "all-to-all.toml", world, None);
        assert_eq!(
            copied.read::<i32>("out/transposed.npy"),
            expected(&format!("transpose-{world}")),
            "{world} ranks"
        );
    }
}

#[test]
fn no_example_is_longer_than_a_page_or_two() {
    for folder in fs::read_dir(squall_tests::examples()).unwrap().map(|entry| entry.unwrap().path()) {
        for file in fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "toml") {
                let lines = fs::read_to_string(&file).unwrap().lines().count();
                assert!(lines <= 120, "{} has {lines} lines", file.display());
            }
        }
    }
}
