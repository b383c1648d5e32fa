//! What squall prints: results to standard output, all else to standard error.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use squall_core::Diagnostic;
use squall_runner::render::{self, Color};

/// A manifest's text, for drawing diagnostics over it.
pub(crate) struct Source<'a> {
    pub(crate) path: &'a Path,
    pub(crate) text: &'a str,
}

/// Draws diagnostics on standard error.
pub(crate) fn diagnostics(source: &Source<'_>, diagnostics: &[Diagnostic]) {
    if diagnostics.is_empty() {
        return;
    }
    let color = if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        Color::Always
    } else {
        Color::Never
    };
    let drawn = render::render(diagnostics, &source.path.display().to_string(), source.text, color);
    let summary = render::summary(diagnostics).unwrap_or_default();
    // A reader that went away is no reason to fail differently.
    let _ = writeln!(std::io::stderr(), "{drawn}{summary}");
}

/// Says why squall ends, and gives the status back.
pub(crate) fn fail(status: u8, message: &str) -> u8 {
    let _ = writeln!(std::io::stderr(), "error: {message}");
    status
}

/// Tells something beside the result.
pub(crate) fn note(message: &str) {
    let _ = writeln!(std::io::stderr(), "note: {message}");
}

/// Prints a line of the result. A reader that went away ends the process as it does other programs.
pub(crate) fn line(text: &str) {
    if writeln!(std::io::stdout(), "{text}").is_err() {
        std::process::exit(1);
    }
}
