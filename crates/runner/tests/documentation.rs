//! The manifests that the documentation shows are right, and the reference names every key of the language.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

// The providers that a reader of the documentation has.
use squall_host_backend as _;
use squall_kernels_std as _;

use std::collections::BTreeSet;
use std::path::Path;

use squall_core::element::Exact;
use squall_core::{DType, Phase, Registry, verify};
use squall_runner::compare::{Agreement, Comparison, Deviation, Difference, Tolerances};
use squall_runner::explain;
use squall_runner::expr;
use squall_runner::expr::functions::Function;
use squall_runner::manifest::{keys, parse};
use squall_runner::render::{Color, render};
use squall_runner::resolve::resolve;
use squall_runner::run::{CheckpointSummary, Reading, Readings, StepTimes, Stopped, Summary, devices};

const REFERENCE: &str = include_str!("../../../docs/manifest.md");
const GRAMMAR: &str = include_str!("../../../docs/grammar.md");
const JSON: &str = include_str!("../../../docs/json.md");
const DIAGNOSTICS: &str = include_str!("../../../docs/diagnostics.md");
const README: &str = include_str!("../../../README.md");

/// The fenced blocks of TOML that are whole manifests.
fn manifests(page: &str) -> Vec<&str> {
    let blocks = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.filter(|block| block.starts_with("manifest = 1")).collect()
}

#[test]
fn every_whole_manifest_is_verified_on_its_own_devices() {
    let registry = Registry::linked().unwrap();
    for (page, text) in [("docs/manifest.md", REFERENCE), ("README.md", README)] {
        let manifests = manifests(text);
        assert!(!manifests.is_empty(), "{page} shows no whole manifest");
        for text in manifests {
            let (manifest, warnings) = parse(text).unwrap_or_else(|e| panic!("{page}: {e:#?}\n{text}"));
            assert!(warnings.is_empty(), "{page}: {warnings:#?}\n{text}");
            let (kind, ranks) = devices::world(&registry, &manifest, None).unwrap();
            let verified =
                resolve(&manifest, &registry, ranks.unwrap_or(1), kind).and_then(|job| verify(job.graphs));
            verified.unwrap_or_else(|e| panic!("{page}: {e}\n{text}"));
        }
    }
}

#[test]
fn every_manifest_that_a_command_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = 0;
    for page in [
        "README.md",
        "CONTRIBUTING.md",
        "examples/README.md",
        "docs/checkpoints.md",
        "docs/compare.md",
        "docs/diagnostics.md",
        "docs/json.md",
        "docs/manifest.md",
    ] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        let commands = text.lines().flat_map(|line| {
            // Fenced, or in a table or a sentence.
            let fenced = line.starts_with("$ squall ") || line.starts_with("cargo run ");
            let parts: Vec<&str> =
                if fenced { vec![line] } else { line.split('`').skip(1).step_by(2).collect() };
            parts.into_iter().filter(|part| part.contains("squall ") || part.contains("cargo run "))
        });
        for command in commands {
            for file in command.split(' ').filter(|word| word.ends_with(".toml") && *word != "M.toml") {
                found += 1;
                assert!(
                    root.join(file).is_file(),
                    "{page}: {command}: there is no {file} below the repository's root"
                );
            }
        }
    }
    assert!(found >= 10, "{found} commands were found");
}

/// The text below the heading `title`, up to the next heading.
fn section(title: &str) -> &'static str {
    let mut headings = REFERENCE.split("\n#");
    let found = headings.find_map(|part| {
        let (heading, text) = part.split_once('\n')?;
        heading.trim_matches(['#', ' ']).eq_ignore_ascii_case(title).then_some(text)
    });
    found.unwrap_or_else(|| panic!("docs/manifest.md has no section on {title}"))
}

#[test]
fn every_key_is_told_of_in_its_tables_section() {
    for key in keys() {
        let told = section(key.table).contains(&format!("`{}`", key.name));
        assert!(told, "docs/manifest.md does not tell of `{}` in {}", key.name, key.table);
    }
}

/// The lines of the blocks of this kind in the page on the grammar.
fn examples(kind: &str) -> Vec<&'static str> {
    let fence = format!("```{kind}\n");
    let blocks = GRAMMAR.split(&fence).skip(1);
    let lines = blocks.flat_map(|rest| rest.split("```").next().unwrap().lines());
    lines.collect()
}

/// Whether the parser takes a string of this kind.
fn is_read(kind: &str, text: &str) -> bool {
    let manifest = |rest: String| parse(&format!("manifest = 1\n{rest}\n")).is_ok();
    match kind {
        "expr" => expr::parse(text).is_ok(),
        "range" => expr::parse_buffer(text).is_ok(),
        "loop" => expr::parse_loop(text).is_ok(),
        "devices" => manifest(format!("world.devices = '{text}'")),
        "duration" => manifest(format!("pipeline.step_timeout = '{text}'")),
        _ => manifest(format!("buffer.x = {{ dtype = 'f32', shape = [], save = '{text}' }}")),
    }
}

#[test]
fn the_examples_of_the_grammar_are_read_or_refused_as_it_says() {
    for kind in ["expr", "range", "loop", "devices", "duration", "file"] {
        let (right, wrong) = (examples(kind), examples(&format!("not-{kind}")));
        assert!(!right.is_empty() && !wrong.is_empty(), "no examples of {kind}");
        right.into_iter().for_each(|text| assert!(is_read(kind, text), "{kind}: `{text}` is refused"));
        wrong.into_iter().for_each(|text| assert!(!is_read(kind, text), "{kind}: `{text}` is read"));
    }
}

