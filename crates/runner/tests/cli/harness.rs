//! A folder with a manifest in it, and what `squall` says of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use squall_core::DType;
use squall_runner::files::npy;
use tempfile::TempDir;

/// The variables that name the GPUs' libraries, set to files that are not there.
pub(crate) const NOWHERE: [(&str, &str); 3] = [
    ("SQUALL_CUDA_DRIVER", "/nowhere/libcuda.so.1"),
    ("SQUALL_NVRTC", "/nowhere/libnvrtc.so.13"),
    ("SQUALL_NCCL", "/nowhere/libnccl.so.2"),
];

/// A temporary folder, the working folder of every command that is run from it.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    /// A folder with the manifest `m.toml`.
    pub(crate) fn with(manifest: &str) -> Folder {
        let folder = Folder::new();
        folder.write("m.toml", manifest.as_bytes());
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Writes an array of `f32`.
    pub(crate) fn npy(&self, name: &str, shape: &[u64], values: &[f32]) {
        let mut bytes = Vec::new();
        npy::write(&mut bytes, DType::F32, shape, bytemuck::cast_slice(values)).unwrap();
        self.write(name, &bytes);
    }

    /// The elements of an array of `f32`.
    pub(crate) fn read_npy(&self, name: &str) -> Vec<f32> {
        let mut file = npy::open(&self.path(name), DType::F32).unwrap();
        bytemuck::pod_collect_to_vec(&file.read().unwrap().bytes)
    }

    /// The names of all files below, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        fn walk(root: &Path, folder: &Path, names: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(root, &path, names);
                } else {
                    names.push(path.strip_prefix(root).unwrap().display().to_string());
                }
            }
        }
        let mut names = Vec::new();
        walk(self.0.path(), self.0.path(), &mut names);
        names.sort();
        names
    }

    /// A command of the binary, nothing of which goes to the terminal of the tests. GPUs are out of its sight, on every machine.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.within(Command::new(env!("CARGO_BIN_EXE_squall")), args)
    }

    /// The same of another program, such as a shell.
    pub(crate) fn within(&self, mut command: Command, args: &[&str]) -> Command {
        command.args(args).current_dir(self.0.path()).env_remove("NO_COLOR").envs(NOWHERE);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn squall(&self, args: &[&str]) -> Ended {
        Ended::of(self.command(args).output().unwrap())
    }

    /// Runs `m.toml`.
    pub(crate) fn run(&self) -> Ended {
        self.squall(&["run", "m.toml"])
    }
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn of(output: Output) -> Ended {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        // A command that a signal ended has no status.
        let status = output.status.code().unwrap_or(-1);
        Ended { status, out: text(output.stdout), err: text(output.stderr) }
    }

    /// It did what it was asked.
    #[track_caller]
    pub(crate) fn done(self) -> Ended {
        assert_eq!(self.status, 0, "{self:#?}");
        self
    }

    /// It failed with this status and named each of these on standard error, and standard output stayed empty.
    #[track_caller]
    pub(crate) fn failed(self, status: i32, named: &[&str]) -> Ended {
        assert_eq!((self.status, self.out.as_str()), (status, ""), "{self:#?}");
        for part in named {
            assert!(self.err.contains(part), "{part:?} is not named: {self:#?}");
        }
        self
    }

    /// How often this stands on standard error.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.err.matches(part).count()
    }
}

/// A manifest of one buffer `u` of four `f32` on two ranks, scaled once a step; `buffer` are further lines of its
/// table, which is the last in the file.
pub(crate) fn scaled(buffer: &str) -> String {
    format!(
        r#"manifest = 1
[world]
devices = "host:0..2"
[[task]]
kernel = "scale"
args = {{ data = "u", factor = 2 }}
grid = {{ threads = 4, block = 4 }}
[buffer.u]
dtype = "f32"
shape = [4]
{buffer}
"#
    )
}
