//! The given arguments against the parameters of their task.

use std::borrow::Cow;

use crate::args::{Arg, Args};
use crate::buffer::{BufferRange, checked_count};
use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::dtype::DType;
use crate::graph::ArgValue;
use crate::graph::check::Context;
use crate::param::{ParamDef, ParamKind, Presence, Type};
use crate::scalar::Scalar;
use crate::words::count;

/// Puts the given arguments in the order of the parameters. All that is wrong is reported.
pub(super) fn in_order(
    cx: &Context<'_>,
    params: &'static [ParamDef],
    given: &[(Cow<'static, str>, ArgValue)],
    problems: &mut Vec<Diagnostic>,
) -> Option<Vec<Arg>> {
    // A buffer that was refused at its declaration has been reported there.
    let refused = |value: &ArgValue| {
        let (ArgValue::Buffer(buffer) | ArgValue::Range(BufferRange { buffer, .. })) = value else {
            return false;
        };
        cx.buffers.get(buffer.0 as usize).is_some_and(|decl| decl.checked_len().is_none())
    };
    if given.iter().any(|(_, value)| refused(value)) {
        return None;
    }
    let before = problems.len();
    for (index, (name, _)) in given.iter().enumerate() {
        if !params.iter().any(|p| p.name == *name) {
            let names: Vec<String> = params.iter().map(|p| format!("`{}`", p.name)).collect();
            let report = cx.error(codes::ARGUMENT, name, format!("{} has no argument `{name}`", cx.what));
            problems.push(report.with_help(format!("it takes {}", names.join(", "))));
        } else if given[..index].iter().any(|(other, _)| other == name) {
            problems.push(cx.error(codes::ARGUMENT, name, format!("the argument `{name}` is given twice")));
        }
    }
    // Buffers first, since scalars take dtypes and sizes take defaults from them.
    let mut values = vec![Arg::Absent; params.len()];
    for buffers in [true, false] {
        for (index, param) in params.iter().enumerate() {
            if matches!(param.kind, ParamKind::Buffer(..)) != buffers {
                continue;
            }
            let value = given.iter().find(|(name, _)| name == param.name).map(|(_, value)| value);
            let arg = match value {
                Some(value) => one(cx, param, params, value, &values),
                None => absent(cx, param, &Args { params, values: &values, comm_rank: 0, comm_size: 1 }),
            };
            match arg {
                Ok(arg) => values[index] = arg,
                Err(problem) => problems.push(*problem),
            }
        }
    }
    let types_ok = problems.len() == before && {
        same_types(cx, params, &values, problems);
        problems.len() == before
    };
    types_ok.then_some(values)
}

type Checked = Result<Arg, Box<Diagnostic>>;

fn absent(cx: &Context<'_>, param: &ParamDef, args: &Args<'_>) -> Checked {
    let missing = || {
        let text = format!("{} needs the argument `{}`: {}", cx.what, param.name, param.doc);
        let given = match param.kind {
            ParamKind::Buffer(..) => "a buffer, or a range of one".to_string(),
            ParamKind::Scalar(_) => "a number".to_string(),
            ParamKind::Size => "a length".to_string(),
            ParamKind::Word(words) => format!("one of `\"{}\"`", words.join("\"`, `\"")),
            ParamKind::Flag => "`true` or `false`".to_string(),
            ParamKind::Rank => "a rank of the communicator, counted from 0".to_string(),
            ParamKind::List => "a list of whole numbers".to_string(),
            ParamKind::Matrix => "a list of lists, a row and a column for each rank".to_string(),
        };
        let help = format!("give `{}` among the arguments: {given}", param.name);
        Err(Box::new(cx.error(codes::ARGUMENT, "", text).with_help(help)))
    };
    match param.presence {
        Presence::Required => missing(),
        Presence::Optional => Ok(Arg::Absent),
        Presence::False => Ok(Arg::Flag(false)),
        Presence::Len(of) => args.buffer(of).map_or(Ok(Arg::Absent), |range| Ok(Arg::Size(range.len()))),
        Presence::Dim(of, axis) => match args.buffer(of) {
            None => Ok(Arg::Absent), // reported already
            Some(range) => match range.shape.get(axis) {
                Some(&length) => Ok(Arg::Size(length)),
                None => {
                    let text = format!(
                        "`{}` is the length of axis {axis} of `{of}`, which has the shape {:?}",
                        param.name, range.shape
                    );
                    let help = format!("give `{}` among the arguments", param.name);
                    Err(Box::new(cx.error(codes::ARGUMENT, of, text).with_help(help)))
                }
            },
        },
        Presence::ShapeOf(of) => Ok(args.buffer(of).map_or(Arg::Absent, |range| {
            Arg::List(range.shape.iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX)).collect())
        })),
    }
}

