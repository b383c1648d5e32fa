//! The manifests that the documentation shows are right, and the reference names every key of the language.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

// The providers that a reader of the documentation has.
use squall_host_backend as _;
use squall_kernels_std as _;

use squall_core::{Registry, verify};
use squall_runner::manifest::{keys, parse};
use squall_runner::resolve::resolve;
use squall_runner::run::devices;

const REFERENCE: &str = include_str!("../../../docs/manifest.md");
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
    let later = section("What a later version brings");
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for key in keys() {
        let told = match key.is_read {
            true => section(key.table).contains(&format!("`{}`", key.name)),
            false => later.split(|c| !is_word(c)).any(|word| word == key.name),
        };
        assert!(told, "docs/manifest.md does not tell of `{}` in {}", key.name, key.table);
    }
}
