//! Which buffers a job carries from one step to the next.

use squall_core::{BufferDecl, BufferId, DType, Download, Upload, Verified};

use crate::job::*;

/// The names of the buffers that a rank carries.
fn carried(verified: &Verified, rank: usize) -> Vec<&str> {
    let buffers = verified.graphs()[rank].buffers();
    let carried = verified.carried()[rank].to_vec();
    buffers.iter().zip(carried).filter(|(_, carried)| *carried).map(|(decl, _)| &*decl.name).collect()
}

fn copy(from: BufferId, to: BufferId) -> squall_core::OpSpec {
    op("all_reduce").arg("send", from).arg("recv", to).arg("reduce", "sum")
}

fn undefined(name: &str) -> BufferDecl {
    BufferDecl::new(name, DType::F32, [4])
}

#[test]
fn what_a_step_reads_before_it_writes_it_and_something_changes() {
    let verified = job(2, |g, _| {
        let sum_of = g.buffer(f32s("adds up", 4));
        let (read, fresh) = (g.buffer(f32s("only read", 4)), g.buffer(undefined("written first")));
        let (of_setup, setup) = (g.buffer(undefined("of the setup")), g.buffer(undefined("setup alone")));
        let unread = g.buffer(undefined("never read"));
        g.setup(copy(read, setup)).setup(copy(setup, of_setup));
        g.step(sum("sum", sum_of))
            .step(copy(read, fresh))
            .step(copy(fresh, unread))
            .step(copy(of_setup, fresh));
    })
    .unwrap();
    assert_eq!(carried(&verified, 0), ["adds up", "of the setup"]);
    assert_eq!(carried(&verified, 1), carried(&verified, 0));
}

/// One element that is left is enough.
#[test]
fn a_part_that_is_not_written_keeps_the_whole() {
    let rotating = |first: u64| {
        let verified = job(1, |g, _| {
            let u = g.buffer(f32s("u", 4));
            let out = g.buffer(undefined("out"));
            let part = |offset, len| squall_core::BufferRange {
                buffer: u,
                dtype: DType::F32,
                offset,
                shape: [len].into(),
            };
            let half = g.buffer(BufferDecl::new("half", DType::F32, [first]).upload(Upload::First));
            g.step(
                task("t", "all_reduce").arg("send", half).arg("recv", part(0, first)).arg("reduce", "sum"),
            );
            g.step(copy(u, out));
        })
        .unwrap();
        carried(&verified, 0).iter().map(|name| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(rotating(4), Vec::<String>::new());
    assert_eq!(rotating(3), ["u"]);
}

#[test]
fn what_the_end_takes_and_the_finish_reads() {
    let verified = job(1, |g, _| {
        let x = g.buffer(f32s("x", 4));
        let saved = g.buffer(undefined("saved").download(Download::Last));
        let counted = g.buffer(undefined("read in the finish"));
        let total = g.buffer(undefined("written in the finish").download(Download::Last));
        let asked = g.buffer(undefined("asked for").download(Download::Asked));
        let every = g.buffer(undefined("downloaded").download(Download::Every));
        let unchanged = g.buffer(f32s("unchanged", 4).download(Download::Every));
        let scratch = g.buffer(undefined("scratch"));
        for to in [saved, counted, total, asked, every, scratch] {
            g.step(copy(x, to));
        }
        g.step(copy(unchanged, scratch));
        g.finish(copy(counted, total));
    })
    .unwrap();
    assert_eq!(carried(&verified, 0), ["saved", "read in the finish", "asked for", "downloaded"]);
}

#[test]
fn what_every_step_uploads_is_kept_for_the_finish_alone() {
    let verified = job(1, |g, _| {
        let fed = g.buffer(f32s("fed", 4).upload(Upload::Every));
        let loss = g.buffer(f32s("loss", 4).upload(Upload::Every));
        let total = g.buffer(undefined("total"));
        g.step(sum("sum", fed)).step(copy(fed, loss));
        g.finish(copy(loss, total));
    })
    .unwrap();
    assert_eq!(carried(&verified, 0), ["loss"]);
}

#[test]
fn ranks_that_differ_carry_what_is_theirs() {
    let verified = job(3, |g, rank| {
        let (a, b) = (g.buffer(f32s("a", 4)), g.buffer(f32s("b", 4)));
        g.step(sum("sum", if rank == 1 { b } else { a }));
    })
    .unwrap();
    let all = [0, 1, 2].map(|rank| carried(&verified, rank));
    assert_eq!(all, [["a"], ["b"], ["a"]]);
}
