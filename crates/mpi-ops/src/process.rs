//! This process as a rank of MPI.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mpi::ffi;
use squall_core::DeviceError;
use squall_core::wait::{Running, watch};

use crate::api::{self, Comm, Operators, check};

/// Bytes that one call moves here, which MPI counts with 31 bits.
const PIECE: usize = 1 << 30;

/// This process as a rank of MPI, from [`Process::start`] to [`Process::finish`] or [`Process::abort`].
#[derive(Debug)]
pub struct Process {
    /// All processes, apart from the communicator that other code of the process may use.
    base: Comm,
    rank: u32,
    size: u32,
    host_rank: u32,
    host_size: u32,
    library: String,
    operators: Operators,
    /// Whether MPI serves several threads at once.
    multiple: bool,
    /// Whether MPI was initialised here, and so is to be finalised here.
    owned: bool,
    /// Whether the host has fewer cores than processes of the job.
    crowded: bool,
    connections: AtomicUsize,
    finished: AtomicBool,
    /// Why MPI can be used no more.
    left: OnceLock<String>,
}

static PROCESS: OnceLock<Result<Process, DeviceError>> = OnceLock::new();

impl Process {
    /// Starts MPI, which waits for all processes of the job, or gives what was started before. MPI's own initialisation has no deadline.
    ///
    /// To be called first by the thread that will call [`Process::finish`]. Where the program has initialised MPI itself, that is used
    /// and left to the program to finalise. Errs when MPI does not let threads take turns.
    pub fn start() -> Result<&'static Process, DeviceError> {
        PROCESS.get_or_init(Process::init).as_ref().map_err(Clone::clone)
    }

    /// What was started, or `None`.
    pub fn started() -> Option<&'static Process> {
        PROCESS.get().and_then(|process| process.as_ref().ok())
    }

    fn init() -> Result<Process, DeviceError> {
        let (mut initialized, mut finalized, mut granted) = (0, 0, 0);
        // SAFETY: may be asked at any time, and writes a flag.
        check("MPI_Initialized", unsafe { ffi::MPI_Initialized(&mut initialized) })?;
        // SAFETY: as above.
        check("MPI_Finalized", unsafe { ffi::MPI_Finalized(&mut finalized) })?;
        if finalized != 0 {
            return Err(DeviceError::Failed(
                "MPI was finalised in this process, and cannot be started again".into(),
            ));
        }
        let owned = initialized == 0;
        // SAFETY: constants of MPI's.
        let (serialized, multiple) = unsafe { (ffi::RSMPI_THREAD_SERIALIZED, ffi::RSMPI_THREAD_MULTIPLE) };
        if owned {
            let (argc, argv) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: nobody has initialised MPI, and without arguments none are read.
            check("MPI_Init_thread", unsafe { ffi::MPI_Init_thread(argc, argv, multiple, &mut granted) })?;
        } else {
            // SAFETY: MPI is initialised.
            check("MPI_Query_thread", unsafe { ffi::MPI_Query_thread(&mut granted) })?;
        }
        if granted < serialized {
            return Err(DeviceError::Unsupported(format!(
                "MPI lets only one thread of a process call it (it grants level {granted}), but squall needs MPI_THREAD_SERIALIZED \
                 (level {serialized}) at least"
            )));
        }
        // SAFETY: a constant of MPI's.
        let world = unsafe { ffi::RSMPI_COMM_WORLD };
        let world = if owned { Comm::made(world)? } else { Comm(world) };
        let base = world.duplicate()?;
        let (rank, size) = base.place()?;
        let host = base.split_by_host()?;
        let (host_rank, host_size) = host.place()?;
        // SAFETY: nobody else has it.
        unsafe { host.free() };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Ok(Process {
            base,
            rank,
            size,
            host_rank,
            host_size,
            library: api::library()?,
            operators: Operators::new()?,
            multiple: granted >= multiple,
            owned,
            crowded: host_size as usize > cores,
            connections: AtomicUsize::new(0),
            finished: AtomicBool::new(false),
            left: OnceLock::new(),
        })
    }

    /// This process's rank among all of the job.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Processes of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// This process's rank among those of its host.
    pub fn host_rank(&self) -> u32 {
        self.host_rank
    }

    /// Processes of the job on this host.
    pub fn host_size(&self) -> u32 {
        self.host_size
    }

    /// Whether all processes of the job are on one host.
    pub fn is_one_host(&self) -> bool {
        self.host_size == self.size
    }

    /// What MPI says that it is, with its version.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Gives rank 0's bytes to all; what the others pass is not looked at. All ranks call it, in the same order as
    /// [`Process::all_gather`], and none while a step runs. Errs with [`DeviceError::Late`] when not all have come by the deadline: then MPI
    /// can be used no more.
    pub fn broadcast(&self, bytes: &[u8], deadline: Instant) -> Result<Vec<u8>, DeviceError> {
        const FUNCTION: &str = "MPI_Ibcast";
        let len = self.collective(FUNCTION, vec![bytes.len() as u64], deadline, |len, request| {
            // SAFETY: one word, kept until the call has ended.
            unsafe {
                ffi::MPI_Ibcast(len.as_mut_ptr().cast(), 1, ffi::RSMPI_UINT64_T, 0, self.base.0, request)
            }
        })?;
        let len = len.first().copied().unwrap_or(0) as usize;
        let mut all = if self.rank == 0 { bytes.to_vec() } else { room(len)? };
        let mut done = 0;
        while done < len {
            let count = (len - done).min(PIECE);
            all = self.collective(FUNCTION, all, deadline, |all, request| {
                let place = all[done..].as_mut_ptr().cast();
                // SAFETY: there are as many bytes, kept until the call has ended.
                unsafe { ffi::MPI_Ibcast(place, count as c_int, ffi::RSMPI_UINT8_T, 0, self.base.0, request) }
            })?;
            done += count;
        }
        Ok(all)
    }

    /// Gathers all ranks' bytes, by rank; they may differ in length, and all together have less than 2 GiB. Called as
    /// [`Process::broadcast`] is.
    pub fn all_gather(&self, mine: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, DeviceError> {
        let words = vec![0; self.size as usize + 1];
        let words = self.collective("MPI_Iallgather", words, deadline, |words, request| {
            let [own, all @ ..] = &mut words[..] else { return 0 };
            *own = mine.len() as u64;
            let (own, all): (*const u64, _) = (own, all.as_mut_ptr());
            // SAFETY: a word is given, and a word a rank is taken; both are kept until the call has ended.
            unsafe {
                let word = ffi::RSMPI_UINT64_T;
                ffi::MPI_Iallgather(own.cast(), 1, word, all.cast(), 1, word, self.base.0, request)
            }
        })?;
        let lens = &words[1..];
        let total = lens.iter().fold(0u64, |sum, len| sum.saturating_add(*len));
        if c_int::try_from(total).is_err() {
            return Err(DeviceError::Unsupported(format!(
                "{total} bytes are more than MPI gathers in one call"
            )));
        }
        if total == 0 {
            return Ok(vec![Vec::new(); lens.len()]);
        }
        // All lengths and sums fit now.
        let counts: Vec<c_int> = lens.iter().map(|len| *len as c_int).collect();
        let begins = counts.iter().scan(0, |end, count| Some(std::mem::replace(end, *end + count)));
        let begins: Vec<c_int> = begins.collect();
        let kept = (mine.to_vec(), room(total as usize)?, counts, begins);
        let (_, all, ..) = self.collective("MPI_Iallgatherv", kept, deadline, |kept, request| {
            let (mine, all, counts, begins) = kept;
            // SAFETY: the places hold what the counts say; all are kept until the call has ended.
            unsafe {
                let (byte, own) = (ffi::RSMPI_UINT8_T, mine.len() as c_int);
                // The address of an empty vector may be what MPI takes for a word of its own.
                let from = if mine.is_empty() { std::ptr::null() } else { mine.as_ptr().cast::<c_void>() };
                let to = all.as_mut_ptr().cast::<c_void>();
                let (counts, begins) = (counts.as_ptr(), begins.as_ptr());
                ffi::MPI_Iallgatherv(from, own, byte, to, counts, begins, byte, self.base.0, request)
            }
        })?;
        let mut rest = &all[..];
        let split = lens.iter().map(|len| {
            let (part, after) = rest.split_at(*len as usize);
            rest = after;
            part.to_vec()
        });
        Ok(split.collect())
    }

    /// Ends MPI in this process, once: the end of a process that ended well. Waits for all ranks, without a deadline. To be called by the
    /// thread that called [`Process::start`], when all plan groups are gone. Errs, and ends nothing, while there is a connection, and
    /// where calls were left in flight; then [`Process::abort`] is the way. More calls change nothing.
    pub fn finish(&self) -> Result<(), DeviceError> {
        if self.finished.load(Ordering::Acquire) {
            return Ok(());
        }
        self.check()?;
        let connections = self.connections.load(Ordering::Acquire);
        if connections > 0 {
            return Err(DeviceError::Failed(format!(
                "MPI cannot be finalised while it has {}: drop the plan groups first",
                squall_core::count(connections as u64, "connection")
            )));
        }
        if self.finished.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: no connection is left to use them, and none is made from now on.
        unsafe {
            self.operators.free();
            self.base.free();
        }
        if self.owned {
            // SAFETY: MPI is initialised, and nothing is in flight.
            check("MPI_Finalize", unsafe { ffi::MPI_Finalize() })?;
        }
        Ok(())
    }

    /// Ends this process with a status and, where MPI was started and not finished, all processes of the job by `MPI_Abort`. Nothing of
    /// this process is dropped, and what the launcher has not read of its output may be lost.
    pub fn abort(status: i32) -> ! {
        if Process::started().is_some_and(|process| !process.finished.load(Ordering::Acquire)) {
            // SAFETY: MPI is initialised. It is called whatever other threads do: it ends them.
            unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, status) };
        }
        std::process::exit(status)
    }

    /// Errs when MPI can be used no more.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        if let Some(why) = self.left.get() {
            return Err(DeviceError::Failed(format!("MPI can be used no more by this process: {why}")));
        }
        if self.finished.load(Ordering::Acquire) {
            return Err(DeviceError::Failed("MPI was finalised in this process".to_string()));
        }
        Ok(())
    }

    /// Notes why no call of MPI may be made any more; the first reason counts.
    pub(crate) fn leave(&self, why: String) {
        // An error says that there is a reason already.
        let _ = self.left.set(why);
    }

    pub(crate) fn base(&self) -> Comm {
        self.base
    }

    pub(crate) fn operators(&self) -> &Operators {
        &self.operators
    }

    /// Whether one more connection may be made: told before all ranks make theirs.
    pub(crate) fn may_connect(&self) -> Result<(), DeviceError> {
        if !self.multiple && self.connections.load(Ordering::Acquire) > 0 {
            return Err(DeviceError::Unsupported(format!(
                "{} serves one thread of a process at a time, so that a second plan group cannot use it while there is one",
                self.library
            )));
        }
        Ok(())
    }

    /// Counts a connection.
    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a connection no more.
    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits until `ready` or the deadline, as core's `watch` does: polls, then naps. MPI makes progress in the calls of `ready`. Called by a
    /// thread that is counted as [`Running`].
    pub(crate) fn poll(&self, until: Option<Instant>, ready: impl Fn() -> bool) -> bool {
        let look = || {
            let done = ready();
            // `watch` counts this process's threads alone, and another process may need this core to come here.
            if !done && self.crowded {
                thread::yield_now();
            }
            done
        };
        watch(until, Duration::MAX, look, || false)
    }

    /// Posts one call on all ranks, which works on `kept`, and waits for its end. What does not end in time is left with what it uses.
    fn collective<T>(
        &self,
        function: &'static str,
        mut kept: T,
        deadline: Instant,
        post: impl FnOnce(&mut T, &mut ffi::MPI_Request) -> c_int,
    ) -> Result<T, DeviceError> {
        self.check()?;
        let _running = Running::enter();
        let since = Instant::now();
        // SAFETY: a constant of MPI's.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        check(function, post(&mut kept, &mut request))?;
        let state = RefCell::new((request, Ok(())));
        let done = self.poll(Some(deadline), || {
            let (request, outcome) = &mut *state.borrow_mut();
            let mut flag = 0;
            // SAFETY: the request is this call's, and what it works on is kept.
            *outcome =
                check(function, unsafe { ffi::MPI_Test(request, &mut flag, ffi::RSMPI_STATUS_IGNORE) });
            flag != 0 || outcome.is_err()
        });
        match state.into_inner().1 {
            Ok(()) if done => Ok(kept),
            Ok(()) => {
                // MPI may still write there.
                std::mem::forget(kept);
                let (rank, waited) = (self.rank, since.elapsed());
                let text = format!(
                    "{function} had not ended on rank {rank} after {waited:.1?}, when the deadline passed: not all of the {} came",
                    squall_core::count(self.size, "rank")
                );
                self.leave(text.clone());
                Err(DeviceError::Late(text))
            }
            Err(error) => {
                std::mem::forget(kept);
                self.leave(error.to_string());
                Err(error)
            }
        }
    }
}

/// Zeroed bytes, as many as another rank asked for.
fn room(len: usize) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = Vec::new();
    let out = |_| DeviceError::OutOfMemory {
        device: "this process".to_string(),
        bytes: len as u64,
        message: "asked for by another rank of MPI".to_string(),
    };
    bytes.try_reserve_exact(len).map_err(out)?;
    bytes.resize(len, 0);
    Ok(bytes)
}
