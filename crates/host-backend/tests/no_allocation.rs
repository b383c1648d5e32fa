//! Running a prepared batch allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use squall_core::conformance::{Op, Ranks, Target};
use squall_core::{DType, Parts, ReduceOp, Registry, World};
use squall_host_backend as _;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting for each thread.
struct Counting;

// SAFETY: every call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn steps_allocate_nothing() {
    let registry = Registry::linked().unwrap();
    let target = Target::new(&registry, "host", "host").unwrap();
    let job = Ranks::connect(&target, World::new(3).unwrap()).unwrap();
    job.run(|rank| {
        let (a, b) = (rank.upload(&[1; 3 * 800])?, rank.upload(&[1; 800])?);
        let (whole, block) = (a.whole(DType::F16), b.whole(DType::F16));
        let (next, last) = ((rank.rank + 1) % 3, (rank.rank + 2) % 3);
        let group = [
            Op::new("all_reduce").buffer("buffer", block.clone()).reduce(ReduceOp::Avg),
            Op::new("broadcast").buffer("buffer", block.clone()).rank("root", 1),
            Op::new("all_gather").buffer("send", block.clone()).buffer("recv", whole.clone()),
            Op::new("reduce_scatter")
                .buffer("send", whole)
                .buffer("recv", block.clone())
                .reduce(ReduceOp::Max),
            Op::new("reduce_scatter")
                .buffer("send", a.range(DType::F16, 0, 9))
                .buffer("recv", b.range(DType::F16, 0, [4, 0, 5][rank.rank as usize]))
                .reduce(ReduceOp::Sum)
                .parts(Parts::new([4, 0, 5]).unwrap()),
            Op::new("all_to_all")
                .buffer("send", a.range(DType::F16, 0, [3, 0, 2][rank.rank as usize]))
                .buffer("recv", b.range(DType::F16, 0, [1, 2, 2][rank.rank as usize]))
                .matrix("counts", &[1, 2, 0, 0, 0, 0, 0, 0, 2].into()),
            Op::new("send_recv")
                .buffer("send", a.range(DType::F16, 0, 9))
                .rank("to", next)
                .buffer("recv", a.range(DType::F16, 500, 9))
                .rank("from", last),
            Op::new("send").buffer("buffer", a.range(DType::F16, 20, 9)).rank("peer", next),
            Op::new("recv").buffer("buffer", a.range(DType::F16, 700, 9)).rank("peer", last),
        ];
        let mut work = rank.prepare(&group)?;
        let before = ALLOCATIONS.get();
        for _ in 0..50 {
            rank.run(&mut *work).map_err(|error| error.to_string())?;
        }
        match ALLOCATIONS.get() - before {
            0 => Ok(()),
            some => Err(format!("{some} allocations")),
        }
    })
    .unwrap();
}
