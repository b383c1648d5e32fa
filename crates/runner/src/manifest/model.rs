//! The manifest as a typed tree, each leaf with its place. What was wrong with the text is not in here: a
//! [`Manifest`] exists only where the text had no error.

use std::time::Duration;

use squall_core::{DType, Span};

use super::devices::Devices;
use super::names::Names;
use super::place::{At, Formula, FormulaError, Text};
use super::template::Template;
use crate::expr::{Env, Value};

/// A whole manifest.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// `[pipeline]`.
    pub pipeline: Pipeline,
    /// `[[plugin]]`, to be loaded with [`crate::plugin::load`].
    pub plugins: Vec<Plugin>,
    /// `[params]`, in file order, as every list here.
    pub params: Vec<Param>,
    /// `[world]`.
    pub world: World,
    /// `[communicator.NAME]`.
    pub communicators: Vec<Communicator>,
    /// `[buffer.NAME]`.
    pub buffers: Vec<Buffer>,
    /// `[[setup]]`: tasks before the first step.
    pub setup: Vec<Task>,
    /// `[[task]]`: the tasks of a step.
    pub tasks: Vec<Task>,
    /// `[[finish]]`: tasks after the last step.
    pub finish: Vec<Task>,
    /// `[[watch]]`.
    pub watches: Vec<Watch>,
    /// `[checkpoint]`.
    pub checkpoint: Option<Checkpoint>,
    /// What each name stands for.
    pub names: Names,
}

/// `[pipeline]`.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// `name`.
    pub name: Option<At<String>>,
    /// `steps`, at least 1; default 1. Without meaning where there are `epochs`.
    pub steps: At<u64>,
    /// `epochs`, at least 1: as many steps as the feeds need for them, in place of `steps`.
    pub epochs: Option<At<u64>>,
    /// `stop_when` and `stop_every`.
    pub stop: Option<Stop>,
    /// `step_timeout`; default 60 s.
    pub step_timeout: At<Duration>,
    /// `init_timeout`; default 60 s.
    pub init_timeout: At<Duration>,
    /// `cuda_graph`; default false.
    pub cuda_graph: At<bool>,
    /// `block`: one to three dimensions, the block of the kernel tasks that name none.
    pub block: Option<At<Vec<Formula>>>,
    /// `seed`; default 0.
    pub seed: At<u64>,
}

/// `stop_when`: a condition on which the run ends before its last step.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The condition, over params and one-element buffers.
    pub when: Formula,
    /// The condition as written.
    pub text: String,
    /// `stop_every`, at least 1: it is judged after each so many steps; default 10.
    pub every: At<u64>,
}

/// An entry of `[params]`.
#[derive(Clone, Debug)]
pub struct Param {
    /// Its name.
    pub name: At<String>,
    /// Its value.
    pub value: ParamValue,
}

/// The value of a [`Param`], or an item of one.
#[derive(Clone, Debug)]
pub enum ParamValue {
    /// A number, a boolean or an expression.
    Formula(Formula),
    /// A TOML array.
    List(Vec<ParamValue>),
}

impl ParamValue {
    /// The value in one rank's surroundings.
    pub fn eval(&self, env: &dyn Env) -> Result<Value, FormulaError> {
        match self {
            ParamValue::Formula(formula) => formula.eval(env),
            ParamValue::List(items) => {
                Ok(Value::List(items.iter().map(|item| item.eval(env)).collect::<Result<_, _>>()?))
            }
        }
    }

    /// How many arrays stand in each other.
    pub(crate) fn lists(&self) -> usize {
        match self {
            ParamValue::Formula(_) => 0,
            ParamValue::List(items) => 1 + items.iter().map(ParamValue::lists).max().unwrap_or(0),
        }
    }

