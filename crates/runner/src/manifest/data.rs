//! Files that buffers are read from: `npy` and `safetensors` of `init`, and `feed`.

use squall_core::{Diagnostic, Label};
use toml::de::DeValue;

use super::levels;
use super::model::{DataFile, Feed, FeedEnd, Part, SliceRange};
use super::place::{At, FormulaError};
use super::reader::{Field, Fields, Reader};
use super::scope::Scope;
use crate::codes;
use crate::expr::{AxisIndex, parse_axis};

/// Reads the file that `source` names, with what a rank takes of it.
pub(crate) fn file<'s>(
    reader: &mut Reader<'s>,
    fields: &Fields<'_, 's>,
    source: Field<'_, 's>,
) -> Option<DataFile> {
    let name = reader.template(source);
    let shard = fields.get("shard");
    let slice = fields.get("slice");
    if let (Some(shard), Some(slice)) = (shard, slice) {
        reader.conflict(shard, slice);
    }
    let part = match (shard, slice) {
        (_, Some(slice)) => ranges(reader, slice).map(Part::Slice),
        (Some(shard), None) => reader.choice(shard, &[("rows", ())]).map(|_| Part::Rows),
        (None, None) => Some(Part::Whole),
    };
    let convert = fields.get("convert").map_or(Some(false), |on| reader.boolean(on).map(|on| on.value));
    Some(DataFile { name: name?, part: part?, convert: convert? })
}

/// Reports keys that only a file has, in an `init` without one.
pub(crate) fn refuse_parts<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>) {
    let helps = [
        ("shard", "only a file is split between the ranks; an expression can use `rank` and `world`"),
        ("slice", "only of a file a part is taken; an expression can use `i`, `rank` and `world`"),
        ("convert", "only a file has a dtype of its own; numbers become the buffer's in any case"),
    ];
    for (key, help) in helps {
        if let Some(field) = fields.get(key) {
            let label = Label::at(field.key_span, "without `npy` or `safetensors`");
            let report = Diagnostic::error(codes::CONFLICTING_KEYS, format!("`{key}` needs a file"), label);
            reader.report(report.with_help(help));
        }
    }
}

/// `slice`: one range an axis.
fn ranges<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<At<Vec<SliceRange>>> {
    let DeValue::Array(items) = field.node.get_ref() else {
        let help = match field.node.get_ref() {
            DeValue::String(range) => Some(format!("write `slice = [\"{range}\"]`")),
            _ => None,
        };
        return reader.wrong_type_with_help(field, "an array of ranges, as `[\"0:4\"]`", help);
    };
    let read: Vec<Option<SliceRange>> = items.iter().map(|item| range(reader, field.part(item))).collect();
    Some(At::new(read.into_iter().collect::<Option<_>>()?, field.span()))
}

fn range<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<SliceRange> {
    let text = reader.text_or(field, "ranges, as `\"0:4\"`")?;
    let (start, end) = match parse_axis(&text.value) {
        Ok(AxisIndex::Range { start, end }) => (start, end),
        Ok(AxisIndex::Single(_)) => {
            let one = text.value.trim();
            let message = format!("`{one}` is one place, and `slice` takes a range along each axis");
            let help = format!(
                "one place is a range of length 1, as `\"{one} : {one} + 1\"`; all of an axis is `\":\"`"
            );
            return reader.bad_value(field, message, help);
        }
        Err(error) => {
            reader.formula_error(&FormulaError::new(error, &text.place));
            return None;
        }
    };
    let mut bound = |expr: Option<crate::expr::Expr>| match expr {
        None => Some(None),
        Some(expr) => {
            let formula = super::place::Formula { expr, place: text.place.clone() };
            reader.checked(formula, Scope::default()).map(Some)
        }
    };
    let (start, end) = (bound(start), bound(end));
    Some(SliceRange { start: start?, end: end?, span: field.span() })
}

/// Reads `feed`.
pub(crate) fn feed<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<At<Feed>> {
    let fields = reader.table(field, &levels::FEED)?;
    let file = fields.need(reader, "npy").and_then(|source| file(reader, &fields, source));
    let shuffle = fields.get("shuffle").map_or(Some(false), |on| reader.boolean(on).map(|on| on.value));
    let end = end(reader, &fields);
    Some(At::new(Feed { file: file?, shuffle: shuffle?, end: end? }, field.span()))
}

/// `end` and `pad`.
fn end<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>) -> Option<FeedEnd> {
    let pad = fields.get("pad");
    let value = pad.map(|field| reader.formula(field, Scope::default()));
    let words = [("wrap", "wrap"), ("stop", "stop"), ("pad", "pad")];
    let end = match fields.get("end") {
        None => "wrap",
        Some(field) => reader.choice(field, &words)?.value,
    };
    if let Some(pad) = pad.filter(|_| end != "pad") {
        let label = Label::at(pad.key_span, "nothing is padded");
        let report = Diagnostic::error(codes::CONFLICTING_KEYS, "`pad` needs `end = \"pad\"`", label);
        reader.report(report.with_help("write `end = \"pad\"` beside it, or leave `pad` out"));
        return None;
    }
    Some(match end {
        "stop" => FeedEnd::Stop,
        "pad" => match value {
            None => FeedEnd::Pad(None),
            Some(value) => FeedEnd::Pad(Some(value?)),
        },
        _ => FeedEnd::Wrap,
    })
}
