//! Every example on GPUs gives what it gives on the host.

use std::fs;
use std::path::Path;

use squall_core::DType;
use squall_runner::compare::{self, Request, Tolerances};
use squall_runner::files::npy;
use squall_runner::manifest::{Manifest, parse};
use squall_runner::run::{self, Summary};
use squall_tests::{Copied, Silent, hosts, registry, run_manifest};

use crate::on::On;

/// The examples, each with its manifests in the order in which they run, and how many steps are enough where every task is compared.
const EXAMPLES: &[(&str, &[(&str, u64)])] = &[
    ("all-to-all", &[("all-to-all.toml", 1)]),
    ("average-gradients", &[("average-gradients.toml", 3)]),
    ("conjugate-gradient", &[("cg.toml", 20)]),
    (
        "digits",
        &[
            ("train.toml", 450),
            ("eval.toml", 3),
            ("sharded.toml", 50),
            ("epochs.toml", 50),
            ("resume.toml", 50),
        ],
    ),
    ("experts", &[("experts.toml", 1)]),
    ("heat", &[("heat.toml", 100), ("grid.toml", 50)]),
    ("pipeline", &[("pipeline.toml", 20), ("train.toml", 10)]),
    ("tensor-parallel", &[("mlp.toml", 1)]),
];

/// One rank, and one on every GPU.
fn worlds(on: On) -> impl Iterator<Item = u32> {
    [1, on.ranks].into_iter().take(on.ranks.min(2) as usize)
}

/// A manifest, with its step captured if the trial's are, and with a mesh for so many ranks.
fn manifest(on: On, path: &Path, world: u32) -> Manifest {
    let text = fs::read_to_string(path).unwrap().replace("cuda_graph = true\n", "");
    let text = text.replace("px = 2 ", &format!("px = {world} "));
    let captured = text.replacen("[pipeline]\n", "[pipeline]\ncuda_graph = true\n", 1);
    assert_ne!(text, captured, "{}", path.display());
    let (manifest, warnings) = parse(if on.capture { &captured } else { &text }).unwrap();
    assert!(warnings.is_empty(), "{warnings:#?}");
    manifest
}

/// Runs a manifest of a copied example, on the host or where the trial runs.
pub(crate) fn ran(on: On, copied: &Copied, name: &str, world: u32) -> Summary {
    let manifest = manifest(on, &copied.path(name), world);
    let devices = if on.is_gpu() { on.devices(world) } else { hosts(world) };
    run_manifest(&manifest, &copied.path(""), Some(&devices), None)
        .unwrap_or_else(|error| panic!("{name} on {devices:?}: {error}"))
}

/// Every task, given what the host's tasks left before it.
pub(crate) fn task_by_task(on: On) {
    for &(example, manifests) in EXAMPLES {
        for world in worlds(on) {
            let copied = Copied::new(example);
            for &(name, steps) in manifests {
                let (manifest, folder, devices) =
                    (manifest(on, &copied.path(name), world), copied.path(""), on.devices(world));
                let run = run::Request {
                    manifest: &manifest,
                    folder: &folder,
                    file: None,
                    devices: Some(&devices),
                    steps: Some(steps),
                    process: None,
                };
                let request = Request { run, with: on.kind, tolerances: Tolerances::default(), each: true };
                let compared = compare::compare(registry(), &request, &mut Silent)
                    .unwrap_or_else(|error| panic!("{name}, {world} ranks: {error}"));
                assert!(!compared.agreement.is_empty(), "{name}, {world} ranks");
                // What the next manifest of the folder reads.
                ran(On::HOST, &copied, name, world);
            }
        }
    }
}

/// What is saved at the end of the whole run.
pub(crate) fn saved(on: On) {
    for &(example, manifests) in EXAMPLES {
        for world in worlds(on) {
            let (host, other) = (Copied::new(example), Copied::new(example));
            for &(name, _) in manifests {
                ran(On::HOST, &host, name, world);
                ran(on, &other, name, world);
            }
            let mut arrays = 0;
            for file in fs::read_dir(host.path("out")).unwrap().map(|entry| entry.unwrap().file_name()) {
                if Path::new(&file).extension().is_some_and(|extension| extension == "npy") {
                    let file = format!("out/{}", file.to_str().unwrap());
                    same(&host.path(&file), &other.path(&file)).unwrap_or_else(|difference| {
                        panic!("{example}, {world} ranks: {file}: {difference}")
                    });
                    arrays += 1;
                }
            }
            assert!(arrays > 0, "{example} saves nothing");
        }
    }
}

/// Whether two array files hold the same; floats may have drifted apart a little.
fn same(host: &Path, other: &Path) -> Result<(), String> {
    let read = |path: &Path| {
        let mut file = npy::open(path, DType::F32).map_err(|error| error.to_string())?;
        let array = file.read().map_err(|error| error.to_string())?;
        Ok::<_, String>((file.dtype(), array))
    };
    let ((dtype, host), (other_dtype, other)) = (read(host)?, read(other)?);
    if dtype != other_dtype || host.shape != other.shape {
        return Err(format!("{dtype} {:?} and {other_dtype} {:?}", host.shape, other.shape));
    }
    let floats = |bytes: &[u8]| -> Vec<f64> {
        match dtype {
            DType::F64 => bytemuck::pod_collect_to_vec(bytes),
            _ => bytemuck::pod_collect_to_vec::<u8, f32>(bytes).into_iter().map(f64::from).collect(),
        }
    };
    if !matches!(dtype, DType::F32 | DType::F64) {
        return if host.bytes == other.bytes { Ok(()) } else { Err("other elements".to_string()) };
    }
    let mut pairs = floats(&host.bytes).into_iter().zip(floats(&other.bytes)).enumerate();
    match pairs.find(|(_, (a, b))| (a - b).abs() > 1e-3 * a.abs() + 1e-4 || a.is_nan() != b.is_nan()) {
        Some((element, (a, b))) => Err(format!("element {element} is {a} on the host and {b} here")),
        None => Ok(()),
    }
}

/// The losses on the way, and what is recognised in the end.
pub(crate) fn digits(on: On) {
    for world in worlds(on) {
        let learn = |on| {
            let copied = Copied::new("digits");
            let trained = ran(on, &copied, "train.toml", world);
            let tested = ran(on, &copied, "eval.toml", world);
            let read = |summary: &Summary, name: &str| -> Vec<f64> {
                summary.watched.of(name).iter().map(|reading| reading.value.unwrap().as_f64()).collect()
            };
            (read(&trained, "loss"), read(&tested, "accuracy"))
        };
        let ((host, host_accuracy), (losses, accuracy)) = (learn(On::HOST), learn(on));
        assert!(losses.len() == host.len() && losses.len() > 1, "{losses:?}");
        let mut largest = 0.0_f64;
        for (host_loss, loss) in host.iter().zip(&losses) {
            let difference = (host_loss - loss).abs() / host_loss.abs();
            // Not a number is not little either.
            assert!(difference <= 1e-4, "{world} ranks: {losses:?}, on the host {host:?}");
            largest = largest.max(difference);
        }
        let captured = if on.capture { ", captured" } else { "" };
        println!(
            "recorded: {} losses of digits on {world} GPUs{captured} are within {largest:.1e} of the host's, relatively",
            losses.len()
        );
        // A row or two may lie between two digits.
        assert!((host_accuracy[0] - accuracy[0]).abs() < 3.0 / 352.0, "{host_accuracy:?} and {accuracy:?}");
    }
}
