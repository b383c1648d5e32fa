//! The part of a file that a rank takes.

use std::ops::Range;

use super::{Made, Spot};
use crate::codes;
use crate::files::shard;
use crate::manifest::model::Part;
use crate::resolve::RankEnv;

/// The ranges along the first axes of an array of this shape; the other axes are taken whole. That they lie inside is for the
/// file to say.
pub(super) fn ranges(
    at: &Spot<'_>,
    env: &RankEnv<'_>,
    world: u32,
    part: &Part,
    shape: &[u64],
) -> Made<Vec<Range<u64>>> {
    let ranges = match part {
        Part::Whole => return Ok(Vec::new()),
        Part::Rows => {
            let count = shape.first().copied().unwrap_or(1);
            return Ok(vec![shard::rows(count, at.rank.into(), world.into()).unwrap_or(0..0)]);
        }
        Part::Slice(ranges) => ranges,
    };
    let mut taken = Vec::with_capacity(ranges.value.len());
    for (axis, range) in ranges.value.iter().enumerate() {
        let bound = |formula: &Option<_>, default| match formula {
            None => Ok(default),
            Some(formula) => {
                let place = at.int(env, formula)?;
                u64::try_from(place).map_err(|_| {
                    let problem =
                        format!("`slice` has the bound {place} along axis {axis}, and places count from 0");
                    at.refused(codes::DATA, range.span, &problem)
                })
            }
        };
        taken.push(bound(&range.start, 0)?..bound(&range.end, shape.get(axis).copied().unwrap_or(0))?);
    }
    Ok(taken)
}
