//! Tasks as they are asked for, before they are checked.

use std::borrow::Cow;
use std::sync::Arc;

use crate::buffer::{BufferId, BufferRange};
use crate::graph::Origin;
use crate::kernel::KernelDef;
use crate::reduce::ReduceOp;
use crate::world::CommId;

/// An argument as it is given.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgValue {
    /// A range of a buffer.
    Range(BufferRange),
    /// A whole buffer.
    Buffer(BufferId),
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A switch.
    Bool(bool),
    /// A word.
    Word(Cow<'static, str>),
    /// Whole numbers.
    List(Vec<i64>),
    /// Whole numbers in rows.
    Matrix(Matrix),
}

/// Whole numbers in rows of one length. Made once and given to all ranks, which share its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Row after row.
    pub(crate) numbers: Arc<[i64]>,
}

impl Matrix {
    /// `None` where the rows differ in length.
    pub fn new<R: AsRef<[i64]>>(rows: &[R]) -> Option<Matrix> {
        let columns = rows.first().map_or(0, |row| row.as_ref().len());
        let equal = rows.iter().all(|row| row.as_ref().len() == columns);
        let numbers = || rows.iter().flat_map(|row| row.as_ref()).copied().collect();
        equal.then(|| Matrix { rows: rows.len(), columns, numbers: numbers() })
    }
}

macro_rules! from {
    ($($source:ty => |$value:ident| $body:expr;)*) => {
        $(impl From<$source> for ArgValue {
            fn from($value: $source) -> ArgValue {
                $body
            }
        })*
    };
}

from! {
    BufferRange => |range| ArgValue::Range(range);
    BufferId => |buffer| ArgValue::Buffer(buffer);
    i64 => |number| ArgValue::Int(number);
    i32 => |number| ArgValue::Int(number.into());
    u32 => |number| ArgValue::Int(number.into());
    f64 => |number| ArgValue::Float(number);
    bool => |switch| ArgValue::Bool(switch);
    &'static str => |word| ArgValue::Word(word.into());
    ReduceOp => |reduce| ArgValue::Word(reduce.name().into());
    Vec<i64> => |list| ArgValue::List(list);
    Matrix => |matrix| ArgValue::Matrix(matrix);
}

/// Lengths of a grid or a block: a number, or one to three of them.
pub trait IntoDims {
    /// Three lengths, absent ones 1.
    fn into_dims(self) -> [u64; 3];
}

impl IntoDims for u64 {
    fn into_dims(self) -> [u64; 3] {
        [self, 1, 1]
    }
}

impl IntoDims for [u64; 2] {
    fn into_dims(self) -> [u64; 3] {
        [self[0], self[1], 1]
    }
}

impl IntoDims for [u64; 3] {
    fn into_dims(self) -> [u64; 3] {
        self
    }
}

pub(crate) type GivenArgs = Vec<(Cow<'static, str>, ArgValue)>;

/// A kernel task to be.
#[derive(Clone, Debug)]
pub struct KernelSpec {
    pub(crate) kernel: &'static KernelDef,
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) args: GivenArgs,
    pub(crate) grid: Option<([u64; 3], [u64; 3])>,
}

/// An op to be: a task of its own, or a member of a group.
#[derive(Clone, Debug)]
pub struct OpSpec {
    pub(crate) op: Cow<'static, str>,
    pub(crate) library: Option<Cow<'static, str>>,
    pub(crate) comm: CommId,
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) args: GivenArgs,
}

/// A group to be.
#[derive(Clone, Debug, Default)]
pub struct GroupSpec {
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) members: Vec<OpSpec>,
}

/// A swap of two buffers to be: see [`Body::Swap`](crate::graph::Body::Swap).
#[derive(Clone, Debug)]
pub struct SwapSpec {
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) pair: [BufferId; 2],
}

/// Any task to be.
#[derive(Clone, Debug)]
pub enum TaskSpec {
    /// A kernel.
    Kernel(KernelSpec),
    /// A lone op.
    Op(OpSpec),
    /// A group of ops.
    Group(GroupSpec),
    /// A swap of two buffers.
    Swap(SwapSpec),
}

macro_rules! common {
    ($spec:ident => $variant:ident) => {
        impl $spec {
            /// Names the task, for messages; unique in its graph.
            pub fn named(self, name: impl Into<String>) -> Self {
                self.from_origin(Arc::new(Origin::named(name)))
            }

            /// Says where the task comes from.
            pub fn from_origin(mut self, origin: Arc<Origin>) -> Self {
                self.origin = Some(origin);
                self
            }
        }

        impl From<$spec> for TaskSpec {
            fn from(spec: $spec) -> TaskSpec {
                TaskSpec::$variant(spec)
            }
        }
    };
}

common!(KernelSpec => Kernel);
common!(OpSpec => Op);
common!(GroupSpec => Group);
common!(SwapSpec => Swap);

impl KernelSpec {
    /// A launch of `kernel`. It needs a grid.
    pub fn new(kernel: &'static KernelDef) -> KernelSpec {
        KernelSpec { kernel, origin: None, args: Vec::new(), grid: None }
    }

    /// Gives an argument.
    pub fn arg(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<ArgValue>) -> KernelSpec {
        self.args.push((name.into(), value.into()));
        self
    }

    /// Gives the grid: at least `threads` threads in blocks of `block`.
    pub fn grid(mut self, threads: impl IntoDims, block: impl IntoDims) -> KernelSpec {
        self.grid = Some((threads.into_dims(), block.into_dims()));
        self
    }
}

impl OpSpec {
    /// A call of `op` on the world, by the device's default library.
    pub fn new(op: impl Into<Cow<'static, str>>) -> OpSpec {
        OpSpec { op: op.into(), library: None, comm: CommId::WORLD, origin: None, args: Vec::new() }
    }

    /// Gives an argument.
    pub fn arg(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<ArgValue>) -> OpSpec {
        self.args.push((name.into(), value.into()));
        self
    }

    /// Picks the communicator.
    pub fn on(mut self, comm: CommId) -> OpSpec {
        self.comm = comm;
        self
    }

    /// Picks the library.
    pub fn by(mut self, library: impl Into<Cow<'static, str>>) -> OpSpec {
        self.library = Some(library.into());
        self
    }
}

impl SwapSpec {
    /// A swap of these two.
    pub fn new(a: BufferId, b: BufferId) -> SwapSpec {
        SwapSpec { origin: None, pair: [a, b] }
    }
}

impl GroupSpec {
    /// An empty group.
    pub fn new() -> GroupSpec {
        GroupSpec::default()
    }

    /// Adds a member.
    pub fn with(mut self, member: OpSpec) -> GroupSpec {
        self.members.push(member);
        self
    }
}
