//! A captured step.

use std::sync::Arc;

use cudarc::driver::sys;
use squall_core::{DeviceError, Stream, Work};

use crate::context::Context;
use crate::stream::{CudaStream, First};

/// What a stream recorded, ready to be launched again and again.
pub(crate) struct Graph {
    context: Arc<Context>,
    exec: sys::CUgraphExec,
    first: First,
}

// SAFETY: the driver's handle may be used from any thread; it is used by one at a time.
unsafe impl Send for Graph {}

impl Graph {
    /// Takes a recorded graph, which is destroyed here: libraries that wait for all graphs with their work in them, as NCCL does
    /// when a communicator closes, would wait for it too.
    pub(crate) fn new(
        context: &Arc<Context>,
        graph: sys::CUgraph,
        first: First,
    ) -> Result<Graph, DeviceError> {
        let mut exec = std::ptr::null_mut();
        // SAFETY: the graph is what a capture just ended with; `exec` is written.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) };
        // SAFETY: the graph is not used after this.
        let destroyed = unsafe { sys::cuGraphDestroy(graph) };
        context.check("cuGraphInstantiate", made)?;
        let graph = Graph { context: context.clone(), exec, first };
        context.check("cuGraphDestroy", destroyed)?;
        Ok(graph)
    }
}

impl Work for Graph {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        let handle = CudaStream::of(stream)?.for_replay(self.first)?;
        // SAFETY: the graph lives, and so does the memory that its work was bound to: the plan drops it first.
        self.context.check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.exec, handle) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: made by `new`, and launched no more; a launch that still runs ends by itself.
            let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
        }
    }
}
