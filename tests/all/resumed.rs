//! Snapshots of a plan group, and groups that go on from them.

use squall_core::graph::{KernelSpec, SwapSpec};
use squall_core::{
    BufferDecl, BufferId, DType, Download, Feed, GroupError, Moment, OpSpec, Options, PlanGroup, Snapshot,
    Upload,
};
use squall_tests::{bind, graphs, registry};

const SUM: BufferId = BufferId(0);
const FED: BufferId = BufferId(1);
const TAKEN: BufferId = BufferId(2);

/// Gives the step's number, and nothing at one step.
struct Numbers {
    fails_at: u64,
}

impl Feed for Numbers {
    fn fill(&mut self, step: u64, out: &mut [u8]) -> Result<(), String> {
        out.copy_from_slice(&step.to_ne_bytes());
        if step == self.fails_at { Err("no more numbers".to_string()) } else { Ok(()) }
    }
}

/// Two ranks that add up the steps' numbers from `rank` on, and all ranks' sums in `taken`; both once more in the finish.
fn group(fails_at: u64) -> PlanGroup {
    let add = registry().kernel("add").unwrap();
    let fill = registry().kernel("fill").unwrap();
    let graphs = graphs(2, |rank, graph| {
        let sum = graph.buffer(BufferDecl::new("sum", DType::U64, [1]));
        let fed = graph.buffer(BufferDecl::new("fed", DType::U64, [1]).upload(Upload::Every));
        let taken = graph.buffer(BufferDecl::new("taken", DType::U64, [1]).download(Download::Every));
        let added = || KernelSpec::new(add).arg("a", sum).arg("b", fed).arg("out", sum).grid(1, 32);
        graph.setup(KernelSpec::new(fill).arg("dst", sum).arg("value", i64::from(rank)).grid(1, 32));
        graph.step(added());
        graph.step(OpSpec::new("all_reduce").arg("send", sum).arg("recv", taken).arg("reduce", "sum"));
        graph.finish(added());
    });
    let mut group = bind(graphs, Options::default());
    for rank in 0..2 {
        group.feed(rank, FED, Box::new(Numbers { fails_at })).unwrap();
    }
    group
}

fn numbers(group: &mut PlanGroup) -> Vec<u64> {
    let each = [SUM, FED, TAKEN].into_iter().flat_map(|buffer| [(0, buffer), (1, buffer)]);
    each.map(|(rank, buffer)| group.read::<u64>(rank, buffer).unwrap()[0]).collect()
}

fn snapshot(group: &mut PlanGroup) -> Snapshot {
    let carried = group.verified().carried();
    let snapshot = group.snapshot(&carried).unwrap();
    group.copy_to(snapshot).unwrap()
}

/// A group that goes on from a snapshot.
fn resumed(mut from: Snapshot, fails_at: u64) -> PlanGroup {
    let mut group = group(fails_at);
    group.resume_at(from.steps()).unwrap();
    for (rank, buffers) in (0..).zip(from.ranks()) {
        for (buffer, bytes) in buffers {
            group.restore(rank, buffer, bytes.to_vec()).unwrap();
        }
    }
    group
}

#[test]
fn a_resumed_group_does_what_the_first_would_have_done() {
    for stop in 1..6 {
        let (mut whole, mut first) = (group(u64::MAX), group(u64::MAX));
        first.execute_many(stop).unwrap();
        let taken = snapshot(&mut first);
        assert_eq!((taken.steps(), taken.bytes()), (stop, 48));
        // The first goes on, and the snapshot is as it was.
        first.execute().unwrap();
        let mut second = resumed(taken, u64::MAX);
        assert_eq!(second.interrupt_handle().steps_done(), stop);
        second.execute_many(5 - stop).unwrap();
        whole.execute_many(5).unwrap();
        for group in [&mut whole, &mut second] {
            group.finish().unwrap();
        }
        assert_eq!(second.interrupt_handle().steps_done(), 5);
        assert_eq!(numbers(&mut second), numbers(&mut whole), "stopped after {stop}");
        assert_eq!(numbers(&mut whole), [14, 15, 4, 4, 21, 21]);
    }
}

