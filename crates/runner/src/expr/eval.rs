//! From tree to value.

use std::cmp::Ordering;
use std::ops::Range;

use super::ast::{Comparison, Expr, Ident, Kind, Operator, Slice};
use super::error::{ErrorKind, ExprError};
use super::functions::{self, Function};
use super::{Value, hints};
use crate::suggest::nearest;

/// The answer to a question for something by name.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup<T> {
    /// It has this value.
    Found(T),
    /// Nothing of the asked kind has this name.
    Unknown,
    /// It exists, and finding its value failed, which was reported there.
    Failed,
    /// A communicator, asked for where communicators are only being made.
    NotYet,
}

/// A rank's place in a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The rank in the communicator.
    pub rank: i64,
    /// The ranks of the communicator's part that this rank is in.
    pub size: i64,
}

/// What an expression sees of its surroundings; one rank's view.
pub trait Env {
    /// The value of a param, of a loop variable, of `rank`, `world` or, in a fill, `i`.
    fn name(&self, name: &str) -> Lookup<Value>;

    /// This rank's place in a communicator.
    fn communicator(&self, _name: &str) -> Lookup<Member> {
        Lookup::Unknown
    }

    /// The number of elements of a buffer on this rank.
    fn buffer_len(&self, _name: &str) -> Lookup<i64> {
        Lookup::Unknown
    }

