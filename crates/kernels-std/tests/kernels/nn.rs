use half::f16;
use squall_core::with_element;
use squall_kernels_std::{BIAS_ROWS, RELU, RELU_GRAD, SGD};

use crate::harness::{Buf, Launch, dtypes};
use crate::reference::{Reference, assert_same, edge_pairs};

#[test]
fn relu_cuts_negatives_and_keeps_nans() {
    for &dtype in dtypes(&RELU, "src") {
        with_element!(dtype, T => {
            let values = T::edges();
            let wanted: Vec<T> = values.iter().map(|&x| if x < T::of(0) { T::of(0) } else { x }).collect();
            let (src, dst) = (Buf::new(&values), Buf::filled(values.len(), T::of(77)));
            Launch::new(&RELU).buffer("src", &src).buffer("dst", &dst).run().unwrap();
            assert_same(&dst.read::<T>(), &wanted);
            Launch::new(&RELU).buffer("src", &src).buffer("dst", &src).run().unwrap();
            assert_same(&src.read::<T>(), &wanted);
        });
    }
    let x = Buf::new(&[-2.0f32, 3.0, f32::NAN]);
    Launch::new(&RELU).buffer("src", &x).buffer("dst", &x).run().unwrap();
    assert_same(&x.read(), &[0.0f32, 3.0, f32::NAN]);
}

#[test]
fn relu_grad_passes_where_relu_did() {
    for &dtype in dtypes(&RELU_GRAD, "src") {
        with_element!(dtype, T => {
            let (xs, grads) = edge_pairs::<T>();
            let wanted: Vec<T> =
                xs.iter().zip(&grads).map(|(&x, &grad)| if x <= T::of(0) { T::of(0) } else { grad }).collect();
            let launch = |x, dst_grad, src_grad| {
                let launch = Launch::new(&RELU_GRAD).buffer("src", x);
                launch.buffer("dst_grad", dst_grad).buffer("src_grad", src_grad).run().unwrap();
            };
            let (x, grad, out) = (Buf::new(&xs), Buf::new(&grads), Buf::filled(xs.len(), T::of(77)));
            launch(&x, &grad, &out);
            assert_same(&out.read::<T>(), &wanted);
            launch(&x, &grad, &grad);
            assert_same(&grad.read::<T>(), &wanted);
            launch(&x, &out, &x);
            assert_same(&x.read::<T>(), &wanted);
            // From relu's output instead of its input.
            let (x, y, grad) = (Buf::new(&xs), Buf::new(&xs), Buf::new(&grads));
            Launch::new(&RELU).buffer("src", &x).buffer("dst", &y).run().unwrap();
            launch(&y, &grad, &out);
            assert_same(&out.read::<T>(), &wanted);
        });
    }
}

#[test]
fn bias_rows_adds_to_every_row() {
    for &dtype in dtypes(&BIAS_ROWS, "data") {
        with_element!(dtype, T => {
            for (rows, cols) in [(0usize, 3usize), (1, 1), (3, 0), (5, 2), (3, 17), (2, 100)] {
                let values: Vec<T> = T::edges().into_iter().cycle().take(rows * cols).collect();
                let bias: Vec<T> = (0..cols as i64).map(|c| T::of(c + 1)).collect();
                let wanted: Vec<T> = values.iter().enumerate().map(|(i, &x)| x.add(bias[i % cols])).collect();
                let (flat, bias) = (Buf::new(&values), Buf::new(&bias));
                Launch::new(&BIAS_ROWS).buffer("data", &flat).buffer("bias", &bias).run().unwrap();
                assert_same(&flat.read::<T>(), &wanted);
                let matrix = Buf::new(&values).shaped(&[rows as u64, cols as u64]);
                Launch::new(&BIAS_ROWS).buffer("data", &matrix).buffer("bias", &bias).run().unwrap();
                assert_same(&matrix.read::<T>(), &wanted);
            }
        });
    }
}

