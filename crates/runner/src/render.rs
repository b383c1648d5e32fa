//! Draws diagnostics over the text they are about.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str};
use serde::Serialize;
use squall_core::{Diagnostic, Label, Severity, Span};

/// Whether the drawing holds terminal colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// Escape sequences for a terminal.
    Always,
    /// Plain text.
    Never,
}

/// Draws each diagnostic: its code and message, the place as `file:line:column`, the text with what stands under
/// it, related places, the drawing, the help; an empty line behind each. `file` is the name to print for `source`.
///
/// A place outside `source` is moved to its nearest character.
pub fn render(diagnostics: &[Diagnostic], file: &str, source: &str, color: Color) -> String {
    let renderer = match color {
        Color::Always => Renderer::styled().hyperlink(false),
        Color::Never => Renderer::plain(),
    };
    let renderer = renderer.decor_style(DecorStyle::Ascii);
    // A file's name may hold anything.
    let file = normalize_untrusted_str(file);
    let mut drawn = String::new();
    for diagnostic in diagnostics {
        drawn.push_str(&renderer.render(&[group(diagnostic, &file, source)]));
        drawn.push_str("\n\n");
    }
    drawn
}

/// A diagnostic as `squall check --json` prints it.
#[derive(Debug, Serialize)]
pub struct Said<'a> {
    severity: &'static str,
    code: &'static str,
    message: &'a str,
    drawing: Option<&'a str>,
    help: Option<&'a str>,
    /// The place to look at first, then the others that belong to it.
    places: Vec<Place<'a>>,
}

#[derive(Debug, Serialize)]
struct Place<'a> {
    rank: Option<u32>,
    task: Option<&'a str>,
    text: &'a str,
    #[serde(flatten)]
    span: Option<Bytes>,
}

/// Bytes of the source, and where they begin for a person: line and column count from 1, columns in characters.
#[derive(Debug, Serialize)]
struct Bytes {
    start: usize,
    end: usize,
    line: usize,
    column: usize,
}

/// A diagnostic over `source`, for machines. A place outside it is moved to its nearest character.
pub fn said<'a>(diagnostic: &'a Diagnostic, source: &str) -> Said<'a> {
    let bytes = |span: Span| {
        let Range { start, end } = within(span, source);
        let before = source.get(..start).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        let column = 1 + line.trim_start_matches('\u{feff}').chars().count();
        Bytes { start, end, line: 1 + before.matches('\n').count(), column }
    };
    let place = |label: &'a Label| Place {
        rank: label.rank,
        task: label.task.as_deref(),
        text: &label.text,
        span: label.span.map(bytes),
    };
    Said {
        severity: if diagnostic.is_error() { "error" } else { "warning" },
        code: diagnostic.code.0,
        message: &diagnostic.message,
        drawing: diagnostic.drawing.as_deref(),
        help: diagnostic.help.as_deref(),
        places: std::iter::once(&diagnostic.primary).chain(&diagnostic.related).map(place).collect(),
    }
}

/// The count of errors and warnings, as `3 errors, 1 warning`; `None` where there is nothing to count.
pub fn summary(diagnostics: &[Diagnostic]) -> Option<String> {
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
    let counts = [(errors, "error"), (diagnostics.len() - errors, "warning")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let words: Vec<String> =
        counts.map(|(count, word)| format!("{count} {word}{}", if *count == 1 { "" } else { "s" })).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn group<'a>(diagnostic: &'a Diagnostic, file: &'a str, source: &'a str) -> Group<'a> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = Group::with_title(level.primary_title(&*diagnostic.message).id(diagnostic.code.0));
    let placed: Vec<(&Label, Span)> = std::iter::once(&diagnostic.primary)
        .chain(&diagnostic.related)
        .filter_map(|label| Some((label, label.span?)))
        .collect();
    if source.is_empty() || placed.is_empty() {
        group = group.element(Origin::path(file));
    } else {
        group = group.element(snippet(&placed, &diagnostic.primary, file, source));
    }
    for label in std::iter::once(&diagnostic.primary).chain(&diagnostic.related) {
        let text = text(label);
        if label.span.is_none() && !text.is_empty() {
            group = group.element(Level::NOTE.message(text));
        }
    }
    if let Some(drawing) = &diagnostic.drawing {
        group = group.element(Level::NOTE.message(normalize_lines(drawing)));
    }
    match &diagnostic.help {
        Some(help) => group.element(Level::HELP.message(normalize_untrusted_str(help))),
        None => group,
    }
}

/// The lines from the first to the last place; the drawing folds what lies between.
fn snippet<'a>(
    placed: &[(&'a Label, Span)],
    primary: &Label,
    file: &'a str,
    source: &'a str,
) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
    let ranges: Vec<Range<usize>> = placed.iter().map(|(_, span)| within(*span, source)).collect();
    let start = ranges.iter().map(|range| range.start).min().unwrap_or(0);
    let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
    let bom = if source.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let first = source[..start].rfind('\n').map_or(bom, |newline| newline + 1);
    let last = source[end..].find('\n').map_or(source.len(), |newline| end + newline);
    let last = if source[..last].ends_with('\r') { last - 1 } else { last };
    let line = 1 + source[..first].bytes().filter(|byte| *byte == b'\n').count();
    let annotations = placed.iter().zip(ranges).map(|((label, _), range)| {
        let kind =
            if std::ptr::eq(*label, primary) { AnnotationKind::Primary } else { AnnotationKind::Context };
        let text = text(label);
        kind.span(range.start.saturating_sub(first)..range.end.saturating_sub(first))
            .label((!text.is_empty()).then_some(text))
    });
    // A carriage return at a line's end would be drawn; a space in its place is not, and keeps the places.
    let excerpt = source.get(first..last).unwrap_or("").replace("\r\n", " \n");
    Snippet::source(excerpt).line_start(line).path(file).annotations(annotations)
}

