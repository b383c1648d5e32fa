//! Ranges of buffers: `u[1]`, `u[0, 2:8]`.

use squall_core::{BufferDecl, BufferId, BufferRange, Code, Diagnostic, Label};

use super::env::RankEnv;
use crate::codes;
use crate::expr::{AxisIndex, BufferRef, Env, Expr};
use crate::manifest::place::{FormulaError, Text};

/// The range that `reference`, read from `text`, means on a rank; `None` when it means none, which is kept in `env`
/// or returned in `problems`.
///
/// Indices count from 0 and stay inside the axis: unlike NumPy's, they neither count from the end nor are clipped,
/// since `rank - 1` on rank 0 is far more often a mistake than the last row.
pub(super) fn range(
    text: &Text,
    reference: &BufferRef,
    buffer: usize,
    decl: &BufferDecl,
    rank: &RankEnv<'_>,
    env: &dyn Env,
    problems: &mut Vec<Diagnostic>,
) -> Option<BufferRange> {
    if reference.index.is_empty() {
        return Some(BufferRange::whole(BufferId(buffer as u32), decl));
    }
    let whole = text.place.part(&(0..text.value.len()));
    let error = |code: Code, message: String| {
        Diagnostic::error(code, message, Label::at(whole, "").on_rank(rank.rank()))
    };
    if reference.index.len() > decl.shape.len() {
        let text = format!(
            "`{}` has {} ax{}s, not {}; its shape is {:?}",
            decl.name,
            decl.shape.len(),
            if decl.shape.len() == 1 { "i" } else { "e" },
            reference.index.len(),
            decl.shape
        );
        let help = format!("name at most {} in the brackets", decl.shape.len());
        problems.push(error(codes::RANGE, text).with_help(help));
        return None;
    }
    let eval =
        |expr: &Expr| rank.kept(expr.eval_int(env).map_err(|error| FormulaError::new(error, &text.place)));
    let (mut offset, mut shape, mut partial) = (0u64, Vec::new(), None);
    for (axis, &length) in decl.shape.iter().enumerate() {
        let (start, end, keep) = match reference.index.get(axis) {
            None => (0, length as i64, true),
            Some(AxisIndex::Single(at)) => {
                let at = eval(at)?;
                (at, at.saturating_add(1), false)
            }
            Some(AxisIndex::Range { start, end }) => {
                let start = start.as_ref().map_or(Some(0), eval)?;
                (start, end.as_ref().map_or(Some(length as i64), eval)?, true)
            }
        };
        if start < 0 || end < start || end as u64 > length {
            let asked = asked(&text.value, reference.index.get(axis), start, end);
            let text = if end < start {
                format!("{asked} ends before it begins, on axis {axis} of `{}`", decl.name)
            } else {
                format!("{asked} is outside axis {axis} of `{}`, which is {length} long", decl.name)
            };
            // Where the rank leads outside, the neighbour of the last is often the first.
            let wraps = asked.contains("rank");
            problems.push(error(codes::RANGE, text).with_help(mend(start, end, length, keep, wraps)));
            return None;
        }
        let taken = (end - start) as u64;
        // Once an axis is taken in part, every axis before it must have been taken at one place.
        if taken != length
            && taken != 0
            && let Some(before) = partial
        {
            let text = format!(
                "this range of `{}` is not contiguous: axis {axis} is taken in part, and axis {before} at more than one place",
                decl.name
            );
            problems.push(
                error(codes::NOT_CONTIGUOUS, text)
                    .with_help("copy it to a buffer of its own with the kernel `copy_2d`"),
            );
            return None;
        }
        if taken > 1 && partial.is_none() {
            partial = Some(axis);
        }
        offset = offset.saturating_mul(length).saturating_add(start as u64);
        if keep {
            shape.push(taken);
        }
    }
    Some(BufferRange { buffer: BufferId(buffer as u32), dtype: decl.dtype, offset, shape: shape.into() })
}

/// An index as written, with its value where that differs.
fn asked(text: &str, index: Option<&AxisIndex>, start: i64, end: i64) -> String {
    let written = |expr: &Expr| text.get(expr.range.clone()).unwrap_or_default();
    let (written, value) = match index {
        Some(AxisIndex::Single(at)) => (written(at).to_owned(), start.to_string()),
        Some(AxisIndex::Range { start: first, end: last }) => {
            let side =
                |side: &Option<Expr>, value: i64| side.as_ref().map_or(String::new(), |_| value.to_string());
            let written = |side: &Option<Expr>| side.as_ref().map_or("", written);
            (
                format!("{}:{}", written(first), written(last)),
                format!("{}:{}", side(first, start), side(last, end)),
            )
        }
        None => (":".to_owned(), ":".to_owned()),
    };
    if written == value { format!("`{written}`") } else { format!("`{written}`, here `{value}`,") }
}

/// How to stay inside an axis.
fn mend(start: i64, end: i64, length: u64, keep: bool, wraps: bool) -> String {
    let wrapped = if wraps { format!("; `% {length}` wraps around") } else { String::new() };
    match (keep, length) {
        (_, 0) => "the axis has no places; leave the task out with `when`".to_string(),
        (true, _) if end < start => "write the beginning before the end".to_string(),
        (true, _) => format!("take a part of 0:{length}"),
        (false, _) if start < 0 => {
            let last = length - 1;
            format!("places count from 0, and the last is {last}{wrapped}")
        }
        (false, _) => format!("the last place is {}{wrapped}", length - 1),
    }
}
