//! From tree to text, the inverse of parsing: no parentheses but those that are needed.

use std::fmt::{self, Display, Formatter};

use super::Value;
use super::ast::{AxisIndex, BufferRef, Expr, Kind, LoopText, Operator};

/// How strongly an expression binds: the rules of the grammar, the weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binds {
    Choice,
    Any,
    All,
    Not,
    Compare,
    Sum,
    Product,
    Unary,
    Postfix,
}

impl Expr {
    fn binds(&self) -> Binds {
        match &self.kind {
            Kind::Choice(_) => Binds::Choice,
            Kind::Any(_) => Binds::Any,
            Kind::All(_) => Binds::All,
            Kind::Not(_) => Binds::Not,
            Kind::Compare(..) => Binds::Compare,
            Kind::Arithmetic(_, rest) => match rest.first() {
                Some((Operator::Add | Operator::Subtract, _)) => Binds::Sum,
                _ => Binds::Product,
            },
            Kind::Negate(_) => Binds::Unary,
            // A negative number of the manifest is written as the operator and the number.
            Kind::Literal(Value::Int(int)) if *int < 0 => Binds::Unary,
            Kind::Literal(Value::Float(float)) if float.is_sign_negative() => Binds::Unary,
            _ => Binds::Postfix,
        }
    }

    /// Writes it where something that binds at least so strongly must stand.
    fn write(&self, f: &mut Formatter<'_>, least: Binds) -> fmt::Result {
        if self.binds() < least { write!(f, "({self})") } else { Display::fmt(self, f) }
    }
}

/// Writes items with `between` between them.
fn list(f: &mut Formatter<'_>, items: &[Expr], between: &str, least: Binds) -> fmt::Result {
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            f.write_str(between)?;
        }
        item.write(f, least)?;
    }
    Ok(())
}

fn bounds(f: &mut Formatter<'_>, start: Option<&Expr>, end: Option<&Expr>) -> fmt::Result {
    start.map_or(Ok(()), |start| Display::fmt(start, f))?;
    f.write_str(":")?;
    end.map_or(Ok(()), |end| Display::fmt(end, f))
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Literal(value) => Display::fmt(value, f),
            Kind::Name(name) => f.write_str(name),
            Kind::List(items) => {
                f.write_str("[")?;
                list(f, items, ", ", Binds::Choice)?;
                f.write_str("]")
            }
            Kind::Negate(inner) => {
                f.write_str("-")?;
                inner.write(f, Binds::Unary)
            }
            Kind::Not(inner) => {
                f.write_str("not ")?;
                inner.write(f, Binds::Not)
            }
            Kind::Arithmetic(first, rest) => {
                let least = if self.binds() == Binds::Sum { Binds::Product } else { Binds::Unary };
                first.write(f, least)?;
                rest.iter().try_for_each(|(operator, operand)| {
                    write!(f, " {} ", operator.symbol())?;
                    operand.write(f, least)
                })
            }
            Kind::Compare(comparison, sides) => {
                sides.0.write(f, Binds::Sum)?;
                write!(f, " {} ", comparison.symbol())?;
                sides.1.write(f, Binds::Sum)
            }
            Kind::All(operands) => list(f, operands, " and ", Binds::Not),
            Kind::Any(operands) => list(f, operands, " or ", Binds::All),
            Kind::Choice(choice) => {
                choice.then.write(f, Binds::Any)?;
                f.write_str(" if ")?;
                choice.condition.write(f, Binds::Any)?;
                f.write_str(" else ")?;
                choice.otherwise.write(f, Binds::Choice)
            }
            Kind::Index(sides) => {
                sides.0.write(f, Binds::Postfix)?;
                write!(f, "[{}]", sides.1)
            }
            Kind::Slice(slice) => {
                slice.list.write(f, Binds::Postfix)?;
                f.write_str("[")?;
                bounds(f, slice.start.as_ref(), slice.end.as_ref())?;
                f.write_str("]")
            }
            Kind::Call(function, args) => {
                write!(f, "{}(", function.name())?;
                list(f, args, ", ", Binds::Choice)?;
                f.write_str(")")
            }
            Kind::CommRank(comm) => write!(f, "rank({})", comm.name),
            Kind::CommSize(comm) => write!(f, "size({})", comm.name),
            Kind::Len(name) => write!(f, "len({})", name.name),
        }
    }
}

impl Display for BufferRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (place, axis) in self.index.iter().enumerate() {
            f.write_str(if place == 0 { "[" } else { ", " })?;
            match axis {
                AxisIndex::Single(index) => Display::fmt(index, f)?,
                AxisIndex::Range { start, end } => bounds(f, start.as_ref(), end.as_ref())?,
            }
        }
        if self.index.is_empty() { Ok(()) } else { f.write_str("]") }
    }
}

impl Display for LoopText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} in ", self.variable.name)?;
        if let Some(start) = &self.start {
            write!(f, "{start}..")?;
        }
        write!(f, "{}", self.end)
    }
}
