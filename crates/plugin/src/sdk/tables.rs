//! The tables of what a plugin registers, made once and never freed.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use squall_core::ops::CONTRACTS;
use squall_core::registry::inventory;
use squall_core::registry::{Item, Registration};
use squall_core::{KernelDef, LibraryOp, Needs, ParamDef, Task};

use super::{describe, launch, prepare};
use crate::abi::{self, Header, MAX_PARAMS, kernel_flag, op_flag};
use crate::convert::{
    Malformed, check_header, dtype_set, leak_text, reduction_set, write_cover, write_param,
};
use crate::field;

/// A table that is never changed.
pub(super) struct Table<T>(pub(super) T);

// SAFETY: what a table points to is leaked and never changed.
unsafe impl<T> Send for Table<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Table<T> {}

/// The table of what the crate of that name and version has registered; what its dependencies have is theirs. Fails where something of it
/// cannot be exported.
pub(super) fn plugin(name: &str, version: &str) -> Result<abi::Plugin, Malformed> {
    let origin = format!("{name} {version}");
    // Two of one name are both exported, for the host to refuse with words of its own.
    let (mut ops, mut kernels) = (Vec::new(), Vec::new());
    let refuse = |what: String| {
        let why = "a plugin exports ops and kernels; link the crate instead";
        Err(Malformed::new(format!("it registers {what}: {why}")))
    };
    for registration in inventory::iter::<Registration>.into_iter().filter(|r| r.origin == origin) {
        match registration.item {
            Item::Op(op) => {
                let what = |error| Malformed::new(format!("the op `{}`: {error}", op.name()));
                ops.push(((op.name(), op.library(), op.device()), leak(self::op(op).map_err(what)?)));
            }
            Item::Kernel(def) => kernels.push((def.name, &raw const kernel(def)?.0)),
            Item::Backend(backend) => return refuse(format!("the backend `{}`", backend.kind())),
            Item::Library(library) => return refuse(format!("the library `{}`", library.name())),
        }
    }
    // The linker's order is arbitrary.
    ops.sort_unstable_by_key(|&(name, _)| name);
    kernels.sort_unstable_by_key(|&(name, _)| name);
    let ops = Vec::from_iter(ops.into_iter().map(|(_, op)| op)).leak();
    let kernels = Vec::from_iter(kernels.into_iter().map(|(_, kernel)| kernel)).leak();
    Ok(abi::Plugin {
        ops: ops.as_ptr(),
        kernels: kernels.as_ptr(),
        op_count: number(ops.len())?,
        kernel_count: number(kernels.len())?,
        ..nothing(name, version)?
    })
}

/// The table of a plugin that has nothing.
pub(super) fn nothing(name: &str, version: &str) -> Result<abi::Plugin, Malformed> {
    Ok(abi::Plugin {
        header: Header::of::<abi::Plugin>(),
        name: text(name)?,
        version: text(version)?,
        ops: ptr::null(),
        kernels: ptr::null(),
        op_count: 0,
        kernel_count: 0,
        init: None,
        feature: None,
    })
}

fn op(op: &'static dyn LibraryOp) -> Result<abi::Op, Malformed> {
    // One of squall's own is described by squall.
    let own = CONTRACTS.iter().any(|contract| contract.name() == op.name());
    let params = if own { Vec::new() } else { params(op.params())? }.leak();
    let Needs { alignment, multiple, dtypes, reductions, groups, captures, single_process, uses } =
        op.needs();
    let uses = uses.iter().map(|used| text(used)).collect::<Result<Vec<_>, _>>()?.leak();
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    Ok(abi::Op {
        header: Header::of::<abi::Op>(),
        name: text(op.name())?,
        summary: text(op.summary())?,
        library: text(op.library())?,
        device: text(op.device())?,
        example: text(op.example())?,
        params: if own { ptr::null() } else { params.as_ptr() },
        uses: uses.as_ptr(),
        data: ptr::from_ref(Box::leak(Box::new(op))).cast(),
        param_count: number(params.len())?,
        use_count: number(uses.len())?,
        flags: flag(groups, op_flag::GROUPS)
            | flag(captures, op_flag::CAPTURES)
            | flag(single_process, op_flag::SINGLE_PROCESS),
        alignment: number(alignment)?,
        multiple: number(multiple)?,
        dtypes: dtype_set(dtypes),
        reductions: reduction_set(reductions),
        reserved: 0,
        describe: if own { None } else { Some(describe::describe) },
        served_as: Some(describe::served_as),
        prepare: Some(prepare::prepare),
    })
}

