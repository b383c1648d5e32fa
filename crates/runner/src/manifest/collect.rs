//! What was found wrong, bounded and put in order.

use squall_core::{Diagnostic, Label};

use crate::codes;

/// More errors or warnings than this are counted and not kept: they would help nobody, and a file of errors alone
/// must not take memory and time without bound.
pub(crate) const MAX_DIAGNOSTICS: usize = 100;

/// What was found wrong so far: errors, or warnings.
#[derive(Default)]
pub(crate) struct Diagnostics {
    kept: Vec<Diagnostic>,
    dropped: usize,
}

impl Diagnostics {
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        self.push_with(|| diagnostic);
    }

    /// Adds a diagnostic that is worked out only if it is kept.
    pub(crate) fn push_with(&mut self, diagnostic: impl FnOnce() -> Diagnostic) {
        if self.kept.len() < MAX_DIAGNOSTICS {
            self.kept.push(diagnostic());
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// All of it in file order, what has no place last.
    pub(crate) fn sorted(mut self) -> Vec<Diagnostic> {
        self.kept.sort_by_key(|d| d.primary.span.map_or((u32::MAX, u32::MAX), |span| (span.start, span.end)));
        if self.dropped > 0 {
            self.kept.push(if self.kept.iter().any(Diagnostic::is_error) {
                let message = format!("{} more errors are not listed", self.dropped);
                Diagnostic::error(codes::MORE_ERRORS, message, Label::default())
            } else {
                let message = format!("{} more warnings are not listed", self.dropped);
                Diagnostic::warning(codes::MORE_WARNINGS, message, Label::default())
            });
        }
        self.kept
    }
}
