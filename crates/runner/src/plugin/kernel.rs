//! A kernel of a plugin, as core sees it.

use squall_core::{Arg, ArgError, Args, BoundRange, DeviceError, Grid, HostKernel, HostLaunch, KernelDef};
use squall_plugin::abi::{self, status};
use squall_plugin::convert::{ArgList, grid, read_arg_error};

use super::Plugin;
use super::work::{LoadedWork, UNFILLED, Uses};

/// A kernel's functions beside the table that they are called for.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) table: *const abi::Kernel,
    pub(super) plugin: &'static Plugin,
}

// SAFETY: the table stays as it is for good, and the ABI lets any thread call what is called here from any.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

pub(super) type CheckFn = unsafe extern "C" fn(*const abi::Kernel, *const abi::Args, *mut abi::Error) -> i32;
pub(super) type HostFn =
    unsafe extern "C" fn(*const abi::Kernel, *const abi::Args, *const abi::Grid, *mut abi::Error) -> i32;
pub(super) type ReadyFn = unsafe extern "C" fn(
    *const abi::Kernel,
    *const abi::Args,
    *const abi::Grid,
    *mut abi::Work,
    *mut abi::Error,
) -> i32;

impl Functions {
    /// Asks the plugin for the rules between arguments.
    pub(super) fn check(self, check: CheckFn, args: &Args<'_>) -> Result<(), ArgError> {
        let wrong = |text: String| ArgError::new("", format!("{}: {text}", self.plugin));
        let list = ArgList::new(args.values).map_err(|malformed| wrong(malformed.to_string()))?;
        let table = list.table(args.comm_rank, args.comm_size);
        let mut error = abi::Error::EMPTY;
        // SAFETY: the function is the plugin's own for this table; what it is given lives for the call.
        match unsafe { check(self.table, &raw const table, &raw mut error) } {
            status::OK => Ok(()),
            status::ARGUMENT => Err(read_arg_error(status::ARGUMENT, &error, args.params)),
            other => Err(wrong(read_arg_error(other, &error, args.params).message)),
        }
    }
}

/// A kernel's form for host devices.
pub(super) enum HostForm {
    /// A function that is called for every launch.
    Launched(Functions, HostFn),
    /// One that makes a launch ready.
    Ready(Functions, ReadyFn),
}

impl HostKernel for HostForm {
    unsafe fn ready(
        &'static self,
        _kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        launched: Grid,
    ) -> Result<Box<dyn HostLaunch>, DeviceError> {
        let list = ArgList::new(&args).map_err(|malformed| DeviceError::Failed(malformed.to_string()))?;
        let given = Box::new(Given { args: list.table(0, 1), grid: grid(&launched), _list: list });
        match *self {
            HostForm::Launched(functions, launch) => Ok(Box::new(Launched { functions, launch, given })),
            HostForm::Ready(functions, ready) => {
                let (mut work, mut error) = (UNFILLED, abi::Error::EMPTY);
                // SAFETY: the function is the plugin's own for this table; arguments and grid live as long as the work, below.
                let status = unsafe {
                    ready(
                        functions.table,
                        &raw const given.args,
                        &raw const given.grid,
                        &raw mut work,
                        &raw mut error,
                    )
                };
                if status != status::OK {
                    return Err(functions.plugin.failed(status, &error, "the host", false));
                }
                let work =
                    LoadedWork::new(work, None, Uses::default(), ("the host", "host"), functions.plugin)?;
                Ok(Box::new(MadeReady { work, _given: given }))
            }
        }
    }
}

/// What a kernel is given, under addresses that stay.
struct Given {
    args: abi::Args,
    grid: abi::Grid,
    _list: ArgList,
}

// SAFETY: the pointers in `args` lead into the list beside it.
unsafe impl Send for Given {}

struct Launched {
    functions: Functions,
    launch: HostFn,
    given: Box<Given>,
}

impl HostLaunch for Launched {
    fn launch(&mut self) -> Result<(), String> {
        let mut error = abi::Error::EMPTY;
        let Functions { table, plugin } = self.functions;
        // SAFETY: the function is the plugin's own for this table; that the ranges are memory, `ready`'s caller vouched for.
        let status = unsafe {
            (self.launch)(table, &raw const self.given.args, &raw const self.given.grid, &raw mut error)
        };
        match status {
            status::OK => Ok(()),
            _ => Err(plugin.failed(status, &error, "the host", false).to_string()),
        }
    }
}

struct MadeReady {
    work: LoadedWork,
    _given: Box<Given>,
}

impl HostLaunch for MadeReady {
    fn launch(&mut self) -> Result<(), String> {
        self.work.launch().map_err(|error| error.to_string())
    }
}
