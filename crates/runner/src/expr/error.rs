//! What is wrong with an expression.

use std::ops::Range;

use squall_core::Code;

use crate::codes;

/// A fault with its place inside the expression's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExprError {
    /// What kind of fault.
    pub kind: ErrorKind,
    /// Bytes of the expression's text.
    pub range: Range<usize>,
    /// The whole matter, with the values in conflict.
    pub message: String,
    /// A concrete mend.
    pub help: Option<String>,
}

/// The kinds of [`ExprError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not an expression.
    Syntax,
    /// Too long or too deeply nested.
    Limit,
    /// Too few or too many arguments.
    Arity,
    /// Nothing has this name.
    UnknownName,
    /// The name is of another kind of thing.
    WrongName,
    /// A communicator is needed before it is made.
    NotYet,
    /// A value of a type that does not fit.
    Type,
    /// A division by zero.
    DivisionByZero,
    /// Beyond 64 bits.
    Overflow,
    /// Infinite or not a number.
    NotFinite,
    /// An index or an argument out of range.
    OutOfRange,
    /// A name stands for something that itself failed, which was reported where it failed.
    Reported,
}

impl ErrorKind {
    /// The code to report under; `None` where the fault was already reported elsewhere.
    pub fn code(self) -> Option<Code> {
        Some(match self {
            ErrorKind::Syntax => codes::EXPR_SYNTAX,
            ErrorKind::Limit => codes::EXPR_LIMIT,
            ErrorKind::Arity => codes::ARITY,
            ErrorKind::UnknownName => codes::UNKNOWN_NAME,
            ErrorKind::WrongName => codes::WRONG_NAME,
            ErrorKind::NotYet => codes::COMMUNICATOR_NOT_YET,
            ErrorKind::Type => codes::EXPR_TYPE,
            ErrorKind::DivisionByZero => codes::DIVISION_BY_ZERO,
            ErrorKind::Overflow => codes::OVERFLOW,
            ErrorKind::NotFinite => codes::NOT_FINITE,
            ErrorKind::OutOfRange => codes::OUT_OF_RANGE,
            ErrorKind::Reported => return None,
        })
    }
}

impl ExprError {
    pub(crate) fn new(kind: ErrorKind, range: &Range<usize>, message: impl Into<String>) -> ExprError {
        ExprError { kind, range: range.clone(), message: message.into(), help: None }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> ExprError {
        self.help = Some(help.into());
        self
    }
}
