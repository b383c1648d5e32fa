//! What the workspace's tests share: jobs run from a manifest, jobs built in Rust, and [`pipelines`] with their results.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests panic as tests do")]

pub mod pipelines;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::{env, fs};

use squall_core::{
    Element, GraphBuilder, Interrupt, Options, PlanGroup, Registry, TaskGraph, Verified, World, verify,
};
use squall_host_backend as _;
use squall_kernels_std as _;
use squall_runner::files::{self, npy};
use squall_runner::manifest::devices::Devices;
use squall_runner::manifest::{self, Manifest};
use squall_runner::plugin::{self, Wanted};
use squall_runner::run::{self, Readings, Request, RunError, Summary, Watcher};
use tempfile::TempDir;

/// The sizes of world that pipelines are tested on: none to talk to, a pair, odd, even, and more than there are cores.
pub const WORLDS: [u32; 5] = [1, 2, 3, 4, 7];

/// All that is linked into these tests; with the plugins of [`PLUGINS`] where [`load_plugins`] was called first.
pub fn registry() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
        let linked = Registry::linked().unwrap();
        if !LOAD.load(Ordering::Relaxed) {
            return linked;
        }
        let wanted: Vec<Wanted> = PLUGINS.iter().map(|name| Wanted::option(&plugin(name))).collect();
        plugin::load(&linked, &wanted).unwrap_or_else(|problem| panic!("{problem:?}")).registry
    });
    &REGISTRY
}

static LOAD: AtomicBool = AtomicBool::new(false);

/// The plugins that [`registry`] may have.
pub const PLUGINS: [&str; 3] = ["clip_norm", "squall_blas", "top_k_reduce"];

/// Has [`registry`] load plugins, which it is asked for afterwards.
pub fn load_plugins() {
    LOAD.store(true, Ordering::Relaxed);
}

