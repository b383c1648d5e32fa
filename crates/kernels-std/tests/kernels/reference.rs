//! What each dtype's arithmetic must give, written apart from the kernels: integers by way of `i128`, half
//! types by way of `f32`.

use half::{bf16, f16};
use squall_core::Element;

pub(crate) trait Reference: Element + PartialOrd {
    /// Values where arithmetic goes wrong.
    fn edges() -> Vec<Self>;
    /// The nearest value; integers wrap.
    fn of(value: i64) -> Self;
    fn as_f64(self) -> f64;
    /// The nearest value, half types by way of `f32`; integers cut.
    fn from_f64(value: f64) -> Self;
    /// The nearest value, half types by way of `f32`; integers wrap.
    fn from_integer(value: i128) -> Self;
    /// An integer's value; 0 of a float.
    fn whole(self) -> i128;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    /// `self + a * x`, rounded as the dtype's sums are.
    fn add_product(self, a: Self, x: Self) -> Self;
    fn sub_product(self, a: Self, x: Self) -> Self;
    /// A sum, in order, in the type that the dtype's sums are taken in.
    fn sum(terms: impl Iterator<Item = (Self, Self)>) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Reference for $t {
            fn edges() -> Vec<$t> {
                vec![<$t>::MIN, <$t>::MIN + 1, <$t>::MAX, <$t>::MAX - 1, <$t>::MAX / 2, 0, 1, 0 as $t ^ !0, 2, 3, 7, 100]
            }
            fn of(value: i64) -> $t { value as $t }
            fn as_f64(self) -> f64 { self as f64 }
            fn from_f64(value: f64) -> $t { value as $t }
            fn from_integer(value: i128) -> $t { value as $t }
            fn whole(self) -> i128 { self as i128 }
            fn add(self, other: $t) -> $t { (self as i128 + other as i128) as $t }
            fn sub(self, other: $t) -> $t { (self as i128 - other as i128) as $t }
            fn mul(self, other: $t) -> $t { (self as i128).wrapping_mul(other as i128) as $t }
            fn div(self, other: $t) -> $t { (self as i128 / other as i128) as $t }
            fn add_product(self, a: $t, x: $t) -> $t { self.add(a.mul(x)) }
            fn sub_product(self, a: $t, x: $t) -> $t { self.sub(a.mul(x)) }
            fn sum(terms: impl Iterator<Item = ($t, $t)>) -> $t {
                terms.fold(0, |sum: $t, (a, b)| sum.add(Reference::mul(a, b)))
            }
        }
    )*};
}

macro_rules! floats {
    ($($t:ty: $wide:ty, $from:expr, $to:expr;)*) => {$(
        impl Reference for $t {
            fn edges() -> Vec<$t> {
                let values = [0.0, -0.0, 1.0, -1.0, 1.5, 0.1, -3.0, 1e4, 6e4, 1e-7, 1e38, -1e38, 1e-40];
                let mut edges: Vec<$t> = values.into_iter().map($to).collect();
                edges.extend([
                    <$t>::NAN, <$t>::INFINITY, <$t>::NEG_INFINITY, <$t>::MAX, <$t>::MIN, <$t>::MIN_POSITIVE,
                    <$t>::EPSILON,
                ]);
                edges
            }
            fn of(value: i64) -> $t { $to(value as $wide) }
            fn as_f64(self) -> f64 { self.into() }
            fn from_f64(value: f64) -> $t { $to(value as $wide) }
            fn from_integer(value: i128) -> $t { $to(value as $wide) }
            fn whole(self) -> i128 { 0 }
            fn add(self, other: $t) -> $t { $to($from(self) + $from(other)) }
            fn sub(self, other: $t) -> $t { $to($from(self) - $from(other)) }
            fn mul(self, other: $t) -> $t { $to($from(self) * $from(other)) }
            fn div(self, other: $t) -> $t { $to($from(self) / $from(other)) }
            fn add_product(self, a: $t, x: $t) -> $t { $to($from(self) + $from(a) * $from(x)) }
            fn sub_product(self, a: $t, x: $t) -> $t { $to($from(self) - $from(a) * $from(x)) }
            fn sum(terms: impl Iterator<Item = ($t, $t)>) -> $t {
                $to(terms.fold(0.0, |sum, (a, b)| sum + $from(a) * $from(b)))
            }
        }
    )*};
}

integers!(i8, u8, i32, u32, i64, u64);
floats! {
    f16: f32, f16::to_f32, f16::from_f32;
    bf16: f32, bf16::to_f32, bf16::from_f32;
    f32: f32, f32::from, f32::from;
    f64: f64, f64::from, f64::from;
}

/// Equal bit for bit, but for the payload of a NaN.
#[track_caller]
pub(crate) fn assert_same<T: Element>(found: &[T], wanted: &[T]) {
    assert_eq!(found.len(), wanted.len());
    for (index, (f, w)) in found.iter().zip(wanted).enumerate() {
        let bits = bytemuck::bytes_of(f) == bytemuck::bytes_of(w);
        #[expect(clippy::eq_op, reason = "only a NaN differs from itself")]
        let nans = f != f && w != w;
        assert!(bits || nans, "{}: element {index} is {f:?}, not {w:?}", T::DTYPE);
    }
}

/// Every pair of edges, as two columns.
pub(crate) fn edge_pairs<T: Reference>() -> (Vec<T>, Vec<T>) {
    let edges = T::edges();
    edges.iter().flat_map(|&a| edges.iter().map(move |&b| (a, b))).unzip()
}
