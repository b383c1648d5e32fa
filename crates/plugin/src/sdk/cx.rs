//! What an op finds while it is made ready: core's traits on top of the host's [`abi::Prepare`].

use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use squall_core::world::WorldError;
use squall_core::{
    Abort, Arg, BoundRange, CommId, Device, DeviceError, DevicePtr, Exchange, Grid, KernelDef, Memory,
    OpError, Services, Stream, Work, World,
};

use super::absent;
use super::life::Life;
use super::stream::{InnerWork, done};
use super::tables;
use crate::abi;
use crate::convert::{ArgList, Malformed, grid, slice, text};
use crate::field;

/// The host's table, used within the call of `prepare` that it was lent to, on its thread alone; what is asked on another is refused.
struct Host {
    table: *const abi::Prepare,
    thread: ThreadId,
    device: String,
}

// SAFETY: `table` is read on `thread` alone, which every use checks; the rest may be shared.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

/// The rank's device, and the way to the other ranks.
pub(super) struct Cx {
    host: Host,
    kind: &'static str,
    captures: bool,
    pub(super) rank: u32,
    pub(super) deadline: Instant,
    pub(super) world: Arc<World>,
    pub(super) life: Arc<Life>,
}

/// Calls a function of the host's table with these arguments and, last, an error; `Err` where there is none or it fails.
macro_rules! ask {
    ($host:expr, $name:ident($($arg:expr),*)) => {{
        let host: &Host = $host;
        host.here()?;
        let mut error = abi::Error::EMPTY;
        let function = field!(Prepare, host.table, $name).flatten().ok_or_else(|| absent(stringify!($name)))?;
        done(function(host.table, $($arg,)* &raw mut error), &error, &host.device)
    }};
}

impl Host {
    fn here(&self) -> Result<(), DeviceError> {
        if thread::current().id() == self.thread {
            return Ok(());
        }
        Err(DeviceError::Unsupported(
            "what an op is made ready with is for the thread that it is given to".into(),
        ))
    }

    /// The world with its communicators, as the host tells of them.
    fn world(&self, size: u32, comms: u32) -> Result<World, DeviceError> {
        let wrong = |error: WorldError| DeviceError::Failed(error.to_string());
        let mut world = World::new(size.into()).map_err(wrong)?;
        for comm in 1..comms {
            let mut told = abi::Comm {
                name: ptr::null(),
                members: ptr::null(),
                parts: ptr::null(),
                ranks: ptr::null(),
                size: 0,
                rank: 0,
            };
            // SAFETY: the table is asked as it says; what it tells has a number for each rank.
            let (name, parts, ranks) = unsafe {
                ask!(self, comm(comm, &raw mut told))?;
                let each = u64::from(size);
                let (parts, ranks) = (slice(told.parts, each, "parts")?, slice(told.ranks, each, "ranks")?);
                (text(told.name, "a communicator's name")?, parts, ranks)
            };
            let of = |values: &[u32], rank: u32| values.get(rank as usize).copied().unwrap_or(0).into();
            world.split(name, |rank| (of(parts, rank), of(ranks, rank))).map_err(wrong)?;
        }
        Ok(world)
    }
}

impl Cx {
    /// `kind` is that of the op's devices.
    ///
    /// # Safety
    /// `table` is a table of the host's and stays as long as this.
    pub(super) unsafe fn new(
        table: *const abi::Prepare,
        kind: &'static str,
        life: Arc<Life>,
    ) -> Result<Cx, DeviceError> {
        // SAFETY: the caller's. All fields before the functions are of the ABI's first minor; a writer without them is refused.
        unsafe {
            let short = || Malformed::new("the preparation's table is too short");
            field!(Prepare, table, captures).ok_or_else(short)?;
            let device = text((*table).device, "the device's name")?.to_string();
            let host = Host { table, thread: thread::current().id(), device };
            let now = Instant::now();
            let deadline = now.checked_add(Duration::from_nanos((*table).nanoseconds)).unwrap_or(now);
            let world = Arc::new(host.world((*table).world, (*table).comms)?);
            Ok(Cx {
                host,
                kind,
                captures: (*table).captures != 0,
                rank: (*table).rank,
                deadline,
                world,
                life,
            })
        }
    }

