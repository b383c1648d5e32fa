//! The committed layout, and what may change in it.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::header::c_type;
use crate::{source, table};

/// A line for each constant, and for each struct a line and one for each of its fields: offset, size, name, type as C has it.
fn layout() -> String {
    let mut text = String::new();
    for (name, value) in table::constants() {
        writeln!(text, "const {name} = {value:#x}").unwrap();
    }
    writeln!(text, "const ENTRY = {}", squall_plugin::abi::ENTRY).unwrap();
    for (seen, written) in table::structs().iter().zip(source::structs()) {
        let is_table = seen.fields.iter().any(|field| field.name == "header");
        let kind = if is_table { "table" } else { "frozen" };
        writeln!(text, "\n{kind} {}", seen.name).unwrap();
        for (field, (_, of)) in seen.fields.iter().zip(written.fields) {
            writeln!(text, "  {} {} {}: {}", field.offset, field.size, field.name, c_type(&of)).unwrap();
        }
    }
    text
}

/// What `new` breaks of `old`, a line each. Fields may be appended to tables, and constants and structs be added, under a greater
/// minor version; all else is for a major one.
fn broken(old: &str, new: &str) -> Vec<String> {
    let mut found = Vec::new();
    if old == new {
        return found;
    }
    if minor(new) <= minor(old) {
        found.push("the ABI changed, so ABI_MINOR must grow".to_owned());
    }
    for line in old.lines().filter(|line| line.starts_with("const") && !line.contains(" ABI_MINOR ")) {
        if !new.lines().any(|other| other == line) {
            found.push(format!("changed or gone: {line}"));
        }
    }
    for (name, fields) in structs(old) {
        let now = structs(new).into_iter().find(|(other, _)| *other == name);
        let fine = now.is_some_and(|(_, now)| match name.starts_with("table") {
            true => now.starts_with(&fields),
            false => now == fields,
        });
        if !fine {
            found.push(format!("{name} is not what it was"));
        }
    }
    found
}

fn minor(layout: &str) -> u32 {
    let line = layout.lines().find_map(|line| line.strip_prefix("const ABI_MINOR = 0x"));
    u32::from_str_radix(line.unwrap(), 16).unwrap()
}

/// The structs, each with its fields.
fn structs(layout: &str) -> Vec<(&str, Vec<&str>)> {
    let blocks = layout.split("\n\n").skip(1);
    blocks.map(|block| (block.lines().next().unwrap(), block.lines().skip(1).collect())).collect()
}

#[test]
fn the_layout_is_the_committed_one() {
    let file = format!("abi/{}.txt", squall_plugin::abi::ABI_MAJOR);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(&file);
    let (old, new) = (fs::read_to_string(&path).unwrap_or_default(), layout());
    if !old.is_empty() {
        let broken = broken(&old, &new);
        assert!(broken.is_empty(), "plugins that are built would break:\n{}", broken.join("\n"));
    }
    if std::env::var_os("SQUALL_UPDATE").is_some() {
        fs::write(&path, new).unwrap();
    } else {
        assert_eq!(old, new, "the ABI grew: run this test with SQUALL_UPDATE=1 and commit {file}");
    }
}

const OLD: &str =
    "const ABI_MINOR = 0x0\nconst OK = 0x0\n\nfrozen Grid\n  0 4 x: u32\n\ntable Op\n  0 16 header: Header\n";

/// What is said of `OLD` with these replacements.
fn said(replaced: &[(&str, &str)]) -> String {
    let new = replaced.iter().fold(OLD.to_owned(), |text, (from, to)| {
        assert!(text.contains(from));
        text.replace(from, to)
    });
    broken(OLD, &new).join("; ")
}

const GREATER: (&str, &str) = ("MINOR = 0x0", "MINOR = 0x1");
const APPENDED: (&str, &str) = ("header: Header\n", "header: Header\n  16 8 y: u64\n");

#[test]
fn a_table_may_grow_under_a_greater_minor_version() {
    assert_eq!(said(&[]), "");
    assert_eq!(said(&[GREATER, APPENDED]), "");
    assert_eq!(said(&[GREATER, ("OK = 0x0\n", "OK = 0x0\nconst MORE = 0x1\n")]), "");
    assert_eq!(said(&[APPENDED]), "the ABI changed, so ABI_MINOR must grow");
}

#[test]
fn nothing_else_may_change() {
    assert_eq!(said(&[GREATER, ("OK = 0x0", "OK = 0x1")]), "changed or gone: const OK = 0x0");
    assert_eq!(said(&[GREATER, ("x: u32\n", "x: u32\n  4 4 y: u32\n")]), "frozen Grid is not what it was");
    assert_eq!(said(&[GREATER, ("x: u32", "x: i32")]), "frozen Grid is not what it was");
    assert_eq!(said(&[GREATER, ("table Op", "table Other")]), "table Op is not what it was");
    assert_eq!(
        said(&[GREATER, ("  0 16 header", "  0 4 z: u32\n  4 16 header")]),
        "table Op is not what it was"
    );
    assert_eq!(said(&[GREATER, ("table Op", "frozen Op")]), "table Op is not what it was");
}
