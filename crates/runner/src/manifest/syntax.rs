//! From bytes to a TOML document.

use squall_core::{Diagnostic, Label, Span};
use toml::de::{DeTable, DeValue};

use super::collect::Diagnostics;
use super::reader::Node;
use crate::codes;

/// The largest manifest that is read, in bytes. Data in bulk belongs in array files.
pub const MAX_SIZE: usize = 1 << 20;

/// The text of a manifest file.
pub(crate) fn decode(bytes: &[u8]) -> Result<&str, Box<Diagnostic>> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let help = if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
            "the file looks like UTF-16; save it as UTF-8"
        } else {
            "save the file as UTF-8"
        };
        let message = format!("the file is not UTF-8: byte {at} begins no character");
        // Where the rest of the text is shown with replacement characters, this is where the first one stands.
        let label = Label::at(Span::from(at..at + 1), "not UTF-8 from here on");
        Box::new(Diagnostic::error(codes::NOT_UTF8, message, label).with_help(help))
    })
}

/// The document, or what keeps the text from being one.
pub(crate) fn document(text: &str) -> Result<DeTable<'_>, Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    if text.len() > MAX_SIZE {
        let message = format!("the manifest has more than {MAX_SIZE} bytes, and no more are read");
        let help = "put data into `.npy` or `.safetensors` files";
        diagnostics.push(Diagnostic::error(codes::TOO_LARGE, message, Label::default()).with_help(help));
        return Err(diagnostics);
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(document.into_inner());
    }
    let mut errors: Vec<_> =
        errors.iter().map(|e| (e.span().unwrap_or(text.len()..text.len()), e.message())).collect();
    errors.sort_by_key(|(span, _)| span.start);
    let mut behind = None;
    let mut twice_until = 0;
    for (span, message) in errors {
        // What follows a fault on its line is mostly its echo, and so are the keys of a table that is there twice.
        let between = behind.replace(span.start).map(|behind| text.get(behind..span.start).unwrap_or(""));
        if between.is_some_and(|between| !between.contains('\n'))
            || message == "duplicate key" && span.start < twice_until
        {
            continue;
        }
        if message == "duplicate key" && line_of(text, span.start).1.starts_with('[') {
            let rest = text.get(span.end..).unwrap_or("");
            twice_until = rest.find("\n[").map_or(text.len(), |next| span.end + next);
        }
        if in_unclosed(message, line_of(text, span.start).1) {
            let label = Label::at(Span::from(span), "still inside of it");
            let message = "this is not TOML: an array or an inline table before this line is not closed";
            let help = "close it with `]` or `}`";
            diagnostics.push(Diagnostic::error(codes::TOML_SYNTAX, message, label).with_help(help));
            break; // all the rest stands inside of it too
        }
        diagnostics.push_with(|| match message {
            "duplicate key" => duplicate_key(document.get_ref(), text, span.into()),
            _ if message.contains("recurs") => {
                let message =
                    "arrays and tables nest too deeply: the reader of TOML goes no further than this";
                let help = "nest less: some tens of levels are read";
                Diagnostic::error(codes::TOML_SYNTAX, message, Label::at(Span::from(span), ""))
                    .with_help(help)
            }
            _ => {
                let message = message.trim_end_matches(", expected nothing");
                let message = format!("this is not TOML: {message}");
                Diagnostic::error(codes::TOML_SYNTAX, message, Label::at(Span::from(span), ""))
            }
        });
    }
    Err(diagnostics)
}

/// Whether a fault, told as `message`, is that a line of the outside stands inside of brackets: a header, or in an array a
/// key.
fn in_unclosed(message: &str, line: &str) -> bool {
    let header = line.trim_start_matches('[');
    let is_header = header.len() < line.len()
        && header.starts_with(|c: char| c.is_ascii_alphabetic())
        && behind_key(header).starts_with(']');
    let of_array = message.starts_with("missing comma between array elements");
    let of_table = message.starts_with("missing comma between key-value pairs")
        || message.starts_with("missing key for inline table element");
    (of_array || of_table) && is_header
        || of_array && behind_key(line).starts_with('=') && !line.starts_with('=')
}

/// The text behind a key at its beginning.
fn behind_key(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_-.".contains(c)).trim_start()
}

fn duplicate_key(document: &DeTable<'_>, text: &str, span: Span) -> Diagnostic {
    let range = span.start as usize..span.end as usize;
    let key = text.get(range.clone()).unwrap_or("");
    let message = format!("`{key}` is written twice");
    let diagnostic = Diagnostic::error(codes::DUPLICATE_KEY, message, Label::at(span, "the second"));
    let diagnostic = match key {
        "setup" | "task" | "finish" | "watch" | "plugin" => {
            diagnostic.with_help(format!("each is an entry of a list: write `[[{key}]]`, the first too"))
        }
        _ => diagnostic,
    };
    match first_place(document, text, range.start, key) {
        Some(first) => diagnostic.with_related(Label::at(first, "the first")),
        None => diagnostic,
    }
}

/// The longest text that is searched for the first of two keys: each search parses the text before the second.
const MAX_SEARCHED: usize = 1 << 16;

/// Where the key stands that a later one, at `second`, repeats. The TOML parser knows and does not tell.
fn first_place(document: &DeTable<'_>, text: &str, second: usize, key: &str) -> Option<Span> {
    if second > MAX_SEARCHED {
        return None;
    }
    let (line_start, line) = line_of(text, second);
    if line.starts_with('[') {
        // A header: its path leads to the earlier table in the text before it.
        let (header, _) = DeTable::parse_recoverable(line);
        let (before, _) = DeTable::parse_recoverable(text.get(..line_start)?);
        return descend(before.get_ref(), header.get_ref());
    }
    // A key: the document kept the first. Another table's key of this text may stand between only in an inline table.
    let mut last = None;
    nearest_key(document, text, second, key, &mut last);
    last
}

/// Where the line of a byte begins, and its text without the space before it.
fn line_of(text: &str, byte: usize) -> (usize, &str) {
    let start = text.get(..byte).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1);
    (start, text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or("").trim_start())
}

/// Follows the single path of `header` through `table` to its last key.
fn descend(table: &DeTable<'_>, header: &DeTable<'_>) -> Option<Span> {
    let (name, inner) = header.iter().next()?;
    let (found, value) = table.get_key_value(name.get_ref().as_ref())?;
    let Some(inner) = inner.get_ref().as_table().filter(|inner| !inner.is_empty()) else {
        return Some(found.span().into());
    };
    let value = match value.get_ref() {
        DeValue::Array(items) => items.last()?.get_ref(),
        value => value,
    };
    descend(value.as_table()?, inner)
}

/// The last key of this text before `second`, without those of inline tables that end before it.
fn nearest_key(table: &DeTable<'_>, text: &str, second: usize, key: &str, last: &mut Option<Span>) {
    for (name, value) in table.iter() {
        let place = name.span();
        if text.get(place.clone()) == Some(key) && place.start < second {
            let span = Span::from(place);
            *last = (*last).max(Some(span));
        }
        nearest_key_in(value, text, second, key, last);
    }
}

fn nearest_key_in(value: &Node<'_>, text: &str, second: usize, key: &str, last: &mut Option<Span>) {
    let inline = text.get(value.span()).is_some_and(|raw| raw.starts_with('{'));
    match value.get_ref() {
        DeValue::Table(_) if inline && value.span().end < second => {}
        DeValue::Table(table) => nearest_key(table, text, second, key, last),
        DeValue::Array(items) => items.iter().for_each(|item| nearest_key_in(item, text, second, key, last)),
        _ => {}
    }
}
