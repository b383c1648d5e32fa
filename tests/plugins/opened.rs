//! A process opens a library once: what that means for files with two names, that change, and that were refused.

use std::fs;
use std::path::Path;

use squall_core::{Diagnostic, Problems, Registry, Span};
use squall_runner::codes;
use squall_runner::plugin::{Loaded, Source, Wanted, load};
use tempfile::TempDir;

use crate::built::{Folder, cc};

/// A plugin that fails if it is begun twice, with a change to its tables, in a folder of its own.
fn built(change: &str) -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("liba.so");
    cc("plugins/misbehaving/tables.c", &["-shared", &format!("-DCHANGE={change}")], path.clone());
    (folder, path)
}

/// The only thing that is wrong.
fn alone(problems: Problems) -> Diagnostic {
    let [problem] = &problems.0[..] else { panic!("{problems:?}") };
    problem.clone()
}

fn loaded(paths: &[&Path]) -> Result<Loaded, Problems> {
    let wanted: Vec<Wanted> = paths.iter().map(|path| Wanted::option(path)).collect();
    load(&Registry::linked().unwrap(), &wanted)
}

#[test]
fn one_file_by_two_names_is_one_plugin() {
    let (folder, path) = built("(void)0");
    let other = folder.path().join("libb.so");
    fs::hard_link(&path, &other).unwrap();
    assert_eq!(loaded(&[&path, &other]).unwrap().origins.len(), 1);
    // It was begun once.
    assert_eq!(loaded(&[&other]).unwrap().origins, loaded(&[&path]).unwrap().origins);

    let named = |path: &Path, start: u32| Wanted {
        path: path.to_path_buf(),
        sha256: None,
        source: Source::Manifest { path: Some(Span { start, end: start + 1 }), sha256: None },
    };
    let twice = load(&Registry::linked().unwrap(), &[named(&path, 0), named(&other, 5)]);
    let twice = alone(twice.unwrap_err());
    assert_eq!((twice.code, twice.related.len()), (codes::PLUGIN_TWICE, 1));
    assert_eq!(twice.primary.span.map(|span| span.start), Some(5));
}

#[test]
fn another_file_in_the_place_of_one_that_is_open_is_refused() {
    let (_folder, path) = built("(void)0");
    let (_other, new) = built("plugin.version = \"2\"");
    assert_eq!(loaded(&[&path]).unwrap().origins.len(), 1);
    fs::rename(&new, &path).unwrap();
    let refused = alone(loaded(&[&path]).unwrap_err());
    assert_eq!(refused.code, codes::PLUGIN_OPEN);
    assert!(refused.message.contains("it has changed since"), "{}", refused.message);
}

#[test]
fn what_was_refused_is_not_begun_again() {
    let (_folder, path) = built("op.name = 0");
    for _ in 0..2 {
        let refused = alone(loaded(&[&path]).unwrap_err());
        assert_eq!(refused.code, codes::PLUGIN_TABLES, "{}", refused.message);
    }
}

#[test]
fn a_library_that_lacks_another_is_told_with_the_loaders_words() {
    let folder = Folder::new();
    let source = folder.write(
        "lacking.c",
        "#include \"squall_plugin.h\"\nextern void nowhere(void);\n\
         SQUALL_EXPORT const struct squall_plugin *squall_plugin(const squall_host *host) {\n\
         (void)host;\nnowhere();\nreturn 0;\n}\n",
    );
    cc(source.to_str().unwrap(), &["-shared"], folder.path("liblacking.so"));
    folder.write("m.toml", "manifest = 1\n[[plugin]]\npath = \"liblacking.so\"\n");
    let said = folder.squall(&["check", "m.toml"]);
    assert_eq!(said.status, Some(2), "{}", said.error);
    for part in ["error[E0172]: the plugin `liblacking.so` cannot be opened", "nowhere", "m.toml:3:8"] {
        assert!(said.error.contains(part), "{part}\n{}", said.error);
    }
}

#[test]
fn all_plugins_that_cannot_be_loaded_are_told_of() {
    let folder = Folder::new();
    cc("plugins/misbehaving/tables.c", &["-shared"], folder.path("liba.so"));
    folder.write("libb.so", "no library");
    let plugins = ["none.so", "liba.so", "libb.so"].map(|path| format!("[[plugin]]\npath = \"{path}\"\n"));
    folder.write("m.toml", &format!("manifest = 1\n{}", plugins.concat()));
    let said = folder.squall(&["check", "m.toml"]);
    assert_eq!(said.status, Some(2), "{}", said.error);
    for part in ["`none.so`", "m.toml:3:8", "`libb.so`", "m.toml:7:8", "2 errors"] {
        assert!(said.error.contains(part), "{part}\n{}", said.error);
    }
}

#[test]
fn a_manifest_that_names_one_plugin_twice() {
    let folder = Folder::new();
    cc("plugins/misbehaving/tables.c", &["-shared"], folder.path("liba.so"));
    folder
        .write("m.toml", "manifest = 1\n[[plugin]]\npath = \"liba.so\"\n[[plugin]]\npath = \"./liba.so\"\n");
    let said = folder.squall(&["check", "m.toml"]);
    assert_eq!(said.status, Some(2), "{}", said.error);
    insta::assert_snapshot!("one_plugin_twice", said.error);
    // By the manifest and on the command line is no fault.
    folder.write("m.toml", "manifest = 1\n[[plugin]]\npath = \"liba.so\"\n");
    let said = folder.squall(&["check", "m.toml", "--plugin", "liba.so"]);
    assert_eq!((said.status, said.error.as_str()), (Some(0), ""));
}
