//! Whether a job's checkpoints and its outputs keep out of each other's way.

use std::path::{Component, Path, PathBuf};

use squall_core::{Diagnostic, Label};

use super::{Job, Target};
use crate::codes;

/// A file that is saved in the folder of the checkpoints, in its place, or as a folder above it. Names are compared as written;
/// what links make of them, the run sees.
pub(super) fn check(job: &Job<'_>, targets: &[Target]) -> Vec<Diagnostic> {
    let Some(checkpoint) = &job.manifest.checkpoint else { return Vec::new() };
    let dir = plain(&checkpoint.dir.value);
    let mut refused = None;
    let mut problems = Vec::new();
    for target in targets {
        let file = plain(&target.file);
        let Some(save) = &job.manifest.buffers[target.buffer].save else { continue };
        // Once for each buffer, whatever its ranks' names are.
        if refused == Some(target.buffer) || !(file.starts_with(&dir) || dir.starts_with(&file)) {
            continue;
        }
        refused = Some(target.buffer);
        let message =
            format!("`{}` is saved where the checkpoints are, in `{}`", target.file, checkpoint.dir.value);
        let label = Label::at(save.value.file.place.span(), "");
        problems.push(
            Diagnostic::error(codes::CHECKPOINT_PLACE, message, label)
                .with_related(Label::at(checkpoint.dir.span, "the checkpoints' folder"))
                .with_help("give the checkpoints a folder of their own"),
        );
    }
    problems
}

/// A name without `.` and, where that is plain, without `..`.
fn plain(name: &str) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in Path::new(name).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_plainly() {
        for (name, same) in
            [("./a/b", "a/b"), ("a/../b", "b"), ("../a", "../a"), ("a/./b/", "a/b"), ("/../a", "/../a")]
        {
            assert_eq!(plain(name), PathBuf::from(same));
        }
        assert!(!plain("ckpt2/x").starts_with(plain("ckpt")));
    }
}
