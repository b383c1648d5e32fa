//! What a plugin's op is given while it is made ready.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::thread::{self, ThreadId};
use std::time::Instant;

use squall_core::{Arg, BoundRange, CommId, DeviceError, DevicePtr, Prepare, World};
use squall_plugin::abi::{self, Header};
use squall_plugin::convert::{Malformed, read_arg, slice, text};

use super::Plugin;
use super::tables;
use super::work::{Inner, Told, Uses, fallible};

/// One preparation: what was made so far, and what the plugin may still look at.
pub(super) struct Preparing<'a, 'p> {
    plugin: &'static Plugin,
    cx: &'a mut Prepare<'p>,
    thread: ThreadId,
    device: CString,
    kind: CString,
    told: Box<Told>,
    uses: Uses,
    comms: BTreeMap<u32, Comm>,
    blobs: Vec<abi::Blob>,
    exchanged: Vec<Vec<u8>>,
    pointers: Vec<u64>,
}

/// A communicator, as it is told.
struct Comm {
    name: CString,
    members: Vec<u32>,
    parts: Vec<u32>,
    ranks: Vec<u32>,
    rank: u32,
}

impl Comm {
    fn of(world: &World, comm: CommId, rank: u32) -> Option<Comm> {
        let own = world.part(comm, rank)?;
        let place = |rank: u32| world.part(comm, rank).map_or((0, 0), |part| (part.index, part.rank));
        let (parts, ranks) = (0..world.size()).map(place).unzip();
        let name = CString::new(world.name(comm)).unwrap_or_default();
        Some(Comm { name, members: own.members.to_vec(), parts, ranks, rank: own.rank })
    }
}

impl<'a, 'p> Preparing<'a, 'p> {
    pub(super) fn new(plugin: &'static Plugin, cx: &'a mut Prepare<'p>) -> Preparing<'a, 'p> {
        Preparing {
            plugin,
            thread: thread::current().id(),
            device: CString::new(cx.device.id()).unwrap_or_default(),
            kind: CString::new(cx.device.kind()).unwrap_or_default(),
            told: Told::new(cx.aborted.clone()),
            cx,
            uses: Uses::default(),
            comms: BTreeMap::new(),
            blobs: Vec::new(),
            exchanged: Vec::new(),
            pointers: Vec::new(),
        }
    }

    /// Calls the plugin with the table for this preparation.
    pub(super) fn with_table(&mut self, call: impl FnOnce(*const abi::Prepare) -> i32) -> i32 {
        let left = self.cx.deadline.saturating_duration_since(Instant::now());
        let table = abi::Prepare {
            header: Header::of::<abi::Prepare>(),
            device: self.device.as_ptr(),
            device_kind: self.kind.as_ptr(),
            abort: &raw const self.told.table,
            nanoseconds: u64::try_from(left.as_nanos()).unwrap_or(u64::MAX),
            rank: self.cx.rank,
            world: self.cx.world.size(),
            comms: self.cx.world.comms().count() as u32,
            captures: u32::from(self.cx.device.captures()),
            comm: Some(comm),
            alloc: Some(alloc),
            alloc_staging: Some(alloc_staging),
            kernel: Some(kernel),
            op: Some(op),
            exchange: Some(exchange),
            peer_pointers: Some(peer_pointers),
            cx: (&raw mut *self).cast::<c_void>(),
        };
        call(&raw const table)
    }

    /// What the plugin's work needs to its end.
    pub(super) fn end(self) -> (Box<Told>, Uses) {
        (self.told, self.uses)
    }
}

/// Does something for the plugin that prepares, and tells it what came of it.
fn serve(
    table: *const abi::Prepare,
    error: *mut abi::Error,
    body: impl FnOnce(&mut Preparing<'_, '_>) -> Result<(), DeviceError>,
) -> i32 {
    fallible(error, || {
        // SAFETY: the ABI: null, or the table of the call that is under way.
        let table = unsafe { table.as_ref() }.ok_or_else(|| failed("a null preparation"))?;
        let preparing = table.cx.cast::<Preparing<'_, '_>>();
        // SAFETY: `cx` is what `with_table` put there. The field is never changed, and read alone: another thread may not have more of it.
        if unsafe { (&raw const (*preparing).thread).read() } != thread::current().id() {
            return Err(failed("it is prepared by the thread of its rank alone"));
        }
        // SAFETY: as above, and this is the thread that lent it to the plugin's call.
        let preparing = unsafe { &mut *preparing };
        body(preparing)
    })
}

