//! Opening a library of the system at run time: NCCL, NVRTC, the CUDA driver.
//!
//! A program that links such a library does not start where it is missing. Opened when first needed, its absence is an error that
//! says where it was looked for, what the loader said of each place, and how to install it:
//!
//! ```
//! # use squall_dylib::{Wanted, open};
//! static WANTED: Wanted = Wanted {
//!     what: "NCCL",
//!     names: &["libnccl.so.2"],
//!     variable: "SQUALL_NCCL",
//!     wheels: &["nvidia/nccl/lib"],
//!     install: "NCCL: `pip install nvidia-nccl-cu13`",
//! };
//! match open(&WANTED) {
//!     Ok(found) => println!("NCCL is {}", found.path.display()),
//!     Err(missing) => println!("{missing}"),
//! }
//! ```
//!
//! Places are tried in this order, and the first file that the loader takes is the one:
//!
//! 1. what the variable names, and nothing else, when it is set;
//! 2. each name, by the loader's own rules (`LD_LIBRARY_PATH`, the system's cache);
//! 3. each name in each folder of [`Wanted::wheels`] below the `site-packages` of the active virtual environment, of the active Conda
//!    environment, of the `python3` on the path, of the system and of the user. No process is started to find them. An environment or an
//!    element of the path that is empty or relative is passed over: nothing is loaded from wherever the program was started.
//!
//! So the first wins and not the newest. What the loader finds is what the machine's administrator, its container or its job script
//! chose, often built for its network, and the same on all machines of a cluster; a Python environment may lie there for another reason. A
//! newest copy could only be told by opening them all, and an upgrade of something else would change a program's results. What else
//! [`installed`] finds can be shown, and [`Wanted::variable`] chooses it.
//!
//! What was opened stays open for the life of the process: libraries keep threads and thread-locals, whose code must not go away.

mod loader;
mod places;

pub use loader::mapped;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::Library;

/// A library that a program can use.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// What to call it in messages: `NCCL`.
    pub what: &'static str,
    /// The names of its file, best first: `libnccl.so.2`.
    pub names: &'static [&'static str],
    /// The environment variable that names its file, tried alone when set and not empty: `SQUALL_NCCL`.
    pub variable: &'static str,
    /// Folders below `site-packages` where Python wheels put it: `nvidia/nccl/lib`.
    pub wheels: &'static [&'static str],
    /// How to get it, as the end of a line that begins with "install": ``NCCL: `pip install nvidia-nccl-cu13` ``.
    pub install: &'static str,
}

/// A library that was opened.
#[derive(Clone, Debug)]
pub struct Found {
    /// The library, open for the life of the process.
    pub library: &'static Library,
    /// The file that the loader took, symlinks resolved.
    pub path: PathBuf,
}

impl Found {
    /// A function of the library, or the loader's words why there is none of that name.
    ///
    /// # Safety
    /// `T` must be the type of the function of that name.
    pub unsafe fn function<T: Copy>(&self, name: &str) -> Result<T, String> {
        // SAFETY: the caller's; the library is never closed.
        let symbol = unsafe { self.library.get::<T>(name) };
        symbol.map(|symbol| *symbol).map_err(|error| {
            std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
        })
    }
}

/// A library that could not be opened. Displayed, it has the loader's words for every place that was tried; names that failed
/// alike in one folder share a line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotFound {
    /// What was wanted: [`Wanted::what`].
    pub what: &'static str,
    /// The places, in the order in which they were tried.
    pub tried: Vec<Tried>,
    /// Whether [`Wanted::variable`] was set, so that its file alone was tried.
    pub overridden: bool,
    variable: &'static str,
    install: &'static str,
}

/// A place where a library was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tried {
    /// The file, or the bare name given to the loader.
    pub place: PathBuf,
    /// The loader's words.
    pub reason: String,
}

/// Finds and opens a library. Called from any thread, as often as wanted: what is already open is found again.
pub fn open(wanted: &Wanted) -> Result<Found, NotFound> {
    open_in(wanted, std::env::var_os(wanted.variable), &places::prefixes())
}

