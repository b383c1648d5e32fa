//! Expressions: the numbers, conditions and lists of a manifest.
//!
//! An expression is parsed once and evaluated once a rank, so that evaluating does not allocate as long as it
//! meets numbers only. Integers are exact 64-bit numbers; what does not fit is an error, never a wrapped value.
//! Nothing here knows where in a manifest the text stands: places are bytes of the expression's own text.

pub mod ast;
mod error;
mod eval;
pub mod functions;
mod hints;
mod lex;
mod parse;
mod print;
mod value;

pub use ast::{AxisIndex, BufferRef, Expr, LoopText, Mention};
pub use error::{ErrorKind, ExprError};
pub use eval::{Env, Lookup, Member, NoEnv};
pub use parse::{MAX_DEPTH, MAX_LENGTH, parse, parse_axis, parse_buffer, parse_loop};
pub use value::Value;

pub(crate) use hints::name as name_habit;
pub(crate) use parse::RESERVED;
