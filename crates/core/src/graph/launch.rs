//! Checks of one kernel's launch: its arguments, its grid, and what that covers.

use crate::args::{Arg, Args};
use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::graph::check::{self, Context};
use crate::graph::{KernelSpec, KernelTask, arguments};
use crate::grid::{Grid, GridError, MAX_BLOCK_THREADS};
use crate::kernel::{Cover, KernelDef};
use crate::param::ParamKind;
use crate::task::Task;
use crate::words::count;

/// A kernel with the arguments and the grid given, on a kind of device.
pub(super) fn kernel(
    cx: &Context<'_>,
    spec: &KernelSpec,
    device: &str,
    problems: &mut Vec<Diagnostic>,
) -> Option<KernelTask> {
    if !spec.kernel.runs_on(device) {
        let text = format!("{} has no form for {device} devices", cx.what);
        problems.push(cx.error(codes::NO_FORM, "", text));
    }
    let grid = match spec.grid {
        None => {
            let text = format!("{} needs a grid: how many threads, in blocks of how many", cx.what);
            let help = "add `grid = { threads = …, block = 256 }`";
            problems.push(cx.error(codes::GRID, "", text).with_help(help));
            None
        }
        Some((threads, block)) => match Grid::new(threads, block) {
            Ok(grid) => Some(grid),
            Err(error) => {
                let of_block = !matches!(error, GridError::ManyBlocks { .. })
                    && cx.origin.args.iter().any(|(name, _)| name == "block");
                let part = if of_block { "block" } else { "grid" };
                let report = cx.error(codes::GRID, part, format!("{}: {error}", cx.what));
                problems.push(report.with_help(grid_help(&error)));
                None
            }
        },
    };
    let args = arguments::in_order(cx, spec.kernel.params, &spec.args, problems);
    let (args, grid) = args.zip(grid)?;
    let view = Args { params: spec.kernel.params, values: &args, comm_rank: 0, comm_size: 1 };
    let description = check::description(cx, spec.kernel.describe(&view), problems)?;
    coverage(cx, spec.kernel, &view, &grid, problems);
    Some(KernelTask { kernel: spec.kernel, args, grid, description })
}

/// A kernel's grid against what it must cover.
fn coverage(
    cx: &Context<'_>,
    kernel: &KernelDef,
    args: &Args<'_>,
    grid: &Grid,
    problems: &mut Vec<Diagnostic>,
) {
    let before = problems.len();
    for (axis, cover, required) in kernel.uncovered(args, grid) {
        let of = match cover {
            Cover::Len(param) => format!("the {} of `{param}`", count(required, "element")),
            Cover::Size(param) => format!("`{param}` = {required}"),
            Cover::Dim(param, dim) => format!("axis {dim} of `{param}`, {required}"),
            Cover::Any => continue,
        };
        let text = format!(
            "{}: the grid has {} on axis {}, which must cover {of}",
            cx.what,
            count(grid.threads()[axis], "thread"),
            ["x", "y", "z"][axis]
        );
        let whole = |param: &str| {
            let range = args.buffer(param)?;
            let decl = cx.buffers.get(range.buffer.0 as usize)?;
            (range.len() == decl.len()).then(|| format!("`len({})`", decl.name))
        };
        let enough = match cover {
            Cover::Len(param) => whole(param),
            _ => None,
        };
        let enough = enough.unwrap_or_else(|| required.to_string());
        let help = match (axis, grid.threads()) {
            (0, [_, 1, 1]) => format!("let the grid have {enough} threads"),
            _ => format!("let the grid have {enough} threads on axis {}", ["x", "y", "z"][axis]),
        };
        problems.push(cx.error(codes::UNCOVERED, "grid", text).with_help(help));
    }
    // A kernel without threads does not run: right where there is nothing to do, wrong where a result is awaited.
    if problems.len() > before || !grid.is_empty() || kernel.covers_nothing(args) {
        return;
    }
    let written =
        kernel.params.iter().zip(args.values).find_map(|(param, value)| match (param.kind, value) {
            (ParamKind::Buffer(mode, _), Arg::Buffer(range)) if mode.writes() && !range.is_empty() => {
                Some((param.name, range.len()))
            }
            _ => None,
        });
    if let Some((param, len)) = written {
        let text = format!(
            "{}: the grid {:?} is empty, and `{param}` has {len} element{} to be written",
            cx.what,
            grid.threads(),
            if len == 1 { "" } else { "s" }
        );
        let help = "give the grid a thread, as `max(rows, 1)`, or leave the task out with `when`";
        problems.push(cx.error(codes::UNCOVERED, "grid", text).with_help(help));
    }
}

/// What to write instead of a grid that cannot be launched.
fn grid_help(error: &GridError) -> String {
    let block = error.block_that_fits().map(|block| match block {
        [x, 1, 1] => format!("`block = {x}`"),
        [x, y, 1] => format!("`block = [{x}, {y}]`"),
        [x, y, z] => format!("`block = [{x}, {y}, {z}]`"),
    });
    match (error, block) {
        (GridError::EmptyBlock(_), Some(block)) => format!("write {block}: each axis has at least 1 thread"),
        (GridError::LongBlock(_) | GridError::LargeBlock(..), Some(block)) => {
            format!("write {block}, or smaller: a block has at most {MAX_BLOCK_THREADS} threads")
        }
        (GridError::ManyBlocks { .. }, Some(block)) => format!("write {block}, or larger"),
        (_, None) => {
            "no block makes them few enough: let several tasks do the work, each on a part of the buffer"
                .to_string()
        }
    }
}
