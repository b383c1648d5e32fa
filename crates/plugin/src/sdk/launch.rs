//! The host form of a kernel, made ready once.

use std::ffi::c_void;
use std::ptr;

use squall_core::{BoundRange, DeviceError, HostLaunch};

use super::panic::{catch, guarded};
use super::tables::{check_work, kernel_of};
use crate::abi;
use crate::convert::{Malformed, OwnedArgs, read_grid};

/// The state of the work; boxed, since a thin pointer is needed.
struct State(Box<dyn HostLaunch>);

/// [`abi::Kernel::host_ready`].
pub(super) unsafe extern "C" fn host_ready(
    kernel: *const abi::Kernel,
    args: *const abi::Args,
    grid: *const abi::Grid,
    work: *mut abi::Work,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: the caller keeps the ABI: `kernel` is a table of this plugin's, `args` are arguments that passed its checks, over memory that
    // is the thread's until `work`, whose table the host has made, is destroyed.
    unsafe {
        let params = |_| kernel_of(kernel).map_or(&[][..], |kernel| kernel.params);
        guarded(error, params, || {
            check_work(work)?;
            let kernel = kernel_of(kernel)?;
            let args = OwnedArgs::<BoundRange>::read(args, kernel.params)?;
            let grid = read_grid(grid.as_ref().ok_or_else(|| Malformed::new("the grid is null"))?)?;
            let form = kernel.host.ok_or_else(|| Malformed::new("it has no form for host devices"))?;
            let state = State(form.ready(kernel, args.values, grid)?);
            (*work).state = Box::into_raw(Box::new(state)).cast();
            (*work).abort_state = ptr::null_mut();
            (*work).enqueue = Some(launch);
            (*work).destroy = Some(destroy);
            Ok(())
        })
    }
}

unsafe extern "C" fn launch(state: *mut c_void, _: *const abi::Stream, error: *mut abi::Error) -> i32 {
    // SAFETY: the caller keeps the ABI: `state` is what `host_ready` made, used by one thread at a time, and not destroyed.
    unsafe {
        guarded(
            error,
            |_| &[],
            || {
                let State(launch) = &mut *state.cast::<State>();
                launch.launch().map_err(|message| DeviceError::Failed(message).into())
            },
        )
    }
}

unsafe extern "C" fn destroy(state: *mut c_void) {
    // SAFETY: as above, and this is the last call.
    let _ = catch(|| drop(unsafe { Box::from_raw(state.cast::<State>()) }));
}
