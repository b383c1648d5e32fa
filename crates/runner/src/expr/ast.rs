//! The tree of an expression. Its depth is bounded by the parser, so that walking it by recursion is safe:
//! a chain such as `a + b + c` is one node with many operands, not a nest.

use std::ops::Range;

use super::Value;
use super::functions::Function;

/// An expression, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// What stands here.
    pub kind: Kind,
    /// Where it stands: bytes of the expression's text.
    pub range: Range<usize>,
}

/// The kinds of [`Expr`].
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A value as written.
    Literal(Value),
    /// A param, a loop variable, `rank`, `world` or `i`.
    Name(Box<str>),
    /// `[a, b]`.
    List(Vec<Expr>),
    /// `-a`.
    Negate(Box<Expr>),
    /// `not a`.
    Not(Box<Expr>),
    /// `a + b - c`, `a * b / c % d`: operators of one precedence, from left to right.
    Arithmetic(Box<Expr>, Vec<(Operator, Expr)>),
    /// `a < b`.
    Compare(Comparison, Box<(Expr, Expr)>),
    /// `a and b and c`; at least two.
    All(Vec<Expr>),
    /// `a or b or c`; at least two.
    Any(Vec<Expr>),
    /// `then if condition else otherwise`.
    Choice(Box<Choice>),
    /// `list[index]`.
    Index(Box<(Expr, Expr)>),
    /// `list[start:end]`.
    Slice(Box<Slice>),
    /// `share(n)`, `min(a, b)`; the number of arguments is one that the function takes.
    Call(Function, Vec<Expr>),
    /// `comm.rank`, `rank(comm)`: this rank's place in a communicator.
    CommRank(Ident),
    /// `comm.size`, `size(comm)`: the size of this rank's part of a communicator.
    CommSize(Ident),
    /// `len(name)`: the elements of a buffer, or of a list.
    Len(Ident),
}

/// A name with its own place.
#[derive(Clone, Debug, PartialEq)]
pub struct Ident {
    /// The name.
    pub name: Box<str>,
    /// Bytes of the expression's text.
    pub range: Range<usize>,
}

/// `then if condition else otherwise`.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The value where the condition is true.
    pub then: Expr,
    /// A boolean.
    pub condition: Expr,
    /// The value where the condition is false.
    pub otherwise: Expr,
}

/// `list[start:end]`; the end is excluded.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// A list.
    pub list: Expr,
    /// The first index; the list's beginning if left out.
    pub start: Option<Expr>,
    /// One past the last index; the list's end if left out.
    pub end: Option<Expr>,
}

/// An operator between numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`: rounds down between integers.
    Divide,
    /// `%`: has the sign of the divisor.
    Remainder,
}

impl Operator {
    /// As written.
    pub fn symbol(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Remainder => "%",
        }
    }
}

/// An operator that gives a boolean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// As written.
    pub fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::Unequal => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }
}

/// A buffer, or a range of one: `u`, `u[1]`, `u[0, 2:8]`.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferRef {
    /// The buffer's name.
    pub name: Box<str>,
    /// Where the name stands: bytes of the text.
    pub name_range: Range<usize>,
    /// One an axis, from the first; empty for the whole buffer.
    pub index: Vec<AxisIndex>,
}

/// What a [`BufferRef`] takes of one axis.
#[derive(Clone, Debug, PartialEq)]
pub enum AxisIndex {
    /// One place.
    Single(Expr),
    /// From `start` (or 0) up to and without `end` (or the axis's length).
    Range {
        /// The first place.
        start: Option<Expr>,
        /// One past the last place.
        end: Option<Expr>,
    },
}

/// The head of a loop: `m in 4`, `m in 1..k`.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopText {
    /// The loop variable.
    pub variable: Ident,
    /// The first value; 0 if left out.
    pub start: Option<Expr>,
    /// One past the last value.
    pub end: Expr,
}

