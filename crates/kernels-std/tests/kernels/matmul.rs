use proptest::prelude::*;
use squall_core::{DType, KernelDef, with_element};
use squall_kernels_std::{MATMUL_NN, MATMUL_NT, MATMUL_TN};

use crate::harness::{Buf, Launch};
use crate::reference::{Reference, assert_same};

static PRODUCTS: [&KernelDef; 3] = [&MATMUL_NN, &MATMUL_TN, &MATMUL_NT];

/// `rows × cols` values of pattern `seed`, row-major: small, some negative, some fractions where there are any.
fn matrix<T: Reference>(rows: usize, cols: usize, seed: i64) -> Vec<T> {
    (0..(rows * cols) as i64)
        .map(|i| T::of((i * 7 + seed) % 13 - 6).mul(T::from_f64(0.75).add(T::of(1))))
        .collect()
}

fn transposed<T: Copy>(values: &[T], rows: usize, cols: usize) -> Vec<T> {
    (0..cols).flat_map(|c| (0..rows).map(move |r| values[r * cols + c])).collect()
}

/// `a` as `[m, k]` times `b` as `[k, n]`, every sum in order.
fn naive<T: Reference>(a: &[T], b: &[T], [m, k, n]: [usize; 3]) -> Vec<T> {
    let element = |i: usize, j: usize| T::sum((0..k).map(|l| (a[i * k + l], b[l * n + j])));
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| element(i, j)).collect()
}

/// Stores `a` and `b` as the kernel wants them.
fn stored<T: Reference>(kernel: &KernelDef, a: &[T], b: &[T], [m, k, n]: [usize; 3]) -> (Buf, Buf) {
    let shape = |rows: usize, cols: usize| [rows as u64, cols as u64];
    let a = match kernel.name {
        "matmul_tn" => Buf::new(&transposed(a, m, k)).shaped(&shape(k, m)),
        _ => Buf::new(a).shaped(&shape(m, k)),
    };
    let b = match kernel.name {
        "matmul_nt" => Buf::new(&transposed(b, k, n)).shaped(&shape(n, k)),
        _ => Buf::new(b).shaped(&shape(k, n)),
    };
    (a, b)
}

fn agrees<T: Reference>(dims: [usize; 3]) {
    let [m, k, n] = dims;
    let (a, b) = (matrix::<T>(m, k, 1), matrix::<T>(k, n, 5));
    let wanted = naive(&a, &b, dims);
    for kernel in PRODUCTS {
        let (a, b) = stored(kernel, &a, &b, dims);
        let c = Buf::filled(m * n, T::of(77));
        Launch::new(kernel).buffer("a", &a).buffer("b", &b).buffer("c", &c).run().unwrap();
        assert_same(&c.read::<T>(), &wanted);
    }
}

#[test]
fn products_agree_with_the_reference_bit_for_bit() {
    for &dtype in DType::ALL {
        with_element!(dtype, T => {
            for dims in [[40, 64, 10], [1, 1, 1], [65, 130, 67], [64, 64, 64], [3, 200, 1], [1, 5, 70]] {
                agrees::<T>(dims);
            }
        });
    }
}

#[test]
fn empty_sums_are_zero_and_empty_products_nothing() {
    for dims in [[3, 0, 4], [0, 3, 4], [3, 4, 0], [0, 0, 0]] {
        agrees::<f32>(dims);
        agrees::<i8>(dims);
    }
}

