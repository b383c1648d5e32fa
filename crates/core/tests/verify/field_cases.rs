//! Faults that people who run multi-GPU pipelines met: each refused with what they needed to know, or run.

use std::sync::Arc;

use squall_core::{BufferRange, DType, World, codes};

use crate::job::*;

/// Ranks disagree about the type, which gave garbage without an error elsewhere.
#[test]
fn mixed_dtypes_name_the_dtype_of_every_rank() {
    let problems = refused(3, |g, rank| {
        let x = g.buffer(buffer("x", if rank == 0 { DType::Bf16 } else { DType::F32 }, 4));
        g.step(sum("t", x));
    });
    says(only(codes::MISMATCH, &problems), &["dtype is bf16 on rank 0 and f32 on ranks 1 and 2"]);
}

/// Equal sizes in bytes are no excuse.
#[test]
fn broadcast_of_equal_bytes_but_other_dtypes() {
    let problems = refused(2, |g, rank| {
        let x = g.buffer(if rank == 0 { f32s("x", 4) } else { buffer("x", DType::U8, 16) });
        g.step(task("t", "broadcast").arg("buffer", x).arg("root", 0));
    });
    let problem = only(codes::MISMATCH, &problems);
    says(problem, &["count is 4 on rank 0 and 16 on rank 1", "dtype is f32 on rank 0 and u8 on rank 1"]);
    // Both ranks' ops stand side by side.
    assert_eq!(problem.primary.text, "broadcast count = 16, dtype = u8, root = 0, of `x`");
    assert_eq!(problem.related[0].text, "broadcast count = 4, dtype = f32, root = 0, of `x`");
}

#[test]
fn another_order_shows_the_first_differing_position() {
    let problems = refused(2, |g, rank| {
        let (a, b) = (g.buffer(f32s("a", 4)), g.buffer(f32s("b", 4)));
        let all = g.buffer(f32s("all", 8));
        g.step(sum("before", a));
        let (reduce, gather) =
            (sum("reduce", a), task("gather", "all_gather").arg("send", b).arg("recv", all));
        if rank == 0 {
            g.step(reduce).step(gather);
        } else {
            g.step(gather).step(reduce);
        }
    });
    let problem = only(codes::ORDER, &problems);
    says(problem, &["collective 1 on `world` is `all_reduce` on rank 0 and `all_gather` on rank 1"]);
    assert_eq!((place(&problem.primary), place(&problem.related[0])), ("gather".into(), "reduce".into()));
}

#[test]
fn a_collective_on_rank_0_alone() {
    let problems = refused(2, |g, rank| {
        let x = g.buffer(f32s("x", 4));
        if rank == 0 {
            g.step(sum("t", x));
        }
    });
    let problem = only(codes::UNREACHED, &problems);
    says(
        problem,
        &["`all_reduce`, collective 0 on `world`, is called on rank 0, but rank 1 never reaches it"],
    );
    assert!(problem.help.as_deref().unwrap().contains("drop the `when`"));
}

#[test]
fn another_order_of_communicators_is_a_cycle() {
    let mut world = World::new(2).unwrap();
    let pair = world.split("pair", |_| (0, 0)).unwrap();
    let problems = on(&Arc::new(world), |g, rank| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
        let (all, two) = (sum("all", x), sum("two", y).on(pair));
        if rank == 0 {
            g.step(all).step(two);
        } else {
            g.step(two).step(all);
        }
    });
    let problems = problems.unwrap_err().0;
    let problem = only(codes::DEADLOCK, &problems);
    let cycle = "rank 0 waits in `all_reduce` on `world` for rank 1; rank 1 waits in `all_reduce` on `pair` for rank 0";
    says(problem, &[cycle]);
    assert_eq!((place(&problem.primary), place(&problem.related[0])), ("all".into(), "two".into()));
}

