//! A stand-in for a GPU backend: host devices under the kind `cuda`, whose work can be disturbed.
//!
//! All kernels and ops that are linked for host devices serve it too. Like a GPU it does not repeat, and says that it captures:
//! whoever tries is told otherwise.

use std::sync::Arc;

use squall_core::registry::Item;
use squall_core::{
    Arg, ArgError, Args, Backend, BoundRange, Connect, CudaSource, Description, Device, DeviceError, Element,
    Grid, KernelDef, Library, LibraryOp, Memory, Needs, OpCall, OpError, ParamDef, Prepare, Registry,
    Session, Stream, Task, Work,
};
use squall_tests::registry;

/// Devices there are.
pub(crate) const DEVICES: u32 = 4;

/// A piece of work that has run: a kernel, or a batch of ops under the first one's name.
pub(crate) struct Ran<'a> {
    pub(crate) name: &'static str,
    /// The device's index, which is the rank where ranks have the devices in order.
    pub(crate) device: u32,
    /// How often it ran before.
    pub(crate) before: u64,
    /// The ranges among its arguments, in order.
    ranges: &'a [BoundRange],
}

impl Ran<'_> {
    /// Whether it is the work of that name, on that device, and has run so often before.
    pub(crate) fn is(&self, name: &str, device: u32, before: u64) -> bool {
        self.name == name && self.device == device && self.before == before
    }

    /// Changes an element of a range.
    pub(crate) fn change<T: Element>(&self, range: usize, element: usize, change: impl FnOnce(T) -> T) {
        let range = &self.ranges[range];
        assert!(range.dtype == T::DTYPE && (element as u64) < range.len());
        // SAFETY: the element is in the range, which is memory of a host device of this rank, whose thread this is.
        unsafe {
            let at = (range.ptr.0 as *mut T).add(element);
            *at = change(*at);
        }
    }
}

/// What happens to work when it has run.
pub(crate) type Fault = &'static (dyn Fn(&Ran<'_>) -> Result<(), String> + Send + Sync);

/// What is linked for host devices, and for `cuda` devices the same with a fault.
pub(crate) fn disturbed(fault: impl Fn(&Ran<'_>) -> Result<(), String> + Send + Sync + 'static) -> Registry {
    with(Box::leak(Box::new(fault)), false)
}

/// The same without a fault.
pub(crate) fn faultless() -> Registry {
    disturbed(|_| Ok(()))
}

/// The same, where `cuda` devices describe ops as if these wrote nothing.
pub(crate) fn described_otherwise() -> Registry {
    with(&|_| Ok(()), true)
}

/// Descriptors live as long as the program; a test leaks a few.
fn with(fault: Fault, mute: bool) -> Registry {
    let (linked, mut registry) = (registry(), Registry::default());
    let mut add = |item| registry.add(&item, "this test").unwrap();
    add(Item::Backend(linked.backend("host").unwrap()));
    add(Item::Library(linked.library("host", "host").unwrap()));
    add(Item::Backend(Box::leak(Box::new(Kind { fault }))));
    add(Item::Library(&Connected));
    for (kernel, _) in linked.kernels() {
        let cuda = Some(CudaSource::new("", ""));
        add(Item::Kernel(Box::leak(Box::new(KernelDef { cuda, ..*kernel }))));
    }
    for (op, _) in linked.ops().filter(|(op, _)| op.device() == "host") {
        add(Item::Op(op));
        add(Item::Op(Box::leak(Box::new(Op { host: op, fault, mute }))));
    }
    registry
}

struct Kind {
    fault: Fault,
}

impl Backend for Kind {
    fn kind(&self) -> &'static str {
        "cuda"
    }
    fn default_library(&self) -> &'static str {
        "host"
    }
    fn count(&self) -> Result<Option<u32>, DeviceError> {
        Ok(Some(DEVICES))
    }
    fn repeats(&self) -> bool {
        false
    }
    fn captures(&self) -> bool {
        true
    }
    fn open(&self, index: u32) -> Result<Arc<dyn Device>, DeviceError> {
        let host = registry().open("host", index)?;
        Ok(Arc::new(Disturbed { host, id: format!("cuda:{index}"), index, fault: self.fault }))
    }
    fn in_use(&self) -> Vec<String> {
        vec!["stand-in 1.0 in nowhere".to_string(), "warning: it is a stand-in".to_string()]
    }
    fn findings(&self) -> Vec<String> {
        Vec::new()
    }
}

