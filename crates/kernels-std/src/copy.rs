//! Copies: whole ranges, with a change of dtype, and rows of a matrix.

use num_traits::AsPrimitive;
use squall_core::{
    ArgError, Args, Cover, CudaSource, HostCall, KernelDef, ParamDef, Presence, Type, count, with_element,
};

use crate::check::{ANY, len, same_len};
use crate::map::{self, reached};
use crate::numeric::Number;
use crate::{cuda_text, example};

/// `dst[i] = src[i]`.
pub static COPY: KernelDef = KernelDef {
    name: "copy",
    summary: "dst[i] = src[i]",
    params: &[ParamDef::read("src", ANY, "[n]"), ParamDef::write("dst", Type::Same("src"), "[n]")],
    covers: &[Cover::Len("dst")],
    check: &|args| same_len(args, "dst", "src"),
    example: example!(
        "copy",
        r#"
[buffer.x]
dtype = "f32"
shape = [4]
init = { iota = true }

[buffer.y]
dtype = "f32"
shape = [4]
save = "y-{rank}.npy"

[[task]]
kernel = "copy"
args = { src = "x", dst = "y" }
grid = { threads = 4, block = 32 }
"#
    ),
    host: Some(&copy),
    cuda: Some(CudaSource::new(cuda_text!("copy.cu"), "copy").looping()),
    ..KernelDef::EMPTY
};

fn copy(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("dst"), T => {
        map::copy(reached::<T>(call, "src")?, reached::<T>(call, "dst")?);
        Ok(())
    })
}

/// `dst[i] = src[i]` in the dtype of `dst`.
///
/// A float becomes an integer by cutting toward zero; what the integer cannot hold saturates, and NaN becomes
/// 0. An integer becomes a shorter one by wrapping. All else rounds to nearest, ties to even; to and from
/// `f16` and `bf16` the way leads through `f32`.
pub static CAST: KernelDef = KernelDef {
    name: "cast",
    summary: "dst[i] = src[i] in another dtype; floats to integers cut and saturate, integers wrap",
    params: &[ParamDef::read("src", ANY, "[n]"), ParamDef::write("dst", ANY, "[n]")],
    covers: &[Cover::Len("dst")],
    check: &|args| same_len(args, "dst", "src"),
    example: example!(
        "cast",
        r#"
[buffer.x]
dtype = "f32"
shape = [4]
init = { values = [0.5, -1.5, 2.0, 300.0] }

[buffer.y]
dtype = "i8"
shape = [4]
save = "y-{rank}.npy"

[[task]]
kernel = "cast"
args = { src = "x", dst = "y" }
grid = { threads = 4, block = 32 }
"#
    ),
    host: Some(&cast),
    cuda: Some(CudaSource::new(cuda_text!("cast.cu"), "cast").looping()),
    ..KernelDef::EMPTY
};

fn cast(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("src"), S => with_element!(call.dtype("dst"), D => cast_to::<S, D>(call)))
}

fn cast_to<S: Number, D: Number>(call: &HostCall<'_>) -> Result<(), String>
where
    S::Wide: AsPrimitive<D::Wide>,
{
    map::map(reached::<S>(call, "src")?, reached::<D>(call, "dst")?, AsPrimitive::as_);
    Ok(())
}

/// Copies `rows` rows of `cols` elements: a column, a tile, a halo. What lies between the rows of `dst` stays.
pub static COPY_2D: KernelDef = KernelDef {
    name: "copy_2d",
    summary: "dst[dst_at + r*dst_stride + c] = src[src_at + r*src_stride + c] for r < rows, c < cols",
    params: &[
        ParamDef::read("src", ANY, "[any]"),
        ParamDef::read_write("dst", Type::Same("src"), "[any]; elements between the rows stay"),
        ParamDef::size("rows", Presence::Required, "rows to copy"),
        ParamDef::size("cols", Presence::Required, "elements of a row"),
        ParamDef::size("src_at", Presence::Optional, "the first element in `src`; 0 when absent"),
        ParamDef::size("src_stride", Presence::Dim("src", 1), "from a row of `src` to the next"),
        ParamDef::size("dst_at", Presence::Optional, "the first element in `dst`; 0 when absent"),
        ParamDef::size("dst_stride", Presence::Dim("dst", 1), "from a row of `dst` to the next"),
    ],
    covers: &[Cover::Size("cols"), Cover::Size("rows")],
    check: &check_copy_2d,
    example: example!(
        "copy_2d",
        r#"
[buffer.u]
dtype = "f32"
shape = [3, 4]
init = { iota = true }

[buffer.side]
dtype = "f32"
shape = [3, 1]
init = { fill = 0 }
save = "side-{rank}.npy"

[[task]]
kernel = "copy_2d"
args = { src = "u", dst = "side", rows = 3, cols = 1, src_at = 2 }
grid = { threads = [1, 3], block = [1, 32] }
"#
    ),
    host: Some(&copy_2d),
    cuda: Some(CudaSource::new(cuda_text!("copy_2d.cu"), "copy_2d").looping()),
    ..KernelDef::EMPTY
};

fn check_copy_2d(args: &Args<'_>) -> Result<(), ArgError> {
    let (rows, cols) = (args.size("rows").unwrap_or(0), args.size("cols").unwrap_or(0));
    if rows == 0 || cols == 0 {
        return Ok(());
    }
    for (param, at, stride) in [("src", "src_at", "src_stride"), ("dst", "dst_at", "dst_stride")] {
        let len = len(args, param);
        let (at, stride) = (args.size(at).unwrap_or(0), args.size(stride).unwrap_or(0));
        // Within u128: at most (2^64 - 1)^2 + 2^65.
        let end = u128::from(at) + u128::from(rows - 1) * u128::from(stride) + u128::from(cols);
        if end > u128::from(len) {
            let message = format!(
                "has {}, but {} of {cols}, {stride} apart, from element {at} on, end at {end}",
                count(len, "element"),
                count(rows, "row")
            );
            return Err(ArgError::new(param, message));
        }
    }
    let stride = args.size("dst_stride").unwrap_or(0);
    if rows > 1 && stride < cols {
        let message =
            format!("is {stride}, but a row has {}: rows would overlap in `dst`", count(cols, "element"));
        return Err(ArgError::new("dst_stride", message));
    }
    Ok(())
}

fn copy_2d(call: &HostCall<'_>) -> Result<(), String> {
    let [x, y, _] = call.launched();
    let (rows, cols) = (call.size("rows").min(y), call.size("cols").min(x));
    let (src_at, src_stride) = (call.size("src_at"), call.size("src_stride"));
    let (dst_at, dst_stride) = (call.size("dst_at"), call.size("dst_stride"));
    if cols == 0 {
        return Ok(());
    }
    with_element!(call.dtype("dst"), T => {
        let (src, dst) = (call.cells::<T>("src")?, call.cells::<T>("dst")?);
        for row in 0..rows {
            let (src_at, dst_at) = (src_at + row * src_stride, dst_at + row * dst_stride);
            map::copy(&src[src_at..src_at + cols], &dst[dst_at..dst_at + cols]);
        }
        Ok(())
    })
}
