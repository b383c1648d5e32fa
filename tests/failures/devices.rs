//! A device that misbehaves: while ranks are made ready, while buffers are written and read, and in a step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use squall_core::{
    Arg, BoundRange, BufferId, Device, DeviceError, Grid, GroupError, KernelDef, Memory, Moment, Options,
    PlanGroup, Stream, Work, verify,
};
use squall_tests::registry;

use crate::{alone, await_rank_threads, fill, healthy, misbehaving, refuses};

/// When the device panics, or says what is not so.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It panics when a kernel is made ready.
    Kernel,
    /// It panics when it is asked for staging memory the n-th time.
    Staging(u32),
    /// Its kernels end as if they had been aborted.
    Released,
}

/// A host device with a fault.
struct Faulty {
    host: Arc<dyn Device>,
    fault: Fault,
    staged: AtomicU32,
}

impl Device for Faulty {
    fn id(&self) -> &str {
        self.host.id()
    }

    fn kind(&self) -> &'static str {
        self.host.kind()
    }

    fn captures(&self) -> bool {
        false
    }

    fn alloc(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        self.host.alloc(bytes)
    }

    fn alloc_staging(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        let before = self.staged.fetch_add(1, Ordering::Relaxed);
        assert!(self.fault != Fault::Staging(before), "no staging");
        self.host.alloc_staging(bytes)
    }

    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        self.host.stream()
    }

    fn reach(&self, peer: &str) -> Result<(), DeviceError> {
        self.host.reach(peer)
    }

    unsafe fn kernel(
        &self,
        kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        grid: Grid,
    ) -> Result<Box<dyn Work>, DeviceError> {
        match self.fault {
            Fault::Kernel => panic!("no `{}` here", kernel.name),
            Fault::Released => Ok(Box::new(Releases)),
            // SAFETY: the caller's.
            Fault::Staging(_) => unsafe { self.host.kernel(kernel, args, grid) },
        }
    }
}

/// Work that says it was aborted.
struct Releases;

impl Work for Releases {
    fn enqueue(&mut self, _: &mut dyn Stream) -> Result<(), DeviceError> {
        Err(DeviceError::Aborted)
    }
}

/// Two ranks, the second on a device with a fault.
fn with(fault: Fault) -> Result<PlanGroup, GroupError> {
    let verified = verify(misbehaving(2, 0, -1, "fail")).unwrap();
    let host = |index| registry().open("host", index).unwrap();
    let faulty = Faulty { host: host(1), fault, staged: AtomicU32::new(0) };
    // Whoever waits for the rank that panicked waits longer than a test may.
    let options = Options::default().init_timeout(Duration::from_secs(3600));
    PlanGroup::new(registry(), verified, &[host(0), Arc::new(faulty)], options)
}

fn failed(error: &GroupError, during: Moment, task: Option<&str>, text: &str) {
    match error {
        GroupError::Failed { rank: 1, task: at, during: when, error, .. } => {
            let what = DeviceError::Failed(text.to_string());
            assert_eq!((at.as_deref(), *when, error), (task, during, &what));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_panic_while_a_rank_is_made_ready() {
    let _alone = alone();
    let error = with(Fault::Kernel).unwrap_err();
    failed(&error, Moment::Binding, None, "it panicked: no `misbehave` here");
    assert_eq!(error.to_string(), "rank 1 failed in binding: it panicked: no `misbehave` here");
    await_rank_threads(0);
    healthy();
}

#[test]
fn a_panic_while_a_buffer_is_written_or_read() {
    let _alone = alone();
    let mut group = with(Fault::Staging(0)).unwrap();
    let error = group.write(1, BufferId(0), &[0f32; 1000]).unwrap_err();
    failed(&error, Moment::Transfer, None, "it panicked: no staging");
    refuses(&mut group, &error);
    drop(group);

    // What is read goes through the same staging as what is written, made by whichever comes first.
    let mut group = with(Fault::Staging(0)).unwrap();
    let error = group.read::<f32>(1, BufferId(0)).unwrap_err();
    failed(&error, Moment::Transfer, None, "it panicked: no staging");
    refuses(&mut group, &error);
    drop(group);
    await_rank_threads(0);
}

#[test]
fn a_release_that_nobody_asked_for_is_a_failure() {
    let _alone = alone();
    let mut group = with(Fault::Released).unwrap();
    fill(&mut group, 2);
    let error = group.execute().unwrap_err();
    let text = "it ended as if it had been aborted, and nobody had aborted it";
    failed(&error, Moment::Step(0), Some("act"), text);
    refuses(&mut group, &error);
}