fn failed(text: impl Into<String>) -> DeviceError {
    DeviceError::Failed(text.into())
}

fn malformed(malformed: Malformed) -> DeviceError {
    DeviceError::Failed(malformed.to_string())
}

/// Where a result goes.
///
/// # Safety
/// `place` is null or may be written.
unsafe fn give<T>(place: *mut T, value: T) -> Result<(), DeviceError> {
    if place.is_null() {
        return Err(failed("there is no place for the result: the pointer is null"));
    }
    // SAFETY: the caller's.
    unsafe { place.write(value) };
    Ok(())
}

unsafe extern "C" fn comm(
    table: *const abi::Prepare,
    id: u32,
    out: *mut abi::Comm,
    error: *mut abi::Error,
) -> i32 {
    serve(table, error, |preparing| {
        let (world, rank) = (preparing.cx.world.clone(), preparing.cx.rank);
        let comm = match preparing.comms.entry(id) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let comm = Comm::of(&world, CommId(id), rank);
                entry.insert(comm.ok_or_else(|| failed(format!("there is no communicator {id}")))?)
            }
        };
        let told = abi::Comm {
            name: comm.name.as_ptr(),
            members: comm.members.as_ptr(),
            parts: comm.parts.as_ptr(),
            ranks: comm.ranks.as_ptr(),
            size: comm.members.len() as u32,
            rank: comm.rank,
        };
        // SAFETY: the ABI: the plugin's place for the result.
        unsafe { give(out, told) }
    })
}

unsafe extern "C" fn alloc(
    table: *const abi::Prepare,
    bytes: u64,
    ptr: *mut u64,
    error: *mut abi::Error,
) -> i32 {
    serve(table, error, |preparing| {
        let memory = preparing.cx.device.alloc(bytes)?;
        let address = memory.ptr().0;
        preparing.uses.memory.push(memory);
        // SAFETY: the ABI: the plugin's place for the result.
        unsafe { give(ptr, address) }
    })
}

unsafe extern "C" fn alloc_staging(
    table: *const abi::Prepare,
    bytes: u64,
    ptr: *mut u64,
    host: *mut *mut c_void,
    error: *mut abi::Error,
) -> i32 {
    serve(table, error, |preparing| {
        let mut memory = preparing.cx.device.alloc_staging(bytes)?;
        let address = memory.ptr().0;
        let seen = memory.host().ok_or_else(|| failed("the host does not see staging memory"))?.as_mut_ptr();
        preparing.uses.memory.push(memory);
        // SAFETY: the ABI: the plugin's places for the results.
        unsafe {
            give(ptr, address)?;
            give(host, seen.cast())
        }
    })
}

unsafe extern "C" fn kernel(
    table: *const abi::Prepare,
    kernel: *const abi::Kernel,
    values: *const abi::Arg,
    count: u32,
    grid: *const abi::Grid,
    inner: *mut *mut abi::Inner,
    error: *mut abi::Error,
) -> i32 {
    serve(table, error, |preparing| {
        // SAFETY: the ABI: a kernel's table stays for good.
        let def = unsafe { tables::kernel(kernel, preparing.plugin) }.map_err(malformed)?;
        // SAFETY: the ABI: so many arguments, for the call.
        let values = unsafe { slice(values, count.into(), "a kernel's arguments") }.map_err(malformed)?;
        // SAFETY: as above, what arguments point to included.
        let args = values.iter().map(|value| unsafe { read_arg::<BoundRange>(value) });
        let args = args.collect::<Result<Vec<_>, _>>().map_err(malformed)?;
        // SAFETY: the ABI: null or a grid.
        let grid = unsafe { grid.as_ref() }.ok_or_else(|| failed("a null grid"))?;
        // SAFETY: the ABI: the plugin vouches for the ranges, as any op does.
        let work = unsafe { preparing.cx.kernel(def, args, grid.threads, grid.block.map(u64::from)) }?;
        // SAFETY: the ABI: the plugin's place for the result.
        unsafe { keep(preparing, work, inner) }
    })
}

