//! The CUDA forms of the standard kernels compile, for every dtype that their parameters allow. NVRTC needs no GPU.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use squall_core::{DType, KernelDef, ParamDef, ParamKind, Registry, Task as _, Type};
use squall_cuda_backend::compile::{Arch, Nvrtc, compile};
use squall_cuda_backend::kernel::Specialised;
use squall_kernels_std as _;

/// Compiled for with every combination of dtypes.
const MAIN: Arch = Arch(9, 0);
/// Compiled for with one combination, since all of them would take minutes: little depends on both the architecture and the
/// dtypes.
const OTHERS: [Arch; 2] = [Arch(7, 5), Arch(8, 0)];

fn kernels() -> Vec<&'static KernelDef> {
    Registry::linked().unwrap().kernels().map(|(kernel, _)| kernel).collect()
}

fn ty(param: &ParamDef) -> Option<Type> {
    match param.kind {
        ParamKind::Buffer(_, ty) | ParamKind::Scalar(ty) => Some(ty),
        _ => None,
    }
}

/// Every combination of dtypes, one for each parameter, that the parameters allow.
fn combinations(params: &[ParamDef]) -> Vec<Vec<DType>> {
    let mut combinations = vec![vec![DType::F32; params.len()]];
    for (place, param) in params.iter().enumerate() {
        let allowed = match ty(param) {
            Some(Type::In(dtypes)) => dtypes.to_vec(),
            Some(Type::Is(dtype)) => vec![dtype],
            _ => continue,
        };
        combinations = combinations
            .iter()
            .flat_map(|so_far| {
                allowed.iter().map(|&dtype| {
                    let mut next = so_far.clone();
                    next[place] = dtype;
                    next
                })
            })
            .collect();
    }
    for dtypes in &mut combinations {
        for place in 0..params.len() {
            // A chain of `Same` is no longer than the parameters are many.
            let mut from = place;
            for _ in params {
                let Some(Type::Same(other)) = ty(&params[from]) else { break };
                from = params.iter().position(|param| param.name == other).unwrap();
            }
            dtypes[place] = dtypes[from];
        }
    }
    combinations
}

#[test]
fn every_standard_kernel_has_a_cuda_form() {
    let without: Vec<&str> =
        kernels().iter().filter(|kernel| !kernel.runs_on("cuda")).map(|kernel| kernel.name()).collect();
    assert!(without.is_empty(), "no CUDA form: {without:?}");
}

#[test]
fn every_cuda_form_compiles_for_every_dtype_and_architecture() {
    if let Err(missing) = Nvrtc::get() {
        panic!("this test compiles CUDA C++, and needs NVRTC, but no GPU: {missing}");
    }
    let mut jobs: Vec<(&KernelDef, Vec<DType>, Arch)> = Vec::new();
    for kernel in kernels() {
        let combinations = combinations(kernel.params);
        jobs.extend(OTHERS.iter().filter_map(|&arch| Some((kernel, combinations.first()?.clone(), arch))));
        jobs.extend(combinations.into_iter().map(|dtypes| (kernel, dtypes, MAIN)));
    }
    let (next, errors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((kernel, dtypes, arch)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(source) = Specialised::with_dtypes(kernel, dtypes, 256) else { continue };
                    if let Err(error) = compile(&source, *arch) {
                        errors.lock().unwrap().push(format!("{arch}, {dtypes:?}: {error}"));
                    }
                }
            });
        }
    });
    let mut errors = errors.into_inner().unwrap();
    errors.sort();
    assert!(errors.is_empty(), "{} of {} do not compile:\n{}", errors.len(), jobs.len(), errors.join("\n"));
}
