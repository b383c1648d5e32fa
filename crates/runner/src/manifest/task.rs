//! `[[setup]]`, `[[task]]` and `[[finish]]`.

use squall_core::{Diagnostic, Label, Span};
use toml::de::DeValue;

use super::model::{
    Arg, ArgValue, Args, Body, Grid, Group, GroupEntry, KernelCall, Loop, OpCall, Swap, Task,
};
use super::place::{At, Formula, FormulaError};
use super::reader::{Field, Fields, Reader};
use super::scope::Scope;
use super::{habits, levels, names};
use crate::codes;
use crate::expr::{self, NoEnv};

/// Reads the tasks of one section.
pub(crate) fn read<'s>(reader: &mut Reader<'s>, root: &Fields<'_, 's>, section: &str) -> Vec<Task> {
    let gives_block = |key: &str| key == "block" || levels::PIPELINE.suggests(key, "block");
    let pipeline = root.get("pipeline").and_then(|pipeline| pipeline.node.get_ref().as_table());
    let has_block = pipeline.is_some_and(|table| table.keys().any(|key| gives_block(key.get_ref())));
    let tables = root.get(section).map(|field| reader.tables(field, &levels::TASK)).unwrap_or_default();
    let around = Around { has_block, variables: &[] };
    tables.iter().filter_map(|fields| task(reader, fields, around)).collect()
}

/// What a task stands in.
#[derive(Clone, Copy)]
struct Around<'v> {
    /// Whether the pipeline gives a block.
    has_block: bool,
    /// The variables of the loops, the outermost first.
    variables: &'v [&'v str],
}

impl<'v> Around<'v> {
    fn scope(self) -> Scope<'v> {
        Scope { variables: self.variables, ..Scope::default() }
    }
}

fn task<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>, around: Around<'_>) -> Option<Task> {
    let name = fields.get("name").and_then(|field| reader.text(field));
    let name = name.map(|text| At::new(text.value, text.place.span()));
    let repeat = match fields.get("for") {
        // Without its loop the variable is unknown, and so would be all that names it.
        Some(field) => Some(repeat(reader, field, around.variables)?),
        None => None,
    };
    if let (Some(At { value: name, span: Some(span) }), Some(_)) = (&name, &repeat)
        && ["setup", "task", "finish", "do"].contains(&name.as_str())
    {
        let message = format!("`{name}` cannot be the name of a task with `for`");
        let label = format!("`{name}[0]` is a task without a name");
        reader.error(codes::BAD_NAME, message, *span, label);
    }
    let variables = known(around.variables, repeat.as_ref());
    let around = Around { variables: &variables, ..around };
    let when = fields.get("when").and_then(|field| reader.condition(field, around.scope()));
    let body = body(reader, fields, around)?;
    Some(Task { name, span: fields.span, repeat, when, body })
}

/// The variables that are known inside of a loop.
fn known<'v>(around: &[&'v str], repeat: Option<&'v Loop>) -> Vec<&'v str> {
    around.iter().copied().chain(repeat.map(|repeat| repeat.variable.value.as_str())).collect()
}

/// The keys one of which says what a task does.
const BODIES: &[&str] = &["kernel", "op", "group", "swap", "do"];

fn body<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>, around: Around<'_>) -> Option<Body> {
    let mut bodies: Vec<_> = BODIES.iter().filter_map(|key| fields.get(key)).collect();
    bodies.sort_by_key(|field| field.key_span.start);
    match bodies.as_slice() {
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
            "kernel" => kernel(reader, fields, *field, around).map(Body::Kernel),
            "op" => {
                refuse(reader, fields, "grid", "an op", "a kernel task alone has a grid");
                op(reader, fields, *field).map(Body::Op)
            }
            "group" => group(reader, fields, *field, around.variables).map(Body::Group),
            "swap" => swap(reader, fields, *field).map(Body::Swap),
            _ => tasks(reader, fields, *field, around).map(Body::Do),
        },
    }
}

