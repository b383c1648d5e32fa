//! The CUDA forms of the standard kernels compile, for every dtype that their parameters allow, and those that bytes bound load and
//! store sixteen of them at a time. NVRTC needs no GPU.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod dtypes;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dtypes::combinations;
use squall_core::{DType, KernelDef, ParamDef, Registry, Task as _, Type};
use squall_cuda_backend::compile::{Arch, Nvrtc, compile, ptx};
use squall_cuda_backend::kernel::Specialised;
use squall_kernels_std as _;

/// Compiled for with every combination of dtypes.
const MAIN: Arch = Arch(9, 0);
/// Compiled for with one combination, since all of them would take minutes: little depends on both the architecture and the
/// dtypes.
const OTHERS: [Arch; 2] = [Arch(7, 5), Arch(8, 0)];

/// Kernels that arithmetic bounds. All others are bound by the bytes that they load and store.
const ARITHMETIC: [&str; 3] = ["matmul_nn", "matmul_nt", "matmul_tn"];
/// Kernels whose results are few.
const LOADS_ALONE: [&str; 3] = ["accuracy_count", "dot", "sum"];
/// Kernels that read numbers alone.
const STORES_ALONE: [&str; 2] = ["fill", "iota"];

fn kernels() -> Vec<&'static KernelDef> {
    Registry::linked().unwrap().kernels().map(|(kernel, _)| kernel).collect()
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

#[test]
fn a_chain_of_parameters_of_the_same_dtype_has_one() {
    let params = [
        ParamDef::scalar("c", Type::Same("b"), ""),
        ParamDef::read("b", Type::Same("a"), ""),
        ParamDef::read("a", Type::In(&[DType::F32, DType::F16]), ""),
        ParamDef::flag("on", ""),
        ParamDef::read("n", Type::Is(DType::I64), ""),
    ];
    let of = |dtype| vec![dtype, dtype, dtype, DType::U8, DType::I64];
    assert_eq!(combinations(&params), [of(DType::F32), of(DType::F16)]);
}

/// Whether some instruction of this kind takes sixteen bytes as four words: so the compiler moves a pack of elements of up to four
/// bytes, where it moves one of eight bytes as two.
fn takes_sixteen_bytes(ptx: &str, instruction: &str) -> bool {
    ptx.lines().any(|line| {
        let line = line.trim_start();
        line.starts_with(instruction)
            && [".v4.b32", ".v4.u32", ".v4.f32"].iter().any(|four| line.contains(four))
    })
}

/// The kernel with `dtype` wherever it can be, and the last of what is allowed elsewhere: labels and counts of eight bytes, which
/// are not mistaken for elements.
fn of_dtype(kernel: &KernelDef, dtype: DType) -> Vec<DType> {
    let likeness = |dtypes: &Vec<DType>| dtypes.iter().filter(|&&other| other == dtype).count();
    combinations(kernel.params).into_iter().max_by_key(likeness).unwrap()
}

#[test]
fn kernels_that_bytes_bound_load_and_store_sixteen_at_a_time() {
    let mut narrow = Vec::new();
    for kernel in kernels().into_iter().filter(|kernel| !ARITHMETIC.contains(&kernel.name)) {
        for dtype in [DType::F32, DType::F16] {
            let source = Specialised::with_dtypes(kernel, &of_dtype(kernel, dtype), 256).unwrap();
            let ptx = ptx(&source, MAIN).unwrap();
            for (instruction, without) in [("ld.global", &STORES_ALONE[..]), ("st.global", &LOADS_ALONE)] {
                if !without.contains(&kernel.name) && !takes_sixteen_bytes(&ptx, instruction) {
                    narrow.push(format!("{} of {dtype}: {instruction}", kernel.name));
                }
            }
        }
    }
    assert!(narrow.is_empty(), "none of sixteen bytes:\n{}", narrow.join("\n"));
}

#[test]
fn narrow_accesses_are_told_from_wide_ones() {
    let told = |line: &str| {
        takes_sixteen_bytes(&format!("{{\n\t{line} \t{{%r1, %r2, %r3, %r4}}, [%rd1];\n}}"), "ld.global")
    };
    for wide in ["ld.global.v4.f32", "ld.global.v4.u32", "ld.global.nc.v4.b32"] {
        assert!(told(wide), "{wide}");
    }
    for narrow in
        ["ld.global.f32", "ld.global.v2.f32", "ld.global.v4.u16", "ld.shared.v4.f32", "st.global.v4.f32"]
    {
        assert!(!told(narrow), "{narrow}");
    }
}
