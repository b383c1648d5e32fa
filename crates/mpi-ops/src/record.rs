//! Calls of MPI laid out as plain values.

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};

use mpi::ffi;
use squall_core::{DType, ReduceOp};

pub(crate) mod layout;

/// An element as it goes on its way: MPI's types that squall uses. What is moved and not reduced goes as the unsigned integer of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
}

impl Wire {
    /// Bytes of an element.
    pub(crate) fn size(self) -> u64 {
        match self {
            Wire::U8 => 1,
            Wire::U16 => 2,
            Wire::U32 | Wire::F32 => 4,
            Wire::U64 | Wire::F64 => 8,
        }
    }

    /// For what is moved as it is.
    pub(crate) fn moved(dtype: DType) -> Wire {
        match dtype.size() {
            1 => Wire::U8,
            2 => Wire::U16,
            4 => Wire::U32,
            _ => Wire::U64,
        }
    }
}

/// An operation, as MPI applies it. MPI's own are trusted with floats alone, whose sums and products it can hardly get wrong: of
/// integers it promises nothing. Open MPI 4.1.4 saturates sums of 8 bits where the processor has AVX, and MPICH 4.0.2 takes maxima of
/// unsigned bytes as if they were signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    /// MPI's, of floats.
    Sum,
    /// MPI's, of floats.
    Prod,
    /// Of integers, signed or not, with the bits that wrap.
    WrappingSum(Wire),
    /// As [`Operator::WrappingSum`].
    WrappingProd(Wire),
    /// Of floats with fmin's rules.
    Lesser(DType),
    /// Of floats with fmax's rules.
    Greater(DType),
}

/// How a reduction of a dtype is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub(crate) wire: Wire,
    pub(crate) operator: Operator,
    /// Whether halves are reduced as `f32`.
    pub(crate) widened: bool,
    /// Whether the sum is divided in the end.
    pub(crate) averaged: bool,
}

impl Reduction {
    pub(crate) fn new(dtype: DType, reduce: ReduceOp) -> Reduction {
        let half = matches!(dtype, DType::F16 | DType::Bf16);
        let product = matches!(reduce, ReduceOp::Prod);
        let moved = Wire::moved(dtype);
        let (wire, operator, widened) = match reduce {
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Prod if dtype.is_float() => {
                let wire = if dtype == DType::F64 { Wire::F64 } else { Wire::F32 };
                (wire, if product { Operator::Prod } else { Operator::Sum }, half)
            }
            ReduceOp::Prod => (moved, Operator::WrappingProd(moved), false),
            ReduceOp::Sum | ReduceOp::Avg => (moved, Operator::WrappingSum(moved), false),
            ReduceOp::Max => (moved, Operator::Greater(dtype), false),
            ReduceOp::Min => (moved, Operator::Lesser(dtype), false),
        };
        Reduction { wire, operator, widened, averaged: reduce == ReduceOp::Avg }
    }
}

/// One call of MPI, but for its communicator and handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) call: Form,
    /// The elements of a unit.
    pub(crate) wire: Wire,
    /// How many of them are one unit: counts are of units.
    pub(crate) unit: u64,
}

/// The call. Addresses are this process's, peers and roots ranks of the communicator; an address that the call does not touch on this
/// rank is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    AllReduce { send: u64, recv: u64, count: c_int, operator: Operator },
    Reduce { send: u64, recv: u64, count: c_int, operator: Operator, root: c_int },
    ReduceScatterBlock { send: u64, recv: u64, count: c_int, operator: Operator },
    ReduceScatter { send: u64, recv: u64, counts: Box<[c_int]>, operator: Operator },
    Broadcast { at: u64, count: c_int, root: c_int },
    AllGather { send: u64, recv: u64, count: c_int },
    AllGatherV { send: u64, count: c_int, recv: u64, places: Places },
    Gather { send: u64, recv: u64, count: c_int, root: c_int },
    GatherV { send: u64, count: c_int, recv: u64, places: Places, root: c_int },
    Scatter { send: u64, recv: u64, count: c_int, root: c_int },
    ScatterV { send: u64, places: Places, recv: u64, count: c_int, root: c_int },
    AllToAll { send: u64, recv: u64, count: c_int },
    AllToAllV { send: u64, sent: Places, recv: u64, received: Places },
    Send { at: u64, count: c_int, peer: c_int, tag: c_int },
    Recv { at: u64, count: c_int, peer: c_int, tag: c_int },
}

/// Where the parts of all ranks are. MPI reads it until the call has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) counts: Box<[c_int]>,
    pub(crate) begins: Box<[c_int]>,
}

