//! Arguments of one task, checked against its parameters.

use std::sync::Arc;

use crate::buffer::{BufferRange, Shape};
use crate::device::DevicePtr;
use crate::dtype::DType;
use crate::param::ParamDef;
use crate::scalar::Scalar;

/// One argument. `B` is how it names memory: a [`BufferRange`] in a task graph, a [`BoundRange`] in a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg<B = BufferRange> {
    /// Not given.
    Absent,
    /// A range of a buffer; for a scalar parameter, the one element that is read when the task runs.
    Buffer(B),
    /// A constant.
    Scalar(Scalar),
    /// A length.
    Size(u64),
    /// The index of a word among the parameter's words.
    Word(u32),
    /// A switch.
    Flag(bool),
    /// A rank of the task's communicator.
    Rank(u32),
    /// A list of whole numbers, or a matrix row after row.
    List(Arc<[i64]>),
}

/// A range of a rank's memory, bound to its address.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundRange {
    /// Address of the first element, aligned to the dtype.
    pub ptr: DevicePtr,
    /// Type of the elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Shape,
}

impl BoundRange {
    /// Number of elements.
    pub fn len(&self) -> u64 {
        crate::buffer::count(&self.shape)
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.len() * self.dtype.size()
    }
}

/// The arguments of one task beside the parameters they stand for, with the place of this rank in the task's
/// communicator. What descriptions and backends read.
#[derive(Debug)]
pub struct Args<'a, B = BufferRange> {
    /// The parameters, in the descriptor's order.
    pub params: &'a [ParamDef],
    /// The arguments, one a parameter.
    pub values: &'a [Arg<B>],
    /// This rank in the task's communicator; 0 for a kernel.
    pub comm_rank: u32,
    /// Ranks in the task's communicator; 1 for a kernel.
    pub comm_size: u32,
}

// By hand: derived forms would ask for `B: Copy`.
impl<B> Clone for Args<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Args<'_, B> {}

impl<'a, B> Args<'a, B> {
    /// The argument of that name; [`Arg::Absent`] when there is no such parameter.
    pub fn get(&self, name: &str) -> &'a Arg<B> {
        self.params
            .iter()
            .position(|p| p.name == name)
            .and_then(|i| self.values.get(i))
            .unwrap_or(&Arg::Absent)
    }

    /// A buffer argument.
    pub fn buffer(&self, name: &str) -> Option<&'a B> {
        match self.get(name) {
            Arg::Buffer(range) => Some(range),
            _ => None,
        }
    }

    /// A length.
    pub fn size(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Arg::Size(n) => Some(*n),
            _ => None,
        }
    }

    /// The index of a word.
    pub fn word(&self, name: &str) -> Option<usize> {
        match self.get(name) {
            Arg::Word(index) => Some(*index as usize),
            _ => None,
        }
    }

    /// A rank of the communicator.
    pub fn rank(&self, name: &str) -> Option<u32> {
        match self.get(name) {
            Arg::Rank(rank) => Some(*rank),
            _ => None,
        }
    }

    /// A switch; false when absent.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Arg::Flag(true))
    }

    /// A list of whole numbers, or a matrix row after row.
    pub fn list(&self, name: &str) -> Option<&'a [i64]> {
        match self.get(name) {
            Arg::List(list) => Some(list),
            _ => None,
        }
    }
}