/// The bytes of a span that lie in the source, widened to whole characters.
fn within(span: Span, source: &str) -> Range<usize> {
    let boundary = |byte: &usize| source.is_char_boundary(*byte);
    let start = (0..=source.len().min(span.start as usize)).rev().find(boundary).unwrap_or(0);
    let end = (start.max(span.end as usize)..source.len()).find(boundary).unwrap_or(source.len());
    start..end
}

/// Lines of text, with other control characters made visible.
fn normalize_lines(text: &str) -> String {
    text.lines().map(normalize_untrusted_str).collect::<Vec<_>>().join("\n")
}

/// A label's words, with control characters made visible: a manifest's text must not steer the terminal.
fn text(label: &Label) -> String {
    let rank = label.rank.map(|rank| format!("rank {rank}"));
    let task = label.task.as_ref().map(|task| format!("task `{task}`"));
    let place: Vec<String> = rank.into_iter().chain(task).collect();
    let text = match (place.is_empty(), label.text.is_empty()) {
        (true, _) => label.text.clone(),
        (false, true) => place.join(", "),
        (false, false) => format!("{}: {}", place.join(", "), label.text),
    };
    normalize_untrusted_str(&text)
}

pub use squall_core::count;

#[cfg(test)]
mod tests {
    use squall_core::Code;

    use super::*;

    const SOURCE: &str = "one = 1\ntwo = \"é\"\nthree = 3\n";

    fn span(start: u32, end: u32) -> Span {
        Span { start, end }
    }

    fn error(primary: Label) -> Diagnostic {
        Diagnostic::error(Code("E0203"), "counts differ", primary)
    }

    fn plain(diagnostic: Diagnostic) -> String {
        render(&[diagnostic], "m.toml", SOURCE, Color::Never)
    }

    #[test]
    fn ranks_and_tasks_stand_in_the_labels() {
        let primary = Label::at(span(0, 3), "16 elements").on_rank(0).in_task("sum");
        let diagnostic =
            error(primary).with_related(Label::at(span(19, 24), "").on_rank(3)).with_help("make them equal");
        insta::assert_snapshot!(plain(diagnostic), @r#"
        error[E0203]: counts differ
         --> m.toml:1:1
          |
        1 | one = 1
          | ^^^ rank 0, task `sum`: 16 elements
        2 | two = "é"
        3 | three = 3
          | ----- rank 3
          |
          = help: make them equal
        "#);
    }

    #[test]
    fn labels_without_a_place_are_notes() {
        let primary = Label::at(None, "waits in `send`").on_rank(0);
        insta::assert_snapshot!(plain(error(primary)), @r"
        error[E0203]: counts differ
        --> m.toml
         = note: rank 0: waits in `send`
        ");
        insta::assert_snapshot!(plain(error(Label::default())), @r"
        error[E0203]: counts differ
        --> m.toml
        ");
        let placed =
            error(Label::at(span(8, 11), "here")).with_related(Label::at(None, "waits too").on_rank(1));
        insta::assert_snapshot!(plain(placed), @r#"
        error[E0203]: counts differ
         --> m.toml:2:1
          |
        2 | two = "é"
          | ^^^ here
          |
          = note: rank 1: waits too
        "#);
    }

    #[test]
    fn columns_count_characters() {
        let drawn = plain(error(Label::at(span(17, 18), "")));
        assert!(drawn.contains("m.toml:2:9"), "{drawn}");
    }

    #[test]
    fn places_outside_the_source_are_moved_inside() {
        for (start, end) in [(0, u32::MAX), (u32::MAX, u32::MAX), (30, 2), (16, 16), (15, 16)] {
            for source in [SOURCE, "", "\u{feff}", "\u{feff}a\r\n"] {
                let drawn =
                    render(&[error(Label::at(span(start, end), "x"))], "m.toml", source, Color::Always);
                assert!(drawn.contains("E0203"), "{drawn}");
            }
        }
    }

    #[test]
    fn colour_is_escape_sequences_and_a_message_can_hold_none() {
        let diagnostic = || error(Label::at(span(0, 3), "\u{1b}[31m")).with_help("\u{1b}[31m");
        assert!(!plain(diagnostic()).contains('\u{1b}'));
        assert!(render(&[diagnostic()], "m.toml", SOURCE, Color::Always).contains('\u{1b}'));
    }

    #[test]
    fn counts_are_in_words() {
        let warning = || Diagnostic::warning(Code("W0101"), "", Label::default());
        let error = || error(Label::default());
        assert_eq!(summary(&[]), None);
        assert_eq!(summary(&[error(), warning(), error(), error()]).as_deref(), Some("3 errors, 1 warning"));
        assert_eq!(summary(&[warning(), warning()]).as_deref(), Some("2 warnings"));
    }
}
