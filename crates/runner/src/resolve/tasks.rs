//! Tasks: read once into templates, then made for every rank.

use std::cell::RefCell;
use std::sync::Arc;

use squall_core::graph::{
    ArgValue, GraphBuilder, GroupSpec, KernelSpec, Node, OpSpec, Origin, Phase, SwapSpec, TaskSpec,
};
use squall_core::{BufferDecl, BufferId, CommId, Diagnostic, KernelDef, Label, Registry, Task as _, World};

use super::args::{self, Argument};
use super::env::{RankEnv, WithIndex};
use super::names::{Symbol, Symbols};
use crate::codes;
use crate::expr::Env;
use crate::manifest::model::{self, Body, GroupEntry, KernelCall, Loop, OpCall, Task};
use crate::manifest::place::Formula;
use crate::suggest::nearest;

/// A task of the manifest, ready to be made for any rank.
pub(super) struct Template<'m> {
    phase: Phase,
    origin: Arc<Origin>,
    when: Option<&'m Formula>,
    body: Made<'m>,
    /// Whether its arguments depend on the rank.
    depends: bool,
    /// What was made last, and the buffers it was made over.
    last: Option<(Arc<Node>, Arc<Vec<BufferDecl>>)>,
    /// Ranks it could not be made for. The first few tell what is wrong.
    failed: u32,
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
}

struct Op<'m> {
    name: &'m str,
    library: Option<&'m str>,
    comm: CommId,
    args: Vec<Argument<'m>>,
}

struct Member<'m> {
    origin: Arc<Origin>,
    repeat: Option<&'m Loop>,
    when: Option<&'m Formula>,
    op: Op<'m>,
}

/// The most rounds of a loop: one for every rank of the largest world.
const MAX_ROUNDS: i64 = squall_core::world::MAX_WORLD as i64;

type Problems = RefCell<Vec<Diagnostic>>;

/// The templates of all tasks, phase by phase in file order.
pub(super) fn templates<'s, 'm>(
    symbols: &'s Symbols<'m>,
    registry: &Registry,
    world: &World,
    device: &str,
    problems: &Problems,
) -> Vec<Template<'m>> {
    let manifest = symbols.manifest;
    let sections: [(Phase, &str, &'m [Task]); 3] = [
        (Phase::Setup, "setup", &manifest.setup),
        (Phase::Step, "task", &manifest.tasks),
        (Phase::Finish, "finish", &manifest.finish),
    ];
    let reader = Reader { symbols, registry, world, device, problems };
    let mut templates = Vec::new();
    for (phase, section, tasks) in sections {
        for (place, task) in tasks.iter().enumerate() {
            templates.push(reader.template(phase, section, place, task));
        }
    }
    templates
}

struct Reader<'r, 's, 'm> {
    symbols: &'s Symbols<'m>,
    registry: &'r Registry,
    world: &'r World,
    device: &'r str,
    problems: &'r Problems,
}

