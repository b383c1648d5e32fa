//! Everything that is wrong with a job, and what can go wrong while it runs.

use std::fmt;

use crate::diagnostic::Diagnostic;

/// All that was found wrong with a job, in one report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Diagnostic>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
