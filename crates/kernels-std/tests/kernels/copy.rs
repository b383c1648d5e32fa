use proptest::prelude::*;
use squall_core::{DType, with_element};
use squall_kernels_std::{CAST, COPY, COPY_2D};

use crate::harness::{Buf, Launch, dtypes};
use crate::reference::{Reference, assert_same};

#[test]
fn copy_copies_bits() {
    for &dtype in dtypes(&COPY, "src") {
        with_element!(dtype, T => {
            let edges = T::edges();
            for len in (0..edges.len()).chain([100]) {
                let values: Vec<T> = edges.iter().copied().cycle().take(len).collect();
                let (src, dst) = (Buf::new(&values), Buf::filled(len, T::of(77)));
                Launch::new(&COPY).buffer("src", &src).buffer("dst", &dst).run().unwrap();
                assert_same(&dst.read::<T>(), &values);
            }
        });
    }
}

/// `S` to `D` by way of `i128` for integers and of `f64` for floats, which hold all values there are.
fn cast_exactly<S: Reference, D: Reference>(value: S) -> D {
    if S::DTYPE.is_float() { D::from_f64(value.as_f64()) } else { D::from_integer(value.whole()) }
}

#[test]
fn cast_covers_every_pair_of_dtypes() {
    for &from in DType::ALL {
        for &to in DType::ALL {
            with_element!(from, S => with_element!(to, D => {
                let values = S::edges();
                let wanted: Vec<D> = values.iter().map(|&x| cast_exactly::<S, D>(x)).collect();
                let (src, dst) = (Buf::new(&values), Buf::filled(values.len(), D::of(77)));
                Launch::new(&CAST).buffer("src", &src).buffer("dst", &dst).run().unwrap();
                assert_same(&dst.read::<D>(), &wanted);
            }));
        }
    }
}

#[test]
fn cast_keeps_its_word() {
    let run = |values: &[f32]| {
        let (src, dst) = (Buf::new(values), Buf::filled(values.len(), 0i8));
        Launch::new(&CAST).buffer("src", &src).buffer("dst", &dst).run().unwrap();
        dst.read::<i8>()
    };
    assert_eq!(run(&[1.9, -1.9, 300.0, -300.0, f32::NAN, f32::INFINITY]), [1, -1, 127, -128, 0, 127]);
    let (src, dst) = (Buf::new(&[300i32, -1]), Buf::filled(2, 0u8));
    Launch::new(&CAST).buffer("src", &src).buffer("dst", &dst).run().unwrap();
    assert_eq!(dst.read::<u8>(), [44, 255]);
}

#[test]
fn elements_without_a_thread_stay() {
    let (src, dst) = (Buf::filled(40, 1i32), Buf::filled(40, 9i32));
    Launch::new(&COPY).buffer("src", &src).buffer("dst", &dst).run_threads([17, 1, 1]).unwrap();
    assert_eq!(dst.read::<i32>()[16..18], [1, 9]);
    Launch::new(&CAST).buffer("src", &src).buffer("dst", &dst).run_threads([19, 1, 1]).unwrap();
    assert_eq!(dst.read::<i32>()[18..20], [1, 9]);
    let dst = Buf::filled(12, 9i32);
    let launch =
        Launch::new(&COPY_2D).buffer("src", &src).buffer("dst", &dst).size("rows", 3).size("cols", 4);
    launch.size("src_stride", 4).size("dst_stride", 4).run_threads([3, 2, 1]).unwrap();
    assert_eq!(dst.read::<i32>(), [1, 1, 1, 9, 1, 1, 1, 9, 9, 9, 9, 9]);
}

