//! Typed parameters of kernels and ops: what an argument may be, seen by manifests, listings and checks.

use crate::dtype::DType;

/// What a task does with a buffer argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Reads the whole range.
    Read,
    /// Writes the whole range, reading nothing of it.
    Write,
    /// Reads and writes.
    ReadWrite,
}

impl Mode {
    /// Whether the old contents matter.
    pub const fn reads(self) -> bool {
        matches!(self, Mode::Read | Mode::ReadWrite)
    }

    /// Whether the contents change.
    pub const fn writes(self) -> bool {
        matches!(self, Mode::Write | Mode::ReadWrite)
    }

    /// `read`, `write` or `read and write`, for listings.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Read => "read",
            Mode::Write => "write",
            Mode::ReadWrite => "read and write",
        }
    }
}

/// Which dtypes an argument may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Any of these.
    In(&'static [DType]),
    /// This one alone.
    Is(DType),
    /// The dtype of the named parameter's argument.
    Same(&'static str),
}

/// What kind of argument a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A range of a buffer.
    Buffer(Mode, Type),
    /// A number: a constant, or a one-element buffer that is read on the device when the task runs.
    Scalar(Type),
    /// A length or count, known before launch; not negative.
    Size,
    /// One of these words, given to the task as its index.
    Word(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A rank of the task's communicator: root, peer.
    Rank,
    /// A list of whole numbers.
    List,
    /// A matrix of whole numbers with a row and a column for each rank of the task's communicator; given to the task as one list,
    /// row after row. For ops.
    Matrix,
}

/// What happens when an argument is not given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Presence {
    /// It must be given.
    Required,
    /// The task sees that it is absent.
    Optional,
    /// A size that defaults to the length of an axis of the named buffer argument.
    Dim(&'static str, usize),
    /// A size that defaults to the number of elements of the named buffer argument.
    Len(&'static str),
    /// A list that defaults to the shape of the named buffer argument.
    ShapeOf(&'static str),
    /// A flag that defaults to false.
    False,
}

/// One parameter of a kernel or an op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamDef {
    /// The name in `args`.
    pub name: &'static str,
    /// What it takes.
    pub kind: ParamKind,
    /// Whether it must be given.
    pub presence: Presence,
    /// A few words for listings, with the shape where there is one.
    pub doc: &'static str,
}

impl ParamDef {
    const fn new(name: &'static str, kind: ParamKind, doc: &'static str) -> ParamDef {
        ParamDef { name, kind, presence: Presence::Required, doc }
    }

    /// A buffer that is read.
    pub const fn read(name: &'static str, ty: Type, doc: &'static str) -> ParamDef {
        ParamDef::new(name, ParamKind::Buffer(Mode::Read, ty), doc)
    }

    /// A buffer that is overwritten.
    pub const fn write(name: &'static str, ty: Type, doc: &'static str) -> ParamDef {
        ParamDef::new(name, ParamKind::Buffer(Mode::Write, ty), doc)
    }

    /// A buffer that is read and written.
    pub const fn read_write(name: &'static str, ty: Type, doc: &'static str) -> ParamDef {
        ParamDef::new(name, ParamKind::Buffer(Mode::ReadWrite, ty), doc)
    }

    /// A number, constant or in a one-element buffer.
    pub const fn scalar(name: &'static str, ty: Type, doc: &'static str) -> ParamDef {
        ParamDef::new(name, ParamKind::Scalar(ty), doc)
    }

    /// A length.
    pub const fn size(name: &'static str, default: Presence, doc: &'static str) -> ParamDef {
        ParamDef { presence: default, ..ParamDef::new(name, ParamKind::Size, doc) }
    }

    /// One of some words.
    pub const fn word(name: &'static str, words: &'static [&'static str], doc: &'static str) -> ParamDef {
        ParamDef::new(name, ParamKind::Word(words), doc)
    }

    /// A switch, off unless given.
    pub const fn flag(name: &'static str, doc: &'static str) -> ParamDef {
        ParamDef { presence: Presence::False, ..ParamDef::new(name, ParamKind::Flag, doc) }
    }

    /// A rank of the communicator.
    pub const fn rank(name: &'static str, doc: &'static str) -> ParamDef {
        ParamDef::new(name, ParamKind::Rank, doc)
    }

    /// A list of whole numbers.
    pub const fn list(name: &'static str, default: Presence, doc: &'static str) -> ParamDef {
        ParamDef { presence: default, ..ParamDef::new(name, ParamKind::List, doc) }
    }

    /// A matrix with a row and a column for each rank of the communicator.
    pub const fn matrix(name: &'static str, doc: &'static str) -> ParamDef {
        ParamDef::new(name, ParamKind::Matrix, doc)
    }

    /// The same parameter, which may be left out.
    pub const fn optional(self) -> ParamDef {
        ParamDef { presence: Presence::Optional, ..self }
    }
}
