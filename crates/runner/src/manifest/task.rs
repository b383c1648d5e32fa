//! `[[setup]]`, `[[task]]` and `[[finish]]`.

use squall_core::{Diagnostic, Label, Span};
use toml::de::DeValue;

use super::model::{
    Arg, ArgValue, Args, Body, Grid, Group, GroupEntry, KernelCall, Loop, OpCall, Swap, Task,
};
use super::place::{At, Formula, FormulaError};
use super::reader::{Field, Fields, Reader};
use super::scope::Scope;
use super::{habits, levels};
use crate::codes;
use crate::expr::{self, NoEnv};

/// Reads the tasks of one section.
pub(crate) fn read<'s>(reader: &mut Reader<'s>, root: &Fields<'_, 's>, section: &str) -> Vec<Task> {
    let gives_block = |key: &str| key == "block" || levels::PIPELINE.suggests(key, "block");
    let pipeline = root.get("pipeline").and_then(|pipeline| pipeline.node.get_ref().as_table());
    let has_block = pipeline.is_some_and(|table| table.keys().any(|key| gives_block(key.get_ref())));
    let tables = root.get(section).map(|field| reader.tables(field, &levels::TASK)).unwrap_or_default();
    tables.iter().filter_map(|fields| task(reader, fields, has_block)).collect()
}

fn task<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>, has_block: bool) -> Option<Task> {
    let name = fields.get("name").and_then(|field| reader.text(field));
    let name = name.map(|text| At::new(text.value, text.place.span()));
    let when = fields.get("when").and_then(|field| reader.condition(field, Scope::default()));
    let body = body(reader, fields, has_block)?;
    Some(Task { name, span: fields.span, when, body })
}

/// The keys one of which says what a task does.
const BODIES: &[&str] = &["kernel", "op", "group", "swap"];

fn body<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>, has_block: bool) -> Option<Body> {
    let mut bodies: Vec<_> = BODIES.iter().filter_map(|key| fields.get(key)).collect();
    bodies.sort_by_key(|field| field.key_span.start);
    match bodies.as_slice() {
        [] if levels::TASK.later.iter().any(|key| fields.get(key).is_some()) => None, // reported as not supported
        [] if fields.misspells(BODIES) => None,
        [] => {
            let message = format!("the task has none of `{}`", BODIES.join("`, `"));
            reader.error(codes::MISSING_KEY, message, fields.span, "does nothing");
            None
        }
        [first, second, ..] => {
            reader.conflict(*first, *second);
            None
        }
        [field] => match field.key {
            "kernel" => kernel(reader, fields, *field, has_block).map(Body::Kernel),
            "op" => {
                refuse(reader, fields, "grid", "an op", "a kernel task alone has a grid");
                op(reader, fields, *field).map(Body::Op)
            }
            "swap" => swap(reader, fields, *field).map(Body::Swap),
            _ => group(reader, fields, *field).map(Body::Group),
        },
    }
}

/// Reports a key that another kind of task has.
fn refuse<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>, key: &str, what: &str, help: &str) {
    if let Some(field) = fields.get(key) {
        let label = Label::at(field.key_span, "at the wrong level");
        let message = format!("{what} has no `{key}`");
        reader.report(Diagnostic::error(codes::MISPLACED_KEY, message, label).with_help(help));
    }
}

fn kernel<'s>(
    reader: &mut Reader<'s>,
    fields: &Fields<'_, 's>,
    field: Field<'_, 's>,
    has_block: bool,
) -> Option<KernelCall> {
    refuse(
        reader,
        fields,
        "library",
        "a kernel task",
        "a library serves ops; a kernel is found by its name alone",
    );
    let kernel = reader.word(field);
    let args = args(reader, fields, None);
    let grid = fields.need(reader, "grid").and_then(|field| grid(reader, field, has_block));
    Some(KernelCall { kernel: kernel?, args, grid: grid? })
}

