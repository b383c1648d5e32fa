//! Whether a buffer provably holds the same on all ranks: `save` with a `rank` then writes what every rank has.
//!
//! Every rank is run in the abstract: a buffer holds a number that stands for how its value came about. Two ranks whose
//! numbers for a buffer are equal have equal values, since the same kernel with the same arguments on the same values gives
//! the same, and so do the collectives of the world that leave one result everywhere. What else comes from other ranks
//! is taken to differ. Steps are run until what is equal at the start of one is equal at its end.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use squall_core::graph::{Body, Node};
use squall_core::{Access, Arg, BufferId, Diagnostic, Label, Phase, TaskGraph, Upload};

use super::Job;
use crate::codes;
use crate::expr::NoEnv;
use crate::manifest::model::{Buffer, DataFile, FeedEnd, Init, Part, SaveRanks};
use crate::manifest::place::Formula;

/// A warning for each buffer that one rank saves after a kernel of all ranks wrote it, if the others' may hold something else.
pub(super) fn check(job: &Job<'_>) -> Vec<Diagnostic> {
    let saved = |buffer: &Buffer| {
        let save = buffer.save.as_ref()?;
        // Any other rank was chosen, such as the last one of a pipeline.
        let first = matches!(&save.value.ranks, SaveRanks::One(rank) if rank.eval_int(&NoEnv) == Ok(0));
        first.then_some(save.value.file.place.span())
    };
    let buffers = job.manifest.buffers.iter().enumerate();
    let mut saves = buffers.filter_map(|(place, buffer)| Some((place, saved(buffer)?))).peekable();
    if job.world.size() == 1 || saves.peek().is_none() {
        return Vec::new();
    }
    let equal = Ranks::of(job).equal_at_end();
    let warning = |(place, span)| {
        if equal[place] {
            return None;
        }
        let writer = same_kernel(&job.graphs, place)?;
        let name = &job.manifest.buffers[place].name.value;
        let message = format!("one rank's `{name}` is saved, and the ranks may hold different values of it");
        let help = format!(
            "if all ranks are to have the same, let an `all_reduce` or a `broadcast` between all ranks write `{name}` or what it is worked out from; else save each rank's, with `{{rank}}` in the name or `gather = true`"
        );
        let related = Label::at(writer.origin.span, "last written here, by every rank its own")
            .in_task(&writer.origin.name);
        let report = Diagnostic::warning(codes::UNPROVEN_SAVE, message, Label::at(span, ""));
        Some(report.with_related(related).with_help(help))
    };
    saves.filter_map(warning).collect()
}

/// The kernel task that writes a buffer last, if it is the same on all ranks that have the buffer: then they were meant to do
/// the same. A rank that alone receives or works something out is meant to differ.
fn same_kernel(graphs: &[TaskGraph], place: usize) -> Option<&Arc<Node>> {
    let mut found: Option<&Arc<Node>> = None;
    for graph in graphs.iter().filter(|graph| graph.uses()[place]) {
        let phases = [Phase::Finish, Phase::Step, Phase::Setup];
        let mut nodes = phases.into_iter().flat_map(|phase| graph.tasks(phase).iter().rev());
        let mut name = BufferId(place as u32);
        let last = nodes.find(|node| {
            name = node.before(name);
            node.writes().any(|access| access.buffer == name)
        })?;
        if !matches!(last.body, Body::Kernel(_)) || found.is_some_and(|other| other.origin != last.origin) {
            return None;
        }
        found = Some(last);
    }
    found
}

/// How a value came about.
type Value = u64;

fn number(parts: impl Hash) -> Value {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// How the elements of a buffer came about: ranges of one origin each, in order, side by side. What one origin gave may
/// differ between elements; between ranks it is the same for each of them.
#[derive(Clone, PartialEq, Eq)]
struct Pieces(Vec<(Range<u64>, Value)>);

impl Pieces {
    fn whole(len: u64, value: Value) -> Pieces {
        Pieces(vec![(0..len, value)])
    }

    /// The pieces of a range.
    fn read(&self, range: &Range<u64>) -> Vec<(Range<u64>, Value)> {
        let clipped = self
            .0
            .iter()
            .map(|(piece, value)| (piece.start.max(range.start)..piece.end.min(range.end), *value));
        clipped.filter(|(piece, _)| !piece.is_empty()).collect()
    }

    fn write(&mut self, range: &Range<u64>, value: Value) {
        if range.is_empty() {
            return;
        }
        let end = self.0.last().map_or(0, |(last, _)| last.end);
        let mut pieces = self.read(&(0..range.start));
        for piece in [(range.clone(), value)].into_iter().chain(self.read(&(range.end..end))) {
            match pieces.last_mut() {
                // Two ranks must not differ by where one origin was cut.
                Some((last, origin)) if *origin == piece.1 => last.end = piece.0.end,
                _ => pieces.push(piece),
            }
        }
        self.0 = pieces;
    }
}

/// All ranks in the abstract.
struct Ranks<'a> {
    job: &'a Job<'a>,
    /// Of each rank, its buffers.
    values: Vec<Vec<Pieces>>,
    /// Of each rank, which buffers it has.
    uses: Vec<Vec<bool>>,
    /// What tasks do, apart from the values they meet: worked out once for a node, which ranks share.
    tasks: HashMap<*const Node, Value>,
}