impl<'s, 'm> Reader<'_, 's, 'm> {
    fn template(&self, phase: Phase, section: &str, place: usize, task: &'m Task) -> Template<'m> {
        let name =
            task.name.as_ref().map_or_else(|| format!("{section}[{place}]"), |name| name.value.clone());
        let mut origin = Origin { name, span: Some(task.span), args: Vec::new() };
        let (body, depends) = self.body(task, &mut origin).unwrap_or((Made::Unread, false));
        Template {
            phase,
            origin: Arc::new(origin),
            when: task.when.as_ref(),
            body,
            depends,
            last: None,
            failed: 0,
        }
    }

    /// What a task does, and whether that depends on the rank.
    fn body(&self, task: &'m Task, origin: &mut Origin) -> Option<(Made<'m>, bool)> {
        let depends = &self.symbols.depends;
        Some(match &task.body {
            Body::Kernel(call) => {
                let (kernel, args) = self.kernel(call, origin)?;
                let block = call.grid.block.as_ref().or(self.symbols.manifest.pipeline.block.as_ref());
                let block = block.map_or(&[][..], |block| &block.value);
                let threads = &call.grid.threads.value;
                let grid = threads.iter().chain(block).any(|axis| depends.formula(self.symbols, axis));
                let depends = grid || args.iter().any(|arg| arg.depends(self.symbols));
                (Made::Kernel { kernel, args, threads, block }, depends)
            }
            Body::Op(call) => {
                let op = self.op(call, None, origin)?;
                let depends = op.args.iter().any(|arg| arg.depends(self.symbols));
                (Made::Op(op), depends)
            }
            Body::Group(group) => {
                let before = self.problems.borrow().len();
                let members: Vec<Member<'m>> = group
                    .entries
                    .iter()
                    .enumerate()
                    .filter_map(|(index, entry)| self.member(&origin.name, index, entry, group))
                    .collect();
                if self.problems.borrow().len() > before {
                    return None;
                }
                let formula = |formula: &Formula| depends.formula(self.symbols, formula);
                let depends = members.iter().any(|member| {
                    let bounds = member.repeat.iter().flat_map(|r| r.start.iter().chain([&r.end]));
                    member.op.args.iter().any(|arg| arg.depends(self.symbols))
                        || member.when.is_some_and(formula)
                        || bounds.into_iter().any(formula)
                });
                (Made::Group(members), depends)
            }
            Body::Swap(swap) => {
                origin.args.push(("swap".to_string(), swap.span));
                let [a, b] = swap.names.each_ref().map(|name| {
                    let span = name.span.unwrap_or(swap.span);
                    let named = args::named(self.symbols, "swap", &name.value, span);
                    named.map_err(|problem| self.report(problem.into_task(origin))).ok()
                });
                let pair = [a?, b?];
                let ids = pair.map(|place| BufferId(place as u32));
                (Made::Swap(ids), pair.iter().any(|&place| depends.buffer(place)))
            }
        })
    }

    fn kernel(
        &self,
        call: &'m KernelCall,
        origin: &mut Origin,
    ) -> Option<(&'static KernelDef, Vec<Argument<'m>>)> {
        let name = call.kernel.value.as_str();
        let Some(kernel) = self.registry.kernel(name) else {
            let message = format!("there is no kernel `{name}`");
            let known = self.registry.kernels().map(|(kernel, _)| kernel.name);
            let help = match (self.registry.contract(name), nearest(name, known)) {
                (Some(_), _) => format!("`{name}` is an op: write `op = \"{name}\"`"),
                (None, Some(near)) => format!("did you mean `{near}`?"),
                (None, None) => "`squall list kernels` names all there are".to_string(),
            };
            self.report(
                Diagnostic::error(codes::UNKNOWN_KERNEL, message, Label::at(call.kernel.span, ""))
                    .with_help(help),
            );
            return None;
        };
        let block = call.grid.block.as_ref().or(self.symbols.manifest.pipeline.block.as_ref());
        let places = [("grid", call.grid.threads.span), ("block", block.and_then(|block| block.span))];
        for (name, span) in places {
            origin.args.extend(span.map(|span| (name.to_string(), span)));
        }
        let args = self.arguments(&format!("kernel `{name}`"), kernel.params(), &call.args, origin, false)?;
        Some((kernel, args))
    }

    fn op(&self, call: &'m OpCall, library: Option<&'m str>, origin: &mut Origin) -> Option<Op<'m>> {
        let name = call.op.value.as_str();
        let Some(contract) = self.registry.contract(name) else {
            let message = format!("there is no op `{name}`");
            let known = self.registry.contracts();
            let help = match (
                self.registry.kernel(name),
                op_habit(name).or_else(|| nearest(name, known.iter().map(|op| op.name()))),
            ) {
                (Some(_), _) => format!("`{name}` is a kernel: write `kernel = \"{name}\"`"),
                (None, Some(near)) => format!("did you mean `{near}`?"),
                (None, None) => "`squall list ops` names all there are".to_string(),
            };
            self.report(
                Diagnostic::error(codes::UNKNOWN_OP, message, Label::at(call.op.span, "")).with_help(help),
            );
            return None;
        };
        let library = call.library.as_ref().map(|library| library.value.as_str()).or(library);
        if let Err(error) = self.registry.op(name, self.device, library) {
            let span = call.library.as_ref().and_then(|library| library.span).or(call.op.span);
            let help = "`squall list ops` shows which libraries serve each op, and on which devices";
            let code = squall_core::codes::LIBRARY;
            self.report(Diagnostic::error(code, error.to_string(), Label::at(span, "")).with_help(help));
            return None;
        }
        if let Some(span) = call.op.span {
            origin.args.push(("op".to_string(), span));
        }
        let comm = self.communicator(&call.args, origin);
        let args = self.arguments(&format!("op `{name}`"), contract.params(), &call.args, origin, true);
        Some(Op { name, library, comm: comm?, args: args? })
    }

    fn member(
        &self,
        group: &str,
        index: usize,
        entry: &'m GroupEntry,
        of: &'m model::Group,
    ) -> Option<Member<'m>> {
        let mut origin =
            Origin { name: format!("{group}[{index}]"), span: Some(entry.span), args: Vec::new() };
        let library = of.library.as_ref().map(|library| library.value.as_str());
        let op = self.op(&entry.call, library, &mut origin)?;
        Some(Member {
            origin: Arc::new(origin),
            repeat: entry.repeat.as_ref(),
            when: entry.when.as_ref(),
            op,
        })
    }

    fn communicator(&self, args: &'m model::Args, origin: &Origin) -> Option<CommId> {
        let Some(arg) = args.get("comm") else { return Some(CommId::WORLD) };
        let span = arg.value.span();
        let model::ArgValue::Text(text) = &arg.value else {
            let message = "`comm` takes the name of a communicator";
            self.report(Diagnostic::error(codes::ARGUMENT, message, Label::at(span, "")).into_task(origin));
            return None;
        };
        let name = text.value.as_str();
        if name == "world" {
            return Some(CommId::WORLD);
        }
        if let Some(Symbol::Communicator(comm)) = self.symbols.get(name) {
            return Some(comm);
        }
        if let Some(declared) = self.symbols.manifest.names.get(name) {
            let is = declared.kind.words();
            let message = format!("`{name}` is {is}, and `comm` takes a communicator");
            let report = Diagnostic::error(codes::WRONG_NAME, message, Label::at(span, is));
            self.report(report.with_related(Label::at(declared.span, "declared here")).into_task(origin));
            return None;
        }
        let message = format!("there is no communicator `{name}`");
        let known = self.world.comms().map(|comm| self.world.name(comm));
        let report = Diagnostic::error(codes::UNKNOWN_NAME, message, Label::at(span, "")).into_task(origin);
        self.report(match nearest(name, known) {
            Some(near) => report.with_help(format!("did you mean `{near}`?")),
            None => {
                report.with_help("declare it as `[communicator.NAME]`; without `comm`, all ranks take part")
            }
        });
        None
    }

    fn arguments(
        &self,
        what: &str,
        params: &'static [squall_core::ParamDef],
        args: &'m model::Args,
        origin: &mut Origin,
        has_comm: bool,
    ) -> Option<Vec<Argument<'m>>> {
        let (mut read, mut ok) = (Vec::with_capacity(args.items.len()), true);
        for arg in args.items.iter().filter(|arg| !(has_comm && arg.name.value == "comm")) {
            origin.args.push((arg.name.value.clone(), arg.value.span()));
            match Argument::read(self.symbols, what, params, has_comm, arg) {
                Ok(argument) => read.push(argument),
                Err(problem) => {
                    self.report(problem.into_task(origin));
                    ok = false;
                }
            }
        }
        ok.then_some(read)
    }

    fn report(&self, problem: Diagnostic) {
        self.problems.borrow_mut().push(problem);
    }
}

