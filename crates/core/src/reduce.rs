//! Reductions of collectives.

use std::fmt;

/// How a collective combines the ranks' elements. The same on every rank of a collective.
///
/// What NCCL does is what every backend does: integer `sum`, `prod` and `avg` wrap; an integer `avg` divides
/// the wrapped sum toward zero; `min` and `max` of floats ignore a NaN where another rank has a number,
/// as `fmin` and `fmax` do; `sum`, `prod` and `avg` keep a NaN; half types are reduced through `f32`.
///
/// An `avg` of halves whose sum is beyond them is finite where the division comes before the sum, or before the rounding. That is
/// the library's choice: the host gives 60000 for the `f16` average of 60000 and 60000, and so did NCCL 2.28.9 on two H200s, on
/// both ranks. It was seen there, and is no promise for other versions or machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ReduceOp {
    /// The sum over the ranks.
    Sum,
    /// The product over the ranks.
    Prod,
    /// The greatest.
    Max,
    /// The least.
    Min,
    /// The sum divided by the number of ranks.
    Avg,
}

impl ReduceOp {
    /// Every reduction, in the order of NCCL's enumeration.
    pub const ALL: &'static [ReduceOp] =
        &[ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg];
    /// Their names in manifests, in the same order.
    pub const NAMES: &'static [&'static str] = &["sum", "prod", "max", "min", "avg"];

    /// The name in manifests.
    pub const fn name(self) -> &'static str {
        ReduceOp::NAMES[self as usize]
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
