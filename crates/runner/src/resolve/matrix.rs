//! Arguments that are lists of lists, such as the `counts` of an all_to_all.

use std::cell::RefCell;

use squall_core::graph::Matrix;
use squall_core::{Diagnostic, Label, ParamDef, Span, count};

use super::args::{Read, formula, takes, wrong};
use super::env::RankEnv;
use crate::codes;
use crate::expr::{Env, Value};
use crate::manifest::model::ArgValue;
use crate::manifest::place::Formula;

/// A list of lists as it was written: by name, or in TOML's own lists.
#[derive(Debug)]
pub(super) struct Rows {
    shape: Shape,
    /// All that is to be evaluated, in order.
    formulas: Vec<Formula>,
    span: Span,
    /// What it last came to. Mostly that is the same on all ranks, and they share it: it may be long.
    last: RefCell<Option<(Value, Matrix)>>,
}

/// How values stand in lists.
#[derive(Debug)]
enum Shape {
    One,
    List(Vec<Shape>),
}

impl Rows {
    /// Reads what was written for a parameter.
    pub(super) fn read(param: &ParamDef, value: &ArgValue) -> Read<Rows> {
        fn shape(param: &ParamDef, value: &ArgValue, formulas: &mut Vec<Formula>) -> Read<Shape> {
            match value {
                ArgValue::List(items, _) => items
                    .iter()
                    .map(|item| shape(param, item, formulas))
                    .collect::<Read<_>>()
                    .map(Shape::List),
                ArgValue::Literal(..) | ArgValue::Text(_) => {
                    formulas.push(formula(param, value)?);
                    Ok(Shape::One)
                }
            }
        }
        if matches!(value, ArgValue::Literal(..)) {
            return Err(wrong(param, takes(param.kind), value).into());
        }
        let mut formulas = Vec::new();
        let shape = shape(param, value, &mut formulas)?;
        Ok(Rows { shape, formulas, span: value.span(), last: RefCell::default() })
    }

    /// All that is to be evaluated.
    pub(super) fn formulas(&self) -> &[Formula] {
        &self.formulas
    }

    /// The matrix on one rank; `None` when a fault was kept.
    pub(super) fn value(&self, name: &str, rank: &RankEnv<'_>, env: &dyn Env) -> Option<Read<Matrix>> {
        let mut values = self.formulas.iter().map(|formula| rank.kept(formula.eval(env)));
        let value = self.shape.fill(&mut values)?;
        if let Some((last, matrix)) = &*self.last.borrow()
            && *last == value
        {
            return Some(Ok(matrix.clone()));
        }
        let made = matrix(&value).map_err(|what| {
            let label = Label::at(self.span, "").on_rank(rank.rank());
            Diagnostic::error(
                codes::ARGUMENT,
                format!("`{name}` takes a list of lists of whole numbers, {what}"),
                label,
            )
            .into()
        });
        if let Ok(matrix) = &made {
            *self.last.borrow_mut() = Some((value, matrix.clone()));
        }
        Some(made)
    }
}

impl Shape {
    fn fill(&self, values: &mut dyn Iterator<Item = Option<Value>>) -> Option<Value> {
        match self {
            Shape::One => values.next()?,
            Shape::List(items) => {
                items.iter().map(|item| item.fill(values)).collect::<Option<_>>().map(Value::List)
            }
        }
    }
}

/// The numbers of a list of lists, or what it is instead.
fn matrix(value: &Value) -> Result<Matrix, String> {
    let Value::List(rows) = value else { return Err(format!("not {}", value.type_name())) };
    let row = |(at, row): (usize, &Value)| {
        let Value::List(items) = row else { return Err(format!("and [{at}] is {}", row.type_name())) };
        let number = |(place, item): (usize, &Value)| match item {
            Value::Int(int) => Ok(*int),
            other => Err(format!("and [{at}][{place}] is {}", other.type_name())),
        };
        items.iter().enumerate().map(number).collect::<Result<Vec<i64>, _>>()
    };
    let rows = rows.iter().enumerate().map(row).collect::<Result<Vec<_>, _>>()?;
    Matrix::new(&rows).ok_or_else(|| {
        let first = rows.first().map_or(0, Vec::len);
        let lengths = rows.iter().map(Vec::len).enumerate();
        let other = lengths.into_iter().find(|&(_, len)| len != first);
        let (at, len) = other.unwrap_or_default();
        format!("all of one length: [0] has {}, and [{at}] has {len}", count(first as u64, "number"))
    })
}
