//! `[[watch]]`.

use std::collections::BTreeMap;

use squall_core::{Diagnostic, Label};
use toml::de::DeValue;

use super::levels;
use super::model::{Watch, WatchEvery};
use super::place::At;
use super::reader::{Field, Fields, Reader};
use super::scope::Scope;
use crate::codes;

/// Reads the tables `[[watch]]`.
pub(crate) fn read<'s>(reader: &mut Reader<'s>, root: &Fields<'_, 's>) -> Vec<Watch> {
    let tables = root.get("watch").map(|field| reader.tables(field, &levels::WATCH)).unwrap_or_default();
    let watches: Vec<Watch> = tables.iter().filter_map(|fields| watch(reader, fields)).collect();
    let mut names = BTreeMap::new();
    for Watch { name, .. } in &watches {
        if let Some(first) = names.insert(name.value.as_str(), name.span) {
            let message = format!("two watches are named `{}`", name.value);
            let diagnostic =
                Diagnostic::error(codes::DUPLICATE_NAME, message, Label::at(name.span, "the second"))
                    .with_related(Label::at(first, "the first"));
            reader.report(diagnostic);
        }
    }
    watches
}

fn watch<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>) -> Option<Watch> {
    let name = fields.need(reader, "name").and_then(|field| reader.word(field));
    let scope = Scope { buffers: true, ..Scope::default() };
    let value = fields.need(reader, "value").and_then(|field| reader.formula(field, scope));
    let every = fields.get("every").map_or(Some(At::default(WatchEvery::End)), |field| every(reader, field));
    let rank = fields.get("rank").and_then(|field| reader.formula(field, Scope::default()));
    Some(Watch { name: name?, value: value?, every: every?, rank })
}

fn every<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<At<WatchEvery>> {
    match field.node.get_ref() {
        DeValue::String(_) => reader.choice(field, &[("end", WatchEvery::End)]),
        DeValue::Integer(_) => {
            let steps = reader.integer(field, 1)?;
            Some(At::new(WatchEvery::Steps(steps.value), field.span()))
        }
        _ => reader.wrong_type(field, "a number of steps or `\"end\"`"),
    }
}
