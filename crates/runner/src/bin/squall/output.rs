//! What squall prints: results to standard output, all else to standard error.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use squall_core::{Code, Diagnostic};
use squall_runner::render::{self, Color};

/// Whether diagnostics are a line of JSON each, on standard output. Set once, before anything is printed.
static JSON: AtomicBool = AtomicBool::new(false);

/// From here on, diagnostics are for machines.
pub(crate) fn in_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// Prints an object on a line of standard output.
pub(crate) fn json(object: &impl Serialize) -> u8 {
    match serde_json::to_string(object) {
        Ok(text) => result(&format!("{text}\n")),
        Err(error) => fail(1, &error.to_string()),
    }
}

/// Draws diagnostics on standard error, over the text they are about; `name` is what to call that.
pub(crate) fn diagnostics(name: &str, text: &str, diagnostics: &[Diagnostic]) {
    if diagnostics.is_empty() {
        return;
    }
    if JSON.load(Ordering::Relaxed) {
        for diagnostic in diagnostics {
            json(&render::said(diagnostic, text));
        }
        return;
    }
    let color = if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        Color::Always
    } else {
        Color::Never
    };
    let drawn = render::render(diagnostics, name, text, color);
    let summary = render::summary(diagnostics).unwrap_or_default();
    let codes = codes(diagnostics);
    // A reader that went away is no reason to fail differently.
    let _ = writeln!(std::io::stderr(), "{drawn}{summary}; `squall explain{codes}` says more");
}

/// The codes of diagnostics, each once and no more than fit a line, a space before each.
fn codes(diagnostics: &[Diagnostic]) -> String {
    const MOST: usize = 4;
    let mut codes: Vec<Code> = Vec::new();
    for diagnostic in diagnostics {
        if codes.len() < MOST && !codes.contains(&diagnostic.code) {
            codes.push(diagnostic.code);
        }
    }
    codes.iter().map(|code| format!(" {code}")).collect()
}

/// Says why squall ends, and gives the status back.
pub(crate) fn fail(status: u8, message: &str) -> u8 {
    fail_with(None, status, message)
}

/// As [`fail`], under a code.
pub(crate) fn fail_with(code: Option<Code>, status: u8, message: &str) -> u8 {
    let code = code.map(|code| format!("[{code}]")).unwrap_or_default();
    let _ = writeln!(std::io::stderr(), "error{code}: {message}");
    status
}

/// Tells something beside the result.
pub(crate) fn note(message: &str) {
    let _ = writeln!(std::io::stderr(), "note: {message}");
}

/// Prints a result, and gives the status. A reader that has seen enough and went away is well served.
pub(crate) fn result(text: &str) -> u8 {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            fail(1, &format!("cannot write to standard output: {error}"))
        }
        _ => 0,
    }
}
