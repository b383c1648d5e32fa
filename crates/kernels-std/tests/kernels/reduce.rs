use half::{bf16, f16};
use squall_core::with_element;
use squall_kernels_std::{DOT, SUM, SUM_ROWS};

use crate::harness::{Buf, Launch, dtypes};
use crate::reference::{Reference, assert_same};

fn sum<T: Reference>(values: &[T]) -> T {
    let (data, out) = (Buf::new(values), Buf::new(&[T::of(77)]));
    Launch::new(&SUM).buffer("data", &data).buffer("out", &out).run().unwrap();
    out.read()[0]
}

fn dot<T: Reference>(a: &[T], b: &[T]) -> T {
    let (a, b, out) = (Buf::new(a), Buf::new(b), Buf::new(&[T::of(77)]));
    Launch::new(&DOT).buffer("a", &a).buffer("b", &b).buffer("out", &out).run().unwrap();
    out.read()[0]
}

#[test]
fn sums_of_small_whole_numbers_are_exact() {
    for &dtype in dtypes(&SUM, "data") {
        with_element!(dtype, T => {
            for len in (0..70).chain([1000]) {
                let a: Vec<T> = (0..len as i64).map(|i| T::of(i % 5)).collect();
                let b: Vec<T> = (0..len as i64).map(|i| T::of(i % 3)).collect();
                let ones = vec![T::of(1); len];
                let total = T::sum(a.iter().copied().zip(ones.iter().copied()));
                assert_same(&[sum(&a)], &[total]);
                assert_same(&[dot(&a, &b)], &[T::sum(a.iter().copied().zip(b))]);
                assert_same(&[dot(&a, &a)], &[T::sum(a.iter().copied().zip(a.iter().copied()))]);
            }
        });
    }
}

#[test]
fn integer_sums_wrap() {
    assert_eq!(sum(&[127i8, 1, 1]), -127);
    assert_eq!(sum(&[u64::MAX, 3]), 2);
    assert_eq!(dot(&[i32::MAX, 1], &[2, 1]), -1);
    assert_eq!(dot(&[200u8, 100], &[200, 3]), 108);
}

#[test]
fn half_types_are_summed_in_f32() {
    // In f16 itself the sum would stick at 2048, in bf16 at 256.
    assert_eq!(sum(&[f16::ONE; 4096]), f16::from_f32(4096.0));
    assert_eq!(sum(&[bf16::ONE; 4096]), bf16::from_f32(4096.0));
    assert_eq!(dot(&[f16::from_f32(300.0), f16::from_f32(-300.0)], &[f16::from_f32(300.0); 2]), f16::ZERO);
    assert_eq!(sum(&[f16::MAX; 2]), f16::INFINITY);
}

#[test]
fn nans_and_infinities_stay() {
    let mut values = vec![1.0f32; 50];
    values[33] = f32::INFINITY;
    assert_eq!(sum(&values), f32::INFINITY);
    values[48] = f32::NEG_INFINITY;
    assert!(sum(&values).is_nan());
    assert!(dot(&[1.0, f64::NAN], &[1.0, 0.0]).is_nan());
}

#[test]
fn float_sums_follow_the_stated_order() {
    let values: Vec<f32> = (0u16..1003).map(|i| (f32::from(i) * 0.37).sin() * 1e3).collect();
    let mut lanes = [0f32; 16];
    for (index, x) in values.iter().enumerate() {
        lanes[index % 16] += x;
    }
    for width in [8, 4, 2, 1] {
        for l in 0..width {
            lanes[l] += lanes[l + width];
        }
    }
    assert_same(&[sum(&values)], &[lanes[0]]);
    assert_same(&[dot(&values, &vec![1.0; 1003])], &[lanes[0]]);
}

#[test]
fn any_grid_sums_everything() {
    let (data, out) = (Buf::filled(100, 1i32), Buf::new(&[0i32]));
    Launch::new(&SUM).buffer("data", &data).buffer("out", &out).run_threads([1, 1, 1]).unwrap();
    assert_eq!(out.read::<i32>(), [100]);
    Launch::new(&DOT)
        .buffer("a", &data)
        .buffer("b", &data)
        .buffer("out", &out)
        .run_threads([7, 1, 1])
        .unwrap();
    assert_eq!(out.read::<i32>(), [100]);
}

#[test]
fn sum_rows_sums_columns() {
    for &dtype in dtypes(&SUM_ROWS, "data") {
        with_element!(dtype, T => {
            for (rows, cols) in [(0, 3), (1, 1), (3, 0), (3, 2), (2, 64), (5, 65), (7, 200)] {
                let values: Vec<T> = (0..rows * cols).map(|i| T::of((i % 11) as i64)).collect();
                let column = |c: usize| (0..rows).map(move |r| r * cols + c);
                let wanted: Vec<T> =
                    (0..cols).map(|c| T::sum(column(c).map(|i| (values[i], T::of(1))))).collect();
                let (data, out) = (Buf::new(&values), Buf::filled(cols, T::of(77)));
                Launch::new(&SUM_ROWS).buffer("data", &data).buffer("out", &out).run().unwrap();
                assert_same(&out.read::<T>(), &wanted);
                let data = Buf::new(&values).shaped(&[rows as u64, cols as u64]);
                Launch::new(&SUM_ROWS).buffer("data", &data).buffer("out", &out).run().unwrap();
                assert_same(&out.read::<T>(), &wanted);
            }
        });
    }
}

#[test]
fn columns_without_a_thread_stay() {
    let (data, out) = (Buf::filled(300, 1i32).shaped(&[3, 100]), Buf::filled(100, 9i32));
    Launch::new(&SUM_ROWS).buffer("data", &data).buffer("out", &out).run_threads([70, 1, 1]).unwrap();
    let out = out.read::<i32>();
    assert!(out[..70].iter().all(|&x| x == 3) && out[70..].iter().all(|&x| x == 9));
}

#[test]
fn shapes_must_agree() {
    let (four, three, two) = (Buf::filled(4, 0f32), Buf::filled(3, 0f32), Buf::filled(2, 0f32));
    let (one, none) = (Buf::filled(1, 0f32), Buf::filled(0, 0f32));
    let launch = Launch::new(&DOT).buffer("a", &four).buffer("b", &three).buffer("out", &one);
    assert_eq!(launch.refused(), "`b`: has 3 elements, but `a` has 4; they must be equal");
    let launch = Launch::new(&DOT).buffer("a", &four).buffer("b", &four).buffer("out", &two);
    assert_eq!(launch.refused(), "`out`: has 2 elements, but must have one");
    let launch = Launch::new(&SUM).buffer("data", &four).buffer("out", &none);
    assert_eq!(launch.refused(), "`out`: has 0 elements, but must have one");
    let launch = Launch::new(&SUM_ROWS).buffer("data", &four).buffer("out", &three);
    assert_eq!(launch.refused(), "`data`: has 4 elements, not a multiple of the 3 of `out`");
    let launch = Launch::new(&SUM_ROWS).buffer("data", &four).buffer("out", &none);
    assert_eq!(launch.refused(), "`data`: has 4 elements, not a multiple of the 0 of `out`");
    let matrix = Buf::filled(4, 0f32).shaped(&[1, 4]);
    let launch = Launch::new(&SUM_ROWS).buffer("data", &matrix).buffer("out", &two);
    assert_eq!(launch.refused(), "`data`: has rows of 4 elements, but `out` has 2; they must be equal");
}
