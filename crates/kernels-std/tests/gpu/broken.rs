//! The check is checked: with a host device in the GPU's place it passes every kernel, and finds every fault that is put in.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use squall_core::{Device, HostCall, HostKernel, KernelDef, Registry};
use squall_kernels_std::{ACCURACY_COUNT, ADD, DIV, SUM};

use crate::plans::{self, PLANS};
use crate::{Effort, Subject};

/// A kernel with a fault, beside the one that does right, and what the check must say of it.
struct Broken {
    fault: &'static str,
    right: &'static KernelDef,
    wrong: &'static KernelDef,
    finding: &'static str,
}

const fn with(right: &KernelDef, host: &'static dyn HostKernel) -> KernelDef {
    KernelDef { host: Some(host), ..*right }
}

static WRONG_VALUE: KernelDef = with(&ADD, &wrong_value);
static BEYOND: KernelDef = with(&ADD, &beyond);
static BEFORE: KernelDef = with(&ADD, &before);
static WITHOUT_THREAD: KernelDef = with(&ADD, &without_thread);
static INTO_SOURCE: KernelDef = with(&ADD, &into_source);
static ONE_MISSING: KernelDef = with(&SUM, &one_missing);
static SILENT: KernelDef = with(&DIV, &silent);
static COMPLAINS: KernelDef = with(&SUM, &complains);
static BY_GRID: KernelDef = with(&SUM, &by_grid);
static COUNTS_ANYWAY: KernelDef = with(&ACCURACY_COUNT, &counts_anyway);

static FAULTS: &[Broken] = &[
    Broken { fault: "a wrong last element", right: &ADD, wrong: &WRONG_VALUE, finding: "not" },
    Broken { fault: "a write beyond the end", right: &ADD, wrong: &BEYOND, finding: "was written" },
    Broken { fault: "a write before the beginning", right: &ADD, wrong: &BEFORE, finding: "was written" },
    Broken { fault: "an element without a thread", right: &ADD, wrong: &WITHOUT_THREAD, finding: "not" },
    Broken { fault: "a write to a source", right: &ADD, wrong: &INTO_SOURCE, finding: "which is only read" },
    Broken { fault: "a term too few", right: &SUM, wrong: &ONE_MISSING, finding: "`out`: element 0 is" },
    Broken {
        fault: "an order of the grid's",
        right: &SUM,
        wrong: &BY_GRID,
        finding: "another grid gives other bits",
    },
    Broken {
        fault: "a failure that is not told",
        right: &DIV,
        wrong: &SILENT,
        finding: "the device said nothing",
    },
    Broken { fault: "a failure that is none", right: &SUM, wrong: &COMPLAINS, finding: "the host nothing" },
    Broken {
        fault: "a write in spite of a failure",
        right: &ACCURACY_COUNT,
        wrong: &COUNTS_ANYWAY,
        finding: "`count`",
    },
];

fn right(kernel: &'static KernelDef, call: &HostCall<'_>) -> Result<(), String> {
    let (form, args) = (kernel.host.ok_or("no host form")?, call.args().values.to_vec());
    // SAFETY: the ranges are the call's, which outlives the launch, and this thread's alone.
    let launch = unsafe { form.ready(kernel, args, *call.grid()) };
    launch.map_err(|error| error.to_string())?.launch()
}

/// Adds 1 to a byte of a buffer argument, so many bytes after its begin.
fn spoil(call: &HostCall<'_>, name: &str, at: impl FnOnce(u64) -> i64) {
    let Some(range) = call.args().buffer(name) else { return };
    let address = range.ptr.0.wrapping_add_signed(at(range.bytes())) as usize;
    // SAFETY: the byte is one of the case's image, since there are guard zones around every buffer; no one else uses it.
    unsafe {
        let byte = std::ptr::with_exposed_provenance_mut::<u8>(address);
        byte.write(byte.read().wrapping_add(1));
    }
}

fn wrong_value(call: &HostCall<'_>) -> Result<(), String> {
    right(&ADD, call)?;
    if call.args().buffer("out").is_some_and(|out| out.len() > 200) {
        spoil(call, "out", |bytes| bytes as i64 - 1);
    }
    Ok(())
}

fn beyond(call: &HostCall<'_>) -> Result<(), String> {
    spoil(call, "out", |bytes| bytes as i64 + 255);
    right(&ADD, call)
}

