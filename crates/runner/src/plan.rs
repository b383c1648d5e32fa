//! What each rank will do, in words: `squall plan`.
//!
//! Ranks of which the very same is to be said are told of once, as a class. A rank's own number is therefore never said
//! within a class: other ranks are named, which are the same for all ranks of a class.

use std::collections::HashMap;
use std::fmt::Write as _;

use squall_core::graph::{Body, Node, OpTask};
use squall_core::{
    Arg, BufferDecl, BufferRange, CommId, Description, Download, Grid, Mode, ParamDef, ParamKind, Parts,
    Phase, TaskGraph, Upload, Verified, World,
};

use crate::files::Shape;
use crate::manifest::model::SaveRanks;
use crate::render::count;
use crate::resolve::Job;

/// The plan of a job: of all ranks, or of one.
pub fn describe(job: &Job<'_>, verified: &Verified, only: Option<u32>) -> String {
    let (world, pipeline) = (job.world.size(), &job.manifest.pipeline);
    let steps = pipeline
        .epochs
        .map_or_else(|| count(pipeline.steps.value, "step"), |epochs| count(epochs.value, "epoch"));
    let kind = job.graphs.first().map_or("", TaskGraph::device);
    let mut text = format!(
        "{}: {} on {kind} devices, {}, plan {:032x}\n",
        job.manifest.name(),
        count(u64::from(world), "rank"),
        steps,
        verified.plan_hash()
    );
    communicators(&mut text, &job.world);
    if verified.turns() > 1 {
        let _ = writeln!(
            text,
            "steps swap buffers: each rank keeps {} graphs of its step, which take turns",
            verified.turns()
        );
    }
    for (ranks, of_rank) in classes(job, verified, only) {
        let _ = write!(text, "\n{}\n{of_rank}", numbers(&ranks));
    }
    text
}

/// The parts of the world, but for the world itself: `tp: 2 parts of 4 ranks`.
fn communicators(text: &mut String, world: &World) {
    for comm in world.comms().filter(|comm| *comm != CommId::WORLD) {
        let parts = world.parts(comm);
        let sizes = || parts.iter().map(|part| part.len());
        let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        let size =
            if least == most { count(most as u64, "rank") } else { format!("{least} to {most} ranks") };
        let _ = writeln!(
            text,
            "  communicator {}: {} of {size}",
            world.name(comm),
            count(parts.len() as u64, "part")
        );
    }
}

/// What is to be said of ranks, each text with all of its ranks; in the order of their first ranks.
fn classes(job: &Job<'_>, verified: &Verified, only: Option<u32>) -> Vec<(Vec<u32>, String)> {
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut classes: Vec<(Vec<u32>, String)> = Vec::new();
    let carried = job.manifest.checkpoint.as_ref().map(|_| verified.carried());
    for graph in job.graphs.iter().filter(|graph| only.is_none_or(|rank| rank == graph.rank())) {
        let carried = carried.as_ref().and_then(|carried| carried.get(graph.rank() as usize));
        let text = rank(job, verified, graph, carried.map(|carried| &**carried));
        match index.get(&text) {
            Some(&class) => classes[class].0.push(graph.rank()),
            None => {
                index.insert(text.clone(), classes.len());
                classes.push((vec![graph.rank()], text));
            }
        }
    }
    classes
}

/// `rank 3`, `ranks 0, 2..5`: ends are excluded, as in devices.
fn numbers(ranks: &[u32]) -> String {
    let runs: Vec<String> = ranks
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [first, .., last] => format!("{first}..{}", last + 1),
            run => run.iter().map(u32::to_string).collect(),
        })
        .collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, runs.join(", "))
}

fn rank(job: &Job<'_>, verified: &Verified, graph: &TaskGraph, carried: Option<&[bool]>) -> String {
    let uses = graph.uses();
    let held: Vec<usize> = (0..graph.buffers().len()).filter(|&place| uses[place]).collect();
    // A sum of sizes that each fit 63 bits may not.
    let memory: u128 = held.iter().map(|&place| u128::from(graph.buffers()[place].bytes())).sum();
    let mut text = format!("  memory: {} in {}\n", count(memory, "byte"), count(held.len() as u64, "buffer"));
    for place in held {
        buffer(&mut text, job, graph, place);
    }
    if let Some(carried) = carried {
        checkpoint(&mut text, graph, carried);
    }
    for (phase, name) in [(Phase::Setup, "setup"), (Phase::Step, "step"), (Phase::Finish, "finish")] {
        let tasks = graph.tasks(phase);
        if tasks.is_empty() {
            continue;
        }
        let sent: u128 = tasks.iter().flat_map(|node| node.ops()).map(|op| sent(graph, op)).sum();
        let _ =
            writeln!(text, "  {name}: {}, {} sent", count(tasks.len() as u64, "task"), count(sent, "byte"));
        for (place, node) in tasks.iter().enumerate() {
            let parts = |member| verified.parts(graph.rank(), phase, place, member);
            task(&mut text, graph, node, &parts);
        }
    }
    text
}

