//! A five-point stencil: one explicit step of the heat equation.

use std::cell::Cell;

use squall_core::{ArgError, Args, Cover, CudaSource, HostCall, KernelDef, ParamDef, Type};

use crate::check::FLOAT;
use crate::map::copy;
use crate::numeric::{Arithmetic, Number, with_float};
use crate::{cuda_text, example};

/// One step of the five-point stencil; the border is copied.
pub static STENCIL5: KernelDef = KernelDef {
    name: "stencil5",
    summary: "dst = src + k * (the sum of the 4 neighbours - 4 * src) inside, src on the border",
    params: &[
        ParamDef::read("src", FLOAT, "[h, w]"),
        ParamDef::write("dst", Type::Same("src"), "[h, w]"),
        ParamDef::scalar("k", Type::Same("src"), "the step: diffusivity × time / spacing²; stable up to 1/4"),
    ],
    covers: &[Cover::Dim("dst", 1), Cover::Dim("dst", 0)],
    check: &check_stencil5,
    example: example!(
        "stencil5",
        r#"
[buffer.u]
dtype = "f32"
shape = [3, 4]
init = { iota = true }

[buffer.v]
dtype = "f32"
shape = [3, 4]
save = "v-{rank}.npy"

[[task]]
kernel = "stencil5"
args = { src = "u", dst = "v", k = 0.2 }
grid = { threads = [4, 3], block = [32, 8] }
"#
    ),
    host: Some(&stencil5),
    cuda: Some(CudaSource::new(cuda_text!("stencil5.cu"), "stencil5").looping()),
    ..KernelDef::EMPTY
};

fn check_stencil5(args: &Args<'_>) -> Result<(), ArgError> {
    let (Some(src), Some(dst)) = (args.buffer("src"), args.buffer("dst")) else { return Ok(()) };
    if src.shape.len() != 2 {
        return Err(ArgError::new("src", format!("has the shape {:?}, but must have two axes", src.shape)));
    }
    if src.shape != dst.shape {
        let message =
            format!("has the shape {:?}, but `src` has {:?}; they must be equal", dst.shape, src.shape);
        return Err(ArgError::new("dst", message));
    }
    Ok(())
}

fn stencil5(call: &HostCall<'_>) -> Result<(), String> {
    with_float!(call.dtype("dst"), T => stencil5_of::<T>(call))
}

fn stencil5_of<T: Number>(call: &HostCall<'_>) -> Result<(), String> {
    let (src, dst, k) = (call.cells::<T>("src")?, call.cells::<T>("dst")?, call.scalar::<T>("k")?.widen());
    let Some(width) = call.shape("dst").last().map(|&w| w as usize).filter(|&w| w > 0) else { return Ok(()) };
    let row = |y: usize| src.get(y * width..(y + 1) * width);
    for (y, dst) in dst.chunks_exact(width).take(call.launched()[1]).enumerate() {
        let reached = &dst[..width.min(call.launched()[0])];
        let (Some(old), up, down) = (row(y), y.checked_sub(1).and_then(row), row(y + 1)) else { continue };
        match (up, down, old) {
            (Some([_, up @ ..]), Some([_, down @ ..]), [first, .., last]) => {
                if let [left, inner @ ..] = reached {
                    left.set(first.get());
                    step_row(up, old, down, inner, k);
                }
                if let Some(right) = reached.get(width - 1) {
                    right.set(last.get());
                }
            }
            _ => copy(old, reached),
        }
    }
    Ok(())
}

/// Steps the inner elements of a row, as many as `dst` has: their old values are `row[1]`, `row[2]`, …, those
/// above and below them `up[0]` and `down[0]`, ….
// Inlined, its test for overlap would be made once for all rows, and fail for buffers side by side.
#[inline(never)]
fn step_row<T: Number>(up: &[Cell<T>], row: &[Cell<T>], down: &[Cell<T>], dst: &[Cell<T>], k: T::Wide) {
    let len = dst.len().min(row.len() - 2);
    // Slices of one known length need no checks in the loop.
    let (up, down, dst) = (&up[..len], &down[..len], &dst[..len]);
    let (left, old, right) = (&row[..len], &row[1..][..len], &row[2..][..len]);
    let four = T::Wide::from_index(4);
    for i in 0..len {
        let (up, down, old) = (up[i].get().widen(), down[i].get().widen(), old[i].get().widen());
        let around = left[i].get().widen().plus(right[i].get().widen()).plus(up.plus(down));
        dst[i].set(T::narrow(old.plus(k.times(around.minus(four.times(old))))));
    }
}