impl Record {
    /// The function that it calls.
    pub(crate) fn function(&self) -> &'static str {
        match self.call {
            Form::AllReduce { .. } => "MPI_Iallreduce",
            Form::Reduce { .. } => "MPI_Ireduce",
            Form::ReduceScatterBlock { .. } => "MPI_Ireduce_scatter_block",
            Form::ReduceScatter { .. } => "MPI_Ireduce_scatter",
            Form::Broadcast { .. } => "MPI_Ibcast",
            Form::AllGather { .. } => "MPI_Iallgather",
            Form::AllGatherV { .. } => "MPI_Iallgatherv",
            Form::Gather { .. } => "MPI_Igather",
            Form::GatherV { .. } => "MPI_Igatherv",
            Form::Scatter { .. } => "MPI_Iscatter",
            Form::ScatterV { .. } => "MPI_Iscatterv",
            Form::AllToAll { .. } => "MPI_Ialltoall",
            Form::AllToAllV { .. } => "MPI_Ialltoallv",
            Form::Send { .. } => "MPI_Isend",
            Form::Recv { .. } => "MPI_Irecv",
        }
    }

    /// The operation, of a call that reduces.
    pub(crate) fn operator(&self) -> Option<Operator> {
        match self.call {
            Form::AllReduce { operator, .. }
            | Form::Reduce { operator, .. }
            | Form::ReduceScatterBlock { operator, .. }
            | Form::ReduceScatter { operator, .. } => Some(operator),
            _ => None,
        }
    }

    /// Posts the call.
    ///
    /// # Safety
    /// Until the request has ended, the addresses must be memory that holds what the call reads and writes, of which nobody touches what
    /// it writes and nobody writes what it reads; and the record must stay where it is. `kind` is the type of a unit, `op` the handle of
    /// [`Record::operator`], and the communicator is alive.
    pub(crate) unsafe fn post(
        &self,
        kind: ffi::MPI_Datatype,
        op: ffi::MPI_Op,
        comm: ffi::MPI_Comm,
        request: &mut ffi::MPI_Request,
    ) -> c_int {
        let from = |address: u64| with_exposed_provenance::<c_void>(address as usize);
        let to = |address: u64| match address {
            0 => null_mut(),
            address => with_exposed_provenance_mut::<c_void>(address as usize),
        };
        // SAFETY: the caller's.
        unsafe {
            match self.call {
                Form::AllReduce { send, recv, count, .. } => {
                    ffi::MPI_Iallreduce(from(send), to(recv), count, kind, op, comm, request)
                }
                Form::Reduce { send, recv, count, root, .. } => {
                    ffi::MPI_Ireduce(from(send), to(recv), count, kind, op, root, comm, request)
                }
                Form::ReduceScatterBlock { send, recv, count, .. } => {
                    ffi::MPI_Ireduce_scatter_block(from(send), to(recv), count, kind, op, comm, request)
                }
                Form::ReduceScatter { send, recv, ref counts, .. } => {
                    ffi::MPI_Ireduce_scatter(from(send), to(recv), counts.as_ptr(), kind, op, comm, request)
                }
                Form::Broadcast { at, count, root } => {
                    ffi::MPI_Ibcast(to(at), count, kind, root, comm, request)
                }
                Form::AllGather { send, recv, count } => {
                    ffi::MPI_Iallgather(from(send), count, kind, to(recv), count, kind, comm, request)
                }
                Form::AllGatherV { send, count, recv, ref places } => {
                    let (counts, begins) = places.pointers();
                    ffi::MPI_Iallgatherv(
                        from(send),
                        count,
                        kind,
                        to(recv),
                        counts,
                        begins,
                        kind,
                        comm,
                        request,
                    )
                }
                Form::Gather { send, recv, count, root } => {
                    ffi::MPI_Igather(from(send), count, kind, to(recv), count, kind, root, comm, request)
                }
                Form::GatherV { send, count, recv, ref places, root } => {
                    let (counts, begins) = places.pointers();
                    let (send, recv) = (from(send), to(recv));
                    ffi::MPI_Igatherv(send, count, kind, recv, counts, begins, kind, root, comm, request)
                }
                Form::Scatter { send, recv, count, root } => {
                    ffi::MPI_Iscatter(from(send), count, kind, to(recv), count, kind, root, comm, request)
                }
                Form::ScatterV { send, ref places, recv, count, root } => {
                    let (counts, begins) = places.pointers();
                    let (send, recv) = (from(send), to(recv));
                    ffi::MPI_Iscatterv(send, counts, begins, kind, recv, count, kind, root, comm, request)
                }
                Form::AllToAll { send, recv, count } => {
                    ffi::MPI_Ialltoall(from(send), count, kind, to(recv), count, kind, comm, request)
                }
                Form::AllToAllV { send, ref sent, recv, ref received } => {
                    let ((counts, begins), (taken, places)) = (sent.pointers(), received.pointers());
                    let (send, recv) = (from(send), to(recv));
                    ffi::MPI_Ialltoallv(send, counts, begins, kind, recv, taken, places, kind, comm, request)
                }
                Form::Send { at, count, peer, tag } => {
                    ffi::MPI_Isend(from(at), count, kind, peer, tag, comm, request)
                }
                Form::Recv { at, count, peer, tag } => {
                    ffi::MPI_Irecv(to(at), count, kind, peer, tag, comm, request)
                }
            }
        }
    }
}

impl Places {
    fn pointers(&self) -> (*const c_int, *const c_int) {
        (self.counts.as_ptr(), self.begins.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dtype_has_its_way_to_be_reduced() {
        let of = |dtype, reduce| {
            let Reduction { wire, operator, widened, averaged } = Reduction::new(dtype, reduce);
            (wire, operator, widened, averaged)
        };
        let sum = Operator::WrappingSum;
        assert_eq!(of(DType::I8, ReduceOp::Sum), (Wire::U8, sum(Wire::U8), false, false));
        assert_eq!(of(DType::I64, ReduceOp::Avg), (Wire::U64, sum(Wire::U64), false, true));
        assert_eq!(of(DType::I32, ReduceOp::Min), (Wire::U32, Operator::Lesser(DType::I32), false, false));
        assert_eq!(of(DType::F32, ReduceOp::Prod), (Wire::F32, Operator::Prod, false, false));
        assert_eq!(of(DType::Bf16, ReduceOp::Avg), (Wire::F32, Operator::Sum, true, true));
        assert_eq!(of(DType::F16, ReduceOp::Max), (Wire::U16, Operator::Greater(DType::F16), false, false));
        assert_eq!(of(DType::F64, ReduceOp::Min), (Wire::U64, Operator::Lesser(DType::F64), false, false));
    }
}