    fn size(&self, comm: CommId) -> Result<u32, DeviceError> {
        let part = self.world.part(comm, self.rank);
        part.map(|part| part.size())
            .ok_or_else(|| DeviceError::Failed(format!("there is no communicator {}", comm.0)))
    }

    fn inner(&self, inner: *mut abi::Inner) -> Result<Box<dyn Work>, DeviceError> {
        // SAFETY: the host made it, to stay as long as the work that is being made ready.
        Ok(Box::new(unsafe { InnerWork::new(inner, self.life.clone()) }?))
    }

    fn memory(&self, ptr: u64, bytes: u64, host: *mut c_void) -> Box<dyn Memory> {
        Box::new(PluginMemory { ptr: DevicePtr(ptr), bytes, host: host.cast(), life: self.life.clone() })
    }
}

impl Device for Cx {
    fn id(&self) -> &str {
        &self.host.device
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn captures(&self) -> bool {
        self.captures
    }

    fn alloc(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        let mut ptr = 0;
        // SAFETY: the table is asked as it says.
        unsafe { ask!(&self.host, alloc(bytes, &raw mut ptr)) }?;
        // Memory of a host device is this process's own.
        let host = if self.kind == "host" { ptr as usize as *mut c_void } else { ptr::null_mut() };
        Ok(self.memory(ptr, bytes, host))
    }

    fn alloc_staging(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        let (mut ptr, mut host) = (0, ptr::null_mut());
        // SAFETY: as for `alloc`.
        unsafe { ask!(&self.host, alloc_staging(bytes, &raw mut ptr, &raw mut host)) }?;
        if host.is_null() && bytes != 0 {
            return Err(Malformed::new("squall gave staging memory without its place on the host").into());
        }
        Ok(self.memory(ptr, bytes, host))
    }

    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        Err(DeviceError::Unsupported("a plugin makes no streams: plans do that".into()))
    }

    fn reach(&self, _: &str) -> Result<(), DeviceError> {
        let text = "a plugin opens no access to peers' memory itself: `Prepare::peer_pointers` does that";
        Err(DeviceError::Unsupported(text.into()))
    }

    unsafe fn kernel(
        &self,
        kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        grid: Grid,
    ) -> Result<Box<dyn Work>, DeviceError> {
        let table = &raw const tables::kernel(kernel)?.0;
        let (args, grid) = (ArgList::new(&args)?, self::grid(&grid));
        let (values, count) = (args.values().as_ptr(), args.values().len() as u32);
        let mut inner = ptr::null_mut();
        // SAFETY: as for `alloc`; the ranges are this function's caller's.
        unsafe { ask!(&self.host, kernel(table, values, count, &raw const grid, &raw mut inner)) }?;
        self.inner(inner)
    }
}

impl Exchange for Cx {
    /// Within the time that the host gives, whatever `deadline` is.
    fn all_gather(
        &self,
        comm: CommId,
        rank: u32,
        mine: &[u8],
        _: Instant,
    ) -> Result<Vec<Vec<u8>>, DeviceError> {
        let size = self.size(comm)?;
        if rank != self.rank {
            return Err(DeviceError::Unsupported(format!(
                "rank {} speaks for itself, not for rank {rank}",
                self.rank
            )));
        }
        let mut all = ptr::null();
        // SAFETY: as for `alloc`; the blobs are as many as the communicator has ranks, and are copied at once.
        unsafe {
            ask!(&self.host, exchange(comm.0, mine.as_ptr().cast(), mine.len() as u64, &raw mut all))?;
            let blobs = slice(all, size.into(), "the ranks' values")?.iter();
            let bytes = |blob: &abi::Blob| slice(blob.bytes.cast::<u8>(), blob.len, "a rank's bytes");
            Ok(blobs.map(|blob| bytes(blob).map(<[u8]>::to_vec)).collect::<Result<_, _>>()?)
        }
    }
}

