//! A host that calls the tables as squall does, with the smallest works of its own.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use squall_plugin::abi::{self, Header, status};
use squall_plugin::convert::{read_arg, write_line};
use squall_plugin::core::{Arg, BoundRange, BufferRange};
use squall_plugin::sdk::Export;

static EXPORT: Export = Export::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));

pub(crate) const HOST: abi::Host =
    abi::Host { header: Header::of::<abi::Host>(), version: c"9.9.9".as_ptr(), feature: None };

/// The table of the plugin under test.
pub(crate) fn plugin() -> &'static abi::Plugin {
    // SAFETY: it is a host's table.
    unsafe { EXPORT.entry(&HOST).as_ref() }.unwrap()
}

pub(crate) fn op(name: &CStr) -> &'static abi::Op {
    // SAFETY: the plugin's tables are well formed and stay for good.
    unsafe {
        let ops = std::slice::from_raw_parts(plugin().ops, plugin().op_count as usize);
        ops.iter().map(|&op| &*op).find(|op| CStr::from_ptr(op.name) == name).unwrap()
    }
}

pub(crate) fn kernel() -> &'static abi::Kernel {
    assert_eq!(plugin().kernel_count, 1);
    // SAFETY: as above.
    unsafe { &**plugin().kernels }
}

/// Text of the other side.
pub(crate) fn said(text: *const c_char) -> &'static str {
    // SAFETY: the tests' and the plugin's text stays for good.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap()
}

/// What makes one work ready and drives it.
pub(crate) struct Rank {
    /// What the plugin asked for.
    pub(crate) asked: RefCell<Vec<String>>,
    pub(crate) aborted: AtomicBool,
    /// Copies that were enqueued, and inner ops.
    pub(crate) copies: Cell<u64>,
    pub(crate) ops: Cell<u64>,
    memory: RefCell<Vec<Box<[u64]>>>,
    inners: RefCell<Vec<*mut Inner>>,
    blobs: RefCell<Vec<abi::Blob>>,
    bytes: Cell<[u8; 2]>,
    /// What this host knows of its own tables, in bytes.
    pub(crate) prepare_size: usize,
    pub(crate) stream_size: usize,
}

/// A launch of a kernel, or an op.
enum Inner {
    Kernel(abi::Work),
    Op,
}

impl Drop for Rank {
    fn drop(&mut self) {
        for inner in self.inners.take() {
            // SAFETY: it was made by `keep`, and is used no more.
            if let Inner::Kernel(work) = *unsafe { Box::from_raw(inner) } {
                // SAFETY: as above.
                unsafe { work.destroy.unwrap()(work.state) };
            }
        }
    }
}

impl Rank {
    pub(crate) fn new() -> Rank {
        Rank {
            asked: RefCell::default(),
            aborted: AtomicBool::new(false),
            copies: Cell::new(0),
            ops: Cell::new(0),
            memory: RefCell::default(),
            inners: RefCell::default(),
            blobs: RefCell::default(),
            bytes: Cell::new([1, 42]),
            prepare_size: size_of::<abi::Prepare>(),
            stream_size: size_of::<abi::Stream>(),
        }
    }

