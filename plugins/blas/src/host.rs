//! The product on host devices, by `matrixmultiply`.

use std::cell::Cell;

use squall_plugin::core::{
    Args, BoundRange, Cover, DType, Element, HostCall, KernelDef, OpError, Prepare, Scalar, Work,
};

use crate::{PARAMS, Product};

/// The op's arguments as a kernel's: what a host device runs in stream order.
static GEMM: KernelDef =
    KernelDef { name: "gemm", params: PARAMS, covers: &[Cover::Any], host: Some(&gemm), ..KernelDef::EMPTY };

/// # Safety
/// The ranges must be memory of `cx.device` that outlives the work.
pub(crate) unsafe fn prepare(
    args: &Args<'_, BoundRange>,
    cx: &mut Prepare<'_>,
) -> Result<Box<dyn Work>, OpError> {
    // SAFETY: the caller's.
    Ok(unsafe { cx.kernel(&GEMM, args.values.to_vec(), 1, 1) }?)
}

fn gemm(call: &HostCall<'_>) -> Result<(), String> {
    match call.dtype("c") {
        DType::F32 => product::<f32>(call, matrixmultiply::sgemm),
        DType::F64 => product::<f64>(call, matrixmultiply::dgemm),
        other => Err(format!("there is no product of {other} on the host")),
    }
}

/// `m, k, n, alpha, a, b, beta, c`; a matrix is its first element, and how far apart its rows and its columns are.
type Gemm<T> = unsafe fn(
    usize,
    usize,
    usize,
    T,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    *mut T,
    isize,
    isize,
);

fn product<T: Element>(call: &HostCall<'_>, gemm: Gemm<T>) -> Result<(), String> {
    let Product { m, n, k, alpha, beta, transpose_a, transpose_b } =
        Product::new(call.args(), |range: &BoundRange| &range.shape).map_err(|error| error.to_string())?;
    let (a, b, c) = (call.cells::<T>("a")?, call.cells::<T>("b")?, call.cells::<T>("c")?);
    // All three lie in memory, so that their lengths fit.
    let [m, n, k] = [m, n, k].map(|length| length as usize);
    let strides = |columns: usize, rows: usize, transposed: bool| match transposed {
        false => (columns as isize, 1),
        true => (1, rows as isize),
    };
    let ((a_row, a_column), (b_row, b_column)) = (strides(k, m, transpose_a), strides(n, k, transpose_b));
    let [alpha, beta] = [alpha, beta].map(|number| Scalar::Float(number).to::<T>());
    let start = |cells: &[Cell<T>]| cells.as_ptr().cast::<T>();
    // SAFETY: with these strides the elements are those of `a`, `b` and `c`, whose lengths `Product::new` has checked; `c`, the
    // one that is written, is made of cells, and no other range of the task overlaps it.
    unsafe {
        let c = start(c).cast_mut();
        gemm(m, k, n, alpha, start(a), a_row, a_column, start(b), b_row, b_column, beta, c, n as isize, 1);
    }
    Ok(())
}
