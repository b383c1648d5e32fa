//! Printing what was parsed and parsing it again changes nothing but places.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use squall_runner::manifest::Manifest;
use squall_runner::{expr, manifest};

fn parse(text: &str) -> Manifest {
    let parsed = manifest::parse(text);
    parsed.unwrap_or_else(|problems| panic!("{problems:#?}\n{text}")).0
}

/// A tree in words, without its places and without what was left out to become a default.
fn without_places(tree: &impl std::fmt::Debug) -> String {
    let text = format!("{tree:?}");
    let mut left = String::with_capacity(text.len());
    let mut rest = text.as_str();
    // `Span { … }`, `Place { … }` and ranges of bytes such as `3..7`, wherever they stand.
    while let Some(at) = ["Span {", "Place {", "range: "].iter().filter_map(|what| rest.find(what)).min() {
        left.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = if rest.starts_with("range: ") {
            rest.find([',', ' ']).and_then(|_| rest[7..].find([',', ' ', ')']).map(|end| end + 7))
        } else {
            let mut depth = 0_usize;
            rest.char_indices().find_map(|(at, char)| {
                depth = match char {
                    '{' => depth + 1,
                    '}' => depth - 1,
                    _ => return None,
                };
                (depth == 0).then_some(at + 1)
            })
        };
        rest = &rest[end.unwrap()..];
    }
    left.push_str(rest);
    left.replace("Some()", "None").replace("span: None", "span")
}

fn is_the_same_again(text: &str) {
    let first = parse(text);
    let printed = first.to_string();
    let again = parse(&printed);
    assert_eq!(without_places(&again), without_places(&first), "\n{printed}");
    assert_eq!(again.to_string(), printed, "a printed manifest is printed as it stands");
}

fn manifests(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            manifests(&path, found);
        } else if path.extension().is_some_and(|e| e == "toml") && !path.ends_with("Cargo.toml") {
            found.push(path);
        }
    }
}

#[test]
fn examples_and_valid_fixtures_are_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    manifests(&root.join("../../examples"), &mut files);
    manifests(&root.join("tests/diagnostics"), &mut files);
    let texts: Vec<String> = files.iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect();
    let valid: Vec<&String> = texts.iter().filter(|text| manifest::parse(text).is_ok()).collect();
    assert!(valid.len() > 20, "{} of {}", valid.len(), texts.len());
    valid.into_iter().for_each(|text| is_the_same_again(text));
}

/// An expression, with more parentheses than it needs.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("rank".to_owned()),
        Just("world".to_owned()),
        Just("n".to_owned()),
        (0_i64..1000).prop_map(|n| n.to_string()),
        (0.001..1e12).prop_map(|x: f64| format!("{x:?}")),
        Just("9223372036854775807".to_owned()),
        Just("true".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            (two.clone(), prop::sample::select(vec!["+", "-", "*", "/", "%"]))
                .prop_map(|((a, b), op)| format!("({a}) {op} ({b})")),
            (two.clone(), prop::sample::select(vec!["+", "-", "*", "/", "%"]))
                .prop_map(|((a, b), op)| format!("{a} {op} {b}")),
            (two.clone(), prop::sample::select(vec!["<", "<=", "==", "!="]))
                .prop_map(|((a, b), op)| format!("({a}) {op} ({b})")),
            (two.clone(), prop::sample::select(vec!["and", "or"]))
                .prop_map(|((a, b), op)| format!("({a}) {op} ({b})")),
            (two.clone(), inner.clone()).prop_map(|((a, b), c)| format!("({a}) if ({b}) else ({c})")),
            inner.clone().prop_map(|a| format!("-({a})")),
            inner.clone().prop_map(|a| format!("not ({a})")),
            inner.clone().prop_map(|a| format!("share({a})")),
            two.clone().prop_map(|(a, b)| format!("min({a}, {b})")),
            two.clone().prop_map(|(a, b)| format!("[{a}, {b}][{b}]")),
            (two, any::<bool>()).prop_map(|((a, b), whole)| match whole {
                true => format!("sum([{a}][({b}):])"),
                false => format!("sum([{a}, {a}][:({b})])"),
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn expressions_are_printed(text in expression()) {
        if let Ok(first) = expr::parse(&text) {
            let printed = first.to_string();
            let again = expr::parse(&printed).map_err(|e| TestCaseError::fail(format!("{printed}: {e}")))?;
            prop_assert_eq!(without_places(&again), without_places(&first), "{}", printed);
        }
    }
}
