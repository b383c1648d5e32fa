//! A plugin exports its entry, and nothing that could stand in for a symbol of squall or of another plugin.

use std::fs;
use std::path::Path;

use object::{Object as _, ObjectSymbol as _};

use crate::built::{Folder, cc, released_plugin, ring_plugin, rust_plugin};

fn exported(library: &Path) -> Vec<String> {
    let bytes = fs::read(library).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let own = file.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
    own.map(|symbol| symbol.name().unwrap().to_owned()).collect()
}

#[test]
fn a_plugin_exports_one_symbol() {
    for library in [
        &*rust_plugin("misbehaving"),
        &rust_plugin("top-k-reduce"),
        &released_plugin("misbehaving"),
        ring_plugin(),
    ] {
        assert_eq!(exported(library), ["squall_plugin"], "{}", library.display());
    }
}

#[test]
fn another_symbol_is_seen() {
    let folder = Folder::new();
    let library = folder.path("libfault.so");
    let library = cc("plugins/misbehaving/faults.c", &["-shared", "-DFAULT=NO_ENTRY"], library);
    assert_eq!(exported(&library), ["another_entry"]);
}