    /// Every name that [`Env::name`] answers, for "did you mean". Asked only when something is unknown.
    fn known(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// Surroundings without any name, for constants.
#[derive(Clone, Copy, Debug)]
pub struct NoEnv;

impl Env for NoEnv {
    fn name(&self, _name: &str) -> Lookup<Value> {
        Lookup::Unknown
    }
}

/// Boxed, so that the way of a value back through the recursion stays narrow.
type Evaluated<T> = Result<T, Box<ExprError>>;

impl Expr {
    /// The value of the expression in its surroundings. Of a choice only the branch taken is evaluated, of `and` and
    /// `or` only as much as decides.
    pub fn eval(&self, env: &dyn Env) -> Result<Value, ExprError> {
        eval(self, env).map_err(|error| *error)
    }

    /// The value where an integer is needed.
    pub fn eval_int(&self, env: &dyn Env) -> Result<i64, ExprError> {
        int(self, env).map_err(|error| *error)
    }

    /// The value where a float is needed; an integer becomes one.
    pub fn eval_f64(&self, env: &dyn Env) -> Result<f64, ExprError> {
        let value = self.eval(env)?;
        value.as_f64().ok_or_else(|| *type_error(self, &value, "a number is needed here"))
    }

    /// The value where a condition is needed.
    pub fn eval_bool(&self, env: &dyn Env) -> Result<bool, ExprError> {
        boolean(self, env).map_err(|error| *error)
    }
}

fn eval(expr: &Expr, env: &dyn Env) -> Evaluated<Value> {
    match &expr.kind {
        Kind::Literal(value) => Ok(value.clone()),
        Kind::Name(name) => found(env.name(name), || unknown_name(name, &expr.range, env), name, &expr.range),
        Kind::List(items) => {
            Ok(Value::List(items.iter().map(|item| eval(item, env)).collect::<Evaluated<_>>()?))
        }
        Kind::Negate(inner) => match eval(inner, env)? {
            Value::Int(int) => int.checked_neg().map(Value::Int).ok_or_else(|| {
                fail(ErrorKind::Overflow, &expr.range, format!("-({int}) does not fit in a 64-bit integer"))
            }),
            Value::Float(float) => Ok(Value::Float(-float)),
            other => Err(type_error(inner, &other, "`-` takes a number")),
        },
        Kind::Not(inner) => boolean(inner, env).map(|value| Value::Bool(!value)),
        Kind::Arithmetic(first, rest) => arithmetic(first, rest, env),
        Kind::Compare(comparison, sides) => compare(*comparison, &sides.0, &sides.1, env),
        Kind::All(operands) => decide(operands, false, env),
        Kind::Any(operands) => decide(operands, true, env),
        Kind::Choice(choice) => {
            let taken = if boolean(&choice.condition, env)? { &choice.then } else { &choice.otherwise };
            eval(taken, env)
        }
        Kind::Index(parts) => {
            let items = list(&parts.0, env)?;
            let at = int(&parts.1, env)?;
            let item = usize::try_from(at).ok().and_then(|at| items.get(at));
            item.cloned().ok_or_else(|| outside(at, &items, &parts.1))
        }
        Kind::Slice(parts) => slice(parts, expr, env),
        Kind::Call(function, args) => call(*function, args, expr, env),
        Kind::CommRank(comm) => member(comm, env).map(|member| Value::Int(member.rank)),
        Kind::CommSize(comm) => member(comm, env).map(|member| Value::Int(member.size)),
        Kind::Len(of) => length(of, env),
    }
}

fn fail(kind: ErrorKind, range: &Range<usize>, message: String) -> Box<ExprError> {
    Box::new(ExprError::new(kind, range, message))
}

fn type_error(expr: &Expr, value: &Value, wanted: &str) -> Box<ExprError> {
    fail(ErrorKind::Type, &expr.range, format!("{wanted}, and this is {}", value.type_name()))
}

fn found<T>(
    lookup: Lookup<T>,
    unknown: impl FnOnce() -> ExprError,
    name: &str,
    range: &Range<usize>,
) -> Evaluated<T> {
    match lookup {
        Lookup::Found(value) => Ok(value),
        Lookup::Unknown => Err(Box::new(unknown())),
        Lookup::Failed => Err(fail(ErrorKind::Reported, range, format!("`{name}` has no value"))),
        Lookup::NotYet => {
            let message = format!("the communicator `{name}` is needed here before it is made");
            let help = "the mesh is made first, then the communicators in file order";
            Err(Box::new(ExprError::new(ErrorKind::NotYet, range, message).with_help(help)))
        }
    }
}

fn unknown_name(name: &str, range: &Range<usize>, env: &dyn Env) -> ExprError {
    let error = ExprError::new(ErrorKind::UnknownName, range, format!("nothing is named `{name}`"));
    match hints::name(name).or_else(|| nearest(name, env.known())) {
        Some(near) => error.with_help(format!("did you mean `{near}`?")),
        None => error,
    }
}

fn boolean(expr: &Expr, env: &dyn Env) -> Evaluated<bool> {
    match eval(expr, env)? {
        Value::Bool(value) => Ok(value),
        other => {
            let mut error = type_error(expr, &other, "a condition is needed here");
            if matches!(other, Value::Int(_)) {
                error.help = Some("compare it, as with `!= 0`".to_owned());
            }
            Err(error)
        }
    }
}

fn int(expr: &Expr, env: &dyn Env) -> Evaluated<i64> {
    match eval(expr, env)? {
        Value::Int(value) => Ok(value),
        other => Err(type_error(expr, &other, "an integer is needed here")),
    }
}

fn list(expr: &Expr, env: &dyn Env) -> Evaluated<std::sync::Arc<[Value]>> {
    match eval(expr, env)? {
        Value::List(items) => Ok(items),
        other => Err(type_error(expr, &other, "a list is needed here")),
    }
}

/// The first operand that equals `deciding` ends it.
fn decide(operands: &[Expr], deciding: bool, env: &dyn Env) -> Evaluated<Value> {
    for operand in operands {
        if boolean(operand, env)? == deciding {
            return Ok(Value::Bool(deciding));
        }
    }
    Ok(Value::Bool(!deciding))
}

fn arithmetic(first: &Expr, rest: &[(Operator, Expr)], env: &dyn Env) -> Evaluated<Value> {
    let mut left = eval(first, env)?;
    let mut behind = first;
    for (operator, operand) in rest {
        let right = eval(operand, env)?;
        let place = Place { first, left: behind, right: operand };
        left = apply(*operator, &left, &right, place)?;
        behind = operand;
    }
    Ok(left)
}

/// Where an operator stands: its operands, and the first operand of its chain.
#[derive(Clone, Copy)]
struct Place<'e> {
    first: &'e Expr,
    left: &'e Expr,
    right: &'e Expr,
}

impl Place<'_> {
    /// All that led to a result.
    fn whole(self) -> Range<usize> {
        self.first.range.start..self.right.range.end
    }
}

