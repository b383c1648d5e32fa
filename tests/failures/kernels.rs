//! A kernel that misbehaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use squall_core::{DType, HostCall, KernelDef, ParamDef, Type};

/// Counts steps in `steps`, and misbehaves in step `at`.
pub(crate) static MISBEHAVE: KernelDef = KernelDef {
    name: "misbehave",
    summary: "counts steps, and misbehaves in step `at` as `how` says",
    params: &[
        ParamDef::read_write("steps", Type::Is(DType::I32), "[1], steps so far"),
        ParamDef::scalar("at", Type::Is(DType::I32), "the step to misbehave in; none if negative"),
        ParamDef::word("how", &["fail", "panic", "late", "park"], "what to do"),
    ],
    host: Some(&misbehave),
    ..KernelDef::EMPTY
};

/// Whether a rank is parked.
static PARKED: AtomicBool = AtomicBool::new(false);
/// Whether it is to go on.
static RELEASED: AtomicBool = AtomicBool::new(false);

/// Parks the ranks to come.
pub(crate) fn park() {
    PARKED.store(false, Ordering::Release);
    RELEASED.store(false, Ordering::Release);
}

/// Waits until a rank is parked.
pub(crate) fn await_parked() {
    while !PARKED.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets the parked rank go on.
pub(crate) fn release() {
    RELEASED.store(true, Ordering::Release);
}

/// How long a late rank is late: past a step's limit of a second, and back within the second period.
pub(crate) const LATE: Duration = Duration::from_millis(1400);

fn misbehave(call: &HostCall<'_>) -> Result<(), String> {
    let steps = &call.cells::<i32>("steps")?[0];
    let step = steps.replace(steps.get() + 1);
    if step != call.scalar::<i32>("at")? {
        return Ok(());
    }
    match call.args().word("how") {
        Some(0) => return Err(format!("it has had enough after {step} steps")),
        Some(1) => panic!("nobody expected step {step}"),
        Some(2) => std::thread::sleep(LATE),
        _ => {
            PARKED.store(true, Ordering::Release);
            while !RELEASED.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    Ok(())
}
