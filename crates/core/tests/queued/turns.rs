//! Steps that swap buffers: each turn has works of its own, a first time of its own, and a failure that is found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use squall_core::{
    BufferDecl, DType, Device, GroupError, Moment, Options, PlanGroup, SwapSpec, TaskGraph, World, verify,
};

use crate::device::{Act, Gpu, Refusal};
use crate::{ALWAYS, act, failed, in_one_of, limited, registry};

const LIMIT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_millis(1200);

/// One rank with the tasks `a` and `b` in a step (0 and 1 of the script), which takes two turns.
fn group(device: Arc<dyn Device>, options: Options) -> PlanGroup {
    let (registry, world) = (registry(), Arc::new(World::new(1).unwrap()));
    let mut graph = TaskGraph::builder(&registry, &world, 0, "host");
    let [u, v] = ["u", "v"].map(|name| graph.buffer(BufferDecl::new(name, DType::F32, [4])));
    graph.step(act(0, ALWAYS, Refusal::Error).named("a")).step(SwapSpec::new(u, v));
    graph.step(act(1, ALWAYS, Refusal::Error).named("b"));
    let verified = verify(vec![graph.build().unwrap()]).unwrap();
    PlanGroup::new(&registry, verified, &[device], options).unwrap()
}

#[test]
fn each_turn_may_take_as_long_as_binding_when_it_connects_and_when_it_is_captured() {
    let (gpu, watched) = Gpu::watched(0, |task, turn| match (task, turn) {
        (0, 0) => Act::Take(LONG),
        _ => Act::Nothing,
    });
    *watched.instantiating.lock().unwrap() = LONG;
    group(gpu, limited(LIMIT).capture(true)).execute_many(8).unwrap();
    // And no other step: the first turn's is late when it is enqueued for the third time, or uncaptured for the second.
    for (capture, time, step) in [(true, 2, 4), (false, 1, 2)] {
        let late = move |task, turn| if (task, turn) == (0, time) { Act::Take(LONG) } else { Act::Nothing };
        let error = group(Gpu::open(0, late), limited(LIMIT).capture(capture)).execute_many(8).unwrap_err();
        let GroupError::TimedOut { during, .. } = error else { panic!("{error}") };
        assert_eq!(during, Moment::Step(step));
    }
}

#[test]
fn a_failure_in_any_turn_is_found_and_named() {
    for (capture, step) in [(false, 6), (false, 7), (true, 6), (true, 7)] {
        let begun = AtomicU64::new(0);
        let fails = move |task, _| {
            let begun = begun.fetch_add(u64::from(task == 0), Ordering::Relaxed);
            if task == 1 && begun == step + 1 { Act::Note } else { Act::Nothing }
        };
        let options = Options::default().capture(capture);
        let error = group(Gpu::open(0, fails), options).execute_many(300).unwrap_err();
        let (task, during, said, _) = failed(&error);
        assert_eq!((task, said.as_str()), (Some("b"), "task 1 found a NaN"));
        assert!(in_one_of(during, step, step + 129), "{during}");
    }
}
