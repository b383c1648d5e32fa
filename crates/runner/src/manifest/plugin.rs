//! `[[plugin]]`.

use super::levels;
use super::model::Plugin;
use super::reader::{Fields, Reader};

/// Reads the tables `[[plugin]]`. Nothing is opened: see [`crate::plugin`].
pub(crate) fn read<'s>(reader: &mut Reader<'s>, root: &Fields<'_, 's>) -> Vec<Plugin> {
    let tables = root.get("plugin").map(|field| reader.tables(field, &levels::PLUGIN)).unwrap_or_default();
    tables.iter().filter_map(|fields| plugin(reader, fields)).collect()
}

fn plugin<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>) -> Option<Plugin> {
    let path = fields.need(reader, "path").and_then(|field| {
        let path = reader.word(field)?;
        if path.value.is_empty() {
            let help = "name the library that building the plugin made".to_owned();
            return reader.bad_value(field, "the path of a plugin is empty".to_owned(), help);
        }
        Some(path)
    });
    let sha256 = match fields.get("sha256") {
        None => None,
        Some(field) => {
            let hash = reader.word(field)?;
            if hash.value.len() != 64 || !hash.value.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                let help = "`sha256sum` prints that of a file".to_owned();
                let message = "a SHA-256 is 64 hexadecimal digits".to_owned();
                return reader.bad_value(field, message, help);
            }
            Some(hash)
        }
    };
    Some(Plugin { path: path?, sha256 })
}
