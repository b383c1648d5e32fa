use proptest::prelude::*;
use squall_core::{DType, with_element};
use squall_kernels_std::PERMUTE;

use crate::harness::{Buf, Launch};
use crate::reference::{Reference, assert_same};

/// Every element of `dst` by its own index.
fn naive<T: Copy>(src: &[T], dims: &[usize], order: &[usize]) -> Vec<T> {
    let shape: Vec<usize> = order.iter().map(|&axis| dims[axis]).collect();
    let mut out = Vec::new();
    for mut rest in 0..src.len() {
        let mut index = vec![0; dims.len()];
        for (&axis, &len) in order.iter().zip(&shape).rev() {
            index[axis] = rest % len;
            rest /= len;
        }
        out.push(src[index.iter().zip(dims).fold(0, |at, (i, len)| at * len + i)]);
    }
    out
}

fn permute<T: Reference>(values: &[T], dims: &[usize], order: &[usize]) -> Vec<T> {
    let (src, dst) = (Buf::new(values), Buf::filled(values.len(), T::of(77)));
    let list = |values: &[usize]| values.iter().map(|&n| n as i64).collect::<Vec<i64>>();
    let launch = Launch::new(&PERMUTE).buffer("src", &src).buffer("dst", &dst);
    launch.list("dims", &list(dims)).list("order", &list(order)).run().unwrap();
    dst.read()
}

/// Up to five axes of length 0 to 5, and an order for them.
fn axes() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
    proptest::collection::vec(0usize..6, 0..6).prop_flat_map(|dims| {
        let order = Just((0..dims.len()).collect::<Vec<usize>>()).prop_shuffle();
        (Just(dims), order)
    })
}

proptest! {
    #[test]
    fn permute_agrees_with_the_reference_and_can_be_undone(
        (dims, order) in axes(), dtype in proptest::sample::select(DType::ALL),
    ) {
        with_element!(dtype, T => {
            let values: Vec<T> = (0..dims.iter().product::<usize>() as i64).map(T::of).collect();
            let there = permute(&values, &dims, &order);
            assert_same(&there, &naive(&values, &dims, &order));
            let shape: Vec<usize> = order.iter().map(|&axis| dims[axis]).collect();
            let mut back = vec![0; order.len()];
            order.iter().enumerate().for_each(|(i, &axis)| back[axis] = i);
            assert_same(&permute(&there, &shape, &back), &values);
        });
    }
}

#[test]
fn dims_default_to_the_shape() {
    let (src, dst) = (Buf::new(&[1, 2, 3, 4, 5, 6]).shaped(&[2, 3]), Buf::filled(6, 0));
    let launch = Launch::new(&PERMUTE).buffer("src", &src).buffer("dst", &dst).list("order", &[1, 0]);
    launch.run().unwrap();
    assert_eq!(dst.read::<i32>(), [1, 4, 2, 5, 3, 6]);
}

#[test]
fn eight_axes_are_taken() {
    let values: Vec<i32> = (0..256).collect();
    let (dims, order) = ([2; 8], [7, 0, 6, 1, 5, 2, 4, 3]);
    assert_eq!(permute(&values, &dims, &order), naive(&values, &dims, &order));
}

#[test]
fn elements_without_a_thread_stay() {
    let values: Vec<i32> = (0..24).collect();
    let (src, dst) = (Buf::new(&values).shaped(&[2, 3, 4]), Buf::filled(24, 99));
    let launch = Launch::new(&PERMUTE).buffer("src", &src).buffer("dst", &dst).list("order", &[2, 0, 1]);
    launch.run_threads([10, 1, 1]).unwrap();
    let mut wanted = naive(&values, &[2, 3, 4], &[2, 0, 1]);
    wanted[10..].fill(99);
    assert_eq!(dst.read::<i32>(), wanted);
}

#[test]
fn axes_must_fit() {
    let (src, short) = (Buf::filled(6, 0f32).shaped(&[2, 3]), Buf::filled(5, 0f32));
    let launch = |dims: &[i64], order: &[i64]| {
        let launch = Launch::new(&PERMUTE).buffer("src", &src).buffer("dst", &short);
        launch.list("dims", dims).list("order", order).refused()
    };
    assert_eq!(launch(&[2, 3], &[1, 0]), "`dst`: has 5 elements, but `src` has 6; they must be equal");
    assert_eq!(launch(&[2, 4], &[1, 0]), "`dims`: [2, 4] do not multiply to the 6 elements of `src`");
    assert_eq!(launch(&[2, -3], &[1, 0]), "`dims`: has an axis of length -3");
    let huge = 1 << 40;
    assert_eq!(
        launch(&[huge, huge], &[1, 0]),
        format!("`dims`: [{huge}, {huge}] do not multiply to the 6 elements of `src`")
    );
    assert_eq!(launch(&[1; 9], &[0]), "`dims`: has 9 axes, but there may be 8");
    for order in [&[0][..], &[0, 0], &[1, 2], &[0, 1, 2], &[-1, 0]] {
        let wanted = format!("`order`: {order:?} does not name each of the 2 axes of `src` once");
        assert_eq!(launch(&[2, 3], order), wanted);
    }
}
