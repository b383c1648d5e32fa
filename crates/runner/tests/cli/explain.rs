//! `explain`: a page for every code, whose manifests do what it says.

use squall_runner::explain::{codes, page};

use crate::harness::{Ended, Folder};

/// What no manifest alone brings about: a file that is no text or no manifest, a plugin that is wrong, graphs that are built in Rust, a device or a
/// disk that fails, a command line. The pages of these show no manifests.
const ELSEWHERE: [&str; 34] = [
    "E0001", "E0002", "E0005", "E0165", "E0166", "E0167", "E0168", "E0172", "E0173", "E0174", "E0175",
    "E0176", "E0177", "E0203", "E0212", "E0214", "E0215", "E0216", "E0229", "E0234", "E0301", "E0303",
    "E0304", "E0305", "E0314", "E0315", "E0316", "E0317", "E0402", "E0403", "E0404", "E0405", "E0406",
    "W0001",
];

/// The fenced manifest of a kind, and whether it is to be run.
fn manifest(page: &str, kind: &str) -> Option<(String, bool)> {
    let (_, rest) = page.split_once(&format!("```toml {kind}"))?;
    let (fence, rest) = rest.split_once('\n').unwrap();
    Some((rest.split_once("```").unwrap().0.to_string(), fence == " run"))
}

/// What squall says of a manifest, beside two data files.
fn said(text: &str, run: bool) -> Ended {
    let folder = Folder::with(text);
    folder.npy("five.npy", &[5], &[0.0, 1.0, 2.0, 3.0, 4.0]);
    folder.npy("seven.npy", &[7], &[0.0; 7]);
    if run { folder.run() } else { folder.squall(&["check", "m.toml", "--deny-warnings"]) }
}

/// The codes of the diagnostics that are drawn.
fn drawn(said: &str) -> Vec<&str> {
    let starts =
        said.lines().filter_map(|line| line.strip_prefix("error[").or(line.strip_prefix("warning[")));
    let mut codes: Vec<&str> = starts.filter_map(|rest| rest.split(']').next()).collect();
    codes.dedup();
    codes
}

#[test]
fn every_code_has_a_page_whose_manifests_do_what_it_says() {
    for (code, meaning) in codes() {
        let page = page(code.0).unwrap_or_else(|| panic!("{code} has no page"));
        assert!(page.starts_with(&format!("# {code}: {meaning}\n\n")), "{code}: {page}");
        let (broken, mended) = (manifest(page, "broken"), manifest(page, "mended"));
        let shows = !ELSEWHERE.contains(&code.0);
        assert_eq!((broken.is_some(), mended.is_some()), (shows, shows), "{code}");
        if let Some((text, run)) = broken {
            let ended = said(&text, run);
            assert_eq!(drawn(&ended.err), [code.0], "{code}: {}", ended.err);
        }
        if let Some((text, run)) = mended {
            let ended = said(&text, run).done();
            assert_eq!(drawn(&ended.err), <[&str; 0]>::default(), "{code}: {}", ended.err);
        }
    }
}

#[test]
fn pages_are_printed_and_codes_are_listed() {
    let folder = Folder::new();
    let all = folder.squall(&["explain"]).done().out;
    assert_eq!(all.lines().count(), codes().len());
    assert!(all.contains("\nE0227  ranks wait for each other in a cycle\n"), "{all}");
    assert_eq!(folder.squall(&["explain", "e0227"]).done().out, page("E0227").unwrap());
    let two = folder.squall(&["explain", "E0224", "E0225"]).done().out;
    assert_eq!(two, format!("{}\n{}", page("E0224").unwrap(), page("E0225").unwrap()));
    folder.squall(&["explain", "E0224", "E9999"]).failed(2, &["there is no code `E9999`"]);
}

/// What is drawn ends with how to learn more.
#[test]
fn a_report_names_its_pages() {
    let unknown = "manifest = 1\n[pipeline]\nstep = 1\nstaps = \"1\"\n[params]\nn = \"1 +\"\n";
    let folder = Folder::with(unknown);
    folder.squall(&["check", "m.toml"]).failed(2, &["3 errors; `squall explain E0102 E0120` says more\n"]);
}
