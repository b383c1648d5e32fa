//! Checks of one task: its description, its grid, its needs, and overlaps.

use std::borrow::Cow;
use std::sync::Arc;

use crate::args::{Arg, Args};
use crate::buffer::{BufferDecl, BufferId, Download, Upload};
use crate::codes;
use crate::device::MEMORY_ALIGNMENT;
use crate::diagnostic::{Code, Diagnostic, Label};
use crate::graph::{ArgValue, Node, Origin, arguments};
use crate::library_op::LibraryOp;
use crate::task::{Access, ArgError, Description, Meeting};

/// What the checks of one task need to know.
pub(super) struct Context<'a> {
    pub(super) rank: u32,
    pub(super) buffers: &'a [BufferDecl],
    pub(super) origin: &'a Arc<Origin>,
    /// The task's descriptor, for messages: ``kernel `scale` ``.
    pub(super) what: String,
    pub(super) comm_name: &'a str,
    pub(super) comm_rank: u32,
    pub(super) comm_size: u32,
}

impl Context<'_> {
    /// A report on an argument, or on the whole task for `""`.
    pub(super) fn error(&self, code: Code, param: &str, message: String) -> Diagnostic {
        let label = Label::at(self.origin.span_of(param), "").on_rank(self.rank).in_task(&self.origin.name);
        Diagnostic::error(code, message, label)
    }

    fn rule(&self, error: ArgError) -> Diagnostic {
        let text = format!("{}: {}", self.what, error.sentence());
        let diagnostic = self.error(codes::RULE, error.param, text);
        match error.help {
            Some(help) => diagnostic.with_help(help),
            None => diagnostic,
        }
    }
}

/// A buffer whose bytes cannot be counted.
pub(super) fn size(decl: &BufferDecl, rank: u32) -> Option<Diagnostic> {
    if decl.checked_len().is_some() {
        return None;
    }
    let text = format!(
        "the buffer `{}` of shape {:?} and dtype {} has {}; the limit is {} bytes",
        decl.name,
        decl.shape,
        decl.dtype,
        size_in_words(decl),
        i64::MAX
    );
    Some(Diagnostic::error(codes::TOO_LARGE, text, Label::at(decl.span, "").on_rank(rank)))
}

/// How much it is, also where 64 bits cannot tell.
fn size_in_words(decl: &BufferDecl) -> String {
    let elements = decl.shape.iter().try_fold(1u128, |n, &axis| n.checked_mul(axis.into()));
    let bytes = elements.and_then(|n| n.checked_mul(decl.dtype.size().into()));
    match (elements, bytes) {
        (Some(elements), Some(bytes)) => format!("{elements} elements, {bytes} bytes"),
        _ => "more than 2^128 bytes".to_string(),
    }
}

/// The task's own description, or its broken rule.
pub(super) fn description(
    cx: &Context<'_>,
    result: Result<Description, ArgError>,
    problems: &mut Vec<Diagnostic>,
) -> Option<Description> {
    match result {
        Ok(description) => {
            let before = problems.len();
            problems.extend(misdescribed(cx, &description));
            (problems.len() == before).then_some(description)
        }
        Err(error) => {
            problems.push(cx.rule(error));
            None
        }
    }
}

/// What a description says that cannot be: a plugin's may.
fn misdescribed(cx: &Context<'_>, description: &Description) -> Option<Diagnostic> {
    let inside = |access: &&Access| {
        let len = cx.buffers.get(access.buffer.0 as usize).map(BufferDecl::len);
        len.is_some_and(|len| access.range.start <= access.range.end && access.range.end <= len)
    };
    if let Some(access) = description.accesses.iter().find(|access| !inside(access)) {
        let text = format!(
            "{} says that it touches elements {} to {} through `{}`, outside of any buffer",
            cx.what, access.range.start, access.range.end, access.param
        );
        return Some(cx.error(codes::RANGE, access.param, text));
    }
    let peers = description.meetings.iter().filter_map(|meeting| match meeting {
        Meeting::Send(message) | Meeting::Recv(message) => Some(message.peer),
        Meeting::Collective(_) => None,
    });
    let peer = peers.into_iter().find(|&peer| peer >= cx.comm_size)?;
    let text = format!(
        "{} says that it meets rank {peer}; the communicator `{}` has the ranks 0 to {}",
        cx.what,
        cx.comm_name,
        cx.comm_size - 1
    );
    Some(cx.error(codes::NO_SUCH_RANK, "", text))
}

