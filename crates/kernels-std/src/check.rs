//! Rules that several kernels share, and the types of their parameters.

use squall_core::{ArgError, Args, BufferRange, DType, Type, count};

/// Any dtype.
pub(crate) const ANY: Type = Type::In(DType::ALL);
/// The float dtypes.
pub(crate) const FLOAT: Type = Type::In(DType::FLOATS);

/// The number of elements of a buffer argument.
pub(crate) fn len(args: &Args<'_>, param: &str) -> u64 {
    args.buffer(param).map_or(0, BufferRange::len)
}

/// `param` must have as many elements as `like`.
pub(crate) fn same_len(args: &Args<'_>, param: &'static str, like: &str) -> Result<(), ArgError> {
    let (found, wanted) = (len(args, param), len(args, like));
    if found == wanted {
        return Ok(());
    }
    let message = format!("has {}, but `{like}` has {wanted}; they must be equal", count(found, "element"));
    Err(ArgError::new(param, message))
}

/// `param` must have one element.
pub(crate) fn one_element(args: &Args<'_>, param: &'static str) -> Result<(), ArgError> {
    match len(args, param) {
        1 => Ok(()),
        found => Err(ArgError::new(param, format!("has {found} elements, but must have one"))),
    }
}

/// `param` must hold a matrix of the lengths that two size arguments give.
pub(crate) fn holds_matrix(
    args: &Args<'_>,
    param: &'static str,
    [rows, cols]: [&str; 2],
) -> Result<(), ArgError> {
    let found = len(args, param);
    let (r, c) = (args.size(rows).unwrap_or(0), args.size(cols).unwrap_or(0));
    let wanted = u128::from(r) * u128::from(c);
    if u128::from(found) == wanted {
        return Ok(());
    }
    let message = format!("has {}, but {rows} × {cols} = {r} × {c} = {wanted}", count(found, "element"));
    Err(ArgError::new(param, message))
}

/// `param` must be made of rows as long as `like`: its last axis, or a single axis that such rows fill.
pub(crate) fn has_rows_like(args: &Args<'_>, param: &'static str, like: &str) -> Result<(), ArgError> {
    let Some(range) = args.buffer(param) else { return Ok(()) };
    let wanted = len(args, like);
    match range.shape.split_last() {
        Some((&row, [_, ..])) if row != wanted => {
            let message = format!(
                "has rows of {}, but `{like}` has {wanted}; they must be equal",
                count(row, "element")
            );
            Err(ArgError::new(param, message))
        }
        Some((_, [_, ..])) => Ok(()),
        _ if range.len().checked_rem(wanted).unwrap_or(range.len()) == 0 => Ok(()),
        _ => {
            let message =
                format!("has {}, not a multiple of the {wanted} of `{like}`", count(range.len(), "element"));
            Err(ArgError::new(param, message))
        }
    }
}

/// `param` must be made of one row for each element of `like`: its axes but the last, or a single axis that
/// so many rows fill.
pub(crate) fn has_row_for_each(args: &Args<'_>, param: &'static str, like: &str) -> Result<(), ArgError> {
    let Some(range) = args.buffer(param) else { return Ok(()) };
    let wanted = len(args, like);
    match range.shape.split_last() {
        Some((_, leading @ [_, ..])) => {
            // Saturates only beside an empty last axis, and then differs from any length there is.
            let rows = leading.iter().fold(1u64, |rows, &axis| rows.saturating_mul(axis));
            if rows == wanted {
                return Ok(());
            }
            let message = format!(
                "has {}, but `{like}` has {}; they must be equal",
                count(rows, "row"),
                count(wanted, "element")
            );
            Err(ArgError::new(param, message))
        }
        _ if range.len().checked_rem(wanted).unwrap_or(range.len()) == 0 => Ok(()),
        _ => {
            let message = format!(
                "has {}, which do not make {}, one for each of `{like}`",
                count(range.len(), "element"),
                count(wanted, "equal row")
            );
            Err(ArgError::new(param, message))
        }
    }
}
