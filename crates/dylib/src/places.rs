//! Where Python keeps what wheels install.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folders that a Python may be installed in, best first: environments in use, the `python3` on the path, the system, the user.
pub(crate) fn prefixes() -> Vec<PathBuf> {
    prefixes_in(|name| env::var_os(name), env::home_dir())
}

/// [`prefixes`], given the environment. Folders are taken whole or not at all: what is empty or relative would mean the current folder,
/// and code is not to come from wherever a program is started.
fn prefixes_in(variable: impl Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Vec<PathBuf> {
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(&variable).map(PathBuf::from);
    let mut prefixes: Vec<PathBuf> = environments.collect();
    let path = variable("PATH").unwrap_or_default();
    let mut pythons =
        env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|f| f.join("python3"));
    prefixes.extend(pythons.find(|python| python.is_file()).iter().flat_map(|python| beside(python)));
    prefixes.extend(["/usr", "/usr/local"].map(PathBuf::from));
    prefixes.extend(home.map(|home| home.join(".local")));
    prefixes.retain(|prefix| prefix.is_absolute());
    prefixes
}

/// The prefixes of an executable: of its name, which an environment may own, and of the file that it stands for. A shim of pyenv is a
/// script that starts one of the versions beside it, which only running it would tell: all of them are prefixes.
fn beside(python: &Path) -> Vec<PathBuf> {
    let real = python.canonicalize().ok();
    let prefix = |file: &Path| Some(file.parent()?.parent()?.to_path_buf());
    let mut found: Vec<PathBuf> =
        [Some(python), real.as_deref()].into_iter().flatten().filter_map(prefix).collect();
    if let Some(shims) = python.parent().filter(|folder| folder.ends_with("shims"))
        && let Some(root) = shims.parent()
    {
        let versions = std::fs::read_dir(root.join("versions")).into_iter().flatten().flatten();
        let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
        versions.sort_by(|a, b| b.cmp(a));
        found.extend(versions);
    }
    found
}

/// The folders for packages below these prefixes that exist, each once.
pub(crate) fn site_packages(prefixes: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for prefix in prefixes {
        for python in pythons(&prefix.join("lib")) {
            for packages in ["site-packages", "dist-packages"].map(|name| python.join(name)) {
                if packages.is_dir() && !found.contains(&packages) {
                    found.push(packages);
                }
            }
        }
    }
    found
}

/// The folders `python3*`, the newest version first.
fn pythons(lib: &Path) -> Vec<PathBuf> {
    let version = |path: &Path| -> Option<u32> {
        let rest = path.file_name()?.to_str()?.strip_prefix("python3")?;
        // Debian's `python3` is for all versions.
        if rest.is_empty() { Some(0) } else { rest.strip_prefix('.')?.trim_end_matches('t').parse().ok() }
    };
    let entries = std::fs::read_dir(lib).into_iter().flatten().flatten();
    let mut pythons: Vec<(u32, PathBuf)> =
        entries.filter_map(|entry| Some((version(&entry.path())?, entry.path()))).collect();
    pythons.sort_by(|a, b| b.cmp(a));
    pythons.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_pythons_come_first_and_others_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let lib = root.path().join("lib");
        for folder in [
            "python3/dist-packages",
            "python3.9/site-packages",
            "python3.11/dist-packages",
            "python3.13t/site-packages",
            "python2.7/site-packages",
            "python3.11/nothing",
        ] {
            std::fs::create_dir_all(lib.join(folder)).unwrap();
        }
        let prefix = root.path().to_path_buf();
        let found = site_packages(&[prefix.clone(), prefix]);
        let want = [
            "python3.13t/site-packages",
            "python3.11/dist-packages",
            "python3.9/site-packages",
            "python3/dist-packages",
        ];
        assert_eq!(found, want.map(|folder| lib.join(folder)));
    }

    #[test]
    fn a_shim_stands_for_all_versions_beside_it() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["shims", "versions/3.11.7", "versions/3.12.1"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        std::fs::write(root.path().join("shims/python3"), "#!/bin/sh").unwrap();
        let found = beside(&root.path().join("shims/python3"));
        let versions = ["3.12.1", "3.11.7"].map(|version| root.path().join("versions").join(version));
        assert!(found.ends_with(&versions), "{found:?}");
    }

    #[cfg(unix)]
    #[test]
    fn prefixes_that_are_empty_or_relative_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("base/bin")).unwrap();
        std::fs::write(root.join("base/bin/python3"), "").unwrap();
        // From the current folder, the way to the same executable.
        let here = env::current_dir().unwrap();
        let up: PathBuf = here.ancestors().skip(1).map(|_| "..").collect();
        let relative = up.join(root.strip_prefix("/").unwrap()).join("base");
        assert!(relative.join("bin/python3").is_file());
        let found = |environment: &Path, path: &[&Path], home: &Path| {
            let path = env::join_paths(path).unwrap();
            let variable = |name: &str| match name {
                "PATH" => Some(path.clone()),
                _ => Some(environment.as_os_str().to_os_string()),
            };
            prefixes_in(variable, Some(home.to_path_buf()))
        };
        let system = [Path::new("/usr"), Path::new("/usr/local")];
        let none = Path::new("");
        assert_eq!(found(none, &[none, &relative.join("bin")], none), system);
        assert_eq!(found(&relative, &[Path::new("."), Path::new("bin")], &relative), system);
        // Absolute ones count, also behind others.
        let (base, bin) = (root.join("base"), root.join("base/bin"));
        let all = found(&root, &[none, &relative.join("bin"), &bin], &root);
        let local = root.join(".local");
        let [usr, usr_local] = system;
        // The executable's name and its file are beside the same folders.
        let want: [&Path; 7] = [&root, &root, &base, &base, usr, usr_local, &local];
        assert_eq!(all, want);
    }

    #[cfg(unix)]
    #[test]
    fn an_executable_is_looked_beside_by_its_name_and_its_file() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for bin in ["env/bin", "base/bin"] {
            std::fs::create_dir_all(root.join(bin)).unwrap();
        }
        std::fs::write(root.join("base/bin/python3.12"), "").unwrap();
        std::os::unix::fs::symlink(root.join("base/bin/python3.12"), root.join("env/bin/python3")).unwrap();
        assert_eq!(beside(&root.join("env/bin/python3")), [root.join("env"), root.join("base")]);
    }
}