/// Two ranks exchange; what `order` says decides how each goes about it.
fn exchange(order: [&'static str; 2]) -> Result<squall_core::Verified, squall_core::Problems> {
    job(2, |g, rank| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
        let (out, back) = (send("out", x, 1 - rank), recv("back", y, 1 - rank));
        match order[rank as usize] {
            "send first" => g.step(out).step(back),
            "recv first" => g.step(back).step(out),
            _ => g.step(group("both", [out, back])),
        };
    })
}

#[test]
fn both_send_first() {
    let problems = exchange(["send first", "send first"]).unwrap_err().0;
    let problem = only(codes::DEADLOCK, &problems);
    says(problem, &["deadlock: rank 0 waits in `send` for rank 1; rank 1 waits in `send` for rank 0"]);
    assert!(problem.help.as_deref().unwrap().contains("in one group on every rank, or use `send_recv`"));
}

#[test]
fn one_groups_and_the_other_does_not() {
    let problems = exchange(["group", "send first"]).unwrap_err().0;
    let problem = only(codes::UNDEFINED, &problems);
    says(problem, &["rank 0 waits in the group `both` for rank 1; rank 1 waits in `send` for rank 0"]);
    assert!(problem.help.as_deref().unwrap().contains("in one group on every rank"));
}

#[test]
fn exchanges_that_run() {
    exchange(["send first", "recv first"]).unwrap();
    exchange(["group", "group"]).unwrap();
}

#[test]
fn a_ring_of_three_that_all_send_first() {
    let problems = refused(3, |g, rank| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
        g.step(send("out", x, (rank + 1) % 3)).step(recv("back", y, (rank + 2) % 3));
    });
    let cycle = "rank 0 waits in `send` for rank 1; rank 1 waits in `send` for rank 2; rank 2 waits in `send` for rank 0";
    says(only(codes::DEADLOCK, &problems), &[cycle]);
}

/// A cycle of many ranks is told without naming all of them.
#[test]
fn a_ring_of_a_thousand() {
    let problems = refused(1000, |g, rank| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
        g.step(send("out", x, (rank + 1) % 1000)).step(recv("back", y, (rank + 999) % 1000));
    });
    let problem = only(codes::DEADLOCK, &problems);
    says(problem, &["rank 7 waits in `send` for rank 8; and so on over 992 more ranks to rank 0"]);
    assert_eq!(problem.related.len(), 7);
}

/// Rank 0 sends `a` and then `b`; rank 1 receives into `y` and then `x`, in one group each or not.
fn two_messages(len_of_b: u64, grouped: bool) -> Result<squall_core::Verified, squall_core::Problems> {
    job(2, |g, rank| {
        let (a, b) = (g.buffer(f32s("a", 2)), g.buffer(f32s("b", len_of_b)));
        let (x, y) = (g.buffer(f32s("x", len_of_b)), g.buffer(f32s("y", 2)));
        let [first, second] = match (rank, len_of_b) {
            (0, _) => [send("a", a, 1), send("b", b, 1)],
            (_, 2) => [recv("y", y, 0), recv("x", x, 0)],
            // In the order of their names, which is not the order they were sent in.
            _ => [recv("x", x, 0), recv("y", y, 0)],
        };
        if grouped {
            g.step(group("both", [first, second]));
        } else {
            g.step(first).step(second);
        }
    })
}

#[test]
fn messages_of_a_pair_are_matched_by_order() {
    for grouped in [false, true] {
        two_messages(2, grouped).unwrap();
        let problems = two_messages(3, grouped).unwrap_err().0;
        let [first, second] = problems.as_slice() else { panic!("both pairs: {problems:#?}") };
        assert_eq!((first.code, second.code), (codes::SIDES, codes::SIDES));
        says(first, &["rank 0 sends 2 f32 to rank 1, which receives 3 f32"]);
        says(second, &["rank 0 sends 3 f32 to rank 1, which receives 2 f32"]);
        let places = [first, second].map(|p| (place(&p.related[0]), place(&p.primary)));
        assert_eq!(places, [("a.buffer".into(), "x.buffer".into()), ("b.buffer".into(), "y.buffer".into())]);
    }
}

