//! Squall's own ops by MPI.

use squall_core::ops::{self, Contract};
use squall_core::{
    DeviceError, LibraryOp, Needs, OpCall, OpError, Prepare, Work, described_by_contract, register_op,
};

use crate::batch::Batch;
use crate::connection::RankSession;
use crate::{DEVICE, NAME};

register_op!(
    &MpiOp(&ops::ALL_GATHER),
    &MpiOp(&ops::ALL_REDUCE),
    &MpiOp(&ops::ALL_TO_ALL),
    &MpiOp(&ops::BROADCAST),
    &MpiOp(&ops::GATHER),
    &MpiOp(&ops::RECV),
    &MpiOp(&ops::REDUCE),
    &MpiOp(&ops::REDUCE_SCATTER),
    &MpiOp(&ops::SCATTER),
    &MpiOp(&ops::SEND),
    &MpiOp(&ops::SEND_RECV),
);

/// One of squall's own ops on host devices.
struct MpiOp(&'static Contract);

described_by_contract!(MpiOp);

impl LibraryOp for MpiOp {
    fn library(&self) -> &'static str {
        NAME
    }

    fn device(&self) -> &'static str {
        DEVICE
    }

    /// All dtypes and reductions, in groups, across processes. Hosts capture nothing.
    fn needs(&self) -> Needs {
        Needs { captures: false, ..Needs::NONE }
    }

    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let session = cx.session.as_deref().and_then(|session| session.downcast_ref::<RankSession>());
        match session {
            // SAFETY: the caller's.
            Some(session) => Ok(Box::new(unsafe { Batch::new(batch, &session.0, cx.device) }?)),
            None => Err(DeviceError::Failed(format!("the library `{NAME}` was not connected")).into()),
        }
    }
}
