//! Matrix products, with either factor transposed.

use std::cell::Cell;

use squall_core::{
    ArgError, Args, Cover, CudaSource, HostCall, KernelDef, ParamDef, Presence, Type, with_element,
};

use crate::check::{ANY, holds_matrix};
use crate::numeric::{Arithmetic, Number};
use crate::{cuda_text, example};

const A: ParamDef = ParamDef::read("a", ANY, "[m, k]");
const A_TRANSPOSED: ParamDef = ParamDef { doc: "[k, m]", ..A };
const B: ParamDef = ParamDef::read("b", Type::Same("a"), "[k, n]");
const B_TRANSPOSED: ParamDef = ParamDef { doc: "[n, k]", ..B };
const C: ParamDef = ParamDef::write("c", Type::Same("a"), "[m, n]");

const fn m(from: Presence) -> ParamDef {
    ParamDef::size("m", from, "rows of the product")
}

const fn k(from: Presence) -> ParamDef {
    ParamDef::size("k", from, "length of the sums")
}

const fn n(from: Presence) -> ParamDef {
    ParamDef::size("n", from, "columns of the product")
}

/// What the three products share. A thread (x, y) makes the element in column x and row y.
const PRODUCT: KernelDef = KernelDef { covers: &[Cover::Size("n"), Cover::Size("m")], ..KernelDef::EMPTY };

/// The example of a product of `a` and `b` of the given shapes into a 2 × 4 matrix, with sums of length 3.
macro_rules! product_example {
    ($name:literal, $a:literal, $b:literal) => {
        concat!(
            example!(
                $name,
                r#"
[buffer.c]
dtype = "f32"
shape = [2, 4]
save = "c-{rank}.npy"
"#
            ),
            "\n[buffer.a]\ndtype = \"f32\"\nshape = ",
            $a,
            "\ninit = { iota = true }\n",
            "\n[buffer.b]\ndtype = \"f32\"\nshape = ",
            $b,
            "\ninit = { iota = true }\n",
            "\n[[task]]\nkernel = \"",
            $name,
            r#""
args = { a = "a", b = "b", c = "c" }
grid = { threads = [4, 2], block = [16, 16] }
"#
        )
    };
}

/// `c = a · b`.
pub static MATMUL_NN: KernelDef = KernelDef {
    name: "matmul_nn",
    summary: "c[i, j] = the sum over l of a[i, l] * b[l, j]; integers wrap",
    params: &[A, B, C, m(Presence::Dim("a", 0)), k(Presence::Dim("a", 1)), n(Presence::Dim("b", 1))],
    check: &|args| check(args, ["m", "k"], ["k", "n"]),
    example: product_example!("matmul_nn", "[2, 3]", "[3, 4]"),
    host: Some(&matmul_nn),
    cuda: Some(CudaSource::new(cuda_text!("sums.cuh", "matmul.cuh", "matmul_nn.cu"), "matmul_nn")),
    ..PRODUCT
};

fn matmul_nn(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("c"), T => product::<T>(call, false, false))
}

/// `c = aᵀ · b`.
pub static MATMUL_TN: KernelDef = KernelDef {
    name: "matmul_tn",
    summary: "c[i, j] = the sum over l of a[l, i] * b[l, j]; integers wrap",
    params: &[
        A_TRANSPOSED,
        B,
        C,
        m(Presence::Dim("a", 1)),
        k(Presence::Dim("a", 0)),
        n(Presence::Dim("b", 1)),
    ],
    check: &|args| check(args, ["k", "m"], ["k", "n"]),
    example: product_example!("matmul_tn", "[3, 2]", "[3, 4]"),
    host: Some(&matmul_tn),
    cuda: Some(CudaSource::new(cuda_text!("sums.cuh", "matmul.cuh", "matmul_tn.cu"), "matmul_tn")),
    ..PRODUCT
};

fn matmul_tn(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("c"), T => product::<T>(call, true, false))
}

/// `c = a · bᵀ`.
pub static MATMUL_NT: KernelDef = KernelDef {
    name: "matmul_nt",
    summary: "c[i, j] = the sum over l of a[i, l] * b[j, l]; integers wrap",
    params: &[
        A,
        B_TRANSPOSED,
        C,
        m(Presence::Dim("a", 0)),
        k(Presence::Dim("a", 1)),
        n(Presence::Dim("b", 0)),
    ],
    check: &|args| check(args, ["m", "k"], ["n", "k"]),
    example: product_example!("matmul_nt", "[2, 3]", "[4, 3]"),
    host: Some(&matmul_nt),
    cuda: Some(CudaSource::new(cuda_text!("sums.cuh", "matmul.cuh", "matmul_nt.cu"), "matmul_nt")),
    ..PRODUCT
};

