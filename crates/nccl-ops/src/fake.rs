//! A NCCL that writes down what it is asked to do, for tests. There is one a process, so that tests take turns.
//!
//! Communicators are numbers: 1 for the first that was made, and so on. Like NCCL it counts groups per thread, and puts the freeing of
//! communicators off to the end of the outermost group.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::without_provenance_mut;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use squall_core::*;

use crate::api::{Api, Config, Functions, IN_PROGRESS, RawComm, RawId, RawStream, SUCCESS, Version};
use crate::communicators::{Communicators, Job};

/// The turn of one test.
pub(crate) struct Fake {
    _turn: MutexGuard<'static, ()>,
}

#[derive(Default)]
struct State {
    log: Vec<String>,
    /// Whether nothing is written down, so that nothing is allocated.
    silent: bool,
    comms: usize,
    ids: u8,
    /// Which function fails, and how.
    failing: Option<(&'static str, c_int)>,
    /// Which function does not return.
    hanging: Option<&'static str>,
    /// Whether nonblocking calls go on for ever.
    unready: bool,
    /// The asynchronous errors of communicators.
    states: BTreeMap<usize, c_int>,
}

static TURN: Mutex<()> = Mutex::new(());
static STATE: Mutex<Option<State>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

thread_local! {
    static GROUP: RefCell<Group> = const { RefCell::new(Group { depth: 0, freed: Vec::new() }) };
}

/// What a thread has put off to the end of its group.
struct Group {
    depth: usize,
    freed: Vec<usize>,
}

fn with<R>(work: impl FnOnce(&mut State) -> R) -> R {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    work(state.get_or_insert_default())
}

impl Fake {
    /// Waits for the turn, and begins anew.
    pub(crate) fn take() -> Fake {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        with(|state| *state = State::default());
        Fake { _turn: turn }
    }

    /// What was done since the last time this was asked.
    pub(crate) fn log(&self) -> Vec<String> {
        with(|state| std::mem::take(&mut state.log))
    }

