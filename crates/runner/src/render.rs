//! Draws diagnostics over the text they are about.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str};
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
/// it, related places, the help; an empty line behind each. `file` is the name to print for `source`.
///
/// A place outside `source` is moved to its nearest character.
pub fn render(diagnostics: &[Diagnostic], file: &str, source: &str, color: Color) -> String {
    let renderer = match color {
        Color::Always => Renderer::styled().hyperlink(false),
        Color::Never => Renderer::plain(),
    };
    let renderer = renderer.decor_style(DecorStyle::Ascii);
    let mut drawn = String::new();
    for diagnostic in diagnostics {
        drawn.push_str(&renderer.render(&[group(diagnostic, file, source)]));
        drawn.push_str("\n\n");
    }
    drawn
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
            group = group.element(Level::NOTE.message(normalize_untrusted_str(&text)));
        }
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
    let first = source[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let last = source[end..].find('\n').map_or(source.len(), |newline| end + newline);
    let line = 1 + source[..first].bytes().filter(|byte| *byte == b'\n').count();
    let annotations = placed.iter().zip(ranges).map(|((label, _), range)| {
        let kind =
            if std::ptr::eq(*label, primary) { AnnotationKind::Primary } else { AnnotationKind::Context };
        let text = text(label);
        kind.span(range.start - first..range.end - first).label((!text.is_empty()).then_some(text))
    });
    Snippet::source(&source[first..last]).line_start(line).path(file).annotations(annotations)
}

/// The bytes of a span that lie in the source, widened to whole characters.
fn within(span: Span, source: &str) -> Range<usize> {
    let boundary = |byte: &usize| source.is_char_boundary(*byte);
    let start = (0..=source.len().min(span.start as usize)).rev().find(boundary).unwrap_or(0);
    let end = (start.max(span.end as usize)..source.len()).find(boundary).unwrap_or(source.len());
    start..end
}

fn text(label: &Label) -> String {
    let rank = label.rank.map(|rank| format!("rank {rank}"));
    let task = label.task.as_ref().map(|task| format!("task `{task}`"));
    let place: Vec<String> = rank.into_iter().chain(task).collect();
    match (place.is_empty(), label.text.is_empty()) {
        (true, _) => label.text.clone(),
        (false, true) => place.join(", "),
        (false, false) => format!("{}: {}", place.join(", "), label.text),
    }
}
