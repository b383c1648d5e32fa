//! Every kernel's CUDA form against its host form, on the first GPU.
//!
//! - `case`: one launch's arguments, and the memory that they lie in, with guard zones
//! - `values`: what buffers are filled with, and how results are compared
//! - `plans`: for each kernel how valid arguments are made
//! - `grids`: the grids that a case is launched on
//! - `bench`: a device that runs cases
//! - `broken`: the check itself is checked: on host devices it passes every kernel, and finds faults that are put in
//!
//! Without a GPU all trials on it are ignored, and the reason is printed. `SQUALL_TEST_GPUS=1` makes that a failure.
#![expect(clippy::print_stderr, reason = "a test program")]

mod bench;
mod broken;
mod case;
#[path = "../dtypes/mod.rs"]
mod dtypes;
mod grids;
mod plans;
mod values;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use squall_core::conformance::{Found, Random};
use squall_core::{DType, Device, KernelDef, ParamKind, Registry, Type};
use squall_cuda_backend as _;
use squall_host_backend as _;
use squall_kernels_std as _;

use bench::Bench;
use case::Make;
use dtypes::combinations;
use plans::Plan;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Enough to see that the check works.
    Little,
    /// All lengths.
    Much,
}

/// What is checked: a kernel on a device against the host form of a kernel.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) plan: &'static Plan,
    /// Whose host form is right.
    pub(crate) model: &'static KernelDef,
    /// What is run on the device.
    pub(crate) kernel: &'static KernelDef,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) effort: Effort,
}

impl Subject {
    /// Runs all cases of one combination of dtypes, one for each parameter.
    pub(crate) fn check(&self, dtypes: &[DType]) -> Result<(), String> {
        let registry = Registry::linked().map_err(|error| error.to_string())?;
        let host = registry.open("host", 0).map_err(|error| error.to_string())?;
        let (mut host, mut device) = (Bench::new(host)?, Bench::new(self.device.clone())?);
        let mut random = Random::new(7);
        for shape in (self.plan.shapes)(self.effort) {
            let large = shape.iter().map(|&n| n.max(1)).product::<u64>() > 100_000;
            for variant in 0..self.plan.variants {
                if large && variant > 1 {
                    break;
                }
                let mut make = Make::new(self.model, dtypes, variant, &mut random);
                (self.plan.make)(&mut make, shape);
                let case = make.finish()?;
                let mut first = None;
                for (grid, full) in grids::of(&case, large, &mut random)? {
                    let times = if large { 1 } else { 2 };
                    let mut compare = || {
                        let benches = [(&mut host, self.model), (&mut device, self.kernel)];
                        bench::compare(&case, benches, grid, times)?;
                        if !full {
                            return Ok(());
                        }
                        let results = device.results(&case)?;
                        match &first {
                            None => first = Some(results.to_vec()),
                            Some(first) if first != results => {
                                return Err("another grid gives other bits".to_string());
                            }
                            Some(_) => {}
                        }
                        Ok::<_, String>(())
                    };
                    compare().map_err(|error| format!("{shape:?}, variant {variant}, {grid:?}: {error}"))?;
                }
            }
        }
        Ok(())
    }

    /// The same for all combinations.
    pub(crate) fn check_all(&self) -> Result<(), String> {
        for dtypes in combinations(self.model.params) {
            self.check(&dtypes).map_err(|error| format!("{}: {error}", name(self.model, &dtypes)))?;
        }
        Ok(())
    }
}

/// The kernel with the dtypes that a caller chooses.
fn name(kernel: &KernelDef, dtypes: &[DType]) -> String {
    let mut name = kernel.name.to_string();
    for (param, dtype) in kernel.params.iter().zip(dtypes) {
        if let ParamKind::Buffer(_, Type::In(_)) = param.kind {
            name += &format!(" {dtype}");
        }
    }
    name
}

/// A trial for every kernel and combination of dtypes.
fn trials(registry: &Registry, device: Option<&Arc<dyn Device>>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (kernel, _) in registry.kernels() {
        for dtypes in combinations(kernel.params) {
            let device = device.cloned();
            let ignored = device.is_none();
            let trial = Trial::test(format!("cuda: {}", name(kernel, &dtypes)), move || {
                let plan = plans::of(kernel).ok_or("the kernel has no plan")?;
                let device = device.ok_or("there is no GPU")?;
                device.make_current().map_err(|error| error.to_string())?;
                let subject = Subject { plan, model: kernel, kernel, device, effort: Effort::Much };
                subject.check(&dtypes).map_err(Failed::from)
            });
            trials.push(trial.with_ignored_flag(ignored));
        }
    }
    trials
}

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let registry = match Registry::linked() {
        Ok(registry) => registry,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let found = Found::devices(&registry, "cuda");
    if let Err(reason) = found.as_promised() {
        eprintln!("{reason}");
        return ExitCode::FAILURE;
    }
    let gpu = match found.missing() {
        Some(reason) => Err(reason.to_string()),
        None => registry.open("cuda", 0).map_err(|error| error.to_string()),
    };
    if let Err(reason) = &gpu {
        eprintln!("all trials on a GPU are ignored: {reason}");
    }
    let mut all = broken::trials(&registry);
    all.extend(trials(&registry, gpu.as_ref().ok()));
    libtest_mimic::run(&args, all).exit_code()
}
