//! The explicit grid of a kernel task.

/// The most threads a block may have, on every backend: CUDA's limit.
pub const MAX_BLOCK_THREADS: u64 = 1024;
/// The longest block in each dimension: CUDA's limit.
pub const MAX_BLOCK: [u64; 3] = [1024, 1024, 64];
/// The most blocks in each dimension: CUDA's limit.
pub const MAX_BLOCKS: [u64; 3] = [i32::MAX as u64, 65535, 65535];

/// How many threads a kernel runs on, and in what blocks. The same limits hold on every backend, so that a
/// grid that runs on the host runs on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    threads: [u64; 3],
    block: [u32; 3],
    blocks: [u32; 3],
}

/// The grid is beyond what a device can launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GridError {
    /// A block without threads.
    #[error("the block {0:?} has an axis of length 0")]
    EmptyBlock([u64; 3]),
    /// Too long a block.
    #[error("the block {0:?} is longer than {MAX_BLOCK:?}")]
    LongBlock([u64; 3]),
    /// Too many threads in a block.
    #[error("the block {0:?} has {1} threads; the limit is {MAX_BLOCK_THREADS}")]
    LargeBlock([u64; 3], u64),
    /// Too many blocks.
    #[error("{threads:?} threads in blocks of {block:?} are {blocks:?} blocks; the limit is {MAX_BLOCKS:?}")]
    ManyBlocks {
        /// The threads asked for.
        threads: [u64; 3],
        /// The block.
        block: [u64; 3],
        /// The blocks they make.
        blocks: [u64; 3],
    },
}

impl GridError {
    /// A block like the one that was refused, with which the grid can be launched; `None` where no block is large enough.
    pub(crate) fn block_that_fits(&self) -> Option<[u64; 3]> {
        match *self {
            GridError::EmptyBlock([0, 0 | 1, 0 | 1]) => Some([256, 1, 1]),
            GridError::EmptyBlock(block) | GridError::LongBlock(block) | GridError::LargeBlock(block, _) => {
                let mut block: [u64; 3] = std::array::from_fn(|axis| block[axis].clamp(1, MAX_BLOCK[axis]));
                // Ends at 1024 threads at the latest, since an axis longer than 1 is halved each time.
                while block.iter().product::<u64>() > MAX_BLOCK_THREADS {
                    if let Some(longest) = block.iter_mut().max() {
                        *longest /= 2;
                    }
                }
                Some(block)
            }
            GridError::ManyBlocks { threads, block, .. } => {
                let least: [u64; 3] =
                    std::array::from_fn(|axis| threads[axis].div_ceil(MAX_BLOCKS[axis]).max(1));
                // Longer than 1024 no axis may be, so that this does not overflow.
                let rounded =
                    |axis: usize| least[axis].min(MAX_BLOCK[axis] + 1).next_power_of_two().max(block[axis]);
                let candidates = [std::array::from_fn(rounded), least];
                candidates.into_iter().find(|&block| Grid::new(threads, block).is_ok())
            }
        }
    }
}

impl Grid {
    /// A grid of at least `threads` threads in blocks of `block`; the last block of an axis may have surplus
    /// threads. Zero threads on any axis make an empty grid, whose kernel is skipped.
    pub fn new(threads: [u64; 3], block: [u64; 3]) -> Result<Grid, GridError> {
        if block.contains(&0) {
            return Err(GridError::EmptyBlock(block));
        }
        if block.iter().zip(MAX_BLOCK).any(|(&b, max)| b > max) {
            return Err(GridError::LongBlock(block));
        }
        let size: u64 = block.iter().product();
        if size > MAX_BLOCK_THREADS {
            return Err(GridError::LargeBlock(block, size));
        }
        let blocks: [u64; 3] = std::array::from_fn(|axis| threads[axis].div_ceil(block[axis]));
        if blocks.iter().zip(MAX_BLOCKS).any(|(&b, max)| b > max) {
            return Err(GridError::ManyBlocks { threads, block, blocks });
        }
        // Within the limits just checked, both fit 32 bits.
        Ok(Grid { threads, block: block.map(|b| b as u32), blocks: blocks.map(|b| b as u32) })
    }

    /// The threads asked for, on each axis.
    pub fn threads(&self) -> [u64; 3] {
        self.threads
    }

    /// Threads of a block, on each axis.
    pub fn block(&self) -> [u32; 3] {
        self.block
    }

    /// Blocks, on each axis.
    pub fn blocks(&self) -> [u32; 3] {
        self.blocks
    }

    /// The threads that run on each axis: those asked for and the surplus of the last block.
    pub fn launched(&self) -> [u64; 3] {
        std::array::from_fn(|axis| u64::from(self.blocks[axis]) * u64::from(self.block[axis]))
    }

    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.blocks.contains(&0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_threads_fill_the_last_block() {
        let grid = Grid::new([1000, 3, 1], [256, 2, 1]).unwrap();
        assert_eq!((grid.blocks(), grid.launched()), ([4, 2, 1], [1024, 4, 1]));
        assert!(Grid::new([0, 1, 1], [32, 1, 1]).unwrap().is_empty());
    }

    #[test]
    fn limits_are_named() {
        assert_eq!(Grid::new([1, 1, 1], [0, 1, 1]), Err(GridError::EmptyBlock([0, 1, 1])));
        assert_eq!(Grid::new([1, 1, 1], [2048, 1, 1]), Err(GridError::LongBlock([2048, 1, 1])));
        assert_eq!(Grid::new([1, 1, 1], [64, 32, 1]), Err(GridError::LargeBlock([64, 32, 1], 2048)));
        assert!(matches!(Grid::new([1, 1 << 20, 1], [1, 1, 1]), Err(GridError::ManyBlocks { .. })));
        assert!(Grid::new([u64::MAX, 1, 1], [1024, 1, 1]).is_err());
    }

    #[test]
    fn a_refused_grid_gets_a_block_that_can_be_launched() {
        let fits = |threads, block| Grid::new(threads, block).unwrap_err().block_that_fits();
        for (threads, block, wanted) in [
            ([8, 1, 1], [0, 1, 1], [256, 1, 1]),
            ([8, 8, 1], [16, 0, 1], [16, 1, 1]),
            ([8, 1, 1], [2048, 1, 1], [1024, 1, 1]),
            ([8, 8, 1], [64, 32, 1], [32, 32, 1]),
            ([8, 8, 8], [u64::MAX, u64::MAX, u64::MAX], [16, 8, 8]),
            ([1 << 36, 1, 1], [1, 1, 1], [64, 1, 1]),
            ([16, 1 << 20, 1], [8, 8, 1], [8, 32, 1]),
            ([16, 1000 * 65535, 1], [1, 1, 1], [1, 1024, 1]),
        ] {
            assert_eq!(fits(threads, block), Some(wanted), "{threads:?} {block:?}");
            assert!(Grid::new([8, 8, 8], wanted).is_ok(), "{wanted:?}");
        }
        assert_eq!(fits([u64::MAX, 1, 1], [1024, 1, 1]), None);
        assert_eq!(fits([1, 1 << 30, 1], [16, 16, 1]), None);
    }
}
