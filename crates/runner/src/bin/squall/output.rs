//! What squall prints: results to standard output, all else to standard error. Of several processes each may put its rank in front, and
//! keep a file of its own.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use squall_core::{Code, Diagnostic};
use squall_runner::render::{self, Color};

/// Whether diagnostics are a line of JSON each, on standard output. Set once, before anything is printed.
static JSON: AtomicBool = AtomicBool::new(false);

/// What stands before every line on standard error.
static FRONT: OnceLock<String> = OnceLock::new();

/// The file that keeps what is printed.
static KEPT: OnceLock<File> = OnceLock::new();

/// From here on, this stands before every line on standard error. Set once.
pub(crate) fn in_front(prefix: String) {
    let _ = FRONT.set(prefix);
}

/// From here on, the file has what is printed, too. Set once.
pub(crate) fn into_file(file: File) {
    let _ = KEPT.set(file);
}

/// Prints lines on standard error. A reader that went away is no reason to fail differently.
fn say(text: &str) {
    let lines: String = match FRONT.get() {
        Some(front) => text.lines().map(|line| format!("{front}{line}\n")).collect(),
        None => format!("{text}\n"),
    };
    keep(&format!("{text}\n"));
    let _ = std::io::stderr().write_all(lines.as_bytes());
}

fn keep(text: &str) {
    if let Some(mut file) = KEPT.get() {
        // A full disk is no reason to end a run.
        let _ = file.write_all(text.as_bytes());
    }
}

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
    say(&format!("{drawn}{summary}; `squall explain{codes}` says more"));
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
    say(&format!("error{code}: {message}"));
    status
}

/// Tells something beside the result.
pub(crate) fn note(message: &str) {
    say(&format!("note: {message}"));
}

/// Prints a result, and gives the status. A reader that has seen enough and went away is well served.
pub(crate) fn result(text: &str) -> u8 {
    keep(text);
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            fail(1, &format!("cannot write to standard output: {error}"))
        }
        _ => 0,
    }
}
