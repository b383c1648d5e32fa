//! Works, from the first step to the end.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{CString, c_char};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::Ordering;

use squall_plugin::abi::{self, Header, status};
use squall_plugin::convert::{ArgList, grid, read_line};
use squall_plugin::core::{Arg, BoundRange, DType, DevicePtr, Grid};

use crate::host::{NO_WORK, Rank, kernel, op};
use crate::plugin::{KEPT, MODES, seen};

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

/// A batch of `mix` that was made ready.
pub(crate) struct Ready<'a> {
    rank: &'a Rank,
    work: abi::Work,
    _abort: Box<abi::Abort>,
    data: Box<[f32; 4]>,
}

impl<'a> Ready<'a> {
    /// A call for each mode, over the same data, with the parts 3 and 1.
    pub(crate) fn new(
        rank: &'a Rank,
        modes: &[&str],
        task: &str,
    ) -> Result<Ready<'a>, (i32, Box<abi::Error>)> {
        Ready::into(rank, modes, task, NO_WORK)
    }

    pub(crate) fn into(
        rank: &'a Rank,
        modes: &[&str],
        task: &str,
        mut work: abi::Work,
    ) -> Result<Ready<'a>, (i32, Box<abi::Error>)> {
        let mut data = Box::new([1.0f32, 2.0, 3.0, 4.0]);
        let (op, task) = (op(c"mix"), CString::new(task).unwrap());
        let range = bound(&mut data[..]);
        let index = |mode: &&str| MODES.iter().position(|other| other == mode).unwrap() as u32;
        let args = |mode| ArgList::new(&[range.clone(), Arg::Absent, Arg::Word(index(mode))]).unwrap();
        let lists: Vec<ArgList> = modes.iter().map(args).collect();
        let tables: Vec<abi::Args> = lists.iter().map(|list| list.table(0, 2)).collect();
        let parts = [0u64, 3, 4];
        let call = |args: &abi::Args| abi::Call {
            header: Header::of::<abi::Call>(),
            op,
            task: task.as_ptr(),
            args,
            parts: parts.as_ptr(),
            comm: 1,
            reserved: 0,
        };
        let calls: Vec<abi::Call> = tables.iter().map(call).collect();
        let calls: Vec<*const abi::Call> = calls.iter().map(ptr::from_ref).collect();
        let abort = Box::new(rank.abort_table());
        let prepare = rank.prepare_table(&abort);
        let mut error = abi::Error::EMPTY;
        // SAFETY: as the ABI says.
        let status = unsafe {
            let count = calls.len() as u32;
            op.prepare.unwrap()(op, calls.as_ptr(), count, &raw const prepare, &raw mut work, &raw mut error)
        };
        if status == status::OK {
            return Ok(Ready { rank, work, _abort: abort, data });
        }
        assert!(work.state.is_null() && work.destroy.is_none());
        Err((status, Box::new(error)))
    }

    fn enqueue(&mut self) -> (i32, abi::Error) {
        let (stream, mut error) = (self.rank.stream_table(), abi::Error::EMPTY);
        // SAFETY: as the ABI says.
        let status =
            unsafe { self.work.enqueue.unwrap()(self.work.state, &raw const stream, &raw mut error) };
        (status, error)
    }

    fn failure(&mut self) -> Option<String> {
        let mut text = [1 as c_char; 64];
        // SAFETY: as the ABI says.
        match unsafe { self.work.failure.unwrap()(self.work.state, text.as_mut_ptr(), 64) } {
            0 => None,
            told => (told == 1).then(|| read_line(&text)),
        }
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        // SAFETY: as the ABI says, and nothing is called after it.
        unsafe { self.work.destroy.unwrap()(self.work.state) };
    }
}

fn bound(data: &mut [f32]) -> Arg<BoundRange> {
    let (ptr, shape) = (DevicePtr(data.as_mut_ptr() as u64), [data.len() as u64].into());
    Arg::Buffer(BoundRange { ptr, dtype: DType::F32, shape })
}

#[test]
fn a_work_enqueues_its_kernel_its_op_and_its_copy_and_allocates_nothing() {
    let rank = Rank::new();
    let mut ready = Ready::new(&rank, &["fine"], "runs").ok().unwrap();
    for step in 1..=3 {
        let before = ALLOCATIONS.get();
        let (status, _) = ready.enqueue();
        assert_eq!((status, ALLOCATIONS.get() - before), (status::OK, 0), "in step {step}");
        assert_eq!((rank.ops.get(), rank.copies.get()), (step, step));
    }
    assert_eq!(*ready.data, [8.0, 16.0, 24.0, 32.0]);
}

#[test]
fn what_a_work_found_wrong_is_told_once() {
    let rank = Rank::new();
    let mut ready = Ready::new(&rank, &["fine"], "found wrong").ok().unwrap();
    assert_eq!(ready.failure(), None);
    ready.enqueue();
    ready.enqueue();
    assert_eq!(ready.failure().as_deref(), Some("2 steps"));
    assert_eq!(ready.failure(), None);
    (0..3).for_each(|_| assert_eq!(ready.enqueue().0, status::OK));
    let text = ready.failure().unwrap();
    assert!(text.starts_with("panicked: three ("), "{text}");
}

