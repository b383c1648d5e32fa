//! Plugins loaded, run on four ranks and dropped, again and again in one process, which then ends as it should.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use squall_core::Registry;
use squall_runner::manifest;
use squall_runner::plugin::{self, Wanted};
use squall_runner::run::{self, Request};
use squall_tests::{Silent, hosts};

use crate::built::rust_plugin;

/// Set in the process that makes the rounds, to the plugins.
const PLUGINS: &str = "SQUALL_TEST_ROUNDS";

/// An op of kernels and an all_gather, and one whose threads end with something of the plugin's to take down.
const MANIFEST: &str = r#"manifest = 1
[pipeline]
steps = 3
[buffer.grad]
dtype = "f32"
shape = [10000]
init = { fill = "rank + i % 7" }
download = "last"
[[task]]
op = "top_k_reduce"
args = { grad = "grad", k = 100 }
[[task]]
op = "leaves_a_destructor"
"#;

#[test]
fn nothing_is_left_of_fifty_rounds() {
    if let Some(plugins) = env::var_os(PLUGINS) {
        return rounds(&env::split_paths(&plugins).collect::<Vec<_>>());
    }
    let plugins = env::join_paths([rust_plugin("misbehaving"), rust_plugin("top-k-reduce")]).unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "rounds::nothing_is_left_of_fifty_rounds", "--nocapture"]).env(PLUGINS, plugins);
    let output = command.output().unwrap();
    // A crash at its end shows in the status alone.
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{}: {}", output.status, said.concat());
    assert!(said[0].contains("1 passed"), "{}", said.concat());
}

fn rounds<P: AsRef<Path>>(plugins: &[P]) {
    let linked = Registry::linked().unwrap();
    let wanted: Vec<Wanted> = plugins.iter().map(|path| Wanted::option(path.as_ref())).collect();
    let (manifest, _) = manifest::parse(MANIFEST).unwrap();
    let devices = hosts(4);
    let round = || {
        let registry = plugin::load(&linked, &wanted).unwrap().registry;
        let folder = Path::new(".");
        let request = Request {
            manifest: &manifest,
            folder,
            file: None,
            devices: Some(&devices),
            steps: None,
            process: None,
        };
        assert_eq!(run::run(&registry, &request, &mut Silent).unwrap().world, 4);
    };
    // What is made once, as by the allocator for each thread, is there after some.
    (0..10).for_each(|_| round());
    let (threads, libraries, memory) = level();
    (0..50).for_each(|_| round());
    let (threads_after, libraries_after, memory_after) = level();
    assert_eq!(threads_after, threads, "threads");
    assert_eq!(libraries_after, libraries, "libraries that are mapped");
    // A round's buffers are 160 kB.
    assert!(memory_after < memory + (2 << 20), "{memory} bytes grew to {memory_after}");
}

/// Threads, libraries that are mapped, bytes that are resident.
fn level() -> (usize, usize, u64) {
    let threads = fs::read_dir("/proc/self/task").unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut libraries: Vec<&str> = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).collect();
    libraries.retain(|path| path.contains(".so"));
    libraries.sort();
    libraries.dedup();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: u64 = resident.trim().strip_suffix(" kB").unwrap().trim().parse().unwrap();
    (threads, libraries.len(), kilobytes << 10)
}
