use proptest::prelude::*;

use super::*;
use crate::with_element;

fn convert(value: impl Into<Scalar>, dtype: DType) -> Result<Exact, ValueError> {
    with_element!(dtype, T => T::from_exact(value.into().into()).map(Element::to_exact))
}

#[test]
fn integer_bounds() {
    for (dtype, low, high) in [
        (DType::I8, -128, 127),
        (DType::U8, 0, 255),
        (DType::I32, i128::from(i32::MIN), i128::from(i32::MAX)),
        (DType::U32, 0, i128::from(u32::MAX)),
        (DType::I64, i128::from(i64::MIN), i128::from(i64::MAX)),
        (DType::U64, 0, i128::from(u64::MAX)),
    ] {
        with_element!(dtype, T => {
            for inside in [low, high] {
                assert_eq!(T::from_exact(Exact::Int(inside)).unwrap().to_exact(), Exact::Int(inside));
            }
            for outside in [low - 1, high + 1] {
                let value = Exact::Int(outside);
                assert_eq!(T::from_exact(value), Err(ValueError::OutOfRange { value, dtype }));
            }
        });
    }
}

#[test]
fn whole_floats_become_integers() {
    assert_eq!(convert(2.0, DType::I32), Ok(Exact::Int(2)));
    assert_eq!(convert(-0.0, DType::U8), Ok(Exact::Int(0)));
    assert_eq!(convert(2.5, DType::I32).unwrap_err().to_string(), "2.5 is not a whole number, as i32 needs");
    assert_eq!(convert(300.0, DType::U8).unwrap_err().to_string(), "300.0 is out of range for u8");
    assert_eq!(convert(1e300, DType::U64).unwrap_err().to_string(), "1e300 is out of range for u64");
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(matches!(convert(odd, DType::I64), Err(ValueError::NotWhole { .. })), "{odd}");
    }
}

#[test]
fn floats_keep_infinities_and_refuse_to_make_them() {
    for &dtype in DType::FLOATS {
        assert_eq!(convert(f64::INFINITY, dtype), Ok(Exact::Float(f64::INFINITY)));
        assert!(matches!(convert(f64::NAN, dtype), Ok(Exact::Float(nan)) if nan.is_nan()));
    }
    assert_eq!(convert(65519.0, DType::F16), Ok(Exact::Float(65504.0)));
    assert_eq!(convert(65520, DType::F16).unwrap_err().to_string(), "65520 is out of range for f16");
    assert_eq!(convert(1e39, DType::F32).unwrap_err().to_string(), "1e39 is out of range for f32");
    assert_eq!(convert(3.4e38, DType::Bf16).unwrap_err().to_string(), "3.4e38 is out of range for bf16");
}

#[test]
fn halves_are_rounded_once() {
    // Just above the tie between 1 and the next number: nearest f32 is the tie itself.
    let f16_tie = 1.0 + 2f64.powi(-11);
    assert_eq!(convert(f16_tie, DType::F16), Ok(Exact::Float(1.0)));
    assert_eq!(convert(f16_tie + 2f64.powi(-40), DType::F16), Ok(Exact::Float(1.0 + 2f64.powi(-10))));
    let bf16_tie = 1.0 + 2f64.powi(-8);
    assert_eq!(convert(bf16_tie, DType::Bf16), Ok(Exact::Float(1.0)));
    assert_eq!(convert(bf16_tie + 2f64.powi(-40), DType::Bf16), Ok(Exact::Float(1.0 + 2f64.powi(-7))));
    let odd_tie = 1.0 + 3.0 * 2f64.powi(-8);
    assert_eq!(convert(odd_tie - 2f64.powi(-40), DType::Bf16), Ok(Exact::Float(1.0 + 2f64.powi(-7))));
    let int_tie = (1i64 << 60) + (1 << 52);
    assert_eq!(convert(int_tie, DType::Bf16), Ok(Exact::Float(2f64.powi(60))));
    assert_eq!(convert(int_tie + 1, DType::Bf16), Ok(Exact::Float(2f64.powi(60) + 2f64.powi(53))));
    assert_eq!(convert(-int_tie - 1, DType::Bf16), Ok(Exact::Float(-2f64.powi(60) - 2f64.powi(53))));
}

#[test]
fn the_smallest_halves() {
    let least = 2f64.powi(-24);
    assert_eq!(convert(least / 2.0, DType::F16), Ok(Exact::Float(0.0)));
    assert_eq!(convert(least / 2.0 * 1.000001, DType::F16), Ok(Exact::Float(least)));
    assert_eq!(convert(-1e-300, DType::F16).unwrap().to_string(), "-0.0");
    let least = 2f64.powi(-133);
    assert_eq!(convert(least / 2.0 * (1.0 + f64::EPSILON), DType::Bf16), Ok(Exact::Float(least)));
}

proptest! {
    /// The result is a nearest one: no other half lies closer.
    #[test]
    fn halves_are_nearest(bits in any::<u64>(), exponent in -30i32..20) {
        let value = (1.0 + (bits >> 12) as f64 * 2f64.powi(-52)) * 2f64.powi(exponent - (bits & 1) as i32);
        prop_assume!(value < 65504.0);
        for dtype in [DType::F16, DType::Bf16] {
            let Ok(Exact::Float(got)) = convert(value, dtype) else { panic!("{value} {dtype}") };
            let (below, above) = match dtype {
                DType::F16 => {
                    let bits = f16::from_f64(got).to_bits();
                    (f16::from_bits(bits.saturating_sub(1)).to_f64(), f16::from_bits(bits + 1).to_f64())
                }
                _ => {
                    let bits = bf16::from_f64(got).to_bits();
                    (bf16::from_bits(bits.saturating_sub(1)).to_f64(), bf16::from_bits(bits + 1).to_f64())
                }
            };
            let error = (got - value).abs();
            prop_assert!(error <= (below - value).abs() && error <= (above - value).abs());
        }
    }
}

#[test]
fn what_does_not_fit_is_taken_to_the_nearest() {
    assert_eq!(u8::nearest(Exact::Int(-3)), 0);
    assert_eq!(i64::nearest(Exact::Int(i128::MAX)), i64::MAX);
    assert_eq!(i32::nearest(Exact::Float(-2.5)), -2);
    assert_eq!(i32::nearest(Exact::Float(f64::NAN)), 0);
    assert_eq!(u64::nearest(Exact::Float(1e300)), u64::MAX);
    assert_eq!(f16::nearest(Exact::Int(1 << 20)), f16::INFINITY);
    assert_eq!(f32::nearest(Exact::Float(-1e39)), f32::NEG_INFINITY);
}

#[test]
fn as_f64() {
    assert_eq!(to_f64(-7i8), -7.0);
    assert_eq!(to_f64(u64::MAX), 18446744073709551616.0);
    assert_eq!(to_f64(bf16::from_f32(1.5)), 1.5);
}