/// The op of a table that [`plugin`] made.
///
/// # Safety
/// `table` is null or such a table.
pub(super) unsafe fn op_of(table: *const abi::Op) -> Result<&'static dyn LibraryOp, Malformed> {
    // SAFETY: the caller's: `data` is what `op` put there.
    unsafe {
        check_header(table, "the op's table")?;
        Ok(*(*table).data.cast::<&'static dyn LibraryOp>())
    }
}

/// The table of a kernel, registered or not: one for each, made when it is first asked for.
pub(super) fn kernel(def: &'static KernelDef) -> Result<&'static Table<abi::Kernel>, Malformed> {
    static MADE: Mutex<BTreeMap<usize, &'static Table<abi::Kernel>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    // By address: descriptors that live for good and are equal in it are one.
    let address = ptr::from_ref(def).addr();
    if let Some(table) = made.get(&address) {
        return Ok(table);
    }
    let table = write_kernel(def);
    let table = table.map_err(|error| Malformed::new(format!("the kernel `{}`: {error}", def.name)))?;
    let table: &Table<abi::Kernel> = Box::leak(Box::new(Table(table)));
    made.insert(address, table);
    Ok(table)
}

fn write_kernel(def: &'static KernelDef) -> Result<abi::Kernel, Malformed> {
    let params = params(def.params)?.leak();
    let covers = def.covers.iter().map(write_cover).collect::<Result<Vec<_>, _>>()?.leak();
    let pair =
        |&(written, read): &(&str, &str)| Ok(abi::InPlace { written: text(written)?, read: text(read)? });
    let in_place = def.in_place.iter().map(pair).collect::<Result<Vec<_>, Malformed>>()?.leak();
    let failures = def.cuda.map_or(&[][..], |cuda| cuda.failures);
    let failures = failures.iter().map(|failure| text(failure)).collect::<Result<Vec<_>, _>>()?.leak();
    let cuda = |field: fn(&squall_core::CudaSource) -> &'static str| {
        def.cuda.as_ref().map_or(Ok(ptr::null()), |cuda| text(field(cuda)))
    };
    Ok(abi::Kernel {
        header: Header::of::<abi::Kernel>(),
        name: text(def.name)?,
        summary: text(def.summary)?,
        example: text(def.example)?,
        params: params.as_ptr(),
        covers: covers.as_ptr(),
        in_place: in_place.as_ptr(),
        cuda_source: cuda(|cuda| cuda.source)?,
        cuda_entry: cuda(|cuda| cuda.entry)?,
        cuda_failures: failures.as_ptr(),
        data: ptr::from_ref(def).cast(),
        param_count: number(params.len())?,
        cover_count: number(covers.len())?,
        in_place_count: number(in_place.len())?,
        flags: if def.cuda.is_some_and(|cuda| cuda.loops) { kernel_flag::LOOPS } else { 0 },
        cuda_failure_count: number(failures.len())?,
        cuda_scratch: def.cuda.map_or(0, |cuda| cuda.scratch),
        check: Some(describe::check),
        // Its arguments are read once, since reading them allocates.
        host: None,
        host_ready: def.host.map(|_| launch::host_ready as _),
    })
}

/// The kernel of a table that [`kernel`] made.
///
/// # Safety
/// `table` is null or such a table.
pub(super) unsafe fn kernel_of(table: *const abi::Kernel) -> Result<&'static KernelDef, Malformed> {
    // SAFETY: the caller's: `data` is what `write_kernel` put there.
    unsafe {
        check_header(table, "the kernel's table")?;
        Ok(&*(*table).data.cast::<KernelDef>())
    }
}

/// Whether the table that the host has made for a work has the fields of this version.
///
/// # Safety
/// `work` is null or a table.
pub(super) unsafe fn check_work(work: *mut abi::Work) -> Result<(), Malformed> {
    // SAFETY: the caller's.
    unsafe {
        check_header(work, "the work's table")?;
        let short = || Malformed::new("the work's table is too short");
        field!(Work, work, abort).map(|_| ()).ok_or_else(short)
    }
}

fn params(params: &[ParamDef]) -> Result<Vec<*const abi::Param>, Malformed> {
    if params.len() > MAX_PARAMS as usize {
        return Err(Malformed::new(format!(
            "it has {} parameters; at most {MAX_PARAMS} may be",
            params.len()
        )));
    }
    params.iter().map(|param| Ok(leak(write_param(param)?))).collect()
}

fn leak<T>(table: T) -> *const T {
    Box::leak(Box::new(table))
}

fn text(text: &str) -> Result<*const c_char, Malformed> {
    leak_text(text).map(|text| text.as_ptr())
}

fn number(n: impl TryInto<u32> + Copy + std::fmt::Display) -> Result<u32, Malformed> {
    n.try_into().map_err(|_| Malformed::new(format!("{n} does not fit 32 bits")))
}
