//! `[params]`, `[world]` and `[communicator.NAME]`: the numbers and the ranks of a job.

use toml::de::DeValue;

use super::devices::{DeviceSpec, Devices};
use super::levels;
use super::model::{Axis, Communicator, Mesh, Param, ParamValue, Requirement, World};
use super::place::At;
use super::reader::{Field, Fields, Reader};
use super::scope::Scope;

/// Reads `[params]`.
pub(crate) fn params<'s>(reader: &mut Reader<'s>, root: &Fields<'_, 's>) -> Vec<Param> {
    let entries = root.get("params").map(|field| reader.entries(field, "[params]")).unwrap_or_default();
    entries
        .into_iter()
        .filter_map(|entry| {
            let value = param_value(reader, entry)?;
            Some(Param { name: At::new(entry.key.to_owned(), entry.key_span), value })
        })
        .collect()
}

fn param_value<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<ParamValue> {
    match field.node.get_ref() {
        DeValue::Array(items) => {
            let items = items.iter().filter_map(|item| param_value(reader, field.part(item)));
            Some(ParamValue::List(items.collect()))
        }
        DeValue::Table(_) | DeValue::Datetime(_) => {
            reader.wrong_type(field, "a number, an expression or a list")
        }
        _ => reader.formula_or_boolean(field, Scope::default()).map(ParamValue::Formula),
    }
}

/// Reads `[world]`, which may be left out.
pub(crate) fn world<'s>(reader: &mut Reader<'s>, root: &Fields<'_, 's>) -> World {
    let fields = root.get("world").and_then(|field| reader.table(field, &levels::WORLD));
    let devices = fields.and_then(|fields| fields.get("devices")).and_then(|field| devices(reader, field));
    let get = |key| fields.and_then(|fields| fields.get(key));
    let require = get("require").map(|field| require(reader, field)).unwrap_or_default();
    let mesh = get("mesh").and_then(|field| mesh(reader, field));
    World { devices: devices.unwrap_or(At::default(Devices::Auto)), require, mesh }
}

fn require<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Vec<Requirement> {
    let DeValue::Array(items) = field.node.get_ref() else {
        let help = match field.node.get_ref() {
            DeValue::String(one) => format!("write `require = [\"{one}\"]`"),
            _ => "conditions are written `require = [\"n % 64 == 0\"]`".to_owned(),
        };
        reader.wrong_type_with_help::<()>(field, "an array of conditions", Some(help));
        return Vec::new();
    };
    let read = |item| {
        let condition = reader.condition(field.part(item), Scope::default())?;
        let text = match item.get_ref() {
            DeValue::String(text) => text.as_ref().to_owned(),
            _ => condition.expr.to_string(),
        };
        Some(Requirement { text, condition })
    };
    items.iter().filter_map(read).collect()
}

fn mesh<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<Mesh> {
    const FORM: &str = "axes are written one by one, the last one fastest: `mesh = [{ dp = \"world / tp_size\" }, { tp = \"tp_size\" }]`";
    let DeValue::Array(items) = field.node.get_ref() else {
        return reader.wrong_type_with_help(field, "an array of axes", Some(FORM.to_owned()));
    };
    if items.is_empty() {
        let message = "`mesh` has no axes".to_owned();
        return reader.bad_value(field, message, "leave the key out".to_owned());
    }
    let axes: Vec<Option<Axis>> = items.iter().map(|item| axis(reader, field.part(item), FORM)).collect();
    Some(Mesh { span: field.span(), axes: axes.into_iter().collect::<Option<_>>()? })
}

fn axis<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>, form: &str) -> Option<Axis> {
    let DeValue::Table(table) = field.node.get_ref() else {
        return reader.wrong_type_with_help(field, "tables of one axis each", Some(form.to_owned()));
    };
    let entries = reader.entries(field, "{ NAME = SIZE }");
    let [entry] = entries.as_slice() else {
        let message = format!("an axis is one name with its size, and this table has {}", table.len());
        return reader.bad_value(field, message, form.to_owned());
    };
    let size = reader.formula(*entry, Scope::default())?;
    Some(Axis { name: At::new(entry.key.to_owned(), entry.key_span), size })
}

fn devices<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<At<Devices>> {
    let DeValue::Array(items) = field.node.get_ref() else {
        let text = reader.text_or(field, "a device or an array of devices")?;
        return match Devices::parse(&text.value) {
            Ok(devices) => Some(At::new(devices, field.span())),
            Err(error) => reader.text_error(error, &text.place),
        };
    };
    if items.is_empty() {
        let message = "`devices` is empty, and a job has at least one rank".to_owned();
        return reader.bad_value(
            field,
            message,
            "leave the key out for whatever the machine offers".to_owned(),
        );
    }
    let specs = items
        .iter()
        .filter_map(|item| {
            let text = reader.text_or(field.part(item), "a device in each place")?;
            match DeviceSpec::parse(&text.value) {
                Ok(spec) => Some(spec),
                Err(error) => reader.text_error(error, &text.place),
            }
        })
        .collect();
    Some(At::new(Devices::Listed(specs), field.span()))
}

/// Reads the tables `[communicator.NAME]`.
pub(crate) fn communicators<'s>(reader: &mut Reader<'s>, root: &Fields<'_, 's>) -> Vec<Communicator> {
    let form = "[communicator.NAME]";
    let entries = root.get("communicator").map(|field| reader.entries(field, form)).unwrap_or_default();
    entries
        .into_iter()
        .filter_map(|entry| {
            let fields = reader.table(entry, &levels::COMMUNICATOR)?;
            let color =
                fields.need(reader, "color").and_then(|field| reader.formula(field, Scope::default()));
            let key = fields.get("key").and_then(|field| reader.formula(field, Scope::default()));
            Some(Communicator { name: At::new(entry.key.to_owned(), entry.key_span), color: color?, key })
        })
        .collect()
}
