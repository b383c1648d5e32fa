//! Squall and the plugins, built once for all of these tests.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::{env, fs};

use squall_tests::read_npy;
use tempfile::TempDir;

/// Where all of it is built: apart from the tests' own, so that neither waits for the other.
const FOLDER: &str = env!("CARGO_TARGET_TMPDIR");

/// The workspace.
pub(crate) fn checkout() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A plugin of the workspace in Rust, as it is debugged.
pub(crate) fn rust_plugin(name: &str) -> PathBuf {
    debug().join(format!("lib{}.so", name.replace('-', "_")))
}

/// A plugin of the workspace in Rust, as it is released, optimised over all crates at once.
pub(crate) fn released_plugin(name: &str) -> PathBuf {
    static RELEASE: LazyLock<PathBuf> = LazyLock::new(|| {
        let lto = ["--release", "--config", "profile.release.lto='fat'"];
        cargo(&[&lto[..], &["-p", "misbehaving"]].concat());
        target().join("release")
    });
    RELEASE.join(format!("lib{}.so", name.replace('-', "_")))
}

/// Cargo's folder for all that is built here.
pub(crate) fn target() -> PathBuf {
    Path::new(FOLDER).join("plugins")
}

/// The command.
pub(crate) fn squall() -> PathBuf {
    debug().join("squall")
}

fn debug() -> &'static Path {
    static DEBUG: LazyLock<PathBuf> = LazyLock::new(|| {
        let plugins = ["blas", "clip-norm", "misbehaving", "top-k-reduce"];
        cargo(
            &["squall-runner"].into_iter().chain(plugins).flat_map(|name| ["-p", name]).collect::<Vec<_>>(),
        );
        target().join("debug")
    });
    &DEBUG
}

fn cargo(args: &[&str]) {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet", "--locked", "--target-dir"]).arg(target());
    let output = command.args(args).current_dir(checkout()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Compiles a C file of the workspace to `target`, and returns that.
pub(crate) fn cc<A: AsRef<OsStr>>(source: &str, args: &[A], target: PathBuf) -> PathBuf {
    let mut command = Command::new("cc");
    command.args([
        "-std=c11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-fPIC",
        "-fvisibility=hidden",
    ]);
    command.arg("-I").arg(checkout().join("crates/plugin/include")).arg("-o").arg(&target);
    let output = command.arg(checkout().join(source)).args(args).output();
    let output = output.expect("`cc` does not start: install a C compiler, such as gcc");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    target
}

/// The collective in C.
pub(crate) fn ring_plugin() -> &'static Path {
    static RING: LazyLock<PathBuf> = LazyLock::new(|| {
        // As its author builds it, elsewhere: by its Makefile, on the header alone.
        let folder = Path::new(FOLDER).join(format!("ring-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for file in ["Makefile", "ring.c"] {
            fs::copy(checkout().join("plugins/ring-allreduce-c").join(file), folder.join(file)).unwrap();
        }
        let header = format!("HEADER={}", checkout().join("crates/plugin/include").display());
        let mut make = Command::new("make");
        let output = make.args(["--silent", &header]).current_dir(&folder).output();
        let output =
            output.unwrap_or_else(|error| panic!("make: {error}; on Debian it is in the package make"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder.join("libring.so")
    });
    &RING
}

/// A folder in which squall is called.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Calls squall.
    pub(crate) fn squall<A: AsRef<OsStr>>(&self, args: &[A]) -> Said {
        let output = Command::new(squall()).args(args).current_dir(&self.0).output().unwrap();
        Said::new(&output, self.0.path())
    }

    /// Runs a manifest, which is to succeed, and returns what each rank saved as `out/x-{rank}.npy`.
    pub(crate) fn run<T: squall_core::Element>(
        &self,
        manifest: &str,
        args: &[&str],
        world: u32,
    ) -> Vec<Vec<T>> {
        self.write("m.toml", manifest);
        let devices = format!("--devices=host:0..{world}");
        let said = self.squall(&[&["run", "m.toml", &devices], args].concat());
        assert_eq!(said.status, Some(0), "{}\n{manifest}", said.error);
        (0..world).map(|rank| read_npy(&self.path(&format!("out/x-{rank}.npy"))).0).collect()
    }
}

/// What squall said.
pub(crate) struct Said {
    /// Its exit status; `None` if a signal ended it.
    pub(crate) status: Option<i32>,
    /// Its standard output.
    pub(crate) output: String,
    /// Its standard error, with folders as `[HERE]` and `[BUILT]`.
    pub(crate) error: String,
}

impl Said {
    fn new(output: &Output, here: &Path) -> Said {
        let text = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let built = target().join("debug");
            text.replace(here.to_str().unwrap(), "[HERE]").replace(built.to_str().unwrap(), "[BUILT]")
        };
        Said { status: output.status.code(), output: text(&output.stdout), error: text(&output.stderr) }
    }
}
