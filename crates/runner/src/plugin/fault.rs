//! Why a plugin is not loaded, in words that name it, the reason and a mend.

use std::path::Path;

use squall_core::{Code, Diagnostic, Label};
use squall_plugin::abi::ENTRY;
use squall_plugin::convert::Malformed;

use super::load::{Source, Wanted};
use crate::codes;

/// Why a plugin is not loaded.
#[derive(Clone)]
pub(super) struct Fault {
    code: Code,
    message: String,
    help: String,
    /// Whether it is about the hash, and not about the file.
    of_hash: bool,
}

impl Fault {
    pub(super) fn new(code: Code, message: impl Into<String>, help: impl Into<String>) -> Fault {
        Fault { code, message: message.into(), help: help.into(), of_hash: false }
    }

    pub(super) fn at_hash(self) -> Fault {
        Fault { of_hash: true, ..self }
    }

    pub(super) fn missing(path: &Path, error: &std::io::Error) -> Fault {
        let message = format!("the plugin `{}` cannot be read: {error}", path.display());
        let help = "a path is relative to the manifest's folder, and on the command line to the current one; a plugin in Rust lies in \
                    `target/release` once it is built";
        Fault::new(codes::PLUGIN_FILE, message, help)
    }

    pub(super) fn not_a_plugin(path: &Path, what: String) -> Fault {
        let message = format!(
            "the plugin `{}` is not a dynamic library for this machine: it is {what}",
            path.display()
        );
        Fault::new(
            codes::PLUGIN_FILE,
            message,
            "name the library that building the plugin made, such as `libNAME.so`",
        )
    }

    pub(super) fn no_entry(path: &Path) -> Fault {
        let message =
            format!("the library `{}` is no plugin of squall's: it exports no `{ENTRY}`", path.display());
        let help = "a plugin in Rust says `squall_plugin::export!();` once and is built with its feature `dylib`; one in C has the function \
                    with `SQUALL_EXPORT`";
        Fault::new(codes::PLUGIN_FILE, message, help)
    }

    pub(super) fn other_bytes(path: &Path, is: &str, pinned: &str) -> Fault {
        let message = format!(
            "the plugin `{}` is not the one that is pinned: its SHA-256 is {is}, not {pinned}",
            path.display()
        );
        Fault::new(codes::PLUGIN_HASH, message, "if it is the one that you want, pin that").at_hash()
    }

    pub(super) fn loader(path: &Path, error: &libloading::Error) -> Fault {
        let message = format!("the plugin `{}` cannot be opened: {}", path.display(), in_words(error));
        Fault::new(codes::PLUGIN_OPEN, message, "`ldd` tells which libraries it needs and which are missing")
    }

    pub(super) fn changed(path: &Path) -> Fault {
        let message = format!("the plugin `{}` changed while it was opened", path.display());
        Fault::new(codes::PLUGIN_OPEN, message, "try again when it is built")
    }

    pub(super) fn replaced(path: &Path) -> Fault {
        let message = format!(
            "the plugin `{}` is not the file that this process has opened there: it has changed since",
            path.display()
        );
        Fault::new(codes::PLUGIN_OPEN, message, "a process opens a library once: start anew")
    }

    pub(super) fn other_abi(path: &Path, why: String) -> Fault {
        let message = format!("the plugin `{}` does not fit this squall: {why}", path.display());
        Fault::new(
            codes::PLUGIN_ABI,
            message,
            "build the older of the two anew, with the other's version of `squall-plugin`",
        )
    }

    pub(super) fn tables(path: &Path, malformed: &Malformed) -> Fault {
        let message = format!("the plugin `{}` is not made as plugins are: {malformed}", path.display());
        Fault::new(codes::PLUGIN_TABLES, message, "`squall_plugin.h` says what each field must hold")
    }

    pub(super) fn init(path: &Path, name: &str, text: &str, help: &str) -> Fault {
        let message = format!("the plugin `{}` cannot work here: {name}: {text}", path.display());
        Fault::new(codes::PLUGIN_INIT, message, help)
    }

    /// The diagnostic, where the plugin is named.
    pub(super) fn told(self, wanted: &Wanted) -> Box<Diagnostic> {
        let label = match &wanted.source {
            Source::Manifest { path, sha256 } => Label::at(sha256.filter(|_| self.of_hash).or(*path), ""),
            Source::Option => Label::default(),
        };
        let diagnostic = Diagnostic::error(self.code, self.message, label);
        Box::new(match self.help.is_empty() {
            true => diagnostic,
            false => diagnostic.with_help(self.help),
        })
    }
}

/// The loader's own words, which the library keeps as a source.
fn in_words(error: &libloading::Error) -> String {
    let own = std::error::Error::source(error).map(|source| source.to_string());
    own.unwrap_or_else(|| error.to_string())
}
