use half::{bf16, f16};
use proptest::prelude::*;

use super::super::testing::{any_dtype, bytes};
use super::*;

#[test]
fn fills() {
    assert_eq!(fill(DType::F32, 3, Scalar::Int(2)).unwrap(), bytes(&[2f32; 3]));
    assert_eq!(fill(DType::F16, 2, Scalar::Float(0.1)).unwrap(), bytes(&[f16::from_f32(0.1); 2]));
    assert_eq!(fill(DType::I64, 1, Scalar::Int(i64::MIN)).unwrap(), bytes(&[i64::MIN]));
    assert!(fill(DType::U8, 0, Scalar::Int(7)).unwrap().is_empty());
}

#[test]
fn values_that_do_not_fit() {
    let refusal = |dtype, value| fill(dtype, 0, value).unwrap_err().to_string();
    assert_eq!(refusal(DType::U8, Scalar::Int(300)), "300 is out of range for u8");
    assert_eq!(refusal(DType::I32, Scalar::Float(2.5)), "2.5 is not a whole number, as i32 needs");
    assert_eq!(refusal(DType::F16, Scalar::Float(1e6)), "1000000.0 is out of range for f16");
    let given = [Scalar::Int(0), Scalar::Int(1), Scalar::Int(-1)];
    assert_eq!(
        values(DType::U32, 3, &given).unwrap_err().to_string(),
        "element 2: -1 is out of range for u32"
    );
    assert_eq!(iota(DType::I8, 200).unwrap_err().to_string(), "element 128: 128 is out of range for i8");
}

#[test]
fn rules_of_the_index() {
    let squares = fill_with(DType::I32, 4, |i| Ok::<_, InitError>(Scalar::Int(i as i64 * i as i64)));
    assert_eq!(squares.unwrap(), bytes(&[0, 1, 4, 9]));
    // The caller's own error comes through.
    #[derive(Debug, PartialEq)]
    struct Mine(String);
    impl From<InitError> for Mine {
        fn from(error: InitError) -> Mine {
            Mine(error.to_string())
        }
    }
    let rule = |i| if i < 2 { Ok(Scalar::Float(0.5)) } else { Err(Mine("third".into())) };
    assert_eq!(fill_with(DType::F64, 3, rule), Err(Mine("third".into())));
    assert_eq!(
        fill_with(DType::U8, 3, rule),
        Err(Mine("element 0: 0.5 is not a whole number, as u8 needs".into()))
    );
}

#[test]
fn iotas() {
    assert_eq!(iota(DType::U64, 3).unwrap(), bytes(&[0u64, 1, 2]));
    assert_eq!(iota(DType::I8, 128).unwrap().last(), Some(&127));
    let long = iota(DType::Bf16, 260).unwrap();
    assert_eq!(&long[2 * 257..2 * 258], bytes(&[bf16::from_f32(256.0)]));
}

#[test]
fn lists() {
    let given = [Scalar::Int(1), Scalar::Float(2.5)];
    assert_eq!(values(DType::F64, 2, &given).unwrap(), bytes(&[1.0, 2.5]));
    assert_eq!(values(DType::F64, 3, &given).unwrap_err().to_string(), "2 values for 3 elements");
    assert_eq!(values(DType::F64, 1, &given), Err(InitError::Count { expected: 1, found: 2 }));
}

#[test]
fn more_than_memory_is_an_error() {
    for count in [u64::MAX, 1 << 61, 1 << 50] {
        let error = fill(DType::F64, count, Scalar::Int(0)).unwrap_err();
        assert_eq!(error.to_string(), format!("no memory for {count} elements of f64"));
    }
}

fn array<T: Element>(elements: &[T]) -> Array {
    Array { dtype: T::DTYPE, shape: vec![elements.len() as u64], bytes: bytes(elements) }
}

#[test]
fn conversions() {
    assert_eq!(array(&[1.5f64, 1e-3]).convert(DType::F32).unwrap(), array(&[1.5f32, 1e-3]));
    assert_eq!(array(&[u64::MAX]).convert(DType::F32).unwrap(), array(&[u64::MAX as f32]));
    assert_eq!(array(&[u64::MAX]).convert(DType::U64).unwrap(), array(&[u64::MAX]));
    assert_eq!(array(&[2.0f32, -3.0]).convert(DType::I8).unwrap(), array(&[2i8, -3]));
    assert_eq!(array(&[f32::NAN, f32::INFINITY]).convert(DType::F16).unwrap().bytes.len(), 4);
    let refusal = |array: Array, dtype| array.convert(dtype).unwrap_err().to_string();
    assert_eq!(
        refusal(array(&[1.0f32, 2.5]), DType::I32),
        "element 1: 2.5 is not a whole number, as i32 needs"
    );
    assert_eq!(
        refusal(array(&[u64::MAX]), DType::I64),
        "element 0: 18446744073709551615 is out of range for i64"
    );
    assert_eq!(
        refusal(array(&[f64::MAX]), DType::F32),
        "element 0: 1.7976931348623157e308 is out of range for f32"
    );
}

proptest! {
    /// Whatever converts and comes back unchanged in value was converted exactly.
    #[test]
    fn small_numbers_pass_through_every_dtype(from in any_dtype(), to in any_dtype(), number in 0i64..128) {
        let original = Array { dtype: from, shape: vec![1], bytes: fill(from, 1, Scalar::Int(number)).unwrap() };
        let there = original.clone().convert(to).unwrap();
        prop_assert_eq!(&there.bytes, &fill(to, 1, Scalar::Int(number)).unwrap());
        prop_assert_eq!(there.convert(from).unwrap(), original);
    }
}
