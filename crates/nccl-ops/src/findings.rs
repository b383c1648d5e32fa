//! What of NCCL is on this machine.

use std::path::PathBuf;

use crate::api::Api;

/// Which NCCL is used, or what is missing and how to get it: a line each, for `squall doctor`. Opens the library.
pub fn findings() -> Vec<String> {
    let mut lines: Vec<String> = match Api::get() {
        Ok(api) => vec![format!("NCCL {} in {}", api.version, api.path.display())],
        Err(error) => error.to_string().lines().map(str::to_string).collect(),
    };
    lines.extend(copies(&squall_dylib::mapped("libnccl.so")));
    lines
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
    fn a_second_copy_is_warned_about() {
        let files = ["/usr/lib/libnccl.so.2.22.3", "/venv/libnccl.so.2"].map(PathBuf::from);
        assert_eq!(copies(&files[..1]), None);
        let warning = copies(&files).unwrap();
        assert!(warning.starts_with("warning: 2 copies of NCCL"), "{warning}");
        assert!(warning.ends_with(": /usr/lib/libnccl.so.2.22.3, /venv/libnccl.so.2"), "{warning}");
    }
}
