//! The description half of a task: what it takes, touches, and needs other ranks to do.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::args::{Arg, Args};
use crate::buffer::BufferId;
use crate::dtype::DType;
use crate::param::{Mode, ParamDef, ParamKind};
use crate::scalar::Scalar;
use crate::words::count;

/// What can stand in a task graph: a kernel or a library op.
///
/// Pure description, with no device: `verify`, `plan` and `list` read it on any machine, for every rank of
/// any world. Called from any thread. [`crate::KernelDef`] implements it for kernels;
/// [`crate::LibraryOp`] extends it with the half that runs.
pub trait Task: Send + Sync {
    /// The name in manifests, unique among kernels or among ops.
    fn name(&self) -> &'static str;
    /// One line for listings.
    fn summary(&self) -> &'static str;
    /// The parameters, in the order that arguments are kept.
    fn params(&self) -> &'static [ParamDef];
    /// A manifest that runs the task at any world, for listings and tests.
    fn example(&self) -> &'static str;
    /// What a task with these arguments touches and which other ranks it needs. The arguments fit the
    /// parameters; what remains to be checked here are the rules between them, such as shapes that must agree.
    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError>;
}

/// An argument breaks a rule of its task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", named(param, ": "))]
pub struct ArgError {
    /// The parameter whose argument is at fault; empty where it is none alone.
    pub param: &'static str,
    /// The rule, with the values in conflict.
    pub message: String,
    /// A concrete mend, if one is known.
    pub help: Option<String>,
}

fn named(param: &str, then: &str) -> String {
    if param.is_empty() { String::new() } else { format!("`{param}`{then}") }
}

impl ArgError {
    /// A broken rule.
    pub fn new(param: &'static str, message: impl Into<String>) -> ArgError {
        ArgError { param, message: message.into(), help: None }
    }

    /// The error in a sentence that has named the task.
    pub(crate) fn sentence(&self) -> String {
        format!("{}{}", named(self.param, " "), self.message)
    }

    /// Adds a mend.
    pub fn with_help(mut self, help: impl Into<String>) -> ArgError {
        self.help = Some(help.into());
        self
    }
}

/// What one task touches and needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Ranges it reads and writes. Two that overlap, one of them written, make the task invalid: an in-place
    /// form says what it does to each element once, as [`Mode::ReadWrite`] or by leaving its own block out.
    pub accesses: Vec<Access>,
    /// Its meetings with other ranks, in issue order. None for a kernel; two for `send_recv`.
    pub meetings: Vec<Meeting>,
}

impl Description {
    /// What `op` does if it treats all ranks alike: every buffer is accessed whole as its parameter says, and all ranks come together once
    /// with equal arguments. Of buffers the length and the dtype must be equal, of all others the value. For ops that have no more
    /// to say of themselves.
    pub fn symmetric(op: &'static str, args: &Args<'_>) -> Description {
        let mut accesses = Vec::new();
        let mut fields = Vec::with_capacity(args.params.len());
        for (param, value) in args.params.iter().zip(args.values) {
            let word = |words: &[&'static str], index: u32| words.get(index as usize).copied().unwrap_or("");
            let matched = match value {
                Arg::Absent => Matched::Word("absent"),
                Arg::Buffer(range) => {
                    let mode = match param.kind {
                        ParamKind::Buffer(mode, _) => mode,
                        _ => Mode::Read, // a scalar in a one-element buffer
                    };
                    let elements = range.offset..range.offset.saturating_add(range.len());
                    if !elements.is_empty() {
                        accesses.push(Access {
                            param: param.name,
                            buffer: range.buffer,
                            range: elements,
                            mode,
                        });
                    }
                    fields.push((param.name, Matched::DType(range.dtype)));
                    Matched::Number(range.len().into())
                }
                Arg::Scalar(Scalar::Int(number)) => Matched::Number((*number).into()),
                Arg::Scalar(Scalar::Float(number)) => Matched::Float(number.to_bits()),
                Arg::Size(number) => Matched::Number((*number).into()),
                Arg::Word(index) => match param.kind {
                    ParamKind::Word(words) => Matched::Word(word(words, *index)),
                    _ => Matched::Number((*index).into()),
                },
                Arg::Flag(on) => Matched::Word(if *on { "true" } else { "false" }),
                Arg::Rank(rank) => Matched::Number((*rank).into()),
                Arg::List(list) => Matched::Numbers(list.clone()),
            };
            fields.push((param.name, matched));
        }
        let signature = Signature { op, fields, share: None };
        Description { accesses, meetings: vec![Meeting::Collective(Box::new(signature))] }
    }
}

/// A range of a buffer that a task touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The parameter through which it is touched.
    pub param: &'static str,
    /// The buffer.
    pub buffer: BufferId,
    /// The elements.
    pub range: Range<u64>,
    /// How.
    pub mode: Mode,
}

