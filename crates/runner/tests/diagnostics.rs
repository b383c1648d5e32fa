//! Manifests that assert in place what is said of them.
//!
//! Each file of `diagnostics/` names the expected codes in a comment on the offending line, as
//! `# error: [E0105]` or `# warning: [W0101]`; `# error below: […]` speaks of the next line and
//! `# error anywhere: […]` of a diagnostic without a place. An unmatched diagnostic and an unmatched assertion
//! both fail. How each is drawn is kept as a snapshot.
//!
//! A file that is right as a text is resolved and verified for two ranks on host devices, or as its first line asks:
//! `# world: 3`, `# parsed alone`, `# run`, which runs it in the folder it stands in, `# resume`, which goes on from its checkpoint there, or `# captures`, which verifies and runs
//! it where `cuda` devices and a library of the tests are.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

#[path = "diagnostics/capturing.rs"]
mod capturing;

use std::collections::BTreeSet;
use std::path::Path;

// The tests' providers of kernels, ops and devices.
use squall_host_backend as _;
use squall_kernels_std as _;

use squall_core::{Code, Diagnostic, Interrupt, Registry, Severity};
use squall_runner::codes;
use squall_runner::manifest::{self, Manifest};
use squall_runner::render::{Color, render};
use squall_runner::resolve::resolve;
use squall_runner::run::{self, Readings, Request, RunError, Summary, Watcher};

/// Line, severity and code of a diagnostic; line 0 for none.
type Said = (usize, &'static str, String);

fn fixtures() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/diagnostics");
    let mut fixtures: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap()))
        .collect();
    fixtures.sort();
    fixtures
}

/// Texts that no file of a repository should be.
fn generated() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let many: String = (0..150).map(|n| format!("key{n} = 1\n")).collect();
    let unused: String = (0..150).map(|n| format!("p{n} = 1\n")).collect();
    let param = |value: String| format!("manifest = 1\n[params]\nn = {value}\n").into_bytes();
    let quoted = |text: String| param(format!("\"{text}\""));
    let chain: String = (0..20_000).map(|n| format!("p{n} = \"p{} + 1\"\n", n + 1)).collect();
    let lists = |n| format!("p{n} = [[[[\"p{}\"]]]]\n", n + 1);
    let chain_of_lists: String = (0..5000).map(lists).collect();
    let bodies = format!("{}{{}}{}", "{ do = [".repeat(500), "] }".repeat(500));
    vec![
        ("10,000 characters", quoted(format!("1{}", " + 1".repeat(2500))), codes::EXPR_LIMIT.0),
        (
            "1,000 parentheses",
            quoted(format!("{}1{}", "(".repeat(1000), ")".repeat(1000))),
            codes::EXPR_LIMIT.0,
        ),
        ("1,000 signs", quoted(format!("{}1", "-".repeat(1000))), codes::EXPR_LIMIT.0),
        ("1,000 lists", quoted(format!("{}{}", "[".repeat(1000), "]".repeat(1000))), codes::EXPR_LIMIT.0),
        ("1,000 indices", quoted(format!("n{}", "[0]".repeat(1000))), codes::EXPR_LIMIT.0),
        ("1,000 arrays", param(format!("{}{}", "[".repeat(1000), "]".repeat(1000))), codes::TOML_SYNTAX.0),
        (
            "1,000 tables",
            format!("manifest = 1\n[{}a]\n", "a.".repeat(1000)).into_bytes(),
            codes::TOML_SYNTAX.0,
        ),
        ("500 bodies", format!("manifest = 1\ntask = [{bodies}]\n").into_bytes(), codes::TOML_SYNTAX.0),
        (
            "20,000 params in a row",
            format!("manifest = 1\n[params]\n{chain}p20000 = 1\n").into_bytes(),
            codes::EXPR_LIMIT.0,
        ),
        (
            "5,000 lists in a row",
            format!("manifest = 1\n[params]\n{chain_of_lists}p5000 = 1\n").into_bytes(),
            codes::EXPR_LIMIT.0,
        ),
        ("latin-1", b"manifest = 1 # caf\xe9\n".to_vec(), codes::NOT_UTF8.0),
        ("UTF-16", b"\xff\xfem\0a\0n\0".to_vec(), codes::NOT_UTF8.0),
        ("nested arrays, 10 MiB", "[".repeat(10 << 20).into_bytes(), codes::TOO_LARGE.0),
        ("nested arrays", format!("a = {}", "[".repeat(1 << 19)).into_bytes(), codes::TOML_SYNTAX.0),
        ("many errors", format!("manifest = 1\n{many}").into_bytes(), codes::MORE_ERRORS.0),
        ("many warnings", format!("manifest = 1\n[params]\n{unused}").into_bytes(), codes::MORE_WARNINGS.0),
    ]
}

