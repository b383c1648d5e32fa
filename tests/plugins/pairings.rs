//! Old and new ones, on either side of the ABI, in C: each uses what the other has, and sees what it lacks.

use std::path::Path;
use std::process::Command;

use crate::built::{Folder, cc};

const NEXT: &[&str] = &["-DNEXT"];
const FIRST: &[&str] = &[];

fn plugin(folder: &Folder, version: &[&str]) -> std::path::PathBuf {
    cc("tests/plugins/pairings/plugin.c", &[&["-shared"], version].concat(), folder.path("libplugin.so"))
}

/// What a host of one version says of a plugin of another.
fn pair(host: &[&str], plugin_version: &[&str]) -> String {
    let folder = Folder::new();
    let plugin = plugin(&folder, plugin_version);
    let host = cc("tests/plugins/pairings/host.c", &[host, &["-ldl"]].concat(), folder.path("host"));
    said(&host, &plugin)
}

fn said(host: &Path, plugin: &Path) -> String {
    let output = Command::new(host).arg(plugin).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn all_four_load_and_an_absent_function_is_seen_as_absent() {
    assert_eq!(pair(FIRST, FIRST), "first: the plugin saw 0\n");
    assert_eq!(pair(FIRST, NEXT), "next: the plugin saw -1\n");
    assert_eq!(pair(NEXT, FIRST), "first: the plugin saw 0, the host nothing\n");
    assert_eq!(pair(NEXT, NEXT), "next: the plugin saw 42, the host 42\n");
}

#[test]
fn squall_loads_both() {
    for version in [FIRST, NEXT] {
        let folder = Folder::new();
        let plugin = plugin(&folder, version);
        let said = folder.squall(&["list", "plugins", "--plugin", plugin.to_str().unwrap()]);
        assert_eq!((said.status, said.error.as_str()), (Some(0), ""));
    }
}
