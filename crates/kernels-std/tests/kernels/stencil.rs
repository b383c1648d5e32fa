use squall_core::{DType, with_element};
use squall_kernels_std::STENCIL5;

use crate::harness::{Buf, Launch, dtypes};
use crate::reference::{Reference, assert_same};

/// By the formula, in the dtype's arithmetic. `width` elements a row.
fn naive<T: Reference>(u: &[T], width: usize, k: f64) -> Vec<T> {
    let value = |i: usize| u[i].as_f64();
    (0..u.len())
        .map(|i| {
            let (x, y) = (i % width, i / width);
            if x == 0 || y == 0 || x == width - 1 || y == u.len() / width - 1 {
                return u[i];
            }
            let neighbours = [i - 1, i + 1, i - width, i + width];
            if T::DTYPE == DType::F64 {
                let [left, right, up, down] = neighbours.map(value);
                T::from_f64(value(i) + k * ((left + right) + (up + down) - 4.0 * value(i)))
            } else {
                let [left, right, up, down] = neighbours.map(|i| value(i) as f32);
                let old = value(i) as f32;
                T::from_f64(f64::from(old + k as f32 * ((left + right) + (up + down) - 4.0 * old)))
            }
        })
        .collect()
}

#[test]
fn stencil5_agrees_with_the_formula() {
    for &dtype in dtypes(&STENCIL5, "src") {
        with_element!(dtype, T => {
            let shapes = [(0, 5), (5, 0), (1, 1), (1, 9), (9, 1), (2, 2), (2, 7), (7, 2), (3, 3), (6, 40), (40, 17)];
            for (height, width) in shapes {
                let values: Vec<T> = (0..height * width).map(|i| T::from_f64((i as f64).sin())).collect();
                let shape = [height as u64, width as u64];
                let (src, dst) =
                    (Buf::new(&values).shaped(&shape), Buf::filled(values.len(), T::of(77)).shaped(&shape));
                let launch = Launch::new(&STENCIL5).buffer("src", &src).buffer("dst", &dst);
                // 1/8 is exact in every dtype.
                launch.scalar("k", 0.125).run().unwrap();
                assert_same(&dst.read::<T>(), &naive(&values, width, 0.125));
                let from = Buf::new(&[T::from_f64(0.25)]);
                let launch = Launch::new(&STENCIL5).buffer("src", &src).buffer("dst", &dst);
                launch.buffer("k", &from).run().unwrap();
                assert_same(&dst.read::<T>(), &naive(&values, width, 0.25));
            }
        });
    }
}

#[test]
fn a_nan_reaches_its_neighbours_alone() {
    let mut values = [0f32; 49];
    values[24] = f32::NAN;
    let (src, dst) = (Buf::new(&values).shaped(&[7, 7]), Buf::filled(49, 9f32).shaped(&[7, 7]));
    Launch::new(&STENCIL5).buffer("src", &src).buffer("dst", &dst).scalar("k", 0.2).run().unwrap();
    for (index, x) in dst.read::<f32>().iter().enumerate() {
        assert_eq!(x.is_nan(), [24, 23, 25, 17, 31].contains(&index), "{index}");
    }
}

#[test]
fn elements_without_a_thread_stay() {
    let values: Vec<f32> = (0u8..42).map(|i| f32::from(i).sin()).collect();
    let (src, shape) = (Buf::new(&values).shaped(&[6, 7]), [6, 7]);
    for (rows, cols) in [(1, 1), (2, 3), (5, 6), (6, 6), (5, 7), (6, 7)] {
        let dst = Buf::filled(42, 77f32).shaped(&shape);
        let launch = Launch::new(&STENCIL5).buffer("src", &src).buffer("dst", &dst).scalar("k", 0.2);
        launch.run_threads([cols as u64, rows as u64, 1]).unwrap();
        let mut wanted = naive(&values, 7, 0.2);
        for (index, x) in wanted.iter_mut().enumerate() {
            if index / 7 >= rows || index % 7 >= cols {
                *x = 77.0;
            }
        }
        assert_same(&dst.read::<f32>(), &wanted);
    }
}

#[test]
fn shapes_must_agree() {
    let (flat, wide) = (Buf::filled(6, 0f32), Buf::filled(6, 0f32).shaped(&[2, 3]));
    let high = Buf::filled(6, 0f32).shaped(&[3, 2]);
    let refused =
        |src, dst| Launch::new(&STENCIL5).buffer("src", src).buffer("dst", dst).scalar("k", 0).refused();
    assert_eq!(refused(&flat, &wide), "`src`: has the shape [6], but must have two axes");
    assert_eq!(
        refused(&wide, &high),
        "`dst`: has the shape [3, 2], but `src` has [2, 3]; they must be equal"
    );
}
