//! An observer sees what every task writes, when it has written it, and changes nothing that it does not mean to.

use std::sync::{Arc, Mutex};

use squall_core::graph::KernelSpec;
use squall_core::{
    BufferDecl, BufferId, DType, DeviceError, Download, GroupError, GroupSpec, Moment, Observer, OpSpec,
    Options, Phase, PlanGroup, ReduceOp, Upload, Written,
};
use squall_tests::{bind, graphs, registry};

/// What was seen of a rank: phase, step, task, which range, first element and elements.
type Seen = Vec<(Phase, u64, usize, usize, u64, Vec<i32>)>;

/// Keeps what rank by rank was written, and does as it is told.
struct Watching {
    seen: [Mutex<Seen>; 2],
    then: fn(&Written<'_>, &mut [i32]) -> Result<bool, DeviceError>,
}

impl Observer for Watching {
    fn written(&self, written: &Written<'_>, bytes: &mut [u8]) -> Result<bool, DeviceError> {
        let mut elements: Vec<i32> = bytemuck::pod_collect_to_vec(bytes);
        let Written { phase, step, task, index, range, .. } = *written;
        let seen = (phase, step, task, index, range.offset, elements.clone());
        self.seen[written.rank as usize].lock().unwrap().push(seen);
        let changed = (self.then)(written, &mut elements)?;
        bytes.copy_from_slice(bytemuck::cast_slice(&elements));
        Ok(changed)
    }
}

/// Two ranks of `x = [rank, rank + 1, rank + 2]`: doubled once, then in each step the last two elements tripled and the sum
/// taken into `y` in a group with a message of one element to rank 0; in the end `y` is doubled.
fn group() -> PlanGroup {
    let scale = registry().kernel("scale").unwrap();
    let graphs = graphs(2, |rank, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::I32, [3]).upload(Upload::First));
        let y = graph.buffer(BufferDecl::new("y", DType::I32, [3]).download(Download::Every));
        let z = graph.buffer(BufferDecl::new("z", DType::I32, [1]));
        let whole =
            |buffer| squall_core::BufferRange { buffer, dtype: DType::I32, offset: 0, shape: [3].into() };
        let times = |factor: i64| KernelSpec::new(scale).arg("factor", factor);
        graph.add(Phase::Setup, times(2).arg("data", x).grid(3, 32));
        graph.step(times(3).arg("data", whole(x).elements(1..3).unwrap()).grid(2, 32));
        let sum = OpSpec::new("all_reduce").arg("send", x).arg("recv", y).arg("reduce", ReduceOp::Sum);
        let message = match rank {
            0 => OpSpec::new("recv").arg("buffer", z).arg("peer", 1),
            _ => OpSpec::new("send").arg("buffer", whole(x).elements(2..3).unwrap()).arg("peer", 0),
        };
        graph.step(GroupSpec::new().with(sum).with(message));
        graph.add(Phase::Finish, times(2).arg("data", y).grid(3, 32));
    });
    let mut group = bind(graphs, Options::default());
    for rank in 0..2 {
        group.write(rank, BufferId(0), &[rank as i32, rank as i32 + 1, rank as i32 + 2]).unwrap();
    }
    group
}

fn observe(
    group: &mut PlanGroup,
    then: fn(&Written<'_>, &mut [i32]) -> Result<bool, DeviceError>,
) -> Arc<Watching> {
    let watching = Arc::new(Watching { seen: Default::default(), then });
    let observer: Arc<dyn Observer> = watching.clone();
    group.observe(&observer).unwrap();
    watching
}

fn results(group: &mut PlanGroup) -> Vec<Vec<i32>> {
    group.execute_many(2).unwrap();
    group.finish().unwrap();
    let all = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)];
    all.map(|(rank, buffer)| group.read::<i32>(rank, BufferId(buffer)).unwrap()).to_vec()
}

#[test]
fn every_range_is_seen_as_its_task_leaves_it() {
    let mut group = group();
    let watching = observe(&mut group, |_, _| Ok(false));
    results(&mut group);
    let seen = |rank: usize| watching.seen[rank].lock().unwrap().clone();
    assert_eq!(
        seen(0),
        [
            (Phase::Setup, 0, 0, 0, 0, vec![0, 2, 4]),
            (Phase::Step, 0, 0, 0, 1, vec![6, 12]),
            (Phase::Step, 0, 1, 0, 0, vec![2, 18, 30]),
            (Phase::Step, 0, 1, 1, 0, vec![18]),
            (Phase::Step, 1, 0, 0, 1, vec![18, 36]),
            (Phase::Step, 1, 1, 0, 0, vec![2, 54, 90]),
            (Phase::Step, 1, 1, 1, 0, vec![54]),
            (Phase::Finish, 0, 0, 0, 0, vec![4, 108, 180]),
        ]
    );
    // A send writes nothing.
    let tasks: Vec<_> =
        seen(1).into_iter().map(|(phase, step, task, index, ..)| (phase, step, task, index)).collect();
    assert_eq!(tasks[1..3], [(Phase::Step, 0, 0, 0), (Phase::Step, 0, 1, 0)]);
    assert_eq!(tasks.len(), 6);
}

#[test]
fn looking_changes_nothing() {
    let plain = results(&mut group());
    let mut observed = group();
    // What it scribbles and does not give back is lost.
    observe(&mut observed, |_, elements| {
        elements.fill(-1);
        Ok(false)
    });
    assert_eq!(results(&mut observed), plain);
}

#[test]
fn what_is_given_back_is_what_the_next_task_finds() {
    let mut group = group();
    let watching = observe(&mut group, |written, elements| {
        let here = (written.rank, written.phase, written.step, written.task) == (1, Phase::Step, 0, 0);
        if here {
            elements.copy_from_slice(&[100, 200]);
        }
        Ok(here)
    });
    group.execute().unwrap();
    assert_eq!(group.read::<i32>(1, BufferId(0)).unwrap(), [2, 100, 200]);
    assert_eq!(watching.seen[0].lock().unwrap()[2].5, [2, 106, 212]);
    assert_eq!(group.read::<i32>(0, BufferId(2)).unwrap(), [200]);
}

#[test]
fn an_observer_that_fails_or_panics_fails_the_rank_in_the_task() {
    for (then, said) in [
        (
            (|written, _| match written.task {
                1 => Err(DeviceError::Failed("seen enough".to_string())),
                _ => Ok(false),
            }) as fn(&Written<'_>, &mut [i32]) -> _,
            "seen enough",
        ),
        (
            |written, _| if written.task == 1 { panic!("too much") } else { Ok(false) },
            "it panicked: too much",
        ),
    ] {
        let mut group = group();
        observe(&mut group, then);
        match group.execute().unwrap_err() {
            GroupError::Failed { task: Some(task), during: Moment::Step(0), error, .. } => {
                assert_eq!((task.as_str(), error), ("task[1]", DeviceError::Failed(said.to_string())));
            }
            other => panic!("{other}"),
        }
    }
}
