//! What of NCCL is on this machine.

use std::path::{Path, PathBuf};

use crate::api::{Api, VARIABLE, WANTED};

/// Which NCCL is used and which wheels of it are not, or what is missing and how to get it: a line each, for `squall doctor`. Opens the
/// library that is used, and no other.
pub fn findings() -> Vec<String> {
    let (mut lines, chosen) = match Api::get() {
        Ok(api) => (vec![found(api)], Some(api.path.clone())),
        Err(error) => (error.to_string().lines().map(str::to_string).collect(), error.file().cloned()),
    };
    // Where none was chosen, all that there are were tried, and stand in the error.
    if let Some(chosen) = chosen {
        lines.extend(unused(&squall_dylib::installed(&WANTED), &chosen));
    }
    lines.extend(copies(&squall_dylib::mapped("libnccl.so")));
    lines
}

/// The file that this process uses, and a warning if it holds another copy; nothing before it was opened.
pub(crate) fn in_use() -> Vec<String> {
    let used = Api::opened().map(found);
    let warning = used.is_some().then(|| copies(&squall_dylib::mapped("libnccl.so"))).flatten();
    used.into_iter().chain(warning).collect()
}

fn found(api: &Api) -> String {
    format!("NCCL {} in {}", api.version, api.path.display())
}

/// Copies that were not chosen: the first that was found is used, not the newest.
fn unused(installed: &[PathBuf], chosen: &Path) -> Vec<String> {
    let others = installed.iter().filter(|file| *file != chosen);
    others
        .map(|file| format!("  not used: {} (set {VARIABLE} to a file to choose it)", file.display()))
        .collect()
}

/// A warning when the process has more than one copy, as happens when another component brings its own.
fn copies(mapped: &[PathBuf]) -> Option<String> {
    let files: Vec<String> = mapped.iter().map(|file| file.display().to_string()).collect();
    (files.len() > 1).then(|| {
        format!(
            "warning: {} copies of NCCL are in this process, and communicators of one mean nothing to another: {}",
            files.len(),
            files.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_were_not_chosen_are_listed() {
        let files = ["/venv/libnccl.so.2", "/usr/lib/python3/libnccl.so.2"].map(PathBuf::from);
        let [first, second] = files
            .each_ref()
            .map(|file| format!("  not used: {} (set SQUALL_NCCL to a file to choose it)", file.display()));
        assert_eq!(unused(&files, &files[1]), std::slice::from_ref(&first));
        assert_eq!(unused(&files, Path::new("/usr/lib/libnccl.so.2.28.3")), [first, second]);
    }

    #[test]
    fn a_second_copy_is_warned_about() {
        let files = ["/usr/lib/libnccl.so.2.22.3", "/venv/libnccl.so.2"].map(PathBuf::from);
        assert_eq!(copies(&files[..1]), None);
        let warning = copies(&files).unwrap();
        assert!(warning.starts_with("warning: 2 copies of NCCL"), "{warning}");
        assert!(warning.ends_with(": /usr/lib/libnccl.so.2.22.3, /venv/libnccl.so.2"), "{warning}");
    }
}