#[test]
fn a_panic_in_a_step_is_an_error() {
    let rank = Rank::new();
    let mut ready = Ready::new(&rank, &["fine"], "panics").ok().unwrap();
    let (status, error) = ready.enqueue();
    assert_eq!(status, status::FAILED);
    let text = read_line(&error.text);
    assert!(text.starts_with("panicked: in step 1 (") && text.contains("plugin.rs:"), "{text}");
    // And one at the end is nothing.
    drop(Ready::new(&rank, &["fine"], "panics at the end").ok().unwrap());
}

#[test]
fn what_plans_do_a_stream_of_a_plugin_does_not() {
    let rank = Rank::new();
    let (status, error) = Ready::new(&rank, &["fine"], "asks too much").ok().unwrap().enqueue();
    assert_eq!(status, status::UNSUPPORTED);
    let text = read_line(&error.text);
    assert_eq!(text, "a plugin's work does not wait for its stream: plans do that");
    let (_, error) = Ready::new(&rank, &["fine"], "tells the stream").ok().unwrap().enqueue();
    assert_eq!(read_line(&error.text), "RawHandle { api: \"host\", handle: 77 }");
}

#[test]
fn what_was_made_for_a_work_ends_with_it() {
    let (first, second) = (Rank::new(), Rank::new());
    let ready = Ready::new(&first, &["keeps"], "keeps").ok().unwrap();
    let bytes = KEPT.lock().unwrap().as_mut().unwrap().0.host().map(|bytes| bytes.to_vec());
    assert_eq!(bytes, Some(7u64.to_ne_bytes().to_vec()), "as long as it lives");
    drop(ready);
    let (status, error) = Ready::new(&second, &["fine"], "uses what was kept").ok().unwrap().enqueue();
    assert_eq!(status, status::FAILED);
    assert_eq!(read_line(&error.text), "it is used after the work that it was made for");
    let (status, error) = Ready::new(&second, &["fine"], "uses another stream").ok().unwrap().enqueue();
    assert_eq!(status, status::UNSUPPORTED);
    assert_eq!(read_line(&error.text), "it is enqueued on a stream that squall has not lent");
}

#[test]
fn an_older_stream_is_asked_for_nothing_that_it_lacks() {
    let mut rank = Rank::new();
    rank.stream_size = offset_of!(abi::Stream, copy);
    let (status, error) = Ready::new(&rank, &["fine"], "no copy").ok().unwrap().enqueue();
    assert_eq!((status, rank.ops.get()), (status::UNSUPPORTED, 1));
    assert!(read_line(&error.text).ends_with("no `copy`"));
    rank.stream_size = offset_of!(abi::Stream, enqueue);
    let (status, error) = Ready::new(&rank, &["fine"], "no enqueue").ok().unwrap().enqueue();
    assert_eq!((status, rank.ops.get()), (status::UNSUPPORTED, 1));
    assert!(read_line(&error.text).ends_with("no `enqueue`"));
}

#[test]
fn an_abort_reaches_the_handles_from_any_thread_as_often_as_it_comes() {
    let rank = Rank::new();
    let mut ready = Ready::new(&rank, &["fine"], "is aborted").ok().unwrap();
    let handle = seen("is aborted").handle;
    let (abort, state) = (ready.work.abort.unwrap(), ready.work.abort_state as usize);
    for told in 1..=3 {
        std::thread::scope(|scope| {
            // SAFETY: as the ABI says. The third panics, which nobody sees.
            scope.spawn(move || unsafe { abort(state as *mut _) });
            assert_eq!(ready.enqueue().0, status::OK, "meanwhile");
        });
        assert_eq!(handle.0.load(Ordering::Relaxed), told);
    }
}

#[test]
fn a_kernel_is_launched_and_fails_as_its_form_says() {
    let mut data = [1.0f32, 2.0, 3.0, 4.0, 5.0];
    let launch = |data: &mut [f32], fails| {
        let list = ArgList::new(&[bound(data), Arg::Flag(fails)]).unwrap();
        let (kernel, args) = (kernel(), list.table(0, 1));
        let grid = grid(&Grid::new([2, 1, 1], [2, 1, 1]).unwrap());
        let (mut work, mut error) = (NO_WORK, abi::Error::EMPTY);
        // SAFETY: as the ABI says.
        unsafe {
            let ready = kernel.host_ready.unwrap();
            let status = ready(kernel, &raw const args, &raw const grid, &raw mut work, &raw mut error);
            assert_eq!(status, status::OK);
            let before = ALLOCATIONS.get();
            let status = work.enqueue.unwrap()(work.state, ptr::null(), &raw mut error);
            assert!(status != status::OK || ALLOCATIONS.get() == before);
            work.destroy.unwrap()(work.state);
            (status, read_line(&error.text))
        }
    };
    assert_eq!(launch(&mut data, false), (status::OK, String::new()));
    assert_eq!(data, [2.0, 4.0, 3.0, 4.0, 5.0]);
    assert_eq!(launch(&mut data, true), (status::FAILED, "it was told to".into()));
}
