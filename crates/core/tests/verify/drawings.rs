//! What a report draws: who waits for whom, and ranks side by side; and that one mistake is one report, on however many ranks.

use std::sync::Arc;

use squall_core::{BufferDecl, Diagnostic, Upload, World, codes};

use crate::job::{f32s, group, on, only, place, recv, refused, says, send, sum, task};

fn drawing(problem: &Diagnostic) -> &str {
    problem.drawing.as_deref().unwrap()
}

/// Pairs that all send first; between, some sums of their own that nobody waits for.
#[test]
fn many_cycles_through_the_same_tasks_are_one() {
    let mut world = World::new(4096).unwrap();
    let alone = world.split("alone", |rank| (rank.into(), 0)).unwrap();
    let problems = on(&Arc::new(world), |g, rank| {
        let (x, y, z) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)), g.buffer(f32s("z", 4)));
        g.step(send("out", x, rank ^ 1));
        for name in ["a", "b", "c", "d"] {
            g.step(sum(name, z).on(alone));
        }
        g.step(recv("back", y, rank ^ 1));
    });
    let problems = problems.unwrap_err().0;
    let problem = only(codes::DEADLOCK, &problems);
    says(problem, &["rank 1 waits in `send` on `world` for rank 0; and 2047 more cycles like this"]);
    assert_eq!(
        drawing(problem),
        "rank 0 -> rank 1 -> rank 0; each stands at `>`, and the one before it waits for `*`\n   \
            rank 0                      rank 1\n\
         >  out: send to 1           >  out: send to 0\n   \
            a: all_reduce on alone      a: all_reduce on alone\n   \
            b: all_reduce on alone      b: all_reduce on alone\n   \
            2 more                      2 more\n\
         *  back: recv from 1        *  back: recv from 0"
    );
}

/// A group is awaited by another rank while its own rank stands at it.
#[test]
fn a_rank_may_stand_at_what_is_awaited() {
    let problems = refused(2, |g, rank| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
        let (out, back) = (send("out", x, 1 - rank), recv("back", y, 1 - rank));
        match rank {
            0 => g.step(group("both", [out, back])),
            _ => g.step(out).step(back),
        };
    });
    assert_eq!(
        drawing(only(codes::UNDEFINED, &problems)),
        "rank 0 -> rank 1 -> rank 0; each stands at `>`, and the one before it waits for `*`\n   \
            rank 0                            rank 1\n\
         >* both: send to 1, recv from 1   >  out: send to 0\n                                  \
                                            *  back: recv from 0"
    );
}

#[test]
fn collectives_stand_side_by_side_around_the_first_that_differs() {
    let problems = refused(4, |g, rank| {
        let x = g.buffer(f32s("x", 4));
        let root = task("last", "broadcast").arg("buffer", x).arg("root", 0u32);
        for name in ["a", "b", "c", "d"] {
            g.step(sum(name, x));
        }
        match rank {
            0 => g.step(sum("e", x)).step(root),
            _ => g.step(root).step(sum("e", x)),
        };
    });
    assert_eq!(
        drawing(only(codes::ORDER, &problems)),
        "the collectives on `world`, in order\n      \
               rank 0            ranks 1 to 3\n  \
           2   c: all_reduce     c: all_reduce\n  \
           3   d: all_reduce     d: all_reduce\n\
         > 4   e: all_reduce     last: broadcast\n  \
           5   last: broadcast   e: all_reduce"
    );
    let problems = refused(4, |g, rank| {
        let x = g.buffer(f32s("x", 4));
        g.step(sum("a", x));
        if rank < 2 {
            g.step(sum("b", x));
        }
    });
    assert_eq!(
        drawing(only(codes::UNREACHED, &problems)),
        "the collectives on `world`, in order\n      \
               rank 0          ranks 2 and 3\n  \
           0   a: all_reduce   a: all_reduce\n\
         > 1   b: all_reduce   none"
    );
}

