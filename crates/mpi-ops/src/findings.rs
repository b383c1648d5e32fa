//! What of MPI this build uses and this machine has.

use std::path::PathBuf;

use crate::api;
use crate::process::Process;

/// The launchers that MPI brings.
const LAUNCHERS: [&str; 2] = ["mpirun", "mpiexec"];

/// Which MPI this program is linked to, and whether there is a launcher for its processes: a line each, for `squall doctor`. Starts nothing.
pub fn findings() -> Vec<String> {
    let mut lines = vec![api::library().unwrap_or_else(|error| error.to_string())];
    let path = std::env::var_os("PATH").unwrap_or_default();
    match LAUNCHERS.iter().find_map(|name| find(&path, name)) {
        Some(file) => lines.push(format!("  its processes are started by {}", file.display())),
        None => {
            lines.push(format!(
                "  there is neither {} in PATH, so that its processes cannot be started",
                LAUNCHERS.join(" nor ")
            ));
            lines.push("install openmpi-bin, or the launcher of the MPI above".to_string());
        }
    }
    lines
}

/// What this process has started.
pub(crate) fn in_use() -> Vec<String> {
    let line = |process: &Process| {
        let (rank, size) = (process.rank(), squall_core::count(process.size(), "rank"));
        format!("{}, rank {rank} of {size}", process.library())
    };
    Process::started().map(line).into_iter().collect()
}

fn find(path: &std::ffi::OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_told_without_starting_it() {
        let lines = findings();
        assert!(lines[0].contains("MPI") && lines.len() > 1, "{lines:?}");
        assert!(Process::started().is_none() && in_use().is_empty());
    }
}