trait IntoTask {
    fn into_task(self, origin: &Origin) -> Self;
}

impl IntoTask for Diagnostic {
    /// Names the task it is about.
    fn into_task(mut self, origin: &Origin) -> Diagnostic {
        self.primary.task = Some(origin.name.clone());
        self
    }
}

/// What other systems call an op.
fn op_habit(name: &str) -> Option<&'static str> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let plain = plain.strip_prefix("mpi").or_else(|| plain.strip_prefix("nccl")).unwrap_or(&plain);
    Some(match plain {
        "allreduce" => "all_reduce",
        "allgather" => "all_gather",
        "reducescatter" => "reduce_scatter",
        "alltoall" => "all_to_all",
        "bcast" => "broadcast",
        "sendrecv" | "exchange" => "send_recv",
        "isend" => "send",
        "irecv" | "receive" => "recv",
        _ => return None,
    })
}

impl Template<'_> {
    /// Adds the task to a rank's graph, if the rank has it.
    pub(super) fn instantiate(
        &mut self,
        env: &RankEnv<'_>,
        builder: &mut GraphBuilder<'_>,
        problems: &Problems,
    ) {
        // What failed on a few ranks is told; more of the same would only cost time.
        const TOLD: u32 = 4;
        if self.failed >= TOLD || (self.failed > 0 && !self.depends) {
            self.leave_out(env, builder);
            return;
        }
        match self.when.map(|when| env.kept(when.eval_bool(env))) {
            Some(Some(false)) => return,
            Some(None) => {
                self.failed += 1;
                self.leave_out(env, builder);
                return;
            }
            Some(Some(true)) | None => {}
        }
        if !self.depends
            && let Some((node, buffers)) = &self.last
            && builder.share(self.phase, node, buffers)
        {
            return;
        }
        let found = builder.problems();
        let Some(spec) = self.spec(env, builder.buffers(), &mut problems.borrow_mut()) else {
            self.failed += 1;
            self.leave_out(env, builder);
            return;
        };
        match builder.add(self.phase, spec) {
            Some(node) => self.last = Some((node, builder.buffers().clone())),
            None if builder.problems() > found => {
                self.failed += 1;
                self.leave_out(env, builder);
            }
            None => {} // nothing to run on this rank
        }
    }

    /// Notes in a rank's graph that the task is missing, with all that it may do.
    fn leave_out(&self, env: &RankEnv<'_>, builder: &mut GraphBuilder<'_>) {
        let ops: Vec<&Op<'_>> = match &self.body {
            Made::Unread | Made::Kernel { .. } | Made::Swap(_) => Vec::new(),
            Made::Op(op) => vec![op],
            Made::Group(members) => members.iter().map(|member| &member.op).collect(),
        };
        let (comms, buffers) = match &self.body {
            // It may be about anything.
            Made::Unread => (env.communicators(), (0..builder.buffers().len()).collect()),
            Made::Swap(pair) => (Vec::new(), pair.iter().map(|buffer| buffer.0 as usize).collect()),
            Made::Kernel { args, .. } => (Vec::new(), args.iter().filter_map(Argument::buffer).collect()),
            Made::Op(_) | Made::Group(_) => {
                let args = ops.iter().flat_map(|op| &op.args);
                (ops.iter().map(|op| op.comm).collect(), args.filter_map(Argument::buffer).collect())
            }
        };
        let buffers: Vec<usize> = buffers;
        let buffers = buffers.into_iter().map(|place| BufferId(place as u32)).collect();
        builder.gap(self.phase, comms, buffers);
    }

    /// The task on a rank; `None` if something is wrong with it, all of which is then kept.
    fn spec(
        &self,
        env: &RankEnv<'_>,
        buffers: &[BufferDecl],
        problems: &mut Vec<Diagnostic>,
    ) -> Option<TaskSpec> {
        Some(match &self.body {
            Made::Unread => return None,
            Made::Kernel { kernel, args, threads, block } => {
                let values = values(args, &self.origin, None, buffers, env, env, problems);
                let threads = self.dims("threads", threads, env, problems);
                let block = self.dims("block", block, env, problems);
                let spec = KernelSpec::new(kernel).from_origin(self.origin.clone()).grid(threads?, block?);
                TaskSpec::Kernel(values?.into_iter().fold(spec, |spec, (name, value)| spec.arg(name, value)))
            }
            Made::Op(op) => TaskSpec::Op(op.spec(&self.origin, None, buffers, env, env, problems)?),
            Made::Group(members) => {
                let mut group = Some(GroupSpec::new().from_origin(self.origin.clone()));
                for member in members {
                    let specs = member.specs(buffers, env, problems);
                    group =
                        group.zip(specs).map(|(group, specs)| specs.into_iter().fold(group, GroupSpec::with));
                }
                TaskSpec::Group(group?)
            }
            Made::Swap([a, b]) => TaskSpec::Swap(SwapSpec::new(*a, *b).from_origin(self.origin.clone())),
        })
    }

    /// The lengths of a grid's axes; `what` is the key that gives them.
    fn dims(
        &self,
        what: &str,
        axes: &[Formula],
        env: &RankEnv<'_>,
        problems: &mut Vec<Diagnostic>,
    ) -> Option<[u64; 3]> {
        let (mut dims, met) = (Some([1u64; 3]), env.problems());
        for (axis, formula) in axes.iter().enumerate() {
            let length = env.int(formula);
            let valid = length.and_then(|length| u64::try_from(length).ok());
            if let (Some(length), None) = (length, valid) {
                let message = format!("`{what}` is {length} long on rank {}", env.rank());
                let label = Label::at(formula.place.span(), "a length cannot be negative")
                    .on_rank(env.rank())
                    .in_task(&self.origin.name);
                let help = "let it be at least 0, as `max(…, 0)` does; a task whose grid is empty is skipped";
                problems.push(Diagnostic::error(codes::SHAPE, message, label).with_help(help));
            }
            match (&mut dims, valid) {
                (Some(dims), Some(length)) => {
                    dims.iter_mut().skip(axis).take(1).for_each(|dim| *dim = length)
                }
                _ => dims = None,
            }
        }
        env.name_problems(met, |problem| say_where(problem, &self.origin, None));
        dims
    }
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