/// What a checkpoint holds of a rank.
fn checkpoint(text: &mut String, graph: &TaskGraph, carried: &[bool]) {
    let held: Vec<&BufferDecl> =
        graph.buffers().iter().zip(carried).filter(|(_, carried)| **carried).map(|(decl, _)| decl).collect();
    let bytes: u128 = held.iter().map(|decl| u128::from(decl.bytes())).sum();
    let size = format!("{} in {}", count(bytes, "byte"), count(held.len() as u64, "buffer"));
    let names: Vec<&str> = held.iter().map(|decl| &*decl.name).collect();
    let colon = if names.is_empty() { "" } else { ": " };
    let _ = writeln!(text, "  checkpoint: {size}{colon}{}", names.join(", "));
}

fn buffer(text: &mut String, job: &Job<'_>, graph: &TaskGraph, place: usize) {
    let decl = &graph.buffers()[place];
    let mut notes = vec![format!("{}: {}", decl.name, array(decl.dtype.name(), &decl.shape, decl.bytes()))];
    match decl.upload {
        Upload::Never => {}
        Upload::First => notes.push("uploaded before the first step".to_string()),
        Upload::Every => notes.push("uploaded in every step".to_string()),
    }
    if decl.download == Download::Every {
        notes.push("downloaded in every step".to_string());
    }
    if let Some(save) = &job.manifest.buffers[place].save {
        let env = job.env(graph.rank());
        let writes = match &save.value.ranks {
            SaveRanks::Each | SaveRanks::Gather => true,
            SaveRanks::One(rank) => env.int(rank) == Some(graph.rank().into()),
        };
        let how = if matches!(save.value.ranks, SaveRanks::Gather) { "gathered in" } else { "saved to" };
        if writes {
            notes.push(format!("{how} `{}`", save.value.file.written()));
        }
    }
    let _ = writeln!(text, "    {}", notes.join(", "));
}

/// `parts` are those of the task's ops.
fn task<'p>(text: &mut String, graph: &TaskGraph, node: &Node, parts: &dyn Fn(usize) -> Option<&'p Parts>) {
    let name = &node.origin.name;
    match &node.body {
        Body::Kernel(task) => {
            let _ = writeln!(text, "    {name}: kernel `{}` on {}", task.kernel.name, grid(&task.grid));
            for (param, arg) in task.kernel.params.iter().zip(&task.args) {
                // The kernel's own word: an in-place form is described as one access of two parameters.
                let mode = match param.kind {
                    ParamKind::Buffer(mode, _) => Some(mode),
                    _ => Some(Mode::Read),
                };
                argument(text, graph, CommId::WORLD, "      ", param, arg, mode);
            }
        }
        Body::Swap(pair) => {
            let [a, b] =
                pair.map(|buffer| graph.buffers().get(buffer.0 as usize).map_or("?", |decl| &*decl.name));
            let _ = writeln!(text, "    {name}: swap {a} and {b}");
        }
        Body::Ops { ops, group: false } => {
            for one in ops {
                let head = op_head(graph.world(), graph.rank(), one, parts(0));
                let _ = writeln!(text, "    {name}: {head}");
                op_args(text, graph, one, "      ");
            }
        }
        Body::Ops { ops, group: true } => {
            let _ = writeln!(text, "    {name}: group of {}", count(ops.len() as u64, "op"));
            for (member, one) in ops.iter().enumerate() {
                let head = op_head(graph.world(), graph.rank(), one, parts(member));
                let _ = writeln!(text, "      {}: {head}", one.origin.name);
                op_args(text, graph, one, "        ");
            }
        }
    }
}

fn op_head(world: &World, rank: u32, task: &OpTask, parts: Option<&Parts>) -> String {
    let part = world.part(task.comm, rank);
    let mut head = format!("op `{}` by {}", task.op.name(), task.op.library());
    if let Some(served) = task.op.served_as(&task.args(part), parts) {
        head = format!("{head} {served}");
    }
    if let Some(part) = part.filter(|_| task.comm != CommId::WORLD) {
        let members: Vec<String> = part.members.iter().map(u32::to_string).collect();
        head = format!("{head} in `{}`, world ranks {}", world.name(task.comm), members.join(", "));
    }
    if !task.uses.is_empty() {
        let uses = task.uses.iter().map(|op| format!("`{}` by {}", op.name(), op.library()));
        head = format!("{head}, with {} inside", uses.collect::<Vec<_>>().join(" and "));
    }
    head
}

fn op_args(text: &mut String, graph: &TaskGraph, task: &OpTask, indent: &str) {
    for (param, arg) in task.op.params().iter().zip(&task.args) {
        let mode = touched(&task.description, param.name);
        argument(text, graph, task.comm, indent, param, arg, mode);
    }
}