/// Something that a rank cannot finish without other ranks of the task's communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// All ranks of the communicator come together; what must be equal on all of them.
    Collective(Box<Signature>),
    /// Elements go to `peer`, a rank of the communicator.
    Send(Message),
    /// Elements come from `peer`.
    Recv(Message),
}

/// One side of a point-to-point transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The other rank, in the communicator.
    pub peer: u32,
    /// Number of elements.
    pub count: u64,
    /// Their type.
    pub dtype: DType,
}

/// What ranks of a collective must agree on: its op and named values, which must be equal on all of them, and the parts of what they
/// divide, which must add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The op.
    pub op: &'static str,
    /// The values, in the op's own order, the same names on every rank.
    pub fields: Vec<(&'static str, Matched)>,
    /// This rank's part, for an op whose ranks divide a whole; of one op, on all ranks or on none.
    pub share: Option<Share>,
}

impl Signature {
    /// Whether a rank with this signature and one with the other can meet, if their parts add up.
    pub fn agrees(&self, other: &Signature) -> bool {
        self.op == other.op && self.fields == other.fields
    }
}

/// A rank's part of a whole that the ranks of a communicator divide among themselves, in rank order and without gaps. The parts may
/// be unequal; their sum must be the whole, on every rank that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The parameter that names the part, and its elements.
    pub part: (&'static str, u64),
    /// The parameter that names the whole, and its elements; `None` on a rank that takes no part in it, such as one that is not root.
    pub whole: Option<(&'static str, u64)>,
    /// Where in the whole the part begins, if it lies within it: then it must be where it belongs.
    pub place: Option<u64>,
}

/// A value that must match across ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matched {
    /// A number of elements, a root, or another number.
    Number(i128),
    /// A number that need not be whole, by its bits: those of an `f64`.
    Float(u64),
    /// A dtype.
    DType(DType),
    /// A word such as a reduction.
    Word(&'static str),
    /// Whole numbers. Ranks share them, so that many ranks compare them fast.
    Numbers(Arc<[i64]>),
}

impl fmt::Display for Matched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Matched::Number(n) => write!(f, "{n}"),
            Matched::Float(bits) => write!(f, "{}", f64::from_bits(*bits)),
            Matched::DType(dtype) => write!(f, "{dtype}"),
            Matched::Word(word) => write!(f, "{word}"),
            Matched::Numbers(numbers) => write!(f, "a list of {}", count(numbers.len() as u64, "number")),
        }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.op)?;
        for (index, (name, value)) in self.fields.iter().enumerate() {
            write!(f, "{}{name} = {value}", if index == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_no_argument_alone_names_none() {
        let error = ArgError::new("a", "is odd");
        assert_eq!((error.to_string(), error.sentence()), ("`a`: is odd".into(), "`a` is odd".into()));
        let error = ArgError::new("", "they are odd");
        assert_eq!((error.to_string(), error.sentence()), ("they are odd".into(), "they are odd".into()));
    }
}
