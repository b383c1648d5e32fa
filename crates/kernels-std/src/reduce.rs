//! Sums: of products, of all elements, of columns.

use std::cell::Cell;

use squall_core::{Cover, CudaSource, HostCall, KernelDef, ParamDef, Type, with_element};

use crate::check::{ANY, has_rows_like, one_element, same_len};
use crate::map::{LANES, reached};
use crate::numeric::{Arithmetic, Number};
use crate::{cuda_text, example};

/// Bytes of scratch memory for the partial sums of a sum over all blocks: a sum of eight bytes for each of the 1024 chunks that
/// `cuda/sums.cuh` cuts its terms into, and a count.
pub(crate) const PARTIALS: u32 = 8 + 1024 * 8;

/// The inner product of two vectors.
pub static DOT: KernelDef = KernelDef {
    name: "dot",
    summary: "out[0] = the sum of a[i] * b[i]; integers wrap",
    params: &[
        ParamDef::read("a", ANY, "[n]"),
        ParamDef::read("b", Type::Same("a"), "[n]; may be `a`"),
        ParamDef::write("out", Type::Same("a"), "[1]"),
    ],
    covers: &[Cover::Any],
    check: &|args| {
        same_len(args, "b", "a")?;
        one_element(args, "out")
    },
    example: example!(
        "dot",
        r#"
[buffer.a]
dtype = "f32"
shape = [4]
init = { iota = true }

[buffer.out]
dtype = "f32"
shape = [1]
save = "out-{rank}.npy"

[[task]]
kernel = "dot"
args = { a = "a", b = "a", out = "out" }
grid = { threads = 256, block = 256 }
"#
    ),
    host: Some(&dot),
    cuda: Some(CudaSource::new(cuda_text!("sums.cuh", "dot.cu"), "dot").looping().scratch(PARTIALS)),
    ..KernelDef::EMPTY
};

fn dot(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("out"), T => {
        let (a, b) = (call.cells::<T>("a")?, call.cells::<T>("b")?);
        put(call.cells::<T>("out")?, sum_of(a, b, Arithmetic::times));
        Ok(())
    })
}

/// The sum of all elements.
pub static SUM: KernelDef = KernelDef {
    name: "sum",
    summary: "out[0] = the sum of data[i]; integers wrap",
    params: &[ParamDef::read("data", ANY, "[n]"), ParamDef::write("out", Type::Same("data"), "[1]")],
    covers: &[Cover::Any],
    check: &|args| one_element(args, "out"),
    example: example!(
        "sum",
        r#"
[buffer.x]
dtype = "f32"
shape = [4]
init = { iota = true }

[buffer.out]
dtype = "f32"
shape = [1]
save = "out-{rank}.npy"

[[task]]
kernel = "sum"
args = { data = "x", out = "out" }
grid = { threads = 256, block = 256 }
"#
    ),
    host: Some(&sum),
    cuda: Some(CudaSource::new(cuda_text!("sums.cuh", "sum.cu"), "sum").looping().scratch(PARTIALS)),
    ..KernelDef::EMPTY
};

fn sum(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("out"), T => {
        let data = call.cells::<T>("data")?;
        put(call.cells::<T>("out")?, sum_of(data, data, |x, _| x));
        Ok(())
    })
}

/// Stores a sum in a one-element buffer.
fn put<T: Number>(out: &[Cell<T>], sum: T::Wide) {
    if let [out] = out {
        out.set(T::narrow(sum));
    }
}

/// The sum of `f(a[i], b[i])`. Lane l adds the elements whose index is l modulo [`LANES`], in order; then the
/// upper half of the lanes is added to the lower half until one is left.
fn sum_of<T: Number>(a: &[Cell<T>], b: &[Cell<T>], f: impl Fn(T::Wide, T::Wide) -> T::Wide) -> T::Wide {
    let mut lanes = [T::Wide::ZERO; LANES];
    let mut add = |a: &[Cell<T>], b: &[Cell<T>]| {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane = lane.plus(f(a.get().widen(), b.get().widen()));
        }
    };
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    a.iter().zip(b).for_each(|(a, b)| add(a, b));
    add(a_rest, b_rest);
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for l in 0..width {
            lanes[l] = lanes[l].plus(lanes[l + width]);
        }
    }
    lanes[0]
}

/// The sum of a matrix's rows, which is the sum of each of its columns: the gradient of `bias_rows`' bias.
pub static SUM_ROWS: KernelDef = KernelDef {
    name: "sum_rows",
    summary: "out[c] = the sum over all rows r of data[r, c]; integers wrap",
    params: &[
        ParamDef::read("data", ANY, "[rows, cols]"),
        ParamDef::write("out", Type::Same("data"), "[cols]"),
    ],
    covers: &[Cover::Len("out")],
    check: &|args| has_rows_like(args, "data", "out"),
    example: example!(
        "sum_rows",
        r#"
[buffer.x]
dtype = "f32"
shape = [3, 2]
init = { iota = true }

[buffer.out]
dtype = "f32"
shape = [2]
save = "out-{rank}.npy"

[[task]]
kernel = "sum_rows"
args = { data = "x", out = "out" }
grid = { threads = 2, block = 32 }
"#
    ),
    host: Some(&sum_rows),
    cuda: Some(CudaSource::new(cuda_text!("sums.cuh", "sum_rows.cu"), "sum_rows")),
    ..KernelDef::EMPTY
};

fn sum_rows(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("out"), T => sum_rows_of::<T>(call))
}

/// Columns are taken some at a time, and each adds its rows in order.
fn sum_rows_of<T: Number>(call: &HostCall<'_>) -> Result<(), String> {
    const BLOCK: usize = 4 * LANES;
    let (data, cols) = (call.cells::<T>("data")?, call.cells::<T>("out")?.len());
    for (block, out) in reached::<T>(call, "out")?.chunks(BLOCK).enumerate() {
        let mut sums = [T::Wide::ZERO; BLOCK];
        for row in data.chunks_exact(cols) {
            for (sum, x) in sums.iter_mut().zip(&row[block * BLOCK..]).take(out.len()) {
                *sum = sum.plus(x.get().widen());
            }
        }
        for (out, sum) in out.iter().zip(sums) {
            out.set(T::narrow(sum));
        }
    }
    Ok(())
}
