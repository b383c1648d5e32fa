//! Tasks: read once into templates, then unrolled and made for every rank.

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use squall_core::graph::{
    ArgValue, GraphBuilder, GroupSpec, KernelSpec, Node, OpSpec, Origin, Phase, SwapSpec, TaskSpec,
};
use squall_core::{BufferDecl, BufferId, CommId, Diagnostic, KernelDef, Label, Registry, World};

use super::args::Argument;
use super::env::{RankEnv, WithIndex};
use super::names::Symbols;
use crate::codes;
use crate::expr::Env;
use crate::manifest::model::Loop;
use crate::manifest::place::Formula;

type Problems = std::cell::RefCell<Vec<Diagnostic>>;

/// The tasks of a manifest, ready to be made for any rank.
pub(super) struct Tasks<'m> {
    /// Phase by phase in file order.
    templates: Vec<Template<'m>>,
    /// Whether the loops of one rank came to too much, which is told once.
    too_many: bool,
    /// The names of tasks that were left out on some ranks, since others had told what is wrong with them.
    given_up: BTreeSet<String>,
}

impl<'m> Tasks<'m> {
    /// Reads all tasks, as far as that needs no rank.
    pub(super) fn read(
        symbols: &Symbols<'m>,
        registry: &Registry,
        world: &World,
        device: &str,
        problems: &Problems,
    ) -> Tasks<'m> {
        Tasks {
            templates: read::templates(symbols, registry, world, device, problems),
            too_many: false,
            given_up: BTreeSet::new(),
        }
    }

    /// Adds the tasks that a rank has to its graph.
    pub(super) fn make(&mut self, rank: &RankEnv<'_>, builder: &mut GraphBuilder<'_>, problems: &Problems) {
        let Tasks { templates, too_many, given_up } = self;
        let mut unrolling = Unrolling {
            rank,
            builder,
            problems,
            path: String::new(),
            variables: Vec::new(),
            tasks: 0,
            entries: 0,
            too_many,
            given_up,
        };
        templates.iter_mut().for_each(|template| template.unroll(&mut unrolling));
    }

    /// The names of tasks that were left out on some ranks, since others had told what is wrong with them.
    pub(super) fn into_given_up(self) -> BTreeSet<String> {
        self.given_up
    }
}

/// The most tasks that the loops of a rank's tasks may come to.
const MAX_TASKS: u64 = 100_000;
/// The most rounds of a loop in a group: an exchange with every rank of a world larger than any that is.
const MAX_ROUNDS: u64 = 1 << 17;
/// The most rounds of all loops in a rank's groups: such an exchange both ways.
const MAX_ENTRIES: u64 = 2 * MAX_ROUNDS;

/// A task, or a loop of tasks, of the manifest.
struct Template<'m> {
    phase: Phase,
    /// The task's own name, or what it has for one.
    segment: String,
    repeat: Option<&'m Loop>,
    when: Option<&'m Formula>,
    body: Made<'m>,
    /// Whether its arguments depend on the rank.
    depends: bool,
    /// What all its rounds have in common.
    origin: Origin,
    /// What was made of it, by the values of the loops' variables.
    instances: BTreeMap<Box<[i64]>, Instance>,
    /// How often it could not be made. The first few tell what is wrong.
    failed: u32,
    /// The rank where that was last.
    failed_on: u32,
}

/// A task as it stands in graphs.
struct Instance {
    origin: Arc<Origin>,
    /// The origins of a group's entries.
    members: Vec<Arc<Origin>>,
    /// What was made last, and the buffers it was made over.
    last: Option<(Arc<Node>, Arc<Vec<BufferDecl>>)>,
}

enum Made<'m> {
    /// What could not be read, which is reported.
    Unread,
    Kernel {
        kernel: &'static KernelDef,
        args: Vec<Argument<'m>>,
        threads: &'m [Formula],
        block: &'m [Formula],
    },
    Op(Op<'m>),
    Group(Vec<Member<'m>>),
    Swap([BufferId; 2]),
    Do(Vec<Template<'m>>),
}

struct Op<'m> {
    name: &'m str,
    library: Option<&'m str>,
    comm: CommId,
    args: Vec<Argument<'m>>,
}

struct Member<'m> {
    origin: Origin,
    repeat: Option<&'m Loop>,
    when: Option<&'m Formula>,
    op: Op<'m>,
}

