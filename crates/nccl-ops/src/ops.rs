//! Squall's own ops by NCCL.

use squall_core::ops::{self, Contract};
use squall_core::{
    Args, DeviceError, LibraryOp, Needs, OpCall, OpError, Parts, Prepare, Task, Work, described_by_contract,
    register_op,
};

use crate::batch::Batch;
use crate::communicators::RankSession;
use crate::{DEVICE, NAME};

register_op!(
    &NcclOp(&ops::ALL_GATHER),
    &NcclOp(&ops::ALL_REDUCE),
    &NcclOp(&ops::ALL_TO_ALL),
    &NcclOp(&ops::BROADCAST),
    &NcclOp(&ops::GATHER),
    &NcclOp(&ops::RECV),
    &NcclOp(&ops::REDUCE),
    &NcclOp(&ops::REDUCE_SCATTER),
    &NcclOp(&ops::SCATTER),
    &NcclOp(&ops::SEND),
    &NcclOp(&ops::SEND_RECV),
);

/// One of squall's own ops on CUDA devices.
pub(crate) struct NcclOp(pub(crate) &'static Contract);

described_by_contract!(NcclOp);

impl LibraryOp for NcclOp {
    fn library(&self) -> &'static str {
        NAME
    }

    fn device(&self) -> &'static str {
        DEVICE
    }

    /// All dtypes and reductions, in groups, captured, across processes.
    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn served_as(&self, args: &Args<'_>, parts: Option<&Parts>) -> Option<String> {
        let unequal = parts.is_some() && args.comm_size > 1;
        let served = match (self.name(), unequal) {
            ("all_to_all" | "gather" | "scatter", _) | ("all_gather", true) => {
                "a group of sends and receives"
            }
            ("reduce_scatter", true) => "a group of reductions, one to each rank that has a part",
            _ => return None,
        };
        Some(format!("as {served}"))
    }

    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let session = cx.session.as_deref().and_then(|session| session.downcast_ref::<RankSession>());
        match session {
            // SAFETY: the caller's.
            Some(session) => Ok(Box::new(unsafe { Batch::new(batch, session) }?)),
            None => Err(DeviceError::Failed(format!("the library `{NAME}` was not connected")).into()),
        }
    }
}
