//! Values with their places in the manifest, and the way from a byte of a string to a byte of the file.

use std::ops::Range;
use std::sync::Arc;

use squall_core::{Diagnostic, Label, Span};

use crate::expr::{self, BufferRef, Env, Expr, ExprError, Value};

/// A value and where it stands; a default stands nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its place; `None` where the manifest left it out.
    pub span: Option<Span>,
}

impl<T> At<T> {
    pub(crate) fn new(value: T, span: Span) -> At<T> {
        At { value, span: Some(span) }
    }

    pub(crate) fn default(value: T) -> At<T> {
        At { value, span: None }
    }
}

/// Where a value stands and, if it is a string, where each byte of the decoded string does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    span: Span,
    bytes: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Bytes {
    /// Not a string: every part is the whole.
    Whole,
    /// A string without escapes, whose first byte stands here.
    From(u32),
    /// A string with escapes: the place of each decoded byte, then of the closing quote.
    Each(Arc<[u32]>),
}

impl Place {
    /// The place of a number or a boolean.
    pub(crate) fn of_value(span: Span) -> Place {
        Place { span, bytes: Bytes::Whole }
    }

    /// The place of plain text, without quotes or escapes.
    pub(crate) fn of_text(span: Span) -> Place {
        Place { span, bytes: Bytes::From(span.start) }
    }

    /// The place of a TOML string: `raw` is its text with quotes, which begins at `start` of the file.
    pub(crate) fn of_string(raw: &str, start: usize) -> Place {
        let quote = if raw.starts_with("\"\"\"") || raw.starts_with("'''") { 3 } else { 1 };
        let inner = raw.get(quote..raw.len().saturating_sub(quote)).unwrap_or("");
        // A line break right behind three quotes does not count.
        let skipped = match inner {
            _ if quote == 1 => 0,
            _ if inner.starts_with("\r\n") => 2,
            _ => usize::from(inner.starts_with('\n')),
        };
        let (inner, start_of_inner) = (&inner[skipped..], start + quote + skipped);
        let bytes = if raw.starts_with('"') && inner.contains('\\') {
            Bytes::Each(escaped(inner, start_of_inner).into())
        } else {
            Bytes::From(offset(start_of_inner))
        };
        Place { span: Span::from(start..start + raw.len()), bytes }
    }

    /// The whole value, with its quotes.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The place of bytes of the decoded string.
    pub fn part(&self, range: &Range<usize>) -> Span {
        let at = |byte: usize| match &self.bytes {
            Bytes::Whole => None,
            Bytes::From(start) => Some(start.saturating_add(offset(byte))),
            Bytes::Each(places) => places.get(byte).or(places.last()).copied(),
        };
        match (at(range.start), at(range.end)) {
            (Some(start), Some(end)) => Span { start, end: end.max(start) },
            _ => self.span,
        }
    }
}

fn offset(byte: usize) -> u32 {
    u32::try_from(byte).unwrap_or(u32::MAX)
}

/// The place of each byte that the inside of a basic string decodes to, then of its end.
fn escaped(inner: &str, start: usize) -> Vec<u32> {
    let mut places = Vec::with_capacity(inner.len() + 1);
    let mut chars = inner.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        let mut len = char.len_utf8();
        if char == '\\' {
            let digits = match chars.next() {
                Some((_, 'x')) => 2,
                Some((_, 'u')) => 4,
                Some((_, 'U')) => 8,
                Some((_, space)) if space.is_ascii_whitespace() => {
                    // A line that ends in a backslash: up to the next text nothing is decoded.
                    while chars.next_if(|(_, next)| next.is_ascii_whitespace()).is_some() {}
                    continue;
                }
                _ => 0,
            };
            let code = chars.by_ref().take(digits).fold(0_u32, |code, (_, digit)| {
                code.wrapping_mul(16).wrapping_add(digit.to_digit(16).unwrap_or(0))
            });
            len = char::from_u32(code).map_or(1, char::len_utf8);
        }
        // Bytes of one character written plainly follow each other; those of an escape share its place.
        places.extend((0..len).map(|byte| offset(start + at + if char == '\\' { 0 } else { byte })));
    }
    places.push(offset(start + inner.len()));
    places
}

/// A string of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The decoded string.
    pub value: String,
    /// Where it stands.
    pub place: Place,
}

impl Text {
    /// Reads the string as an expression.
    pub fn formula(&self) -> Result<Formula, FormulaError> {
        match expr::parse(&self.value) {
            Ok(expr) => Ok(Formula { expr, place: self.place.clone() }),
            Err(error) => Err(FormulaError::new(error, &self.place)),
        }
    }