/// The texts in quotes of a rule of the grammar.
fn terminals(rule: &str) -> Vec<&'static str> {
    let (_, rest) = GRAMMAR.split_once(&format!("\n{rule} ")).unwrap_or_else(|| panic!("no rule for {rule}"));
    let rule = rest.split(" ;").next().unwrap();
    rule.split('"').skip(1).step_by(2).collect()
}

#[test]
fn the_words_of_the_grammar_are_those_of_the_parser() {
    let functions = Function::ALL.iter().map(|function| function.name()).chain(["rank", "size"]);
    assert_eq!(terminals("function  "), functions.collect::<Vec<_>>());
    let reads = |text: String| expr::parse(&text).is_ok();
    for rule in ["sum       ", "product   ", "comparison"] {
        let operators = terminals(rule);
        assert!(!operators.is_empty() && operators.iter().all(|operator| reads(format!("1 {operator} 2"))));
    }
    assert!(terminals("integer").iter().all(|suffix| reads(format!("1{suffix}"))));
    // Each reserved word is one for the parser of manifests, and stands on both pages.
    let reserved = GRAMMAR.split_once("\nReserved: ").unwrap().1.split("\n\n").next().unwrap();
    let reserved: Vec<&str> = reserved.split('`').skip(1).step_by(2).collect();
    let (_, told) = section("Names").split_once("Reserved: ").unwrap();
    let told: BTreeSet<&str> = told.split('`').skip(1).step_by(2).collect();
    assert_eq!(told, reserved.iter().copied().collect());
    for word in reserved {
        let errors = parse(&format!("manifest = 1\n[params]\n{word} = 1\n")).unwrap_err();
        assert_eq!(errors[0].code.0, "E0109", "{word}");
    }
}

/// The keys of all objects in `value`, but of those whose keys are names.
fn json_keys(value: &serde_json::Value, keys: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                keys.insert(key.clone());
                let named = key == "tolerances" || key == "watched";
                let values = value.as_object().filter(|_| named).map(|named| named.values().collect());
                values.unwrap_or_else(|| vec![value]).into_iter().for_each(|value| json_keys(value, keys));
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| json_keys(item, keys)),
        _ => {}
    }
}

#[test]
fn every_key_of_json_is_told() {
    let element = Deviation {
        phase: Phase::Step,
        step: 0,
        rank: 0,
        device: "cuda:0".into(),
        task: "t".into(),
        buffer: "b".into(),
        dtype: DType::F32,
        index: vec![0],
        host: Exact::Int(1),
        other: Exact::Int(2),
        distance: 1.0,
        allowed: 0.0,
    };
    let comparison = Comparison {
        pipeline: "p".into(),
        world: 1,
        devices: Vec::new(),
        steps: 1,
        each: false,
        tolerances: Tolerances::default(),
        agreement: vec![Agreement { dtype: DType::F32, elements: 1, greatest: Some(element.clone()) }],
        differences: vec![Difference { first: element, differing: 1, written: 1, times: 1 }],
    };
    let summary = Summary {
        pipeline: "p".into(),
        world: 1,
        devices: Vec::new(),
        libraries: vec!["NCCL".into()],
        steps: 1,
        stopped: Some(Stopped { step: 1, by: "c".into() }),
        elapsed_s: 1.0,
        step_us: StepTimes::default(),
        watched: Readings::default(),
        checkpoint: Some(CheckpointSummary::default()),
        outputs: Vec::new(),
    };
    let reading = Reading { step: 1, rank: 0, value: None };
    let mut keys = BTreeSet::new();
    for value in
        [serde_json::to_value(comparison), serde_json::to_value(summary), serde_json::to_value(reading)]
    {
        json_keys(&value.unwrap(), &mut keys);
    }
    assert!(keys.len() > 30, "{keys:?}");
    for key in keys {
        assert!(JSON.contains(&format!("`{key}`")), "docs/json.md does not tell of `{key}`");
    }
}

/// The reports on the page are those of the manifests that `squall explain` shows, word for word.
#[test]
fn the_reports_that_are_shown_are_drawn_so() {
    let registry = Registry::linked().unwrap();
    let blocks = DIAGNOSTICS.split("```text\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
    let mut shown = 0;
    for block in blocks {
        let code = block.strip_prefix("error[").unwrap().split(']').next().unwrap();
        let page = explain::page(code).unwrap();
        let text = page.split_once("```toml broken\n").unwrap().1.split("```").next().unwrap();
        let (manifest, _) = parse(text).unwrap();
        let (kind, ranks) = devices::world(&registry, &manifest, None).unwrap();
        let judged = resolve(&manifest, &registry, ranks.unwrap(), kind).and_then(|job| verify(job.graphs));
        let drawn = render(&judged.unwrap_err().0, "job.toml", text, Color::Never);
        assert_eq!(drawn.trim_end(), block, "docs/diagnostics.md: {code}");
        shown += 1;
    }
    assert!(shown >= 10, "{shown} reports are shown");
}

#[test]
fn every_code_is_listed_with_its_meaning() {
    let rows = DIAGNOSTICS
        .split_once("## All codes")
        .unwrap()
        .1
        .lines()
        .filter(|line| ["| E", "| W"].iter().any(|start| line.starts_with(start)));
    let listed: Vec<String> = rows.map(str::to_string).collect();
    let wanted: Vec<String> =
        explain::codes().iter().map(|(code, meaning)| format!("| {code} | {meaning} |")).collect();
    assert_eq!(listed, wanted);
}
