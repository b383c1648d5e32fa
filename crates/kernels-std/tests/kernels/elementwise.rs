use squall_core::{KernelDef, with_element};
use squall_kernels_std::{ADD, AXPY, DIV, MUL, SCALE, SQRT, SUB};

use crate::harness::{Buf, Launch, dtypes};
use crate::reference::{Reference, assert_same, edge_pairs};

static BINARY: [&KernelDef; 4] = [&ADD, &SUB, &MUL, &DIV];

fn apply<T: Reference>(kernel: &KernelDef, a: T, b: T) -> T {
    match kernel.name {
        "add" => a.add(b),
        "sub" => a.sub(b),
        "mul" => a.mul(b),
        _ => a.div(b),
    }
}

/// Pairs that the kernel takes, all edges among them.
fn operands<T: Reference>(kernel: &KernelDef) -> (Vec<T>, Vec<T>) {
    let (a, b) = edge_pairs::<T>();
    let whole_division = kernel.name == "div" && !T::DTYPE.is_float();
    a.into_iter().zip(b).filter(|&(_, b)| !(whole_division && b == T::of(0))).unzip()
}

#[test]
fn binary_kernels_agree_with_the_reference() {
    for kernel in BINARY {
        for &dtype in dtypes(kernel, "a") {
            with_element!(dtype, T => {
                let (a, b) = operands::<T>(kernel);
                let wanted: Vec<T> = a.iter().zip(&b).map(|(&a, &b)| apply(kernel, a, b)).collect();
                for len in (0..50).chain([a.len()]) {
                    let (a, b, out) = (Buf::new(&a[..len]), Buf::new(&b[..len]), Buf::filled(len, T::of(77)));
                    Launch::new(kernel).buffer("a", &a).buffer("b", &b).buffer("out", &out).run().unwrap();
                    assert_same(&out.read::<T>(), &wanted[..len]);
                }
            });
        }
    }
}

#[test]
fn binary_kernels_work_in_place() {
    for kernel in BINARY {
        for &dtype in dtypes(kernel, "a") {
            with_element!(dtype, T => {
                let (a, b) = operands::<T>(kernel);
                let wanted: Vec<T> = a.iter().zip(&b).map(|(&a, &b)| apply(kernel, a, b)).collect();
                let (x, y) = (Buf::new(&a), Buf::new(&b));
                Launch::new(kernel).buffer("a", &x).buffer("b", &y).buffer("out", &x).run().unwrap();
                assert_same(&x.read::<T>(), &wanted);
                assert_same(&y.read::<T>(), &b);
                let x = Buf::new(&a);
                Launch::new(kernel).buffer("a", &x).buffer("b", &y).buffer("out", &y).run().unwrap();
                assert_same(&y.read::<T>(), &wanted);
                assert_same(&x.read::<T>(), &a);
                // `b` alone has no zero among what an integer division takes.
                let wanted: Vec<T> = b.iter().map(|&b| apply(kernel, b, b)).collect();
                let x = Buf::new(&b);
                Launch::new(kernel).buffer("a", &x).buffer("b", &x).buffer("out", &x).run().unwrap();
                assert_same(&x.read::<T>(), &wanted);
            });
        }
    }
}

#[test]
fn an_integer_over_zero_is_an_error_and_writes_nothing() {
    let (a, b, out) = (Buf::new(&[6, 7, 8]), Buf::new(&[2, 0, 0]), Buf::filled(3, 9));
    let launch = Launch::new(&DIV).buffer("a", &a).buffer("b", &b).buffer("out", &out);
    assert_eq!(launch.run(), Err("division by zero: element 1 of `b` is 0".to_string()));
    assert_eq!(out.read::<i32>(), [9, 9, 9]);
    // A zero that no thread reads divides nothing.
    assert_eq!(launch.run_threads([1, 1, 1]), Ok(()));
    assert_eq!(out.read::<i32>(), [3, 9, 9]);
}

#[test]
fn sqrt_rounds_once() {
    for &dtype in dtypes(&SQRT, "src") {
        with_element!(dtype, T => {
            let values = T::edges();
            // The root of an f32 taken in f64 and rounded to f32 is the nearest f32.
            let wanted: Vec<T> = values.iter().map(|x| T::from_f64(x.as_f64().sqrt())).collect();
            let (src, dst) = (Buf::new(&values), Buf::filled(values.len(), T::of(77)));
            Launch::new(&SQRT).buffer("src", &src).buffer("dst", &dst).run().unwrap();
            assert_same(&dst.read::<T>(), &wanted);
            Launch::new(&SQRT).buffer("src", &src).buffer("dst", &src).run().unwrap();
            assert_same(&src.read::<T>(), &wanted);
        });
    }
}

