//! What buffers are filled with, and how results are compared.

use squall_core::conformance::Random;
use squall_core::element::to_f64;
use squall_core::{DType, Element, Scalar, with_element};

/// Elements to choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fill {
    /// Any bits; NaNs, infinities and the smallest numbers among them.
    Bits,
    /// Whole numbers from -4 to 4, or from 0 to 8 of an unsigned dtype: floats add them without rounding.
    Small,
    /// Floats between -1 and 1; any integer.
    Fractions,
    /// Any bits but those of zero.
    NonZero,
    /// Whole numbers from the first to below the second.
    Between(i64, i64),
}

/// After so many elements they are repeated: a prime, so that no row or pack is like its neighbours.
const PERIOD: u64 = 99_991;

/// `len` elements.
pub(crate) fn fill(random: &mut Random, dtype: DType, len: u64, fill: Fill) -> Vec<u8> {
    let base = with_element!(dtype, T => {
        let mut base = Vec::new();
        for _ in 0..len.min(PERIOD) {
            base.extend_from_slice(bytemuck::bytes_of(&element::<T>(random, fill)));
        }
        base
    });
    base.iter().copied().cycle().take((len * dtype.size()) as usize).collect()
}

fn element<T: Element>(random: &mut Random, fill: Fill) -> T {
    let whole = |low: i64, high: i64, random: &mut Random| {
        Scalar::Int(low + random.below((high - low).max(1) as u64) as i64).to::<T>()
    };
    let signed = Scalar::Int(-1).fits(T::DTYPE);
    match fill {
        Fill::Bits => bytemuck::pod_read_unaligned(&random.bits().to_ne_bytes()[..size_of::<T>()]),
        Fill::Small if signed => whole(-4, 5, random),
        Fill::Small => whole(0, 9, random),
        Fill::Fractions if T::DTYPE.is_float() => {
            Scalar::Float(random.bits() as i64 as f64 / 2f64.powi(63)).to()
        }
        Fill::Fractions => element(random, Fill::Bits),
        Fill::NonZero => loop {
            let value: T = element(random, Fill::Bits);
            if value != Scalar::Int(0).to() {
                break value;
            }
        },
        Fill::Between(low, high) => whole(low, high, random),
    }
}

/// How a result must agree with the host form's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// In every bit.
    Bits,
    /// In every bit, but for those of a NaN.
    Same,
    /// Floats up to an absolute difference and one in parts of the value; integers in every bit.
    Within(f64, f64),
}

/// Half the distance from 1 to the next number, in the type that a dtype's arithmetic is done in and in the dtype itself.
pub(crate) fn rounding(dtype: DType) -> (f64, f64) {
    let (single, double) = (f64::from(f32::EPSILON) / 2.0, f64::EPSILON / 2.0);
    match dtype {
        DType::F16 => (single, 2f64.powi(-11)),
        DType::Bf16 => (single, 2f64.powi(-8)),
        DType::F64 => (double, double),
        _ => (single, single),
    }
}

/// The first difference between two ranges of elements, in words.
pub(crate) fn difference(dtype: DType, rule: Rule, got: &[u8], want: &[u8]) -> Option<String> {
    if got == want {
        return None;
    }
    let size = dtype.size() as usize;
    with_element!(dtype, T => got.chunks_exact(size).zip(want.chunks_exact(size)).enumerate().find_map(
        |(index, (got, want))| {
            let (got, want): (T, T) = (bytemuck::pod_read_unaligned(got), bytemuck::pod_read_unaligned(want));
            (!agree(rule, got, want)).then(|| format!("element {index} is {got:?}, not {want:?}"))
        },
    ))
}

fn agree<T: Element>(rule: Rule, got: T, want: T) -> bool {
    if bytemuck::bytes_of(&got) == bytemuck::bytes_of(&want) {
        return true;
    }
    let (a, b) = (to_f64(got), to_f64(want));
    match rule {
        Rule::Bits => false,
        _ if a.is_nan() && b.is_nan() => true,
        Rule::Within(absolute, relative) if T::DTYPE.is_float() => {
            (a - b).abs() <= absolute + relative * b.abs()
        }
        Rule::Same | Rule::Within(..) => false,
    }
}
