//! What stands in the tables.

use std::ffi::CStr;
use std::ptr;

use squall_plugin::abi::{self, Header, kernel_flag, op_flag};
use squall_plugin::convert::{dtypes, read_cover, read_line, read_param, reductions};
use squall_plugin::core::registry::{Item, Registration, inventory};
use squall_plugin::core::{Backend, Cover, DType, Device, DeviceError, KernelDef, ReduceOp, Task};
use squall_plugin::sdk::Export;

use crate::host::{HOST, kernel, op, plugin, said};
use crate::plugin::{DOUBLE, MIX, MODES};

#[test]
fn a_plugin_exports_what_its_crate_registers() {
    let table = plugin();
    assert_eq!(table.header, Header::of::<abi::Plugin>());
    assert_eq!((said(table.name), said(table.version)), ("squall-plugin", env!("CARGO_PKG_VERSION")));
    assert_eq!((table.op_count, table.kernel_count), (2, 1));
    assert!(table.init.is_none());
    // The same again.
    assert!(ptr::eq(table, plugin()));
}

#[test]
fn an_ops_table_says_all_of_it() {
    let op = op(c"mix");
    assert_eq!((said(op.summary), said(op.example)), ("Mixes.", "an example"));
    assert_eq!((said(op.library), said(op.device)), ("mixing", "host"));
    assert_eq!((op.alignment, op.multiple, op.use_count), (16, 2, 1));
    assert_eq!(op.flags, op_flag::GROUPS | op_flag::SINGLE_PROCESS);
    assert_eq!(dtypes(op.dtypes).unwrap(), [DType::F32]);
    assert_eq!(reductions(op.reductions).unwrap(), [ReduceOp::Sum, ReduceOp::Avg]);
    assert!(op.describe.is_some() && op.served_as.is_some() && op.prepare.is_some());
    // SAFETY: the table is well formed and stays for good.
    unsafe {
        assert_eq!(said(*op.uses), "all_reduce");
        let params = std::slice::from_raw_parts(op.params, op.param_count as usize);
        let params: Vec<_> = params.iter().map(|&param| read_param(param).unwrap()).collect();
        assert_eq!(params, MIX.params());
        assert_eq!(params[2].kind, squall_plugin::core::ParamKind::Word(MODES));
    }
}

#[test]
fn an_op_of_squalls_own_is_left_to_squall() {
    let op = op(c"all_reduce");
    assert!(op.params.is_null() && op.param_count == 0 && op.describe.is_none());
    assert!(op.prepare.is_some());
}

#[test]
fn a_kernels_table_says_all_of_it() {
    let kernel = kernel();
    assert_eq!((said(kernel.name), said(kernel.summary)), ("double", DOUBLE.summary));
    assert_eq!((said(kernel.cuda_source), said(kernel.cuda_entry)), ("source", "entry"));
    assert_eq!((kernel.flags, kernel.cuda_scratch), (kernel_flag::LOOPS, 64));
    assert_eq!((kernel.param_count, kernel.cover_count), (2, 1));
    assert_eq!((kernel.in_place_count, kernel.cuda_failure_count), (1, 1));
    assert!(kernel.check.is_some() && kernel.host.is_none() && kernel.host_ready.is_some());
    // SAFETY: the table is well formed and stays for good.
    unsafe {
        assert_eq!(read_param(*kernel.params.add(1)).unwrap(), DOUBLE.params[1]);
        assert_eq!(read_cover(&*kernel.covers).unwrap(), Cover::Len("data"));
        assert_eq!((said((*kernel.in_place).written), said((*kernel.in_place).read)), ("data", "fails"));
        assert_eq!(said(*kernel.cuda_failures), "it is {}");
    }
}

#[test]
fn only_hosts_of_the_same_major_are_served() {
    let export: &'static Export =
        Box::leak(Box::new(Export::new("squall-plugin", env!("CARGO_PKG_VERSION"))));
    let served = |change: fn(&mut Header)| {
        let mut host = HOST;
        change(&mut host.header);
        // SAFETY: it is a host's table.
        !unsafe { export.entry(&raw const host) }.is_null()
    };
    assert!(!served(|header| header.abi_major += 1));
    assert!(!served(|header| header.magic = 0));
    // SAFETY: null is allowed.
    assert!(unsafe { export.entry(ptr::null()) }.is_null());
    // Other minors, shorter and longer.
    assert!(served(|header| {
        header.abi_minor = 40;
        header.struct_size = 4000;
    }));
    assert!(served(|header| header.struct_size = size_of::<Header>() as u32));
}