#[test]
fn roots() {
    let broadcast = |root: [u32; 2]| {
        job(2, move |g, rank| {
            let x = g.buffer(f32s("x", 1));
            g.step(task("t", "broadcast").arg("buffer", x).arg("root", root[rank as usize]));
        })
    };
    broadcast([1, 1]).unwrap();
    let problems = broadcast([2, 2]).unwrap_err().0;
    let problem = only(codes::NO_SUCH_RANK, &problems);
    says(problem, &["`root` is 2; the communicator `world` has the ranks 0 to 1", "(and on 1 more rank)"]);
    let problems = broadcast([0, 1]).unwrap_err().0;
    says(only(codes::MISMATCH, &problems), &["root is 0 on rank 0 and 1 on rank 1"]);
}

/// Odd counts and views off a boundary are nothing to the ops of squall's own, and the plugin's needs are checked.
#[test]
fn odd_counts_and_views() {
    let run = |op: &'static str, dtype, len: u64, view: std::ops::Range<u64>| {
        job(4, move |g, _| {
            let x = g.buffer(buffer("x", dtype, len));
            let view = g.whole(x).unwrap().elements(view.clone()).unwrap();
            g.step(task("t", op).arg("buffer", view).arg("reduce", "sum"));
        })
    };
    let odd = [
        (DType::F32, 10556587, 0..10556587),
        (DType::F16, 8, 1..8),
        (DType::F32, 3, 0..1),
        (DType::F32, 3, 0..2),
    ];
    for (dtype, len, view) in odd {
        run("all_reduce", dtype, len, view.clone()).unwrap();
        let problems = run("packed_sum", dtype, len, view).unwrap_err().0;
        assert!(
            problems.iter().all(|p| p.code == codes::LIBRARY && p.message.contains("`packed_sum`")),
            "{problems:?}"
        );
    }
    run("packed_sum", DType::F32, 16, 4..12).unwrap();
    let problems = run("packed_sum", DType::F16, 16, 4..8).unwrap_err().0;
    let aligned =
        "`packed_sum` by the library `picky` needs ranges aligned to 16 bytes; `buffer` begins at byte 8";
    says(only(codes::LIBRARY, &problems), &[aligned]);
    let problems = run("packed_sum", DType::F32, 10556587, 0..10556587).unwrap_err().0;
    says(only(codes::LIBRARY, &problems), &["a multiple of 4 elements; `buffer` has 10556587"]);
}

#[test]
fn more_than_32_bits_count() {
    const LEN: u64 = (1 << 31) + 8;
    let large = |short: u64| {
        job(2, move |g, rank| {
            let x = g.buffer(buffer("x", DType::U8, LEN - if rank == 1 { short } else { 0 }));
            g.step(task("reduce", "all_reduce").arg("buffer", x).arg("reduce", "max"));
        })
    };
    large(0).unwrap();
    let problems = large(1).unwrap_err().0;
    says(only(codes::MISMATCH, &problems), &["count is 2147483656 on rank 0 and 2147483655 on rank 1"]);

    let gather = |recv: u64| {
        job(4, move |g, _| {
            let (x, all) =
                (g.buffer(buffer("x", DType::F64, 1 << 29)), g.buffer(buffer("all", DType::F64, recv)));
            g.step(task("gather", "all_gather").arg("send", x).arg("recv", all));
        })
    };
    gather(1 << 31).unwrap();
    let problems = gather((1 << 31) - 4).unwrap_err().0;
    says(
        only(codes::PARTS, &problems),
        &["2147483644 elements on ranks 0 to 3", "536870912 on ranks 0 to 3, which add up to 2147483648"],
    );
    let problems = gather((1 << 31) - 1).unwrap_err().0;
    let help = only(codes::PARTS, &problems).help.as_deref().unwrap();
    assert!(help.contains("4 ranks × 536870912 = 2147483648 elements"), "{help}");

    let sides = refused(2, |g, rank| {
        let x = g.buffer(buffer("x", DType::U8, LEN - u64::from(rank)));
        g.step(if rank == 0 { send("out", x, 1) } else { recv("in", x, 0) });
    });
    says(only(codes::SIDES, &sides), &["sends 2147483656 u8 to rank 1, which receives 2147483655 u8"]);

    job(3, |g, _| {
        let x = g.buffer(buffer("x", DType::U8, 3_000_000_000 * 3));
        g.step(sum("t", x));
    })
    .unwrap();
}

