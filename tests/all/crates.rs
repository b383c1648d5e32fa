//! Which crate depends on which, and under which licences. A program that needs only the vocabulary must not build a TOML parser.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

fn cargo(args: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(args).arg("--offline").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn core_brings_no_parser_no_loader_and_no_gpu() {
    let tree = cargo(&["tree", "--package", "squall-core", "--edges", "normal", "--prefix", "none"]);
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("squall-core") && crates.contains("inventory"), "{tree}");
    for unwanted in ["toml", "winnow", "serde", "clap", "libloading", "cudarc"] {
        assert!(!crates.contains(unwanted), "squall-core depends on {unwanted}:\n{tree}");
    }
}

#[test]
fn backends_and_kernels_depend_on_core_alone() {
    let metadata: serde_json::Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).unwrap();
    let siblings: BTreeMap<&str, Vec<&str>> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let names = dependencies.filter(|d| d["kind"].is_null()).map(|d| d["name"].as_str().unwrap());
            (package["name"].as_str().unwrap(), names.filter(|name| name.starts_with("squall-")).collect())
        })
        .collect();
    assert_eq!(siblings["squall-core"], Vec::<&str>::new());
    for package in ["squall-host-backend", "squall-kernels-std", "squall-mpi-ops"] {
        assert_eq!(siblings[package], ["squall-core"], "{package}");
    }
    assert_eq!(siblings["squall-dylib"], Vec::<&str>::new());
    // What opens libraries of the system does it through one crate, and the GPU's backend and its ops do not know each other.
    for package in ["squall-cuda-backend", "squall-nccl-ops"] {
        assert_eq!(siblings[package], ["squall-core", "squall-dylib"], "{package}");
    }
    assert!(siblings["squall-runner"].len() >= 3, "{:?}", siblings["squall-runner"]);
}

/// The licences that a dependency may offer, alone or as one of several.
const PERMISSIVE: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "0BSD",
];

#[test]
fn every_dependency_is_permissive() {
    let tree = cargo(&["tree", "--workspace", "--prefix", "none", "--no-dedupe", "--format", "{l}|{p}"]);
    let packages: BTreeSet<&str> = tree.lines().filter(|line| !line.is_empty()).collect();
    for package in ["cudarc", "libloading", "base64", "libtest-mimic"] {
        assert!(packages.iter().any(|line| line.contains(&format!("|{package} v"))), "{package}: {tree}");
    }
    for package in packages {
        let licence = package.split('|').next().unwrap();
        // Of `A OR B` one suffices, of `A AND B` both are needed; older manifests write `/` for `OR`.
        let allowed = licence.split(" AND ").all(|part| {
            let part = part.trim_matches(['(', ')']);
            part.split(" OR ").flat_map(|one| one.split('/')).any(|one| PERMISSIVE.contains(&one.trim()))
        });
        assert!(allowed, "not among the licences that are taken: {package}");
    }
}