impl<'a> Ranks<'a> {
    /// All ranks before setup.
    fn of(job: &'a Job<'a>) -> Ranks<'a> {
        let buffers = job.manifest.buffers.len();
        let values =
            job.graphs.iter().map(|graph| (0..buffers).map(|place| contents(job, graph, place)).collect());
        let uses = job.graphs.iter().map(TaskGraph::uses).collect();
        Ranks { job, values: values.collect(), uses, tasks: HashMap::new() }
    }

    /// Of each buffer, whether all ranks that have it hold the same after the finish, however many steps there are.
    fn equal_at_end(mut self) -> Vec<bool> {
        self.run(Phase::Setup);
        let mut equal = self.equal();
        loop {
            for (values, graph) in self.values.iter_mut().zip(&self.job.graphs) {
                for (place, value) in values.iter_mut().enumerate() {
                    let decl = &graph.buffers()[place];
                    *value = match decl.upload {
                        Upload::Every => contents(self.job, graph, place),
                        _ => {
                            let before = ("before the step", place, (!equal[place]).then_some(graph.rank()));
                            Pieces::whole(decl.len(), number(before))
                        }
                    };
                }
            }
            self.run(Phase::Step);
            let after = self.equal();
            let both: Vec<bool> = equal.iter().zip(&after).map(|(before, after)| *before && *after).collect();
            if both == equal {
                break;
            }
            equal = both;
        }
        self.run(Phase::Finish);
        self.equal()
    }

    /// Of each buffer, whether all ranks that have it hold the same.
    fn equal(&self) -> Vec<bool> {
        let one = |place: usize| {
            let ranks = self.values.iter().zip(&self.uses).filter(|(_, uses)| uses[place]);
            let mut values = ranks.map(|(values, _)| &values[place]);
            values.next().is_none_or(|first| values.all(|value| value == first))
        };
        (0..self.job.manifest.buffers.len()).map(one).collect()
    }

    fn run(&mut self, phase: Phase) {
        let job = self.job;
        for (graph, values) in job.graphs.iter().zip(&mut self.values) {
            // How many tasks have come that leave the same everywhere: verified to be the same ones on all ranks.
            let mut agreements = 0;
            for node in graph.tasks(phase) {
                let task = *self.tasks.entry(Arc::as_ptr(node)).or_insert_with(|| work(node));
                run_task(graph, phase, node, task, values, &mut agreements);
            }
        }
    }
}

/// What a task does with whatever values.
fn work(node: &Node) -> Value {
    match &node.body {
        Body::Kernel(task) => {
            let args = task.args.iter().map(|arg| match arg {
                // Its value is looked at when it is read; which buffer it is in makes no difference.
                Arg::Buffer(range) => format!("{} {:?}", range.offset, range.shape),
                other => format!("{other:?}"),
            });
            number((task.kernel.name, args.collect::<Vec<_>>()))
        }
        Body::Ops { .. } | Body::Swap(_) => number(&node.origin.name),
    }
}

fn run_task(
    graph: &TaskGraph,
    phase: Phase,
    node: &Arc<Node>,
    task: Value,
    values: &mut [Pieces],
    agreements: &mut u64,
) {
    // All of a task's reads come before its writes.
    let accesses: Vec<&Access> = match &node.body {
        Body::Kernel(task) => task.description.accesses.iter().collect(),
        Body::Ops { ops, .. } => ops.iter().flat_map(|op| &op.description.accesses).collect(),
        // Numbers are kept by name.
        Body::Swap([a, b]) => return values.swap(a.0 as usize, b.0 as usize),
    };
    let read = accesses.into_iter().filter(|access| access.mode.reads());
    let read = read.map(|access| (access.param, values[access.buffer.0 as usize].read(&access.range)));
    let result = number((task, read.collect::<Vec<_>>()));
    if let Body::Kernel(task) = &node.body {
        for access in task.description.accesses.iter().filter(|access| access.mode.writes()) {
            values[access.buffer.0 as usize].write(&access.range, number((result, access.param)));
        }
    }
    for op in node.ops() {
        if let Some(range) = graph.agreement(op) {
            *agreements += 1;
            let agreed = number(("agreed", phase as u8, *agreements));
            values[range.buffer.0 as usize].write(&(range.offset..range.offset + range.len()), agreed);
            continue;
        }
        for access in op.description.accesses.iter().filter(|access| access.mode.writes()) {
            let own = number(("from others", result, access.param, graph.rank()));
            values[access.buffer.0 as usize].write(&access.range, own);
        }
    }
}

/// What the host gives a buffer.
fn contents(job: &Job<'_>, graph: &TaskGraph, place: usize) -> Pieces {
    let (buffer, decl) = (&job.manifest.buffers[place], &graph.buffers()[place]);
    let own = decl.upload != Upload::Never && of_rank(job, buffer);
    Pieces::whole(decl.len(), number((place, decl.shape.to_vec(), own.then_some(graph.rank()))))
}

/// Whether what the host gives a buffer differs between ranks, even if its shape does not.
fn of_rank(job: &Job<'_>, buffer: &Buffer) -> bool {
    let depends = |formula: &Formula| job.symbols.depends_on_rank(formula);
    let file = |file: &DataFile| {
        file.name.depends_on_rank()
            || match &file.part {
                Part::Whole => false,
                Part::Rows => true,
                Part::Slice(ranges) => ranges.value.iter().any(|r| r.start.iter().chain(&r.end).any(depends)),
            }
    };
    if let Some(feed) = &buffer.feed {
        let pad = matches!(&feed.value.end, FeedEnd::Pad(Some(pad)) if depends(pad));
        return file(&feed.value.file) || pad;
    }
    match buffer.init.as_ref().map(|init| &init.value) {
        None | Some(Init::Iota) => false,
        Some(Init::Fill(formula)) => depends(formula),
        Some(Init::Values(formulas)) => formulas.iter().any(depends),
        Some(Init::Uniform { .. } | Init::Normal { .. }) => true,
        Some(Init::Npy(npy)) => file(npy),
        Some(Init::Safetensors { file: tensors, tensor }) => file(tensors) || tensor.depends_on_rank(),
    }
}