fn grid<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>, mut has_block: bool) -> Option<Grid> {
    let (threads, block) = match field.node.get_ref() {
        DeValue::Table(_) => {
            let fields = reader.table(field, &levels::GRID)?;
            let threads =
                fields.need(reader, "threads").and_then(|field| reader.dims(field, Scope::default()));
            let block = fields.get("block");
            has_block |= block.is_some() || fields.misspells(&["block"]);
            (threads, block.and_then(|field| reader.dims(field, Scope::default())))
        }
        DeValue::Array(_) => {
            let help =
                "several dimensions are written `grid = { threads = [\"w\", \"h\"], block = [16, 16] }`";
            return reader.wrong_type_with_help(
                field,
                "a number, an expression or a table",
                Some(help.to_owned()),
            );
        }
        _ => (reader.dims(field, Scope::default()), None),
    };
    if !has_block {
        let message = "the kernel task has no `block`, and neither has `[pipeline]`";
        let help = "write `grid = { threads = \"n\", block = 256 }`, or `block = 256` in `[pipeline]`";
        let label = Label::at(field.span(), "no block for these threads");
        reader.report(Diagnostic::error(codes::MISSING_KEY, message, label).with_help(help));
    }
    Some(Grid { threads: threads?, block })
}

fn op<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>, field: Field<'_, 's>) -> Option<OpCall> {
    let op = reader.word(field)?;
    if let Some(meant) = habits::op(&op.value) {
        reader.bad_value::<()>(
            field,
            format!("there is no op `{}`", op.value),
            format!("write `\"{meant}\"`"),
        );
    }
    let library = fields.get("library").and_then(|field| reader.word(field));
    let args = args(reader, fields, Some(&op.value));
    Some(OpCall { op, library, args })
}

/// The arguments of a kernel, or of the op named.
fn args<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>, op: Option<&str>) -> Args {
    let Some(field) = fields.get("args") else { return Args { span: fields.span, items: Vec::new() } };
    let entries = reader.entries(field, "args = { … }");
    let read = |entry: Field<'_, 's>| {
        if let Some(op) = op {
            check_habits(reader, op, entry);
        }
        let value = arg(reader, entry)?;
        Some(Arg { name: At::new(entry.key.to_owned(), entry.key_span), value })
    };
    Args { span: field.span(), items: entries.into_iter().filter_map(read).collect() }
}

/// Names and words of other systems in the arguments of a built-in op.
fn check_habits<'s>(reader: &mut Reader<'s>, op: &str, entry: Field<'_, 's>) {
    if let Some(meant) = habits::op_argument(op, entry.key) {
        let label = Label::at(entry.key_span, "unknown");
        let message = format!("`{op}` has no argument `{}`", entry.key);
        reader.report(
            Diagnostic::error(codes::UNKNOWN_KEY, message, label).with_help(format!("write `{meant}`")),
        );
    }
    if entry.key == "reduce"
        && let DeValue::String(word) = entry.node.get_ref()
        && let Some(meant) = habits::reduction(word)
    {
        reader.bad_value::<()>(
            entry,
            format!("there is no reduction `{word}`"),
            format!("write `\"{meant}\"`"),
        );
    }
}

fn arg<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<ArgValue> {
    match field.node.get_ref() {
        DeValue::String(_) => {
            let text = reader.text(field)?;
            // Whether it is a range, an expression or a word is not known here; each of its names counts as used.
            let words = text.value.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            reader.used.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
            Some(ArgValue::Text(text))
        }
        DeValue::Array(items) => {
            let items = items.iter().filter_map(|item| arg(reader, field.part(item))).collect();
            Some(ArgValue::List(items, field.span()))
        }
        DeValue::Table(_) | DeValue::Datetime(_) => {
            reader.wrong_type(field, "a number, a boolean, a string or a list")
        }
        _ => Some(ArgValue::Literal(reader.number(field)?, field.span())),
    }
}

/// `["u", "u_new"]`.
fn swap<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>, field: Field<'_, 's>) -> Option<Swap> {
    refuse(reader, fields, "args", "a swap", "it names its two buffers itself");
    refuse(reader, fields, "grid", "a swap", "a kernel task alone has a grid");
    refuse(reader, fields, "library", "a swap", "a library serves ops; a swap moves nothing");
    let help = "write `swap = [\"u\", \"u_new\"]`";
    let DeValue::Array(items) = field.node.get_ref() else {
        return reader.wrong_type_with_help(field, "the names of two buffers", Some(help.to_owned()));
    };
    let names: Vec<_> = items.iter().filter_map(|item| swapped(reader, field.part(item))).collect();
    if items.len() != 2 {
        let message = format!("`swap` takes the names of two buffers, and this has {}", items.len());
        let help = match items.len() {
            0 | 1 => help,
            _ => {
                "write one task for each pair; three buffers take turns by `[\"a\", \"b\"]` and then `[\"b\", \"c\"]`"
            }
        };
        return reader.bad_value(field, message, help.to_owned());
    }
    Some(Swap { span: field.span(), names: names.try_into().ok()? })
}