/// Where the unrolling of a rank's tasks stands.
struct Unrolling<'u, 'b, 'm> {
    rank: &'u RankEnv<'u>,
    builder: &'u mut GraphBuilder<'b>,
    problems: &'u Problems,
    /// The name of the task that is looked at: `micro[2].send`.
    path: String,
    /// The variables of the loops around, the outermost first.
    variables: Vec<(&'m str, i64)>,
    /// How many tasks and entries the loops came to on this rank.
    tasks: u64,
    entries: u64,
    too_many: &'u mut bool,
    given_up: &'u mut BTreeSet<String>,
}

impl<'m> Unrolling<'_, '_, 'm> {
    /// The values that a loop's variable takes; `None` after a report.
    fn values(&mut self, repeat: &Loop, width: usize) -> Option<std::ops::Range<i64>> {
        let env = WithIndex::new(self.rank, &self.variables);
        let int = |formula: &Formula| self.rank.kept_in(&self.path, formula.eval_int(&env));
        let start = repeat.start.as_ref().map_or(Some(0), int)?;
        let end = int(&repeat.end)?;
        if *self.too_many {
            return None;
        }
        let rounds = if end > start { end.abs_diff(start) } else { 0 };
        self.tasks = self.tasks.saturating_add(rounds.saturating_mul(width as u64));
        if self.tasks > MAX_TASKS {
            *self.too_many = true;
            let message = format!("the loops of the tasks come to more than {MAX_TASKS} tasks on a rank");
            let label = Label::at(repeat.end.place.span(), format!("{rounds} rounds here"))
                .on_rank(self.rank.rank())
                .in_task(&self.path);
            let help = "let a task or an op do more at once, over a longer range";
            self.report(Diagnostic::error(codes::UNROLLED, message, label).with_help(help));
            return None;
        }
        Some(start..end)
    }

    fn report(&self, problem: Diagnostic) {
        self.problems.borrow_mut().push(problem);
    }
}

impl<'m> Template<'m> {
    /// Makes the task for a rank, once a round of its loop.
    fn unroll(&mut self, unrolling: &mut Unrolling<'_, '_, 'm>) {
        let outer = unrolling.path.len();
        if outer > 0 {
            unrolling.path.push('.');
        }
        unrolling.path.push_str(&self.segment);
        match self.repeat {
            None => self.round(unrolling),
            Some(_) if self.is_given_up(unrolling.rank.rank()) => self.give_up(unrolling),
            Some(repeat) => {
                let width = if let Made::Do(tasks) = &self.body { tasks.len() } else { 1 };
                match unrolling.values(repeat, width) {
                    Some(values) => self.rounds(&repeat.variable.value, values, unrolling),
                    None => self.fail(unrolling),
                }
            }
        }
        unrolling.path.truncate(outer);
    }

    fn rounds(
        &mut self,
        variable: &'m str,
        values: std::ops::Range<i64>,
        unrolling: &mut Unrolling<'_, '_, 'm>,
    ) {
        let outer = unrolling.path.len();
        for value in values {
            let _ = write!(unrolling.path, "[{value}]"); // a string takes all
            unrolling.variables.push((variable, value));
            self.round(unrolling);
            unrolling.variables.pop();
            unrolling.path.truncate(outer);
        }
    }

    /// One round, or all there is of a task without a loop.
    fn round(&mut self, unrolling: &mut Unrolling<'_, '_, 'm>) {
        if self.is_given_up(unrolling.rank.rank()) {
            return self.give_up(unrolling);
        }
        let rank = unrolling.rank;
        let env = WithIndex::new(rank, &unrolling.variables);
        match self.when.map(|when| rank.kept_in(&unrolling.path, when.eval_bool(&env))) {
            Some(Some(false)) => return,
            Some(None) => return self.fail(unrolling),
            Some(Some(true)) | None => {}
        }
        match &mut self.body {
            Made::Do(tasks) => tasks.iter_mut().for_each(|task| task.unroll(unrolling)),
            _ => self.task(unrolling),
        }
    }

