//! `scripts/gpu-run` and its judge, with stand-ins for the programs of a bundle: what it says of a run must be what happened.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts").join(name)
}

/// The verdicts on samples, as `what row caption ratio bound`, and the table.
fn judged(columns: &str, samples: &str) -> (Vec<String>, String) {
    let folder = tempfile::tempdir().unwrap();
    let (input, verdicts) = (folder.path().join("samples"), folder.path().join("verdicts"));
    fs::write(&input, samples).unwrap();
    fs::write(&verdicts, "").unwrap();
    let output = Command::new("awk")
        .args(["-v", &format!("columns={columns}"), "-v", &format!("verdicts={}", verdicts.display()), "-f"])
        .args([script("gpu-judge.awk"), input])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = fs::read_to_string(verdicts).unwrap().lines().map(|line| line.replace('\t', " ")).collect();
    (lines, String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_bound_is_kept_up_to_its_last_digit() {
    let bounds = [
        ("graph/C++", 65536, 1.10, 1.1001, "at most 1.10"),
        ("graph/C++", 1_048_576, 1.03, 1.0301, "at most 1.03"),
        ("eager/C++", 1024, 1.15, 1.1501, "at most 1.15"),
        ("eager/C++", 67_108_864, 1.05, 1.0501, "at most 1.05"),
        ("queued/C++", 1024, 1.10, 1.1001, "at most 1.10"),
        ("queued/C++", 16_777_216, 1.03, 1.0301, "at most 1.03"),
        ("packed/PyTorch_graph", 1024, 0.9999, 1.0, "under 1.00"),
    ];
    for (caption, size, kept, missed, bound) in bounds {
        let judged =
            |ratio| judged(&format!("{caption}:a:x/b:y"), &format!("a {size} x {ratio}\nb {size} y 1\n"));
        let (verdicts, table) = judged(kept);
        assert!(verdicts.is_empty() && table.contains(&format!(" ({bound}) |")), "{verdicts:?}\n{table}");
        let (verdicts, table) = judged(missed);
        assert_eq!(verdicts, [format!("missed {size} {} {missed:.3} {bound}", caption.replace('_', " "))]);
        assert!(table.contains(&format!("| **{missed:.3}, wanted {bound}** |")), "{table}");
    }
}

#[test]
fn bandwidth_is_judged_at_its_largest_size_and_by_medians() {
    let rows = |bytes| format!("gpu_bandwidth send,{bytes} busbw 96\nnccl-tests send,{bytes} busbw 100\n");
    let samples = rows(16_777_216) + &rows(268_435_456) + "gpu_bandwidth x,268435456 busbw 5\n";
    let columns = "GB/s:gpu_bandwidth:busbw squall/nccl-tests:gpu_bandwidth:busbw/nccl-tests:busbw";
    let (verdicts, table) = judged(columns, &samples);
    assert_eq!(
        verdicts,
        [
            "missed send,268435456 squall/nccl-tests 0.960 at least 0.97",
            "unjudged x,268435456 squall/nccl-tests - at least 0.97"
        ]
    );
    assert!(table.contains("| send,16777216 | 96.0 | 0.960 |\n"), "{table}");

    let three = "a 8 x 1\na 8 x 2\na 8 x 30\na 9 x 1\na 9 x 2\n";
    let (_, table) = judged("time:a:x", three);
    assert_eq!(table, "| | time |\n|---:|---:|\n| 8 | 2.0 |\n| 9 | 1.5 |\n");
}

/// A bundle of stand-ins, with two GPUs by what its `doctor` says.
struct Bundle(TempDir);

impl Bundle {
    fn new() -> Bundle {
        let bundle = Bundle(tempfile::tempdir().unwrap());
        fs::create_dir(bundle.path("bin")).unwrap();
        fs::create_dir(bundle.path("examples")).unwrap();
        fs::copy(script("gpu-run"), bundle.path("run")).unwrap();
        fs::copy(script("gpu-judge.awk"), bundle.path("judge.awk")).unwrap();
        fs::write(bundle.path("commit"), "0123, clean\n").unwrap();
        bundle.program("squall", "printf '  cuda:0 one\\n  cuda:1 two\\n'");
        bundle
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        let file = self.path("bin").join(name);
        fs::write(&file, format!("#!/usr/bin/env bash\n{text}\n")).unwrap();
        fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
    }

    fn test_programs(&self, text: &str) {
        for name in ["cuda-backend", "nccl-ops", "kernels-std", "pipelines"] {
            self.program(&format!("test-{name}"), text);
        }
    }

    fn run(&self, part: &str) -> Output {
        self.command(part).output().unwrap()
    }

    fn command(&self, part: &str) -> Command {
        let mut command = Command::new("bash");
        for name in ["PEERS", "NCCL_TESTS", "SQUALL_TEST_GPUS", "ONLY", "PROGRAMS", "SIZES", "ROUNDS"] {
            command.env_remove(name);
        }
        command.arg(self.path("run")).arg(part).env("RESULTS", self.path("results"));
        command
    }

    fn results(&self) -> String {
        fs::read_to_string(self.path("results/results.md")).unwrap()
    }
}

const PASSED: &str = "echo 'test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out'";

#[test]
fn tests_are_counted_promised_and_listed_where_they_are_left_out() {
    let bundle = Bundle::new();
    bundle.test_programs(&format!(
        "[[ $SQUALL_TEST_GPUS == 2 ]] || exit 1\necho 'test far ... ignored (needs 8 GPUs)'\n{PASSED}"
    ));
    let output = bundle.run("tests");
    let results = bundle.results();
    assert!(output.status.success(), "{results}");
    for part in [
        "squall at commit 0123, clean",
        "- test-nccl-ops, trials: 1: needs 8 GPUs",
        "| test-pipelines | 7 | 0 | 1 |",
    ] {
        assert!(results.contains(part), "{part}\n{results}");
    }

    // One that ends without a word, in place of what the part found before.
    bundle.program("test-nccl-ops", "echo 'test slow ...'; exit 3");
    assert_eq!(bundle.run("tests").status.code(), Some(1));
    let results = bundle.results();
    assert!(results.contains("status 3, last: test slow ..."), "{results}");
    assert!(
        results.contains("- tests: 1 failures") && !results.contains("- test-nccl-ops, trials"),
        "{results}"
    );
}

#[test]
fn parts_of_one_build_are_joined_and_others_refused() {
    let bundle = Bundle::new();
    bundle.test_programs(PASSED);
    assert!(bundle.run("tests").status.success());
    assert!(bundle.results().contains("- not run: compare sanitize bench"));
    // There is no example, so nothing is compared.
    assert_eq!(bundle.run("compare").status.code(), Some(1));
    let results = bundle.results();
    assert!(results.contains("## Tests") && results.contains("- not run: sanitize bench"), "{results}");
    assert!(results.contains("- compare: 0 arrays of 0 runs were compared"), "{results}");

    fs::write(bundle.path("commit"), "4567, clean\n").unwrap();
    assert_eq!(bundle.run("tests").status.code(), Some(2));
    assert_eq!(bundle.results(), results);
}

/// With the tools that the peers of a step need, and without.
#[test]
fn a_step_is_measured_beside_the_bundles_own_peers_where_they_can_be_built() {
    let step = "echo '# squall'; echo 'elements graph eager queued packed cpu-graph cpu-queued'; echo '8 10 10 10 10 1 1'
        echo 'from start to the end of the first step: 1.0 s'; [[ -z ${SQUALL_CACHE:-} ]] || touch \"$SQUALL_CACHE/kernel\"";
    // Compiles anything to a program that prints the peer's table, once it was asked for NCCL's header.
    let peer = "echo '# step_nccl'; echo 'elements thr-eager thr-graph queued-graph'; echo '8 10 10 10'";
    let nvcc = format!(
        "[[ $* != *' -E '* ]] || exit $HEADER\nwhile [[ $1 != -o ]]; do shift; done\n\
         printf '#!/bin/sh\\n%s\\n' \"{peer}\" >\"$2\"; chmod +x \"$2\""
    );
    for (header, torch, left_out) in [
        ("0", "0", None),
        ("1", "0", Some("- a step against C++: nvcc finds no nccl.h")),
        ("0", "1", Some("- a step against PyTorch: python3 has no torch that uses GPUs with NCCL")),
    ] {
        let bundle = Bundle::new();
        fs::create_dir(bundle.path("peers")).unwrap();
        for peer in ["step_nccl.cu", "step_torch.py"] {
            fs::copy(script("../tests/peers").join(peer), bundle.path("peers").join(peer)).unwrap();
        }
        bundle.program("gpu_step", step);
        bundle.program("gpu_bandwidth", "echo 'all_reduce 268435456 1 1 100'");
        bundle.program("nvcc", &nvcc);
        bundle.program(
            "python3",
            "[[ $1 != -c ]] || exit $TORCH\necho '# step_torch'; echo 'elements eager graph'; echo '8 20 20'",
        );
        let path = format!("{}:{}", bundle.path("bin").display(), std::env::var("PATH").unwrap());
        let mut command = bundle.command("bench");
        command.envs([
            ("PATH", path.as_str()),
            ("HEADER", header),
            ("TORCH", torch),
            ("SIZES", "8"),
            ("ROUNDS", "1"),
        ]);
        let output = command.output().unwrap();
        let results = bundle.results();
        assert!(output.status.success(), "{output:?}\n{results}");
        for (name, column) in [("C++", "graph/C++"), ("PyTorch", "packed/PyTorch graph")] {
            let there = left_out.is_none_or(|line| !line.contains(&format!("against {name}:")));
            assert_eq!(results.contains(&format!("| {column} |")), there, "{column}\n{results}");
        }
        let lines = results.lines().filter(|line| line.starts_with("- a step against ")).collect::<Vec<_>>();
        assert_eq!(lines.len(), usize::from(left_out.is_some()), "{results}");
        assert!(left_out.is_none_or(|wanted| lines[0].starts_with(wanted)), "{lines:?}");
    }
}
