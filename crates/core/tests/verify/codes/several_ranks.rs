//! What is wrong between the graphs of several ranks.

use std::sync::Arc;

use squall_core::{CommId, DType, Diagnostic, Matrix, TaskGraph, World, codes, verify};

use super::Case;
use crate::job::*;
use crate::stub::REGISTRY;

/// A world of four in rows of two.
fn rows() -> (Arc<World>, CommId) {
    let mut world = World::new(4).unwrap();
    let row = world.split("row", |rank| (i64::from(rank / 2), 0)).unwrap();
    (Arc::new(world), row)
}

/// What is wrong with empty graphs for these ranks of these worlds.
fn empty(ranks: &[(u32, Arc<World>)]) -> Vec<Diagnostic> {
    let build = |(rank, world): &(u32, Arc<World>)| {
        TaskGraph::builder(&REGISTRY, world, *rank, "test").build().unwrap()
    };
    verify(ranks.iter().map(build).collect()).unwrap_err().0
}

/// What is wrong with an op by which so many ranks divide a whole, each with a part and a whole of its own; root is rank 1.
fn divided(op: &'static str, size: u64, lens: impl Fn(u32) -> (u64, u64)) -> Vec<Diagnostic> {
    refused(size, |g, rank| {
        let (part, whole) = lens(rank);
        let (part, whole) = (g.buffer(f32s("part", part)), g.buffer(f32s("whole", whole)));
        let gathers = op.contains("gather");
        let (send, recv) = if gathers { (part, whole) } else { (whole, part) };
        let call = task("t", op).arg("send", send).arg("recv", recv);
        g.step(match op {
            "all_gather" => call,
            "reduce_scatter" => call.arg("reduce", "avg"),
            _ => call.arg("root", 1),
        });
    })
}

const fn ranks(says: &'static [&'static str], problems: fn() -> Vec<Diagnostic>) -> Case {
    Case { code: codes::RANKS, place: "", rank: None, says, problems }
}

const fn case(
    code: squall_core::Code,
    place: &'static str,
    rank: u32,
    says: &'static [&'static str],
    problems: fn() -> Vec<Diagnostic>,
) -> Case {
    Case { code, place, rank: Some(rank), says, problems }
}

