use squall_core::{Element, with_element};
use squall_kernels_std::{FILL, IOTA};

use crate::harness::{Buf, Launch, dtypes};
use crate::reference::{Reference, assert_same};

#[test]
fn fill_gives_every_element_the_value() {
    for &dtype in dtypes(&FILL, "dst") {
        with_element!(dtype, T => {
            for len in [0, 1, 15, 16, 17, 100] {
                for value in T::edges() {
                    let (dst, from) = (Buf::filled(len, T::of(9)), Buf::new(&[value]));
                    Launch::new(&FILL).buffer("dst", &dst).buffer("value", &from).run().unwrap();
                    assert_same(&dst.read::<T>(), &vec![value; len]);
                }
                let dst = Buf::filled(len, T::of(9));
                Launch::new(&FILL).buffer("dst", &dst).scalar("value", 5).run().unwrap();
                assert_same(&dst.read::<T>(), &vec![T::of(5); len]);
            }
        });
    }
}

#[test]
fn iota_counts_and_wraps() {
    for &dtype in dtypes(&IOTA, "dst") {
        with_element!(dtype, T => counts_from_start::<T>());
    }
    let (dst, start) = (Buf::filled(4, 0i8), Buf::new(&[126i8]));
    Launch::new(&IOTA).buffer("dst", &dst).buffer("start", &start).run().unwrap();
    assert_eq!(dst.read::<i8>(), [126, 127, -128, -127]);
    // Beyond 256 not every whole number is a bf16; each is rounded from the exact one.
    let dst = Buf::filled(260, half::bf16::ZERO);
    Launch::new(&IOTA).buffer("dst", &dst).run().unwrap();
    assert_eq!(
        dst.read::<half::bf16>()[257..].iter().map(|x| x.to_f32()).collect::<Vec<_>>(),
        [256.0, 258.0, 260.0]
    );
}

fn counts_from_start<T: Reference + Element>() {
    for len in [0i64, 1, 40, 300] {
        let dst = Buf::filled(len as usize, T::of(77));
        Launch::new(&IOTA).buffer("dst", &dst).run().unwrap();
        assert_same(&dst.read::<T>(), &(0..len).map(T::of).collect::<Vec<T>>());
        Launch::new(&IOTA).buffer("dst", &dst).scalar("start", 3).run().unwrap();
        assert_same(&dst.read::<T>(), &(0..len).map(|i| T::of(i + 3)).collect::<Vec<T>>());
    }
}

#[test]
fn elements_without_a_thread_stay() {
    let dst = Buf::filled(40, 9i32);
    Launch::new(&FILL).buffer("dst", &dst).scalar("value", 1).run_threads([35, 1, 1]).unwrap();
    Launch::new(&IOTA).buffer("dst", &dst).run_threads([3, 1, 1]).unwrap();
    let dst = dst.read::<i32>();
    assert_eq!((&dst[..4], &dst[34..]), (&[0, 1, 2, 1][..], &[1, 9, 9, 9, 9, 9][..]));
}
