//! Kernels that read nothing: `fill` and `iota`.

use squall_core::{Arg, Cover, CudaSource, HostCall, KernelDef, ParamDef, Type, with_element};

use crate::check::ANY;
use crate::map::reached;
use crate::numeric::{Arithmetic, Number};
use crate::{cuda_text, example};

/// `dst[i] = value`.
pub static FILL: KernelDef = KernelDef {
    name: "fill",
    summary: "dst[i] = value",
    params: &[
        ParamDef::write("dst", ANY, "[n]"),
        ParamDef::scalar("value", Type::Same("dst"), "what every element becomes"),
    ],
    covers: &[Cover::Len("dst")],
    example: example!(
        "fill",
        r#"
[buffer.x]
dtype = "f32"
shape = [4]
save = "x-{rank}.npy"

[[task]]
kernel = "fill"
args = { dst = "x", value = 0.5 }
grid = { threads = 4, block = 32 }
"#
    ),
    host: Some(&fill),
    cuda: Some(CudaSource::new(cuda_text!("fill.cu"), "fill").looping()),
    ..KernelDef::EMPTY
};

fn fill(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("dst"), T => {
        let value = call.scalar::<T>("value")?;
        reached::<T>(call, "dst")?.iter().for_each(|dst| dst.set(value));
        Ok(())
    })
}

/// `dst[i] = start + i`.
pub static IOTA: KernelDef = KernelDef {
    name: "iota",
    summary: "dst[i] = start + i; integers wrap",
    params: &[
        ParamDef::write("dst", ANY, "[n]"),
        ParamDef::scalar("start", Type::Same("dst"), "the first value; 0 when absent").optional(),
    ],
    covers: &[Cover::Len("dst")],
    example: example!(
        "iota",
        r#"
[buffer.index]
dtype = "i32"
shape = [4]
save = "index-{rank}.npy"

[[task]]
kernel = "iota"
args = { dst = "index", start = "rank * 4" }
grid = { threads = 4, block = 32 }
"#
    ),
    host: Some(&iota),
    cuda: Some(CudaSource::new(cuda_text!("iota.cu"), "iota").looping()),
    ..KernelDef::EMPTY
};

fn iota(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("dst"), T => iota_of::<T>(call))
}

fn iota_of<T: Number>(call: &HostCall<'_>) -> Result<(), String> {
    let start = match call.args().get("start") {
        Arg::Absent => T::Wide::ZERO,
        _ => call.scalar::<T>("start")?.widen(),
    };
    for (index, dst) in reached::<T>(call, "dst")?.iter().enumerate() {
        dst.set(T::narrow(start.plus(T::Wide::from_index(index))));
    }
    Ok(())
}
