//! Making a batch ready: the ops' arguments, and around them what core's ops expect to find.

use std::ptr;
use std::sync::Arc;

use squall_core::{Abort, BoundRange, CommId, LibraryOp, OpCall, OpError, ParamDef, Parts, Prepare, Work};

use super::cx::{Cx, PluginServices};
use super::life::Owner;
use super::panic::guarded;
use super::tables::{check_work, op_of};
use super::work::{Handles, State};
use crate::abi;
use crate::convert::{Malformed, OwnedArgs, check_header, read_parts, slice, text};
use crate::field;

/// [`abi::Op::prepare`].
pub(super) unsafe extern "C" fn prepare(
    op: *const abi::Op,
    calls: *const *const abi::Call,
    count: u32,
    prepare: *const abi::Prepare,
    work: *mut abi::Work,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: the caller keeps the ABI: `op` and those of the calls are tables of this plugin's, the rest are the host's for this call.
    unsafe {
        let params = |member| params(calls, count, member).unwrap_or(&[]);
        guarded(error, params, || {
            check_work(work)?;
            let op = op_of(op)?;
            let batch = slice(calls, count.into(), "the calls")?.iter().map(|&call| Call::read(call));
            let batch = batch.collect::<Result<Vec<Call<'_>>, Malformed>>()?;
            check_header(prepare, "the preparation's table")?;
            let life = Owner::new(field!(Prepare, prepare, abort).unwrap_or(ptr::null()));
            let cx = Cx::new(prepare, op.device(), life.0.clone())?;
            let (made, handles) = make_ready(op, &batch, &cx)?;
            State::new(made, handles, life, op.device()).hand_over(work);
            Ok(())
        })
    }
}

/// # Safety
/// As of [`prepare`].
unsafe fn params<'a>(calls: *const *const abi::Call, count: u32, member: usize) -> Option<&'a [ParamDef]> {
    // SAFETY: the caller's.
    unsafe {
        let call = *slice(calls, count.into(), "the calls").ok()?.get(member)?;
        Some(op_of((*call).op).ok()?.params())
    }
}

/// One op of the batch.
struct Call<'a> {
    op: &'static dyn LibraryOp,
    task: &'a str,
    comm: CommId,
    args: OwnedArgs<BoundRange>,
    parts: Option<Parts>,
}

impl Call<'_> {
    /// # Safety
    /// `call` is null or the host's, for an op of this plugin's.
    unsafe fn read<'a>(call: *const abi::Call) -> Result<Call<'a>, Malformed> {
        // SAFETY: the caller's. All fields are of the ABI's first minor; a writer without them is refused.
        unsafe {
            check_header(call, "a call's table")?;
            field!(Call, call, comm).ok_or_else(|| Malformed::new("a call's table is too short"))?;
            let op = op_of((*call).op)?;
            let args: OwnedArgs<BoundRange> = OwnedArgs::read((*call).args, op.params())?;
            let parts = read_parts((*call).parts, args.comm_size)?;
            Ok(Call {
                op,
                task: text((*call).task, "a task's name")?,
                comm: CommId((*call).comm),
                args,
                parts,
            })
        }
    }
}

/// # Safety
/// As of [`LibraryOp::prepare`].
unsafe fn make_ready(
    op: &'static dyn LibraryOp,
    batch: &[Call<'_>],
    cx: &Cx,
) -> Result<(Box<dyn Work>, Handles), OpError> {
    let calls = batch.iter().map(|call| OpCall {
        op: call.op,
        task: call.task,
        comm: call.comm,
        args: call.args.beside(call.op.params()),
        parts: call.parts.as_ref(),
    });
    let calls: Vec<OpCall<'_>> = calls.collect();
    let mut services = PluginServices { cx, handles: Vec::new() };
    let aborted: Arc<dyn Abort> = cx.life.clone();
    let mut prepare = Prepare {
        rank: cx.rank,
        world: &cx.world,
        device: cx,
        session: None,
        exchange: cx,
        aborted: &aborted,
        deadline: cx.deadline,
        services: &mut services,
    };
    // SAFETY: the caller's.
    let work = unsafe { op.prepare(&calls, &mut prepare) }?;
    Ok((work, services.handles))
}
