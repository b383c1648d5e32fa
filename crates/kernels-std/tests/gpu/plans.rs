//! For each kernel how valid arguments are made.

use squall_core::{DType, KernelDef};

use crate::Effort;
use crate::case::Make;
use crate::values::{Fill, Rule, rounding};

/// How a kernel's arguments are made.
pub(crate) struct Plan {
    kernel: &'static str,
    /// The sizes to try. What the three numbers mean is for `make` to say.
    pub(crate) shapes: fn(Effort) -> Vec<[u64; 3]>,
    /// In so many ways: apart and in place, with and without what is optional, right and wrong. The first two are tried with
    /// large shapes too.
    pub(crate) variants: u32,
    pub(crate) make: fn(&mut Make<'_>, [u64; 3]),
}

/// The plan of a kernel.
pub(crate) fn of(kernel: &KernelDef) -> Option<&'static Plan> {
    PLANS.iter().find(|plan| plan.kernel == kernel.name)
}

const fn plan(
    kernel: &'static str,
    shapes: fn(Effort) -> Vec<[u64; 3]>,
    variants: u32,
    make: fn(&mut Make<'_>, [u64; 3]),
) -> Plan {
    Plan { kernel, shapes, variants, make }
}

pub(crate) static PLANS: &[Plan] = &[
    plan("accuracy_count", classified, 3, accuracy_count),
    plan("add", lengths, 4, binary),
    plan("axpy", lengths, 4, axpy),
    plan("bias_rows", matrices, 2, bias_rows),
    plan("cast", lengths, 2, cast),
    plan("copy", lengths, 1, copy),
    plan("copy_2d", matrices, 3, copy_2d),
    plan("div", lengths, 5, div),
    plan("dot", lengths, 3, dot),
    plan("fill", lengths, 2, fill),
    plan("iota", lengths, 3, iota),
    plan("matmul_nn", products, 2, |make, dims| matmul(make, dims, false, false)),
    plan("matmul_nt", products, 2, |make, dims| matmul(make, dims, false, true)),
    plan("matmul_tn", products, 2, |make, dims| matmul(make, dims, true, false)),
    plan("mul", lengths, 4, binary),
    plan("permute", arrays, 4, permute),
    plan("relu", lengths, 2, unary),
    plan("relu_grad", lengths, 3, relu_grad),
    plan("scale", lengths, 2, scale),
    plan("sgd", lengths, 2, sgd),
    plan("softmax_cross_entropy", classified, 4, softmax_cross_entropy),
    plan("sqrt", lengths, 2, unary),
    plan("stencil5", matrices, 2, stencil5),
    plan("sub", lengths, 4, binary),
    plan("sum", lengths, 2, sum),
    plan("sum_rows", matrices, 2, sum_rows),
];

/// Numbers of elements: around packs, warps, blocks, and what a GPU holds at once.
fn lengths(effort: Effort) -> Vec<[u64; 3]> {
    let little = [0, 1, 2, 3, 7, 8, 17, 64, 257];
    let much = [
        5, 15, 16, 31, 32, 33, 63, 65, 127, 129, 255, 256, 1000, 1023, 1025, 4099, 70_001, 1_000_003,
        12_000_017,
    ];
    let more = if effort == Effort::Much { &much[..] } else { &[] };
    little.iter().chain(more).map(|&n| [n, 0, 0]).collect()
}

/// Rows and columns.
fn matrices(effort: Effort) -> Vec<[u64; 3]> {
    let little = [[0, 3], [3, 0], [1, 1], [3, 2], [2, 65], [70, 5]];
    let much = [
        [1, 300],
        [300, 1],
        [63, 33],
        [64, 33],
        [65, 10],
        [129, 257],
        [7, 4099],
        [4099, 7],
        [17, 4096], // whole packs of every dtype, and so below
        [65, 64],
        [3000, 528],
        [1000, 1003],
        [60_001, 10],
        [10, 60_001],
        [3001, 4003],
    ];
    let more = if effort == Effort::Much { &much[..] } else { &[] };
    little.iter().chain(more).map(|&[rows, cols]| [rows, cols, 0]).collect()
}

/// Rows of the product, terms of a sum, columns.
fn products(effort: Effort) -> Vec<[u64; 3]> {
    let little = [[0, 3, 4], [3, 0, 4], [3, 4, 0], [1, 1, 1], [5, 7, 3], [33, 17, 40]];
    let much = [
        [1, 300, 1],
        [64, 16, 64],
        [65, 17, 63],
        [128, 32, 128],
        [1, 5, 1000],
        [1000, 5, 1],
        [352, 64, 10],
        [130, 100, 257],
        [1283, 40, 1285], // tiles enough to fill a GPU
        [512, 512, 512],
    ];
    let more = if effort == Effort::Much { &much[..] } else { &[] };
    little.iter().chain(more).copied().collect()
}

/// Rows and classes.
fn classified(effort: Effort) -> Vec<[u64; 3]> {
    let little = [[0, 0], [1, 1], [3, 2], [5, 33], [40, 10]];
    let much = [
        [1, 1000],
        [255, 31],
        [256, 32],
        [257, 33],
        [9, 257],
        [1000, 64],
        [4097, 10],
        [3, 50_257],
        [100_003, 10],
        [2000, 1000],
    ];
    let more = if effort == Effort::Much { &much[..] } else { &[] };
    little.iter().chain(more).map(|&[rows, classes]| [rows, classes, 0]).collect()
}

/// The lengths of three axes.
fn arrays(effort: Effort) -> Vec<[u64; 3]> {
    let little = [[0, 3, 2], [1, 1, 1], [2, 3, 4], [5, 1, 7]];
    let much = [[33, 31, 4], [1, 129, 257], [64, 64, 64], [3, 1000, 333], [100, 100, 101], [7, 1200, 1401]];
    let more = if effort == Effort::Much { &much[..] } else { &[] };
    little.iter().chain(more).copied().collect()
}

fn binary(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    make.buffer("a", &[n], Fill::Bits);
    match make.variant {
        3 => make.same("b", "a"),
        _ => make.buffer("b", &[n], Fill::Bits),
    }
    match make.variant {
        0 => make.output("out", &[n]),
        2 => make.same("out", "b"),
        _ => make.same("out", "a"),
    }
}

/// As `binary`, without an integer zero to divide by; the last variant has one.
fn div(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    make.buffer("a", &[n], Fill::Bits);
    let by = if make.dtype("a").is_float() { Fill::Bits } else { Fill::NonZero };
    match make.variant {
        0 | 4 => {
            make.buffer("b", &[n], by);
            make.output("out", &[n]);
        }
        1 => {
            make.buffer("b", &[n], by);
            make.same("out", "a");
        }
        2 => {
            make.buffer("b", &[n], by);
            make.same("out", "b");
        }
        _ => {
            make.set_all("a", by);
            make.same("b", "a");
            make.output("out", &[n]);
        }
    }
    if make.variant == 4 && n > 0 {
        let index = make.random.below(n);
        make.set("b", index, 0);
    } else if n > 1 && make.variant != 3 {
        // The least integer over -1.
        let least = match make.dtype("a") {
            DType::I8 => i64::from(i8::MIN),
            DType::I32 => i64::from(i32::MIN),
            DType::I64 => i64::MIN,
            _ => return,
        };
        make.set("a", 1, least);
        make.set("b", 1, -1);
    }
}

fn unary(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    make.buffer("src", &[n], Fill::Bits);
    match make.variant {
        0 => make.output("dst", &[n]),
        _ => make.same("dst", "src"),
    }
}

fn cast(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    // Bits are mostly beyond any integer; the others are near its limits or fractions.
    make.buffer("src", &[n], if make.variant == 0 { Fill::Bits } else { Fill::Between(-300, 300) });
    make.output("dst", &[n]);
}

fn copy(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    make.buffer("src", &[n], Fill::Bits);
    make.output("dst", &[n]);
    make.rule("dst", Rule::Bits);
}

fn axpy(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    make.number("a");
    make.buffer("y", &[n], Fill::Fractions);
    match make.variant {
        0 | 1 => make.buffer("x", &[n], Fill::Fractions),
        _ => make.same("x", "y"),
    }
    make.flag("negate", make.variant % 2 == 1);
}

fn scale(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    make.buffer("data", &[n], Fill::Bits);
    make.number("factor");
}

fn sgd(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    make.buffer("param", &[n], Fill::Fractions);
    make.buffer("grad", &[n], Fill::Bits);
    make.number("lr");
}

fn fill(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    make.output("dst", &[n]);
    make.number("value");
}

fn iota(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    make.output("dst", &[n]);
    if make.variant > 0 {
        make.number("start");
    }
}

fn relu_grad(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    make.buffer("src", &[n], Fill::Bits);
    make.buffer("dst_grad", &[n], Fill::Bits);
    match make.variant {
        0 => make.output("src_grad", &[n]),
        1 => make.same("src_grad", "dst_grad"),
        _ => make.same("src_grad", "src"),
    }
}

fn bias_rows(make: &mut Make<'_>, [rows, cols, _]: [u64; 3]) {
    match make.variant {
        0 => make.buffer("data", &[rows, cols], Fill::Bits),
        // One axis that rows fill.
        _ => make.buffer("data", &[rows * cols], Fill::Bits),
    }
    make.buffer("bias", &[cols], Fill::Bits);
}

fn copy_2d(make: &mut Make<'_>, [rows, cols, _]: [u64; 3]) {
    let margin = 4 * u64::from(make.variant);
    make.buffer("src", &[rows + 1, cols + margin + 1], Fill::Bits);
    make.buffer("dst", &[rows + 2, cols + margin], Fill::Bits);
    make.rule("dst", Rule::Bits);
    make.size("rows", rows);
    make.size("cols", cols);
    if make.variant == 1 {
        make.size("src_at", 3);
        make.size("dst_at", 4);
    }
    if make.variant == 2 {
        // As packed rows in one axis.
        make.size("src_stride", cols);
        make.size("dst_stride", cols);
        make.size("src_at", 0);
    }
}

fn permute(make: &mut Make<'_>, [a, b, c]: [u64; 3]) {
    let ([dims, order], given): ([&[u64]; 2], bool) = match make.variant {
        0 => ([&[a * b, c], &[1, 0]], false),
        1 => ([&[a, b, c], &[2, 0, 1]], false),
        2 => ([&[a, b, c], &[0, 2, 1]], true),
        _ if a * b * c > 1000 => ([&[a, 1, b, c], &[3, 2, 1, 0]], false),
        _ => ([&[1, a, 2, b, 1, c, 2, 1], &[7, 2, 5, 0, 3, 6, 1, 4]], false),
    };
    let signed = |list: &[u64]| list.iter().map(|&n| n as i64).collect::<Vec<i64>>();
    let lengths: Vec<u64> = order.iter().map(|&axis| dims[axis as usize]).collect();
    match given {
        true => {
            make.buffer("src", &[dims.iter().product()], Fill::Bits);
            make.list("dims", &signed(dims));
        }
        false => make.buffer("src", dims, Fill::Bits),
    }
    make.output("dst", &lengths);
    make.rule("dst", Rule::Bits);
    make.list("order", &signed(order));
}

fn stencil5(make: &mut Make<'_>, [rows, cols, _]: [u64; 3]) {
    make.buffer("src", &[rows, cols], if make.variant == 0 { Fill::Fractions } else { Fill::Bits });
    make.output("dst", &[rows, cols]);
    make.number("k");
}

/// Terms of sums: first such that floats add them without rounding, whatever the order, and then others. Returns how a sum
/// of `terms` of these must agree: each addition rounds, and sums of so many fractions are about as large as their root.
fn terms(make: &Make<'_>, name: &str, terms: u64) -> (Fill, Rule) {
    if make.variant == 0 {
        return (Fill::Small, Rule::Same);
    }
    let (wide, narrow) = rounding(make.dtype(name));
    (Fill::Fractions, Rule::Within(wide * (8.0 + 4.0 * terms as f64), 2.0 * narrow))
}

fn sum(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    let (with, rule) = terms(make, "data", n);
    make.buffer("data", &[n], with);
    make.output("out", &[1]);
    make.rule("out", rule);
}

fn dot(make: &mut Make<'_>, [n, ..]: [u64; 3]) {
    let (with, rule) = terms(make, "a", n);
    make.buffer("a", &[n], with);
    match make.variant {
        // A sum of squares is as large as there are terms: it may round in proportion.
        2 => make.same("b", "a"),
        _ => make.buffer("b", &[n], with),
    }
    make.output("out", &[1]);
    let (wide, narrow) = rounding(make.dtype("a"));
    let squares = Rule::Within(0.0, wide * (8.0 + n as f64 / 4.0) + 2.0 * narrow);
    make.rule("out", if make.variant == 2 { squares } else { rule });
}

fn sum_rows(make: &mut Make<'_>, [rows, cols, _]: [u64; 3]) {
    let (with, rule) = terms(make, "data", rows);
    match rows {
        0..64 => make.buffer("data", &[rows * cols], with),
        _ => make.buffer("data", &[rows, cols], with),
    }
    make.output("out", &[cols]);
    make.rule("out", rule);
}

fn matmul(make: &mut Make<'_>, [m, k, n]: [u64; 3], a_transposed: bool, b_transposed: bool) {
    let (with, rule) = terms(make, "a", k);
    make.buffer("a", &if a_transposed { [k, m] } else { [m, k] }, with);
    make.buffer("b", &if b_transposed { [n, k] } else { [k, n] }, with);
    make.output("c", &[m, n]);
    make.rule("c", rule);
}

/// Labels, a few of rows that are left out. The variants' last has one of no class.
fn labels(make: &mut Make<'_>, [rows, classes, _]: [u64; 3], wrong: bool) {
    make.buffer("labels", &[rows], Fill::Between(-1, classes.max(1) as i64));
    if wrong && rows > 0 {
        make.all_or_nothing();
        // The first of them is told.
        for at in [rows - 1, make.random.below(rows)] {
            make.set("labels", at, classes as i64 + (rows % 2) as i64 * 1_000_000);
        }
    }
}

fn logits(make: &mut Make<'_>, [rows, classes, _]: [u64; 3], with: Fill) {
    match make.random.below(2) {
        0 => make.buffer("logits", &[rows, classes], with),
        _ => make.buffer("logits", &[rows * classes], with),
    }
}

fn accuracy_count(make: &mut Make<'_>, shape: [u64; 3]) {
    // Small numbers are often equal; any bits are often NaNs.
    logits(make, shape, if make.variant == 0 { Fill::Small } else { Fill::Bits });
    labels(make, shape, make.variant == 2);
    make.buffer("count", &[1], Fill::Bits);
}

fn softmax_cross_entropy(make: &mut Make<'_>, shape: [u64; 3]) {
    let [rows, classes, _] = shape;
    // Of any bits most rows have a NaN or one logit that outweighs all others by far.
    logits(make, shape, if make.variant == 2 { Fill::Bits } else { Fill::Fractions });
    labels(make, shape, make.variant == 3);
    make.output("loss", &[1]);
    make.output("grad", &[rows, classes]);
    // Exponentials differ in the last place or two; a half type's smallest numbers are coarse.
    let (wide, narrow) = rounding(make.dtype("logits"));
    let tiny = if make.dtype("logits") == DType::F16 { 6e-8 } else { 1e-38 };
    let sums = wide * (32.0 + 4.0 * (classes as f64).sqrt());
    make.rule("grad", Rule::Within(2.0 * sums / rows.max(1) as f64 + tiny, 2.0 * sums + 2.0 * narrow));
    make.rule("loss", Rule::Within(sums, wide * 8.0 * (rows as f64).sqrt() + 2.0 * narrow));
}