#[test]
fn copy_2d_moves_a_column_between_matrices() {
    let u: Vec<f32> = (0u8..12).map(f32::from).collect();
    let (src, dst) = (Buf::new(&u).shaped(&[3, 4]), Buf::filled(6, -1f32).shaped(&[3, 2]));
    let launch =
        Launch::new(&COPY_2D).buffer("src", &src).buffer("dst", &dst).size("rows", 3).size("cols", 1);
    launch.size("src_at", 2).size("dst_at", 1).run().unwrap();
    assert_eq!(dst.read::<f32>(), [-1.0, 2.0, -1.0, 6.0, -1.0, 10.0]);
}

proptest! {
    #[test]
    fn copy_2d_agrees_with_the_reference(
        rows in 0usize..6, cols in 0usize..40,
        src_at in 0usize..9, src_gap in 0usize..5, src_rest in 0usize..3, repeat: bool,
        dst_at in 0usize..9, dst_gap in 0usize..5, dst_rest in 0usize..3,
        dtype in proptest::sample::select(DType::ALL),
    ) {
        let src_stride = if repeat { 0 } else { cols + src_gap };
        let dst_stride = cols + dst_gap;
        let len = |at, stride, rest| at + rows.saturating_sub(1) * stride + cols + rest;
        with_element!(dtype, T => {
            let from: Vec<T> = (0i64..).map(T::of).take(len(src_at, src_stride, src_rest)).collect();
            let mut wanted = vec![T::of(-1); len(dst_at, dst_stride, dst_rest)];
            let (src, dst) = (Buf::new(&from), Buf::new(&wanted));
            for r in 0..rows {
                for c in 0..cols {
                    wanted[dst_at + r * dst_stride + c] = from[src_at + r * src_stride + c];
                }
            }
            let launch = Launch::new(&COPY_2D)
                .buffer("src", &src).buffer("dst", &dst)
                .size("rows", rows as u64).size("cols", cols as u64)
                .size("src_at", src_at as u64).size("src_stride", src_stride as u64)
                .size("dst_at", dst_at as u64).size("dst_stride", dst_stride as u64);
            launch.run().unwrap();
            assert_same(&dst.read::<T>(), &wanted);
        });
    }
}

#[test]
fn lengths_must_agree() {
    let (long, short) = (Buf::filled(4, 0f32), Buf::filled(3, 0f32));
    for kernel in [&COPY, &CAST] {
        let launch = Launch::new(kernel).buffer("src", &long).buffer("dst", &short);
        assert_eq!(launch.refused(), "`dst`: has 3 elements, but `src` has 4; they must be equal");
    }
}

#[test]
fn copy_2d_stays_inside() {
    let (u, v) = (Buf::filled(12, 0f32).shaped(&[3, 4]), Buf::filled(12, 0f32).shaped(&[3, 4]));
    let launch = |rows, cols| {
        Launch::new(&COPY_2D).buffer("src", &u).buffer("dst", &v).size("rows", rows).size("cols", cols)
    };
    assert_eq!(
        launch(3, 2).size("src_at", 3).refused(),
        "`src`: has 12 elements, but 3 rows of 2, 4 apart, from element 3 on, end at 13"
    );
    assert_eq!(
        launch(4, 2).size("src_stride", 0).refused(),
        "`dst`: has 12 elements, but 4 rows of 2, 4 apart, from element 0 on, end at 14"
    );
    assert_eq!(
        launch(2, 3).size("dst_stride", 2).refused(),
        "`dst_stride`: is 2, but a row has 3 elements: rows would overlap in `dst`"
    );
    let huge = u64::MAX;
    assert_eq!(
        launch(huge, 1).size("src_at", huge).size("src_stride", huge).refused(),
        format!(
            "`src`: has 12 elements, but {huge} rows of 1, {huge} apart, from element {huge} on, end at {}",
            u128::from(huge) * u128::from(huge) + 1
        )
    );
    // Without rows or columns nothing is touched, wherever it would be.
    launch(0, huge).size("src_at", huge).run_threads([1, 1, 1]).unwrap();
    launch(huge, 0).size("dst_at", huge).run_threads([1, 1, 1]).unwrap();
}
