//! An op that another op makes ready inside itself, over memory that is bound already: checked by the rules by which tasks are.

use std::borrow::Cow;
use std::sync::Arc;

use crate::args::{Arg, BoundRange};
use crate::buffer::{BufferDecl, BufferId, BufferRange};
use crate::device::DevicePtr;
use crate::dtype::DType;
use crate::graph::check::{self, Context};
use crate::graph::{ArgValue, Matrix, Origin};
use crate::library_op::LibraryOp;
use crate::param::{ParamDef, ParamKind};
use crate::scalar::Scalar;
use crate::task::{Access, Description, Meeting};
use crate::world::{CommId, World};

/// The arguments of `op` on a communicator of `rank`, in the order of its parameters, those not given by their defaults. What is wrong
/// with them, otherwise.
pub(crate) fn arguments(
    op: &'static dyn LibraryOp,
    world: &World,
    (comm, rank): (CommId, u32),
    args: &[(&str, Arg<BoundRange>)],
) -> Result<Vec<Arg<BoundRange>>, String> {
    let part = world.part(comm, rank).ok_or("there is no such communicator")?;
    let spaces = DType::ALL.iter().map(|&dtype| space(dtype)).collect::<Vec<_>>();
    let given = args
        .iter()
        .map(|(name, value)| {
            let param = op.params().iter().find(|param| param.name == *name);
            let value = given(param, value, part.size()).map_err(|what| format!("`{name}` {what}"))?;
            Ok(value.map(|value| (Cow::Owned(name.to_string()), value)))
        })
        .filter_map(Result::transpose)
        .collect::<Result<Vec<_>, String>>()?;
    let cx = Context {
        rank,
        buffers: &spaces,
        origin: &Arc::new(Origin::default()),
        what: format!("op `{}`", op.name()),
        comm_name: world.name(comm),
        comm_rank: part.rank,
        comm_size: part.size(),
    };
    let mut problems = Vec::new();
    let checked = check::op(&cx, op, &given, false, &mut problems);
    let (args, description) = match (checked, problems.as_slice()) {
        (Some(checked), []) => checked,
        (_, problems) => {
            let text: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
            return Err(text.join("; "));
        }
    };
    apart(&description)?;
    equal(&description, part.rank, part.size())?;
    Ok(args.into_iter().map(bound).collect())
}

/// All memory, as a buffer of that dtype: so ranges are known by their addresses, which tells those that are the same.
fn space(dtype: DType) -> BufferDecl {
    BufferDecl::new("memory", dtype, [i64::MAX as u64 / dtype.size()])
}

/// Where the buffer of that dtype stands among all.
fn space_of(dtype: DType) -> BufferId {
    BufferId(DType::ALL.iter().position(|&other| other == dtype).unwrap_or(0) as u32)
}

/// An argument as a task's would be given; `None` where it is absent.
fn given(
    param: Option<&ParamDef>,
    arg: &Arg<BoundRange>,
    size: u32,
) -> Result<Option<ArgValue>, &'static str> {
    let number = |n: u64| i64::try_from(n).map(ArgValue::Int).map_err(|_| "is too great a number");
    Ok(Some(match arg {
        Arg::Absent => return Ok(None),
        Arg::Buffer(range) => {
            let (dtype, width) = (range.dtype, range.dtype.size());
            if !range.ptr.0.is_multiple_of(width) {
                return Err("is not aligned to its dtype");
            }
            let (offset, shape) = (range.ptr.0 / width, range.shape.clone());
            ArgValue::Range(BufferRange { buffer: space_of(dtype), dtype, offset, shape })
        }
        Arg::Scalar(Scalar::Int(n)) => ArgValue::Int(*n),
        Arg::Scalar(Scalar::Float(x)) => ArgValue::Float(*x),
        Arg::Size(n) => number(*n)?,
        Arg::Word(index) => match param.map(|param| param.kind) {
            Some(ParamKind::Word(words)) => {
                let word = words.get(*index as usize).ok_or("is a word beyond those of the parameter")?;
                ArgValue::Word(Cow::Borrowed(word))
            }
            _ => return Err("takes no word"),
        },
        Arg::Flag(on) => ArgValue::Bool(*on),
        Arg::Rank(rank) => ArgValue::Int((*rank).into()),
        Arg::List(list) => match param.map(|param| param.kind) {
            Some(ParamKind::Matrix) => {
                let size = size as usize;
                if Some(list.len()) != size.checked_mul(size) {
                    return Err("needs a row and a column for each rank of the communicator");
                }
                ArgValue::Matrix(Matrix { rows: size, columns: size, numbers: list.clone() })
            }
            _ => ArgValue::List(list.to_vec()),
        },
    }))
}

/// The way back.
fn bound(arg: Arg) -> Arg<BoundRange> {
    match arg {
        Arg::Buffer(BufferRange { dtype, offset, shape, .. }) => {
            // It was an address before it was divided.
            let ptr = DevicePtr(offset.saturating_mul(dtype.size()));
            Arg::Buffer(BoundRange { ptr, dtype, shape })
        }
        Arg::Absent => Arg::Absent,
        Arg::Scalar(scalar) => Arg::Scalar(scalar),
        Arg::Size(n) => Arg::Size(n),
        Arg::Word(word) => Arg::Word(word),
        Arg::Flag(flag) => Arg::Flag(flag),
        Arg::Rank(rank) => Arg::Rank(rank),
        Arg::List(list) => Arg::List(list),
    }
}

/// Errs on two ranges that overlap, in bytes, with one of them written.
fn apart(description: &Description) -> Result<(), String> {
    let bytes = |access: &Access| {
        let width = DType::ALL.get(access.buffer.0 as usize).map_or(1, |dtype| dtype.size());
        access.range.start.saturating_mul(width)..access.range.end.saturating_mul(width)
    };
    let all = &description.accesses;
    for (index, b) in all.iter().enumerate() {
        for a in all[..index].iter().filter(|a| a.mode.writes() || b.mode.writes()) {
            let (one, other) = (bytes(a), bytes(b));
            if !one.is_empty() && !other.is_empty() && one.start < other.end && other.start < one.end {
                let text = format!(
                    "`{}` and `{}` overlap, and one of them is written: use ranges that do not, or the op's in-place form",
                    a.param, b.param
                );
                return Err(text);
            }
        }
    }
    Ok(())
}

/// Errs unless what ranks divide is divided equally: a task's parts are added up by verification, which sees all ranks.
fn equal(description: &Description, rank: u32, size: u32) -> Result<(), String> {
    for meeting in &description.meetings {
        let Meeting::Collective(signature) = meeting else { continue };
        let Some(share) = signature.share else { continue };
        let (part, mine) = share.part;
        if let Some((whole, len)) = share.whole.filter(|(_, len)| mine.checked_mul(size.into()) != Some(*len))
        {
            return Err(format!(
                "`{whole}` has {} elements, but {size} times those of `{part}`, {mine}, must be as many",
                len
            ));
        }
        if share.place.is_some_and(|place| mine.checked_mul(rank.into()) != Some(place)) {
            return Err(format!("`{part}` lies in the whole, but not where the part of rank {rank} belongs"));
        }
    }
    Ok(())
}
