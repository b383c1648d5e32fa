//! A kernel that is ready to be launched.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::sys;
use squall_core::{Arg, BoundRange, DeviceError, Grid, KernelDef, Memory as _, Stream, Work};

use crate::context::{Context, Function};
use crate::kernel::Specialised;
use crate::kernel::arguments::Arguments;
use crate::memory::DeviceMemory;
use crate::stream::CudaStream;
use crate::words::Word;

/// A kernel task on a GPU.
pub(crate) struct Kernel {
    context: Arc<Context>,
    kernel: &'static KernelDef,
    function: Function,
    blocks: [u32; 3],
    block: [u32; 3],
    arguments: Arguments,
    failure: Word,
    _scratch: Option<DeviceMemory>,
}

impl Kernel {
    /// Compiles and loads the kernel, if it is not, and lays out its arguments.
    pub(crate) fn new(
        context: &Arc<Context>,
        kernel: &'static KernelDef,
        args: &[Arg<BoundRange>],
        grid: Grid,
    ) -> Result<Kernel, DeviceError> {
        let block = grid.block();
        let absent =
            || DeviceError::Unsupported(format!("kernel `{}` has no form for CUDA devices", kernel.name));
        let source = kernel.cuda.ok_or_else(absent)?;
        let specialised = Specialised::new(kernel, args, block.iter().product()).ok_or_else(absent)?;
        let function = context.function(specialised)?;
        let failure = Word::new(context)?;
        let scratch = match source.scratch {
            0 => None,
            bytes => Some(DeviceMemory::new(context, bytes.into())?),
        };
        let at = scratch.as_ref().map_or(0, |memory| memory.ptr().0);
        let arguments = Arguments::new(kernel, args, grid.launched(), failure.address(), at)?;
        let mut blocks = grid.blocks();
        if source.loops {
            blocks[0] = blocks[0].min(filling(context.resident_threads, blocks, block));
        }
        let context = context.clone();
        Ok(Kernel { context, kernel, function, blocks, block, arguments, failure, _scratch: scratch })
    }
}

/// Blocks on axis x that fill a GPU which holds so many threads, at least one.
fn filling(resident_threads: u32, blocks: [u32; 3], block: [u32; 3]) -> u32 {
    let others =
        u64::from(blocks[1]) * u64::from(blocks[2]) * block.iter().map(|&n| u64::from(n)).product::<u64>();
    u64::from(resident_threads).div_ceil(others.max(1)).try_into().unwrap_or(u32::MAX)
}

impl Work for Kernel {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        if self.blocks.contains(&0) {
            return Ok(());
        }
        let (handle, telling) = CudaStream::of(stream)?.for_kernel();
        self.arguments.tell(&telling);
        let mut params = [self.arguments.as_mut_ptr().cast()];
        let ([x, y, z], [bx, by, bz]) = (self.blocks, self.block);
        // SAFETY: the kernel was compiled for these arguments, which are copied before the call returns; the memory that they
        // point to outlives the work, as `Device::kernel`'s caller vouches.
        let result = unsafe {
            sys::cuLaunchKernel(
                self.function.0,
                x,
                y,
                z,
                bx,
                by,
                bz,
                0,
                handle,
                params.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.context.check("cuLaunchKernel", result)
    }

    fn failure(&mut self) -> Option<String> {
        let word = self.failure.get().swap(0, Ordering::Acquire);
        let message = usize::try_from(word >> 56).ok()?.checked_sub(1)?;
        let number = (word & ((1 << 56) - 1)).to_string();
        let messages = self.kernel.cuda.map_or(&[][..], |source| source.failures);
        Some(match messages.get(message) {
            Some(text) => text.replace("{}", &number),
            None => format!(
                "kernel `{}` failed with the message {message}, which it does not have",
                self.kernel.name
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_looping_launch_fills_the_gpu_and_no_more() {
        let h200 = 132 * 2048;
        assert_eq!(filling(h200, [1 << 20, 1, 1], [256, 1, 1]), 1056);
        assert_eq!(filling(h200, [8, 1000, 1], [256, 1, 1]), 2);
        assert_eq!(filling(h200, [8, 65535, 4], [32, 8, 1]), 1);
        assert_eq!(filling(1, [0, 0, 0], [1, 1, 1]), 1);
    }
}
