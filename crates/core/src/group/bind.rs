//! Binds verified graphs to devices: allocates, connects libraries, makes every task ready.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::codes;
use crate::device::{Backend, Device, DeviceError};
use crate::diagnostic::{Diagnostic, Label};
use crate::error::{GroupError, Moment};
use crate::graph::{Node, Phase, TaskGraph};
use crate::group::PlanGroup;
use crate::group::shared::Shared;
use crate::library_op::{Connect, OpError};
use crate::plan::{BindError, ExecutionPlan, PrepareOn, SessionState};
use crate::registry::Registry;
use crate::words::count;
use crate::world::CommId;

/// Whether these devices can carry these graphs.
pub(super) fn check_devices(
    registry: &Registry,
    graphs: &[TaskGraph],
    devices: &[Arc<dyn Device>],
) -> Result<(), GroupError> {
    let mut owners: BTreeMap<&str, u32> = BTreeMap::new();
    for (graph, device) in graphs.iter().zip(devices) {
        let rank = graph.rank();
        if graph.device() != device.kind() {
            let text =
                format!("rank {rank} was built for {} devices, and is given {}", graph.device(), device.id());
            return Err(GroupError::Devices(text));
        }
        let repeats = registry.backend(device.kind()).is_some_and(Backend::repeats);
        if let Some(other) = owners.insert(device.id(), rank)
            && !repeats
        {
            let text =
                format!("ranks {other} and {rank} are both given {}; one rank has one GPU", device.id());
            return Err(GroupError::Devices(text));
        }
    }
    Ok(())
}

/// The libraries that need communicators, each with those that its ops use anywhere in the job: on all processes the same.
fn used_libraries(graphs: &[TaskGraph]) -> BTreeMap<&'static str, Vec<CommId>> {
    let mut used: BTreeMap<&'static str, Vec<CommId>> = BTreeMap::new();
    let mut last: [Option<*const Node>; 3] = [None; 3];
    for graph in graphs {
        for phase in Phase::ALL {
            for node in graph.tasks(phase) {
                let slot = &mut last[phase as usize];
                if slot.replace(Arc::as_ptr(node)).is_some_and(|other| std::ptr::eq(other, Arc::as_ptr(node)))
                {
                    continue;
                }
                for task in node.ops() {
                    for op in std::iter::once(&task.op).chain(&task.uses) {
                        let comms = used.entry(op.library()).or_default();
                        if !comms.contains(&task.comm) {
                            comms.push(task.comm);
                        }
                    }
                }
            }
        }
    }
    used.values_mut().for_each(|comms| comms.sort());
    used
}