fn diagnose(bytes: &[u8]) -> Vec<Diagnostic> {
    match manifest::parse_bytes(bytes) {
        Ok((manifest, mut said)) => {
            said.extend(later(&manifest, std::str::from_utf8(bytes).unwrap()));
            said.sort_by_key(|diagnostic| diagnostic.primary.span.map_or(u32::MAX, |span| span.start));
            said
        }
        Err(errors) => {
            assert!(errors.iter().any(Diagnostic::is_error), "refused without an error");
            errors
        }
    }
}

/// What is said of a manifest that is right as a text.
fn later(manifest: &Manifest, text: &str) -> Vec<Diagnostic> {
    let registry = Registry::linked().unwrap();
    let world = match text.trim_start_matches('\u{feff}').lines().next().unwrap() {
        "# parsed alone" => return Vec::new(),
        "# run" => return told(&registry, manifest, run::run),
        "# resume" => return told(&registry, manifest, run::resume),
        "# captures" => {
            let registry = capturing::registry();
            let told = capturing::check(&registry, manifest, "cuda");
            assert_eq!(told, self::told(&registry, manifest, run::run), "a run says the same");
            return told;
        }
        line => line.strip_prefix("# world: ").map_or(2, |world| world.parse().unwrap()),
    };
    let job = resolve(manifest, &registry, world, "host");
    let told = job.and_then(|job| {
        run::verified(&registry, &job)?;
        Ok(job.warnings)
    });
    told.unwrap_or_else(|problems| problems.0)
}

/// What a run says of a manifest.
fn told(registry: &Registry, manifest: &Manifest, run: Run) -> Vec<Diagnostic> {
    let folder = Path::new("tests/diagnostics");
    let request = Request { manifest, folder, file: None, devices: None, steps: None, process: None };
    let mut warned = Warned::default();
    match run(registry, &request, &mut warned) {
        Ok(_) => warned.0,
        Err(error) => error.diagnostics().unwrap(),
    }
}

/// To run, or to resume.
type Run = fn(&Registry, &Request<'_>, &mut dyn Watcher) -> Result<Summary, RunError>;

#[derive(Default)]
struct Warned(Vec<Diagnostic>);

impl Watcher for Warned {
    fn warnings(&mut self, warnings: &[Diagnostic]) {
        self.0.extend_from_slice(warnings);
    }

    fn note(&mut self, _: &str) {}
    fn begin(&mut self, _: u64, _: &Interrupt) {}
    fn readings(&mut self, _: &Readings) {}
}

fn asserted(text: &str) -> Vec<Said> {
    let mut said = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let comments = text.split_once('#').map_or("", |(_, comments)| comments);
        for severity in ["error", "warning"] {
            for (at, _) in comments.match_indices(severity) {
                let rest = &comments[at + severity.len()..];
                let places = [("", line), (" below", line + 1), (" anywhere", 0)];
                for (place, line) in places {
                    if let Some(code) = rest.strip_prefix(place).and_then(|rest| rest.strip_prefix(": [")) {
                        said.push((line, severity, code[..5].to_owned()));
                    }
                }
            }
        }
    }
    said.sort();
    said
}

fn found(diagnostics: &[Diagnostic], text: &str) -> Vec<Said> {
    let mut said: Vec<Said> = diagnostics
        .iter()
        .map(|diagnostic| {
            let line = diagnostic
                .primary
                .span
                .map_or(0, |span| 1 + text[..span.start as usize].matches('\n').count());
            let severity = if diagnostic.severity == Severity::Error { "error" } else { "warning" };
            (line, severity, diagnostic.code.to_string())
        })
        .collect();
    said.sort();
    said
}