fn apply(operator: Operator, left: &Value, right: &Value, place: Place<'_>) -> Evaluated<Value> {
    if let (Value::Int(a), Value::Int(b)) = (left, right) {
        return integers(operator, *a, *b, place);
    }
    let wanted = || format!("`{}` takes numbers", operator.symbol());
    let a = left.as_f64().ok_or_else(|| type_error(place.left, left, &wanted()))?;
    let b = right.as_f64().ok_or_else(|| type_error(place.right, right, &wanted()))?;
    floats(operator, a, b, place)
}

fn integers(operator: Operator, a: i64, b: i64, place: Place<'_>) -> Evaluated<Value> {
    let result = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide | Operator::Remainder if b == 0 => {
            return Err(by_zero(&a.to_string(), operator, place.right));
        }
        // `wrapping_rem` differs from the remainder only in not failing for the least integer by -1.
        Operator::Remainder => {
            let rest = a.wrapping_rem(b);
            Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
        }
        Operator::Divide => a.checked_div(b).map(|quotient| {
            let rest = a.wrapping_rem(b);
            quotient - i64::from(rest != 0 && (rest < 0) != (b < 0))
        }),
    };
    result.map(Value::Int).ok_or_else(|| {
        let message = format!("{a} {} {b} does not fit in a 64-bit integer", operator.symbol());
        fail(ErrorKind::Overflow, &place.whole(), message)
    })
}

fn floats(operator: Operator, a: f64, b: f64, place: Place<'_>) -> Evaluated<Value> {
    let result = match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide | Operator::Remainder if b == 0.0 => {
            return Err(by_zero(&format!("{a:?}"), operator, place.right));
        }
        Operator::Divide => a / b,
        Operator::Remainder => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        }
    };
    if result.is_finite() {
        return Ok(Value::Float(result));
    }
    let message = format!("{a:?} {} {b:?} is beyond the range of a float", operator.symbol());
    Err(fail(ErrorKind::NotFinite, &place.whole(), message))
}

fn by_zero(dividend: &str, operator: Operator, divisor: &Expr) -> Box<ExprError> {
    let message = format!("{dividend} {} 0: a division by zero", operator.symbol());
    fail(ErrorKind::DivisionByZero, &divisor.range, message)
}

fn compare(comparison: Comparison, left: &Expr, right: &Expr, env: &dyn Env) -> Evaluated<Value> {
    let (a, b) = (eval(left, env)?, eval(right, env)?);
    let order = match (&a, &b) {
        (Value::Bool(a), Value::Bool(b)) if matches!(comparison, Comparison::Equal | Comparison::Unequal) => {
            a.cmp(b)
        }
        _ => a.compare(&b).ok_or_else(|| {
            let (wrong, value) = if a.as_f64().is_none() { (left, &a) } else { (right, &b) };
            type_error(wrong, value, &format!("`{}` compares two numbers", comparison.symbol()))
        })?,
    };
    Ok(Value::Bool(match comparison {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::Unequal => order != Ordering::Equal,
        Comparison::Less => order == Ordering::Less,
        Comparison::LessOrEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterOrEqual => order != Ordering::Less,
    }))
}

fn slice(parts: &Slice, expr: &Expr, env: &dyn Env) -> Evaluated<Value> {
    let items = list(&parts.list, env)?;
    let bound = |bound: &Option<Expr>, default| match bound {
        None => Ok(default),
        Some(bound) => {
            let at = int(bound, env)?;
            usize::try_from(at).ok().filter(|at| *at <= items.len()).ok_or_else(|| outside(at, &items, bound))
        }
    };
    let (start, end) = (bound(&parts.start, 0)?, bound(&parts.end, items.len())?);
    items.get(start..end).map(|part| Value::List(part.into())).ok_or_else(|| {
        fail(ErrorKind::OutOfRange, &expr.range, format!("the range {start}:{end} ends before it begins"))
    })
}

