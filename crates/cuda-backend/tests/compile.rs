//! What the compiler makes of kernels, on any machine: NVRTC needs no GPU.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use squall_core::{CudaSource, DType, KernelDef, ParamDef, Presence, Type};
use squall_cuda_backend::compile::{Arch, CompileError, compile};
use squall_cuda_backend::kernel::Specialised;

const ARCHES: [Arch; 3] = [Arch(7, 5), Arch(8, 0), Arch(9, 0)];

/// Uses every kind of parameter and everything that the prelude offers.
static ALL: KernelDef = KernelDef {
    name: "all",
    params: &[
        ParamDef::read_write("data", Type::In(DType::ALL), ""),
        ParamDef::scalar("factor", Type::Same("data"), ""),
        ParamDef::size("n", Presence::Required, ""),
        ParamDef::word("word", &["a", "b"], ""),
        ParamDef::flag("flag", ""),
        ParamDef::rank("peer", ""),
        ParamDef::list("list", Presence::Required, ""),
    ],
    cuda: Some(
        CudaSource::new(
            r"
__device__ void all(squall::Buffer<data_t> data, squall::Scalar<factor_t> factor, u64 n, u32 word, bool flag, u32 peer,
                    squall::List list, const squall::Launch &launch) {
    typedef squall::wide<data_t> wide;
    u64 len = squall::least(squall::least(data.len, n), launch.threads[0]);
    wide by = (wide)factor.get() + (wide)(word + peer) + (flag ? (wide)list[0] : (wide)list.len);
    u64 packs = squall::packed(data.data) ? len / squall::Pack<data_t>::lanes : 0;
    for (u64 i = squall::x(); i < packs; i += squall::stride()) {
        squall::Pack<data_t> pack = squall::load(data.data, i);
        for (u32 lane = 0; lane < pack.lanes; ++lane) pack.lane[lane] = (data_t)((wide)pack.lane[lane] * by);
        squall::store(data.data, i, pack);
    }
    for (u64 i = packs * squall::Pack<data_t>::lanes + squall::x(); i < len; i += squall::stride()) data[i] = (data_t)((wide)data[i] * by);
    if (squall::y() == 1 && squall::z() == 0 && factor.given == 0 && data.axes == 0) launch.fail(0, data.shape[0]);
}",
            "all",
        )
        .looping()
        .failing(&["element {} is wrong"]),
    ),
    ..KernelDef::EMPTY
};

fn specialised(kernel: &'static KernelDef, dtype: DType) -> Specialised {
    Specialised::with_dtypes(kernel, &vec![dtype; kernel.params.len()], 256).unwrap()
}

#[test]
fn every_kind_of_parameter_compiles_for_every_dtype_and_architecture() {
    for arch in ARCHES {
        for &dtype in DType::ALL {
            let code = compile(&specialised(&ALL, dtype), arch)
                .unwrap_or_else(|error| panic!("{arch} {dtype}: {error}"));
            assert_eq!(&code[..4], b"\x7fELF", "machine code, not PTX");
        }
    }
}

/// The names of parameters are the author's alone, and what the prelude offers need not be used.
#[test]
fn a_parameter_may_have_any_name() {
    static NAMED: KernelDef = KernelDef {
        name: "named",
        params: &[
            ParamDef::read("launch", Type::In(DType::ALL), ""),
            ParamDef::scalar("new", Type::Same("launch"), ""),
            ParamDef::size("class", Presence::Required, ""),
        ],
        cuda: Some(CudaSource::new(
            "__device__ void named(squall::Buffer<launch_t>, squall::Scalar<new_t>, u64, const squall::Launch &) {}",
            "named",
        )),
        ..KernelDef::EMPTY
    };
    compile(&specialised(&NAMED, DType::F32), Arch(9, 0)).unwrap();
}

#[test]
fn an_error_of_the_source_is_told_with_its_place() {
    static BROKEN: KernelDef = KernelDef {
        name: "broken",
        cuda: Some(CudaSource::new(
            "\n__device__ void broken(const squall::Launch &launch) { missing(); }",
            "broken",
        )),
        ..KernelDef::EMPTY
    };
    let error = compile(&specialised(&BROKEN, DType::F32), Arch(9, 0)).unwrap_err();
    let CompileError::Failed { kernel, log, .. } = &error else { panic!("{error}") };
    assert_eq!(kernel, "broken");
    assert!(log.contains("broken.cu(2)") && log.contains("missing"), "{log}");
    assert!(!log.contains("warning"), "nothing of the prelude's: {log}");
}

/// In a process of its own, whose NVRTC lacks the second library that belongs to it.
#[test]
fn an_nvrtc_that_is_not_whole_is_missing_and_told() {
    const NAME: &str = "an_nvrtc_that_is_not_whole_is_missing_and_told";
    static EMPTY: KernelDef = KernelDef {
        name: "empty",
        cuda: Some(CudaSource::new("__device__ void empty(const squall::Launch &) {}", "empty")),
        ..KernelDef::EMPTY
    };
    if std::env::var_os("SQUALL_TEST_CHILD").is_none() {
        compile(&specialised(&EMPTY, DType::F32), Arch(9, 0)).unwrap();
        let whole = squall_dylib::mapped("libnvrtc.so");
        let folder = tempfile::tempdir().unwrap();
        let lone = folder.path().join("libnvrtc.so");
        std::fs::copy(&whole[0], &lone).unwrap();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", NAME, "--nocapture"])
            .env("SQUALL_NVRTC", &lone)
            .env("SQUALL_TEST_CHILD", NAME);
        let output = child.output().unwrap();
        let text =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let error = compile(&specialised(&EMPTY, DType::F32), Arch(9, 0)).unwrap_err();
    let CompileError::Missing(text) = &error else { panic!("{error}") };
    assert!(text.contains("is not whole") && text.contains("failed to open libnvrtc-builtins"), "{text}");
    let install = text.lines().last().unwrap();
    assert!(install.starts_with("install NVRTC") && install.contains("pip install"), "{text}");
    let findings = squall_core::Backend::findings(&squall_cuda_backend::CUDA);
    assert!(findings.iter().any(|line| line.contains("is not whole")), "{findings:?}");
}

#[test]
fn the_kernels_of_the_suite_compile() {
    for kernel in squall_core::conformance::KERNELS {
        let dtype = |param: &ParamDef| match param.kind {
            squall_core::ParamKind::Buffer(_, Type::Is(dtype)) => dtype,
            other => panic!("{other:?}"),
        };
        let dtypes: Vec<DType> = kernel.params.iter().map(dtype).collect();
        let source = Specialised::with_dtypes(kernel, &dtypes, 256).unwrap();
        for arch in ARCHES {
            compile(&source, arch).unwrap_or_else(|error| panic!("{arch} {}: {error}", kernel.name));
        }
    }
}