#[test]
fn every_fixture_says_what_it_asserts() {
    let mut wrong = String::new();
    for (name, bytes) in fixtures() {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let diagnostics = diagnose(&bytes);
        let drawn = render(&diagnostics, &format!("{name}.toml"), &text, Color::Never);
        let (found, asserted) = (found(&diagnostics, &text), asserted(&text));
        if found != asserted {
            let only = |these: &[Said], those: &[Said]| {
                these
                    .iter()
                    .filter(|said| !those.contains(said))
                    .map(|said| format!("{said:?} "))
                    .collect::<String>()
            };
            wrong += &format!("{name}\n  found alone: {}\n", only(&found, &asserted));
            wrong += &format!("  asserted alone: {}\n{drawn}", only(&asserted, &found));
        }
        insta::assert_snapshot!(name, drawn);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Line ends and a byte-order mark change places and nothing else.
#[test]
fn carriage_returns_and_a_byte_order_mark_change_nothing() {
    for (name, bytes) in fixtures() {
        let text = String::from_utf8(bytes).unwrap();
        let windows = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        let diagnostics = diagnose(windows.as_bytes());
        assert_eq!(found(&diagnostics, &windows), asserted(&text), "{name}");
    }
}

#[test]
fn diagnostics_are_in_file_order() {
    for (name, bytes) in fixtures() {
        let starts: Vec<_> =
            diagnose(&bytes).iter().map(|d| d.primary.span.map_or(u32::MAX, |s| s.start)).collect();
        assert!(starts.is_sorted(), "{name}: {starts:?}");
    }
}

#[test]
fn texts_that_are_no_manifests_are_refused() {
    for (name, bytes, code) in generated() {
        let diagnostics = diagnose(&bytes);
        assert!(diagnostics.iter().any(|diagnostic| diagnostic.code.0 == code), "{name}: {diagnostics:?}");
        assert!(diagnostics.len() <= 101, "{name}");
        let text = String::from_utf8_lossy(&bytes);
        assert!(render(&diagnostics, name, &text, Color::Always).contains(code), "{name}");
    }
}

#[test]
fn every_code_has_a_fixture() {
    let mut seen: BTreeSet<String> = generated().into_iter().map(|(_, _, code)| code.to_owned()).collect();
    for (_, bytes) in fixtures() {
        seen.extend(diagnose(&bytes).into_iter().map(|diagnostic| diagnostic.code.to_string()));
    }
    let of_verification = |code: &Code| ["E02", "W02"].iter().any(|stage| code.0.starts_with(stage));
    let verification = squall_core::codes::ALL.iter().filter(|(code, _)| of_verification(code));
    let verification = verification.filter(|(code, _)| !OF_CORE_ALONE.contains(code));
    // A difference between two backends has no fixture in one manifest, a full disk none, and plugins that are wrong have to be built: the
    // workspace's tests show the first and the last, and the command's the second.
    let plugins = [
        codes::PLUGIN_OPEN,
        codes::PLUGIN_ABI,
        codes::PLUGIN_TABLES,
        codes::PLUGIN_INIT,
        codes::PLUGIN_CONFLICT,
        codes::PLUGIN_TWICE,
    ];
    // Those of several processes are shown by the command's tests, too.
    let processes = [codes::IDENTITY, codes::MEETING, codes::PROCESSES];
    let elsewhere = [&[codes::DIFFERS, codes::CHECKPOINT], &plugins[..], &processes[..]].concat();
    let own = codes::ALL.iter().filter(|(code, _)| !elsewhere.contains(code));
    let missing: Vec<_> = own.chain(verification).filter(|(code, _)| !seen.contains(code.0)).collect();
    assert!(missing.is_empty(), "no fixture shows {missing:?}");
}

/// What no manifest can bring about in this build; core's tests show them. Those of binding and running are shown where
/// their exit statuses are.
const OF_CORE_ALONE: &[Code] = {
    use squall_core::codes::{DUPLICATE, GROUP, NO_FORM, PROCESSES, RANGE, RANKS};
    &[
        RANGE,     // E0144 comes first
        GROUP,     // one library serves all ops
        NO_FORM,   // every kernel has a form for host devices
        DUPLICATE, // E0110 comes first
        RANKS,     // all ranks' graphs are made together
        PROCESSES, // one process runs all ranks
    ]
};
