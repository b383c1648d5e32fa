//! Loading the plugins that a manifest and a command line name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use squall_core::{Diagnostic, Label, Problems, Registry, Span};

use super::fault::Fault;
use super::file::{self, Seen};
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
/// Of each plugin that cannot be loaded, as a diagnostic: over the manifest where that names it. What was opened stays open, and `registry`
/// is as it was.
pub fn load(registry: &Registry, wanted: &[Wanted]) -> Result<Loaded, Problems> {
    let mut loaded = Loaded { registry: registry.clone(), origins: Vec::new() };
    let mut known: BTreeMap<PathBuf, &Wanted> = BTreeMap::new();
    let mut problems = Vec::new();
    for plugin in wanted {
        problems.extend(add(&mut loaded, &mut known, plugin).err().map(|problem| *problem));
    }
    if problems.is_empty() { Ok(loaded) } else { Err(Problems(problems)) }
}

/// Adds one plugin, unless it is there.
fn add<'a>(
    loaded: &mut Loaded,
    known: &mut BTreeMap<PathBuf, &'a Wanted>,
    plugin: &'a Wanted,
) -> Result<(), Box<Diagnostic>> {
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
        (Some(_), _) => return Ok(()),
    }
    let origin = opened.plugin.origin();
    loaded.origins.push(origin.clone());
    if loaded.registry.brings(&origin) {
        return Ok(()); // by an earlier call
    }
    for item in opened.items {
        loaded.registry.add(item, &origin).map_err(|conflict| {
            let help = "a name has one owner: rename it in one of the two, or leave one of the two out";
            Fault::new(codes::PLUGIN_CONFLICT, conflict.to_string(), help).told(plugin)
        })?;
    }
    Ok(())
}

/// The registry with the plugins that a manifest names. Called by all that runs a manifest; plugins that are there already are not
/// loaded again.
///
/// # Errors
/// As of [`load`].
pub fn load_named(registry: &Registry, manifest: &Manifest, folder: &Path) -> Result<Registry, Problems> {
    load(registry, &Wanted::of(manifest, folder)).map(|loaded| loaded.registry)
}

/// A file that was opened, and what came of it.
struct Known {
    path: PathBuf,
    seen: Seen,
    sha256: String,
    outcome: Result<Opened, Fault>,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The plugins that this process has opened, each with the SHA-256 of its file, by name.
pub(crate) fn in_use() -> Vec<String> {
    let all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let opened =
        all.iter().filter_map(|known| Some((known.outcome.as_ref().ok()?.plugin.origin(), &known.sha256)));
    let mut lines: Vec<String> = opened.map(|(origin, sha256)| format!("{origin} ({sha256})")).collect();
    lines.sort();
    lines
}

/// The plugin, opened now or before. The system opens a path, and a file by whatever name, once in a process: so a file that was refused is
/// refused again, and one that has changed since, or that lies where another was opened, cannot be had any more.
fn opened(wanted: &Wanted) -> Result<Opened, Fault> {
    let sha256 = match &wanted.sha256 {
        Some(text) => Some(file::parse_sha256(text).ok_or_else(|| {
            let message = format!("`{text}` is no SHA-256: that is 64 hexadecimal digits");
            Fault::new(codes::PLUGIN_HASH, message, "`sha256sum` prints that of a file").at_hash()
        })?),
        None => None,
    };
    let looked = file::look(&wanted.path, sha256.as_ref())?;
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |known: &&Known| known.path == looked.path || known.seen.is_of_one_file(&looked.seen);
    if let Some(known) = all.iter().find(is_it) {
        return match known.seen == looked.seen {
            true => known.outcome.clone(),
            false => Err(Fault::replaced(&wanted.path)),
        };
    }
    let library = open::library(&looked, &wanted.path)?;
    let outcome = open::greeted(library, &looked, &wanted.path);
    let (path, seen, sha256) = (looked.path, looked.seen, looked.sha256);
    all.push(Known { path, seen, sha256, outcome: outcome.clone() });
    outcome
}