struct Disturbed {
    host: Arc<dyn Device>,
    id: String,
    index: u32,
    fault: Fault,
}

impl Device for Disturbed {
    fn id(&self) -> &str {
        &self.id
    }
    fn kind(&self) -> &'static str {
        "cuda"
    }
    fn captures(&self) -> bool {
        true
    }
    fn alloc(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        self.host.alloc(bytes)
    }
    fn alloc_staging(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        self.host.alloc_staging(bytes)
    }
    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        self.host.stream()
    }
    fn reach(&self, peer: &str) -> Result<(), DeviceError> {
        self.host.reach(&peer.replace("cuda:", "host:"))
    }
    unsafe fn kernel(
        &self,
        kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        grid: Grid,
    ) -> Result<Box<dyn Work>, DeviceError> {
        let ranges = ranges(&args);
        // SAFETY: the caller's.
        let work = unsafe { self.host.kernel(kernel, args, grid) }?;
        Ok(Box::new(Faulty {
            work,
            name: kernel.name,
            device: self.index,
            ranges,
            before: 0,
            fault: self.fault,
        }))
    }
}

fn ranges(args: &[Arg<BoundRange>]) -> Vec<BoundRange> {
    let range = |arg: &Arg<BoundRange>| match arg {
        Arg::Buffer(range) => Some(range.clone()),
        _ => None,
    };
    args.iter().filter_map(range).collect()
}

struct Faulty {
    work: Box<dyn Work>,
    name: &'static str,
    device: u32,
    ranges: Vec<BoundRange>,
    before: u64,
    fault: Fault,
}

impl Work for Faulty {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        self.work.enqueue(stream)?;
        let ran = Ran { name: self.name, device: self.device, before: self.before, ranges: &self.ranges };
        self.before += 1;
        (self.fault)(&ran).map_err(DeviceError::Failed)
    }
}

/// The host's library, which asks nothing of devices.
struct Connected;

impl Library for Connected {
    fn name(&self) -> &'static str {
        "host"
    }
    fn device(&self) -> &'static str {
        "cuda"
    }
    fn connect(&self, cx: &Connect<'_>) -> Result<Vec<Session>, DeviceError> {
        registry().library("host", "host").unwrap().connect(cx)
    }
}

struct Op {
    host: &'static dyn LibraryOp,
    fault: Fault,
    mute: bool,
}

impl Task for Op {
    fn name(&self) -> &'static str {
        self.host.name()
    }
    fn summary(&self) -> &'static str {
        self.host.summary()
    }
    fn params(&self) -> &'static [ParamDef] {
        self.host.params()
    }
    fn example(&self) -> &'static str {
        self.host.example()
    }
    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        let mut description = self.host.describe(args)?;
        description.accesses.retain(|_| !self.mute);
        Ok(description)
    }
}

impl LibraryOp for Op {
    fn library(&self) -> &'static str {
        "host"
    }
    fn device(&self) -> &'static str {
        "cuda"
    }
    fn needs(&self) -> Needs {
        self.host.needs()
    }
    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let ranges = batch.iter().flat_map(|call| ranges(call.args.values)).collect();
        let device = cx.device.id().rsplit(':').next().unwrap().parse().unwrap();
        // SAFETY: the caller's.
        let work = unsafe { self.host.prepare(batch, cx) }?;
        Ok(Box::new(Faulty { work, name: self.name(), device, ranges, before: 0, fault: self.fault }))
    }
}