fn before(call: &HostCall<'_>) -> Result<(), String> {
    spoil(call, "out", |_| -256);
    right(&ADD, call)
}

fn without_thread(call: &HostCall<'_>) -> Result<(), String> {
    right(&ADD, call)?;
    let reached = call.launched()[0] as u64;
    match call.args().buffer("out") {
        Some(out) if out.len() > reached => {
            spoil(call, "out", |bytes| bytes as i64 - 1);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn into_source(call: &HostCall<'_>) -> Result<(), String> {
    right(&ADD, call)?;
    let same = call.args().buffer("a").map(|a| a.ptr) == call.args().buffer("out").map(|out| out.ptr);
    if !same && call.args().buffer("a").is_some_and(|a| !a.is_empty()) {
        spoil(call, "a", |_| 0);
    }
    Ok(())
}

fn one_missing(call: &HostCall<'_>) -> Result<(), String> {
    let mut args = call.args().values.to_vec();
    if let Some(squall_core::Arg::Buffer(data)) = args.first_mut() {
        data.shape = [data.len().saturating_sub(1)].into();
    }
    // SAFETY: the ranges are the call's own, one of them shorter.
    right(&SUM, &unsafe { HostCall::new(&SUM, &args, *call.grid()) })
}

/// Rounds some sums of fractions in another way on large grids.
fn by_grid(call: &HostCall<'_>) -> Result<(), String> {
    right(&SUM, call)?;
    let rounds = |data: &[std::cell::Cell<f32>]| data.iter().any(|x| x.get().fract() != 0.0);
    if call.cells::<f32>("data").is_ok_and(rounds) && call.launched()[0] > 1000 {
        spoil(call, "out", |_| 0);
    }
    Ok(())
}

fn silent(call: &HostCall<'_>) -> Result<(), String> {
    let _ = right(&DIV, call);
    Ok(())
}

fn complains(call: &HostCall<'_>) -> Result<(), String> {
    right(&SUM, call)?;
    Err("too much".to_string())
}

fn counts_anyway(call: &HostCall<'_>) -> Result<(), String> {
    right(&ACCURACY_COUNT, call).inspect_err(|_| spoil(call, "count", |_| 0))
}

fn host(registry: &Registry) -> Result<Arc<dyn Device>, String> {
    registry.open("host", 1).map_err(|error| error.to_string())
}

/// Whether the check finds the fault.
fn find(broken: &Broken) -> Result<(), Failed> {
    let registry = Registry::linked().map_err(|error| error.to_string())?;
    let plan = plans::of(broken.right).ok_or("the kernel has no plan")?;
    let subject = Subject {
        plan,
        model: broken.right,
        kernel: broken.wrong,
        device: host(&registry)?,
        effort: Effort::Little,
    };
    match subject.check_all() {
        Ok(()) => Err("the fault was not found".into()),
        Err(error) if error.contains(broken.finding) => Ok(()),
        Err(error) => Err(format!("the fault was found as something else: {error}").into()),
    }
}

/// A trial for every kernel on a host device, one for every fault, and one that there is a plan for every kernel.
pub(crate) fn trials(registry: &Registry) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (kernel, _) in registry.kernels() {
        trials.push(Trial::test(format!("host: {}", kernel.name), move || {
            let plan = plans::of(kernel).ok_or("the kernel has no plan")?;
            let registry = Registry::linked().map_err(|error| error.to_string())?;
            let device = host(&registry)?;
            let subject = Subject { plan, model: kernel, kernel, device, effort: Effort::Little };
            subject.check_all().map_err(Failed::from)
        }));
    }
    for broken in FAULTS {
        trials.push(Trial::test(format!("found: {}", broken.fault), || find(broken)));
    }
    let kernels = registry.kernels().count();
    trials.push(Trial::test("every kernel has one plan and a CUDA form", move || {
        let registry = Registry::linked().map_err(|error| error.to_string())?;
        match registry.kernels().find(|(kernel, _)| !kernel.runs_on("cuda")) {
            Some((kernel, _)) => Err(format!("`{}` has no form for CUDA devices", kernel.name).into()),
            None if PLANS.len() != kernels => {
                Err(format!("{} plans of {kernels} kernels", PLANS.len()).into())
            }
            None => Ok(()),
        }
    }));
    trials
}
