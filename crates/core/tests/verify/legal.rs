//! What looks odd and must be accepted.

use std::sync::Arc;

use squall_core::{BufferDecl, BufferRange, DType, Download, GroupSpec, OpSpec, Phase, ReduceOp, World, ops};

use crate::job::*;

/// A call of the op `name` by `rank` of `size`, out of place, with blocks of `len` elements.
fn call(g: &mut Rank, name: &'static str, len: u64, rank: u32, size: u32) -> OpSpec {
    let all = len * u64::from(size);
    let (part, whole) = (g.buffer(f32s("part", len)), g.buffer(f32s("whole", all)));
    let (part_out, whole_out) = (g.buffer(f32s("part out", len)), g.buffer(f32s("whole out", all)));
    let last = size - 1;
    let spec = task("t", name);
    match name {
        "all_reduce" => spec.arg("send", part).arg("recv", part_out).arg("reduce", ReduceOp::Avg),
        "reduce" => {
            spec.arg("send", part).arg("recv", part_out).arg("reduce", ReduceOp::Min).arg("root", last)
        }
        "broadcast" => spec.arg("send", part).arg("recv", part_out).arg("root", last),
        "all_gather" => spec.arg("send", part).arg("recv", whole_out),
        "reduce_scatter" => spec.arg("send", whole).arg("recv", part_out).arg("reduce", ReduceOp::Prod),
        "all_to_all" => spec.arg("send", whole).arg("recv", whole_out),
        "gather" => spec.arg("send", part).arg("recv", whole_out).arg("root", last),
        "scatter" => spec.arg("send", whole).arg("recv", part_out).arg("root", last),
        "send_recv" => {
            let (to, from) = ((rank + 1) % size, (rank + last) % size);
            spec.arg("send", part).arg("to", to).arg("recv", part_out).arg("from", from)
        }
        _ => panic!("`{name}` does not meet by itself"),
    }
}

fn meets_by_itself(name: &str) -> bool {
    name != "send" && name != "recv"
}

#[test]
fn every_op_at_any_world_with_and_without_elements() {
    for contract in ops::CONTRACTS {
        let name = squall_core::Task::name(contract);
        for (size, len) in [(1, 4), (1, 0), (2, 3), (5, 1), (3, 0)] {
            if meets_by_itself(name) {
                job(size.into(), |g, rank| {
                    let op = call(g, name, len, rank, size);
                    g.step(op);
                })
                .unwrap();
            }
        }
    }
}

/// An empty axis makes a buffer empty, however long the others are.
#[test]
fn empty_buffers_of_long_axes() {
    job(2, |g, _| {
        let x = g.buffer(BufferDecl { shape: [u64::MAX, 2, 0].into(), ..f32s("x", 0) });
        g.step(sum("t", x));
    })
    .unwrap();
}

#[test]
fn empty_groups_and_ranks_without_tasks() {
    let verified = job(3, |g, rank| {
        if rank == 1 {
            g.step(group("nothing", []));
        }
    })
    .unwrap();
    assert_eq!(verified.graphs()[1].tasks(Phase::Step).len(), 1);
    job(3, |g, rank| {
        let x = g.buffer(f32s("x", 4));
        // Boundary ranks have nothing to exchange.
        let members = match rank {
            0 => group("exchange", []),
            1 => group("exchange", [send("out", x, 2)]),
            _ => group("exchange", [recv("in", x, 1)]),
        };
        g.step(members);
    })
    .unwrap();
}

#[test]
fn to_oneself_in_a_group() {
    job(2, |g, rank| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
        g.step(group("both", [recv("in", y, rank), send("out", x, rank)]));
        let both = task("send_recv", "send_recv").arg("send", x).arg("to", rank);
        g.step(both.arg("recv", y).arg("from", rank));
    })
    .unwrap();
}

#[test]
fn in_place_forms() {
    job(3, |g, rank| {
        let all = g.buffer(f32s("all", 12));
        let whole = g.whole(all).unwrap();
        let block = |r: u32| whole.elements(4 * u64::from(r)..4 * u64::from(r) + 4).unwrap();
        let in_place = |op: OpSpec, whole_name: &'static str, block_name: &'static str, r: u32| {
            op.arg(whole_name, whole.clone()).arg(block_name, block(r))
        };
        g.step(in_place(task("all_gather", "all_gather"), "recv", "send", rank));
        g.step(in_place(task("reduce_scatter", "reduce_scatter"), "send", "recv", rank).arg("reduce", "sum"));
        if rank == 1 {
            g.step(in_place(task("gather", "gather"), "recv", "send", rank).arg("root", 1));
            g.step(in_place(task("scatter", "scatter"), "send", "recv", rank).arg("root", 1));
        } else {
            // Elsewhere the whole is named, and not touched.
            g.step(in_place(task("gather", "gather"), "recv", "send", 0).arg("root", 1));
            g.step(in_place(task("scatter", "scatter"), "send", "recv", 0).arg("root", 1));
        }
        for op in ["all_reduce", "reduce"] {
            let spec = task(&format!("{op} in place"), op)
                .arg("send", block(0))
                .arg("recv", block(0))
                .arg("reduce", "sum");
            g.step(if op == "reduce" { spec.arg("root", 2) } else { spec });
        }
        g.step(task("broadcast", "broadcast").arg("send", block(0)).arg("recv", block(0)).arg("root", 0));
    })
    .unwrap();
}