struct NoBackend;

impl Backend for NoBackend {
    fn kind(&self) -> &'static str {
        "none"
    }
    fn default_library(&self) -> &'static str {
        "none"
    }
    fn count(&self) -> Result<Option<u32>, DeviceError> {
        Ok(None)
    }
    fn repeats(&self) -> bool {
        false
    }
    fn captures(&self) -> bool {
        false
    }
    fn open(&self, _: u32) -> Result<std::sync::Arc<dyn Device>, DeviceError> {
        Err(DeviceError::Deadline)
    }
    fn findings(&self) -> Vec<String> {
        Vec::new()
    }
}

static ODD: KernelDef = KernelDef { name: "odd", summary: "zero \0 byte", ..KernelDef::EMPTY };

inventory::submit! { Registration { origin: "brings-a-backend 1.0.0", item: Item::Backend(&NoBackend) } }
inventory::submit! { Registration { origin: "brings-a-zero 1.0.0", item: Item::Kernel(&ODD) } }

static ONE: KernelDef = KernelDef { name: "one", summary: "a", ..KernelDef::EMPTY };
static ANOTHER: KernelDef = KernelDef { name: "another", ..KernelDef::EMPTY };
static AGAIN: KernelDef = KernelDef { name: "one", summary: "b", ..KernelDef::EMPTY };

inventory::submit! { Registration { origin: "brings-three 1.0.0", item: Item::Kernel(&ONE) } }
inventory::submit! { Registration { origin: "brings-three 1.0.0", item: Item::Kernel(&ANOTHER) } }
inventory::submit! { Registration { origin: "brings-three 1.0.0", item: Item::Kernel(&AGAIN) } }

#[test]
fn things_are_exported_by_name_and_those_of_one_name_both() {
    let export: &'static Export = Box::leak(Box::new(Export::new("brings-three", "1.0.0")));
    // SAFETY: it is a host's table, and the plugin's stays for good.
    let names = unsafe {
        let table = &*export.entry(&HOST);
        let kernels = std::slice::from_raw_parts(table.kernels, table.kernel_count as usize);
        kernels.iter().map(|&kernel| said((*kernel).name)).collect::<Vec<_>>()
    };
    assert_eq!(names, ["another", "one", "one"]);
}

/// What `init` says of the plugin of that name, which has nothing else.
fn refused(name: &'static str) -> String {
    let export: &'static Export = Box::leak(Box::new(Export::new(name, "1.0.0")));
    // SAFETY: it is a host's table.
    let table = unsafe { &*export.entry(&HOST) };
    assert_eq!((said(table.name), table.op_count, table.kernel_count), (name, 0, 0));
    let mut error = abi::Error::EMPTY;
    // SAFETY: as the ABI says.
    let status = unsafe { table.init.unwrap()(&HOST, &raw mut error) };
    assert_ne!(status, abi::status::OK);
    read_line(&error.text)
}

#[test]
fn what_cannot_be_exported_is_told_by_init() {
    let why = "a plugin exports ops and kernels; link the crate instead";
    assert_eq!(refused("brings-a-backend"), format!("it registers the backend `none`: {why}"));
    let wanted = "the kernel `odd`: a zero byte is in \"zero \\0 byte\"";
    assert_eq!(refused("brings-a-zero"), wanted);
}

#[test]
fn names_are_compared_whole() {
    let export: &'static Export = Box::leak(Box::new(Export::new("squall", env!("CARGO_PKG_VERSION"))));
    // SAFETY: it is a host's table.
    let table = unsafe { &*export.entry(&HOST) };
    assert_eq!((table.op_count, table.kernel_count), (0, 0));
    // SAFETY: text of the table stays for good.
    assert_eq!(unsafe { CStr::from_ptr(table.name) }, c"squall");
}