/// What an expression asks of its surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mention<'e> {
    /// A name, `rank`, `world` and `i` among them.
    Name(&'e str),
    /// A communicator, in `comm.rank` or `rank(comm)`.
    CommRank(&'e str),
    /// A communicator, in `comm.size` or `size(comm)`.
    CommSize(&'e str),
    /// A buffer or a list, in `len(…)`.
    Len(&'e str),
    /// `rank` and `world` by way of `share(n)` or `offset(n)`.
    Place,
}

impl<'e> Mention<'e> {
    /// The name, unless it is the place of the rank in the world.
    pub fn name(self) -> Option<&'e str> {
        match self {
            Mention::Name(name) | Mention::CommRank(name) | Mention::CommSize(name) | Mention::Len(name) => {
                Some(name)
            }
            Mention::Place => None,
        }
    }
}

impl Expr {
    /// A value at a place.
    pub fn literal(value: Value, range: Range<usize>) -> Expr {
        Expr { kind: Kind::Literal(value), range }
    }

    /// Calls `visit` with each mention and its place in the text, from left to right, branches not taken included.
    pub fn mentions<'e>(&'e self, visit: &mut dyn FnMut(Mention<'e>, &Range<usize>)) {
        match &self.kind {
            Kind::Literal(_) => {}
            Kind::Name(name) => visit(Mention::Name(name), &self.range),
            Kind::List(items) | Kind::All(items) | Kind::Any(items) => {
                items.iter().for_each(|item| item.mentions(visit));
            }
            Kind::Negate(inner) | Kind::Not(inner) => inner.mentions(visit),
            Kind::Arithmetic(first, rest) => {
                first.mentions(visit);
                rest.iter().for_each(|(_, operand)| operand.mentions(visit));
            }
            Kind::Compare(_, sides) | Kind::Index(sides) => {
                sides.0.mentions(visit);
                sides.1.mentions(visit);
            }
            Kind::Choice(choice) => {
                choice.then.mentions(visit);
                choice.condition.mentions(visit);
                choice.otherwise.mentions(visit);
            }
            Kind::Slice(slice) => {
                slice.list.mentions(visit);
                slice.start.iter().chain(&slice.end).for_each(|bound| bound.mentions(visit));
            }
            Kind::Call(function, args) => {
                if function.uses_place(args.len()) {
                    visit(Mention::Place, &self.range);
                }
                args.iter().for_each(|arg| arg.mentions(visit));
            }
            Kind::CommRank(comm) => visit(Mention::CommRank(&comm.name), &comm.range),
            Kind::CommSize(comm) => visit(Mention::CommSize(&comm.name), &comm.range),
            Kind::Len(name) => visit(Mention::Len(&name.name), &name.range),
        }
    }

    /// How many levels of parts it has, itself among them.
    pub fn levels(&self) -> usize {
        let most = |parts: &mut dyn Iterator<Item = &Expr>| parts.map(Expr::levels).max().unwrap_or(0);
        let below = match &self.kind {
            Kind::Literal(_) | Kind::Name(_) | Kind::CommRank(_) | Kind::CommSize(_) | Kind::Len(_) => 0,
            Kind::Negate(inner) | Kind::Not(inner) => inner.levels(),
            Kind::List(items) | Kind::All(items) | Kind::Any(items) | Kind::Call(_, items) => {
                most(&mut items.iter())
            }
            Kind::Arithmetic(first, rest) => {
                most(&mut rest.iter().map(|(_, operand)| operand)).max(first.levels())
            }
            Kind::Compare(_, sides) | Kind::Index(sides) => sides.0.levels().max(sides.1.levels()),
            Kind::Choice(choice) => {
                most(&mut [&choice.then, &choice.condition, &choice.otherwise].into_iter())
            }
            Kind::Slice(slice) => most(&mut slice.start.iter().chain(&slice.end)).max(slice.list.levels()),
        };
        below + 1
    }

    /// Whether the value is the same everywhere: nothing is mentioned.
    pub fn is_constant(&self) -> bool {
        let mut constant = true;
        self.mentions(&mut |_, _| constant = false);
        constant
    }

    /// Whether the text itself asks for the rank: `rank`, `share(n)`, `offset(n)`, `comm.rank`, `comm.size`.
    /// A param or a buffer that it names may do so as well.
    pub fn depends_on_rank(&self) -> bool {
        let mut depends = false;
        self.mentions(&mut |mention, _| {
            depends |= matches!(
                mention,
                Mention::Name("rank") | Mention::CommRank(_) | Mention::CommSize(_) | Mention::Place
            );
        });
        depends
    }
}