fn outside(at: i64, items: &[Value], index: &Expr) -> Box<ExprError> {
    let len = squall_core::count(items.len() as u64, "item");
    let mut error =
        fail(ErrorKind::OutOfRange, &index.range, format!("index {at} is outside a list of {len}"));
    if at < 0 {
        error.help = Some("indices count from the beginning; the last item is `m[len(m) - 1]`".to_owned());
    }
    error
}

fn member(comm: &Ident, env: &dyn Env) -> Evaluated<Member> {
    let unknown = || {
        let message = format!("no communicator is named `{}`", comm.name);
        ExprError::new(ErrorKind::UnknownName, &comm.range, message)
    };
    found(env.communicator(&comm.name), unknown, &comm.name, &comm.range)
}

fn length(of: &Ident, env: &dyn Env) -> Evaluated<Value> {
    match env.buffer_len(&of.name) {
        Lookup::Found(len) => return Ok(Value::Int(len)),
        Lookup::Unknown => {}
        Lookup::Failed | Lookup::NotYet => {
            return Err(fail(ErrorKind::Reported, &of.range, format!("`{}` has no length", of.name)));
        }
    }
    match found(env.name(&of.name), || unknown_name(&of.name, &of.range, env), &of.name, &of.range)? {
        Value::List(items) => Ok(Value::Int(count(&items))),
        other => {
            let message =
                format!("`len` takes a list or a buffer, and `{}` is {}", of.name, other.type_name());
            Err(fail(ErrorKind::Type, &of.range, message))
        }
    }
}

fn count(items: &[Value]) -> i64 {
    i64::try_from(items.len()).unwrap_or(i64::MAX)
}

fn call(function: Function, args: &[Expr], expr: &Expr, env: &dyn Env) -> Evaluated<Value> {
    match (function, args) {
        (Function::Share | Function::Offset, [n, place @ ..]) => {
            let n = int(n, env)?;
            let (rank, size) = match place {
                [rank, size] => (int(rank, env)?, int(size, env)?),
                _ => (own(env, "rank", expr)?, own(env, "world", expr)?),
            };
            let part = if function == Function::Share { functions::share } else { functions::offset };
            part(n, rank, size).map(Value::Int).ok_or_else(|| {
                let name = function.name();
                let message = match (n, size) {
                    (..0, _) => format!("`{name}` takes a count of at least 0, and this is {n}"),
                    (_, ..=0) => format!("`{name}` takes at least one part, and this is {size} parts"),
                    _ => format!("there is no part {rank} of {n} in {size} parts: the first is 0"),
                };
                fail(ErrorKind::OutOfRange, &expr.range, message)
            })
        }
        (Function::Sum, [items]) => {
            let place = Place { first: items, left: items, right: items };
            let values = list(items, env)?;
            if let Some(other) = values.iter().find(|item| item.as_f64().is_none()) {
                let message = format!("`sum` takes a list of numbers, and an item is {}", other.type_name());
                return Err(fail(ErrorKind::Type, &items.range, message));
            }
            values.iter().try_fold(Value::Int(0), |sum, item| apply(Operator::Add, &sum, item, place))
        }
        (Function::Min | Function::Max, args) => {
            let best = match args {
                [items] => list(items, env)?
                    .iter()
                    .try_fold(None, |best, item| extreme(function, best, item.clone(), items))?,
                args => {
                    args.iter().try_fold(None, |best, arg| extreme(function, best, eval(arg, env)?, arg))?
                }
            };
            best.ok_or_else(|| {
                fail(ErrorKind::OutOfRange, &expr.range, format!("`{}` of an empty list", function.name()))
            })
        }
        (Function::Len, [items]) => Ok(Value::Int(count(&list(items, env)?))),
        (Function::Column, [rows, index]) => {
            let (rows_of, at) = (list(rows, env)?, int(index, env)?);
            column(function, rows, &rows_of, |number, row| {
                let item = usize::try_from(at).ok().and_then(|at| row.get(at));
                item.cloned().ok_or_else(|| {
                    let len = squall_core::count(row.len() as u64, "item");
                    let message = format!("index {at} is outside row {number}, which has {len}");
                    fail(ErrorKind::OutOfRange, &index.range, message)
                })
            })
        }
        (Function::Transpose, [rows]) => transpose(rows, &list(rows, env)?),
        // The parser makes no call with another number of arguments.
        _ => Err(fail(ErrorKind::Arity, &expr.range, format!("a call: {}", function.form()))),
    }
}

