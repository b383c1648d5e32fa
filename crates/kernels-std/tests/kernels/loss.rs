use half::{bf16, f16};
use squall_core::{Element, with_element};
use squall_kernels_std::{ACCURACY_COUNT, SOFTMAX_CROSS_ENTROPY};

use crate::harness::{Buf, Launch, dtypes};
use crate::reference::{Reference, assert_same};

/// The loss and its gradient.
fn loss_of<T: Reference, L: Element>(logits: &[T], labels: &[L]) -> Result<(T, Vec<T>), String> {
    let (loss, grad) = (Buf::new(&[T::of(77)]), Buf::filled(logits.len(), T::of(77)));
    let (logits, labels) = (Buf::new(logits), Buf::new(labels));
    let launch = Launch::new(&SOFTMAX_CROSS_ENTROPY).buffer("logits", &logits).buffer("labels", &labels);
    launch.buffer("loss", &loss).buffer("grad", &grad).run()?;
    Ok((loss.read()[0], grad.read()))
}

/// By the formulas, in f64.
fn naive(logits: &[f64], labels: &[i64]) -> (f64, Vec<f64>) {
    let classes = logits.len() / labels.len();
    let counted = labels.iter().filter(|&&label| label >= 0).count().max(1) as f64;
    let (mut loss, mut grad) = (0.0, Vec::new());
    for (row, &label) in logits.chunks(classes).zip(labels) {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        for (class, x) in row.iter().enumerate() {
            let wanted = f64::from(class as i64 == label);
            grad.push(if label < 0 { 0.0 } else { (x.exp() / sum - wanted) / counted });
        }
        if label >= 0 {
            loss -= (row[label as usize].exp() / sum).ln() / counted;
        }
    }
    (loss, grad)
}

/// Some logits between -3 and 3.
fn logits(count: usize) -> Vec<f64> {
    (0..count).map(|i| (i as f64 * 1.7).sin() * 3.0).collect()
}

const LABELS: [i64; 6] = [3, 0, -1, 4, 2, -7];

#[test]
fn softmax_cross_entropy_agrees_with_the_formulas() {
    for &dtype in dtypes(&SOFTMAX_CROSS_ENTROPY, "logits") {
        // Rounding of the logits, which stay below 4, and of the result.
        let tolerance = match dtype.name() {
            "f16" => 2e-3,
            "bf16" => 2e-2,
            "f32" => 1e-6,
            _ => 1e-14,
        };
        with_element!(dtype, T => {
            let values: Vec<T> = logits(30).into_iter().map(T::from_f64).collect();
            let exact: Vec<f64> = values.iter().map(|x| x.as_f64()).collect();
            let (wanted_loss, wanted_grad) = naive(&exact, &LABELS);
            let (loss, grad) = loss_of(&values, &LABELS).unwrap();
            assert!((loss.as_f64() - wanted_loss).abs() <= tolerance * 3.0, "{loss:?}, not {wanted_loss}");
            for (grad, wanted) in grad.iter().zip(&wanted_grad) {
                assert!((grad.as_f64() - wanted).abs() <= tolerance, "{grad:?}, not {wanted}");
            }
            assert_same(&grad[10..15], &[T::of(0); 5]);
            let short = LABELS.map(|label| label as i32);
            assert_eq!(loss_of(&values, &short).unwrap(), (loss, grad));
        });
    }
}

#[test]
fn the_gradient_is_the_slope_of_the_loss() {
    let values = logits(30);
    let (_, grad) = loss_of(&values, &LABELS).unwrap();
    let step = 1e-5;
    for index in 0..values.len() {
        let at = |shift: f64| {
            let mut values = values.clone();
            values[index] += shift;
            loss_of(&values, &LABELS).unwrap().0
        };
        let slope = (at(step) - at(-step)) / (2.0 * step);
        assert!(
            (slope - grad[index]).abs() < 1e-9,
            "logit {index}: {} beside a slope of {slope}",
            grad[index]
        );
    }
}