    /// Adds the task to the rank's graph.
    fn task(&mut self, unrolling: &mut Unrolling<'_, '_, 'm>) {
        let Template { phase, body, depends, origin, instances, .. } = self;
        let key: Vec<i64> = unrolling.variables.iter().map(|(_, value)| *value).collect();
        let instance = match instances.get_mut(key.as_slice()) {
            Some(instance) => instance,
            None => {
                let instance = Instance::new(&unrolling.path, origin, body);
                instances.entry(key.into()).or_insert(instance)
            }
        };
        if !*depends
            && let Some((node, buffers)) = &instance.last
            && unrolling.builder.share(*phase, node, buffers)
        {
            return;
        }
        let found = unrolling.builder.problems();
        let Some(spec) = body.spec(instance, unrolling) else {
            return self.fail(unrolling);
        };
        match unrolling.builder.add(*phase, spec) {
            Some(node) => instance.last = Some((node, unrolling.builder.buffers().clone())),
            None if unrolling.builder.problems() > found => self.fail(unrolling),
            None => {} // nothing to run on this rank
        }
    }

    /// What failed on a few ranks is told; more of the same would only cost time. A loop is left out as a whole on the
    /// ranks behind the one that told of what is in it.
    fn is_given_up(&self, rank: u32) -> bool {
        const TOLD: u32 = 4;
        let told = |task: &Template<'_>| task.failed_on != rank && task.is_given_up(rank);
        self.failed >= TOLD
            || self.failed > 0 && !self.depends && self.failed_on != rank
            || matches!(&self.body, Made::Do(tasks) if tasks.iter().any(told))
    }

    fn give_up(&self, unrolling: &mut Unrolling<'_, '_, 'm>) {
        unrolling.given_up.insert(unrolling.path.clone());
        self.leave_out(unrolling);
    }

    fn fail(&mut self, unrolling: &mut Unrolling<'_, '_, 'm>) {
        self.failed += 1;
        self.failed_on = unrolling.rank.rank();
        self.leave_out(unrolling);
    }

    /// Notes in a rank's graph that the task is missing, with all that it may do.
    fn leave_out(&self, unrolling: &mut Unrolling<'_, '_, 'm>) {
        let ops: Vec<&Op<'_>> = match &self.body {
            Made::Unread | Made::Kernel { .. } | Made::Swap(_) => Vec::new(),
            Made::Op(op) => vec![op],
            Made::Group(members) => members.iter().map(|member| &member.op).collect(),
            Made::Do(tasks) => return tasks.iter().for_each(|task| task.leave_out(unrolling)),
        };
        let builder = &mut *unrolling.builder;
        let (comms, buffers): (_, Vec<usize>) = match &self.body {
            // It may be about anything.
            Made::Unread => (unrolling.rank.communicators(), (0..builder.buffers().len()).collect()),
            Made::Swap(pair) => (Vec::new(), pair.iter().map(|buffer| buffer.0 as usize).collect()),
            Made::Kernel { args, .. } => (Vec::new(), args.iter().filter_map(Argument::buffer).collect()),
            Made::Op(_) | Made::Group(_) | Made::Do(_) => {
                let args = ops.iter().flat_map(|op| &op.args);
                (ops.iter().map(|op| op.comm).collect(), args.filter_map(Argument::buffer).collect())
            }
        };
        let buffers = buffers.into_iter().map(|place| BufferId(place as u32)).collect();
        builder.gap(self.phase, comms, buffers);
    }
}

impl Instance {
    /// `name` is the task's in this round, and `origin` what it has in all rounds.
    fn new(name: &str, origin: &Origin, body: &Made<'_>) -> Instance {
        let named = |name: String, origin: &Origin| Arc::new(Origin { name, ..origin.clone() });
        let members = match body {
            Made::Group(members) => members.as_slice(),
            _ => &[],
        };
        let members = members.iter().enumerate();
        Instance {
            origin: named(name.to_owned(), origin),
            members: members
                .map(|(place, member)| named(format!("{name}[{place}]"), &member.origin))
                .collect(),
            last: None,
        }
    }
}

