//! `[buffer.NAME]`.

use squall_core::{DType, Diagnostic, Label};
use toml::de::DeValue;

use super::model::{Buffer, Download, Init, Save, SaveFormat, SaveRanks, Upload};
use super::place::At;
use super::reader::{Field, Fields, Reader};
use super::scope::Scope;
use super::{data, habits, levels};
use crate::codes;

/// Reads the tables `[buffer.NAME]`.
pub(crate) fn read<'s>(reader: &mut Reader<'s>, root: &Fields<'_, 's>) -> Vec<Buffer> {
    let entries = root.get("buffer").map(|field| reader.entries(field, "[buffer.NAME]")).unwrap_or_default();
    entries.into_iter().filter_map(|entry| buffer(reader, entry)).collect()
}

fn buffer<'s>(reader: &mut Reader<'s>, entry: Field<'_, 's>) -> Option<Buffer> {
    let fields = reader.table(entry, &levels::BUFFER)?;
    let dtype = fields.need(reader, "dtype").and_then(|field| dtype(reader, field));
    let shape = fields.need(reader, "shape").and_then(|field| reader.formulas(field, Scope::default()));
    let init = fields.get("init").and_then(|field| init(reader, field));
    let feed = fields.get("feed").and_then(|field| data::feed(reader, field));
    let uploads = [("first", Upload::First), ("every", Upload::Every), ("never", Upload::Never)];
    let upload = fields.get("upload").and_then(|field| reader.choice(field, &uploads));
    check_upload(reader, &fields, upload);
    let downloads = [("never", Download::Never), ("every", Download::Every), ("last", Download::Last)];
    let download = fields.get("download").and_then(|field| reader.choice(field, &downloads));
    let save = fields.get("save").and_then(|field| save(reader, field));
    Some(Buffer {
        name: At::new(entry.key.to_owned(), entry.key_span),
        dtype: dtype?,
        shape: shape?,
        init,
        feed,
        upload: upload.unwrap_or(At::default(Upload::First)),
        download: download.unwrap_or(At::default(Download::Never)),
        save,
    })
}

/// Reports an `upload` that says otherwise than where the contents come from.
fn check_upload<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>, upload: Option<At<Upload>>) {
    let (Some(field), Some(upload)) = (fields.get("upload"), upload) else { return };
    match (upload.value, fields.get("feed"), fields.get("init")) {
        (Upload::First | Upload::Never, Some(feed), _) => {
            let message = "a `feed` is uploaded before every step, whatever `upload` says";
            let label = Label::at(field.key_span, "not `every`");
            let report = Diagnostic::error(codes::CONFLICTING_KEYS, message, label);
            reader.report(
                report.with_related(Label::at(feed.key_span, "the feed")).with_help("leave `upload` out"),
            );
        }
        (Upload::Every, None, None) if !fields.misspells(&["init", "feed"]) => {
            let message =
                "`upload = \"every\"` has nothing to upload: the buffer has neither `init` nor `feed`";
            let label = Label::at(field.key_span, "nothing to upload");
            let report = Diagnostic::error(codes::CONFLICTING_KEYS, message, label);
            reader.report(report.with_help("give the buffer an `init`, or leave `upload` out"));
        }
        _ => {}
    }
}

fn dtype<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<At<DType>> {
    let text = reader.text(field)?;
    if let Ok(dtype) = text.value.parse() {
        return Some(At::new(dtype, field.span()));
    }
    let help = match habits::dtype(&text.value) {
        Some(dtype) => format!("write `\"{dtype}\"`"),
        None => {
            let names: Vec<_> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
            format!("the dtypes are {}", names.join(", "))
        }
    };
    reader.bad_value(field, format!("`{}` is not a dtype", text.value), help)
}

/// One of several keys that exclude each other, or a report.
fn one_of<'t, 's>(
    reader: &mut Reader<'s>,
    fields: &Fields<'t, 's>,
    keys: &[&str],
    what: &str,
) -> Option<Field<'t, 's>> {
    let mut found: Vec<_> = keys.iter().filter_map(|key| fields.get(key)).collect();
    found.sort_by_key(|field| field.key_span.start);
    match found.as_slice() {
        [one] => Some(*one),
        [] if fields.misspells(keys) => None,
        [] => {
            let listed = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            let message = format!("{what} has none of {listed}");
            reader.error(codes::MISSING_KEY, message, fields.span, "one of them is needed here");
            None
        }
        [first, second, ..] => {
            reader.conflict(*first, *second);
            None
        }
    }
}