/// The name of a whole buffer.
fn swapped<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<At<String>> {
    let text = reader.text_or(field, "the name of a buffer")?;
    match text.buffer() {
        Ok(buffer) if buffer.index.is_empty() => {
            let name = At::new(buffer.name.to_string(), text.place.part(&buffer.name_range));
            reader.used.insert(name.value.clone());
            Some(name)
        }
        Ok(buffer) => {
            let message = format!("`swap` takes whole buffers, and `{}` is a part of one", text.value);
            let help = format!("write `\"{}\"`, or let the parts be buffers of their own", buffer.name);
            reader.bad_value(field, message, help)
        }
        Err(error) => {
            reader.formula_error(&error);
            None
        }
    }
}

fn group<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>, field: Field<'_, 's>) -> Option<Group> {
    refuse(reader, fields, "args", "a group", "each entry of the group has its own `args`");
    refuse(reader, fields, "grid", "a group", "a kernel task alone has a grid");
    let library = fields.get("library").and_then(|field| reader.word(field));
    let DeValue::Array(items) = field.node.get_ref() else {
        return reader.wrong_type(field, "an array of ops");
    };
    let entries = items.iter().filter_map(|item| entry(reader, field.part(item))).collect();
    Some(Group { library, entries })
}

fn entry<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<GroupEntry> {
    let table = field.node.get_ref().as_table();
    let other = ["kernel", "swap"].iter().find_map(|&what| Some((what, table?.get_key_value(what)?.0)));
    if let Some((what, key)) = other {
        let label = Label::at(Span::from(key.span()), format!("a {what}"));
        let message = "a group holds ops alone";
        let help = format!("write the {what} as a task of its own, before or after the group");
        reader.report(Diagnostic::error(codes::MISPLACED_KEY, message, label).with_help(help));
        return None;
    }
    let fields = reader.table(field, &levels::ENTRY)?;
    let repeat = match fields.get("for") {
        // Without its loop an entry's variable is unknown, and so would be all that names it.
        Some(field) => Some(repeat(reader, field)?),
        None => None,
    };
    let variable = repeat.as_ref().map(|repeat| repeat.variable.value.as_str());
    let scope = Scope { variable, ..Scope::default() };
    let when = fields.get("when").and_then(|field| reader.condition(field, scope));
    let call = fields.need(reader, "op").and_then(|field| op(reader, &fields, field))?;
    Some(GroupEntry { span: fields.span, repeat, when, call })
}

/// `"peer in world"`, `"m in 1..k"`.
fn repeat<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<Loop> {
    let text = reader.text_or(field, "a loop, as `\"m in 4\"`")?;
    let head = match expr::parse_loop(&text.value) {
        Ok(head) => head,
        Err(mut error) => {
            let example = || "a loop is written `\"m in 4\"` or `\"m in 1..k\"`".to_owned();
            error.help.get_or_insert_with(example);
            reader.formula_error(&FormulaError::new(error, &text.place));
            return None;
        }
    };
    let span = text.place.part(&head.variable.range);
    if let Some(wrong_name) = reader.names.check_variable(&head.variable.name, span) {
        reader.report(wrong_name);
        return None;
    }
    let mut bound = |expr| reader.checked(Formula { expr, place: text.place.clone() }, Scope::default());
    let start = head.start.and_then(&mut bound);
    let end = bound(head.end)?;
    let literal = |bound: &Formula| bound.eval_int(&NoEnv).ok();
    let first = start.as_ref().map_or(Some(0), literal);
    if let (Some(first), Some(last)) = (first, literal(&end))
        && last < first
    {
        let message = format!("the loop never runs: it ends at {last}, before it begins at {first}");
        let help = "the end is excluded: `m in 4` runs from 0 to 3, `m in 1..4` from 1 to 3".to_owned();
        return reader.bad_value(field, message, help);
    }
    Some(Loop { variable: At::new(head.variable.name.into(), span), start, end })
}