proptest! {
    #[test]
    fn products_of_any_shape_agree(
        m in 0usize..80, k in 0usize..80, n in 0usize..80, dtype in proptest::sample::select(DType::ALL),
    ) {
        with_element!(dtype, T => agrees::<T>([m, k, n]));
    }

    #[test]
    fn only_elements_with_a_thread_are_written(
        m in 1usize..80, n in 1usize..80, rows in 1usize..90, cols in 1usize..90,
    ) {
        let dims = [m, 5, n];
        let (a, b) = (matrix::<f32>(m, 5, 1), matrix::<f32>(5, n, 5));
        let mut wanted = naive(&a, &b, dims);
        for (index, x) in wanted.iter_mut().enumerate() {
            if index / n >= rows || index % n >= cols {
                *x = 77.0;
            }
        }
        for kernel in PRODUCTS {
            let (a, b) = stored(kernel, &a, &b, dims);
            let c = Buf::filled(m * n, 77f32);
            let launch = Launch::new(kernel).buffer("a", &a).buffer("b", &b).buffer("c", &c);
            launch.run_threads([cols as u64, rows as u64, 1]).unwrap();
            assert_same(&c.read::<f32>(), &wanted);
        }
    }
}

#[test]
fn infinities_and_nans_reach_only_their_own_elements() {
    let (mut a, b) = (vec![1f32; 6 * 3], vec![1f32; 3 * 9]);
    (a[3], a[4], a[12]) = (f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY);
    let (a, b) = stored(&MATMUL_NN, &a, &b, [6, 3, 9]);
    let c = Buf::filled(54, 0f32);
    Launch::new(&MATMUL_NN).buffer("a", &a).buffer("b", &b).buffer("c", &c).run().unwrap();
    for (index, x) in c.read::<f32>().iter().enumerate() {
        match index / 9 {
            1 => assert!(x.is_nan()),
            4 => assert_eq!(*x, f32::INFINITY),
            _ => assert_eq!(*x, 3.0),
        }
    }
}

#[test]
fn integers_wrap() {
    let (a, b, c) = (Buf::new(&[100i8, 100]), Buf::new(&[2i8, 3]), Buf::new(&[0i8]));
    let launch = Launch::new(&MATMUL_NN).buffer("a", &a).buffer("b", &b).buffer("c", &c);
    launch.size("m", 1).size("k", 2).size("n", 1).run().unwrap();
    assert_eq!(c.read::<i8>(), [-12]);
}

#[test]
fn flat_ranges_take_their_sizes_from_the_arguments() {
    let (a, b, c) = (Buf::new(&[1.0, 2.0, 3.0, 4.0]), Buf::new(&[10.0, 100.0]), Buf::filled(2, 0.0));
    let launch = Launch::new(&MATMUL_NN).buffer("a", &a).buffer("b", &b).buffer("c", &c);
    launch.size("m", 2).size("k", 2).size("n", 1).run().unwrap();
    assert_eq!(c.read::<f64>(), [210.0, 430.0]);
}

#[test]
fn lengths_must_be_what_the_sizes_say() {
    let of = |shape: [u64; 2]| Buf::filled((shape[0] * shape[1]) as usize, 0f32).shaped(&shape);
    let (a, b, c) = (of([2, 3]), of([3, 4]), of([2, 4]));
    let product = |kernel, a, b, c| Launch::new(kernel).buffer("a", a).buffer("b", b).buffer("c", c);
    product(&MATMUL_NN, &a, &b, &c).run().unwrap();
    assert_eq!(product(&MATMUL_NN, &a, &a, &c).refused(), "`b`: has 6 elements, but k × n = 3 × 3 = 9");
    assert_eq!(product(&MATMUL_TN, &a, &b, &c).refused(), "`b`: has 12 elements, but k × n = 2 × 4 = 8");
    assert_eq!(product(&MATMUL_NT, &a, &b, &c).refused(), "`b`: has 12 elements, but n × k = 3 × 3 = 9");
    assert_eq!(product(&MATMUL_NN, &a, &b, &a).refused(), "`c`: has 6 elements, but m × n = 2 × 4 = 8");
    assert_eq!(
        product(&MATMUL_NN, &a, &b, &c).size("m", 5).refused(),
        "`a`: has 6 elements, but m × k = 5 × 3 = 15"
    );
    let huge = u64::MAX;
    assert_eq!(
        product(&MATMUL_TN, &a, &b, &c).size("m", huge).size("k", huge).refused(),
        format!("`a`: has 6 elements, but k × m = {huge} × {huge} = {}", u128::from(huge) * u128::from(huge))
    );
}