#[test]
fn a_resumed_group_counts_on_in_what_it_says() {
    let mut first = group(u64::MAX);
    first.execute_many(3).unwrap();
    let mut second = resumed(snapshot(&mut first), 4);
    let error = second.execute_many(5).unwrap_err();
    let GroupError::Failed { during, .. } = &error else { panic!("{error}") };
    assert_eq!(during, &Moment::Step(4));
    // The other rank may have been stopped in the step before.
    assert!((3..=4).contains(&second.interrupt_handle().steps_done()));
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut group = group(u64::MAX);
    let short: Vec<Vec<bool>> = vec![vec![true; 3]];
    assert!(matches!(group.snapshot(&short), Err(GroupError::Buffer(_))));
    assert!(matches!(group.snapshot(&[[true; 2], [true; 2]]), Err(GroupError::Buffer(_))));
    group.resume_at(7).unwrap();
    let error = group.restore(0, SUM, vec![0; 7]).unwrap_err();
    assert!(matches!(&error, GroupError::Buffer(text) if text.contains("`sum` on rank 0")), "{error}");
    assert!(matches!(group.restore(2, SUM, vec![0; 8]), Err(GroupError::Buffer(_))));
    group.execute().unwrap();
    assert!(matches!(group.resume_at(9), Err(GroupError::Buffer(_))));
}

/// One rank with four buffers, of which three are swapped: setup, each step and the finish go through such a row of tasks.
fn swapping(program: &[Vec<(u32, u32, u32)>; 3]) -> PlanGroup {
    let add = registry().kernel("add").unwrap();
    let decl = |name| BufferDecl::new(name, DType::I64, [1]).upload(Upload::First).download(Download::Last);
    let graphs = graphs(1, |_, graph| {
        let ids = ["a", "b", "c", "d"].map(|name| graph.buffer(decl(name)));
        for (phase, tasks) in squall_core::Phase::ALL.into_iter().zip(program) {
            for &(what, a, b) in tasks {
                let (a, b) = (ids[a as usize], ids[b as usize]);
                if what == 0 && a != b {
                    graph.add(phase, SwapSpec::new(a, b));
                } else {
                    graph.add(
                        phase,
                        KernelSpec::new(add).arg("a", ids[3]).arg("b", b).arg("out", a).grid(1, 32),
                    );
                }
            }
        }
    });
    let mut group = bind(graphs, Options::default());
    (0..4).for_each(|id| group.write(0, BufferId(id), &[1i64 << (8 * id)]).unwrap());
    group
}

/// Names stand, after a resumption, for what they did then, and nothing that a name comes to later is missing.
#[test]
fn a_resumed_group_swaps_on() {
    let mut seed = 11u64;
    let mut next = |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((seed >> 33) % n) as u32
    };
    let values = |group: &mut PlanGroup| {
        [0, 1, 2, 3].map(|id| group.read::<i64>(0, BufferId(id)).unwrap().first().copied())
    };
    let mut turns = [0; 4];
    for _ in 0..60 {
        // The last buffer is the one that all is added to, and is never swapped or written.
        let mut row = |most| (0..next(most)).map(|_| (next(2), next(3), next(3))).collect::<Vec<_>>();
        let program = [row(3), row(5), row(3)];
        let mut whole = swapping(&program);
        turns[whole.verified().turns() - 1] += 1;
        whole.execute_many(5).unwrap();
        whole.finish().unwrap();
        let wanted = values(&mut whole);
        for stop in 1..5 {
            let mut first = swapping(&program);
            first.execute_many(stop).unwrap();
            let mut from = snapshot(&mut first);
            let mut second = swapping(&program);
            second.resume_at(from.steps()).unwrap();
            let stored: Vec<_> =
                from.ranks().next().into_iter().flatten().map(|(id, b)| (id, b.to_vec())).collect();
            stored.into_iter().for_each(|(id, bytes)| second.restore(0, id, bytes).unwrap());
            second.execute_many(5 - stop).unwrap();
            second.finish().unwrap();
            assert_eq!(values(&mut second), wanted, "{program:?} after {stop}");
        }
    }
    assert!(turns[..3].iter().all(|&jobs| jobs > 3), "{turns:?}");
}