/// Keeps a work for the plugin's, and gives it its handle.
///
/// # Safety
/// `inner` is null or may be written.
unsafe fn keep(
    preparing: &mut Preparing<'_, '_>,
    work: Box<dyn squall_core::Work>,
    inner: *mut *mut abi::Inner,
) -> Result<(), DeviceError> {
    let kept = Box::into_raw(Box::new(Inner(work)));
    preparing.uses.inner.push(kept);
    // SAFETY: the caller's.
    unsafe { give(inner, kept.cast()) }
}

unsafe extern "C" fn op(
    table: *const abi::Prepare,
    name: *const c_char,
    comm: u32,
    args: *const abi::NamedArg,
    count: u32,
    inner: *mut *mut abi::Inner,
    error: *mut abi::Error,
) -> i32 {
    serve(table, error, |preparing| {
        // SAFETY: the ABI: text, for the call.
        let name = unsafe { text(name, "an op's name") }.map_err(malformed)?;
        // SAFETY: the ABI: so many arguments, for the call.
        let args = unsafe { slice(args, count.into(), "an op's arguments") }.map_err(malformed)?;
        let read = |arg: &abi::NamedArg| -> Result<(&str, Arg<BoundRange>), Malformed> {
            // SAFETY: as above.
            unsafe { Ok((text(arg.name, "an argument's name")?, read_arg(&arg.value)?)) }
        };
        let args = args.iter().map(read).collect::<Result<Vec<_>, _>>().map_err(malformed)?;
        // SAFETY: the ABI: the plugin vouches for the ranges, as any op does.
        let work = unsafe { preparing.cx.op(name, CommId(comm), &args) };
        let work = work.map_err(|error| match error {
            squall_core::OpError::Device(error) => error,
            other => failed(format!("`{name}` inside it: {other}")),
        })?;
        // SAFETY: the ABI: the plugin's place for the result.
        unsafe { keep(preparing, work, inner) }
    })
}

/// The most bytes that a rank exchanges at once.
const MOST_EXCHANGED: u64 = 1 << 20;

unsafe extern "C" fn exchange(
    table: *const abi::Prepare,
    comm: u32,
    mine: *const c_void,
    len: u64,
    all: *mut *const abi::Blob,
    error: *mut abi::Error,
) -> i32 {
    serve(table, error, |preparing| {
        // SAFETY: the ABI: so many bytes, for the call.
        let mine = unsafe { slice(mine.cast::<u8>(), len, "the bytes to exchange") }.map_err(malformed)?;
        if len > MOST_EXCHANGED {
            let text = format!(
                "{len} bytes are to be exchanged; that is for small values, of at most {MOST_EXCHANGED} bytes"
            );
            return Err(failed(text));
        }
        let cx = &preparing.cx;
        preparing.exchanged = cx.exchange.all_gather(CommId(comm), cx.rank, mine, cx.deadline)?;
        let blob = |bytes: &Vec<u8>| abi::Blob { bytes: bytes.as_ptr().cast(), len: bytes.len() as u64 };
        preparing.blobs = preparing.exchanged.iter().map(blob).collect();
        // SAFETY: the ABI: the plugin's place for the result.
        unsafe { give(all, preparing.blobs.as_ptr()) }
    })
}

unsafe extern "C" fn peer_pointers(
    table: *const abi::Prepare,
    comm: u32,
    ptr: u64,
    all: *mut *const u64,
    error: *mut abi::Error,
) -> i32 {
    serve(table, error, |preparing| {
        let pointers = preparing.cx.peer_pointers(CommId(comm), DevicePtr(ptr))?;
        preparing.pointers = pointers.into_iter().map(|pointer| pointer.0).collect();
        // SAFETY: the ABI: the plugin's place for the result.
        unsafe { give(all, preparing.pointers.as_ptr()) }
    })
}