#[test]
fn sgd_steps_against_the_gradient() {
    for &dtype in dtypes(&SGD, "param") {
        with_element!(dtype, T => {
            let (params, grads) = edge_pairs::<T>();
            for lr in T::edges() {
                let wanted: Vec<T> = params.iter().zip(&grads).map(|(&p, &g)| p.sub_product(lr, g)).collect();
                let (param, grad, from) = (Buf::new(&params), Buf::new(&grads), Buf::new(&[lr]));
                let launch = Launch::new(&SGD).buffer("param", &param).buffer("grad", &grad);
                launch.buffer("lr", &from).run().unwrap();
                assert_same(&param.read::<T>(), &wanted);
                assert_same(&grad.read::<T>(), &grads);
            }
        });
    }
    let (param, grad) = (Buf::new(&[f16::ONE]), Buf::new(&[f16::from_f32(2.0)]));
    Launch::new(&SGD).buffer("param", &param).buffer("grad", &grad).scalar("lr", 0.25).run().unwrap();
    assert_eq!(param.read::<f16>(), [f16::from_f32(0.5)]);
}

#[test]
fn elements_without_a_thread_stay() {
    let threads = [17, 1, 1];
    let (x, ones) = (Buf::filled(40, -4f32), Buf::filled(40, 1f32));
    Launch::new(&RELU).buffer("src", &x).buffer("dst", &x).run_threads(threads).unwrap();
    assert_eq!(x.read::<f32>()[16..18], [0.0, -4.0]);
    let out = Buf::filled(40, 9f32);
    let launch = Launch::new(&RELU_GRAD).buffer("src", &ones).buffer("dst_grad", &ones);
    launch.buffer("src_grad", &out).run_threads(threads).unwrap();
    assert_eq!(out.read::<f32>()[16..18], [1.0, 9.0]);
    let launch = Launch::new(&SGD).buffer("param", &out).buffer("grad", &ones).scalar("lr", 1);
    launch.run_threads([20, 1, 1]).unwrap();
    assert_eq!(out.read::<f32>()[16..21], [0.0, 8.0, 8.0, 8.0, 9.0]);
    let (data, bias) = (Buf::filled(40, 0f32).shaped(&[4, 10]), Buf::filled(10, 1f32));
    Launch::new(&BIAS_ROWS).buffer("data", &data).buffer("bias", &bias).run_threads(threads).unwrap();
    assert_eq!(data.read::<f32>()[9..18], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
}

#[test]
fn shapes_must_agree() {
    let (four, three) = (Buf::filled(4, 0f32), Buf::filled(3, 0f32));
    let launch = Launch::new(&RELU).buffer("src", &four).buffer("dst", &three);
    assert_eq!(launch.refused(), "`dst`: has 3 elements, but `src` has 4; they must be equal");
    let grad =
        |a, b| Launch::new(&RELU_GRAD).buffer("src", &four).buffer("dst_grad", a).buffer("src_grad", b);
    assert_eq!(
        grad(&three, &four).refused(),
        "`dst_grad`: has 3 elements, but `src` has 4; they must be equal"
    );
    assert_eq!(
        grad(&four, &three).refused(),
        "`src_grad`: has 3 elements, but `src` has 4; they must be equal"
    );
    let launch = Launch::new(&BIAS_ROWS).buffer("data", &four).buffer("bias", &three);
    assert_eq!(launch.refused(), "`data`: has 4 elements, not a multiple of the 3 of `bias`");
    let matrix = Buf::filled(6, 0f32).shaped(&[3, 2]);
    let launch = Launch::new(&BIAS_ROWS).buffer("data", &matrix).buffer("bias", &three);
    assert_eq!(launch.refused(), "`data`: has rows of 2 elements, but `bias` has 3; they must be equal");
    let launch = Launch::new(&SGD).buffer("param", &four).buffer("grad", &three).scalar("lr", 1);
    assert_eq!(launch.refused(), "`grad`: has 3 elements, but `param` has 4; they must be equal");
}
