//! A group of ops, ready to be issued in every step.

use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

use squall_core::ops::Call;
use squall_core::{DeviceError, OpCall, OpError, RawHandle, Stream, Work};

use crate::DEVICE;
use crate::api::RawStream;
use crate::closer::{Comm, Connection};
use crate::communicators::RankSession;
use crate::record::{self, Record};

/// One rank's batch: the calls, in the order in which all ranks issue theirs.
pub(crate) struct Batch {
    /// Keeps the communicators from being freed.
    connection: Arc<Connection>,
    rank: u32,
    calls: Box<[(Comm, Record)]>,
}

impl Batch {
    /// Lays out all calls.
    ///
    /// # Safety
    /// As of [`squall_core::LibraryOp::prepare`].
    pub(crate) unsafe fn new(ops: &[OpCall<'_>], session: &RankSession) -> Result<Batch, OpError> {
        // Communicators in one order on all ranks. Within one, what is made of sends and receives comes before the group's own: both
        // are matched by order alone, and the ranks' groups agree on the order of collectives and of messages, not of both.
        let mut order: Vec<(usize, &OpCall<'_>)> = ops.iter().enumerate().collect();
        let message = |op: &OpCall<'_>| matches!(op.op.name(), "send" | "recv" | "send_recv");
        order.sort_by_key(|(_, op)| (op.comm, message(op)));
        let (mut calls, mut records) = (Vec::new(), Vec::new());
        for (member, op) in order {
            let comm = session.comm(op.comm)?;
            Call::read(op.op.name(), &op.args)
                .and_then(|call| {
                    record::read(&call, op.parts, op.args.comm_rank, op.args.comm_size, &mut records)
                })
                .map_err(|error| OpError::Arg { member, error })?;
            calls.extend(records.drain(..).map(|record| (comm, record)));
        }
        let (connection, rank) = (session.connection().clone(), session.rank());
        Ok(Batch { connection, rank, calls: calls.into() })
    }

    fn issue(&self, stream: RawStream) -> Result<(), DeviceError> {
        let [calls @ .., last] = &*self.calls else { return self.connection.check() };
        if calls.is_empty() {
            return self.call(last, stream);
        }
        self.connection.check()?;
        self.connection.api().group_start().map_err(|error| self.blame(error.into()))?;
        let outcome = self.calls.iter().try_for_each(|call| self.call(call, stream));
        // Ended in any case: NCCL counts starts and ends, and forgets a group in which a call failed.
        let ended =
            self.connection.api().group_end(Some(self.rank)).map_err(|error| self.blame(error.into()));
        outcome.and(ended)
    }

    fn call(&self, (comm, record): &(Comm, Record), stream: RawStream) -> Result<(), DeviceError> {
        self.connection.check()?;
        let api = self.connection.api();
        // SAFETY: the ranges are memory of this rank's device as long as the work lives, by the promise to `prepare`, and its lengths
        // were checked against each other; the communicator is not freed while the connection is held.
        let result = unsafe { record.issue(&api.functions, comm.raw(), stream) };
        api.check(record.function(), Some(self.rank), result).map_err(|error| self.blame(error.into()))
    }

    /// An error after an abort is the abort's.
    fn blame(&self, error: DeviceError) -> DeviceError {
        self.connection.check().err().unwrap_or(error)
    }
}

impl Work for Batch {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        let RawHandle { api, handle } = stream.raw();
        if api != DEVICE {
            return Err(DeviceError::Unsupported(format!(
                "NCCL works on {DEVICE} streams, not on those of {api}"
            )));
        }
        self.issue(with_exposed_provenance_mut(handle as usize))
    }
}

#[cfg(test)]
mod tests;
