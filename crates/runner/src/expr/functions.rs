//! The functions of the expression language.

/// A function called with values. `rank(comm)`, `size(comm)` and `len(name)` take names and are nodes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `share(n[, rank, size])`: a rank's part of `n`.
    Share,
    /// `offset(n[, rank, size])`: where that part begins.
    Offset,
    /// `sum(list)`.
    Sum,
    /// `min(list)`, `min(a, b, …)`.
    Min,
    /// `max(list)`, `max(a, b, …)`.
    Max,
    /// `len(list)`.
    Len,
    /// `column(m, j)`: item `j` of each row.
    Column,
    /// `transpose(m)`: the columns of a list of rows as long as each other.
    Transpose,
}

impl Function {
    /// Every function.
    pub const ALL: &'static [Function] = &[
        Function::Share,
        Function::Offset,
        Function::Sum,
        Function::Min,
        Function::Max,
        Function::Len,
        Function::Column,
        Function::Transpose,
    ];

    /// As written.
    pub const fn name(self) -> &'static str {
        match self {
            Function::Share => "share",
            Function::Offset => "offset",
            Function::Sum => "sum",
            Function::Min => "min",
            Function::Max => "max",
            Function::Len => "len",
            Function::Column => "column",
            Function::Transpose => "transpose",
        }
    }

    /// How it is called, for messages.
    pub(crate) const fn form(self) -> &'static str {
        match self {
            Function::Share => "share(n) or share(n, rank, size)",
            Function::Offset => "offset(n) or offset(n, rank, size)",
            Function::Sum => "sum(list)",
            Function::Min => "min(list) or min(a, b, …)",
            Function::Max => "max(list) or max(a, b, …)",
            Function::Len => "len(list) or len(buffer)",
            Function::Column => "column(list of rows, index)",
            Function::Transpose => "transpose(list of rows)",
        }
    }

    /// Whether it can be called with so many arguments.
    pub(crate) const fn takes(self, args: usize) -> bool {
        match self {
            Function::Share | Function::Offset => args == 1 || args == 3,
            Function::Sum | Function::Len | Function::Transpose => args == 1,
            Function::Column => args == 2,
            Function::Min | Function::Max => args >= 1,
        }
    }

    /// Whether such a call asks for the rank and the world without naming them.
    pub(crate) const fn uses_place(self, args: usize) -> bool {
        matches!(self, Function::Share | Function::Offset) && args == 1
    }
}

/// Part `part` of `n` things split over `parts`: the first `n % parts` parts get one more.
/// `None` unless `n >= 0` and `0 <= part < parts`.
pub fn share(n: i64, part: i64, parts: i64) -> Option<i64> {
    (n >= 0 && 0 <= part && part < parts).then(|| n / parts + i64::from(part < n % parts))
}

/// Where part `part` of `n` things begins; `n` itself one past the last part.
/// `None` unless `n >= 0`, `parts > 0` and `0 <= part <= parts`.
pub fn offset(n: i64, part: i64, parts: i64) -> Option<i64> {
    // part * (n / parts) <= n, so that nothing overflows.
    (n >= 0 && parts > 0 && 0 <= part && part <= parts).then(|| part * (n / parts) + part.min(n % parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_tile_the_whole() {
        for n in 0..20 {
            for parts in 1..8 {
                assert_eq!(offset(n, 0, parts), Some(0));
                for part in 0..parts {
                    let end = offset(n, part, parts).unwrap() + share(n, part, parts).unwrap();
                    assert_eq!(offset(n, part + 1, parts), Some(end));
                }
                assert_eq!(offset(n, parts, parts), Some(n));
            }
        }
        assert_eq!(offset(i64::MAX, i64::MAX, i64::MAX), Some(i64::MAX));
    }

    #[test]
    fn parts_out_of_range_have_no_share() {
        assert_eq!(share(-1, 0, 1), None);
        assert_eq!(share(4, 0, 0), None);
        assert_eq!(share(4, 2, 2), None);
        assert_eq!(share(4, -1, 2), None);
        assert_eq!(offset(4, 3, 2), None);
    }
}
