//! From text to tree, by recursive descent with one token of look-ahead.
//!
//! ```text
//! choice  = any [ "if" any "else" choice ]
//! any     = all { "or" all }                 all     = not { "and" not }
//! not     = "not" not | compare              compare = sum [ ("==" | "!=" | "<" | "<=" | ">" | ">=") sum ]
//! sum     = product { ("+" | "-") product }  product = unary { ("*" | "/" | "%") unary }
//! unary   = "-" unary | postfix              postfix = atom { "[" choice "]" | "[" [choice] ":" [choice] "]" }
//! atom    = number | "true" | "false" | name | name "." ("rank" | "size") | "(" choice ")"
//!         | name "(" [ choice { "," choice } ] ")" | "[" [ choice { "," choice } ] "]"
//! buffer  = name [ "[" axis { "," axis } "]" ]   axis = choice | [choice] ":" [choice]
//! loop    = name "in" choice [ ".." choice ]
//! ```

use std::ops::Range;

use super::ast::{AxisIndex, BufferRef, Choice, Comparison, Expr, Ident, Kind, LoopText, Operator, Slice};
use super::error::{ErrorKind, ExprError};
use super::functions::Function;
use super::lex::{Token, tokens};
use super::{Value, hints};
use crate::suggest::nearest;

/// The longest text that is parsed, in bytes.
pub const MAX_LENGTH: usize = 4096;
/// How deep parentheses, brackets, signs and `else` may nest.
pub const MAX_DEPTH: u32 = 64;

/// Names with a meaning of their own, which nothing in a manifest may take.
pub(crate) const RESERVED: &[&str] = &[
    "rank",
    "world",
    "i",
    "share",
    "offset",
    "sum",
    "min",
    "max",
    "len",
    "column",
    "transpose",
    "size",
    "and",
    "or",
    "not",
    "if",
    "else",
    "true",
    "false",
];
const KEYWORDS: &[&str] = &["and", "or", "not", "if", "else", "true", "false"];

type Parsed<T> = Result<T, ExprError>;

/// Parses an expression.
pub fn parse(text: &str) -> Parsed<Expr> {
    whole(text, Parser::choice)
}

/// Parses a buffer or a range of one.
pub fn parse_buffer(text: &str) -> Parsed<BufferRef> {
    whole(text, Parser::buffer)
}

/// Parses what is taken of one axis: `3`, `0:4`, `:`.
pub fn parse_axis(text: &str) -> Parsed<AxisIndex> {
    whole(text, Parser::axis)
}

/// Parses the head of a loop.
pub fn parse_loop(text: &str) -> Parsed<LoopText> {
    whole(text, Parser::head_of_loop)
}

fn whole<'s, T>(text: &'s str, part: impl FnOnce(&mut Parser<'s>) -> Parsed<T>) -> Parsed<T> {
    if text.len() > MAX_LENGTH {
        let message =
            format!("the expression is {} bytes long, and at most {MAX_LENGTH} are read", text.len());
        return Err(ExprError::new(ErrorKind::Limit, &(0..text.len()), message));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0, end: text.len() };
    let parsed = part(&mut parser)?;
    match parser.peek() {
        None => Ok(parsed),
        Some(_) => Err(parser.unexpected("an operator or the end")),
    }
}

struct Parser<'s> {
    tokens: Vec<(Token<'s>, Range<usize>)>,
    at: usize,
    depth: u32,
    /// The length of the text.
    end: usize,
}