fn matmul_nt(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("c"), T => product::<T>(call, false, true))
}

fn check(args: &Args<'_>, a: [&str; 2], b: [&str; 2]) -> Result<(), ArgError> {
    holds_matrix(args, "a", a)?;
    holds_matrix(args, "b", b)?;
    holds_matrix(args, "c", ["m", "n"])
}

/// Rows, columns and terms that are worked on together. A tile of each factor and one of sums lie on the stack
/// and stay in the cache: 96 KiB at most.
const TILE: usize = 64;
/// Rows and columns whose sums stay in registers: with 16 bytes each, four for `f32` and eight for `f64`.
const ROWS: usize = 2;
const COLS: usize = 8;

/// A factor seen as panels: its element (lane, depth) lies at `lane * lane_step + depth * depth_step`, where a
/// lane is a row of the first factor or a column of the second, and depth counts the terms of a sum.
struct Factor<'a, T> {
    cells: &'a [Cell<T>],
    lane_step: usize,
    depth_step: usize,
}

impl<T: Number> Factor<'_, T> {
    /// Writes lanes `lane..lane + lanes` of terms `depth..depth + depths` to panels of `L` lanes, `TILE` terms
    /// a panel. Lanes that fill up the last panel keep what they had; nobody reads their sums.
    fn pack<const L: usize>(
        &self,
        (lane, lanes): (usize, usize),
        (depth, depths): (usize, usize),
        panels: &mut [[T::Wide; L]],
    ) {
        for (panel, first) in panels.chunks_mut(TILE).zip((0..lanes).step_by(L)) {
            for (d, packed) in panel.iter_mut().take(depths).enumerate() {
                let at = (lane + first) * self.lane_step + (depth + d) * self.depth_step;
                let cells = self.cells[at..].iter().step_by(self.lane_step);
                for (packed, cell) in packed.iter_mut().zip(cells).take(lanes - first) {
                    *packed = cell.get().widen();
                }
            }
        }
    }
}

/// `c = a · b` for the elements of c that have a thread. Every element adds its terms in order, from zero on.
fn product<T: Number>(call: &HostCall<'_>, a_transposed: bool, b_transposed: bool) -> Result<(), String> {
    let (m, k, n) = (call.size("m"), call.size("k"), call.size("n"));
    let (rows, cols) = (m.min(call.launched()[1]), n.min(call.launched()[0]));
    let (lane_step, depth_step) = if a_transposed { (1, m) } else { (k, 1) };
    let a = Factor::<T> { cells: call.cells("a")?, lane_step, depth_step };
    let (lane_step, depth_step) = if b_transposed { (k, 1) } else { (1, n) };
    let b = Factor::<T> { cells: call.cells("b")?, lane_step, depth_step };
    let c = call.cells::<T>("c")?;

    let mut a_panels = [[T::Wide::ZERO; ROWS]; TILE / ROWS * TILE];
    let mut b_panels = [[T::Wide::ZERO; COLS]; TILE / COLS * TILE];
    for i in (0..rows).step_by(TILE) {
        let height = TILE.min(rows - i);
        for j in (0..cols).step_by(TILE) {
            let width = TILE.min(cols - j);
            let mut sums = [[[[T::Wide::ZERO; COLS]; ROWS]; TILE / COLS]; TILE / ROWS];
            for l in (0..k).step_by(TILE) {
                let depth = TILE.min(k - l);
                a.pack((i, height), (l, depth), &mut a_panels);
                b.pack((j, width), (l, depth), &mut b_panels);
                for (a, sums) in a_panels.chunks(TILE).zip(&mut sums).take(height.div_ceil(ROWS)) {
                    for (b, sums) in b_panels.chunks(TILE).zip(sums).take(width.div_ceil(COLS)) {
                        add_products(&a[..depth], &b[..depth], sums);
                    }
                }
            }
            for (y, row) in c.chunks_exact(n).skip(i).take(height).enumerate() {
                for (x, cell) in row.iter().skip(j).take(width).enumerate() {
                    cell.set(T::narrow(sums[y / ROWS][x / COLS][y % ROWS][x % COLS]));
                }
            }
        }
    }
    Ok(())
}

/// Adds the products of two panels, term by term, to a block of sums.
fn add_products<W: Arithmetic>(a: &[[W; ROWS]], b: &[[W; COLS]], sums: &mut [[W; COLS]; ROWS]) {
    let mut block = *sums;
    for (a, b) in a.iter().zip(b) {
        for (sums, x) in block.iter_mut().zip(a) {
            for (sum, y) in sums.iter_mut().zip(b) {
                *sum = sum.plus(x.times(*y));
            }
        }
    }
    *sums = block;
}