fn init<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<At<Init>> {
    if !matches!(field.node.get_ref(), DeValue::Table(_)) {
        let help = match field.node.get_ref() {
            DeValue::Array(_) => "a list is written `init = { values = [1, 2] }`",
            _ => "one value for all elements is written `init = { fill = 0.0 }`",
        };
        return reader.wrong_type_with_help(field, "a table", Some(help.to_owned()));
    }
    let fields = reader.table(field, &levels::INIT)?;
    let keys = ["fill", "values", "iota", "random", "npy", "safetensors"];
    let source = one_of(reader, &fields, &keys, "`init`")?;
    if let Some(tensor) = fields.get("tensor").filter(|_| source.key != "safetensors") {
        reader.conflict(source, tensor);
    }
    if !matches!(source.key, "npy" | "safetensors") {
        data::refuse_parts(reader, &fields);
    }
    let init = match source.key {
        "fill" => Init::Fill(reader.formula(source, Scope { element: true, ..Scope::default() })?),
        "values" => Init::Values(reader.formulas(source, Scope::default())?.value),
        "iota" => reader.flag(source).map(|()| Init::Iota)?,
        "random" => random(reader, source)?,
        "npy" => Init::Npy(data::file(reader, &fields, source)?),
        _ => {
            let file = data::file(reader, &fields, source);
            let tensor = fields.need(reader, "tensor").and_then(|field| reader.template(field));
            Init::Safetensors { file: file?, tensor: tensor? }
        }
    };
    Some(At::new(init, field.span()))
}

fn random<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<Init> {
    let fields = reader.table(field, &levels::RANDOM)?;
    let uniform = ["low", "high"].iter().find_map(|key| fields.get(key));
    let normal = ["mean", "std"].iter().find_map(|key| fields.get(key));
    if let (Some(uniform), Some(normal)) = (uniform, normal) {
        reader.conflict(uniform, normal);
        return None;
    }
    let mut number = |key| {
        let field = fields.need(reader, key)?;
        reader.formula(field, Scope::default())
    };
    if normal.is_some() {
        let (mean, std) = (number("mean"), number("std"));
        Some(Init::Normal { mean: mean?, std: std? })
    } else {
        let (low, high) = (number("low"), number("high"));
        Some(Init::Uniform { low: low?, high: high? })
    }
}

fn save<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<At<Save>> {
    if let DeValue::String(name) = field.node.get_ref() {
        if name.to_ascii_lowercase().ends_with(".png") {
            let message = "a name alone is that of an array file".to_owned();
            let help = format!("a picture is written `save = {{ png = \"{name}\", gather = true }}`");
            return reader.bad_value(field, message, help);
        }
        let file = reader.template(field)?;
        return Some(At::new(Save { format: SaveFormat::Npy, file, ranks: SaveRanks::Each }, field.span()));
    }
    if !matches!(field.node.get_ref(), DeValue::Table(_)) {
        return reader.wrong_type(field, "a file name or a table");
    }
    let fields = reader.table(field, &levels::SAVE)?;
    let target = one_of(reader, &fields, &["npy", "png"], "`save`")?;
    let format = if target.key == "npy" { SaveFormat::Npy } else { SaveFormat::Png };
    let file = reader.template(target);
    let ranks = match (fields.get("rank"), fields.get("gather")) {
        (Some(rank), Some(gather)) => {
            reader.conflict(rank, gather);
            None
        }
        (Some(rank), None) => reader.formula(rank, Scope::default()).map(SaveRanks::One),
        (None, Some(gather)) => reader.flag(gather).map(|()| SaveRanks::Gather),
        (None, None) => Some(SaveRanks::Each),
    };
    Some(At::new(Save { format, file: file?, ranks: ranks? }, field.span()))
}
