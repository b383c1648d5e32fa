//! From the tasks of a manifest to templates: what needs no rank is read and checked once.

use std::cell::RefCell;
use std::collections::BTreeMap;

use squall_core::graph::{Origin, Phase};
use squall_core::{BufferId, CommId, Diagnostic, KernelDef, Label, Registry, Task as _, World};

use super::{Made, Member, Op, Problems, Template};
use crate::codes;
use crate::manifest::model::{self, Body, GroupEntry, KernelCall, Loop, OpCall, Task};
use crate::manifest::place::Formula;
use crate::resolve::args::{self, Argument};
use crate::resolve::names::{Symbol, Symbols};
use crate::suggest::nearest;

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
    let reader = Reader { variables: RefCell::default(), symbols, registry, world, device, problems };
    let mut templates = Vec::new();
    for (phase, section, tasks) in sections {
        for (place, task) in tasks.iter().enumerate() {
            templates.push(reader.template(phase, "", format!("{section}[{place}]"), task));
        }
    }
    templates
}

struct Reader<'r, 's, 'm> {
    /// The variables of the loops around, the outermost first.
    variables: RefCell<Vec<&'m str>>,
    symbols: &'s Symbols<'m>,
    registry: &'r Registry,
    world: &'r World,
    device: &'r str,
    problems: &'r Problems,
}

impl<'s, 'm> Reader<'_, 's, 'm> {
    /// `unnamed` is what a task without a name is called, and `within` the task whose `do` it is in.
    fn template(&self, phase: Phase, within: &str, unnamed: String, task: &'m Task) -> Template<'m> {
        let segment = task.name.as_ref().map_or(unnamed, |name| name.value.clone());
        // Before any round is known, a loop's variable stands for it.
        let round = task.repeat.as_ref().map(|repeat| format!("[{}]", repeat.variable.value));
        let dot = if within.is_empty() { "" } else { "." };
        let name = format!("{within}{dot}{segment}{}", round.unwrap_or_default());
        let mut origin = Origin { name, span: Some(task.span), args: Vec::new() };
        let body = self.within(task.repeat.as_ref(), || self.body(phase, task, &mut origin));
        let (body, depends) = body.unwrap_or((Made::Unread, false));
        Template {
            phase,
            segment,
            repeat: task.repeat.as_ref(),
            when: task.when.as_ref(),
            body,
            depends,
            origin,
            instances: BTreeMap::new(),
            failed: 0,
            failed_on: 0,
        }
    }

    /// Reads what stands in a loop, if it does.
    fn within<T>(&self, repeat: Option<&'m Loop>, read: impl FnOnce() -> T) -> T {
        let around = self.variables.borrow().len();
        self.variables.borrow_mut().extend(repeat.map(|repeat| repeat.variable.value.as_str()));
        let read = read();
        self.variables.borrow_mut().truncate(around);
        read
    }

    /// What a task does, and whether that depends on the rank.
    fn body(&self, phase: Phase, task: &'m Task, origin: &mut Origin) -> Option<(Made<'m>, bool)> {
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
            Body::Do(tasks) => {
                let made = tasks
                    .iter()
                    .enumerate()
                    .map(|(place, task)| self.template(phase, &origin.name, format!("do[{place}]"), task));
                (Made::Do(made.collect()), true)
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
                (None, None) => "`squall list kernels` names all there are; a plugin that brings more is named by `[[plugin]]` or `--plugin`".to_string(),
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
                (None, None) => "`squall list ops` names all there are; a plugin that brings more is named by `[[plugin]]` or `--plugin`".to_string(),
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
        let op = self.within(entry.repeat.as_ref(), || self.op(&entry.call, library, &mut origin))?;
        Some(Member { origin, repeat: entry.repeat.as_ref(), when: entry.when.as_ref(), op })
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
            match Argument::read(self.symbols, &self.variables.borrow(), what, params, has_comm, arg) {
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
