//! Loops over elements: which of them a grid reaches, and in a form that compiles to vector instructions.

use std::cell::Cell;

use squall_core::{Element, HostCall};

use crate::numeric::Number;

/// Elements taken at a time. A block is read whole before it is written, so that the compiler need not fear
/// that a written range is also a read one.
pub(crate) const LANES: usize = 16;

/// The elements of a buffer argument that have a thread on axis x.
pub(crate) fn reached<'a, T: Element>(call: &HostCall<'a>, name: &str) -> Result<&'a [Cell<T>], String> {
    let cells = call.cells(name)?;
    Ok(&cells[..cells.len().min(call.launched()[0])])
}

/// `dst[i] = src[i]`, bit for bit, for as many elements as both have.
pub(crate) fn copy<T: Copy>(src: &[Cell<T>], dst: &[Cell<T>]) {
    for (src, dst) in src.iter().zip(dst) {
        dst.set(src.get());
    }
}

/// `dst[i] = f(src[i])` for as many elements as both have; they may be the same range.
pub(crate) fn map<S: Number, D: Number>(src: &[Cell<S>], dst: &[Cell<D>], f: impl Fn(S::Wide) -> D::Wide) {
    blocks(src, src, dst, |x, _| D::narrow(f(x.widen())));
}

/// `dst[i] = f(a[i], b[i])` for as many elements as all have; any of them may be the same range.
pub(crate) fn zip<T: Number>(
    a: &[Cell<T>],
    b: &[Cell<T>],
    dst: &[Cell<T>],
    f: impl Fn(T::Wide, T::Wide) -> T::Wide,
) {
    blocks(a, b, dst, |x, y| T::narrow(f(x.widen(), y.widen())));
}

fn blocks<S: Copy, D: Copy>(a: &[Cell<S>], b: &[Cell<S>], dst: &[Cell<D>], f: impl Fn(S, S) -> D) {
    let len = dst.len().min(a.len()).min(b.len());
    let (a, a_rest) = a[..len].as_chunks::<LANES>();
    let (b, b_rest) = b[..len].as_chunks::<LANES>();
    let (dst, dst_rest) = dst[..len].as_chunks::<LANES>();
    for ((a, b), dst) in a.iter().zip(b).zip(dst) {
        let block: [D; LANES] = std::array::from_fn(|i| f(a[i].get(), b[i].get()));
        for (dst, value) in dst.iter().zip(block) {
            dst.set(value);
        }
    }
    for ((a, b), dst) in a_rest.iter().zip(b_rest).zip(dst_rest) {
        dst.set(f(a.get(), b.get()));
    }
}