/// Takes the group's ranks from threads to plans that are ready to run.
pub(super) fn bind(
    group: &mut PlanGroup,
    registry: &Registry,
    devices: &[Arc<dyn Device>],
    deadline: Instant,
) -> Result<(), GroupError> {
    let (capture, turns) = (group.options.capture, group.verified.turns());
    let shared = group.shared.clone();
    let graphs = group.graphs.clone();
    let allocated = group.call_all(Moment::Binding, |place| {
        let (graph, device, shared) = (graphs[place].clone(), devices[place].clone(), shared.clone());
        Box::new(move |plan: &mut Option<ExecutionPlan>| -> Result<(), DeviceError> {
            let made = ExecutionPlan::allocate(graph, device, turns, capture)?;
            shared.ranks[place].follow(made.progress());
            *plan = Some(made);
            Ok(())
        })
    })?;
    for (place, result) in allocated.into_iter().enumerate() {
        result.map_err(|error| on_rank(&graphs[place], &*devices[place], None, error))?;
    }

    let used = used_libraries(group.verified.graphs());
    let mut sessions = connect(&graphs, used, registry, devices, &shared, deadline)?;

    let mut parts: Vec<_> = graphs.iter().map(|graph| group.verified.parts_of(graph.rank())).collect();
    let failures: Arc<Mutex<Vec<(usize, BindError)>>> = Arc::default();
    let prepared = group.call_all(Moment::Binding, |place| {
        let (sessions, shared) = (std::mem::take(&mut sessions[place]), shared.clone());
        let (parts, failures) = (std::mem::take(&mut parts[place]), failures.clone());
        Box::new(move |plan: &mut Option<ExecutionPlan>| {
            let rank = &shared.ranks[place];
            let mut cx = PrepareOn {
                exchange: &*shared.peers,
                aborted: &shared.aborted,
                handles: &rank.handles,
                preparing: &rank.preparing,
                deadline,
            };
            let made = plan.as_mut().map_or(Ok(()), |plan| plan.prepare(sessions, &parts, &mut cx));
            if let Err(error) = made {
                failures.lock().unwrap_or_else(PoisonError::into_inner).push((place, error));
                shared.abort();
            }
        })
    });
    // A rank that failed released the others, and is named even where one of these did not come back.
    let mut failures = std::mem::take(&mut *failures.lock().unwrap_or_else(PoisonError::into_inner));
    failures.sort_by_key(|(place, e)| (matches!(e.error, OpError::Device(DeviceError::Aborted)), *place));
    let first = failures.into_iter().next();
    let Some((place, BindError { node, error })) = first else { return prepared.map(|_| ()) };
    let task = node.as_ref().map(|node| node.origin.name.clone());
    let (graph, device) = (&graphs[place], &*devices[place]);
    match (error, prepared) {
        (OpError::Device(DeviceError::Aborted | DeviceError::Deadline | DeviceError::Late(_)), Err(late)) => {
            Err(late)
        }
        (OpError::Device(error), Err(GroupError::TimedOut { during, report, .. })) => {
            let released = report;
            Err(GroupError::Failed { rank: graph.rank(), task, during, error, released })
        }
        (OpError::Device(error), _) => Err(on_rank(graph, device, task, error)),
        (OpError::Arg { member, error }, _) => Err(refused(graph, node, member, error)),
    }
}

fn connect(
    graphs: &[TaskGraph],
    used: BTreeMap<&'static str, Vec<CommId>>,
    registry: &Registry,
    devices: &[Arc<dyn Device>],
    shared: &Arc<Shared>,
    deadline: Instant,
) -> Result<Vec<Vec<SessionState>>, GroupError> {
    let local: Vec<(u32, Arc<dyn Device>)> =
        graphs.iter().map(TaskGraph::rank).zip(devices.iter().cloned()).collect();
    let mut sessions: Vec<Vec<SessionState>> = graphs.iter().map(|_| Vec::new()).collect();
    let mut aborts = Vec::new();
    for (name, comms) in used {
        let Some(library) = registry.library(name, graphs[0].device()) else { continue };
        let cx = Connect {
            world: graphs[0].world(),
            comms: &comms,
            local: &local,
            exchange: &*shared.peers,
            aborted: &shared.aborted,
            deadline,
        };
        let made = library.connect(&cx).map_err(|error| GroupError::Connect { library: name, error })?;
        if made.len() != sessions.len() {
            let text = format!(
                "the library `{name}` made {} for {}",
                count(made.len() as u64, "session"),
                count(sessions.len() as u64, "rank")
            );
            return Err(GroupError::Devices(text));
        }
        for (sessions, session) in sessions.iter_mut().zip(made) {
            sessions.push((name, session.state));
            aborts.push(session.abort);
        }
    }
    let _ = shared.aborts.set(aborts);
    Ok(sessions)
}

fn on_rank(graph: &TaskGraph, device: &dyn Device, task: Option<String>, error: DeviceError) -> GroupError {
    GroupError::Bind { rank: graph.rank(), device: device.id().to_string(), task, error }
}

fn refused(
    graph: &TaskGraph,
    node: Option<Arc<Node>>,
    member: usize,
    error: crate::task::ArgError,
) -> GroupError {
    let op = node.as_ref().and_then(|node| node.ops().get(member));
    let (span, task, name) = match op {
        Some(op) => (op.origin.span_of(error.param), op.origin.name.clone(), op.op.name()),
        None => (None, String::new(), ""),
    };
    let label = Label::at(span, "").on_rank(graph.rank()).in_task(task);
    let mut report = Diagnostic::error(codes::REFUSED, format!("op `{name}`: {}", error.sentence()), label);
    report.help = error.help;
    GroupError::Refused(Box::new(report))
}