fn one(cx: &Context<'_>, param: &ParamDef, params: &[ParamDef], value: &ArgValue, before: &[Arg]) -> Checked {
    let name = param.name;
    let fail = |code, message: String| Err(Box::new(cx.error(code, name, message)));
    let kind =
        |wanted: &str| fail(codes::ARGUMENT, format!("`{name}` takes {wanted}, not {}", describe(value)));
    match (param.kind, value) {
        (ParamKind::Buffer(_, ty), ArgValue::Range(_) | ArgValue::Buffer(_)) => {
            let range = range(cx, name, value)?;
            if let Type::In(allowed) = ty
                && !allowed.contains(&range.dtype)
            {
                return Err(Box::new(wrong_dtype(cx, name, &range, allowed)));
            }
            if let Type::Is(only) = ty
                && only != range.dtype
            {
                return Err(Box::new(wrong_dtype(cx, name, &range, &[only])));
            }
            Ok(Arg::Buffer(range))
        }
        (ParamKind::Buffer(..), _) => kind("a buffer"),
        (ParamKind::Scalar(_), ArgValue::Range(_) | ArgValue::Buffer(_)) => {
            let range = range(cx, name, value)?;
            if range.len() != 1 {
                let text = format!(
                    "`{name}` takes a number or a buffer of one element; `{}` has {} here",
                    cx.buffers[range.buffer.0 as usize].name,
                    range.len()
                );
                return fail(codes::ARGUMENT, text);
            }
            Ok(Arg::Buffer(range))
        }
        (ParamKind::Scalar(ty), ArgValue::Int(_) | ArgValue::Float(_)) => {
            let scalar = match *value {
                ArgValue::Float(f) => Scalar::Float(f),
                ArgValue::Int(i) => Scalar::Int(i),
                _ => Scalar::Int(0),
            };
            let dtype = match ty {
                Type::Is(dtype) => Some(dtype),
                Type::Same(of) => dtype_of(params, before, of),
                Type::In(_) => None,
            };
            match dtype {
                Some(dtype) if !scalar.fits(dtype) => {
                    fail(codes::ARGUMENT, format!("`{name}` is {scalar}, which {dtype} cannot hold"))
                }
                _ => Ok(Arg::Scalar(scalar)),
            }
        }
        (ParamKind::Scalar(_), _) => kind("a number or a buffer of one element"),
        (ParamKind::Size, ArgValue::Int(n)) => match u64::try_from(*n) {
            Ok(n) => Ok(Arg::Size(n)),
            Err(_) => fail(codes::ARGUMENT, format!("`{name}` is a length and cannot be {n}")),
        },
        (ParamKind::Size, _) => kind("a whole number"),
        (ParamKind::Word(words), ArgValue::Word(word)) => match words.iter().position(|w| w == word) {
            Some(index) => Ok(Arg::Word(index as u32)),
            None => fail(codes::ARGUMENT, format!("`{name}` is one of {}, not `{word}`", words.join(", "))),
        },
        (ParamKind::Word(words), _) => kind(&format!("one of the words {}", words.join(", "))),
        (ParamKind::Flag, ArgValue::Bool(switch)) => Ok(Arg::Flag(*switch)),
        (ParamKind::Flag, _) => kind("true or false"),
        (ParamKind::Rank, ArgValue::Int(rank)) => match u32::try_from(*rank) {
            Ok(rank) if rank < cx.comm_size => Ok(Arg::Rank(rank)),
            _ => {
                let text = format!(
                    "`{name}` is {rank}; the communicator `{}` has the ranks 0 to {}",
                    cx.comm_name,
                    cx.comm_size - 1
                );
                let size = match cx.comm_name {
                    "world" => "world".to_string(),
                    comm => format!("size({comm})"),
                };
                let help = match name {
                    "root" => format!("the last rank is `{size} - 1`"),
                    _ => {
                        format!("wrap around with `% {size}`, or leave the task out on this rank with `when`")
                    }
                };
                Err(Box::new(cx.error(codes::NO_SUCH_RANK, name, text).with_help(help)))
            }
        },
        (ParamKind::Rank, _) => kind("a rank"),
        (ParamKind::List, ArgValue::List(list)) => Ok(Arg::List(list.as_slice().into())),
        (ParamKind::List, _) => kind("a list of whole numbers"),
        (ParamKind::Matrix, ArgValue::Matrix(matrix)) => {
            let size = cx.comm_size as usize;
            if (matrix.rows, matrix.columns) == (size, size) {
                return Ok(Arg::List(matrix.numbers.clone()));
            }
            let text = format!(
                "`{name}` has {} of {}; the communicator `{}` has {}, and each needs a row and a column",
                count(matrix.rows as u64, "row"),
                count(matrix.columns as u64, "number"),
                cx.comm_name,
                count(cx.comm_size, "rank")
            );
            let help = format!("give {size} lists of {size}: entry [r][p] is what rank r sends to rank p");
            Err(Box::new(cx.error(codes::ARGUMENT, name, text).with_help(help)))
        }
        (ParamKind::Matrix, _) => kind("a list of lists of whole numbers"),
    }
}