/// A peer that is off by one, on every rank: an error for the sends and one for the receives, each of which shows the other.
#[test]
fn a_wrong_peer_on_all_ranks_is_told_once_a_side() {
    const RANKS: u32 = 4096;
    let problems = refused(RANKS.into(), |g, rank| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
        let next = (rank + 1) % RANKS;
        g.step(group("ring", [send("out", x, next), recv("back", y, next)]));
    });
    let [unreceived, unsent] = problems.as_slice() else { panic!("one a side: {problems:#?}") };
    assert_eq!((unreceived.code, unsent.code), (codes::UNMATCHED_SEND, codes::UNMATCHED_RECV));
    says(unreceived, &["rank 0 sends 4 f32 to rank 1 on `world`, and rank 1 never", "on 4095 more ranks"]);
    says(unsent, &["rank 0 receives 4 f32 from rank 1 on `world`, and rank 1 never", "on 4095 more ranks"]);
    let related = |problem: &Diagnostic| (place(&problem.related[0]), problem.related[0].text.clone());
    assert_eq!(
        [related(unreceived), related(unsent)],
        [
            ("back.peer".to_string(), "receives 4 f32 from rank 2 instead, of `y`".to_string()),
            ("out.peer".to_string(), "sends 4 f32 to rank 2 instead, of `x`".to_string())
        ]
    );
    let help = "let rank 1 receive it: its `back` with `peer = 0`; or leave this send out with `when`";
    assert_eq!(unreceived.help.as_deref(), Some(help));
}

/// The two sides of one message, each on a communicator of its own.
#[test]
fn a_message_on_two_communicators_is_shown_whole() {
    let mut world = World::new(2).unwrap();
    let pair = world.split("pair", |_| (0, 0)).unwrap();
    let problems = on(&Arc::new(world), |g, rank| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
        match rank {
            0 => g.step(send("out", x, 1)),
            _ => g.step(recv("back", y, 0).on(pair)),
        };
    });
    let problems = problems.unwrap_err().0;
    let [unreceived, unsent] = problems.as_slice() else { panic!("one a side: {problems:#?}") };
    let related = |problem: &Diagnostic| (place(&problem.related[0]), problem.related[0].text.clone());
    assert_eq!(
        [related(unreceived), related(unsent)],
        [
            ("back.peer".to_string(), "receives 4 f32 on `pair`, of `y`".to_string()),
            ("out.peer".to_string(), "sends 4 f32 on `world`, of `x`".to_string())
        ]
    );
    for problem in [unreceived, unsent] {
        assert!(problem.help.as_deref().unwrap().contains("let both name it, by `comm`"), "{problem}");
    }
}

/// An op that sends and receives has two names for its peers, and the help uses the right one.
#[test]
fn the_help_names_the_arguments_that_there_are() {
    let problems = refused(4, |g, rank| {
        let (x, y) = (g.buffer(f32s("x", 4)), g.buffer(f32s("y", 4)));
        let next = (rank + 1) % 4;
        let ring = task("ring", "send_recv").arg("send", x).arg("recv", y);
        g.step(ring.arg("to", next).arg("from", next));
    });
    let [unreceived, unsent] = problems.as_slice() else { panic!("one a side: {problems:#?}") };
    let helps = [unreceived, unsent].map(|problem| problem.help.as_deref().unwrap());
    assert!(helps[0].contains("let rank 1 receive it: its `ring` with `from = 0`"), "{helps:?}");
    assert!(helps[1].contains("let rank 1 send it: its `ring` with `to = 0`"), "{helps:?}");
}

/// What stands against all ranks alike is counted on all of them.
#[test]
fn ranks_that_share_a_fault_are_counted() {
    let problems = refused(64, |g, _| {
        let never = g.buffer(BufferDecl { upload: Upload::Never, ..f32s("never", 4) });
        g.step(sum("sum", never));
    });
    let problem = only(codes::UNWRITTEN, &problems);
    says(problem, &["nothing wrote element 0 on rank 0", "(and likewise on 63 more ranks)"]);
}