/// [`open`], given the variable's value and the folders that a Python is installed in.
fn open_in(wanted: &Wanted, variable: Option<OsString>, prefixes: &[PathBuf]) -> Result<Found, NotFound> {
    let variable = variable.filter(|value| !value.is_empty());
    let mut missing = NotFound {
        what: wanted.what,
        tried: Vec::new(),
        overridden: variable.is_some(),
        variable: wanted.variable,
        install: wanted.install,
    };
    if let Some(file) = variable {
        return missing.attempt(&file).ok_or(missing);
    }
    for name in wanted.names {
        if let Some(found) = missing.attempt(OsStr::new(name)) {
            return Ok(found);
        }
    }
    for file in in_wheels(wanted, prefixes) {
        if let Some(found) = missing.attempt(file.as_os_str()) {
            return Ok(found);
        }
    }
    Err(missing)
}

/// The files that wheels have installed where [`open`] looks, best first, symlinks resolved, each once. None is opened, and what the
/// loader would find by name is not among them.
pub fn installed(wanted: &Wanted) -> Vec<PathBuf> {
    installed_in(wanted, &places::prefixes())
}

fn installed_in(wanted: &Wanted, prefixes: &[PathBuf]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for file in in_wheels(wanted, prefixes).into_iter().filter_map(|file| file.canonicalize().ok()) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

/// Where wheels would put it, in the order in which it is tried.
fn in_wheels(wanted: &Wanted, prefixes: &[PathBuf]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for packages in places::site_packages(prefixes) {
        for folder in wanted.wheels {
            files.extend(wanted.names.iter().map(|name| packages.join(folder).join(name)));
        }
    }
    files
}

impl NotFound {
    /// Tries one place, and notes why if it is not the one.
    fn attempt(&mut self, place: &OsStr) -> Option<Found> {
        match loader::load(place) {
            Ok((library, path)) => Some(Found { library, path }),
            Err(reason) => {
                self.tried.push(Tried { place: Path::new(place).to_path_buf(), reason });
                None
            }
        }
    }
}

/// Places that failed alike: names in one folder, or bare names.
#[derive(PartialEq, Eq)]
struct Alike<'a> {
    folder: Option<&'a Path>,
    names: Vec<Cow<'a, str>>,
    reason: &'a str,
}

impl NotFound {
    /// The places in their order, those next to each other that failed alike together.
    fn alike(&self) -> Vec<Alike<'_>> {
        let mut all: Vec<Alike<'_>> = Vec::new();
        for Tried { place, reason } in &self.tried {
            let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty());
            let name = place.file_name().unwrap_or(place.as_os_str()).to_string_lossy();
            match all.last_mut() {
                Some(last) if (last.folder, last.reason) == (folder, reason) => last.names.push(name),
                _ => all.push(Alike { folder, names: vec![name], reason }),
            }
        }
        all
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be opened", self.what)?;
        if self.overridden {
            write!(f, " as {} says", self.variable)?;
        }
        f.write_str(":")?;
        let mut before: Option<Alike<'_>> = None;
        for alike in self.alike() {
            let Alike { folder, names, reason } = &alike;
            let again = before.is_some_and(|before| (&before.names, before.reason) == (names, reason));
            match (folder, &names[..]) {
                (Some(folder), _) if again => write!(f, "\n  the same in {}", folder.display())?,
                (Some(folder), [name]) => write!(f, "\n  {}: {reason}", folder.join(&**name).display())?,
                (Some(folder), names) => {
                    write!(f, "\n  {} in {}: {reason}", names.join(", "), folder.display())?;
                }
                (None, names) => write!(f, "\n  {}: {reason}", names.join(", "))?,
            }
            before = Some(alike);
        }
        if self.overridden {
            write!(f, "\nset {} to the library's file, or unset it to look elsewhere", self.variable)
        } else {
            write!(f, "\ninstall {}; or set {} to its file", self.install, self.variable)
        }
    }
}

impl std::error::Error for NotFound {}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
