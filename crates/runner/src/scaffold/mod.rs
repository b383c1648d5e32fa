//! What `squall new` writes: the beginning of a plugin, which builds and passes `squall plugin check`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use squall_core::Registry;

/// The files of a plugin in Rust: where each stands, and its text with names to be filled in.
const PLUGIN: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("plugin/Cargo.toml.txt")),
    ("src/lib.rs", include_str!("plugin/lib.rs.txt")),
    ("tests/op.rs", include_str!("plugin/op.rs.txt")),
    ("job.toml", include_str!("plugin/job.toml.txt")),
    ("README.md", include_str!("plugin/README.md.txt")),
];

/// What no crate can be called: words of Rust, and crates that are always there.
const WORDS: [&str; 43] = [
    "abstract", "alloc", "as", "async", "await", "become", "box", "break", "const", "continue", "core",
    "crate", "do", "dyn", "else", "enum", "extern", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "match", "mod", "move", "mut", "pub", "ref", "return", "self", "static", "std", "struct", "super",
    "test", "trait", "type", "unsafe", "use", "while",
];

/// The longest name, so that file names made of it stay short.
const LONGEST: usize = 64;

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScaffoldError {
    /// The name cannot be that of a crate, an op and a file at once.
    #[error(
        "`{0}` cannot be a plugin's name: it takes small letters, digits and `-`, begins with a letter, and has at most {LONGEST} of them"
    )]
    Name(String),
    /// Squall or Rust has something of this name.
    #[error(
        "`{0}` is a name of squall's own, or of Rust's: the plugin's crate and its op need one that is not taken"
    )]
    Taken(String),
    /// Something is there already; it stays as it is.
    #[error("`{}` is there already, and nothing is written over it", .0.display())]
    Exists(PathBuf),
    /// There is no squall at the place that was given.
    #[error("`{}` is no checkout of squall: it has no `crates/plugin/Cargo.toml`", .0.display())]
    NoCheckout(PathBuf),
    /// A file could not be written.
    #[error("`{}` cannot be written: {error}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
}

/// Writes a plugin called `name`, which `registry` has nothing of, into a new folder of that name inside `parent`, whole or not at all, and returns the folder. Its
/// dependencies come from `checkout`, a checkout of squall; by default the one that this program was built from if that is still there, else
/// by version.
pub fn plugin(
    registry: &Registry,
    parent: &Path,
    name: &str,
    checkout: Option<&Path>,
) -> Result<PathBuf, ScaffoldError> {
    let letters = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let begins = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    if !(letters && begins && name.len() <= LONGEST && !name.ends_with('-')) {
        return Err(ScaffoldError::Name(name.to_string()));
    }
    let op = name.replace('-', "_");
    let taken = registry.ops().any(|(other, _)| other.name() == op) || registry.kernel(&op).is_some();
    if taken || WORDS.contains(&name) || name == "squall" || name.starts_with("squall-") {
        return Err(ScaffoldError::Taken(name.to_string()));
    }
    let folder = parent.join(name);
    if folder.symlink_metadata().is_ok() {
        return Err(ScaffoldError::Exists(folder));
    }
    let checkout = match checkout {
        Some(given) => {
            let found = given.canonicalize().ok().filter(|path| is_checkout(path));
            Some(found.ok_or_else(|| ScaffoldError::NoCheckout(given.to_path_buf()))?)
        }
        None => Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .and_then(|path| path.canonicalize().ok())
            .filter(|path| is_checkout(path)),
    };
    let file = format!("{}{op}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let fill = |text: &str| {
        text.replace("{{name}}", name)
            .replace("{{op}}", &op)
            .replace("{{file}}", &file)
            .replace("{{plugin}}", &dependency("plugin", checkout.as_deref()))
            .replace("{{runner}}", &dependency("runner", checkout.as_deref()))
            .replace("{{host-backend}}", &dependency("host-backend", checkout.as_deref()))
    };
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |error| ScaffoldError::Io { path, error }
    };
    // Beside its place, and renamed when it is whole.
    let made = tempfile::Builder::new().prefix(".squall-new-").tempdir_in(parent).map_err(io(parent))?;
    for (place, text) in PLUGIN {
        let path = made.path().join(place);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(io(folder))?;
        }
        fs::write(&path, fill(text)).map_err(io(&path))?;
    }
    readable(made.path()).map_err(io(made.path()))?;
    fs::rename(made.path(), &folder).map_err(io(&folder))?;
    // Nothing is left to remove under its old name.
    let _ = made.keep();
    Ok(folder)
}

fn is_checkout(path: &Path) -> bool {
    path.join("crates/plugin/Cargo.toml").is_file()
}

/// A crate of squall's as Cargo finds it.
fn dependency(name: &str, checkout: Option<&Path>) -> String {
    match checkout {
        // As TOML writes a text: with its quotes and backslashes escaped.
        Some(checkout) => {
            let path = toml::Value::String(checkout.join("crates").join(name).display().to_string());
            format!("{{ path = {path} }}")
        }
        None => format!("\"{}\"", env!("CARGO_PKG_VERSION")),
    }
}

/// Temporary folders are their owner's alone; this one stays, and is as open as any that is made.
#[cfg(unix)]
fn readable(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let of_file = fs::metadata(folder.join("src"))?.permissions().mode();
    fs::set_permissions(folder, fs::Permissions::from_mode(of_file & 0o7777))
}

#[cfg(not(unix))]
fn readable(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    // A kernel of squall's own.
    use squall_kernels_std as _;

    use super::*;

    #[test]
    fn names_are_those_of_crates() {
        let (registry, folder) = (Registry::linked().unwrap(), tempfile::tempdir().unwrap());
        let long = "a".repeat(65);
        for name in ["", "-a", "a-", "A", "1a", "a_b", "a b", "ä", "a/b", "..", &long] {
            assert!(
                matches!(plugin(&registry, folder.path(), name, None), Err(ScaffoldError::Name(_))),
                "{name}"
            );
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn names_of_squalls_own_are_taken() {
        let (registry, folder) = (Registry::linked().unwrap(), tempfile::tempdir().unwrap());
        for name in ["sum-rows", "squall", "squall-plugin", "fn", "std"] {
            let refused = plugin(&registry, folder.path(), name, None);
            assert!(matches!(refused, Err(ScaffoldError::Taken(_))), "{name}: {refused:?}");
        }
    }

    #[test]
    fn nothing_is_written_over() {
        let (registry, folder) = (Registry::linked().unwrap(), tempfile::tempdir().unwrap());
        fs::write(folder.path().join("mine"), "kept").unwrap();
        let refused = plugin(&registry, folder.path(), "mine", None);
        assert!(matches!(refused, Err(ScaffoldError::Exists(_))));
        assert_eq!(fs::read_to_string(folder.path().join("mine")).unwrap(), "kept");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn all_is_filled_in() {
        let (registry, folder) = (Registry::linked().unwrap(), tempfile::tempdir().unwrap());
        let made = plugin(&registry, folder.path(), "my-op", None).unwrap();
        for (place, _) in PLUGIN {
            let text = fs::read_to_string(made.join(place)).unwrap();
            assert!(!text.contains("{{"), "{place}: {text}");
        }
        let manifest = fs::read_to_string(made.join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let path = manifest["dependencies"]["squall-plugin"]["path"].as_str().unwrap();
        assert!(Path::new(path).join("include/squall_plugin.h").parent().is_some_and(Path::is_dir), "{path}");
        let refused = plugin(&registry, folder.path(), "other", Some(folder.path()));
        assert!(matches!(refused, Err(ScaffoldError::NoCheckout(_))));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary folder is left");
    }
}