impl Member<'_> {
    /// The ops it stands for on a rank, one a round; `None` if one is wrong. The first such round is kept.
    fn specs(
        &self,
        buffers: &[BufferDecl],
        rank: &RankEnv<'_>,
        problems: &mut Vec<Diagnostic>,
    ) -> Option<Vec<OpSpec>> {
        let Some(repeat) = self.repeat else {
            return match self.present(rank, rank)? {
                true => Some(vec![self.op.spec(&self.origin, None, buffers, rank, rank, problems)?]),
                false => Some(Vec::new()),
            };
        };
        let start = repeat.start.as_ref().map_or(Some(0), |start| rank.int(start))?;
        let end = rank.int(&repeat.end)?;
        if end.saturating_sub(start) > MAX_ROUNDS {
            let message = format!(
                "the loop has {} rounds; a group has at most {MAX_ROUNDS}",
                end.saturating_sub(start)
            );
            let label =
                Label::at(repeat.end.place.span(), "").on_rank(rank.rank()).in_task(&self.origin.name);
            problems.push(Diagnostic::error(codes::LOOP, message, label));
            return None;
        }
        let variable = repeat.variable.value.as_str();
        let mut specs = Vec::new();
        for value in start..end {
            let env = WithIndex::variable(rank, variable, value);
            if self.present(rank, &env)? {
                let origin =
                    Origin { name: format!("{}.{value}", self.origin.name), ..(*self.origin).clone() };
                let round = Some((variable, value));
                specs.push(self.op.spec(&Arc::new(origin), round, buffers, rank, &env, problems)?);
            }
        }
        Some(specs)
    }

    fn present(&self, rank: &RankEnv<'_>, env: &dyn Env) -> Option<bool> {
        self.when.map_or(Some(true), |when| rank.kept(when.eval_bool(env)))
    }
}
