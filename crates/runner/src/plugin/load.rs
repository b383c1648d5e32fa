//! Loading the plugins that a manifest and a command line name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use squall_core::{Code, Diagnostic, Label, Problems, Registry, Span};
use squall_plugin::abi::ENTRY;
use squall_plugin::convert::Malformed;

use super::file;
use super::open::{self, Opened};
use crate::codes;
use crate::manifest::Manifest;

/// Where a plugin was named.
#[derive(Clone, Debug)]
pub enum Source {
    /// In a manifest: the places of its path, and of its hash if it has one.
    Manifest {
        /// Of `path`.
        path: Option<Span>,
        /// Of `sha256`.
        sha256: Option<Span>,
    },
    /// On a command line.
    Option,
}

/// A plugin that is to be loaded.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The file.
    pub path: PathBuf,
    /// The SHA-256 of its bytes, where it is pinned: 64 hexadecimal digits.
    pub sha256: Option<String>,
    /// Who names it.
    pub source: Source,
}

/// Plugins beside what is linked.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What is linked, and what the plugins bring.
    pub registry: Registry,
    /// Of each plugin, in the order in which they were named: as the registry names it.
    pub origins: Vec<String>,
}

impl Wanted {
    /// The plugins that a manifest names; paths in it are relative to `folder`.
    pub fn of(manifest: &Manifest, folder: &Path) -> Vec<Wanted> {
        let wanted = manifest.plugins.iter().map(|plugin| Wanted {
            path: folder.join(&plugin.path.value),
            sha256: plugin.sha256.as_ref().map(|hash| hash.value.clone()),
            source: Source::Manifest {
                path: plugin.path.span,
                sha256: plugin.sha256.as_ref().and_then(|hash| hash.span),
            },
        });
        wanted.collect()
    }

    /// A plugin that a command line names.
    pub fn option(path: &Path) -> Wanted {
        Wanted { path: path.to_path_buf(), sha256: None, source: Source::Option }
    }
}

/// Loads plugins, in order, beside what `registry` has. One file is opened once in a process, and loaded once here.
///
/// # Errors
/// Of the first plugin that cannot be loaded, as a diagnostic: over the manifest where that names it. What was opened stays open, and
/// `registry` is as it was.
pub fn load(registry: &Registry, wanted: &[Wanted]) -> Result<Loaded, Box<Diagnostic>> {
    let mut loaded = Loaded { registry: registry.clone(), origins: Vec::new() };
    let mut known: BTreeMap<PathBuf, &Wanted> = BTreeMap::new();
    for plugin in wanted {
        let opened = opened(plugin).map_err(|fault| fault.told(plugin))?;
        let path = opened.plugin.path.clone();
        match (known.insert(path, plugin).map(|first| &first.source), &plugin.source) {
            (None, _) => {}
            (Some(Source::Manifest { path: first, .. }), Source::Manifest { path: second, .. }) => {
                let message = format!("the plugin `{}` is named twice", plugin.path.display());
                let label = Label::at(*second, "the second");
                let diagnostic = Diagnostic::error(codes::PLUGIN_TWICE, message, label);
                let diagnostic = diagnostic.with_related(Label::at(*first, "the first"));
                return Err(Box::new(diagnostic.with_help("keep one of them")));
            }
            // By the manifest and on the command line, or twice there: that is no fault.
            (Some(_), _) => continue,
        }
        let origin = opened.plugin.origin();
        loaded.origins.push(origin.clone());
        if loaded.registry.brings(&origin) {
            continue; // by an earlier call
        }
        for item in opened.items {
            loaded.registry.add(item, &origin).map_err(|conflict| {
                let help = "a name has one owner: rename it in one of the two, or leave one of the two out";
                Fault::new(codes::PLUGIN_CONFLICT, conflict.to_string(), help).told(plugin)
            })?;
        }
    }
    Ok(loaded)
}

/// The registry with the plugins that a manifest names. Called by all that runs a manifest; plugins that are there already are not
/// loaded again.
///
/// # Errors
/// As of [`load`].
pub fn load_named(registry: &Registry, manifest: &Manifest, folder: &Path) -> Result<Registry, Problems> {
    match load(registry, &Wanted::of(manifest, folder)) {
        Ok(loaded) => Ok(loaded.registry),
        Err(problem) => Err(Problems(vec![*problem])),
    }
}

/// The plugin, opened now or before.
fn opened(wanted: &Wanted) -> Result<Opened, Fault> {
    // By their full paths. What was refused is tried again: it may have been mended.
    static OPENED: Mutex<BTreeMap<PathBuf, Opened>> = Mutex::new(BTreeMap::new());
    let sha256 = match &wanted.sha256 {
        Some(text) => Some(file::parse_sha256(text).ok_or_else(|| {
            let message = format!("`{text}` is no SHA-256: that is 64 hexadecimal digits");
            Fault::new(codes::PLUGIN_HASH, message, "`sha256sum` prints that of a file").at_hash()
        })?),
        None => None,
    };
    let looked = file::look(&wanted.path, sha256.as_ref())?;
    let mut all = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(opened) = all.get(&looked.path) {
        return Ok(*opened);
    }
    let opened = open::open(&looked, &wanted.path)?;
    all.insert(looked.path, opened);
    Ok(opened)
}

/// Why a plugin is not loaded.
pub(super) struct Fault {
    code: Code,
    message: String,
    help: String,
    /// Whether it is about the hash, and not about the file.
    of_hash: bool,
}

impl Fault {
    fn new(code: Code, message: impl Into<String>, help: impl Into<String>) -> Fault {
        Fault { code, message: message.into(), help: help.into(), of_hash: false }
    }

    fn at_hash(self) -> Fault {
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
    fn told(self, wanted: &Wanted) -> Box<Diagnostic> {
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