/// The methods of core's `Prepare`.
pub(super) struct PluginServices<'a> {
    pub(super) cx: &'a Cx,
    /// What is to be told of an abort.
    pub(super) handles: Vec<Arc<dyn Abort>>,
}

impl Services for PluginServices<'_> {
    unsafe fn kernel(
        &mut self,
        kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        (threads, block): ([u64; 3], [u64; 3]),
    ) -> Result<Box<dyn Work>, DeviceError> {
        // Squall checks the rest, on its side.
        let grid = Grid::new(threads, block).map_err(|error| DeviceError::Failed(error.to_string()))?;
        // SAFETY: the caller's.
        unsafe { self.cx.kernel(kernel, args, grid) }
    }

    unsafe fn op(
        &mut self,
        name: &str,
        comm: CommId,
        args: &[(&str, Arg<BoundRange>)],
    ) -> Result<Box<dyn Work>, OpError> {
        let c_text = |text: &str| {
            CString::new(text).map_err(|_| Malformed::new(format!("a zero byte is in {text:?}")))
        };
        let op = c_text(name)?;
        let names = args.iter().map(|(name, _)| c_text(name)).collect::<Result<Vec<CString>, _>>()?;
        let list = ArgList::new(args.iter().map(|(_, arg)| arg))?;
        let named =
            |(name, value): (&CString, &abi::Arg)| abi::NamedArg { name: CStr::as_ptr(name), value: *value };
        let named: Vec<abi::NamedArg> = names.iter().zip(list.values()).map(named).collect();
        let (cx, mut inner) = (self.cx, ptr::null_mut());
        // SAFETY: as for `Cx::alloc`; the ranges are this function's caller's.
        unsafe {
            ask!(&cx.host, op(op.as_ptr(), comm.0, named.as_ptr(), named.len() as u32, &raw mut inner))
        }?;
        Ok(self.cx.inner(inner)?)
    }

    fn peer_pointers(&mut self, comm: CommId, ptr: DevicePtr) -> Result<Vec<DevicePtr>, DeviceError> {
        let (cx, size, mut all) = (self.cx, self.cx.size(comm)?, ptr::null());
        // SAFETY: as for `Cx::alloc`; the addresses are as many as the communicator has ranks, and are copied at once.
        unsafe {
            ask!(&cx.host, peer_pointers(comm.0, ptr.0, &raw mut all))?;
            Ok(slice(all, size.into(), "the ranks' addresses")?.iter().map(|&ptr| DevicePtr(ptr)).collect())
        }
    }

    fn on_abort(&mut self, handle: Arc<dyn Abort>) {
        if self.cx.life.is_aborted() {
            handle.abort();
        }
        self.handles.push(handle);
    }
}

/// Memory that the host gave, and frees when the work has ended.
struct PluginMemory {
    ptr: DevicePtr,
    bytes: u64,
    /// Where the host sees it, or null.
    host: *mut u8,
    life: Arc<Life>,
}

// SAFETY: the memory is this value's alone.
unsafe impl Send for PluginMemory {}

impl Memory for PluginMemory {
    fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn host(&mut self) -> Option<&mut [u8]> {
        let bytes = usize::try_from(self.bytes).ok()?;
        if bytes == 0 {
            return Some(&mut []);
        }
        if self.host.is_null() || self.life.check().is_err() {
            return None;
        }
        // SAFETY: the host gave so many zeroed bytes there, for as long as the life, to this value alone.
        Some(unsafe { std::slice::from_raw_parts_mut(self.host, bytes) })
    }
}