/// An op with the arguments given, in a group or alone: the arguments in the order of its parameters, and what it does with them.
pub(super) fn op(
    cx: &Context<'_>,
    op: &'static dyn LibraryOp,
    given: &[(Cow<'static, str>, ArgValue)],
    in_group: bool,
    problems: &mut Vec<Diagnostic>,
) -> Option<(Vec<Arg>, Description)> {
    let args = arguments::in_order(cx, op.params(), given, problems)?;
    let view = Args { params: op.params(), values: &args, comm_rank: cx.comm_rank, comm_size: cx.comm_size };
    let description = description(cx, op.describe(&view), problems)?;
    needs(cx, op, &view, problems);
    if !in_group && to_itself(&description, cx.comm_rank) {
        let text = format!(
            "{} names its own rank as the peer, {} of `{}`, outside a group",
            cx.what, cx.comm_rank, cx.comm_name
        );
        let help = "put this send and its receive into one group, or use `send_recv`";
        problems.push(cx.error(codes::SELF_SEND, "peer", text).with_help(help));
    }
    Some((args, description))
}

/// Whether an op is a lone send or receive whose peer is the rank itself.
pub(super) fn to_itself(description: &Description, rank: u32) -> bool {
    matches!(description.meetings.as_slice(), [Meeting::Send(m) | Meeting::Recv(m)] if m.peer == rank)
}

/// What the serving library asks of the arguments.
pub(super) fn needs(cx: &Context<'_>, op: &dyn LibraryOp, args: &Args<'_>, problems: &mut Vec<Diagnostic>) {
    let needs = op.needs();
    let whose = || format!("`{}` by the library `{}`", op.name(), op.library());
    if needs.alignment > MEMORY_ALIGNMENT || !needs.alignment.max(1).is_power_of_two() {
        let text = format!(
            "{} asks for ranges aligned to {} bytes: it can be a power of two up to {MEMORY_ALIGNMENT}, at which buffers begin",
            whose(),
            needs.alignment
        );
        problems
            .push(cx.error(codes::LIBRARY, "op", text).with_help("name another `library`, or mend this one"));
        return;
    }
    for (param, value) in args.params.iter().zip(args.values) {
        match value {
            Arg::Buffer(range) => {
                let start = range.offset.saturating_mul(range.dtype.size());
                if !start.is_multiple_of(needs.alignment.max(1)) {
                    let text = format!(
                        "{} needs ranges aligned to {} bytes; `{}` begins at byte {start} of its buffer",
                        whose(),
                        needs.alignment,
                        param.name
                    );
                    let help = format!("let the range begin at a multiple of {} bytes", needs.alignment);
                    problems.push(cx.error(codes::LIBRARY, param.name, text).with_help(help));
                }
                if !range.len().is_multiple_of(needs.multiple.max(1)) {
                    let text = format!(
                        "{} needs a multiple of {} elements; `{}` has {}",
                        whose(),
                        needs.multiple,
                        param.name,
                        range.len()
                    );
                    let help = format!("let its length be a multiple of {}", needs.multiple);
                    problems.push(cx.error(codes::LIBRARY, param.name, text).with_help(help));
                }
                if !needs.dtypes.contains(&range.dtype) {
                    let names: Vec<&str> = needs.dtypes.iter().map(|d| d.name()).collect();
                    let text = format!(
                        "{} takes {}; `{}` is {}",
                        whose(),
                        names.join(", "),
                        param.name,
                        range.dtype
                    );
                    let help = "declare the buffer with one of these dtypes, or name another `library`";
                    problems.push(cx.error(codes::LIBRARY, param.name, text).with_help(help));
                }
            }
            Arg::Word(index) if param.name == "reduce" => {
                let reduce = crate::reduce::ReduceOp::ALL.get(*index as usize);
                if let Some(reduce) = reduce.filter(|r| !needs.reductions.contains(r)) {
                    let text = format!("{} does not know the reduction `{reduce}`", whose());
                    let known: Vec<&str> = needs.reductions.iter().map(|reduce| reduce.name()).collect();
                    let help = format!("it knows {}; or name another `library`", known.join(", "));
                    problems.push(cx.error(codes::LIBRARY, param.name, text).with_help(help));
                }
            }
            _ => {}
        }
    }
}

/// What stands against swapping two buffers.
pub(super) fn swap(cx: &Context<'_>, pair: [BufferId; 2]) -> Option<Diagnostic> {
    let [Some(a), Some(b)] = pair.map(|buffer| cx.buffers.get(buffer.0 as usize)) else {
        let text = format!("{} names a buffer that was declared in another graph", cx.what);
        return Some(cx.error(codes::ARGUMENT, "swap", text));
    };
    if pair[0] == pair[1] {
        let text = format!("`{}` is swapped with itself", a.name);
        return Some(
            cx.error(codes::SWAP, "swap", text).with_help("name two buffers, or leave the task out"),
        );
    }
    if a.checked_len().is_none() || b.checked_len().is_none() {
        return None; // reported where it was declared
    }
    let declared = |decl: &BufferDecl| Label::at(decl.span, format!("`{}` is declared here", decl.name));
    if (a.dtype, &a.shape) != (b.dtype, &b.shape) {
        let what = |decl: &BufferDecl| format!("{} of shape {:?}", decl.dtype, decl.shape);
        let text = format!(
            "`{}` and `{}` cannot be swapped: one is {}, the other {}",
            a.name,
            b.name,
            what(a),
            what(b)
        );
        let report = cx.error(codes::SWAP, "swap", text).with_related(declared(a)).with_related(declared(b));
        return Some(report.with_help("declare both with one dtype and one shape"));
    }
    let (decl, moves, help) = [a, b].into_iter().find_map(|decl| {
        let name = &decl.name;
        if decl.upload == Upload::Every {
            let help = format!(
                "upload into a buffer that is not swapped, and let a `copy` at the start of the step write `{name}`"
            );
            return Some((decl, "uploaded", help));
        }
        let help = format!(
            "let a `copy` at the end of the step write `{name}` to a buffer that is not swapped, and download that one"
        );
        (decl.download == Download::Every).then_some((decl, "downloaded", help))
    })?;
    let text = format!(
        "`{}` is swapped, and it is {moves} in every step, which goes to one place in memory alone",
        decl.name
    );
    Some(cx.error(codes::SWAPPED_TRANSFER, "swap", text).with_related(declared(decl)).with_help(help))
}

/// How ranges of a unit could be told apart.
fn apart(node: &Node) -> &'static str {
    let in_place = node.parts().all(|(_, params, ..)| params.iter().any(|param| param.name == "buffer"));
    match node.ops() {
        [_] if in_place => "use ranges that do not overlap, or the op in place, with `buffer` alone",
        _ => "use ranges that do not overlap",
    }
}

/// Two ranges of one unit that overlap, one of them written.
pub(super) fn overlaps(cx: &Context<'_>, node: &Node, problems: &mut Vec<Diagnostic>) {
    let mut touched: Vec<_> = node
        .parts()
        .flat_map(|(origin, _, _, description)| description.accesses.iter().map(move |a| (a, origin)))
        .filter(|(access, _)| !access.range.is_empty())
        .collect();
    touched.sort_by_key(|(access, _)| (access.buffer, access.range.start, access.range.end));
    // Among ranges sorted by start, one overlaps an earlier one exactly if it starts before the furthest end
    // so far; a written one must clear every earlier end, a read one every earlier written end.
    let mut furthest: [Option<usize>; 2] = [None, None]; // any, written
    for (index, (access, origin)) in touched.iter().enumerate() {
        if index > 0 && touched[index - 1].0.buffer != access.buffer {
            furthest = [None, None];
        }
        let earlier = furthest[usize::from(!access.mode.writes())];
        if let Some((other, other_origin)) = earlier.map(|i| touched[i])
            && other.range.end > access.range.start
        {
            let name = &cx.buffers[access.buffer.0 as usize].name;
            let text = format!(
                "`{}` and `{}` overlap in `{name}`: elements {} to {} and {} to {}, and {} written",
                other.param,
                access.param,
                other.range.start,
                other.range.end,
                access.range.start,
                access.range.end,
                if other.mode.writes() && access.mode.writes() { "both are" } else { "one is" }
            );
            let place = |origin: &Origin, param: &str, text: &str| {
                Label::at(origin.span_of(param), text).on_rank(cx.rank).in_task(&origin.name)
            };
            problems.push(
                Diagnostic::error(codes::OVERLAP, text, place(origin, access.param, ""))
                    .with_related(place(other_origin, other.param, "the other range"))
                    .with_help(apart(node)),
            );
        }
        for (slot, counts) in [(0, true), (1, access.mode.writes())] {
            let further = furthest[slot].is_none_or(|i| touched[i].0.range.end < access.range.end);
            if counts && further {
                furthest[slot] = Some(index);
            }
        }
    }
}