#[test]
fn kernels_in_place_and_skipped() {
    let built = graphs(&world(2), "host", |g, rank| {
        let x = g.buffer(f32s("x", 4 * u64::from(rank)));
        let len = 4 * u64::from(rank);
        g.step(scale("k").arg("x", x).arg("y", x).arg("factor", 2.0).grid(len, 4));
        g.step(sum("t", x));
    });
    // The counts differ on purpose: the kernel of an empty grid is skipped, and nothing else is.
    assert_eq!(built.as_ref().unwrap()[0].tasks(Phase::Step).len(), 1);
    assert_eq!(built.unwrap()[1].tasks(Phase::Step).len(), 2);
}

#[test]
fn disjoint_ranges_of_one_buffer() {
    job(2, |g, rank| {
        let u = g.buffer(BufferDecl { shape: [3, 4].into(), ..f32s("u", 0) });
        let row = |i: u64| g.whole(u).unwrap().rows(i..i + 1).unwrap();
        let exchange = group("halo", [send("out", row(1), 1 - rank), recv("in", row(0), 1 - rank)]);
        g.step(exchange.with(sum("sum", row(2)))).step(sum("again", u));
    })
    .unwrap();
}

/// Two reads of one range are no overlap.
#[test]
fn one_range_sent_to_all() {
    job(3, |g, _| {
        let (x, y) = (g.buffer(f32s("x", 2)), g.buffer(f32s("y", 6)));
        let mut all = GroupSpec::new().from_origin(origin("all"));
        for peer in 0..3 {
            let block = g.whole(y).unwrap().elements(2 * u64::from(peer)..2 * u64::from(peer) + 2).unwrap();
            all = all.with(send("out", x, peer)).with(recv("in", block, peer));
        }
        g.step(all);
    })
    .unwrap();
}

#[test]
fn groups_mix_collectives_and_transfers() {
    job(3, |g, rank| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
        // Transfers may stand anywhere between the collectives.
        g.step(match rank {
            0 => group("mixed", [send("out", y, 1), sum("sum", x)]),
            1 => group("mixed", [sum("sum", x), recv("in", y, 0)]),
            _ => group("mixed", [sum("sum", x)]),
        });
        // A group of one is as good as none.
        if rank == 0 {
            g.step(group("b", [sum("b", x)]));
        } else {
            g.step(sum("b", x));
        }
    })
    .unwrap();
}

#[test]
fn several_communicators_in_one_step() {
    let mut world = World::new(6).unwrap();
    let row = world.split("row", |rank| (i64::from(rank / 3), -i64::from(rank))).unwrap();
    let column = world.split("column", |rank| (i64::from(rank % 3), 0)).unwrap();
    on(&Arc::new(world), |g, rank| {
        let (x, y, z) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)), g.buffer(f32s("z", 4)));
        g.step(sum("a", x).on(row)).step(sum("b", x).on(column)).step(sum("c", x));
        g.step(group("both", [sum("d", x).on(column), sum("e", y).on(row), sum("f", z)]));
        // Ranks that meet in one communicator alone may use others in their own order.
        let shift = task("shift", "send_recv").arg("send", x).arg("recv", y).on(row);
        let place = 2 - rank % 3;
        g.step(shift.arg("to", (place + 1) % 3).arg("from", (place + 2) % 3));
    })
    .unwrap();
}

/// The order of setup and finish is the plan group's: each phase meets by itself.
#[test]
fn phases_are_apart() {
    job(2, |g, _| {
        let state = g.buffer(BufferDecl::new("state", DType::F32, [4]).download(Download::Last));
        let x = g.buffer(f32s("x", 4));
        let copy = task("copy", "broadcast").arg("send", x).arg("recv", state).arg("root", 0);
        g.setup(copy).step(sum("step", state)).finish(sum("finish", state));
    })
    .unwrap();
}

/// A range that holds nothing may lie anywhere in its buffer, even at its end.
#[test]
fn empty_ranges() {
    job(2, |g, _| {
        let x = g.buffer(f32s("x", 4));
        let end = BufferRange { buffer: x, dtype: DType::F32, offset: 4, shape: [0].into() };
        g.step(group("both", [sum("a", end.clone()), sum("b", end), sum("c", x)]));
    })
    .unwrap();
}
