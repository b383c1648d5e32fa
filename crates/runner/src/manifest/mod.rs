//! The manifest: from text to a typed tree.
//!
//! TOML is read key by key rather than through serde, so that every value keeps its place and one error hides no
//! other. What needs no knowledge of kernels, ops and devices is decided here: keys, types, names, the syntax of
//! expressions, circles of definitions. Arguments stay as written until their descriptors are known.

mod buffer;
mod checkpoint;
mod collect;
mod cycles;
mod data;
pub mod devices;
mod habits;
mod levels;
pub mod model;
pub mod names;
mod pipeline;
pub mod place;
mod plugin;
pub(crate) mod print;
mod reader;
mod scope;
mod set;
mod syntax;
mod task;
pub mod template;
mod unused;
mod watch;
mod world;

use squall_core::{Diagnostic, Label, Span};
use toml::de::DeValue;

pub use levels::{Key, keys};
pub use model::Manifest;
pub use pipeline::parse_duration;
pub use syntax::MAX_SIZE;

use self::collect::Diagnostics;
pub(crate) use self::levels::TASK_KEYS;
use self::reader::{Fields, Reader};
pub(crate) use self::scope::Scope;
use crate::codes;

/// The version of the language that this build reads.
const VERSION: u64 = 1;

/// Reads a manifest file.
///
/// # Errors
/// As [`parse`], and bytes that are no UTF-8. To draw that one, decode the bytes with replacement characters.
pub fn parse_bytes(bytes: &[u8]) -> Result<(Manifest, Vec<Diagnostic>), Vec<Diagnostic>> {
    match syntax::decode(bytes) {
        Ok(text) => parse(text),
        Err(diagnostic) => Err(vec![*diagnostic]),
    }
}

/// Reads a manifest. With it come the warnings, in file order.
///
/// # Errors
/// Everything that is wrong with the text, in file order; at most about a hundred errors are listed. Warnings are
/// not among them: what an error keeps from being read would seem unused.
pub fn parse(text: &str) -> Result<(Manifest, Vec<Diagnostic>), Vec<Diagnostic>> {
    let root = syntax::document(text).map_err(Diagnostics::sorted)?;
    if root.is_empty() {
        let help = "a manifest begins with `manifest = 1`";
        return Err(vec![
            Diagnostic::error(codes::VERSION, "the manifest is empty", Label::default()).with_help(help),
        ]);
    }
    let mut reader = Reader::new(text, &root);
    let fields = reader.fields(&root, Span { start: 0, end: 0 }, &levels::ROOT);
    check_version(&mut reader, &fields).map_err(|other_version| vec![*other_version])?;
    let manifest = read(&mut reader, &fields);
    cycles::check(&manifest).into_iter().for_each(|diagnostic| reader.report(diagnostic));
    let (names, used, diagnostics) = reader.finish();
    if !diagnostics.is_empty() {
        return Err(diagnostics.sorted());
    }
    let mut warnings = Diagnostics::default();
    unused::check(&manifest.params, &manifest.communicators, &manifest.buffers, &used)
        .for_each(|warning| warnings.push(warning));
    Ok((Manifest { names, ..manifest }, warnings.sorted()))
}

/// Reports a missing version; another version is returned, since nothing that this build says of the rest would
/// be true.
fn check_version<'s>(reader: &mut Reader<'s>, root: &Fields<'_, 's>) -> Result<(), Box<Diagnostic>> {
    let help = format!("write `manifest = {VERSION}`");
    let Some(field) = root.get("manifest") else {
        let label = Label::at(root.span, "no `manifest` in this file");
        reader.report(
            Diagnostic::error(codes::VERSION, "the manifest does not say its version", label).with_help(help),
        );
        return Ok(());
    };
    if !matches!(field.node.get_ref(), DeValue::Integer(_)) {
        reader.wrong_type_with_help::<()>(field, "the version of the language", Some(help));
        return Ok(());
    }
    match reader.integer(field, 0) {
        Some(version) if version.value != VERSION => {
            let message =
                format!("the manifest is of version {}, and this build reads {VERSION}", version.value);
            Err(Box::new(
                Diagnostic::error(codes::VERSION, message, Label::at(version.span, "")).with_help(help),
            ))
        }
        _ => Ok(()),
    }
}

fn read<'s>(reader: &mut Reader<'s>, root: &Fields<'_, 's>) -> Manifest {
    Manifest {
        pipeline: pipeline::read(reader, root),
        plugins: plugin::read(reader, root),
        params: world::params(reader, root),
        world: world::world(reader, root),
        communicators: world::communicators(reader, root),
        buffers: buffer::read(reader, root),
        setup: task::read(reader, root, "setup"),
        tasks: task::read(reader, root, "task"),
        finish: task::read(reader, root, "finish"),
        watches: watch::read(reader, root),
        checkpoint: checkpoint::read(reader, root),
        names: Default::default(),
    }
}