/// What `take` finds in each row of a list of rows, which stands at `rows`.
fn column(
    function: Function,
    rows: &Expr,
    items: &[Value],
    take: impl Fn(usize, &[Value]) -> Evaluated<Value>,
) -> Evaluated<Value> {
    let row = |(number, row): (usize, &Value)| match row {
        Value::List(row) => take(number, row),
        other => {
            let wanted = format!(
                "`{}` takes a list of lists, and item {number} is {}",
                function.name(),
                other.type_name()
            );
            Err(fail(ErrorKind::Type, &rows.range, wanted))
        }
    };
    Ok(Value::List(items.iter().enumerate().map(row).collect::<Evaluated<_>>()?))
}

/// The columns of rows that are as long as each other.
fn transpose(rows: &Expr, items: &[Value]) -> Evaluated<Value> {
    let width = match items.first() {
        Some(Value::List(first)) => first.len(),
        _ => 0,
    };
    let of_row = |at: usize| {
        column(Function::Transpose, rows, items, move |number, row| match row.get(at) {
            Some(item) if row.len() == width => Ok(item.clone()),
            _ => Err(ragged(rows, width, number, row.len())),
        })
    };
    // Rows without items have no columns; all that is to be seen is whether they are rows, and as long as each other.
    if width == 0 {
        column(Function::Transpose, rows, items, |number, row| match row {
            [] => Ok(Value::Bool(true)),
            row => Err(ragged(rows, width, number, row.len())),
        })?;
    }
    Ok(Value::List((0..width).map(of_row).collect::<Evaluated<_>>()?))
}

fn ragged(rows: &Expr, width: usize, number: usize, len: usize) -> Box<ExprError> {
    let message = format!(
        "`transpose` takes rows as long as each other: row 0 has {}, and row {number} has {len}",
        squall_core::count(width as u64, "item")
    );
    fail(ErrorKind::Type, &rows.range, message)
}

/// `rank` or `world`, where a call leaves them out.
fn own(env: &dyn Env, name: &str, expr: &Expr) -> Evaluated<i64> {
    match found(env.name(name), || unknown_name(name, &expr.range, env), name, &expr.range)? {
        Value::Int(value) => Ok(value),
        other => Err(type_error(expr, &other, &format!("`{name}` is an integer"))),
    }
}

/// The lesser or the greater of two numbers, a float where one of them is; the value where there is none before it.
fn extreme(function: Function, best: Option<Value>, value: Value, expr: &Expr) -> Evaluated<Option<Value>> {
    if value.as_f64().is_none() {
        return Err(type_error(expr, &value, &format!("`{}` takes numbers", function.name())));
    }
    let Some(best) = best else { return Ok(Some(value)) };
    let wanted = if function == Function::Min { Ordering::Less } else { Ordering::Greater };
    let mixed =
        matches!((&best, &value), (Value::Int(_), Value::Float(_)) | (Value::Float(_), Value::Int(_)));
    let best = if value.compare(&best) == Some(wanted) { value } else { best };
    Ok(Some(match best {
        Value::Int(int) if mixed => Value::Float(int as f64),
        best => best,
    }))
}