    /// Calls `visit` with each expression.
    pub(crate) fn formulas<'m>(&'m self, visit: &mut dyn FnMut(&'m Formula)) {
        match self {
            ParamValue::Formula(formula) => visit(formula),
            ParamValue::List(items) => items.iter().for_each(|item| item.formulas(visit)),
        }
    }
}

/// `[world]`.
#[derive(Clone, Debug)]
pub struct World {
    /// `devices`; default `"auto"`.
    pub devices: At<Devices>,
    /// `require`: what must hold on every rank.
    pub require: Vec<Requirement>,
    /// `mesh`; the world as a grid of ranks.
    pub mesh: Option<Mesh>,
}

/// A condition of `require`.
#[derive(Clone, Debug)]
pub struct Requirement {
    /// As it is written.
    pub text: String,
    /// The condition.
    pub condition: Formula,
}

/// `mesh`: the ranks as places of a grid, row-major. Each axis is a communicator: the ranks that differ in it alone.
#[derive(Clone, Debug)]
pub struct Mesh {
    /// The whole array.
    pub span: Span,
    /// The axes, the last one fastest; at least one.
    pub axes: Vec<Axis>,
}

/// An axis of a [`Mesh`].
#[derive(Clone, Debug)]
pub struct Axis {
    /// Its name, which is the communicator's.
    pub name: At<String>,
    /// How long it is: the same on all ranks, at least 1.
    pub size: Formula,
}

/// `[communicator.NAME]`.
#[derive(Clone, Debug)]
pub struct Communicator {
    /// Its name.
    pub name: At<String>,
    /// `color`: ranks of one colour form one communicator.
    pub color: Formula,
    /// `key`: their order; default the rank.
    pub key: Option<Formula>,
}

/// `[buffer.NAME]`.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Its name.
    pub name: At<String>,
    /// `dtype`.
    pub dtype: At<DType>,
    /// `shape`: one expression an axis, row-major; none for a single element.
    pub shape: At<Vec<Formula>>,
    /// `init`; undefined if left out.
    pub init: Option<At<Init>>,
    /// `feed`.
    pub feed: Option<At<Feed>>,
    /// `upload`; default `first`.
    pub upload: At<Upload>,
    /// `download`; default `never`.
    pub download: At<Download>,
    /// `save`.
    pub save: Option<At<Save>>,
}

/// What a buffer holds before the first step.
#[derive(Clone, Debug)]
pub enum Init {
    /// `fill`: an expression in which `i` is the element's index.
    Fill(Formula),
    /// `values`: one an element.
    Values(Vec<Formula>),
    /// `iota = true`: each element's index.
    Iota,
    /// `random = { low, high }`: uniform in `low..high`.
    Uniform {
        /// The least value.
        low: Formula,
        /// The greatest value, excluded.
        high: Formula,
    },
    /// `random = { mean, std }`: normally distributed.
    Normal {
        /// The mean.
        mean: Formula,
        /// The standard deviation.
        std: Formula,
    },
    /// `npy`: an array file.
    Npy(DataFile),
    /// `safetensors` and `tensor`.
    Safetensors {
        /// The file.
        file: DataFile,
        /// The tensor's name; `{rank}` stands for the rank here too.
        tensor: Template,
    },
}

/// An array in a file, and what a rank takes of it.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// The file's name.
    pub name: Template,
    /// What a rank takes.
    pub part: Part,
    /// `convert`: whether elements of another dtype become the buffer's; default false.
    pub convert: bool,
}

/// What a rank takes of a file.
#[derive(Clone, Debug)]
pub enum Part {
    /// All of it.
    Whole,
    /// `shard = "rows"`: its share of the first axis.
    Rows,
    /// `slice`: a range along each axis, from the first; the others whole.
    Slice(At<Vec<SliceRange>>),
}

/// A range along one axis of a file.
#[derive(Clone, Debug)]
pub struct SliceRange {
    /// The first place; 0 if left out.
    pub start: Option<Formula>,
    /// One past the last place; the axis's length if left out.
    pub end: Option<Formula>,
    /// Where it stands.
    pub span: Span,
}

