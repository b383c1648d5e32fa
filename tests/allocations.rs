//! Once it has begun, a step allocates nothing: neither on the caller's thread nor on a rank's.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use squall_core::graph::{GroupSpec, KernelSpec};
use squall_core::{BufferDecl, BufferId, DType, Download, Feed, OpSpec, Options, ReduceOp, SwapSpec, Upload};
use squall_tests::{bind, graphs, load_plugins, registry};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counting for all threads.
struct Counting;

// SAFETY: every call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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

struct Ramp;

impl Feed for Ramp {
    fn fill(&mut self, step: u64, out: &mut [u8]) -> Result<(), String> {
        out.fill(step as u8);
        Ok(())
    }
}

#[test]
fn steps_allocate_nothing() {
    // What a plugin allocates itself, its own allocator gives; what squall does for it is counted.
    load_plugins();
    let (world, n) = (4u32, 4096);
    let graphs = graphs(world, |rank, graph| {
        let decl = |name| BufferDecl::new(name, DType::I32, [n]);
        let x = graph.buffer(decl("x").upload(Upload::Every));
        let y = graph.buffer(decl("y").download(Download::Every));
        let z = graph.buffer(decl("z"));
        let (old, new) = (graph.buffer(decl("old")), graph.buffer(decl("new")));
        let kernel = |name| KernelSpec::new(registry().kernel(name).unwrap()).grid(n, 256);
        let (next, last) = ((rank + 1) % world, (rank + world - 1) % world);
        graph.step(kernel("copy").arg("src", x).arg("dst", y));
        graph.step(kernel("scale").arg("data", y).arg("factor", 3));
        graph.step(OpSpec::new("all_reduce").arg("buffer", y).arg("reduce", ReduceOp::Sum));
        let group = GroupSpec::new()
            .with(OpSpec::new("send").arg("buffer", y).arg("peer", next))
            .with(OpSpec::new("recv").arg("buffer", z).arg("peer", last))
            .with(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Max));
        graph.step(group);
        graph.step(kernel("add").arg("a", y).arg("b", z).arg("out", y));
        graph.step(kernel("copy").arg("src", y).arg("dst", new)).step(SwapSpec::new(old, new));
        let grad = graph.buffer(BufferDecl::new("grad", DType::F32, [n]).upload(Upload::First));
        graph.step(OpSpec::new("top_k_reduce").arg("grad", grad).arg("k", 10));
    });
    let mut group = bind(graphs, Options::default());
    for rank in 0..world {
        group.feed(rank, BufferId(0), Box::new(Ramp)).unwrap();
        group.write(rank, BufferId(5), &vec![1f32; n as usize]).unwrap();
    }
    // The first steps may: a thread's own storage, the wait that is longest.
    group.execute_many(3).unwrap();
    for count in [1, 50] {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        group.execute_many(count).unwrap();
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "in {count} steps");
    }
    // And the step did what it should: its number in every byte, times three, four ranks, twice.
    let step = i32::from_ne_bytes([53; 4]);
    assert_eq!(group.read::<i32>(0, BufferId(1)).unwrap(), vec![step.wrapping_mul(24); n as usize]);
    assert_eq!(group.read::<i32>(0, BufferId(3)).unwrap(), vec![step.wrapping_mul(24); n as usize]);
}