#[test]
fn large_logits_do_not_overflow() {
    let (loss, grad) = loss_of(&[1000f32, 0.0, -1000.0], &[0i32]).unwrap();
    assert_eq!((loss, grad), (0.0, vec![0.0, 0.0, 0.0]));
    let (loss, grad) = loss_of(&[1000f32, 0.0, -1000.0], &[1i32]).unwrap();
    assert_eq!((loss, grad), (1000.0, vec![1.0, -1.0, 0.0]));
    // The mean is taken in f32; the loss fits the type even where a row's sum would not.
    let (loss, _) = loss_of(&[f16::from_f32(6e4), f16::from_f32(-500.0)].repeat(2), &[1i32, 1]).unwrap();
    assert_eq!(loss, f16::from_f32(60500.0));
    let (loss, _) = loss_of(&[f64::NEG_INFINITY, 0.0], &[1i32]).unwrap();
    assert_eq!(loss, 0.0);
}

#[test]
fn nans_and_infinities_show() {
    let none = [f32::NEG_INFINITY; 3];
    for bad in [[1.0, f32::NAN, 0.0], [1.0, f32::INFINITY, 0.0], none] {
        let logits = [bad[0], bad[1], bad[2], 1.0, 2.0, 3.0];
        let (loss, grad) = loss_of(&logits, &[0i32, 1]).unwrap();
        assert!(loss.is_nan() && grad[..3].iter().all(|x| x.is_nan()), "{loss} {grad:?}");
        assert!(grad[3..].iter().all(|x| x.is_finite()));
        // A row that is left out spoils nothing.
        let (loss, grad) = loss_of(&logits, &[-1i32, 1]).unwrap();
        assert!(loss.is_finite() && grad[..3] == [0.0; 3]);
    }
}

#[test]
fn nothing_counted_is_no_loss() {
    assert_eq!(loss_of(&[1f32, 2.0], &[-1i32]), Ok((0.0, vec![0.0, 0.0])));
    assert_eq!(loss_of::<f32, i32>(&[], &[]), Ok((0.0, vec![])));
    assert_eq!(loss_of(&[bf16::ONE; 4], &[-1i64, -2]), Ok((bf16::ZERO, vec![bf16::ZERO; 4])));
}

#[test]
fn a_label_without_a_class_is_an_error_and_writes_nothing() {
    let (values, labels) = (Buf::filled(6, 0f32).shaped(&[3, 2]), Buf::new(&[0i32, -1, 2]));
    let (loss, grad, count) = (Buf::new(&[9f32]), Buf::filled(6, 9f32), Buf::new(&[9i32]));
    let launch = Launch::new(&SOFTMAX_CROSS_ENTROPY).buffer("logits", &values).buffer("labels", &labels);
    let message = "row 2 has a label without a class: 2, of 2 classes".to_string();
    assert_eq!(launch.buffer("loss", &loss).buffer("grad", &grad).run(), Err(message.clone()));
    assert_eq!((loss.read::<f32>(), grad.read::<f32>()), (vec![9.0], vec![9.0; 6]));
    let launch = Launch::new(&ACCURACY_COUNT).buffer("logits", &values).buffer("labels", &labels);
    assert_eq!(launch.buffer("count", &count).run(), Err(message));
    assert_eq!(count.read::<i32>(), [9]);
    let huge = loss_of(&[0f32, 1.0], &[i64::MAX]);
    assert_eq!(huge, Err(format!("row 0 has a label without a class: {}, of 2 classes", i64::MAX)));
}

#[test]
fn any_grid_does_every_row() {
    let (values, labels) = (Buf::filled(6, 0f64), Buf::new(&[0i32, 1, 0]));
    let (loss, grad) = (Buf::new(&[9f64]), Buf::filled(6, 9f64));
    let launch = Launch::new(&SOFTMAX_CROSS_ENTROPY).buffer("logits", &values).buffer("labels", &labels);
    launch.buffer("loss", &loss).buffer("grad", &grad).run_threads([1, 1, 1]).unwrap();
    assert!((loss.read::<f64>()[0] - 2f64.ln()).abs() < 1e-15);
    let sixth = 0.5 / 3.0;
    assert_eq!(grad.read::<f64>(), [-sixth, sixth, sixth, -sixth, -sixth, sixth]);
}

