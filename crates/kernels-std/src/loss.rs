//! A classifier's loss and its accuracy: logits against labels, row by row.

use std::cell::Cell;

use num_traits::Float;
use squall_core::{ArgError, Args, Cover, CudaSource, DType, HostCall, KernelDef, ParamDef, Type};

use crate::check::{FLOAT, has_row_for_each, one_element, same_len};
use crate::numeric::{Arithmetic, Number, with_float};
use crate::reduce::PARTIALS;
use crate::{cuda_text, example};

const LOGITS: ParamDef = ParamDef::read("logits", FLOAT, "[rows, classes]");
const LABELS: ParamDef = ParamDef::read(
    "labels",
    Type::In(&[DType::I32, DType::I64]),
    "[rows], the class of each row; a row with a negative label is left out",
);

/// What the CUDA forms say of a wrong label: the host forms' words, which go on with the label.
const NO_CLASS: &str = "row {} has a label without a class";

/// The labels of a launch, of either dtype.
enum Labels<'a> {
    I32(&'a [Cell<i32>]),
    I64(&'a [Cell<i64>]),
}

impl<'a> Labels<'a> {
    fn of(call: &HostCall<'a>) -> Result<Labels<'a>, String> {
        Ok(match call.dtype("labels") {
            DType::I32 => Labels::I32(call.cells("labels")?),
            _ => Labels::I64(call.cells("labels")?),
        })
    }

    fn len(&self) -> usize {
        match self {
            Labels::I32(labels) => labels.len(),
            Labels::I64(labels) => labels.len(),
        }
    }

    /// The class of a row, or `None` for a row that is left out. Errs when there is no such class.
    fn class(&self, row: usize, classes: usize) -> Result<Option<usize>, String> {
        let label = match self {
            Labels::I32(labels) => i64::from(labels[row].get()),
            Labels::I64(labels) => labels[row].get(),
        };
        match usize::try_from(label) {
            Ok(class) if class < classes => Ok(Some(class)),
            _ if label < 0 => Ok(None),
            _ => Err(format!("row {row} has a label without a class: {label}, of {classes} classes")),
        }
    }
}

/// The mean cross entropy of the softmax of each row, and its gradient.
///
/// `loss` is the mean over the rows that are counted, and 0 when none is. A row that is left out has a gradient
/// of zero. A label at or beyond the number of classes fails the rank before anything is written. A NaN or a
/// positive infinity among a row's logits, or nothing but negative ones, makes the loss and the row's gradient
/// NaN.
pub static SOFTMAX_CROSS_ENTROPY: KernelDef = KernelDef {
    name: "softmax_cross_entropy",
    summary: "loss[0] = the mean of -ln softmax(logits[r])[labels[r]]; grad = its gradient at logits",
    params: &[
        LOGITS,
        LABELS,
        ParamDef::write("loss", Type::Same("logits"), "[1], the mean over the rows that are counted"),
        ParamDef::write("grad", Type::Same("logits"), "[rows, classes]"),
    ],
    covers: &[Cover::Any],
    check: &check_softmax_cross_entropy,
    example: example!(
        "softmax_cross_entropy",
        r#"
[buffer.logits]
dtype = "f32"
shape = [2, 3]
init = { iota = true }

[buffer.labels]
dtype = "i32"
shape = [2]
init = { values = [2, -1] }

[buffer.loss]
dtype = "f32"
shape = [1]
save = "loss-{rank}.npy"

[buffer.grad]
dtype = "f32"
shape = [2, 3]
save = "grad-{rank}.npy"

[[task]]
kernel = "softmax_cross_entropy"
args = { logits = "logits", labels = "labels", loss = "loss", grad = "grad" }
grid = { threads = 32, block = 32 }
"#
    ),
    host: Some(&softmax_cross_entropy),
    cuda: Some(
        CudaSource::new(cuda_text!("sums.cuh", "softmax_cross_entropy.cu"), "softmax_cross_entropy")
            .looping()
            .failing(&[NO_CLASS])
            .scratch(24 + PARTIALS),
    ),
    ..KernelDef::EMPTY
};

fn check_softmax_cross_entropy(args: &Args<'_>) -> Result<(), ArgError> {
    has_row_for_each(args, "logits", "labels")?;
    one_element(args, "loss")?;
    same_len(args, "grad", "logits")
}

fn softmax_cross_entropy(call: &HostCall<'_>) -> Result<(), String> {
    with_float!(call.dtype("logits"), T => softmax_cross_entropy_of::<T>(call))
}

fn softmax_cross_entropy_of<T: Number<Wide: Float>>(call: &HostCall<'_>) -> Result<(), String> {
    let (logits, grad, labels) = (call.cells::<T>("logits")?, call.cells::<T>("grad")?, Labels::of(call)?);
    let classes = logits.len().checked_div(labels.len()).unwrap_or(0);
    let mut counted = 0;
    for row in 0..labels.len() {
        counted += usize::from(labels.class(row, classes)?.is_some());
    }
    let counted = T::Wide::from_index(counted.max(1));
    let mut loss = T::Wide::ZERO;
    for row in 0..labels.len() {
        let (from, to) = (row * classes, (row + 1) * classes);
        let (logits, grad) = (&logits[from..to], &grad[from..to]);
        match labels.class(row, classes)? {
            Some(class) => loss = loss + softmax_row(logits, class, counted, grad),
            None => grad.iter().for_each(|grad| grad.set(T::narrow(T::Wide::ZERO))),
        }
    }
    call.cells::<T>("loss")?.iter().for_each(|cell| cell.set(T::narrow(loss / counted)));
    Ok(())
}

/// The loss of one row; writes its gradient, a `counted`-th of the row's own.
fn softmax_row<T: Number<Wide: Float>>(
    logits: &[Cell<T>],
    class: usize,
    counted: T::Wide,
    grad: &[Cell<T>],
) -> T::Wide {
    // `Float::max` passes over NaNs; the sum below finds them.
    let max = logits.iter().fold(T::Wide::neg_infinity(), |max, x| max.max(x.get().widen()));
    let sum = logits.iter().fold(T::Wide::ZERO, |sum, x| sum + (x.get().widen() - max).exp());
    for (index, (x, grad)) in logits.iter().zip(grad).enumerate() {
        let softmax = (x.get().widen() - max).exp() / sum;
        let wanted = if index == class { T::Wide::from_index(1) } else { T::Wide::ZERO };
        grad.set(T::narrow((softmax - wanted) / counted));
    }
    sum.ln() - (logits[class].get().widen() - max)
}

/// Counts rows whose largest logit is the label's.
///
/// It adds to `count`, so that a count runs over steps; fill it with 0 where it shall begin. Of several
/// largest logits the first counts. A row with a NaN among its logits counts as wrong. A label at or beyond the
/// number of classes fails the rank before anything is written.
pub static ACCURACY_COUNT: KernelDef = KernelDef {
    name: "accuracy_count",
    summary: "count[0] += the number of rows whose largest logit is the label's; a row with a NaN is wrong",
    params: &[
        LOGITS,
        LABELS,
        ParamDef::read_write("count", Type::In(&[DType::I32, DType::I64]), "[1], added to"),
    ],
    covers: &[Cover::Len("labels")],
    check: &|args| {
        has_row_for_each(args, "logits", "labels")?;
        one_element(args, "count")
    },
    example: example!(
        "accuracy_count",
        r#"
[buffer.logits]
dtype = "f32"
shape = [2, 3]
init = { iota = true }

[buffer.labels]
dtype = "i32"
shape = [2]
init = { values = [2, 0] }

[buffer.correct]
dtype = "i32"
shape = [1]
init = { fill = 0 }
save = "correct-{rank}.npy"

[[task]]
kernel = "accuracy_count"
args = { logits = "logits", labels = "labels", count = "correct" }
grid = { threads = 2, block = 32 }
"#
    ),
    host: Some(&accuracy_count),
    cuda: Some(
        CudaSource::new(cuda_text!("sums.cuh", "accuracy_count.cu"), "accuracy_count")
            .failing(&[NO_CLASS])
            .scratch(24),
    ),
    ..KernelDef::EMPTY
};

fn accuracy_count(call: &HostCall<'_>) -> Result<(), String> {
    let correct = with_float!(call.dtype("logits"), T => correct_rows::<T>(call))?;
    match call.dtype("count") {
        DType::I32 => add_count::<i32>(call, correct),
        _ => add_count::<i64>(call, correct),
    }
}

fn add_count<T: Number<Wide = T> + Arithmetic>(call: &HostCall<'_>, correct: usize) -> Result<(), String> {
    call.cells::<T>("count")?.iter().for_each(|count| count.set(count.get().plus(T::from_index(correct))));
    Ok(())
}

fn correct_rows<T: Number>(call: &HostCall<'_>) -> Result<usize, String> {
    let (logits, labels) = (call.cells::<T>("logits")?, Labels::of(call)?);
    let classes = logits.len().checked_div(labels.len()).unwrap_or(0);
    let mut correct = 0;
    for row in 0..labels.len().min(call.launched()[0]) {
        if let Some(class) = labels.class(row, classes)? {
            let logits = &logits[row * classes..(row + 1) * classes];
            let label = logits[class].get().widen();
            // Every comparison with a NaN is false, its own with itself too.
            let before = logits[..class].iter().all(|x| x.get().widen() < label);
            let after = logits[class..].iter().all(|x| x.get().widen() <= label);
            correct += usize::from(before && after);
        }
    }
    Ok(correct)
}
