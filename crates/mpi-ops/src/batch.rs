//! A group of ops, ready to be posted in every step.

use std::cell::RefCell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use mpi::ffi;
use squall_core::ops::Call;
use squall_core::{Abort as _, Device, DeviceError, Memory, OpCall, OpError, Stream, Work};

use crate::DEVICE;
use crate::api::{Comm, Datatype, check};
use crate::connection::Connection;
use crate::local::Local;
use crate::record::layout::{Layout, Seat};
use crate::record::{Operator, Record};

/// One rank's batch: what it does in its own memory, and the calls in the order in which all ranks post theirs.
pub(crate) struct Batch {
    /// Kept for good when calls are left in flight, since MPI may read and write it.
    held: ManuallyDrop<Held>,
    /// Whether calls are in flight. They stay so when an abort or an error has ended the wait.
    in_flight: bool,
}

struct Held {
    before: Vec<Local>,
    calls: Vec<Posted>,
    after: Vec<Local>,
    flight: Flight,
    /// Where copies are, if there are any.
    _scratch: Option<Box<dyn Memory>>,
    /// Keeps the communicators from being freed, and MPI from being finalised. Dropped last: types are given back before.
    connection: Arc<Connection>,
}

/// A call with its handles.
struct Posted {
    comm: Comm,
    record: Record,
    kind: Datatype,
    op: ffi::MPI_Op,
}

/// The calls in flight, with room for all of a batch.
struct Flight {
    requests: Vec<ffi::MPI_Request>,
    statuses: Vec<ffi::MPI_Status>,
}

// SAFETY: the handles are the process's and no thread's own; the memory is the batch's, and its addresses plain numbers. Only the thread
// that has the batch calls MPI with them.
unsafe impl Send for Held {}

