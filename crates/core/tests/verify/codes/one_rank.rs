//! What is wrong with one rank's graph by itself.

use squall_core::{
    BufferDecl, BufferId, BufferRange, CommId, DType, Diagnostic, Download, GroupSpec, KernelSpec, Matrix,
    TaskGraph, Upload, codes,
};

use super::Case;
use crate::job::*;
use crate::stub::{NOWHERE, REGISTRY};

/// A job of one rank with the buffers `x` and `y` of four `f32`.
fn alone(tasks: impl Fn(&mut Rank, BufferId, BufferId)) -> Vec<Diagnostic> {
    refused(1, |g, _| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
        tasks(g, x, y);
    })
}

/// The same on a host device, which runs kernels.
fn on_host(tasks: impl Fn(&mut Rank, BufferId, BufferId)) -> Vec<Diagnostic> {
    let built = graphs(&world(1), "host", |g, _| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
        tasks(g, x, y);
    });
    built.expect_err("the job must be refused").0
}

/// The same on a device that the registry knows less well.
fn on_twin(op: squall_core::OpSpec) -> Vec<Diagnostic> {
    let mut g = TaskGraph::builder(&REGISTRY, &world(1), 0, "twin");
    g.step(op);
    g.build().unwrap_err().0
}

/// A task that writes a range.
fn recv_half(half: BufferRange) -> GroupSpec {
    let other = BufferRange { buffer: BufferId(1), offset: 0, ..half.clone() };
    let message = [task("s", "send").arg("buffer", other), task("r", "recv").arg("buffer", half)];
    group("write", message.map(|op| op.arg("peer", 0)))
}

fn packed(buffer: impl Into<squall_core::ArgValue>, reduce: &'static str) -> squall_core::OpSpec {
    task("t", "packed_sum").arg("buffer", buffer).arg("reduce", reduce)
}

const fn case(
    code: squall_core::Code,
    place: &'static str,
    says: &'static [&'static str],
    problems: fn() -> Vec<Diagnostic>,
) -> Case {
    Case { code, place, rank: Some(0), says, problems }
}

/// What is wrong with an exchange by these counts on rank 0, whose `send` and `recv` have so many rows of two elements; on other
/// ranks all is right.
fn exchange([send, recv]: [u64; 2], counts: &[&[i64]]) -> Vec<Diagnostic> {
    let counts = Matrix::new(counts).unwrap();
    let build = |g: &mut Rank| {
        let rows = |name: &str, rows| BufferDecl { shape: [rows, 2].into(), ..f32s(name, 0) };
        let (x, y) = (g.buffer(rows("x", send)), g.buffer(rows("y", recv)));
        g.step(task("t", "all_to_all").arg("send", x).arg("recv", y).arg("counts", counts.clone()));
    };
    refused(2, |g, rank| {
        if rank == 0 {
            build(g);
        }
    })
}