/// Ranges near the end of what can be counted are compared, not wrapped.
#[test]
fn sizes_that_overflow_once_multiplied() {
    let problems = refused(4, |g, _| {
        let x = g.buffer(buffer("x", DType::F64, 1 << 62));
        g.step(sum("t", x));
    });
    says(only(codes::TOO_LARGE, &problems), &["[4611686018427387904]", "f64", "(and on 3 more ranks)"]);
    let problems = refused(4, |g, _| {
        let (x, y) = (g.buffer(buffer("x", DType::U8, 1 << 62)), g.buffer(buffer("y", DType::U8, 1 << 62)));
        g.step(task("t", "all_gather").arg("send", x).arg("recv", y));
    });
    says(only(codes::PARTS, &problems), &["add up to 18446744073709551616"]);
    let problems = refused(1, |g, _| {
        let x = g.buffer(f32s("x", 4));
        let range = BufferRange { buffer: x, dtype: DType::F32, offset: 1, shape: [1 << 32, 1 << 32].into() };
        g.step(sum("t", range));
    });
    only(codes::RANGE, &problems);
}

#[test]
fn sizes_that_do_not_divide_are_shared() {
    let problems = refused(3, |g, _| {
        let (all, part) = (g.buffer(f32s("all", 5120)), g.buffer(f32s("part", 1706)));
        let scatter = task("t", "reduce_scatter").arg("send", all).arg("recv", part);
        g.step(scatter.arg("reduce", "sum"));
    });
    let problem = only(codes::PARTS, &problems);
    says(problem, &["`send` has 5120 elements", "1706 on ranks 0 to 2, which add up to 5118"]);
    assert!(problem.help.as_deref().unwrap().contains("`share(5120)` on each rank"), "{problem}");

    for size in [1u32, 3, 5, 6, 7] {
        // The remainder form: unequal parts, by the op and by hand.
        let share = |rank: u32| 5120 / u64::from(size) + u64::from(u64::from(rank) < 5120 % u64::from(size));
        job(size.into(), |g, rank| {
            let part = g.buffer(f32s("part", share(rank)));
            let all = g.buffer(f32s("all", 5120));
            g.step(task("all_gather", "all_gather").arg("send", part).arg("recv", all));
            let mut gather = group("gather", [send("out", part, 0)]);
            if rank == 0 {
                let mut start = 0;
                for peer in 0..size {
                    let range = g.whole(all).unwrap().elements(start..start + share(peer)).unwrap();
                    gather = gather.with(recv("in", range, peer));
                    start += share(peer);
                }
                assert_eq!(start, 5120);
            }
            g.step(gather);
        })
        .unwrap();
    }
}

/// The other side counts ranks in its communicator too.
#[test]
fn a_transfer_left_over_says_what_is_missing() {
    let mut world = World::new(4).unwrap();
    let row = world.split("row", |rank| (i64::from(rank / 2), 0)).unwrap();
    let left_over = |sends: bool| {
        let job = on(&Arc::new(world.clone()), |g, rank| {
            let x = g.buffer(f32s("x", 4));
            if rank == 3 {
                g.step(if sends { send("t", x, 0) } else { recv("t", x, 0) }.on(row));
            }
        });
        only(if sends { codes::UNMATCHED_SEND } else { codes::UNMATCHED_RECV }, &job.unwrap_err().0)
            .help
            .clone()
    };
    let help = left_over(true).unwrap();
    assert!(help.contains("let rank 2 receive it: a `recv` with `peer = 1` and `comm = \"row\"`"), "{help}");
    let help = left_over(false).unwrap();
    assert!(help.contains("let rank 2 send it: a `send` with `peer = 1` and `comm = \"row\"`"), "{help}");
}