impl<'m> Made<'m> {
    /// The task on a rank; `None` if something is wrong with it, all of which is then kept.
    fn spec(&self, instance: &Instance, unrolling: &mut Unrolling<'_, '_, 'm>) -> Option<TaskSpec> {
        let (origin, rank) = (&instance.origin, unrolling.rank);
        if let Made::Group(members) = self {
            let mut group = Some(GroupSpec::new().from_origin(origin.clone()));
            for (member, origin) in members.iter().zip(&instance.members) {
                let specs = member.specs(origin, unrolling);
                group = group.zip(specs).map(|(group, specs)| specs.into_iter().fold(group, GroupSpec::with));
            }
            return group.map(TaskSpec::Group);
        }
        let (buffers, problems) = (unrolling.builder.buffers(), &mut *unrolling.problems.borrow_mut());
        let env = WithIndex::new(rank, &unrolling.variables);
        match self {
            Made::Unread | Made::Group(_) | Made::Do(_) => None,
            Made::Swap([a, b]) => Some(TaskSpec::Swap(SwapSpec::new(*a, *b).from_origin(origin.clone()))),
            Made::Kernel { kernel, args, threads, block } => {
                let values = values(args, origin, None, buffers, rank, &env, problems);
                let threads = dims("threads", threads, origin, rank, &env, problems);
                let block = dims("block", block, origin, rank, &env, problems);
                let spec = KernelSpec::new(kernel).from_origin(origin.clone()).grid(threads?, block?);
                let spec = values?.into_iter().fold(spec, |spec, (name, value)| spec.arg(name, value));
                Some(TaskSpec::Kernel(spec))
            }
            Made::Op(op) => op.spec(origin, None, buffers, rank, &env, problems).map(TaskSpec::Op),
        }
    }
}

/// The lengths of a grid's axes; `what` is the key that gives them.
fn dims(
    what: &str,
    axes: &[Formula],
    origin: &Origin,
    rank: &RankEnv<'_>,
    env: &dyn Env,
    problems: &mut Vec<Diagnostic>,
) -> Option<[u64; 3]> {
    let (mut dims, met) = (Some([1u64; 3]), rank.problems());
    for (axis, formula) in axes.iter().enumerate() {
        let length = rank.kept(formula.eval_int(env));
        let valid = length.and_then(|length| u64::try_from(length).ok());
        if let (Some(length), None) = (length, valid) {
            let message = format!("`{what}` is {length} long on rank {}", rank.rank());
            let label = Label::at(formula.place.span(), "a length cannot be negative")
                .on_rank(rank.rank())
                .in_task(&origin.name);
            let help = "let it be at least 0, as `max(…, 0)` does; a task whose grid is empty is skipped";
            problems.push(Diagnostic::error(codes::SHAPE, message, label).with_help(help));
        }
        match (&mut dims, valid) {
            (Some(dims), Some(length)) => dims.iter_mut().skip(axis).take(1).for_each(|dim| *dim = length),
            _ => dims = None,
        }
    }
    rank.name_problems(met, |problem| say_where(problem, origin, None));
    dims
}

/// All arguments of a task on a rank; `None` if one is wrong, and then all that are have been kept, each under the name of
/// the task and of the loop's round.
fn values(
    args: &[Argument<'_>],
    origin: &Origin,
    round: Option<(&str, i64)>,
    buffers: &[BufferDecl],
    rank: &RankEnv<'_>,
    env: &dyn Env,
    problems: &mut Vec<Diagnostic>,
) -> Option<Vec<(&'static str, ArgValue)>> {
    let mut values = Some(Vec::with_capacity(args.len()));
    let (found, met) = (problems.len(), rank.problems());
    for arg in args {
        match arg.value(buffers, rank, env, problems) {
            Some(value) => values.iter_mut().for_each(|values| values.push(value.clone())),
            None => values = None,
        }
    }
    let name = |problem: &mut Diagnostic| say_where(problem, origin, round);
    problems.iter_mut().skip(found).for_each(name);
    rank.name_problems(met, name);
    values
}

/// Names the task, and the round of its loop, in a fault of one of its arguments; not in one of a param that it uses.
fn say_where(problem: &mut Diagnostic, origin: &Origin, round: Option<(&str, i64)>) {
    let Some(at) = problem.primary.span else { return };
    if !origin.args.iter().any(|(_, arg)| arg.start <= at.start && at.end <= arg.end) {
        return;
    }
    problem.primary.task.get_or_insert_with(|| origin.name.clone());
    if let (Some((variable, value)), true) = (round, problem.primary.text.is_empty()) {
        problem.primary.text = format!("{variable} = {value}");
    }
}

impl Op<'_> {
    fn spec(
        &self,
        origin: &Arc<Origin>,
        round: Option<(&str, i64)>,
        buffers: &[BufferDecl],
        rank: &RankEnv<'_>,
        env: &dyn Env,
        problems: &mut Vec<Diagnostic>,
    ) -> Option<OpSpec> {
        let mut spec = OpSpec::new(self.name.to_string()).on(self.comm).from_origin(origin.clone());
        if let Some(library) = self.library {
            spec = spec.by(library.to_string());
        }
        let values = values(&self.args, origin, round, buffers, rank, env, problems)?;
        Some(values.into_iter().fold(spec, |spec, (name, value)| spec.arg(name, value)))
    }
}