    fn cx(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    pub(crate) fn abort_table(&self) -> abi::Abort {
        abi::Abort { header: Header::of::<abi::Abort>(), cx: self.cx(), is_aborted: Some(is_aborted) }
    }

    pub(crate) fn prepare_table(&self, abort: &abi::Abort) -> abi::Prepare {
        abi::Prepare {
            header: Header { struct_size: self.prepare_size as u32, ..Header::of::<abi::Prepare>() },
            cx: self.cx(),
            device: c"host:1".as_ptr(),
            device_kind: c"host".as_ptr(),
            abort,
            nanoseconds: 1_000_000_000,
            rank: 1,
            world: 4,
            comms: 2,
            captures: 0,
            comm: Some(comm),
            alloc: Some(alloc),
            alloc_staging: Some(alloc_staging),
            kernel: Some(make_kernel),
            op: Some(make_op),
            exchange: Some(exchange),
            peer_pointers: Some(peer_pointers),
        }
    }

    pub(crate) fn stream_table(&self) -> abi::Stream {
        abi::Stream {
            header: Header { struct_size: self.stream_size as u32, ..Header::of::<abi::Stream>() },
            cx: self.cx(),
            api: c"host".as_ptr(),
            handle: 77,
            enqueue: Some(enqueue),
            copy: Some(copy),
        }
    }

    fn give(&self, bytes: u64) -> u64 {
        let words = usize::try_from(bytes.div_ceil(8)).unwrap();
        let mut memory = vec![0; words].into_boxed_slice();
        let ptr = memory.as_mut_ptr() as u64;
        self.memory.borrow_mut().push(memory);
        ptr
    }
}

pub(crate) const NO_WORK: abi::Work = abi::Work {
    header: Header::of::<abi::Work>(),
    state: ptr::null_mut(),
    abort_state: ptr::null_mut(),
    enqueue: None,
    failure: None,
    destroy: None,
    abort: None,
};

/// The host that a table is of.
unsafe fn rank<'a>(cx: *mut c_void) -> &'a Rank {
    // SAFETY: the tables of a rank are used while it lives.
    unsafe { &*cx.cast() }
}

fn fail(error: *mut abi::Error, status: i32, text: &str) -> i32 {
    // SAFETY: the plugin gives an error that may be written.
    write_line(unsafe { &mut (*error).text }, text);
    status
}

unsafe extern "C" fn is_aborted(abort: *const abi::Abort) -> i32 {
    // SAFETY: the table is a rank's.
    unsafe { rank((*abort).cx) }.aborted.load(Ordering::Relaxed).into()
}

unsafe extern "C" fn comm(_: *const abi::Prepare, comm: u32, out: *mut abi::Comm, _: *mut abi::Error) -> i32 {
    assert_eq!(comm, 1);
    let (parts, ranks) = (&[0u32, 1, 0, 1], &[1u32, 0, 0, 1]);
    let members = &[1u32, 3];
    // SAFETY: the plugin gives a place to write to.
    unsafe {
        *out = abi::Comm {
            name: c"row".as_ptr(),
            members: members.as_ptr(),
            parts: parts.as_ptr(),
            ranks: ranks.as_ptr(),
            size: 2,
            rank: 0,
        };
    }
    status::OK
}

unsafe extern "C" fn alloc(p: *const abi::Prepare, bytes: u64, ptr: *mut u64, error: *mut abi::Error) -> i32 {
    // SAFETY: the table is a rank's, and the rest is the plugin's to be written.
    unsafe {
        if bytes == u64::MAX {
            (*error).bytes = bytes;
            return fail(error, status::OUT_OF_MEMORY, "it is full");
        }
        *ptr = rank((*p).cx).give(bytes);
    }
    status::OK
}

unsafe extern "C" fn alloc_staging(
    p: *const abi::Prepare,
    bytes: u64,
    ptr: *mut u64,
    host: *mut *mut c_void,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: as above.
    unsafe {
        let status = alloc(p, bytes, ptr, error);
        *host = *ptr as *mut c_void;
        status
    }
}

unsafe extern "C" fn make_kernel(
    p: *const abi::Prepare,
    kernel: *const abi::Kernel,
    values: *const abi::Arg,
    count: u32,
    grid: *const abi::Grid,
    inner: *mut *mut abi::Inner,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: as above; the kernel's table is the plugin's.
    unsafe {
        let args = abi::Args {
            header: Header::of::<abi::Args>(),
            values,
            count,
            comm_rank: 0,
            comm_size: 1,
            reserved: 0,
        };
        let mut work = NO_WORK;
        let status = (*kernel).host_ready.unwrap()(kernel, &raw const args, grid, &raw mut work, error);
        if status == status::OK {
            *inner = keep(rank((*p).cx), Inner::Kernel(work));
        }
        status
    }
}

fn keep(rank: &Rank, inner: Inner) -> *mut abi::Inner {
    let inner = Box::into_raw(Box::new(inner));
    rank.inners.borrow_mut().push(inner);
    inner.cast()
}

unsafe extern "C" fn make_op(
    p: *const abi::Prepare,
    name: *const c_char,
    comm: u32,
    args: *const abi::NamedArg,
    count: u32,
    inner: *mut *mut abi::Inner,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: as above.
    unsafe {
        if comm > 1 {
            (*error).param = 1;
            return fail(error, status::ARGUMENT, "`reduce`: is not given");
        }
        let rank = rank((*p).cx);
        let args = if count == 0 { &[] } else { std::slice::from_raw_parts(args, count as usize) };
        let args: Vec<String> = args
            .iter()
            .map(|arg| match read_arg::<BoundRange>(&arg.value).unwrap() {
                Arg::Buffer(range) => format!("{}={}{:?}", said(arg.name), range.dtype, range.shape),
                other => format!("{}={other:?}", said(arg.name)),
            })
            .collect();
        rank.asked.borrow_mut().push(format!("{} on {comm}: {}", said(name), args.join(" ")));
        *inner = keep(rank, Inner::Op);
    }
    status::OK
}

unsafe extern "C" fn exchange(
    p: *const abi::Prepare,
    comm: u32,
    mine: *const c_void,
    len: u64,
    all: *mut *const abi::Blob,
    _: *mut abi::Error,
) -> i32 {
    // SAFETY: as above.
    unsafe {
        let rank = rank((*p).cx);
        assert_eq!((comm, len), (1, 2));
        rank.bytes.set(mine.cast::<[u8; 2]>().read());
        let theirs: &'static [u8] = b"theirs";
        let blobs = vec![
            abi::Blob { bytes: rank.bytes.as_ptr().cast(), len },
            abi::Blob { bytes: theirs.as_ptr().cast(), len: 6 },
        ];
        *all = blobs.as_ptr();
        rank.blobs.replace(blobs);
    }
    status::OK
}

unsafe extern "C" fn peer_pointers(
    _: *const abi::Prepare,
    _: u32,
    _: u64,
    all: *mut *const u64,
    _: *mut abi::Error,
) -> i32 {
    static ALL: [u64; 2] = [256, 512];
    // SAFETY: as above.
    unsafe { *all = ALL.as_ptr() };
    status::OK
}

unsafe extern "C" fn enqueue(s: *const abi::Stream, inner: *mut abi::Inner, error: *mut abi::Error) -> i32 {
    // SAFETY: the table is a rank's, and so is what it made.
    unsafe {
        let rank = rank((*s).cx);
        match &*inner.cast::<Inner>() {
            Inner::Kernel(work) => work.enqueue.unwrap()(work.state, ptr::null(), error),
            Inner::Op => {
                rank.ops.set(rank.ops.get() + 1);
                status::OK
            }
        }
    }
}

unsafe extern "C" fn copy(s: *const abi::Stream, dst: u64, src: u64, bytes: u64, _: *mut abi::Error) -> i32 {
    // SAFETY: the table is a rank's, and the memory is what it or the test gave.
    unsafe {
        let rank = rank((*s).cx);
        rank.copies.set(rank.copies.get() + 1);
        ptr::copy_nonoverlapping(src as *const u8, dst as *mut u8, bytes as usize);
    }
    status::OK
}

/// A range of a buffer, for descriptions.
pub(crate) fn range(offset: u64, len: u64) -> Arg<BufferRange> {
    let (buffer, dtype) = (squall_plugin::core::BufferId(5), squall_plugin::core::DType::F32);
    Arg::Buffer(BufferRange { buffer, dtype, offset, shape: [len].into() })
}
