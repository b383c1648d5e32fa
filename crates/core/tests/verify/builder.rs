//! Nodes and buffers that ranks share.

use std::sync::Arc;

use squall_core::{
    BufferDecl, BufferId, DType, Download, OpSpec, Phase, Problems, TaskGraph, TaskSpec, Upload, World, codes,
};

use crate::job::*;
use crate::stub::REGISTRY;

/// Whether rank 1 takes over what rank 0 added; both have the buffers `x` and `y` of four elements of these types.
fn shares(world: &Arc<World>, dtypes: [DType; 2], device: &str, op: impl Fn(&mut Rank) -> TaskSpec) -> bool {
    let mut builders =
        [0, 1].map(|rank| TaskGraph::builder(&REGISTRY, world, rank, ["test", device][rank as usize]));
    for (builder, dtype) in builders.iter_mut().zip(dtypes) {
        builder.buffer(buffer("x", dtype, 4));
        builder.buffer(f32s("y", 4));
    }
    let [first, second] = &mut builders;
    let spec = op(first);
    let node = first.add(Phase::Step, spec).expect("rank 0 takes it");
    second.share(Phase::Step, &node, first.buffers())
}

fn x() -> BufferId {
    BufferId(0)
}

fn y() -> BufferId {
    BufferId(1)
}

/// Shared on equal buffers and devices, in a world of two.
fn shares_op(op: OpSpec) -> bool {
    shares(&world(2), [DType::F32; 2], "test", |_| op.clone().into())
}

#[test]
fn nodes_are_shared_where_they_mean_the_same() {
    assert!(shares_op(sum("t", x())));
    // Root reads where others write.
    assert!(!shares_op(task("t", "broadcast").arg("buffer", x()).arg("root", 0)));
    let out_of_place = task("t", "all_reduce").arg("send", x()).arg("recv", y()).arg("reduce", "sum");
    assert!(shares_op(out_of_place));
    assert!(shares(&world(2), [DType::F32; 2], "test", |_| group("nothing", []).into()));
}

#[test]
fn nodes_are_not_shared_over_other_buffers_or_devices() {
    let all = |dtypes, device, buffer| shares(&world(2), dtypes, device, |_| sum("t", buffer).into());
    assert!(!all([DType::F32, DType::I32], "test", x()));
    assert!(all([DType::F32, DType::I32], "test", y()));
    assert!(!all([DType::F32; 2], "host", x()));
}

/// A peer is a number in the communicator: on its own rank it is a send to oneself, and in a smaller part it is nobody.
#[test]
fn nodes_are_not_shared_with_the_peer_itself_or_where_it_is_nobody() {
    assert!(!shares_op(send("t", x(), 1)));
    assert!(shares(&world(2), [DType::F32; 2], "test", |_| group("g", [send("t", x(), 1)]).into()));
    let mut uneven = World::new(4).unwrap();
    let comm = uneven.split("uneven", |rank| (i64::from(rank == 1), 0)).unwrap();
    let uneven = Arc::new(uneven);
    assert!(!shares(&uneven, [DType::F32; 2], "test", |_| send("t", x(), 2).on(comm).into()));
    assert!(!shares(&uneven, [DType::F32; 2], "test", |_| {
        task("t", "broadcast").arg("send", x()).arg("recv", y()).arg("root", 1).on(comm).into()
    }));
}

/// What is shared has a name like what is added.
#[test]
fn names_are_unique_over_shared_nodes() {
    let world = world(2);
    let mut first = TaskGraph::builder(&REGISTRY, &world, 0, "test");
    let x = first.buffer(f32s("x", 4));
    let node = first.add(Phase::Step, sum("t", x)).unwrap();
    let mut second = TaskGraph::builder(&REGISTRY, &world, 1, "test");
    second.share_buffers(first.buffers().clone());
    assert!(second.share(Phase::Step, &node, first.buffers()));
    assert!(!second.share(Phase::Step, &node, first.buffers()));
    second.step(sum("t", x));
    let Problems(problems) = second.build().unwrap_err();
    says(only(codes::DUPLICATE, &problems), &["two tasks have the name `t`"]);
}

/// Buffers may be shared that no builder has seen: they are checked all the same.
#[test]
fn shared_buffers_are_checked() {
    let mut g = TaskGraph::builder(&REGISTRY, &world(1), 0, "test");
    g.share_buffers(Arc::new(vec![buffer("x", DType::F64, 1 << 60)]));
    g.step(sum("t", x()));
    let Problems(problems) = g.build().unwrap_err();
    assert_eq!(place(&only(codes::TOO_LARGE, &problems).primary), "x");
}

/// Reports of many ranks about one task are one, and those about several buffers of one task are not.
#[test]
fn reports_fold_by_task_and_subject() {
    let problems = refused(3, |g, _| {
        let [a, b] = ["a", "b"].map(|name| g.buffer(BufferDecl { upload: Upload::Never, ..f32s(name, 4) }));
        // Two members of one name, as an unrolled entry has.
        g.setup(group("sums", [sum("t", a), sum("t", b)]));
    });
    let [first, second] = problems.as_slice() else { panic!("one for each buffer: {problems:#?}") };
    says(first, &["`a`", "on rank 0", "(and likewise on 2 more ranks)"]);
    says(second, &["`b`", "on rank 0", "(and likewise on 2 more ranks)"]);
    let problems = refused(2, |g, _| {
        for name in ["a", "b"] {
            let decl = BufferDecl::new(name, DType::F32, [4]).download(Download::Last);
            let id = g.buffer(decl);
            g.step(group(
                name,
                [recv(&format!("in {name}"), g.whole(id).unwrap().elements(0..1).unwrap(), 0)],
            ));
        }
    });
    let unwritten: Vec<_> = problems.iter().filter(|p| p.code == codes::UNWRITTEN).collect();
    assert_eq!(unwritten.len(), 2, "{problems:#?}");
    says(unwritten[0], &["`a` is downloaded", "element 1 of 4", "(and likewise on 1 more rank)"]);
    says(unwritten[1], &["`b` is downloaded"]);
}