    /// Reads the string as a buffer or a range of one.
    pub fn buffer(&self) -> Result<BufferRef, FormulaError> {
        expr::parse_buffer(&self.value).map_err(|error| FormulaError::new(error, &self.place))
    }
}

/// An expression of the manifest; a plain number is one too.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    /// The tree; its ranges count in the decoded string.
    pub expr: Expr,
    /// Where the string or the number stands.
    pub place: Place,
}

impl Formula {
    /// A number or a boolean.
    pub(crate) fn literal(value: Value, span: Span) -> Formula {
        Formula { expr: Expr::literal(value, 0..0), place: Place::of_value(span) }
    }

    /// The value in its surroundings.
    pub fn eval(&self, env: &dyn Env) -> Result<Value, FormulaError> {
        self.placed(self.expr.eval(env))
    }

    /// The value where an integer is needed.
    pub fn eval_int(&self, env: &dyn Env) -> Result<i64, FormulaError> {
        self.placed(self.expr.eval_int(env))
    }

    /// The value where a float is needed; an integer becomes one.
    pub fn eval_f64(&self, env: &dyn Env) -> Result<f64, FormulaError> {
        self.placed(self.expr.eval_f64(env))
    }

    /// The value where a condition is needed.
    pub fn eval_bool(&self, env: &dyn Env) -> Result<bool, FormulaError> {
        self.placed(self.expr.eval_bool(env))
    }

    fn placed<T>(&self, result: Result<T, ExprError>) -> Result<T, FormulaError> {
        result.map_err(|error| FormulaError::new(error, &self.place))
    }
}

/// A fault in an expression of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct FormulaError {
    /// The fault; its range counts in the decoded string.
    pub error: ExprError,
    /// The fault's place in the manifest.
    pub span: Span,
}

impl FormulaError {
    /// A fault of the string that stands at `place`.
    pub fn new(error: ExprError, place: &Place) -> FormulaError {
        let span = place.part(&error.range);
        FormulaError { error, span }
    }

    /// What to report; `None` where the cause was reported already.
    pub fn diagnostic(&self) -> Option<Diagnostic> {
        let code = self.error.kind.code()?;
        let mut diagnostic = Diagnostic::error(code, self.error.message.clone(), Label::at(self.span, ""));
        diagnostic.help.clone_from(&self.error.help);
        Some(diagnostic)
    }
}

/// What is wrong with a string that has a form of its own: a device, a duration, a file name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TextError {
    /// Bytes of the string.
    pub range: Range<usize>,
    /// The whole matter.
    pub message: String,
    /// A concrete mend.
    pub help: Option<String>,
}

impl TextError {
    pub(crate) fn new(range: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> TextError {
        TextError { range, message: message.into(), help: Some(help.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file text that the bytes `range` of the string in `source` stand at.
    fn part(source: &str, range: Range<usize>) -> &str {
        let start = source.find(['"', '\'']).unwrap();
        let span = Place::of_string(&source[start..], start).part(&range);
        &source[span.start as usize..span.end as usize]
    }

    #[test]
    fn parts_of_every_kind_of_string_are_found_in_the_file() {
        assert_eq!(part(r#"a = "n + k""#, 4..5), "k");
        assert_eq!(part("a = 'n + k'", 4..5), "k");
        assert_eq!(part("a = \"\"\"n + k\"\"\"", 4..5), "k");
        assert_eq!(part("a = \"\"\"\nn + k\"\"\"", 4..5), "k");
        assert_eq!(part("a = \"\"\"\r\nn + k\"\"\"", 4..5), "k");
        assert_eq!(part("a = '''\nn\n+ k'''", 4..5), "k");
        assert_eq!(part(r#"a = "\u006e + \t k""#, 6..7), "k");
        assert_eq!(part(r#"a = "\x6e + \U0000006b""#, 4..5), r"\U0000006b");
        assert_eq!(part("a = \"\"\"n \\\n\n   + k\"\"\"", 4..5), "k");
        assert_eq!(part(r#"a = "\u00e9é k""#, 5..6), "k");
        assert_eq!(part(r#"a = """#, 0..0), "");
        assert_eq!(part(r#"a = "\\""#, 0..1), r"\\");
        assert_eq!(part(r#"a = "\\""#, 1..1), "");
    }

    #[test]
    fn a_number_is_its_own_place() {
        let place = Place::of_value(Span { start: 4, end: 7 });
        assert_eq!(place.part(&(0..0)), Span { start: 4, end: 7 });
    }
}