    /// Waits until something was written down that begins so.
    pub(crate) fn wait_for(&self, what: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while !with(|state| state.log.iter().any(|line| line.starts_with(what))) {
            assert!(Instant::now() < until, "no {what} in {:#?}", self.log());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn fail(&self, function: &'static str, result: c_int) {
        with(|state| state.failing = Some((function, result)));
    }

    pub(crate) fn heal(&self) {
        with(|state| state.failing = None);
    }

    /// Lets calls of the function not return until they are let go.
    pub(crate) fn hang(&self, function: &'static str) {
        with(|state| state.hanging = Some(function));
    }

    pub(crate) fn let_go(&self) {
        with(|state| state.hanging = None);
        CHANGED.notify_all();
    }

    pub(crate) fn silence(&self, silent: bool) {
        with(|state| state.silent = silent);
    }

    pub(crate) fn never_ready(&self) {
        with(|state| state.unready = true);
    }

    /// Gives a communicator an asynchronous error.
    pub(crate) fn break_comm(&self, comm: usize, result: c_int) {
        with(|state| state.states.insert(comm, result));
    }

    pub(crate) fn api(&self) -> &'static Api {
        static API: OnceLock<Api> = OnceLock::new();
        API.get_or_init(|| Api {
            path: PathBuf::from("/fake/libnccl.so.2"),
            version: Version::of(2, 28, 9),
            functions: FUNCTIONS,
        })
    }

    /// Connects the ranks of a world, all of this process.
    pub(crate) fn connect(&self, world: &World, comms: &[CommId]) -> Communicators {
        let deadline = Instant::now() + Duration::from_secs(20);
        self.job(world, comms, devices(world.size()), deadline).connect().unwrap()
    }

    pub(crate) fn job(
        &self,
        world: &World,
        comms: &[CommId],
        local: Vec<(u32, Arc<dyn Device>)>,
        deadline: Instant,
    ) -> Job {
        let (world, comms, aborted) = (Arc::new(world.clone()), comms.to_vec(), unaborted());
        Job { api: self.api(), world, comms, local, aborted, deadline }
    }

    /// Waits until this process has so many threads of that name. The system names a thread soon after it began, by 15 bytes, and
    /// forgets it soon after it ended.
    pub(crate) fn threads(&self, name: &str, want: usize) {
        let named = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let count = tasks.flat_map(named).filter(|found| found.trim_end() == name).count();
            if count == want {
                return;
            }
            assert!(Instant::now() < until, "{count} threads {name}, not {want}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Writes down a call, and does what was asked of the function.
fn note(function: &'static str, line: impl FnOnce() -> String) -> c_int {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let now = state.get_or_insert_default();
    if !now.silent {
        now.log.push(line());
    }
    let result =
        now.failing.filter(|(failing, _)| *failing == function).map_or(SUCCESS, |(_, result)| result);
    while state.as_ref().is_some_and(|state| state.hanging == Some(function)) {
        state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    result
}

/// Frees a communicator, at once or at the end of the group.
fn free(comm: usize) {
    GROUP.with_borrow_mut(|group| match group.depth {
        0 => drop(note("free", || format!("free {comm}"))),
        _ => group.freed.push(comm),
    });
}

fn new_comm() -> RawComm {
    with(|state| {
        state.comms += 1;
        without_provenance_mut(state.comms)
    })
}

const FUNCTIONS: Functions = Functions {
    error_string,
    last_error,
    unique_id,
    init,
    split,
    async_error,
    abort,
    destroy,
    group_start,
    group_end,
    all_reduce,
    broadcast,
    reduce,
    all_gather,
    reduce_scatter,
    send,
    recv,
};

unsafe extern "C" fn error_string(result: c_int) -> *const c_char {
    if result == 4 { c"invalid argument".as_ptr() } else { c"another error".as_ptr() }
}

unsafe extern "C" fn last_error(_comm: RawComm) -> *const c_char {
    c"  the cause, in NCCL's words\n".as_ptr()
}

unsafe extern "C" fn unique_id(id: *mut RawId) -> c_int {
    let number = with(|state| {
        state.ids += 1;
        state.ids
    });
    // SAFETY: the caller's.
    unsafe { *id = RawId([number; 128]) };
    note("ncclGetUniqueId", || format!("id {number}"))
}

unsafe extern "C" fn init(
    comm: *mut RawComm,
    size: c_int,
    id: RawId,
    rank: c_int,
    config: *mut Config,
) -> c_int {
    // SAFETY: the caller's.
    let blocking = unsafe { &*config }.blocking();
    let made = new_comm();
    // SAFETY: the caller's.
    unsafe { *comm = made };
    note("ncclCommInitRankConfig", || {
        let (id, device) = (id.0[0], current());
        format!("init {} rank={rank} size={size} id={id} blocking={blocking} on {device}", made.addr())
    })
}

unsafe extern "C" fn split(
    parent: RawComm,
    color: c_int,
    key: c_int,
    comm: *mut RawComm,
    config: *mut Config,
) -> c_int {
    // SAFETY: the caller's.
    let blocking = unsafe { &*config }.blocking();
    let made = new_comm();
    // SAFETY: the caller's.
    unsafe { *comm = made };
    note("ncclCommSplit", || {
        let (made, parent, device) = (made.addr(), parent.addr(), current());
        format!("split {made} of={parent} color={color} key={key} blocking={blocking} on {device}")
    })
}

unsafe extern "C" fn async_error(comm: RawComm, result: *mut c_int) -> c_int {
    let state = with(|state| match state.unready {
        true => IN_PROGRESS,
        false => state.states.get(&comm.addr()).copied().unwrap_or(SUCCESS),
    });
    // SAFETY: the caller's.
    unsafe { *result = state };
    SUCCESS
}

unsafe extern "C" fn abort(comm: RawComm) -> c_int {
    let result = note("ncclCommAbort", || format!("abort {}", comm.addr()));
    free(comm.addr());
    result
}

unsafe extern "C" fn destroy(comm: RawComm) -> c_int {
    let result = note("ncclCommDestroy", || format!("destroy {}", comm.addr()));
    free(comm.addr());
    result
}

unsafe extern "C" fn group_start() -> c_int {
    GROUP.with_borrow_mut(|group| group.depth += 1);
    note("ncclGroupStart", || "start".to_string())
}

unsafe extern "C" fn group_end() -> c_int {
    let result = note("ncclGroupEnd", || "end".to_string());
    let freed = GROUP.with_borrow_mut(|group| {
        group.depth -= 1;
        if group.depth == 0 { std::mem::take(&mut group.freed) } else { Vec::new() }
    });
    freed.into_iter().for_each(free);
    result
}

unsafe extern "C" fn all_reduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    op: c_int,
    comm: RawComm,
    stream: RawStream,
) -> c_int {
    note("ncclAllReduce", || {
        format!("all_reduce {send:?}>{recv:?} n={count} t={dtype} op={op}{}", on(comm, stream))
    })
}

unsafe extern "C" fn broadcast(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    root: c_int,
    comm: RawComm,
    stream: RawStream,
) -> c_int {
    note("ncclBroadcast", || {
        format!("broadcast {send:?}>{recv:?} n={count} t={dtype} root={root}{}", on(comm, stream))
    })
}

unsafe extern "C" fn reduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    op: c_int,
    root: c_int,
    comm: RawComm,
    stream: RawStream,
) -> c_int {
    note("ncclReduce", || {
        format!("reduce {send:?}>{recv:?} n={count} t={dtype} op={op} root={root}{}", on(comm, stream))
    })
}

unsafe extern "C" fn all_gather(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    comm: RawComm,
    stream: RawStream,
) -> c_int {
    note("ncclAllGather", || format!("all_gather {send:?}>{recv:?} n={count} t={dtype}{}", on(comm, stream)))
}

unsafe extern "C" fn reduce_scatter(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    op: c_int,
    comm: RawComm,
    stream: RawStream,
) -> c_int {
    note("ncclReduceScatter", || {
        format!("reduce_scatter {send:?}>{recv:?} n={count} t={dtype} op={op}{}", on(comm, stream))
    })
}

unsafe extern "C" fn send(
    send: *const c_void,
    count: usize,
    dtype: c_int,
    peer: c_int,
    comm: RawComm,
    stream: RawStream,
) -> c_int {
    note("ncclSend", || format!("send {send:?} n={count} t={dtype} to={peer}{}", on(comm, stream)))
}

unsafe extern "C" fn recv(
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    peer: c_int,
    comm: RawComm,
    stream: RawStream,
) -> c_int {
    note("ncclRecv", || format!("recv {recv:?} n={count} t={dtype} from={peer}{}", on(comm, stream)))
}

fn on(comm: RawComm, stream: RawStream) -> String {
    assert_eq!(stream.addr(), TestStream::HANDLE as usize);
    format!(" on {}", comm.addr())
}

thread_local! {
    static CURRENT: RefCell<String> = const { RefCell::new(String::new()) };
}

pub(crate) fn current() -> String {
    CURRENT.with_borrow(String::clone)
}

/// A device that is nothing but its name.
pub(crate) struct TestDevice(pub(crate) String);

/// The devices `cuda:0`, `cuda:1`, … of the ranks 0, 1, ….
pub(crate) fn devices(ranks: u32) -> Vec<(u32, Arc<dyn Device>)> {
    (0..ranks).map(device).collect()
}

/// A rank on the device of its number.
pub(crate) fn device(rank: u32) -> (u32, Arc<dyn Device>) {
    (rank, Arc::new(TestDevice(format!("cuda:{rank}"))))
}

fn none<T>() -> Result<T, DeviceError> {
    Err(DeviceError::Unsupported("a test".to_string()))
}

impl Device for TestDevice {
    fn id(&self) -> &str {
        &self.0
    }

    fn kind(&self) -> &'static str {
        "cuda"
    }

    fn captures(&self) -> bool {
        false
    }

    fn alloc(&self, _bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        none()
    }

    fn alloc_staging(&self, _bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        none()
    }

    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        none()
    }

    fn make_current(&self) -> Result<(), DeviceError> {
        CURRENT.with_borrow_mut(|current| current.clone_from(&self.0));
        Ok(())
    }

    fn reach(&self, _peer: &str) -> Result<(), DeviceError> {
        none()
    }

    unsafe fn kernel(
        &self,
        _kernel: &'static KernelDef,
        _args: Vec<Arg<BoundRange>>,
        _grid: Grid,
    ) -> Result<Box<dyn Work>, DeviceError> {
        none()
    }
}

/// A stream that is nothing but its handle.
pub(crate) struct TestStream(pub(crate) &'static str);

impl TestStream {
    pub(crate) const HANDLE: u64 = 0x5afe;
}

impl Stream for TestStream {
    fn raw(&self) -> RawHandle {
        RawHandle { api: self.0, handle: TestStream::HANDLE }
    }

    unsafe fn copy(&mut self, _dst: DevicePtr, _src: DevicePtr, _bytes: u64) -> Result<(), DeviceError> {
        none()
    }

    fn mark(&mut self, _tasks: u32) -> Result<(), DeviceError> {
        none()
    }

    fn complete(&mut self, _runs: u32) -> Result<(), DeviceError> {
        none()
    }

    fn progress(&self) -> Arc<dyn Progress> {
        Arc::new(std::sync::atomic::AtomicU64::new(0))
    }

    fn wait(&mut self, _until: Option<Instant>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn capture(&mut self) -> Option<&mut dyn Capture> {
        None
    }
}

/// A handle that nobody sets.
pub(crate) fn unaborted() -> Arc<dyn Abort> {
    Arc::new(std::sync::atomic::AtomicBool::new(false))
}