/// `feed`: each step the next rows of a file.
#[derive(Clone, Debug)]
pub struct Feed {
    /// `npy`, and what a rank takes of it.
    pub file: DataFile,
    /// `shuffle`: whether every epoch has an order of its own; default false.
    pub shuffle: bool,
    /// `end`; default `wrap`.
    pub end: FeedEnd,
}

/// What a feed does where its rows end.
#[derive(Clone, Debug)]
pub enum FeedEnd {
    /// Begins again, in the middle of a batch too.
    Wrap,
    /// Leaves out the last, short batch; after the last epoch the run ends.
    Stop,
    /// Fills the last batch up with this value; 0 if left out.
    Pad(Option<Formula>),
}

/// When a buffer goes from the host to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// Before the first step.
    First,
    /// Before every step.
    Every,
    /// Not at all.
    Never,
}

/// When a buffer goes from the device to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Download {
    /// Not at all, unless `save` or a watch needs it.
    Never,
    /// After every step.
    Every,
    /// After the last step.
    Last,
}

/// `save`: the file a buffer is written to after the last step.
#[derive(Clone, Debug)]
pub struct Save {
    /// The file's format.
    pub format: SaveFormat,
    /// The file's name.
    pub file: Template,
    /// Who writes.
    pub ranks: SaveRanks,
}

/// The format of a saved file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveFormat {
    /// NumPy's array file.
    Npy,
    /// A grey picture of a 2-D buffer.
    Png,
}

/// Which ranks' buffers are saved.
#[derive(Clone, Debug)]
pub enum SaveRanks {
    /// Each rank writes its own file.
    Each,
    /// `rank`: one rank writes.
    One(Formula),
    /// `gather = true`: all ranks' buffers in one file, in rank order.
    Gather,
}

/// A task of `[[setup]]`, `[[task]]` or `[[finish]]`.
#[derive(Clone, Debug)]
pub struct Task {
    /// `name`.
    pub name: Option<At<String>>,
    /// The task's header.
    pub span: Span,
    /// `for`: unrolled when the manifest is resolved.
    pub repeat: Option<Loop>,
    /// `when`: the ranks that have the task, evaluated once a round of the loop; all if left out.
    pub when: Option<Formula>,
    /// What it does.
    pub body: Body,
}

/// What a task does.
#[derive(Clone, Debug)]
pub enum Body {
    /// `kernel`.
    Kernel(KernelCall),
    /// `op`.
    Op(OpCall),
    /// `group`.
    Group(Group),
    /// `swap`.
    Swap(Swap),
    /// `do`: tasks one after another, at least one. Their names are unique among them, and known nowhere else.
    Do(Vec<Task>),
}

/// A kernel with its arguments and its grid.
#[derive(Clone, Debug)]
pub struct KernelCall {
    /// `kernel`: the kernel's name.
    pub kernel: At<String>,
    /// `args`.
    pub args: Args,
    /// `grid`.
    pub grid: Grid,
}

/// A library op with its arguments.
#[derive(Clone, Debug)]
pub struct OpCall {
    /// `op`: the contract's name.
    pub op: At<String>,
    /// `library`: who serves it; the device's default if left out. None in a group's entry, whose group has it.
    pub library: Option<At<String>>,
    /// `args`.
    pub args: Args,
}

/// Ops issued together.
#[derive(Clone, Debug)]
pub struct Group {
    /// `library`: who serves all of them.
    pub library: Option<At<String>>,
    /// The ops, in order.
    pub entries: Vec<GroupEntry>,
}

/// A renaming of two buffers.
#[derive(Clone, Debug)]
pub struct Swap {
    /// The list of the two.
    pub span: Span,
    /// Their names.
    pub names: [At<String>; 2],
}

