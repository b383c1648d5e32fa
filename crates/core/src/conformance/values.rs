//! Inputs, and the results that they must give.

use crate::conformance::Outcome;
use crate::dtype::DType;
use crate::element::to_f64;
use crate::reduce::ReduceOp;
use crate::scalar::Scalar;
use crate::with_element;

/// A small generator: the same numbers for the same seed, on every rank.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that begins anywhere.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        // SplitMix64: a counter, and a mixing of its bits.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// One of some things; `None` of none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len().max(1) as u64) as usize).copied()
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.bits() as u8).collect()
    }

    /// An input of that dtype: any integer, or a float whose sums and products over a few ranks are exact.
    pub(crate) fn value(&mut self, dtype: DType, reduce: ReduceOp) -> i128 {
        match (dtype.is_float(), reduce) {
            (false, _) => wrap(dtype, self.bits().into()),
            (true, ReduceOp::Prod) => self.pick(&[-2, -1, 1, 2]).unwrap_or(1),
            (true, _) => i128::from(self.below(17)) - 8,
        }
    }
}

/// An exact value, reduced into the range of its dtype if that is an integer's.
fn wrap(dtype: DType, value: i128) -> i128 {
    let bits = 8 * dtype.size() as u32;
    let low = value.rem_euclid(1 << bits);
    let signed = matches!(dtype, DType::I8 | DType::I32 | DType::I64);
    if signed && low >= 1 << (bits - 1) { low - (1 << bits) } else { low }
}

/// Appends a value as an element of `dtype`.
pub(crate) fn push(out: &mut Vec<u8>, dtype: DType, value: i128) {
    let mut element = [0; 8];
    // What does not fit 64 signed bits has the same bytes as its wrapped form.
    let size = match dtype {
        DType::U64 => {
            element = (value as u64).to_ne_bytes();
            8
        }
        _ => Scalar::Int(value as i64).write(dtype, &mut element),
    };
    out.extend_from_slice(&element[..size]);
}

/// Values as elements of `dtype`.
pub(crate) fn encode(dtype: DType, values: impl IntoIterator<Item = i128>) -> Vec<u8> {
    let mut out = Vec::new();
    values.into_iter().for_each(|value| push(&mut out, dtype, value));
    out
}

/// Appends the reduction of the ranks' values.
pub(crate) fn push_reduced(out: &mut Vec<u8>, dtype: DType, reduce: ReduceOp, values: &[i128]) {
    let fold = |combine: fn(i128, i128) -> i128| {
        let step = |a: i128, b: i128| {
            let exact = combine(a, b);
            if dtype.is_float() { exact } else { wrap(dtype, exact) }
        };
        values.iter().copied().reduce(step).unwrap_or(0)
    };
    let ranks = values.len() as i128;
    match reduce {
        ReduceOp::Sum => push(out, dtype, fold(|a, b| a + b)),
        // Of 64-bit factors the product fits 128 bits, but for its sign.
        ReduceOp::Prod => push(out, dtype, fold(i128::wrapping_mul)),
        ReduceOp::Max => push(out, dtype, fold(Ord::max)),
        ReduceOp::Min => push(out, dtype, fold(Ord::min)),
        ReduceOp::Avg if dtype.is_float() => {
            let mut element = [0; 8];
            let average = fold(|a, b| a + b) as f64 / ranks as f64;
            let size = Scalar::Float(average).write(dtype, &mut element);
            out.extend_from_slice(&element[..size]);
        }
        ReduceOp::Avg => push(out, dtype, fold(|a, b| a + b) / ranks),
    }
}

/// Whether two ranges of elements are equal; with `loose`, as far as differences in the order of rounding go: four
/// units in the last place. `what` begins the message.
pub(crate) fn equal(what: &str, dtype: DType, got: &[u8], want: &[u8], loose: bool) -> Outcome {
    if got == want {
        return Ok(());
    }
    let size = dtype.size() as usize;
    if got.len() != want.len() {
        return Err(format!("{what}: {} bytes, not {}", got.len(), want.len()));
    }
    for (index, (got, want)) in got.chunks(size).zip(want.chunks(size)).enumerate() {
        let (got, want) = with_element!(dtype, T => (
            to_f64(bytemuck::pod_read_unaligned::<T>(got)),
            to_f64(bytemuck::pod_read_unaligned::<T>(want)),
        ));
        let epsilon = match dtype {
            DType::F16 => f64::from(half::f16::EPSILON),
            DType::Bf16 => f64::from(half::bf16::EPSILON),
            DType::F32 => f64::from(f32::EPSILON),
            _ => f64::EPSILON,
        };
        let slack = if loose { 4.0 * epsilon * f64::abs(want) } else { 0.0 };
        let fits = (got - want).abs() <= slack || (got.is_nan() && want.is_nan());
        if !fits {
            return Err(format!("{what}: element {index} is {got}, not {want}"));
        }
    }
    // Equal as numbers: only integers beyond 2^53, zeros and NaNs differ in bytes then.
    if dtype.is_float() { Ok(()) } else { Err(format!("{what}: a large integer is not right")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_right() {
        let reduced = |dtype, reduce, values: &[i128]| {
            let mut out = Vec::new();
            push_reduced(&mut out, dtype, reduce, values);
            out
        };
        assert_eq!(reduced(DType::U8, ReduceOp::Avg, &[200, 100]), [22]);
        assert_eq!(reduced(DType::I8, ReduceOp::Sum, &[127, 1]), [128]);
        assert_eq!(reduced(DType::I32, ReduceOp::Avg, &[-3, -4]), (-3i32).to_ne_bytes());
        assert_eq!(
            reduced(DType::U64, ReduceOp::Prod, &[u64::MAX.into(), u64::MAX.into(), 3]),
            3u64.to_ne_bytes()
        );
        assert_eq!(reduced(DType::F32, ReduceOp::Avg, &[1, 0]), 0.5f32.to_ne_bytes());
        assert_eq!(reduced(DType::F64, ReduceOp::Min, &[1, -2, 3]), (-2f64).to_ne_bytes());
    }

    #[test]
    fn comparison_sees_a_difference() {
        let (one, near) = (1f32.to_ne_bytes(), (1.0 + f32::EPSILON).to_ne_bytes());
        assert!(equal("x", DType::F32, &one, &near, true).is_ok());
        assert_eq!(
            equal("x", DType::F32, &one, &2f32.to_ne_bytes(), true).unwrap_err(),
            "x: element 0 is 1, not 2"
        );
        assert!(equal("x", DType::F32, &one, &near, false).is_err());
        assert!(
            equal("x", DType::I64, &i64::MAX.to_ne_bytes(), &(i64::MAX - 1).to_ne_bytes(), true).is_err()
        );
        assert!(equal("x", DType::U8, &[1], &[1, 2], false).is_err());
    }
}