/// What a task does with an argument on this rank; `None` if it leaves it alone.
fn touched(description: &Description, param: &str) -> Option<Mode> {
    let modes =
        || description.accesses.iter().filter(|access| access.param == param).map(|access| access.mode);
    match (modes().any(Mode::reads), modes().any(Mode::writes)) {
        (true, true) => Some(Mode::ReadWrite),
        (true, false) => Some(Mode::Read),
        (false, true) => Some(Mode::Write),
        (false, false) => None,
    }
}

fn argument(
    text: &mut String,
    graph: &TaskGraph,
    comm: CommId,
    indent: &str,
    param: &ParamDef,
    arg: &Arg,
    mode: Option<Mode>,
) {
    let value = match (arg, param.kind) {
        (Arg::Absent, _) => return,
        (Arg::Buffer(range), _) => {
            let mode = mode.map_or("untouched", Mode::name);
            format!("{}, {mode}", named_range(graph.buffers(), range))
        }
        (Arg::Scalar(number), _) => number.to_string(),
        (Arg::Size(size), _) => size.to_string(),
        (Arg::Word(index), ParamKind::Word(words)) => {
            words.get(*index as usize).copied().unwrap_or("?").to_string()
        }
        (Arg::Word(index), _) => index.to_string(),
        (Arg::Flag(flag), _) => flag.to_string(),
        (Arg::Rank(rank), _) => match graph.world().part(comm, graph.rank()) {
            Some(part) if comm != CommId::WORLD => match part.members.get(*rank as usize) {
                Some(of_world) => format!("{rank} (world rank {of_world})"),
                None => rank.to_string(),
            },
            _ => rank.to_string(),
        },
        (Arg::List(list), ParamKind::Matrix) => rows(list),
        (Arg::List(list), _) => format!("{list:?}"),
    };
    let _ = writeln!(text, "{indent}{} = {value}", param.name);
}

/// A square matrix; a large one by its size.
fn rows(list: &[i64]) -> String {
    const MOST: usize = 8;
    let size = list.len().isqrt();
    if size > MOST {
        return format!("{size} lists of {size}");
    }
    format!("{:?}", list.chunks(size.max(1)).collect::<Vec<_>>())
}

/// A range, with the buffer's name and the first of its elements unless it is the whole.
fn named_range(buffers: &[BufferDecl], range: &BufferRange) -> String {
    let bytes = range.len().saturating_mul(range.dtype.size());
    let what = array(range.dtype.name(), &range.shape, bytes);
    match buffers.get(range.buffer.0 as usize) {
        Some(decl) if range.offset == 0 && range.len() == decl.len() => format!("{}: {what}", decl.name),
        Some(decl) => format!("{} from element {}: {what}", decl.name, range.offset),
        None => what,
    }
}

fn array(dtype: &str, shape: &[u64], bytes: u64) -> String {
    format!("{dtype} {}, {}", Shape(shape), count(bytes, "byte"))
}

/// `4096 threads, 16 blocks of 256`; `64 x 32 threads, 4 x 2 blocks of 16 x 16`.
fn grid(grid: &Grid) -> String {
    let (threads, blocks, block) =
        (grid.threads(), grid.blocks().map(u64::from), grid.block().map(u64::from));
    // Axes behind the last that is longer than 1 say nothing.
    let axes = (1..=3).rev().find(|&axes| threads[axes - 1] > 1 || block[axes - 1] > 1).unwrap_or(1);
    let dims = |lengths: [u64; 3]| lengths[..axes].iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
    let plural = |lengths: [u64; 3]| if lengths == [1; 3] { "" } else { "s" };
    let (threads_s, blocks_s) = (plural(threads), plural(blocks));
    format!("{} thread{threads_s}, {} block{blocks_s} of {}", dims(threads), dims(blocks), dims(block))
}

/// Bytes that a rank gives to others in an op: of the elements that the op reads here. What a library moves for them may
/// be more, or less where ranks share memory.
fn sent(graph: &TaskGraph, task: &OpTask) -> u128 {
    if graph.world().part(task.comm, graph.rank()).is_none_or(|part| part.size() < 2) {
        return 0;
    }
    let read = task.description.accesses.iter().filter(|access| access.mode.reads());
    read.map(|access| {
        let size = graph.buffers().get(access.buffer.0 as usize).map_or(0, |decl| decl.dtype.size());
        u128::from(access.range.end - access.range.start) * u128::from(size)
    })
    .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_runs() {
        assert_eq!(numbers(&[3]), "rank 3");
        assert_eq!(numbers(&[0, 2, 3, 4, 9, 10]), "ranks 0, 2..5, 9..11");
    }

    #[test]
    fn grids_have_as_many_axes_as_they_need() {
        let words = |threads, block| grid(&Grid::new(threads, block).unwrap());
        assert_eq!(words([4096, 1, 1], [256, 1, 1]), "4096 threads, 16 blocks of 256");
        assert_eq!(words([64, 20, 1], [16, 16, 1]), "64 x 20 threads, 4 x 2 blocks of 16 x 16");
        assert_eq!(words([1, 1, 1], [1, 1, 1]), "1 thread, 1 block of 1");
    }
}