/// An op of a group.
#[derive(Clone, Debug)]
pub struct GroupEntry {
    /// The entry's table.
    pub span: Span,
    /// `for`: unrolled when the manifest is resolved.
    pub repeat: Option<Loop>,
    /// `when`: evaluated once a round of the loop.
    pub when: Option<Formula>,
    /// The op.
    pub call: OpCall,
}

/// `for`: the loop variable takes each integer of `start..end`.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The loop variable.
    pub variable: At<String>,
    /// The first value; 0 if left out.
    pub start: Option<Formula>,
    /// One past the last value.
    pub end: Formula,
}

/// Arguments as written, in file order. What each one is, the kernel's or the op's descriptor says.
#[derive(Clone, Debug)]
pub struct Args {
    /// The table, or the task's header where there is none.
    pub span: Span,
    /// One an argument; no name twice.
    pub items: Vec<Arg>,
}

impl Args {
    /// The argument of this name.
    pub fn get(&self, name: &str) -> Option<&Arg> {
        self.items.iter().find(|arg| arg.name.value == name)
    }
}

/// An argument.
#[derive(Clone, Debug)]
pub struct Arg {
    /// Its name.
    pub name: At<String>,
    /// Its value.
    pub value: ArgValue,
}

/// The value of an [`Arg`], or an item of one.
#[derive(Clone, Debug)]
pub enum ArgValue {
    /// A number or a boolean.
    Literal(Value, Span),
    /// A string: an expression, a buffer's range or a word.
    Text(Text),
    /// A TOML array.
    List(Vec<ArgValue>, Span),
}

impl ArgValue {
    /// Where it stands.
    pub fn span(&self) -> Span {
        match self {
            ArgValue::Literal(_, span) | ArgValue::List(_, span) => *span,
            ArgValue::Text(text) => text.place.span(),
        }
    }

    /// Reads a number, a boolean or a string as an expression; `None` of a list.
    pub fn formula(&self) -> Option<Result<Formula, FormulaError>> {
        match self {
            ArgValue::Literal(value, span) => Some(Ok(Formula::literal(value.clone(), *span))),
            ArgValue::Text(text) => Some(text.formula()),
            ArgValue::List(..) => None,
        }
    }
}

/// `grid`: how many threads a kernel gets.
#[derive(Clone, Debug)]
pub struct Grid {
    /// The threads that there is work for: one to three dimensions, the fastest first.
    pub threads: At<Vec<Formula>>,
    /// The threads of a block; `[pipeline] block` if left out, and then that one is given.
    pub block: Option<At<Vec<Formula>>>,
}

/// `[[watch]]`: a value shown while running.
#[derive(Clone, Debug)]
pub struct Watch {
    /// `name`; no other watch has it.
    pub name: At<String>,
    /// `value`: an expression over params and one-element buffers.
    pub value: Formula,
    /// `every`; default `"end"`.
    pub every: At<WatchEvery>,
    /// `rank`: where it is read; default 0.
    pub rank: Option<Formula>,
}

/// When a watched value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvery {
    /// Once, at the end.
    End,
    /// After each so many steps; at least 1.
    Steps(u64),
}

/// `[[plugin]]`: a dynamic library that brings kernels and ops.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// `path`: the file, relative to the manifest's folder.
    pub path: At<String>,
    /// `sha256`: of its bytes, 64 hexadecimal digits.
    pub sha256: Option<At<String>>,
}

/// `[checkpoint]`: what a run that is stopped goes on from.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// `dir`: the folder of the checkpoints.
    pub dir: At<String>,
    /// `every`: steps from one to the next, at least 1.
    pub every: At<u64>,
    /// `keep`: how many there are at most, at least 1; default 2.
    pub keep: At<u64>,
}

impl Manifest {
    /// The pipeline's name; `pipeline` where it has none.
    pub fn name(&self) -> &str {
        self.pipeline.name.as_ref().map_or("pipeline", |name| &name.value)
    }
}