pub(super) const CASES: &[Case] = &[
    case(
        codes::TOO_LARGE,
        "x",
        &[
            "`x`",
            "[1152921504606846976]",
            "f64",
            "9223372036854775808 bytes",
            "limit is 9223372036854775807 bytes",
        ],
        || {
            refused(1, |g, _| {
                // The task that names it has nothing to add.
                let x = g.buffer(buffer("x", DType::F64, 1 << 60));
                g.step(sum("t", x));
            })
        },
    ),
    case(codes::TOO_LARGE, "x", &["[18446744073709551615, 2]"], || {
        refused(1, |g, _| {
            let x = g.buffer(BufferDecl { shape: [u64::MAX, 2].into(), ..f32s("x", 0) });
            let end = BufferRange { buffer: x, dtype: DType::F32, offset: u64::MAX, shape: [1].into() };
            g.step(sum("t", x)).step(sum("u", end));
        })
    }),
    case(codes::ARGUMENT, "t", &["op `all_reduce`", "no argument `mean`"], || {
        alone(|g, x, _| {
            g.step(sum("t", x).arg("mean", true));
        })
    }),
    case(codes::ARGUMENT, "t", &["op `all_reduce` needs the argument `reduce`"], || {
        alone(|g, x, _| {
            g.step(task("t", "all_reduce").arg("buffer", x));
        })
    }),
    case(codes::ARGUMENT, "t.buffer", &["`buffer` is given twice"], || {
        alone(|g, x, y| {
            g.step(sum("t", x).arg("buffer", y));
        })
    }),
    case(codes::ARGUMENT, "t.root", &["`root` takes a rank, not the word `first`"], || {
        alone(|g, x, _| {
            g.step(task("t", "broadcast").arg("buffer", x).arg("root", "first"));
        })
    }),
    case(codes::ARGUMENT, "t.reduce", &["one of sum, prod, max, min, avg, not `mean`"], || {
        alone(|g, x, _| {
            g.step(task("t", "all_reduce").arg("buffer", x).arg("reduce", "mean"));
        })
    }),
    case(codes::ARGUMENT, "t.buffer", &["`buffer` takes a buffer, not the number 3"], || {
        alone(|g, _, _| {
            g.step(sum("t", 3));
        })
    }),
    case(
        codes::ARGUMENT,
        "t.buffer",
        &["`buffer` names a buffer that was declared in another graph"],
        || {
            alone(|g, _, _| {
                g.step(sum("t", BufferId(7)));
            })
        },
    ),
    case(codes::ARGUMENT, "t.op", &["there is no op `allreduce`"], || {
        alone(|g, x, _| {
            g.step(task("t", "allreduce").arg("buffer", x));
        })
    }),
    case(codes::ARGUMENT, "t.comm", &["op `all_reduce` names a communicator that this world lacks"], || {
        alone(|g, x, _| {
            g.step(sum("t", x).on(CommId(3)));
        })
    }),
    case(codes::ARGUMENT, "k.factor", &["`factor` is", "which f32 cannot hold"], || {
        on_host(|g, x, y| {
            g.step(scale("k").arg("x", x).arg("y", y).arg("factor", 1e39).grid(4, 4));
        })
    }),
    case(codes::ARGUMENT, "k.factor", &["a number or a buffer of one element; `x` has 4"], || {
        on_host(|g, x, y| {
            g.step(scale("k").arg("x", x).arg("y", y).arg("factor", x).grid(4, 4));
        })
    }),
    case(codes::ARGUMENT, "k", &["`n` is a length and cannot be -1"], || {
        on_host(|g, x, y| {
            g.step(scale("k").arg("x", x).arg("y", y).arg("factor", 2).arg("n", -1).grid(4, 4));
        })
    }),
    case(codes::RANGE, "t.buffer", &["[3]", "from element 2 of `x`, which has 4 elements of f32"], || {
        alone(|g, x, _| {
            let range = BufferRange { buffer: x, dtype: DType::F32, offset: 2, shape: [3].into() };
            g.step(sum("t", range));
        })
    }),
    case(codes::RANGE, "t.buffer", &["from element 18446744073709551615 of `x`"], || {
        alone(|g, x, _| {
            let range = BufferRange { buffer: x, dtype: DType::F32, offset: u64::MAX, shape: [3].into() };
            g.step(sum("t", range));
        })
    }),
    case(codes::RANGE, "t.buffer", &["f64 elements of shape [4]", "elements of f32"], || {
        alone(|g, x, _| {
            let range = BufferRange { buffer: x, dtype: DType::F64, offset: 0, shape: [4].into() };
            g.step(sum("t", range));
        })
    }),
    case(codes::RANGE, "t", &["op `lie` says that it touches elements 0 to 5 through `of`, outside"], || {
        alone(|g, _, _| {
            g.step(task("t", "lie").arg("of", "ranges"));
        })
    }),
    case(codes::RANGE, "t", &["op `lie` says that it touches elements 0 to 1 through `of`, outside"], || {
        alone(|g, _, _| {
            g.step(task("t", "lie").arg("of", "buffers"));
        })
    }),
    case(
        codes::NO_SUCH_RANK,
        "t",
        &["says that it meets rank 9; the communicator `world` has the ranks 0 to 0"],
        || {
            alone(|g, _, _| {
                g.step(task("t", "lie").arg("of", "peers"));
            })
        },
    ),
    case(
        codes::DTYPE,
        "t.recv",
        &["op `broadcast`: `recv` is i32, but must have the dtype of `send`, f32"],
        || {
            alone(|g, x, _| {
                let whole = g.buffer(buffer("whole", DType::I32, 4));
                g.step(task("t", "broadcast").arg("send", x).arg("recv", whole).arg("root", 0));
            })
        },
    ),
    case(codes::DTYPE, "k.x", &["kernel `scale`: `x` takes f16, bf16, f32, f64, not i8"], || {
        on_host(|g, _, y| {
            let bytes = g.buffer(buffer("bytes", DType::I8, 4));
            g.step(scale("k").arg("x", bytes).arg("y", y).arg("factor", 2).grid(4, 4));
        })
    }),
    case(
        codes::NO_SUCH_RANK,
        "t.root",
        &["`root` is 1; the communicator `world` has the ranks 0 to 0"],
        || {
            alone(|g, x, _| {
                g.step(task("t", "broadcast").arg("buffer", x).arg("root", 1));
            })
        },
    ),
    case(codes::NO_SUCH_RANK, "t.peer", &["`peer` is -1"], || {
        alone(|g, x, _| {
            g.step(task("t", "send").arg("buffer", x).arg("peer", -1));
        })
    }),
    case(
        codes::RULE,
        "t.send",
        &["`send` has 4 elements, which cannot be divided among 3 ranks: the remainder is 1"],
        || {
            refused(3, |g, _| {
                let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
                g.step(task("t", "all_to_all").arg("send", x).arg("recv", y));
            })
        },
    ),
    case(codes::ARGUMENT, "t.counts", &["`counts` has 1 row of 3 numbers", "`world` has 2 ranks"], || {
        exchange([2, 2], &[&[1, 2, 3]])
    }),
    case(
        codes::ARGUMENT,
        "t.counts",
        &["`counts` takes a list of lists of whole numbers, not a list"],
        || {
            refused(2, |g, _| {
                let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
                g.step(task("t", "all_to_all").arg("send", x).arg("recv", y).arg("counts", vec![1, 1, 1, 1]));
            })
        },
    ),
    case(
        codes::RULE,
        "t.counts",
        &["`counts` has -1 at [0][1], and rank 0 cannot send fewer than 0 rows"],
        || exchange([1, 2], &[&[1, -1], &[1, 1]]),
    ),
    case(codes::RULE, "t.send", &["`send` has 2 rows, but row 0 of `counts` adds up to 4"], || {
        exchange([2, 4], &[&[1, 3], &[0, 2]])
    }),
    case(codes::RULE, "t.recv", &["`recv` has 3 rows, but column 0 of `counts` adds up to 2"], || {
        exchange([2, 3], &[&[2, 0], &[0, 2]])
    }),
    case(codes::RULE, "t.recv", &["`recv` has rows of 4 elements, but those of `send` have 2"], || {
        refused(1, |g, _| {
            let x = g.buffer(BufferDecl { shape: [2, 2].into(), ..f32s("x", 0) });
            let y = g.buffer(BufferDecl { shape: [1, 4].into(), ..f32s("y", 0) });
            let counts = Matrix::new(&[[2]]).unwrap();
            g.step(task("t", "all_to_all").arg("send", x).arg("recv", y).arg("counts", counts));
        })
    }),
    case(codes::RULE, "t.recv", &["`recv` has 3 elements, but `send` has 4; they must be equal"], || {
        alone(|g, x, _| {
            let short = g.buffer(f32s("short", 3));
            g.step(task("t", "all_to_all").arg("send", x).arg("recv", short));
        })
    }),
    case(codes::RULE, "t.buffer", &["`buffer` excludes `send` and `recv`"], || {
        alone(|g, x, y| {
            g.step(sum("t", x).arg("recv", y));
        })
    }),
    case(codes::GRID, "k", &["kernel `scale` needs a grid"], || {
        on_host(|g, x, y| {
            g.step(scale("k").arg("x", x).arg("y", y).arg("factor", 2));
        })
    }),
    case(codes::GRID, "k.grid", &["[2048, 1, 1]", "[1024, 1024, 64]"], || {
        on_host(|g, x, y| {
            g.step(scale("k").arg("x", x).arg("y", y).arg("factor", 2).grid(4, 2048));
        })
    }),
    case(
        codes::UNCOVERED,
        "k.grid",
        &["kernel `scale`: the grid has 3 threads on axis x, which must cover `n` = 4"],
        || {
            on_host(|g, x, y| {
                g.step(scale("k").arg("x", x).arg("y", y).arg("factor", 2).grid(3, 4));
            })
        },
    ),
    case(
        codes::OVERLAP,
        "t.recv",
        &["`send` and `recv` overlap in `x`: elements 0 to 3 and 1 to 4, and one is written"],
        || {
            alone(|g, x, _| {
                let whole = g.whole(x).unwrap();
                let (left, right) = (whole.elements(0..3).unwrap(), whole.elements(1..4).unwrap());
                g.step(task("t", "broadcast").arg("send", left).arg("recv", right).arg("root", 0));
            })
        },
    ),
    case(codes::OVERLAP, "b.buffer", &["elements 0 to 4 and 0 to 4, and both are written"], || {
        alone(|g, x, _| {
            g.step(group("both", [sum("a", x), sum("b", x)]));
        })
    }),
    case(
        codes::UNWRITTEN,
        "t.buffer",
        &["`buffer` reads elements 0 to 4 of `empty`, and nothing wrote element 2 on rank 0"],
        || {
            alone(|g, x, _| {
                let empty = g.buffer(BufferDecl::new("empty", DType::F32, [4]));
                let half = |buffer| g.whole(buffer).unwrap().elements(0..2).unwrap();
                let copy = task("copy", "broadcast").arg("send", half(x)).arg("recv", half(empty));
                g.setup(copy.arg("root", 0)).step(sum("t", empty));
            })
        },
    ),
    case(codes::UNWRITTEN, "result", &["`result` is downloaded", "element 0 of 4 on rank 0"], || {
        alone(|g, x, _| {
            let result = BufferDecl { upload: Default::default(), ..f32s("result", 4) };
            let result = g.buffer(result.download(Download::Every));
            // What only finish writes is not there after the first step.
            let copy = task("copy", "broadcast").arg("send", x).arg("recv", result).arg("root", 0);
            g.step(sum("t", x)).finish(copy);
        })
    }),
    case(codes::LIBRARY, "t.op", &["no library serves `recv` on twin devices"], || {
        on_twin(task("t", "recv"))
    }),
    case(
        codes::LIBRARY,
        "t.op",
        &[
            "several libraries serve `send` on twin devices, and none is the default: name one of `one`, `two`",
        ],
        || on_twin(task("t", "send")),
    ),
    case(
        codes::LIBRARY,
        "t.op",
        &["the library `three` does not serve `send` on twin devices; served by `one`, `two`"],
        || on_twin(task("t", "send").by("three")),
    ),
    case(
        codes::LIBRARY,
        "t.op",
        &[
            "`far_sum` by the library `far` uses `all_reduce` inside itself, but no library serves `all_reduce` on twin devices",
        ],
        || {
            let mut g = TaskGraph::builder(&REGISTRY, &world(1), 0, "twin");
            let x = g.buffer(f32s("x", 4));
            g.step(task("t", "far_sum").arg("buffer", x).arg("reduce", "sum"));
            g.build().unwrap_err().0
        },
    ),
    case(
        codes::LIBRARY,
        "t.buffer",
        &["`packed_sum` by the library `picky` takes f32, f16; `buffer` is i32"],
        || {
            alone(|g, _, _| {
                let numbers = g.buffer(buffer("numbers", DType::I32, 4));
                g.step(packed(numbers, "sum"));
            })
        },
    ),
    case(
        codes::LIBRARY,
        "t.reduce",
        &["`packed_sum` by the library `picky` does not know the reduction `max`"],
        || {
            alone(|g, x, _| {
                g.step(packed(x, "max"));
            })
        },
    ),
    case(codes::GROUP, "both", &["mixes the libraries `stub` and `picky`"], || {
        alone(|g, x, y| {
            // One of a group that may be alone in it.
            let member = task("b", "packed_sum").arg("buffer", y).arg("reduce", "sum");
            g.step(group("both", [sum("a", x), member]));
        })
    }),
    case(codes::GROUP, "both", &["`packed_sum` by the library `picky` cannot stand in a group"], || {
        alone(|g, x, y| {
            g.step(group("both", [packed(x, "sum"), packed(y, "sum")]));
        })
    }),
    case(
        codes::SELF_SEND,
        "t.peer",
        &["op `recv` names its own rank as the peer, 0 of `world`, outside a group"],
        || {
            alone(|g, x, _| {
                g.step(recv("t", x, 0));
            })
        },
    ),
    case(codes::NO_FORM, "k", &["kernel `nowhere` has no form for host devices"], || {
        on_host(|g, _, _| {
            g.step(KernelSpec::new(&NOWHERE).from_origin(origin("k")).grid(1, 1));
        })
    }),
    case(codes::SWAP, "flip", &["`x` is swapped with itself"], || {
        alone(|g, x, _| {
            g.step(swap("flip", x, x));
        })
    }),
    case(
        codes::SWAP,
        "flip",
        &["`x` and `z`", "one is f32 of shape [4], the other f64 of shape [4]"],
        || {
            alone(|g, x, _| {
                let z = g.buffer(buffer("z", DType::F64, 4));
                g.setup(swap("flip", x, z));
            })
        },
    ),
    case(
        codes::SWAP,
        "flip",
        &["`z` and `x`", "one is f32 of shape [2, 2], the other f32 of shape [4]"],
        || {
            alone(|g, x, _| {
                let z = g.buffer(BufferDecl::new("z", DType::F32, [2, 2]));
                g.finish(swap("flip", z, x));
            })
        },
    ),
    case(codes::ARGUMENT, "flip", &["swap names a buffer that was declared in another graph"], || {
        alone(|g, x, _| {
            g.step(swap("flip", x, BufferId(9)));
        })
    }),
    case(codes::SWAPPED_TRANSFER, "flip", &["`z` is swapped", "uploaded in every step"], || {
        alone(|g, x, _| {
            let z = g.buffer(f32s("z", 4).upload(Upload::Every));
            g.step(swap("flip", x, z));
        })
    }),
    case(codes::SWAPPED_TRANSFER, "flip", &["`z` is swapped", "downloaded in every step"], || {
        alone(|g, x, _| {
            let z = g.buffer(f32s("z", 4).download(Download::Every));
            g.step(swap("flip", z, x));
        })
    }),
    case(
        codes::TURNS,
        "last",
        &[
            "after 6 steps",
            "at most 4 graphs",
            "`x` becomes `y` becomes `x`; `a` becomes `b` becomes `c` becomes `a`",
        ],
        || {
            alone(|g, x, y| {
                let [a, b, c] = ["a", "b", "c"].map(|name| g.buffer(f32s(name, 4)));
                g.step(swap("flip", x, y)).step(swap("first", a, b)).step(swap("last", b, c));
            })
        },
    ),
    case(
        codes::UNWRITTEN,
        "t.buffer",
        &["of `x` (by then what was declared as `z`)", "nothing wrote element 2"],
        || {
            alone(|g, x, _| {
                let z = g.buffer(BufferDecl::new("z", DType::F32, [4]));
                let half = g.whole(z).unwrap().elements(0..2).unwrap();
                g.step(sum("t", x)).step(recv_half(half)).step(swap("flip", x, z));
            })
        },
    ),
    Case {
        code: codes::DUPLICATE,
        place: "x",
        rank: None,
        says: &["two buffers have the name `x`"],
        problems: || {
            refused(1, |g, _| {
                g.buffer(f32s("x", 4));
                g.buffer(f32s("x", 8));
            })
        },
    },
    Case {
        code: codes::DUPLICATE,
        place: "t",
        rank: None,
        says: &["two tasks have the name `t`"],
        problems: || {
            refused(1, |g, _| {
                let empty = || GroupSpec::new().from_origin(origin("t"));
                g.setup(empty()).finish(empty());
            })
        },
    },
];
