//! `[checkpoint]`.

use super::levels;
use super::model::Checkpoint;
use super::place::At;
use super::reader::{Field, Fields, Reader};

/// How many checkpoints are kept where the manifest does not say.
const KEEP: u64 = 2;

/// Reads `[checkpoint]`, which may be left out.
pub(crate) fn read<'s>(reader: &mut Reader<'s>, root: &Fields<'_, 's>) -> Option<Checkpoint> {
    let fields = reader.table(root.get("checkpoint")?, &levels::CHECKPOINT)?;
    let dir = fields.need(reader, "dir").and_then(|field| dir(reader, field));
    let every = fields.need(reader, "every").and_then(|field| reader.integer(field, 1));
    let keep = fields.get("keep").map_or(Some(At::default(KEEP)), |field| reader.integer(field, 1));
    Some(Checkpoint { dir: dir?, every: every?, keep: keep? })
}

/// The name of a folder, the same for all ranks.
fn dir<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<At<String>> {
    let template = reader.template(field)?;
    if template.depends_on_rank() {
        let help = "leave `{rank}` out: each rank has a file of its own in every checkpoint".to_owned();
        return reader.bad_value(field, "all ranks' checkpoints lie in one folder".to_owned(), help);
    }
    Some(At::new(template.written(), field.span()))
}