/// The tasks of `do`.
fn tasks<'s>(
    reader: &mut Reader<'s>,
    fields: &Fields<'_, 's>,
    field: Field<'_, 's>,
    around: Around<'_>,
) -> Option<Vec<Task>> {
    for key in ["args", "grid", "library"] {
        refuse(reader, fields, key, "a task with `do`", "the tasks in `do` have their own");
    }
    let DeValue::Array(items) = field.node.get_ref() else {
        return reader.wrong_type(field, "an array of tasks");
    };
    if items.is_empty() {
        let message = "`do` is empty: the task does nothing".to_owned();
        return reader.bad_value(field, message, "write the tasks in it, or leave the task out".to_owned());
    }
    let mut tasks: Vec<Task> = Vec::with_capacity(items.len());
    for item in items {
        let DeValue::Table(table) = item.get_ref() else {
            reader.wrong_type::<()>(field.part(item), "tasks, each a table");
            continue;
        };
        let fields = reader.fields(table, item.span().into(), &levels::TASK);
        let Some(task) = task(reader, &fields, around) else { continue };
        if let Some(At { value: name, span: Some(span) }) = &task.name {
            let first = tasks.iter().filter_map(|task| task.name.as_ref()).find(|first| first.value == *name);
            if let Some(wrong) = names::check_task(name, *span) {
                reader.report(wrong);
            } else if let Some(first) = first {
                let message = format!("two tasks of this `do` are named `{name}`");
                let report =
                    Diagnostic::error(codes::DUPLICATE_NAME, message, Label::at(*span, "the second"))
                        .with_related(Label::at(first.span, "the first"));
                reader.report(report);
            }
        }
        tasks.push(task);
    }
    Some(tasks)
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
    around: Around<'_>,
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
    let grid = fields.need(reader, "grid").and_then(|field| grid(reader, field, around));
    Some(KernelCall { kernel: kernel?, args, grid: grid? })
}

fn grid<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>, around: Around<'_>) -> Option<Grid> {
    let (mut has_block, scope) = (around.has_block, around.scope());
    let (threads, block) = match field.node.get_ref() {
        DeValue::Table(_) => {
            let fields = reader.table(field, &levels::GRID)?;
            let threads = fields.need(reader, "threads").and_then(|field| reader.dims(field, scope));
            let block = fields.get("block");
            has_block |= block.is_some() || fields.misspells(&["block"]);
            (threads, block.and_then(|field| reader.dims(field, scope)))
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
        _ => (reader.dims(field, scope), None),
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
        let report = Diagnostic::error(
            codes::UNKNOWN_OP,
            format!("there is no op `{}`", op.value),
            Label::at(op.span, ""),
        );
        reader.report(report.with_help(format!("write `\"{meant}\"`")));
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
            Diagnostic::error(codes::UNKNOWN_ARGUMENT, message, label).with_help(format!("write `{meant}`")),
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

fn group<'s>(
    reader: &mut Reader<'s>,
    fields: &Fields<'_, 's>,
    field: Field<'_, 's>,
    around: &[&str],
) -> Option<Group> {
    refuse(reader, fields, "args", "a group", "each entry of the group has its own `args`");
    refuse(reader, fields, "grid", "a group", "a kernel task alone has a grid");
    let library = fields.get("library").and_then(|field| reader.word(field));
    let DeValue::Array(items) = field.node.get_ref() else {
        return reader.wrong_type(field, "an array of ops");
    };
    let entries = items.iter().filter_map(|item| entry(reader, field.part(item), around)).collect();
    Some(Group { library, entries })
}

fn entry<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>, around: &[&str]) -> Option<GroupEntry> {
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
        Some(field) => Some(repeat(reader, field, around)?),
        None => None,
    };
    let variables = known(around, repeat.as_ref());
    let scope = Scope { variables: &variables, ..Scope::default() };
    let when = fields.get("when").and_then(|field| reader.condition(field, scope));
    let call = fields.need(reader, "op").and_then(|field| op(reader, &fields, field))?;
    Some(GroupEntry { span: fields.span, repeat, when, call })
}

/// `"peer in world"`, `"m in 1..k"`; `around` are the variables of the loops that it is in, which its bounds may name.
fn repeat<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>, around: &[&str]) -> Option<Loop> {
    let text = reader.text_or(field, "a loop, as `\"m in 4\"`")?;
    let head = match expr::parse_loop(&text.value) {
        Ok(head) => head,
        Err(mut error) => {
            // An assignment, and a range with its end, are meant in other ways than in an expression.
            if error.help.is_none() || text.value.contains('=') {
                error.help =
                    Some("a loop is written `\"m in 4\"` or `\"m in 1..k\"`, the end excluded".to_owned());
            }
            reader.formula_error(&FormulaError::new(error, &text.place));
            return None;
        }
    };
    let span = text.place.part(&head.variable.range);
    if let Some(wrong_name) = reader.names.check_variable(&head.variable.name, span, around) {
        reader.report(wrong_name);
        return None;
    }
    let scope = Scope { variables: around, ..Scope::default() };
    let mut bound = |expr| reader.checked(Formula { expr, place: text.place.clone() }, scope);
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