impl<'s> Parser<'s> {
    fn peek(&self) -> Option<Token<'s>> {
        self.tokens.get(self.at).map(|(token, _)| *token)
    }

    /// The place of the next token; the text's end where there is none.
    fn here(&self) -> Range<usize> {
        self.tokens.get(self.at).map_or(self.end..self.end, |(_, range)| range.clone())
    }

    /// Where the token before the next one ends.
    fn behind(&self) -> usize {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(0, |(_, range)| range.end)
    }

    /// Takes the next token if it is this symbol or keyword.
    fn take(&mut self, text: &str) -> bool {
        let taken = matches!(self.peek(), Some(Token::Symbol(t) | Token::Word(t)) if t == text);
        self.at += usize::from(taken);
        taken
    }

    fn expect(&mut self, symbol: &str, wanted: &str) -> Parsed<()> {
        if self.take(symbol) { Ok(()) } else { Err(self.unexpected(wanted)) }
    }

    fn unexpected(&self, wanted: &str) -> ExprError {
        let range = self.here();
        let found = match self.tokens.get(self.at) {
            None if self.tokens.is_empty() => {
                return ExprError::new(ErrorKind::Syntax, &range, "the expression is empty");
            }
            None => "the end of the text".to_owned(),
            Some((Token::Symbol(text) | Token::Word(text), _)) => format!("`{text}`"),
            Some((Token::Int(_) | Token::Float(_), _)) => "a number".to_owned(),
        };
        let error = ExprError::new(ErrorKind::Syntax, &range, format!("expected {wanted}, found {found}"));
        let symbol = match self.peek() {
            Some(Token::Symbol(symbol)) => symbol,
            Some(Token::Word("for")) => {
                return error.with_help("there are no comprehensions; write the items");
            }
            _ => return error,
        };
        let behind = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        let behind_value =
            behind.is_some_and(|(token, _)| !matches!(token, Token::Symbol(s) if *s != ")" && *s != "]"));
        match hints::symbol(symbol, behind_value) {
            Some(help) => error.with_help(help),
            None => error,
        }
    }

    /// Runs `part` one level deeper.
    fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.too_deep());
        }
        self.depth += 1;
        let parsed = part(self);
        self.depth -= 1;
        parsed
    }

    fn too_deep(&self) -> ExprError {
        let message = format!("the expression nests more than {MAX_DEPTH} levels deep");
        ExprError::new(ErrorKind::Limit, &self.here(), message)
    }

    fn choice(&mut self) -> Parsed<Expr> {
        self.nested(|p| {
            let then = p.any()?;
            if !p.take("if") {
                return Ok(then);
            }
            let condition = p.any()?;
            if !p.take("else") {
                let error = p.unexpected("`else`");
                return Err(match error.help {
                    Some(_) => error,
                    None => error.with_help("a choice has two branches: `a if condition else b`"),
                });
            }
            let otherwise = p.choice()?;
            let range = then.range.start..otherwise.range.end;
            Ok(Expr { kind: Kind::Choice(Box::new(Choice { then, condition, otherwise })), range })
        })
    }

    fn any(&mut self) -> Parsed<Expr> {
        self.chain("or", Kind::Any, Parser::all)
    }

    fn all(&mut self) -> Parsed<Expr> {
        self.chain("and", Kind::All, Parser::not)
    }

    fn chain(
        &mut self,
        word: &str,
        kind: fn(Vec<Expr>) -> Kind,
        part: fn(&mut Self) -> Parsed<Expr>,
    ) -> Parsed<Expr> {
        let first = part(self)?;
        if !self.take(word) {
            return Ok(first);
        }
        let start = first.range.start;
        let mut operands = vec![first, part(self)?];
        while self.take(word) {
            operands.push(part(self)?);
        }
        Ok(Expr { kind: kind(operands), range: start..self.behind() })
    }

    fn not(&mut self) -> Parsed<Expr> {
        let start = self.here().start;
        if !self.take("not") {
            return self.compare();
        }
        let inner = self.nested(Parser::not)?;
        Ok(Expr { range: start..inner.range.end, kind: Kind::Not(Box::new(inner)) })
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let Some(Token::Symbol(symbol)) = self.peek() else { return None };
        let comparison = match symbol {
            "==" => Comparison::Equal,
            "!=" => Comparison::Unequal,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return None,
        };
        self.at += 1;
        Some(comparison)
    }

    fn compare(&mut self) -> Parsed<Expr> {
        let left = self.sum()?;
        let Some(comparison) = self.comparison() else { return Ok(left) };
        let right = self.sum()?;
        let range = left.range.start..right.range.end;
        let second = self.here();
        if self.comparison().is_some() {
            return Err(ExprError::new(ErrorKind::Syntax, &second, "comparisons cannot be chained")
                .with_help("join two comparisons: `a < b and b < c`"));
        }
        Ok(Expr { kind: Kind::Compare(comparison, Box::new((left, right))), range })
    }

    fn sum(&mut self) -> Parsed<Expr> {
        self.arithmetic(&[Operator::Add, Operator::Subtract], Parser::product)
    }

    fn product(&mut self) -> Parsed<Expr> {
        self.arithmetic(&[Operator::Multiply, Operator::Divide, Operator::Remainder], Parser::unary)
    }

    fn arithmetic(&mut self, operators: &[Operator], part: fn(&mut Self) -> Parsed<Expr>) -> Parsed<Expr> {
        let first = part(self)?;
        let mut rest = Vec::new();
        while let Some(operator) = operators.iter().find(|operator| self.take(operator.symbol())) {
            rest.push((*operator, part(self)?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        let range = first.range.start..self.behind();
        Ok(Expr { kind: Kind::Arithmetic(Box::new(first), rest), range })
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let start = self.here().start;
        if !self.take("-") {
            return self.postfix();
        }
        // The least integer has no positive counterpart, so that its sign belongs to the literal.
        if self.peek() == Some(Token::Int(1 << 63)) {
            self.at += 1;
            return Ok(Expr::literal(Value::Int(i64::MIN), start..self.behind()));
        }
        let inner = self.nested(Parser::unary)?;
        Ok(Expr { range: start..inner.range.end, kind: Kind::Negate(Box::new(inner)) })
    }

    fn postfix(&mut self) -> Parsed<Expr> {
        let mut list = self.atom()?;
        let mut depth = self.depth;
        while self.take("[") {
            depth += 1;
            if depth > MAX_DEPTH {
                return Err(self.too_deep());
            }
            let index = self.axis()?;
            self.expect("]", "`]`").map_err(|error| match self.peek() {
                Some(Token::Symbol(",")) => error.with_help("an item of a list in a list is `m[0][1]`"),
                _ => error,
            })?;
            let range = list.range.start..self.behind();
            let kind = match index {
                AxisIndex::Single(index) => Kind::Index(Box::new((list, index))),
                AxisIndex::Range { start, end } => Kind::Slice(Box::new(Slice { list, start, end })),
            };
            list = Expr { kind, range };
        }
        Ok(list)
    }

    fn atom(&mut self) -> Parsed<Expr> {
        let range = self.here();
        match self.peek() {
            Some(Token::Int(int)) => {
                self.at += 1;
                let int = i64::try_from(int).map_err(|_| {
                    ExprError::new(
                        ErrorKind::Overflow,
                        &range,
                        format!("{int} does not fit in a 64-bit integer"),
                    )
                })?;
                Ok(Expr::literal(Value::Int(int), range))
            }
            Some(Token::Float(float)) => {
                self.at += 1;
                Ok(Expr::literal(Value::Float(float), range))
            }
            Some(Token::Word(word @ ("true" | "false"))) => {
                self.at += 1;
                Ok(Expr::literal(Value::Bool(word == "true"), range))
            }
            Some(Token::Word(word)) if !KEYWORDS.contains(&word) => {
                self.at += 1;
                match word.split_once('.') {
                    _ if self.take("(") => self.call(word, range),
                    Some((comm, field)) => field_of(comm, field, range),
                    None => name(word, range),
                }
            }
            Some(Token::Symbol("(")) => {
                self.at += 1;
                let inner = self.choice()?;
                self.expect(")", "`)`")?;
                Ok(Expr { range: range.start..self.behind(), ..inner })
            }
            Some(Token::Symbol("[")) => {
                self.at += 1;
                let items = self.items("]")?;
                Ok(Expr { kind: Kind::List(items), range: range.start..self.behind() })
            }
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Expressions between commas up to `close`, which is taken too. A comma may stand before it.
    fn items(&mut self, close: &str) -> Parsed<Vec<Expr>> {
        let mut items = Vec::new();
        while !self.take(close) {
            items.push(self.choice()?);
            if !self.take(",") {
                self.expect(close, &format!("`,` or `{close}`"))?;
                break;
            }
        }
        Ok(items)
    }

    /// A call whose opening parenthesis was taken.
    fn call(&mut self, word: &str, name: Range<usize>) -> Parsed<Expr> {
        let mut args = self.items(")")?;
        let range = name.start..self.behind();
        if word == "rank" || word == "size" {
            return match <[Expr; 1]>::try_from(args) {
                Ok([Expr { kind: Kind::Name(comm), range: inner }]) => {
                    let comm = Ident { name: comm, range: inner };
                    let kind = if word == "rank" { Kind::CommRank(comm) } else { Kind::CommSize(comm) };
                    Ok(Expr { kind, range })
                }
                Ok([other]) => Err(ExprError::new(
                    ErrorKind::WrongName,
                    &other.range,
                    format!("`{word}` takes the name of a communicator"),
                )),
                Err(args) => Err(arity(word, &format!("{word}(communicator)"), args.len(), &range)),
            };
        }
        let Some(function) = Function::ALL.iter().copied().find(|function| function.name() == word) else {
            return Err(ExprError::new(
                ErrorKind::UnknownName,
                &name,
                format!("there is no function `{word}`"),
            )
            .with_help(hints::function(word)));
        };
        if !function.takes(args.len()) {
            return Err(arity(word, function.form(), args.len(), &range));
        }
        if function == Function::Len
            && let Some(Expr { kind: Kind::Name(of), .. }) = args.first()
        {
            let of = Ident { name: of.clone(), range: args.swap_remove(0).range };
            return Ok(Expr { kind: Kind::Len(of), range });
        }
        Ok(Expr { kind: Kind::Call(function, args), range })
    }

    fn axis(&mut self) -> Parsed<AxisIndex> {
        let start = if self.peek() == Some(Token::Symbol(":")) { None } else { Some(self.choice()?) };
        if !self.take(":") {
            // Without a colon there is a start: it was parsed just now.
            return start.map(AxisIndex::Single).ok_or_else(|| self.unexpected("an index"));
        }
        let end = match self.peek() {
            Some(Token::Symbol("]" | ",")) | None => None,
            _ => Some(self.choice()?),
        };
        Ok(AxisIndex::Range { start, end })
    }

    fn ident(&mut self, wanted: &str) -> Parsed<Ident> {
        let range = self.here();
        match self.peek() {
            Some(Token::Word(name)) if !KEYWORDS.contains(&name) && !name.contains('.') => {
                self.at += 1;
                Ok(Ident { name: name.into(), range })
            }
            _ => Err(self.unexpected(wanted)),
        }
    }

    fn buffer(&mut self) -> Parsed<BufferRef> {
        let Ident { name, range: name_range } = self.ident("the name of a buffer")?;
        let mut index = Vec::new();
        if self.take("[") {
            loop {
                index.push(self.axis()?);
                if !self.take(",") {
                    break;
                }
            }
            self.expect("]", "`,` or `]`")?;
        }
        Ok(BufferRef { name, name_range, index })
    }

    fn head_of_loop(&mut self) -> Parsed<LoopText> {
        let variable = self.ident("the name of a loop variable")?;
        self.expect("in", "`in`")?;
        let first = self.choice()?;
        if !self.take("..") {
            return Ok(LoopText { variable, start: None, end: first });
        }
        Ok(LoopText { variable, start: Some(first), end: self.choice()? })
    }
}

fn name(word: &str, range: Range<usize>) -> Parsed<Expr> {
    let function = Function::ALL.iter().map(|function| (function.name(), function.form()));
    let callable = function.chain([("size", "size(communicator)")]).find(|(function, _)| *function == word);
    match callable {
        Some((_, form)) => {
            Err(ExprError::new(ErrorKind::Syntax, &range, format!("the function `{word}` is not called"))
                .with_help(format!("a call: {form}")))
        }
        None => Ok(Expr { kind: Kind::Name(word.into()), range }),
    }
}

/// `comm.rank`, `comm.size`.
fn field_of(comm: &str, field: &str, range: Range<usize>) -> Parsed<Expr> {
    let of = Ident { name: comm.into(), range: range.start..range.start + comm.len() };
    let kind = match field {
        "rank" => Kind::CommRank(of),
        "size" => Kind::CommSize(of),
        _ => {
            let at = range.start + comm.len() + 1..range.end;
            let message =
                format!("`{comm}.{field}`: behind the dot of a communicator stands `rank` or `size`");
            let error = ExprError::new(ErrorKind::Syntax, &at, message);
            return Err(match (field, nearest(field, ["rank", "size"])) {
                ("shape" | "len" | "length", _) => {
                    error.with_help(format!("a buffer's number of elements is `len({comm})`"))
                }
                (_, Some(near)) => error.with_help(format!("did you mean `{comm}.{near}`?")),
                (_, None) => error,
            });
        }
    };
    Ok(Expr { kind, range })
}

fn arity(function: &str, form: &str, args: usize, range: &Range<usize>) -> ExprError {
    let given = squall_core::count(args as u64, "argument");
    let message = format!("`{function}` is given {given}");
    ExprError::new(ErrorKind::Arity, range, message).with_help(format!("a call: {form}"))
}