fn range(cx: &Context<'_>, name: &str, value: &ArgValue) -> Result<BufferRange, Box<Diagnostic>> {
    let buffer = match value {
        ArgValue::Buffer(buffer) => *buffer,
        ArgValue::Range(range) => range.buffer,
        _ => return Err(Box::new(cx.error(codes::ARGUMENT, name, format!("`{name}` takes a buffer")))),
    };
    let Some(decl) = cx.buffers.get(buffer.0 as usize) else {
        let text = format!("`{name}` names a buffer that was declared in another graph");
        return Err(Box::new(cx.error(codes::ARGUMENT, name, text)));
    };
    let ArgValue::Range(range) = value else { return Ok(BufferRange::whole(buffer, decl)) };
    // A range made for another rank may not fit this rank's buffer.
    let end = checked_count(&range.shape).and_then(|len| range.offset.checked_add(len));
    if range.dtype != decl.dtype || end.is_none_or(|end| end > decl.len()) {
        let text = format!(
            "`{name}` names {} elements of shape {:?} from element {} of `{}`, which has {} of {}",
            range.dtype,
            range.shape,
            range.offset,
            decl.name,
            count(decl.len(), "element"),
            decl.dtype
        );
        return Err(Box::new(cx.error(codes::RANGE, name, text)));
    }
    Ok(range.clone())
}

fn dtype_of(params: &[ParamDef], values: &[Arg], of: &str) -> Option<DType> {
    let index = params.iter().position(|p| p.name == of)?;
    match values.get(index)? {
        Arg::Buffer(range) => Some(range.dtype),
        _ => None,
    }
}

/// Buffer arguments whose dtype must be another's, and scalars read from buffers.
fn same_types(cx: &Context<'_>, params: &[ParamDef], values: &[Arg], problems: &mut Vec<Diagnostic>) {
    for (param, value) in params.iter().zip(values) {
        let (ParamKind::Buffer(_, ty) | ParamKind::Scalar(ty)) = param.kind else { continue };
        let Arg::Buffer(range) = value else { continue };
        let (allowed, of): (Vec<DType>, _) = match ty {
            Type::Same(of) => (dtype_of(params, values, of).into_iter().collect(), Some(of)),
            Type::Is(dtype) => (vec![dtype], None),
            Type::In(allowed) => (allowed.to_vec(), None),
        };
        if allowed.is_empty() || allowed.contains(&range.dtype) {
            continue;
        }
        problems.push(match of {
            Some(of) => {
                let text = format!(
                    "{}: `{}` is {}, but must have the dtype of `{of}`, {}",
                    cx.what, param.name, range.dtype, allowed[0]
                );
                cx.error(codes::DTYPE, param.name, text).with_help(declare(cx, range, &allowed))
            }
            None => wrong_dtype(cx, param.name, range, &allowed),
        });
    }
}

fn wrong_dtype(cx: &Context<'_>, name: &str, range: &BufferRange, allowed: &[DType]) -> Diagnostic {
    let names: Vec<&str> = allowed.iter().map(|d| d.name()).collect();
    let text = format!("{}: `{name}` takes {}, not {}", cx.what, names.join(", "), range.dtype);
    cx.error(codes::DTYPE, name, text).with_help(declare(cx, range, allowed))
}

fn declare(cx: &Context<'_>, range: &BufferRange, allowed: &[DType]) -> String {
    let buffer = cx.buffers.get(range.buffer.0 as usize).map_or("", |decl| &*decl.name);
    match allowed {
        [only] => format!("declare `{buffer}` with `dtype = \"{only}\"`"),
        _ => format!("declare `{buffer}` with one of these dtypes"),
    }
}

fn describe(value: &ArgValue) -> String {
    match value {
        ArgValue::Range(_) | ArgValue::Buffer(_) => "a buffer".to_string(),
        ArgValue::Int(n) => format!("the number {n}"),
        ArgValue::Float(x) => format!("the number {x}"),
        ArgValue::Bool(b) => format!("{b}"),
        ArgValue::Word(word) => format!("the word `{word}`"),
        ArgValue::List(_) => "a list".to_string(),
        ArgValue::Matrix(_) => "a list of lists".to_string(),
    }
}
