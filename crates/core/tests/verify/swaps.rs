//! Swaps: how many turns a step takes, what a rank has by them, and what is judged in which turn.

use squall_core::{
    BufferDecl, BufferId, DType, Download, OpSpec, Phase, TaskGraph, Upload, codes, verify_partial,
};

use crate::job::*;
use crate::stub::REGISTRY;

/// A buffer of four `f32` without contents.
fn bare(name: &str) -> BufferDecl {
    f32s(name, 4).upload(Upload::Never)
}

/// Three buffers of four `f32`, of which only the first has contents.
fn three(g: &mut Rank) -> [BufferId; 3] {
    [f32s("a", 4), bare("b"), bare("c")].map(|decl| g.buffer(decl))
}

/// Writes a whole buffer, from itself.
fn write(name: &str, from: BufferId, to: BufferId) -> OpSpec {
    task(name, "broadcast").arg("send", from).arg("recv", to).arg("root", 0)
}

#[test]
fn a_job_has_as_many_turns_as_bring_all_names_back() {
    let turns = |swaps: fn(&mut Rank, [BufferId; 3], u32)| {
        let verified = job(3, |g, rank| {
            let buffers = three(g);
            swaps(g, buffers, rank);
        });
        verified.unwrap().turns()
    };
    assert_eq!(turns(|_, _, _| {}), 1);
    assert_eq!(
        turns(|g, [a, b, _], _| {
            g.step(swap("s", a, b));
        }),
        2
    );
    assert_eq!(
        turns(|g, [a, b, c], _| {
            g.step(swap("s", a, b)).step(swap("t", b, c));
        }),
        3
    );
    assert_eq!(
        turns(|g, [a, b, _], _| {
            g.step(swap("s", a, b)).step(swap("t", b, a));
        }),
        1
    );
    assert_eq!(
        turns(|g, [a, b, c], _| {
            g.setup(swap("s", a, b)).finish(swap("t", b, c));
        }),
        1
    );
    let some = |g: &mut Rank, [a, b, _]: [BufferId; 3], rank| {
        if rank == 1 {
            g.step(swap("s", a, b));
        }
    };
    assert_eq!(turns(some), 2, "those of one rank are all ranks'");
}

#[test]
fn a_swap_is_a_task_that_gives_the_rank_both_buffers() {
    let verified = job(2, |g, rank| {
        let [a, b, _] = three(g);
        if rank == 1 {
            g.step(swap("s", a, b));
        }
    })
    .unwrap();
    let [none, one] = verified.graphs() else { panic!("two ranks") };
    assert_eq!((none.uses(), one.uses()), (vec![false; 3], vec![true, true, false]));
    assert_eq!(one.tasks(Phase::Step)[0].origin.name, "s");
    assert_eq!(verified.depths(Phase::Step), [vec![], vec![1]]);
}

#[test]
fn ranks_share_a_swap_over_buffers_that_are_the_same() {
    let world = world(2);
    let shares = |length: u64| {
        let [mut first, mut second] = [0, 1].map(|rank| TaskGraph::builder(&REGISTRY, &world, rank, "test"));
        let [a, b] = ["a", "b"].map(|name| first.buffer(f32s(name, 4)));
        for name in ["a", "b"] {
            second.buffer(f32s(name, length));
        }
        let node = first.add(Phase::Step, swap("s", a, b)).unwrap();
        second.share(Phase::Step, &node, first.buffers())
    };
    assert!(shares(4));
    assert!(!shares(5));
}

/// `a` is read at the start of each step; what it stands for then was written by the step before.
#[test]
fn every_turn_is_judged_by_what_the_turns_before_it_wrote() {
    let step = |g: &mut Rank, [a, b, c]: [BufferId; 3], to: BufferId| {
        g.step(write("w", a, to)).step(swap("s", a, b)).step(swap("t", b, c));
    };
    // After the swaps `a` is what `b` was, which was written.
    job(1, |g, _| {
        let buffers = three(g);
        step(g, buffers, buffers[1]);
    })
    .unwrap();
    // And here what nothing wrote: the second step reads it.
    let problems = refused(1, |g, _| {
        let buffers = three(g);
        step(g, buffers, buffers[2]);
    });
    let problem = only(codes::UNWRITTEN, &problems);
    says(problem, &["`send` reads elements 0 to 4 of `a` (by then what was declared as `b`)", "element 0"]);
    assert_eq!(
        problem.help.as_deref().map(|help| help.contains("give `b` an init")),
        Some(true),
        "{problem}"
    );
}

/// A finish comes after one step or after many: it is judged after as many as there are turns, and what it writes is not
/// there for any step.
#[test]
fn a_finish_is_judged_after_every_turn() {
    let says_of = |tasks: fn(&mut Rank, [BufferId; 3])| {
        let problems = refused(1, |g, _| {
            let buffers = three(g);
            tasks(g, buffers);
        });
        only(codes::UNWRITTEN, &problems).message.clone()
    };
    // After one step `b` has what `a` had; after two, what nothing wrote.
    let second = says_of(|g, [a, b, c]| {
        g.step(swap("s", a, b)).step(swap("t", b, c)).finish(sum("f", c));
    });
    assert!(second.contains("of `c` (by then what was declared as `b`)"), "{second}");
    // A finish after the first step would write what the second reads; but it comes after the last.
    let third = says_of(|g, [a, b, c]| {
        g.setup(write("w", a, b)).step(sum("r", b)).step(swap("s", b, c)).finish(write("f", a, b));
    });
    assert!(third.contains("of `b` (by then what was declared as `c`)"), "{third}");
}

#[test]
fn what_is_downloaded_is_judged_by_what_its_name_stands_for() {
    let job = |when: Download, written: usize| {
        job(1, |g, _| {
            let a = g.buffer(f32s("a", 4).download(when));
            let b = g.buffer(bare("b"));
            let other = g.buffer(f32s("other", 4));
            g.step(write("w", other, [a, b][written])).step(swap("s", a, b));
        })
    };
    for when in [Download::Last, Download::Asked] {
        job(when, 1).unwrap();
        let problems = job(when, 0).unwrap_err().0;
        says(only(codes::UNWRITTEN, &problems), &["`a` (by then what was declared as `b`) is downloaded"]);
    }
}

#[test]
fn a_swap_in_the_setup_renames_for_the_steps_and_for_the_finish() {
    job(1, |g, _| {
        let [a, b, c] = three(g);
        g.setup(swap("s", a, b)).step(sum("sum", b)).finish(swap("f", b, c)).finish(sum("last", c));
    })
    .unwrap();
    let problems = refused(1, |g, _| {
        let [a, b, _] = three(g);
        // Setup comes first, whichever was added first.
        g.step(sum("sum", a)).setup(swap("s", a, b));
    });
    says(only(codes::UNWRITTEN, &problems), &["of `a` (by then what was declared as `b`)"]);
}

/// A swap that was refused leaves both buffers unknown: nothing is said of what they stand for.
#[test]
fn after_a_swap_that_was_refused_nothing_is_said_of_its_buffers() {
    let mut g = TaskGraph::builder(&REGISTRY, &world(1), 0, "test");
    let a = g.buffer(f32s("a", 4));
    let b = g.buffer(BufferDecl::new("b", DType::F32, [5]));
    assert!(g.add(Phase::Step, swap("s", a, b)).is_none());
    g.gap(Phase::Step, Vec::new(), vec![a, b]);
    g.step(sum("sum", b));
    let (partial, problems) = g.partial();
    only(codes::SWAP, &problems);
    assert_eq!(verify_partial(vec![partial]), []);
}
