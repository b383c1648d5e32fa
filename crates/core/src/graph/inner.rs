//! An op or a kernel that an op makes ready inside itself, over memory that is bound already: checked by the rules by which tasks are.

use std::borrow::Cow;
use std::sync::Arc;

use crate::args::{Arg, BoundRange};
use crate::buffer::{BufferDecl, BufferId, BufferRange};
use crate::device::DevicePtr;
use crate::diagnostic::Diagnostic;
use crate::dtype::DType;
use crate::graph::check::{self, Context};
use crate::graph::{ArgValue, KernelSpec, Matrix, Origin, launch};
use crate::grid::Grid;
use crate::kernel::KernelDef;
use crate::library_op::LibraryOp;
use crate::param::{ParamDef, ParamKind};
use crate::scalar::Scalar;
use crate::task::{Access, Description, Meeting};
use crate::words::count;
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
    let given = args
        .iter()
        .map(|(name, value)| {
            let param = op.params().iter().find(|param| param.name == *name);
            named(name, given(param, value, part.size()))
        })
        .filter_map(Result::transpose)
        .collect::<Result<Vec<_>, String>>()?;
    let what = format!("op `{}`", op.name());
    let (args, description) =
        checked((world, comm, rank), what, |cx, problems| check::op(cx, op, &given, false, problems))?;
    apart(&description)?;
    equal(&description, part.rank, part.size())?;
    Ok(args.into_iter().map(bound).collect())
}

/// The arguments of a kernel in the order of its parameters, those not given by their defaults, and its grid. What is wrong with them, otherwise.
pub(crate) fn kernel(
    kernel: &'static KernelDef,
    (world, rank): (&World, u32),
    device: &str,
    args: &[Arg<BoundRange>],
    grid: ([u64; 3], [u64; 3]),
) -> Result<(Vec<Arg<BoundRange>>, Grid), String> {
    let params = kernel.params;
    if args.len() != params.len() {
        return Err(format!(
            "it has {} and is given {}",
            count(params.len() as u64, "parameter"),
            args.len()
        ));
    }
    let given = params
        .iter()
        .zip(args)
        .map(|(param, value)| named(param.name, given(Some(param), value, 1)))
        .filter_map(Result::transpose)
        .collect::<Result<Vec<_>, String>>()?;
    let spec = KernelSpec { kernel, origin: None, args: given, grid: Some(grid) };
    let task = checked((world, CommId::WORLD, rank), format!("kernel `{}`", kernel.name), |cx, problems| {
        launch::kernel(cx, &spec, device, problems)
    })?;
    apart(&task.description)?;
    Ok((task.args.into_iter().map(bound).collect(), task.grid))
}