#[test]
fn scale_multiplies_by_a_constant_or_an_element() {
    for &dtype in dtypes(&SCALE, "data") {
        with_element!(dtype, T => {
            let values = T::edges();
            for factor in T::edges() {
                let wanted: Vec<T> = values.iter().map(|&x| x.mul(factor)).collect();
                let (data, from) = (Buf::new(&values), Buf::new(&[factor]));
                Launch::new(&SCALE).buffer("data", &data).buffer("factor", &from).run().unwrap();
                assert_same(&data.read::<T>(), &wanted);
            }
            let wanted: Vec<T> = values.iter().map(|&x| x.mul(T::of(3))).collect();
            let data = Buf::new(&values);
            Launch::new(&SCALE).buffer("data", &data).scalar("factor", 3).run().unwrap();
            assert_same(&data.read::<T>(), &wanted);
        });
    }
}

#[test]
fn axpy_adds_or_subtracts_a_multiple() {
    for &dtype in dtypes(&AXPY, "y") {
        with_element!(dtype, T => {
            let (xs, ys) = edge_pairs::<T>();
            for a in T::edges() {
                let from = Buf::new(&[a]);
                let added: Vec<T> = xs.iter().zip(&ys).map(|(&x, &y)| y.add_product(a, x)).collect();
                let (x, y) = (Buf::new(&xs), Buf::new(&ys));
                Launch::new(&AXPY).buffer("a", &from).buffer("x", &x).buffer("y", &y).run().unwrap();
                assert_same(&y.read::<T>(), &added);
                let subtracted: Vec<T> = xs.iter().zip(&ys).map(|(&x, &y)| y.sub_product(a, x)).collect();
                let y = Buf::new(&ys);
                Launch::new(&AXPY).buffer("a", &from).buffer("x", &x).buffer("y", &y).flag("negate").run().unwrap();
                assert_same(&y.read::<T>(), &subtracted);
                let doubled: Vec<T> = xs.iter().map(|&x| x.add_product(a, x)).collect();
                Launch::new(&AXPY).buffer("a", &from).buffer("x", &x).buffer("y", &x).run().unwrap();
                assert_same(&x.read::<T>(), &doubled);
            }
        });
    }
    let (x, y) = (Buf::new(&[1.0f32, 2.0]), Buf::new(&[10.0f32, 20.0]));
    Launch::new(&AXPY).scalar("a", 0.5).buffer("x", &x).buffer("y", &y).run().unwrap();
    assert_eq!(y.read::<f32>(), [10.5, 21.0]);
}

#[test]
fn elements_without_a_thread_stay() {
    let (a, out) = (Buf::filled(40, 2i32), Buf::filled(40, 9i32));
    for kernel in BINARY {
        let launch = Launch::new(kernel).buffer("a", &a).buffer("b", &a).buffer("out", &out);
        launch.run_threads([17, 1, 1]).unwrap();
        assert!(out.read::<i32>()[..17].iter().all(|&x| x == apply(kernel, 2, 2)));
        assert!(out.read::<i32>()[17..].iter().all(|&x| x == 9));
    }
    let (x, y) = (Buf::filled(40, 4.0f32), Buf::filled(40, 9.0f32));
    Launch::new(&SQRT).buffer("src", &x).buffer("dst", &y).run_threads([17, 1, 1]).unwrap();
    Launch::new(&SCALE).buffer("data", &x).scalar("factor", 2).run_threads([17, 1, 1]).unwrap();
    Launch::new(&AXPY).scalar("a", 1).buffer("x", &x).buffer("y", &y).run_threads([3, 1, 1]).unwrap();
    let (x, y) = (x.read::<f32>(), y.read::<f32>());
    assert_eq!((x[16], x[17]), (8.0, 4.0));
    assert_eq!((y[2], y[3], y[16], y[17]), (10.0, 2.0, 2.0, 9.0));
}

#[test]
fn lengths_must_agree() {
    let (long, short) = (Buf::filled(4, 0f32), Buf::filled(3, 0f32));
    for kernel in BINARY {
        let launch = Launch::new(kernel).buffer("a", &long).buffer("b", &short).buffer("out", &long);
        assert_eq!(launch.refused(), "`b`: has 3 elements, but `a` has 4; they must be equal");
        let launch = Launch::new(kernel).buffer("a", &long).buffer("b", &long).buffer("out", &short);
        assert_eq!(launch.refused(), "`out`: has 3 elements, but `a` has 4; they must be equal");
    }
    let launch = Launch::new(&SQRT).buffer("src", &long).buffer("dst", &short);
    assert_eq!(launch.refused(), "`dst`: has 3 elements, but `src` has 4; they must be equal");
    let launch = Launch::new(&AXPY).scalar("a", 1).buffer("x", &short).buffer("y", &long);
    assert_eq!(launch.refused(), "`x`: has 3 elements, but `y` has 4; they must be equal");
}