pub(super) const CASES: &[Case] = &[
    Case {
        code: codes::TURNS,
        place: "some",
        rank: Some(1),
        says: &["after 6 steps for all ranks together", "after 2 on rank 0 and 3 on ranks 1 and 2"],
        problems: || {
            refused(3, |g, rank| {
                let [a, b, c] = ["a", "b", "c"].map(|name| g.buffer(f32s(name, 4)));
                g.step(swap("all", a, b));
                if rank > 0 {
                    g.step(swap("some", b, c));
                }
            })
        },
    },
    ranks(&["there are no task graphs"], || empty(&[])),
    ranks(&["rank 1 is of a world of 3 and rank 0 of a world of 2"], || {
        empty(&[(0, world(2)), (1, world(3))])
    }),
    ranks(&["two task graphs for rank 1"], || {
        let world = world(2);
        empty(&[(1, world.clone()), (0, world.clone()), (1, world)])
    }),
    ranks(&["the world has 3 ranks, and there is no task graph for rank 1"], || {
        let world = world(3);
        empty(&[(2, world.clone()), (0, world)])
    }),
    ranks(&["more task graphs than ranks"], || {
        let world = world(1);
        empty(&[(0, world.clone()), (1, world)])
    }),
    ranks(&["rank 0 and rank 1 are of worlds that are split into different communicators"], || {
        let mut other = World::new(2).unwrap();
        other.split("half", |rank| (i64::from(rank), 0)).unwrap();
        empty(&[(0, world(2)), (1, Arc::new(other))])
    }),
    case(
        codes::MISMATCH,
        "t.buffer",
        1,
        &["`all_reduce`, collective 0 on `world`: count is 4 on ranks 0 and 2 and 5 on rank 1"],
        || {
            refused(3, |g, rank| {
                let x = g.buffer(f32s("x", if rank == 1 { 5 } else { 4 }));
                g.step(sum("t", x));
            })
        },
    ),
    case(
        codes::MISMATCH,
        "t.counts",
        2,
        &["`all_to_all`, collective 0 on `world`: counts[0][2] is 2 on ranks 0 and 1 and 1 on rank 2"],
        || {
            refused(3, |g, rank| {
                let mut counts = vec![vec![2; 3]; 3];
                if rank == 2 {
                    (counts[0][2], counts[0][0]) = (1, 2);
                }
                let x = g.buffer(f32s("x", 6));
                let y = g.buffer(f32s("y", if rank == 2 { 5 } else { 6 }));
                let counts = Matrix::new(&counts).unwrap();
                g.step(task("t", "all_to_all").arg("send", x).arg("recv", y).arg("counts", counts));
            })
        },
    ),
    case(codes::MISMATCH, "t.counts", 1, &["count is 4 on rank 0 and a list of 4 numbers on rank 1"], || {
        refused(2, |g, rank| {
            let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
            let exchange = task("t", "all_to_all").arg("send", x).arg("recv", y);
            let counts = Matrix::new(&[[2, 2], [2, 2]]).unwrap();
            g.step(if rank == 0 { exchange } else { exchange.arg("counts", counts) });
        })
    }),
    case(
        codes::PARTS,
        "t.recv",
        0,
        &[
            "`all_gather`, collective 0 on `world`: `recv` has 10 elements on ranks 0 to 3",
            "the parts in `send` are 3 on ranks 0 to 2 and 2 on rank 3, which add up to 11",
        ],
        || divided("all_gather", 4, |rank| (if rank == 3 { 2 } else { 3 }, 10)),
    ),
    case(
        codes::PARTS,
        "t.recv",
        2,
        &["`recv` has 6 elements on ranks 0, 1 and 3 and 7 elements on rank 2, but the parts in `send` are"],
        || divided("all_gather", 4, |rank| (rank.into(), 6 + u64::from(rank == 2))),
    ),
    case(
        codes::PARTS,
        "t.send",
        0,
        &["`send` has 7 elements on ranks 0 and 1, but the parts in `recv` are 3 on ranks 0 and 1"],
        || divided("reduce_scatter", 2, |_| (3, 7)),
    ),
    case(
        codes::PARTS,
        "t.recv",
        1,
        &["`gather`, collective 0 on `world`: `recv` has 9 elements on rank 1, but", "add up to 6"],
        || divided("gather", 3, |_| (2, 9)),
    ),
    case(codes::PARTS, "t.send", 1, &["other values on ranks 4 to 99, which add up to 4950"], || {
        divided("scatter", 100, |rank| (rank.into(), 4951))
    }),
    case(
        codes::OVERLAP,
        "t.send",
        1,
        &[
            "`send` and `recv` overlap on rank 1: `send` is elements 2 to 4 of `recv`, but this rank's own part of it \
             is 3 to 5",
        ],
        || {
            refused(2, |g, rank| {
                let all = g.buffer(f32s("all", 5));
                let part = g.whole(all).unwrap().elements(if rank == 0 { 0..3 } else { 2..4 }).unwrap();
                g.step(task("t", "all_gather").arg("send", part).arg("recv", all));
            })
        },
    ),
    case(
        codes::MISMATCH,
        "t.reduce",
        1,
        &[
            "`reduce`, collective 0 on `world`: reduce is sum on rank 0 and max on rank 1; root is 0 on rank 0 and 1 on rank 1",
        ],
        || {
            refused(2, |g, rank| {
                let x = g.buffer(f32s("x", 4));
                let reduce = ["sum", "max"][rank as usize];
                g.step(task("t", "reduce").arg("buffer", x).arg("reduce", reduce).arg("root", rank));
            })
        },
    ),
    case(
        codes::ORDER,
        "b",
        3,
        &["collective 1 on `row` is `all_reduce` on rank 2 and `broadcast` on rank 3"],
        || {
            let (world, row) = rows();
            let job = on(&world, |g, rank| {
                let x = g.buffer(f32s("x", 4));
                g.step(sum("a", x).on(row));
                let broadcast = task("b", "broadcast").arg("buffer", x).arg("root", 0);
                g.step(if rank == 3 { broadcast } else { sum("b", x) }.on(row));
            });
            job.unwrap_err().0
        },
    ),
    case(
        codes::UNREACHED,
        "b",
        0,
        &[
            "`all_reduce`, collective 1 on `world`, is called on rank 0, but ranks 1 to 3 never reach it: 1 collective on",
        ],
        || {
            refused(4, |g, rank| {
                let x = g.buffer(f32s("x", 4));
                g.step(sum("a", x));
                if rank == 0 {
                    g.step(sum("b", x));
                }
            })
        },
    ),
    case(
        codes::UNREACHED,
        "b",
        2,
        &[
            "`all_reduce`, collective 0 on `world`, is called on rank 2, but rank 0 never reaches it: 0 collectives",
        ],
        || {
            refused(3, |g, rank| {
                let x = g.buffer(f32s("x", 4));
                if rank == 2 {
                    g.step(sum("b", x));
                }
            })
        },
    ),
    case(
        codes::BOUNDARIES,
        "a",
        1,
        &[
            "`all_reduce`, collective 0 on `world`, is grouped differently: number 1 of 2 in a group on rank 0 and alone on rank 1",
        ],
        || {
            refused(2, |g, rank| {
                let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
                let (a, b) = (sum("a", x), sum("b", y));
                if rank == 0 {
                    g.step(group("both", [a, b]));
                } else {
                    g.step(a).step(b);
                }
            })
        },
    ),
    case(
        codes::BOUNDARIES,
        "b",
        1,
        &[
            "among `all_reduce` on `world`, `all_reduce` on `row` on rank 0 and among `all_reduce` on `row`, `all_reduce` on `world` on rank 1",
        ],
        || {
            let (world, row) = rows();
            let job = on(&world, |g, rank| {
                let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
                let (a, b) = (sum("a", x), sum("b", y).on(row));
                // Row 1 may have them in its own order, since no other rank shares both communicators with it.
                g.step(group("both", if rank == 0 { [a, b] } else { [b, a] }));
            });
            job.unwrap_err().0
        },
    ),
    case(
        codes::BOUNDARIES,
        "a",
        1,
        &["among `all_reduce` on `world`, `all_reduce` on `row` on rank 0 and apart from `row` on rank 1"],
        || {
            let (world, row) = rows();
            let job = on(&world, |g, rank| {
                let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
                let (a, b) = (sum("a", x), sum("b", y).on(row));
                if rank == 1 {
                    g.step(a).step(b);
                } else {
                    g.step(group("both", [a, b]));
                }
            });
            job.unwrap_err().0
        },
    ),
    case(
        codes::BOUNDARIES,
        "b",
        2,
        &["among `all_reduce` on `low`, `all_reduce` on `high` on rank 1"],
        || {
            // Ranks 1 and 2 share both communicators, and are the first rank of neither.
            let mut world = World::new(4).unwrap();
            let low = world.split("low", |rank| (i64::from(rank == 3), 0)).unwrap();
            let high = world.split("high", |rank| (i64::from(rank == 0), -i64::from(rank))).unwrap();
            let job = on(&Arc::new(world), |g, rank| {
                let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
                let (a, b) = (sum("a", x).on(low), sum("b", y).on(high));
                match rank {
                    0 => g.step(a),
                    1 => g.step(group("both", [a, b])),
                    2 => g.step(group("both", [b, a])),
                    _ => g.step(b),
                };
            });
            job.unwrap_err().0
        },
    ),
    case(
        codes::UNMATCHED_SEND,
        "t.peer",
        0,
        &["rank 0 sends 4 f32 to rank 1 on `world`, and rank 1 never receives it"],
        || {
            refused(2, |g, rank| {
                let x = g.buffer(f32s("x", 4));
                if rank == 0 {
                    g.step(send("t", x, 1));
                }
            })
        },
    ),
    case(
        codes::UNMATCHED_RECV,
        "t.peer",
        3,
        &["rank 3 receives 4 f32 from rank 2 on `row`, and rank 2 never sends it"],
        || {
            let (world, row) = rows();
            let job = on(&world, |g, rank| {
                let x = g.buffer(f32s("x", 4));
                if rank == 3 {
                    g.step(recv("t", x, 0).on(row));
                }
            });
            job.unwrap_err().0
        },
    ),
    case(
        codes::SIDES,
        "in.buffer",
        1,
        &["rank 0 sends 4 f32 to rank 1, which receives 16 u8 on `world`"],
        || {
            refused(2, |g, rank| {
                let (x, bytes) = (g.buffer(f32s("x", 4)), g.buffer(buffer("bytes", DType::U8, 16)));
                if rank == 0 {
                    g.step(send("out", x, 1));
                } else {
                    g.step(recv("in", bytes, 0));
                }
            })
        },
    ),
    case(
        codes::DEADLOCK,
        "out",
        0,
        &["deadlock: rank 0 waits in `send` for rank 1; rank 1 waits in `send` for rank 0"],
        || {
            refused(2, |g, rank| {
                let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
                g.step(send("out", x, 1 - rank)).step(recv("in", y, 1 - rank));
            })
        },
    ),
    case(codes::DEADLOCK, "out", 0, &["deadlock: rank 0 waits in `send` for its own `in`"], || {
        refused(1, |g, _| {
            let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
            // To oneself in groups, but not in one.
            g.step(group("out", [send("a", x, 0)])).step(group("in", [recv("b", y, 0)]));
        })
    }),
    case(
        codes::UNDEFINED,
        "both",
        0,
        &[
            "finishes only if members of a group progress apart from each other, which NCCL leaves undefined",
            "rank 0 waits in the group `both` for rank 1; rank 1 waits in `send` for rank 0",
        ],
        || {
            refused(2, |g, rank| {
                let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
                let (out, back) = (send("out", x, 1 - rank), recv("in", y, 1 - rank));
                if rank == 0 {
                    g.step(group("both", [out, back]));
                } else {
                    g.step(out).step(back);
                }
            })
        },
    ),
    case(
        codes::UNCAPTURED,
        "t.op",
        0,
        &[
            "`eager_sum` by the library `eager` cannot be captured, and the step is to be (and on 2 more ranks)",
        ],
        || {
            let verified = job(3, |g, _| {
                let x = g.buffer(f32s("x", 4));
                let eager = |name| task(name, "eager_sum").arg("buffer", x).arg("reduce", "sum");
                // Only the step is captured.
                g.setup(eager("before")).step(sum("s", x)).step(eager("t")).finish(eager("after"));
            });
            verified.unwrap().check_capture().unwrap_err().0
        },
    ),
    case(
        codes::PROCESSES,
        "t.op",
        0,
        &[
            "`near_sum` by the library `near` reaches the memory of its peers, and those on `row` may be in other processes (and on 3 more ranks)",
        ],
        || {
            let (world, row) = rows();
            let verified = on(&world, |g, _| {
                let x = g.buffer(f32s("x", 4));
                g.step(sum("s", x))
                    .finish(task("t", "near_sum").on(row).arg("buffer", x).arg("reduce", "sum"));
            });
            verified.unwrap().check_processes(2).unwrap_err().0
        },
    ),
];