/// What a check comes to where all memory is a buffer, or what it found in words.
fn checked<T>(
    (world, comm, rank): (&World, CommId, u32),
    what: String,
    check: impl FnOnce(&Context<'_>, &mut Vec<Diagnostic>) -> Option<T>,
) -> Result<T, String> {
    let part = world.part(comm, rank).ok_or("there is no such communicator")?;
    let spaces = DType::ALL.iter().map(|&dtype| space(dtype)).collect::<Vec<_>>();
    let cx = Context {
        rank,
        buffers: &spaces,
        origin: &Arc::new(Origin::default()),
        what,
        comm_name: world.name(comm),
        comm_rank: part.rank,
        comm_size: part.size(),
    };
    let mut problems = Vec::new();
    match (check(&cx, &mut problems), problems.as_slice()) {
        (Some(checked), []) => Ok(checked),
        (_, problems) => {
            let text: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
            Err(text.join("; "))
        }
    }
}

fn named(
    name: &str,
    value: Result<Option<ArgValue>, &'static str>,
) -> Result<Option<(Cow<'static, str>, ArgValue)>, String> {
    let value = value.map_err(|what| format!("`{name}` {what}"))?;
    Ok(value.map(|value| (Cow::Owned(name.to_string()), value)))
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
            if range.ptr.0 == 0 && !range.is_empty() {
                return Err("is null");
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceError, Work};
    use crate::host_call::HostCall;
    use crate::kernel::Cover;
    use crate::library_op::{Needs, OpCall, OpError, Prepare};
    use crate::ops::{ALL_GATHER, ALL_TO_ALL, Contract, SEND};
    use crate::param::Type;

    struct Served(&'static Contract);

    crate::described_by_contract!(Served);

    impl LibraryOp for Served {
        fn library(&self) -> &'static str {
            "test"
        }
        fn device(&self) -> &'static str {
            "test"
        }
        fn needs(&self) -> Needs {
            Needs { alignment: 8, ..Needs::NONE }
        }
        unsafe fn prepare(&self, _: &[OpCall<'_>], _: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
            Err(DeviceError::Unsupported("a test".to_string()).into())
        }
    }

    fn range(ptr: u64, dtype: DType, len: u64) -> Arg<BoundRange> {
        Arg::Buffer(BoundRange { ptr: DevicePtr(MEMORY + ptr), dtype, shape: [len].into() })
    }

    /// Where it begins, aligned to anything.
    const MEMORY: u64 = 1 << 20;

    /// What rank 1 of two gives an op in the end.
    fn call(
        contract: &'static Contract,
        args: &[(&str, Arg<BoundRange>)],
    ) -> Result<Vec<Arg<BoundRange>>, String> {
        let op: &'static dyn LibraryOp = Box::leak(Box::new(Served(contract)));
        let world = World::new(2).unwrap();
        arguments(op, &world, (CommId::WORLD, 1), args)
    }

    #[test]
    fn ranges_come_back_as_they_were_given() {
        let (send, recv) = (range(1 << 40, DType::F16, 4), range(4096, DType::F16, 8));
        let given = call(&ALL_GATHER, &[("recv", recv.clone()), ("send", send.clone())]);
        assert_eq!(given, Ok(vec![send, recv]), "in the order of the parameters");
        // This rank's own part of the whole.
        assert!(
            call(
                &ALL_GATHER,
                &[("send", range(256 + 8, DType::F16, 4)), ("recv", range(256, DType::F16, 8))]
            )
            .is_ok()
        );
        let given = call(&ALL_TO_ALL, &[("send", range(0, DType::U8, 2)), ("recv", range(8, DType::U8, 2))]);
        assert_eq!(given.unwrap()[2], Arg::Absent);
    }

    #[test]
    fn what_a_task_could_not_say_is_refused_here() {
        let gather = |send, recv| call(&ALL_GATHER, &[("send", send), ("recv", recv)]);
        let to_all = |counts: &[i64]| {
            let (send, recv) = (range(0, DType::U8, 2), range(8, DType::U8, 2));
            call(&ALL_TO_ALL, &[("send", send), ("recv", recv), ("counts", Arg::List(counts.into()))])
        };
        assert!(to_all(&[1, 1, 1, 1]).is_ok());
        let own = Arg::Rank(1);
        let null = Arg::Buffer(BoundRange { ptr: DevicePtr(0), dtype: DType::F16, shape: [4].into() });
        for (found, says) in [
            (
                gather(range(257, DType::F16, 4), range(0, DType::F16, 8)),
                "`send` is not aligned to its dtype",
            ),
            (gather(range(258, DType::F16, 4), range(0, DType::F16, 8)), "needs ranges aligned to 8 bytes"),
            (
                gather(range(256, DType::F16, 4), range(256, DType::F16, 8)),
                "not where the part of rank 1 belongs",
            ),
            (gather(range(256, DType::F16, 4), range(0, DType::F16, 7)), "`recv` has 7 elements"),
            (gather(range(256, DType::F16, 4), range(0, DType::F32, 8)), "must have the dtype of `send`"),
            (gather(range(0, DType::F16, 4), range(0, DType::F16, u64::MAX)), "names f16 elements"),
            (gather(Arg::Size(u64::MAX), range(0, DType::F16, 8)), "`send` is too great a number"),
            (gather(Arg::Word(0), range(0, DType::F16, 8)), "`send` takes no word"),
            (gather(null.clone(), range(0, DType::F16, 8)), "`send` is null"),
            (to_all(&[1, 1]), "needs a row and a column for each rank"),
            (to_all(&[1, 2, 1, 1]), "`recv` has 2 rows, but column 1"),
            (
                call(&SEND, &[("buffer", range(0, DType::U8, 1)), ("peer", own)]),
                "names its own rank as the peer",
            ),
        ] {
            let error = found.unwrap_err();
            assert!(error.contains(says), "`{says}` is not said by: {error}");
        }
    }

    static SCALE: KernelDef = KernelDef {
        name: "scale",
        params: &[
            ParamDef::read("from", Type::In(&[DType::F16, DType::F32]), "[n]"),
            ParamDef::write("to", Type::Same("from"), "[n]"),
            ParamDef::scalar("factor", Type::Same("from"), ""),
        ],
        covers: &[Cover::Len("to")],
        host: Some(&nothing),
        ..KernelDef::EMPTY
    };

    fn nothing(_: &HostCall<'_>) -> Result<(), String> {
        Ok(())
    }

    #[test]
    fn a_launch_that_a_task_could_not_make_is_refused() {
        let world = World::new(2).unwrap();
        let launch = |args: &[Arg<BoundRange>], device, threads, block| {
            kernel(&SCALE, (&world, 1), device, args, ([threads, 1, 1], [block, 1, 1]))
        };
        let half = Arg::Scalar(Scalar::Float(0.5));
        let args = |from, to, factor| [from, to, factor];
        let whole = args(range(0, DType::F16, 4), range(8, DType::F16, 4), half.clone());
        let (given, grid) = launch(&whole, "host", 4, 32).unwrap();
        assert_eq!((given.as_slice(), grid), (whole.as_slice(), Grid::new([4, 1, 1], [32, 1, 1]).unwrap()));
        for (args, device, threads, block, says) in [
            (whole.clone(), "cuda", 4, 32, "has no form for cuda devices"),
            (
                whole.clone(),
                "host",
                3,
                32,
                "the grid has 3 threads on axis x, which must cover the 4 elements of `to`",
            ),
            (whole.clone(), "host", 4, 2048, "is longer than"),
            (
                args(range(1, DType::F16, 4), whole[1].clone(), half.clone()),
                "host",
                4,
                32,
                "not aligned to its dtype",
            ),
            (args(range(0, DType::F16, 4), range(0, DType::F16, 4), half.clone()), "host", 4, 32, "overlap"),
            (
                args(range(0, DType::F32, 4), whole[1].clone(), half.clone()),
                "host",
                4,
                32,
                "must have the dtype of `from`",
            ),
            (args(range(0, DType::F64, 4), whole[1].clone(), half.clone()), "host", 4, 32, "f64"),
            (args(whole[0].clone(), whole[1].clone(), Arg::Flag(true)), "host", 4, 32, "`factor` takes"),
            (args(whole[0].clone(), Arg::Absent, half.clone()), "host", 4, 32, "needs the argument `to`"),
        ] {
            let error = launch(&args, device, threads, block).unwrap_err();
            assert!(error.contains(says), "`{says}` is not said by: {error}");
        }
        let error = launch(&whole[..2], "host", 4, 32).unwrap_err();
        assert_eq!(error, "it has 3 parameters and is given 2");
    }
}
