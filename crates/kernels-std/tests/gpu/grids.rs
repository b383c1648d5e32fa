//! The grids that a case is launched on.

use squall_core::conformance::Random;
use squall_core::{Cover, Grid};

use crate::case::Case;

/// Blocks of all shapes: whole warps and parts of one, one axis and several, the least and the most.
const BLOCKS: [[u64; 3]; 9] = [
    [256, 1, 1],
    [32, 4, 2],
    [16, 16, 1],
    [1024, 1, 1],
    [32, 32, 1],
    [7, 3, 1],
    [1, 1, 1],
    [50, 1, 3],
    [8, 32, 1],
];

/// Some grids: two with a thread for everything and surplus threads on every axis, and one with too few threads on each set
/// of axes where there can be too few. Each with whether it is one of the former.
pub(crate) fn of(case: &Case, large: bool, random: &mut Random) -> Result<Vec<(Grid, bool)>, String> {
    let required = case.required()?;
    let covers = case.kernel.covers;
    let can_lack =
        |axis: usize| covers.get(axis).is_some_and(|cover| *cover != Cover::Any) && required[axis] > 1;
    let axes = |set: u32| (0..3).filter(move |axis| set >> axis & 1 == 1);
    let lacking = (1..8).filter(|&set| axes(set).all(can_lack));
    let mut grids = Vec::new();
    for set in [0, 0].into_iter().chain(lacking) {
        // Of a large case's blocks none is so small that the grid would be beyond the limits.
        let blocks = if large { &BLOCKS[..5] } else { &BLOCKS[..] };
        let block = random.pick(blocks).unwrap_or([256, 1, 1]);
        let threads: [u64; 3] = std::array::from_fn(|axis| match covers.get(axis) {
            Some(Cover::Any) => random.pick(&[1, block[axis], 3 * block[axis], 5000]).unwrap_or(1),
            Some(_) if axes(set).any(|lacks| lacks == axis) => 1 + random.below(required[axis] - 1),
            Some(_) => required[axis].max(1) + random.below(2 * block[axis]),
            None => 1 + random.below(2 * block[axis]),
        });
        // On a y axis that is long beyond the limits, blocks of one row do not do.
        let grid = Grid::new(threads, block).or_else(|_| Grid::new(threads, [16, 32, 1]));
        grids.push((grid.map_err(|error| error.to_string())?, set == 0));
    }
    Ok(grids)
}