/// A plugin of the workspace, which was built with these tests; or in the folder that `SQUALL_TEST_PLUGINS` names.
pub fn plugin(name: &str) -> PathBuf {
    let built = || env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let folder = env::var_os("SQUALL_TEST_PLUGINS").map_or_else(built, PathBuf::from);
    folder.join(format!("{}{name}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX))
}

/// Writes the manifest of the plugin `blas` beside those of the copied example `digits`, whose data it reads; returns its path.
pub fn with_gemm(digits: &Copied) -> PathBuf {
    let (path, text) = (digits.path("gemm.toml"), include_str!("../plugins/blas/digits.toml"));
    let text = text.replace("../../examples/digits/", "");
    let loaded = plugin("squall_blas").canonicalize().unwrap();
    fs::write(&path, text.replace("../../target/release/libsquall_blas.so", loaded.to_str().unwrap()))
        .unwrap();
    path
}

/// A run that came to its end, with the folder it ran in.
#[derive(Debug)]
pub struct Ran {
    /// How it went.
    pub summary: Summary,
    folder: TempDir,
}

impl Ran {
    /// What a rank saved of a buffer as `{buffer}-{rank}.npy`.
    pub fn saved<T: Element>(&self, buffer: &str, rank: u32) -> Vec<T> {
        read_npy(&self.folder.path().join(format!("{buffer}-{rank}.npy"))).0
    }
}

/// Runs a manifest, given as a text, on so many host devices, in a folder of its own. The text begins with its buffers:
/// the version and a default block are put before it.
pub fn run_text(world: u32, text: &str) -> Ran {
    run_text_on(&hosts(world), text).unwrap_or_else(|error| panic!("world {world}: {error}\n{text}"))
}

/// As [`run_text`], on any devices.
pub fn run_text_on(devices: &Devices, text: &str) -> Result<Ran, RunError> {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("manifest = 1\n[pipeline]\nblock = 64\n{text}");
    let summary = run_bytes(text.as_bytes(), folder.path(), Some(devices), None)?;
    Ok(Ran { summary, folder })
}

/// Runs a manifest file; `devices` and `steps` in place of its own.
pub fn run_file(path: &Path, devices: Option<&Devices>, steps: Option<u64>) -> Result<Summary, RunError> {
    run_bytes(&files::read_manifest(path).unwrap(), path.parent().unwrap(), devices, steps)
}

fn run_bytes(
    bytes: &[u8],
    folder: &Path,
    devices: Option<&Devices>,
    steps: Option<u64>,
) -> Result<Summary, RunError> {
    let (manifest, warnings) = manifest::parse_bytes(bytes)?;
    assert!(warnings.is_empty(), "{warnings:#?}");
    run_manifest(&manifest, folder, devices, steps)
}

/// Runs a manifest whose files are in `folder`; `devices` and `steps` in place of its own.
pub fn run_manifest(
    manifest: &Manifest,
    folder: &Path,
    devices: Option<&Devices>,
    steps: Option<u64>,
) -> Result<Summary, RunError> {
    run::run(
        registry(),
        &Request { manifest, folder, file: None, devices, steps, process: None },
        &mut Silent,
    )
}

/// So many host devices.
pub fn hosts(world: u32) -> Devices {
    Devices::parse(&format!("host:0..{world}")).unwrap()
}

/// Shows nothing.
#[derive(Debug)]
pub struct Silent;

impl Watcher for Silent {
    fn note(&mut self, note: &str) {
        panic!("a test says which devices it wants: {note}");
    }
    fn begin(&mut self, _: u64, _: &Interrupt) {}
    fn readings(&mut self, _: &Readings) {}
}

/// An array file's elements and shape.
pub fn read_npy<T: Element>(path: &Path) -> (Vec<T>, Vec<u64>) {
    let mut file = npy::open(path, T::DTYPE).unwrap();
    assert_eq!(file.dtype(), T::DTYPE, "{}", path.display());
    let array = file.read().unwrap();
    (bytemuck::allocation::pod_collect_to_vec(&array.bytes), array.shape)
}

/// The examples: of the checkout, or in the folder that `SQUALL_TEST_EXAMPLES` names where there is none.
pub fn examples() -> PathBuf {
    let checkout = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    env::var_os("SQUALL_TEST_EXAMPLES").map_or_else(checkout, PathBuf::from)
}

/// A copy of an example's folder, so that what it writes does not land among the examples.
#[derive(Debug)]
pub struct Copied(TempDir);

impl Copied {
    /// Copies the example of that name, without what it wrote before.
    pub fn new(example: &str) -> Copied {
        let folder = tempfile::tempdir().unwrap();
        copy(&examples().join(example), folder.path());
        Copied(folder)
    }

    /// A file's path in the copy.
    pub fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// An array file's elements and shape.
    pub fn read<T: Element>(&self, file: &str) -> (Vec<T>, Vec<u64>) {
        read_npy(&self.path(file))
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if !source.is_dir() {
            fs::copy(&source, &target).unwrap();
        } else if entry.file_name() != "out" {
            fs::create_dir(&target).unwrap();
            copy(&source, &target);
        }
    }
}

/// One graph for every rank of a world without other communicators, for host devices.
pub fn graphs(world: u32, build: impl Fn(u32, &mut GraphBuilder<'_>)) -> Vec<TaskGraph> {
    graphs_for("host", world, build)
}

/// As [`graphs`], for devices of a kind.
pub fn graphs_for(
    kind: &'static str,
    world: u32,
    build: impl Fn(u32, &mut GraphBuilder<'_>),
) -> Vec<TaskGraph> {
    let shared = Arc::new(World::new(world.into()).unwrap());
    let graph = |rank| {
        let mut builder = TaskGraph::builder(registry(), &shared, rank, kind);
        build(rank, &mut builder);
        builder.build().unwrap_or_else(|problems| panic!("rank {rank}: {problems}"))
    };
    (0..world).map(graph).collect()
}

/// Verifies graphs and binds them to the first devices of their kind.
pub fn bind(graphs: Vec<TaskGraph>, options: Options) -> PlanGroup {
    bind_verified(verify(graphs).unwrap_or_else(|problems| panic!("{problems}")), options)
}

/// As [`bind`], for graphs that were verified, or are to pass for it.
pub fn bind_verified(verified: Verified, options: Options) -> PlanGroup {
    let open = |(graph, index): (&TaskGraph, u32)| registry().open(graph.device(), index).unwrap();
    let devices: Vec<_> = verified.graphs().iter().zip(0..).map(open).collect();
    PlanGroup::new(registry(), verified, &devices, options).unwrap_or_else(|error| panic!("{error}"))
}
