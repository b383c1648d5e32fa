//! What is wrong with a job, said so that a person can mend it. One type from the parser to the verifier,
//! so that a report about a task graph points into the manifest it came from.

use std::fmt;

/// The stable name of a kind of diagnostic, as `E0203`. The first digit after the letter is the stage:
/// 0 the file, 1 the manifest, 2 verification, 3 binding, 4 running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub &'static str);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

/// Whether a diagnostic stops the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The job is refused.
    Error,
    /// The job runs; the author should look.
    Warning,
}

/// Bytes `start..end` of the source a job was read from. Graphs built in Rust have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl From<std::ops::Range<usize>> for Span {
    fn from(range: std::ops::Range<usize>) -> Span {
        // A manifest is refused beyond a few MiB, so that offsets fit; saturating keeps this total.
        let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Span { start: clamp(range.start), end: clamp(range.end) }
    }
}

/// A place and what to say of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// Where in the source, if the job has one.
    pub span: Option<Span>,
    /// The rank concerned, of the world.
    pub rank: Option<u32>,
    /// The task concerned, by name.
    pub task: Option<String>,
    /// What stands there, in a few words; may be empty.
    pub text: String,
}

impl Label {
    /// A label on a piece of source.
    pub fn at(span: impl Into<Option<Span>>, text: impl Into<String>) -> Label {
        Label { span: span.into(), text: text.into(), ..Label::default() }
    }

    /// The same label, naming a rank.
    pub fn on_rank(mut self, rank: u32) -> Label {
        self.rank = Some(rank);
        self
    }

    /// The same label, naming a task.
    pub fn in_task(mut self, task: impl Into<String>) -> Label {
        self.task = Some(task.into());
        self
    }
}

/// One thing that is wrong, or doubtful, with a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its kind; `squall explain` knows it.
    pub code: Code,
    /// Error or warning.
    pub severity: Severity,
    /// The whole matter in one sentence, with the values in conflict.
    pub message: String,
    /// The place to look at first.
    pub primary: Label,
    /// Other places that belong to it, such as the other rank's task.
    pub related: Vec<Label>,
    /// What shows the matter at a glance, in lines of text of a fixed width: who waits for whom, or what ranks do side by side.
    pub drawing: Option<String>,
    /// A concrete mend.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(code: Code, message: impl Into<String>, primary: Label) -> Diagnostic {
        Diagnostic {
            code,
            severity: Severity::Error,
            message: message.into(),
            primary,
            related: Vec::new(),
            drawing: None,
            help: None,
        }
    }

    /// A warning at a place.
    pub fn warning(code: Code, message: impl Into<String>, primary: Label) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, message, primary) }
    }

    /// Adds a related place.
    pub fn with_related(mut self, label: Label) -> Diagnostic {
        self.related.push(label);
        self
    }

    /// Adds a drawing, without a line's end behind its last line.
    pub fn with_drawing(mut self, drawing: impl Into<String>) -> Diagnostic {
        self.drawing = Some(drawing.into());
        self
    }

    /// Adds a mend.
    pub fn with_help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Whether this stops the run.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// One line, for logs and for callers without the source; the runner draws the long form, drawings included.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{kind}[{}]: {}", self.code, self.message)?;
        for label in std::iter::once(&self.primary).chain(&self.related).filter(|l| !l.text.is_empty()) {
            write!(f, "; ")?;
            if let Some(rank) = label.rank {
                write!(f, "rank {rank}: ")?;
            }
            if let Some(task) = &label.task {
                write!(f, "task `{task}`: ")?;
            }
            write!(f, "{}", label.text)?;
        }
        match &self.help {
            Some(help) => write!(f, "; help: {help}"),
            None => Ok(()),
        }
    }
}
