//! Cuts an expression's text into tokens, each with its place.

use std::ops::Range;

use winnow::ascii::{digit1, multispace0};
use winnow::combinator::{alt, opt, preceded};
use winnow::error::EmptyError;
use winnow::prelude::*;
use winnow::stream::{LocatingSlice, Location};
use winnow::token::{any, one_of, take_while};

use super::error::{ErrorKind, ExprError};

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'s> {
    /// An integer without its sign; up to 2^63, so that `-2^63` can be written.
    Int(u64),
    /// A finite float without its sign.
    Float(f64),
    /// A name, a keyword, or a name with a dot in it: `dp.rank`.
    Word(&'s str),
    /// An operator or a bracket, of this language or of another.
    Symbol(&'s str),
}

/// Symbols of more than one character, the longer first. Some belong to other languages: they are read whole so
/// that the parser can name the mend.
const LONG_SYMBOLS: [&str; 17] =
    ["===", "!==", "==", "!=", "<=", ">=", "<>", "..", "&&", "||", "**", "//", "<<", ">>", "->", "=>", "::"];

type Input<'s> = LocatingSlice<&'s str>;

/// The tokens of `text`, or what stands in it that is none.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token<'_>, Range<usize>)>, ExprError> {
    let mut input = Input::new(text);
    let mut tokens = Vec::new();
    loop {
        let _: Result<&str, EmptyError> = multispace0.parse_next(&mut input);
        let start = input.current_token_start();
        let Ok(raw) = raw_token.parse_next(&mut input) else {
            return Ok(tokens); // only the end of the text is no token
        };
        let range = start..input.previous_token_end();
        tokens.push((value(raw, &range)?, range));
    }
}

/// A token as it is written.
enum Raw<'s> {
    /// Digits, a fraction and an exponent, then letters that touch them.
    Number {
        digits: &'s str,
        is_float: bool,
        suffix: &'s str,
    },
    Word(&'s str),
    Symbol(&'s str),
}

fn raw_token<'s>(input: &mut Input<'s>) -> Result<Raw<'s>, EmptyError> {
    alt((number, word.map(Raw::Word), alt(LONG_SYMBOLS).map(Raw::Symbol), any.take().map(Raw::Symbol)))
        .parse_next(input)
}

fn word<'s>(input: &mut Input<'s>) -> Result<&'s str, EmptyError> {
    let part = || (one_of(is_word_start), take_while(0.., is_word_part));
    // Of `1..k` both dots are a symbol.
    (part(), opt(('.', part()))).take().parse_next(input)
}

fn number<'s>(input: &mut Input<'s>) -> Result<Raw<'s>, EmptyError> {
    let digits = || (digit1, take_while(0.., ('0'..='9', '_')));
    let fraction = preceded('.', digits());
    let exponent = (one_of(['e', 'E']), opt(one_of(['+', '-'])), digits());
    let ((_, fraction, exponent), digits) =
        (digits(), opt(fraction), opt(exponent)).with_taken().parse_next(input)?;
    let suffix = take_while(0.., is_word_part).parse_next(input)?;
    Ok(Raw::Number { digits, is_float: fraction.is_some() || exponent.is_some(), suffix })
}

fn is_word_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_word_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn value<'s>(raw: Raw<'s>, range: &Range<usize>) -> Result<Token<'s>, ExprError> {
    let (digits, is_float, suffix) = match raw {
        Raw::Word(word) => return Ok(Token::Word(word)),
        Raw::Symbol(symbol) => return Ok(Token::Symbol(symbol)),
        Raw::Number { digits, is_float, suffix } => (digits, is_float, suffix),
    };
    let plain = digits.replace('_', "");
    if is_float && suffix.is_empty() {
        return match plain.parse::<f64>() {
            Ok(float) if float.is_finite() => Ok(Token::Float(float)),
            _ => Err(ExprError::new(
                ErrorKind::NotFinite,
                range,
                format!("`{digits}` is beyond the range of a float"),
            )),
        };
    }
    let factor: u64 = match suffix {
        _ if is_float => return Err(bad_suffix(digits, suffix, range)),
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return Err(bad_suffix(digits, suffix, range)),
    };
    let int = plain.parse::<u64>().ok().and_then(|int| int.checked_mul(factor)).filter(|int| *int <= 1 << 63);
    int.map(Token::Int).ok_or_else(|| {
        ExprError::new(
            ErrorKind::Overflow,
            range,
            format!("`{digits}{suffix}` does not fit in a 64-bit integer"),
        )
    })
}

fn bad_suffix(digits: &str, suffix: &str, range: &Range<usize>) -> ExprError {
    let error = ExprError::new(ErrorKind::Syntax, range, format!("`{digits}{suffix}` is not a number"));
    let factor = suffix.trim_end_matches(['B', 'b']);
    error.with_help(match factor.to_ascii_lowercase().as_str() {
        _ if suffix.starts_with(['x', 'X']) => "numbers are decimal".to_owned(),
        "k" | "ki" => format!("1024 times as much is `{digits}Ki`"),
        "m" | "mi" => format!("1024 * 1024 times as much is `{digits}Mi`"),
        "g" | "gi" => format!("1024 * 1024 * 1024 times as much is `{digits}Gi`"),
        "t" | "ti" => format!("1024 * 1024 * 1024 * 1024 times as much is `{digits}Ti`"),
        "p" | "pi" | "e" | "ei" => "the suffixes are `Ki`, `Mi`, `Gi` and `Ti`".to_owned(),
        "f" | "l" | "u" | "f32" | "f64" => "numbers have no type suffix".to_owned(),
        _ => format!("a product needs its operator: `{digits} * {suffix}`"),
    })
}