/// How many rows count as right.
fn correct<T: Element>(logits: &[T], labels: &[i32]) -> i32 {
    let (logits, labels, count) = (Buf::new(logits), Buf::new(labels), Buf::new(&[0i32]));
    let launch = Launch::new(&ACCURACY_COUNT).buffer("logits", &logits).buffer("labels", &labels);
    launch.buffer("count", &count).run().unwrap();
    count.read()[0]
}

#[test]
fn accuracy_counts_rows_whose_largest_logit_is_the_labels() {
    for &dtype in dtypes(&ACCURACY_COUNT, "logits") {
        with_element!(dtype, T => {
            let values: Vec<T> = [1, 2, 3, 3, 2, 1, -5, -3, -4].into_iter().map(T::of).collect();
            assert_eq!(correct(&values, &[2, 0, 1]), 3);
            assert_eq!(correct(&values, &[2, 1, 0]), 1);
            assert_eq!(correct(&values, &[-1, 0, -9]), 1);
            assert_eq!(correct::<T>(&[], &[]), 0);
            // The first of equals.
            let equal: Vec<T> = [7, 7, 7].into_iter().map(T::of).collect();
            assert_eq!([0, 1, 2].map(|label| correct(&equal, &[label])), [1, 0, 0]);
        });
    }
}

#[test]
fn a_row_with_a_nan_is_wrong() {
    for label in 0..3 {
        for nan in 0..3 {
            let mut row = [0f32; 3];
            (row[label], row[nan]) = (1.0, f32::NAN);
            assert_eq!(correct(&row, &[label as i32]), 0);
        }
    }
    let infinite = [f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
    assert_eq!(correct(&infinite, &[0, 0]), 2);
}

#[test]
fn accuracy_adds_to_its_count() {
    let (logits, labels) = (Buf::new(&[1f32, 0.0, 0.0, 1.0]), Buf::new(&[0i64, 1]));
    let (short, long) = (Buf::new(&[i32::MAX - 1]), Buf::new(&[40i64]));
    for count in [&short, &long] {
        let launch = Launch::new(&ACCURACY_COUNT).buffer("logits", &logits).buffer("labels", &labels);
        launch.buffer("count", count).run().unwrap();
    }
    assert_eq!((short.read::<i32>(), long.read::<i64>()), (vec![i32::MIN], vec![42]));
    let launch = Launch::new(&ACCURACY_COUNT).buffer("logits", &logits).buffer("labels", &labels);
    launch.buffer("count", &long).run_threads([1, 1, 1]).unwrap();
    assert_eq!(long.read::<i64>(), [43], "a row without a thread is not counted");
}

#[test]
fn shapes_must_agree() {
    let (flat, matrix) = (Buf::filled(5, 0f32), Buf::filled(6, 0f32).shaped(&[3, 2]));
    let (two, one, many) = (Buf::new(&[0i32, 0]), Buf::filled(1, 0f32), Buf::filled(4, 0f32));
    let three = Buf::new(&[0i32; 3]);
    let softmax = |logits, labels, loss, grad| {
        let launch = Launch::new(&SOFTMAX_CROSS_ENTROPY).buffer("logits", logits).buffer("labels", labels);
        launch.buffer("loss", loss).buffer("grad", grad).refused()
    };
    let unequal = "`logits`: has 5 elements, which do not make 2 equal rows, one for each of `labels`";
    assert_eq!(softmax(&flat, &two, &one, &many), unequal);
    let rows = "`logits`: has 3 rows, but `labels` has 2 elements; they must be equal";
    assert_eq!(softmax(&matrix, &two, &one, &many), rows);
    assert_eq!(softmax(&matrix, &three, &many, &many), "`loss`: has 4 elements, but must have one");
    let grad = "`grad`: has 4 elements, but `logits` has 6; they must be equal";
    assert_eq!(softmax(&matrix, &three, &one, &many), grad);
    let accuracy = |logits, labels, count| {
        let launch = Launch::new(&ACCURACY_COUNT).buffer("logits", logits).buffer("labels", labels);
        launch.buffer("count", count).refused()
    };
    assert_eq!(accuracy(&flat, &two, &two), unequal);
    assert_eq!(accuracy(&matrix, &two, &two), rows);
    assert_eq!(accuracy(&matrix, &three, &two), "`count`: has 2 elements, but must have one");
}