impl<'m> Member<'m> {
    /// The ops it stands for on a rank, one a round; `None` if one is wrong. The first such round is kept.
    fn specs(&self, origin: &Arc<Origin>, unrolling: &mut Unrolling<'_, '_, 'm>) -> Option<Vec<OpSpec>> {
        let rank = unrolling.rank;
        let Some(repeat) = self.repeat else {
            let env = WithIndex::new(rank, &unrolling.variables);
            if !self.present(rank, &env)? {
                return Some(Vec::new());
            }
            let (buffers, problems) = (unrolling.builder.buffers(), &mut *unrolling.problems.borrow_mut());
            return Some(vec![self.op.spec(origin, None, buffers, rank, &env, problems)?]);
        };
        let values = self.values(repeat, origin, unrolling)?;
        let variable = repeat.variable.value.as_str();
        let (buffers, problems) = (unrolling.builder.buffers(), &mut *unrolling.problems.borrow_mut());
        let mut specs = Vec::new();
        let mut variables = unrolling.variables.clone();
        for value in values {
            variables.push((variable, value));
            let env = WithIndex::new(rank, &variables);
            if self.present(rank, &env)? {
                let origin = Origin { name: format!("{}.{value}", origin.name), ..(**origin).clone() };
                let round = Some((variable, value));
                specs.push(self.op.spec(&Arc::new(origin), round, buffers, rank, &env, problems)?);
            }
            variables.pop();
        }
        Some(specs)
    }

    /// The values that the loop's variable takes; `None` after a report.
    fn values(
        &self,
        repeat: &Loop,
        origin: &Origin,
        unrolling: &mut Unrolling<'_, '_, 'm>,
    ) -> Option<std::ops::Range<i64>> {
        let rank = unrolling.rank;
        let env = WithIndex::new(rank, &unrolling.variables);
        let int = |formula: &Formula| rank.kept(formula.eval_int(&env));
        let start = repeat.start.as_ref().map_or(Some(0), int)?;
        let end = int(&repeat.end)?;
        let rounds = if end > start { end.abs_diff(start) } else { 0 };
        let entries = unrolling.entries.saturating_add(rounds);
        let (code, message) = if rounds > MAX_ROUNDS {
            (codes::LOOP, format!("the loop has {rounds} rounds; a group has at most {MAX_ROUNDS}"))
        } else if entries > MAX_ENTRIES {
            if std::mem::replace(unrolling.too_many, true) {
                return None;
            }
            (codes::UNROLLED, format!("the loops in groups come to more than {MAX_ENTRIES} ops on a rank"))
        } else {
            unrolling.entries = entries;
            return Some(start..end);
        };
        let label = Label::at(repeat.end.place.span(), "").on_rank(rank.rank()).in_task(&origin.name);
        unrolling.report(Diagnostic::error(code, message, label));
        None
    }

    fn present(&self, rank: &RankEnv<'_>, env: &dyn Env) -> Option<bool> {
        self.when.map_or(Some(true), |when| rank.kept(when.eval_bool(env)))
    }
}
