//! Kernels that take their time, or write where nothing is.

use std::time::Duration;

use libtest_mimic::Completion;
use squall_core::{CudaSource, DType, HostCall, KernelDef, ParamDef, Type};
use squall_cuda_backend::compile::{Arch, CompileError, compile};
use squall_cuda_backend::kernel::Specialised;

const I32: Type = Type::Is(DType::I32);

/// Waits for so many nanoseconds.
macro_rules! with_wait {
    ($text:literal) => {
        concat!(
            r#"__device__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}
__device__ void wait_for(u64 duration) {
    u64 begin = nanoseconds();
    while (nanoseconds() - begin < duration) {}
}
"#,
            $text
        )
    };
}

/// Counts steps in `steps`, and waits in step `at`.
pub(crate) static LATE: KernelDef = KernelDef {
    name: "late",
    summary: "counts steps, and waits in step `at`",
    params: &[
        ParamDef::read_write("steps", I32, "[1], steps so far"),
        ParamDef::scalar("at", I32, "the step to wait in; none if negative"),
        ParamDef::scalar("millis", I32, "how long"),
    ],
    host: Some(&late),
    cuda: Some(CudaSource::new(
        with_wait!(
            "__device__ void late(squall::Buffer<i32> steps, squall::Scalar<i32> at, squall::Scalar<i32> millis, const squall::Launch &) {
    if (squall::x() != 0) return;
    i32 step = steps[0];
    steps[0] = step + 1;
    if (step == at.get()) wait_for((u64)millis.get() * 1000000);
}"
        ),
        "late",
    )),
    ..KernelDef::EMPTY
};

fn late(call: &HostCall<'_>) -> Result<(), String> {
    let steps = &call.cells::<i32>("steps")?[0];
    let step = steps.replace(steps.get() + 1);
    if step == call.scalar::<i32>("at")? {
        std::thread::sleep(Duration::from_millis(call.scalar::<i32>("millis")? as u64));
    }
    Ok(())
}

/// Takes its time, and copies.
pub(crate) static SLOW_COPY: KernelDef = KernelDef {
    name: "slow_copy",
    summary: "dst[i] = src[i], after so many microseconds",
    params: &[
        ParamDef::read("src", I32, "[n]"),
        ParamDef::write("dst", I32, "[n]"),
        ParamDef::scalar("micros", I32, "how long every thread waits before it copies"),
    ],
    host: Some(&slow_copy),
    cuda: Some(
        CudaSource::new(
            with_wait!(
                "__device__ void slow_copy(squall::Buffer<i32> src, squall::Buffer<i32> dst, squall::Scalar<i32> micros, const squall::Launch &launch) {
    wait_for((u64)micros.get() * 1000);
    u64 len = squall::least(squall::least(src.len, dst.len), launch.threads[0]);
    for (u64 i = squall::x(); i < len; i += squall::stride()) dst[i] = src[i];
}"
            ),
            "slow_copy",
        )
        .looping(),
    ),
    ..KernelDef::EMPTY
};

fn slow_copy(call: &HostCall<'_>) -> Result<(), String> {
    std::thread::sleep(Duration::from_micros(call.scalar::<i32>("micros")? as u64));
    let (src, dst) = (call.cells::<i32>("src")?, call.cells::<i32>("dst")?);
    src.iter().zip(dst).for_each(|(src, dst)| dst.set(src.get()));
    Ok(())
}

/// Counts steps in `steps`, and in step `at` waits and writes where nothing is. There is no such form for host devices, which would
/// end the process.
pub(crate) static STRAY: KernelDef = KernelDef {
    name: "stray",
    summary: "counts steps, and in step `at` waits and writes where nothing is",
    params: &[
        ParamDef::read_write("steps", I32, "[1], steps so far"),
        ParamDef::scalar("at", I32, "the step to do so in; none if negative"),
        ParamDef::scalar("millis", I32, "how long to wait"),
    ],
    cuda: Some(CudaSource::new(
        with_wait!(
            "__device__ void stray(squall::Buffer<i32> steps, squall::Scalar<i32> at, squall::Scalar<i32> millis, const squall::Launch &) {
    if (squall::x() != 0) return;
    i32 step = steps[0];
    steps[0] = step + 1;
    if (step != at.get()) return;
    wait_for((u64)millis.get() * 1000000);
    *(u32 *)8 = 1;
}"
        ),
        "stray",
    )),
    ..KernelDef::EMPTY
};

/// That they compile is seen without a GPU.
pub(crate) fn compiled() -> Completion {
    for kernel in [&LATE, &SLOW_COPY, &STRAY] {
        let source = Specialised::with_dtypes(kernel, &vec![DType::I32; kernel.params.len()], 256).unwrap();
        match compile(&source, Arch(9, 0)) {
            Ok(_) => {}
            Err(CompileError::Missing(reason)) => {
                return Completion::ignored_with(
                    reason.lines().next().unwrap_or_default().trim_end_matches(':'),
                );
            }
            Err(error) => panic!("{error}"),
        }
    }
    Completion::Completed
}
