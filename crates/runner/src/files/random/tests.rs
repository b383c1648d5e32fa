use half::{bf16, f16};
use squall_core::Element;

use super::*;

fn read<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

fn floats(low: f64, high: f64) -> (Scalar, Scalar) {
    (Scalar::Float(low), Scalar::Float(high))
}

/// The test vectors that the generator's authors publish with it.
#[test]
fn philox_is_philox() {
    assert_eq!(philox([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
    assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
    assert_eq!(
        philox([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
        [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
    );
}

#[test]
fn an_element_depends_on_seed_name_rank_and_index_alone() {
    let (low, high) = floats(0.0, 1.0);
    let make = |count, stream: Stream| read::<f64>(&uniform(DType::F64, count, low, high, &stream).unwrap());
    let base = make(100, Stream::new(7, "x", 0));
    assert_eq!(base, make(100, Stream::new(7, "x", 0)));
    assert_eq!(base[..10], make(10, Stream::new(7, "x", 0)), "a longer buffer begins alike");
    for other in
        [Stream::new(8, "x", 0), Stream::new(7, "y", 0), Stream::new(7, "x", 1), Stream::new(7, "", 0)]
    {
        let other = make(100, other);
        assert!(base.iter().zip(&other).all(|(a, b)| a != b));
    }
}

/// Fixed bits: what a run made with one release must come out again with the next, and on any machine.
#[test]
fn values_never_change() {
    let stream = Stream::new(7, "grads", 1);
    let (low, high) = floats(-1.0, 1.0);
    let even = uniform(DType::F64, 3, low, high, &stream).unwrap();
    assert_eq!(read::<f64>(&even), [0.8027909711502528, -0.17647212429520964, -0.5982375579079158]);
    let bell = normal(DType::F64, 3, 0.0, 1.0, &stream).unwrap();
    assert_eq!(read::<f64>(&bell), [-1.0551671380461223, -0.582343951349871, 0.6281967124945014]);
    let whole = uniform(DType::I32, 3, Scalar::Int(0), Scalar::Int(1000), &stream).unwrap();
    assert_eq!(read::<i32>(&whole), [901, 411, 200]);
}

#[test]
fn uniform_numbers_fill_their_interval() {
    let stream = Stream::new(1, "u", 0);
    let (low, high) = floats(-2.0, 6.0);
    let all = read::<f32>(&uniform(DType::F32, 100_000, low, high, &stream).unwrap());
    assert!(all.iter().all(|x| (-2.0..6.0).contains(x)));
    let mut eighths = [0; 8];
    for x in all {
        eighths[(x + 2.0) as usize] += 1;
    }
    // Standard deviation 105; the values are fixed, so this cannot fail by chance.
    assert!(eighths.iter().all(|&count: &i32| (count - 12_500).abs() < 420), "{eighths:?}");
}

#[test]
fn rounding_never_reaches_the_upper_bound() {
    let stream = Stream::new(1, "u", 0);
    let (low, high) = floats(0.0, 1.0);
    let halves = read::<bf16>(&uniform(DType::Bf16, 100_000, low, high, &stream).unwrap());
    assert!(halves.iter().all(|x| (0.0..1.0).contains(&x.to_f64())));
    // Only one number is in the interval, and every draw above its middle rounds to the bound.
    let (low, high) = floats(1.0, 1.0 + 2f64.powi(-10));
    let halves = read::<f16>(&uniform(DType::F16, 1000, low, high, &stream).unwrap());
    assert!(halves.iter().all(|&x| x == f16::ONE));
}

#[test]
fn uniform_integers() {
    let stream = Stream::new(1, "i", 0);
    let all = read::<i8>(&uniform(DType::I8, 10_000, Scalar::Int(-2), Scalar::Int(2), &stream).unwrap());
    for value in -2..2 {
        let count = all.iter().filter(|&&x| x == value).count();
        assert!(count.abs_diff(2500) < 200, "{value}: {count}");
    }
    assert!(all.iter().all(|x| (-2..2).contains(x)));
    // The whole range of a dtype, whose end is no number of it.
    let all = read::<u8>(&uniform(DType::U8, 10_000, Scalar::Int(0), Scalar::Int(256), &stream).unwrap());
    assert_eq!((all.iter().min(), all.iter().max()), (Some(&0), Some(&255)));
    let wide = uniform(DType::I64, 1000, Scalar::Int(i64::MIN), Scalar::Int(i64::MAX), &stream).unwrap();
    assert!(read::<i64>(&wide).iter().any(|&x| x < 0) && read::<i64>(&wide).iter().any(|&x| x > 0));
}

#[test]
fn intervals_that_are_none() {
    let stream = Stream::new(1, "u", 0);
    let refusal = |dtype, low, high| uniform(dtype, 1, low, high, &stream).unwrap_err().to_string();
    let wanted = "the lower bound must lie below the upper one, at a finite distance";
    let (low, high) = floats(1.0, 1.0);
    assert_eq!(refusal(DType::F32, low, high), format!("1.0 to 1.0 is no interval of f32: {wanted}"));
    let (low, high) = floats(1.0001, 1.0002);
    assert_eq!(refusal(DType::F16, low, high), format!("1.0001 to 1.0002 is no interval of f16: {wanted}"));
    let (low, high) = floats(f64::NAN, 1.0);
    assert_eq!(refusal(DType::F64, low, high), format!("NaN to 1.0 is no interval of f64: {wanted}"));
    let (low, high) = floats(0.0, f64::INFINITY);
    assert_eq!(refusal(DType::F64, low, high), format!("0.0 to inf is no interval of f64: {wanted}"));
    assert_eq!(
        refusal(DType::I8, Scalar::Int(5), Scalar::Int(2)),
        format!("5 to 2 is no interval of i8: {wanted}")
    );
    assert_eq!(refusal(DType::I8, Scalar::Int(0), Scalar::Int(129)), "129 is out of range for i8");
    assert_eq!(refusal(DType::U8, Scalar::Int(-1), Scalar::Int(5)), "-1 is out of range for u8");
    assert_eq!(
        refusal(DType::U8, Scalar::Float(0.5), Scalar::Int(5)),
        "0.5 is not a whole number, as u8 needs"
    );
    assert_eq!(
        refusal(DType::U8, Scalar::Int(0), Scalar::Float(1.5)),
        "1.5 is not a whole number, as u8 needs"
    );
}

#[test]
fn normal_numbers_have_their_moments() {
    let stream = Stream::new(1, "n", 0);
    let all = read::<f64>(&normal(DType::F64, 100_000, 3.0, 2.0, &stream).unwrap());
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    let moment = |power| all.iter().map(|x| ((x - mean) / 2.0).powi(power)).sum::<f64>() / n;
    assert!((mean - 3.0).abs() < 0.025, "{mean}");
    assert!((moment(2) - 1.0).abs() < 0.02 && moment(3).abs() < 0.03 && (moment(4) - 3.0).abs() < 0.12);
    let within_one = all.iter().filter(|x| (*x - 3.0).abs() < 2.0).count() as f64 / n;
    assert!((within_one - 0.6827).abs() < 0.006, "{within_one}");
}

#[test]
fn normal_numbers_in_every_float() {
    let stream = Stream::new(1, "n", 0);
    let wide = read::<f64>(&normal(DType::F64, 50, 0.0, 1.0, &stream).unwrap());
    let same = |bytes: Vec<u8>, back: fn(&[u8]) -> Vec<f64>, digits: i32| {
        back(&bytes).iter().zip(&wide).all(|(a, b)| (a - b).abs() <= b.abs() * 2f64.powi(-digits))
    };
    let back32 = |bytes: &[u8]| read::<f32>(bytes).iter().map(|&x| x.into()).collect();
    let back16 = |bytes: &[u8]| read::<f16>(bytes).iter().map(|&x| x.into()).collect();
    let back_b = |bytes: &[u8]| read::<bf16>(bytes).iter().map(|&x| x.into()).collect();
    assert!(same(normal(DType::F32, 50, 0.0, 1.0, &stream).unwrap(), back32, 24));
    assert!(same(normal(DType::F16, 50, 0.0, 1.0, &stream).unwrap(), back16, 11));
    assert!(same(normal(DType::Bf16, 50, 0.0, 1.0, &stream).unwrap(), back_b, 8));
    assert_eq!(read::<f32>(&normal(DType::F32, 3, 5.0, 0.0, &stream).unwrap()), [5.0; 3]);
}

#[test]
fn normal_distributions_that_are_none() {
    let stream = Stream::new(1, "n", 0);
    let refusal = |dtype, mean, std| normal(dtype, 9, mean, std, &stream).unwrap_err().to_string();
    assert_eq!(
        refusal(DType::I32, 0.0, 1.0),
        "a normal distribution needs a floating-point buffer, this one is i32"
    );
    for (mean, std) in [(0.0, -1.0), (f64::NAN, 1.0), (0.0, f64::INFINITY)] {
        let error = refusal(DType::F32, mean, std);
        assert!(error.contains(&format!("mean {mean:?} and the standard deviation {std:?}:")), "{error}");
    }
    assert!(refusal(DType::F16, 0.0, 1e9).contains("is out of range for f16"));
}

/// What a run read in one release must come out again with the next, or a resumed run goes astray. Worked out a second time, in
/// another language.
#[test]
fn orders_stay_what_they_are() {
    let order = |epoch| {
        let mut order = [0; 10];
        Stream::of_orders(7, 0).shuffle(epoch, &mut order);
        order
    };
    assert_eq!(order(0), [0, 1, 8, 5, 7, 9, 3, 4, 2, 6]);
    assert_eq!(order(1), [2, 9, 7, 3, 4, 6, 8, 5, 1, 0]);
}

/// Each of the six orders of three rows about as often as the others.
#[test]
fn no_order_is_favoured() {
    let mut times = std::collections::BTreeMap::new();
    for epoch in 0..6000 {
        let mut order = [0; 3];
        Stream::of_orders(1, 0).shuffle(epoch, &mut order);
        *times.entry(order).or_insert(0) += 1;
    }
    assert!(times.len() == 6 && times.values().all(|times| (850..1150).contains(times)), "{times:?}");
}
