//! A five-point stencil: one explicit step of the heat equation.

use std::cell::Cell;

use squall_core::{ArgError, Args, Cover, HostCall, KernelDef, ParamDef, Type};

use crate::check::FLOAT;
use crate::example;
use crate::map::map;
use crate::numeric::{Arithmetic, Number, with_float};

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
    check: check_stencil5,
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
download = "last"

[[task]]
kernel = "stencil5"
args = { src = "u", dst = "v", k = 0.2 }
grid = { threads = [4, 3], block = [32, 8] }
"#
    ),
    host: Some(&stencil5),
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
    let reached = width.min(call.launched()[0]);
    let rows = dst.chunks_exact(width).take(call.launched()[1]);
    for (y, dst) in rows.enumerate() {
        let row = |y: usize| src.get(y * width..(y + 1) * width);
        let middle = &src[y * width..(y + 1) * width];
        match (y.checked_sub(1).and_then(row), row(y + 1)) {
            (Some(up), Some(down)) => step_row(up, middle, down, &dst[..reached], k),
            _ => map(middle, &dst[..reached], |x| x),
        }
    }
    Ok(())
}

/// The first `dst.len()` elements of an inner row.
fn step_row<T: Number>(up: &[Cell<T>], middle: &[Cell<T>], down: &[Cell<T>], dst: &[Cell<T>], k: T::Wide) {
    let four = T::Wide::from_index(4);
    let last = middle.len() - 1;
    for (x, dst) in dst.iter().enumerate() {
        let old = middle[x].get();
        if x == 0 || x == last {
            dst.set(old);
            continue;
        }
        let across = middle[x - 1].get().widen().plus(middle[x + 1].get().widen());
        let along = up[x].get().widen().plus(down[x].get().widen());
        let old = old.widen();
        let change = across.plus(along).minus(four.times(old));
        dst.set(T::narrow(old.plus(k.times(change))));
    }
}
