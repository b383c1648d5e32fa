//! What it costs that an op comes from a plugin: an op that does nothing, linked and loaded, enqueued a thousand times a step, in turn.
//!
//! `cargo bench -p squall-tests --bench plugin_enqueue`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and may stop where it stands"
)]

use std::sync::Arc;
use std::time::Instant;

use squall_core::{
    ArgError, Args, Description, DeviceError, LibraryOp, Needs, OpCall, OpError, OpSpec, Options, ParamDef,
    PlanGroup, Prepare, Registry, Stream, Task, TaskGraph, Work, World, register_op,
};
use squall_runner::plugin::{Wanted, load};
use squall_tests::plugin;

const TASKS: usize = 1000;
const STEPS: u64 = 200;
const ROUNDS: usize = 21;

/// As the plugin's op, which is [`LOADED`].
struct Linked;

const LINKED: &str = "linked_does_nothing";
const LOADED: &str = "does_nothing";

register_op!(&Linked);

impl Task for Linked {
    fn name(&self) -> &'static str {
        LINKED
    }
    fn summary(&self) -> &'static str {
        "does nothing"
    }
    fn params(&self) -> &'static [ParamDef] {
        &[]
    }
    fn example(&self) -> &'static str {
        ""
    }
    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        Ok(Description::symmetric(LINKED, args))
    }
}

impl LibraryOp for Linked {
    fn library(&self) -> &'static str {
        "linked"
    }
    fn device(&self) -> &'static str {
        "host"
    }
    fn needs(&self) -> Needs {
        Needs { groups: false, ..Needs::NONE }
    }
    unsafe fn prepare(&self, batch: &[OpCall<'_>], _: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let last = batch.iter().any(|call| call.args.comm_rank + 1 == call.args.comm_size);
        Ok(Box::new(Ready { last, enqueue: |_| Ok(()) }))
    }
}

struct Ready {
    last: bool,
    enqueue: fn(bool) -> Result<(), DeviceError>,
}

impl Work for Ready {
    fn enqueue(&mut self, _: &mut dyn Stream) -> Result<(), DeviceError> {
        (self.enqueue)(self.last)
    }
}

fn group(registry: &Registry, op: &'static str) -> PlanGroup {
    let mut graph = TaskGraph::builder(registry, &Arc::new(World::new(1).unwrap()), 0, "host");
    for _ in 0..TASKS {
        graph.step(OpSpec::new(op));
    }
    let verified = squall_core::verify(vec![graph.build().unwrap()]).unwrap();
    let mut group =
        PlanGroup::new(registry, verified, &[registry.open("host", 0).unwrap()], Options::default()).unwrap();
    group.execute_many(STEPS).unwrap();
    group
}

/// Nanoseconds an op.
fn time(group: &mut PlanGroup) -> f64 {
    let begun = Instant::now();
    group.execute_many(STEPS).unwrap();
    begun.elapsed().as_secs_f64() * 1e9 / (STEPS as f64 * TASKS as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let wanted = [Wanted::option(&plugin("misbehaving"))];
    let registry = load(&Registry::linked().unwrap(), &wanted).unwrap().registry;
    let (mut linked, mut loaded) = (group(&registry, LINKED), group(&registry, LOADED));
    let times: Vec<[f64; 2]> = (0..ROUNDS).map(|_| [time(&mut linked), time(&mut loaded)]).collect();
    let [linked, loaded] = [0, 1].map(|which| median(times.iter().map(|times| times[which]).collect()));
    println!(
        "# an op that does nothing, {TASKS} a step, one rank; nanoseconds an op, medians of {ROUNDS} rounds in turn"
    );
    println!("linked loaded more");
    println!("{linked:.1} {loaded:.1} {:.1}", loaded - linked);
}