impl Batch {
    /// Lays out all calls.
    ///
    /// # Safety
    /// As of [`squall_core::LibraryOp::prepare`].
    pub(crate) unsafe fn new(
        ops: &[OpCall<'_>],
        connection: &Arc<Connection>,
        device: &dyn Device,
    ) -> Result<Batch, OpError> {
        connection.check()?;
        // Communicators in one order on all ranks; within one, collectives and messages do not meet each other.
        let mut order: Vec<(usize, &OpCall<'_>)> = ops.iter().enumerate().collect();
        order.sort_by_key(|(_, op)| op.comm);
        // Once to see how much memory it needs, and once more with that memory.
        let mut scratch: Option<Box<dyn Memory>> = None;
        let (mut layout, mut comms) = lay_out(&order, connection, 0)?;
        if layout.scratch() > 0 {
            let memory = scratch.insert(device.alloc(layout.scratch())?);
            (layout, comms) = lay_out(&order, connection, memory.ptr().0)?;
        }
        let operators = connection.process().operators();
        let call = |(record, comm): (Record, Comm)| {
            let kind = Datatype::new(record.wire, record.unit, connection.largest())?;
            // A call that reduces nothing reads no operation.
            let op = operators.handle(record.operator().unwrap_or(Operator::Sum))?;
            Ok(Posted { comm, record, kind, op })
        };
        let calls: Vec<Posted> =
            layout.records.into_iter().zip(comms).map(call).collect::<Result<_, DeviceError>>()?;
        if c_int::try_from(calls.len()).is_err() {
            let text = format!("a group becomes {} calls of MPI, which cannot wait for so many", calls.len());
            return Err(DeviceError::Unsupported(text).into());
        }
        let held = Held {
            before: layout.before,
            after: layout.after,
            flight: Flight::new(calls.len()),
            calls,
            _scratch: scratch,
            connection: connection.clone(),
        };
        Ok(Batch { held: ManuallyDrop::new(held), in_flight: false })
    }

    /// # Safety
    /// As of [`squall_core::LibraryOp::prepare`]: this thread's work has the ranges now.
    unsafe fn run(&mut self) -> Result<(), DeviceError> {
        let held = &mut *self.held;
        held.connection.check()?;
        // SAFETY: the ranges hold what the calls say, which was checked, and are this work's until it ends; so is the scratch memory.
        held.before.iter().for_each(|local| unsafe { local.run() });
        if !held.calls.is_empty() {
            self.in_flight = true;
            // SAFETY: the ranges as above; all else is held until the requests have ended, or for good.
            let outcome = unsafe { held.post() }.and_then(|()| held.wait());
            let why = match &outcome {
                Ok(()) => None,
                Err(DeviceError::Aborted) => Some("an abort left calls of MPI in flight".to_string()),
                Err(error) => Some(error.to_string()),
            };
            match why {
                None => self.in_flight = false,
                Some(why) => held.connection.process().leave(why),
            }
            outcome?;
        }
        // SAFETY: as before the calls, which have ended.
        held.after.iter().for_each(|local| unsafe { local.run() });
        Ok(())
    }
}

/// The layout of a batch, with scratch memory at an address, and the communicator of each of its calls.
fn lay_out(
    order: &[(usize, &OpCall<'_>)],
    connection: &Connection,
    scratch: u64,
) -> Result<(Layout, Vec<Comm>), OpError> {
    let (mut layout, mut comms) = (Layout::new(scratch), Vec::new());
    for &(member, op) in order {
        let comm = connection.comm(op.comm)?;
        let seat = Seat { me: op.args.comm_rank, size: op.args.comm_size, largest: connection.largest() };
        Call::read(op.op.name(), &op.args)
            .and_then(|call| layout.add(&call, op.parts, seat))
            .map_err(|error| OpError::Arg { member, error })?;
        comms.resize(layout.records.len(), comm);
    }
    Ok((layout, comms))
}

impl Held {
    /// Posts all calls.
    ///
    /// # Safety
    /// The ranges must stay this work's until the requests have ended.
    unsafe fn post(&mut self) -> Result<(), DeviceError> {
        for (call, request) in self.calls.iter().zip(&mut self.flight.requests) {
            // SAFETY: the caller's for the ranges; type, operation and communicator are alive, and the record is on the heap, where
            // it stays.
            let code = unsafe { call.record.post(call.kind.handle(), call.op, call.comm.0, request) };
            check(call.record.function(), code)?;
        }
        Ok(())
    }

    /// Waits until all calls have ended, or an abort.
    fn wait(&mut self) -> Result<(), DeviceError> {
        let (stop, calls) = (self.connection.stop(), &self.calls);
        let state = RefCell::new((&mut self.flight, Ok(false)));
        self.connection.process().poll(None, || {
            let (flight, outcome) = &mut *state.borrow_mut();
            *outcome = flight.test(calls);
            !matches!(outcome, Ok(false)) || stop.is_aborted()
        });
        match state.into_inner().1 {
            Ok(true) => Ok(()),
            Ok(false) => Err(DeviceError::Aborted),
            // Where others were aborted, an error is mostly of that.
            Err(_) if stop.is_aborted() => Err(DeviceError::Aborted),
            Err(error) => Err(error),
        }
    }
}

impl Flight {
    fn new(calls: usize) -> Flight {
        // SAFETY: a constant of MPI's.
        let none = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: a status is numbers alone, and is written before it is read.
        let empty = unsafe { std::mem::zeroed::<ffi::MPI_Status>() };
        Flight { requests: vec![none; calls], statuses: vec![empty; calls] }
    }

    /// Whether all have ended.
    fn test(&mut self, calls: &[Posted]) -> Result<bool, DeviceError> {
        let mut done = 0;
        // SAFETY: as many requests as statuses, whose number fits; what they work on is held.
        let code = unsafe {
            ffi::MPI_Testall(
                self.requests.len() as c_int,
                self.requests.as_mut_ptr(),
                &mut done,
                self.statuses.as_mut_ptr(),
            )
        };
        if code == ffi::MPI_SUCCESS as c_int {
            return Ok(done != 0);
        }
        // The statuses say which it was, where the error is of one call.
        let is_error =
            |code: c_int| code != ffi::MPI_SUCCESS as c_int && code != ffi::MPI_ERR_PENDING as c_int;
        let failed = self.statuses.iter().zip(calls).find(|(status, _)| is_error(status.MPI_ERROR));
        let (function, code) = match failed {
            Some((status, call)) => (call.record.function(), status.MPI_ERROR),
            None => ("MPI_Testall", code),
        };
        check(function, code)?;
        Ok(false)
    }
}

impl Work for Batch {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        let api = stream.raw().api;
        if api != DEVICE {
            return Err(DeviceError::Unsupported(format!(
                "MPI works on {DEVICE} streams, not on those of {api}"
            )));
        }
        // SAFETY: promised to `prepare`.
        unsafe { self.run() }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.in_flight {
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.held) };
        }
    }
}
