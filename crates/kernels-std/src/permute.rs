//! `permute`: the axes of an array in another order.

use std::cell::Cell;

use squall_core::{
    ArgError, Args, Cover, CudaSource, HostCall, KernelDef, ParamDef, Presence, Type, count, with_element,
};

use crate::check::{ANY, len, same_len};
use crate::map::{copy, reached};
use crate::{cuda_text, example};

/// The most axes.
const MAX_AXES: usize = 8;

/// Copies an array with its axes in another order, as NumPy's `transpose` does: axis i of `dst` is axis
/// `order[i]` of `src`. `dims` are the lengths of `src`'s axes.
pub static PERMUTE: KernelDef = KernelDef {
    name: "permute",
    summary: "dst = src with its axes in another order: axis i of dst is axis order[i] of src",
    params: &[
        ParamDef::read("src", ANY, "[dims]"),
        ParamDef::write("dst", Type::Same("src"), "[dims[order[0]], dims[order[1]], …]"),
        ParamDef::list("order", Presence::Required, "an axis of `src` for each axis of `dst`; at most 8"),
        ParamDef::list("dims", Presence::ShapeOf("src"), "lengths of the axes of `src`"),
    ],
    covers: &[Cover::Len("dst")],
    check: &check_permute,
    example: example!(
        "permute",
        r#"
[buffer.x]
dtype = "f32"
shape = [2, 3]
init = { iota = true }

[buffer.y]
dtype = "f32"
shape = [3, 2]
save = "y-{rank}.npy"

[[task]]
kernel = "permute"
args = { src = "x", dst = "y", order = [1, 0] }
grid = { threads = 6, block = 32 }
"#
    ),
    host: Some(&permute),
    cuda: Some(CudaSource::new(cuda_text!("permute.cu"), "permute").looping()),
    ..KernelDef::EMPTY
};

fn check_permute(args: &Args<'_>) -> Result<(), ArgError> {
    let (dims, order) = (args.list("dims").unwrap_or(&[]), args.list("order").unwrap_or(&[]));
    if dims.len() > MAX_AXES {
        let message = format!("has {} axes, but there may be {MAX_AXES}", dims.len());
        return Err(ArgError::new("dims", message).with_help("merge axes that stay neighbours"));
    }
    if let Some(dim) = dims.iter().find(|&&dim| dim < 0) {
        return Err(ArgError::new("dims", format!("has an axis of length {dim}")));
    }
    let len = len(args, "src");
    let product = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim.unsigned_abs()));
    // Beside an axis of length 0 the others may be of any length.
    if product != Some(len) && !(len == 0 && dims.contains(&0)) {
        let message = format!("{dims:?} do not multiply to the {} of `src`", count(len, "element"));
        return Err(ArgError::new("dims", message));
    }
    let mut sorted: Vec<i64> = order.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq((0i64..).take(dims.len())) {
        let message = format!("{order:?} does not name each of the {} axes of `src` once", dims.len());
        return Err(ArgError::new("order", message));
    }
    same_len(args, "dst", "src")
}

fn permute(call: &HostCall<'_>) -> Result<(), String> {
    let (dims, order) = (call.args().list("dims").unwrap_or(&[]), call.args().list("order").unwrap_or(&[]));
    // One element a step along an axis of `src`.
    let mut steps = [1usize; MAX_AXES];
    for axis in (1..dims.len()).rev() {
        steps[axis - 1] = steps[axis].saturating_mul(dims[axis] as usize);
    }
    // The axes of `dst`, the fastest first: their lengths, and their steps in `src`.
    let mut axes = [Axis { len: 1, step: 1, index: 0 }; MAX_AXES];
    for (axis, &from) in axes.iter_mut().zip(order.iter().rev()) {
        *axis = Axis { len: dims[from as usize] as usize, step: steps[from as usize], index: 0 };
    }
    with_element!(call.dtype("dst"), T => {
        gather(call.cells::<T>("src")?, reached::<T>(call, "dst")?, axes);
        Ok(())
    })
}

/// An axis of `dst`.
#[derive(Clone, Copy)]
struct Axis {
    len: usize,
    step: usize,
    index: usize,
}

/// Fills `dst` from its front, a run along its fastest axis at a time.
fn gather<T: Copy>(src: &[Cell<T>], dst: &[Cell<T>], axes: [Axis; MAX_AXES]) {
    let [fastest, mut outer @ ..] = axes;
    if src.is_empty() {
        return;
    }
    let mut at = 0;
    for run in dst.chunks(fastest.len) {
        match fastest.step {
            1 => copy(&src[at..], run),
            step => run.iter().zip(src[at..].iter().step_by(step)).for_each(|(dst, src)| dst.set(src.get())),
        }
        // The next index of the outer axes, as an odometer.
        for axis in &mut outer {
            axis.index += 1;
            at += axis.step;
            if axis.index < axis.len {
                break;
            }
            at -= axis.step * axis.len;
            axis.index = 0;
        }
    }
}
