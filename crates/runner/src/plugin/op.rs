//! An op of a plugin, as core sees it.

use std::ffi::{CString, c_char};

use squall_core::ops::Contract;
use squall_core::{
    ArgError, Args, Description, DeviceError, LibraryOp, Needs, OpCall, OpError, ParamDef, Parts, Prepare,
    Task, Work,
};
use squall_plugin::abi::{self, Header};
use squall_plugin::convert::{ArgList, Malformed, part_edges, read_line, read_op_error};

use super::Plugin;
use super::describe::DescribeFn;
use super::prepare::Preparing;
use super::tables::table_of;
use super::work::{LoadedWork, UNFILLED};

/// An op of a plugin. Its table was read and found whole.
pub(super) struct LoadedOp {
    pub(super) table: *const abi::Op,
    pub(super) plugin: &'static Plugin,
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    pub(super) library: &'static str,
    pub(super) device: &'static str,
    pub(super) example: &'static str,
    pub(super) params: &'static [ParamDef],
    pub(super) needs: Needs,
    /// That of squall's own op of this name.
    pub(super) contract: Option<&'static Contract>,
    pub(super) describe: Option<DescribeFn>,
    pub(super) served_as: Option<ServedAsFn>,
    pub(super) prepare: PrepareFn,
}

pub(super) type ServedAsFn =
    unsafe extern "C" fn(*const abi::Op, *const abi::Args, *const u64, *mut c_char, u32);
pub(super) type PrepareFn = unsafe extern "C" fn(
    *const abi::Op,
    *const *const abi::Call,
    u32,
    *const abi::Prepare,
    *mut abi::Work,
    *mut abi::Error,
) -> i32;

// SAFETY: the table stays as it is for good, and the ABI lets any thread call what is called here from any.
unsafe impl Send for LoadedOp {}
// SAFETY: as above.
unsafe impl Sync for LoadedOp {}

impl Task for LoadedOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn params(&self) -> &'static [ParamDef] {
        self.params
    }

    fn example(&self) -> &'static str {
        self.example
    }

    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        match (self.contract, self.describe) {
            (Some(contract), _) => contract.describe(args),
            (None, Some(describe)) => self.described(describe, args),
            (None, None) => Ok(Description::symmetric(self.name, args)),
        }
    }
}

impl LibraryOp for LoadedOp {
    fn library(&self) -> &'static str {
        self.library
    }

    fn device(&self) -> &'static str {
        self.device
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn served_as(&self, args: &Args<'_>, parts: Option<&Parts>) -> Option<String> {
        let served_as = self.served_as?;
        let list = ArgList::new(args.values).ok()?;
        let table = list.table(args.comm_rank, args.comm_size);
        let edges = parts.map(part_edges);
        let edges = edges.as_ref().map_or(std::ptr::null(), |edges| edges.as_ptr());
        let mut text = [0 as c_char; 256];
        // SAFETY: the function is the plugin's own for this table, and writes no more than it is told; the rest lives for the call.
        unsafe { served_as(self.table, &raw const table, edges, text.as_mut_ptr(), text.len() as u32) };
        Some(read_line(&text)).filter(|text| !text.is_empty())
    }

    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let failed = |malformed: Malformed| DeviceError::Failed(malformed.to_string());
        let calls = batch.iter().map(|call| Call::new(call, self.plugin));
        let calls = calls.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let tables: Vec<abi::Call> = calls.iter().map(Call::table).collect();
        let pointers: Vec<*const abi::Call> = tables.iter().map(std::ptr::from_ref).collect();
        let (device, kind) = (cx.device.id().to_string(), cx.device.kind());
        cx.device.make_current()?;
        let mut preparing = Preparing::new(self.plugin, cx);
        let mut work = UNFILLED;
        let mut error = abi::Error::EMPTY;
        let count = pointers.len() as u32;
        let status = preparing.with_table(|table| {
            // SAFETY: the function is the plugin's own for this table; what it is given lives for the call, but for what `preparing`
            // keeps for the work. That the ranges are as the ABI says, this function's caller vouches for.
            unsafe {
                (self.prepare)(self.table, pointers.as_ptr(), count, table, &raw mut work, &raw mut error)
            }
        });
        if status != abi::status::OK {
            let params = |member: usize| batch.get(member).map_or(&[][..], |call| call.op.params());
            return Err(match read_op_error(status, &error, &device, params) {
                OpError::Device(_) => {
                    self.plugin.failed(status, &error, &device, cx.aborted.is_aborted()).into()
                }
                of_arg => of_arg,
            });
        }
        let (told, uses) = preparing.end();
        let work = LoadedWork::new(work, Some(told), uses, (&device, kind), self.plugin)?;
        if let Some(passed_on) = work.passed_on() {
            cx.on_abort(passed_on);
        }
        Ok(Box::new(work))
    }
}

/// A call with what its table points to.
struct Call {
    op: *const abi::Op,
    task: CString,
    _list: ArgList,
    args: Box<abi::Args>,
    parts: Option<Vec<u64>>,
    comm: u32,
}

impl Call {
    fn new(call: &OpCall<'_>, plugin: &Plugin) -> Result<Call, Malformed> {
        let other =
            || Malformed(format!("{:?} is of no op of {plugin}, and stands in a group with one", call.op));
        let list = ArgList::new(call.args.values)?;
        let args = Box::new(list.table(call.args.comm_rank, call.args.comm_size));
        Ok(Call {
            op: table_of(plugin, call.op).ok_or_else(other)?,
            // A name with a zero byte in it is not worth an error.
            task: CString::new(call.task.replace('\0', " ")).unwrap_or_default(),
            _list: list,
            args,
            parts: call.parts.map(part_edges),
            comm: call.comm.0,
        })
    }

    fn table(&self) -> abi::Call {
        abi::Call {
            header: Header::of::<abi::Call>(),
            op: self.op,
            task: self.task.as_ptr(),
            args: &raw const *self.args,
            parts: self.parts.as_ref().map_or(std::ptr::null(), |edges| edges.as_ptr()),
            comm: self.comm,
            reserved: 0,
        }
    }
}
