//! Layers of a network and their gradients.

use squall_core::{Cover, CudaSource, DType, HostCall, KernelDef, ParamDef, Type, with_element};

use crate::check::{ANY, FLOAT, has_rows_like, same_len};
use crate::map::{map, reached, zip};
use crate::numeric::{Arithmetic, Number, with_float};
use crate::{cuda_text, example};

/// `dst[i] = max(src[i], 0)`; NaN stays NaN.
pub static RELU: KernelDef = KernelDef {
    name: "relu",
    summary: "dst[i] = src[i], or 0 where src[i] is negative; NaN stays",
    params: &[
        ParamDef::read(
            "src",
            Type::In(&[DType::F16, DType::Bf16, DType::F32, DType::F64, DType::I8, DType::I32, DType::I64]),
            "[n]",
        ),
        ParamDef::write("dst", Type::Same("src"), "[n]; may be `src`"),
    ],
    covers: &[Cover::Len("dst")],
    in_place: &[("dst", "src")],
    check: &|args| same_len(args, "dst", "src"),
    example: example!(
        "relu",
        r#"
[buffer.x]
dtype = "f32"
shape = [4]
init = { fill = "i - 2" }
save = "x-{rank}.npy"

[[task]]
kernel = "relu"
args = { src = "x", dst = "x" }
grid = { threads = 4, block = 32 }
"#
    ),
    host: Some(&relu),
    cuda: Some(CudaSource::new(cuda_text!("relu.cu"), "relu").looping()),
};

fn relu(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("dst"), T => {
        let zero = Arithmetic::ZERO;
        map::<T, T>(reached(call, "src")?, reached(call, "dst")?, |x| if x < zero { zero } else { x });
        Ok(())
    })
}

/// The gradient of [`RELU`]: passes where its input was positive, which is where its output is.
pub static RELU_GRAD: KernelDef = KernelDef {
    name: "relu_grad",
    summary: "src_grad[i] = dst_grad[i], or 0 where src[i] is 0 or less",
    params: &[
        ParamDef::read("src", FLOAT, "[n], relu's `src` or its `dst`"),
        ParamDef::read("dst_grad", Type::Same("src"), "[n], the gradient at relu's `dst`"),
        ParamDef::write("src_grad", Type::Same("src"), "[n], the gradient at relu's `src`; may be either"),
    ],
    covers: &[Cover::Len("src_grad")],
    in_place: &[("src_grad", "dst_grad"), ("src_grad", "src")],
    check: &|args| {
        same_len(args, "dst_grad", "src")?;
        same_len(args, "src_grad", "src")
    },
    example: example!(
        "relu_grad",
        r#"
[buffer.x]
dtype = "f32"
shape = [4]
init = { fill = "i - 2" }

[buffer.grad]
dtype = "f32"
shape = [4]
init = { fill = 1 }
save = "grad-{rank}.npy"

[[task]]
kernel = "relu_grad"
args = { src = "x", dst_grad = "grad", src_grad = "grad" }
grid = { threads = 4, block = 32 }
"#
    ),
    host: Some(&relu_grad),
    cuda: Some(CudaSource::new(cuda_text!("relu_grad.cu"), "relu_grad").looping()),
};

fn relu_grad(call: &HostCall<'_>) -> Result<(), String> {
    with_float!(call.dtype("src"), T => {
        let (src, dst_grad) = (reached::<T>(call, "src")?, reached::<T>(call, "dst_grad")?);
        zip(src, dst_grad, reached(call, "src_grad")?, |x, grad| if x <= 0.0 { 0.0 } else { grad });
        Ok(())
    })
}

/// Adds a bias to every row of a matrix. Its gradient is that of `sum_rows`.
pub static BIAS_ROWS: KernelDef = KernelDef {
    name: "bias_rows",
    summary: "data[r, c] += bias[c]; integers wrap",
    params: &[
        ParamDef::read_write("data", ANY, "[rows, cols]"),
        ParamDef::read("bias", Type::Same("data"), "[cols]"),
    ],
    covers: &[Cover::Len("data")],
    check: &|args| has_rows_like(args, "data", "bias"),
    example: example!(
        "bias_rows",
        r#"
[buffer.x]
dtype = "f32"
shape = [3, 2]
init = { iota = true }
save = "x-{rank}.npy"

[buffer.bias]
dtype = "f32"
shape = [2]
init = { values = [10, 20] }

[[task]]
kernel = "bias_rows"
args = { data = "x", bias = "bias" }
grid = { threads = 6, block = 32 }
"#
    ),
    host: Some(&bias_rows),
    cuda: Some(CudaSource::new(cuda_text!("bias_rows.cu"), "bias_rows").looping()),
    ..KernelDef::EMPTY
};

fn bias_rows(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("data"), T => {
        let bias = call.cells::<T>("bias")?;
        // Without columns there is no element.
        for row in reached::<T>(call, "data")?.chunks(bias.len().max(1)) {
            zip(row, bias, row, Arithmetic::plus);
        }
        Ok(())
    })
}

/// A step of gradient descent.
pub static SGD: KernelDef = KernelDef {
    name: "sgd",
    summary: "param[i] -= lr * grad[i]",
    params: &[
        ParamDef::read_write("param", FLOAT, "[n]"),
        ParamDef::read("grad", Type::Same("param"), "[n]"),
        ParamDef::scalar("lr", Type::Same("param"), "the learning rate"),
    ],
    covers: &[Cover::Len("param")],
    check: &|args| same_len(args, "grad", "param"),
    example: example!(
        "sgd",
        r#"
[buffer.w]
dtype = "f32"
shape = [4]
init = { fill = 1 }
save = "w-{rank}.npy"

[buffer.grad]
dtype = "f32"
shape = [4]
init = { iota = true }

[[task]]
kernel = "sgd"
args = { param = "w", grad = "grad", lr = 0.1 }
grid = { threads = 4, block = 32 }
"#
    ),
    host: Some(&sgd),
    cuda: Some(CudaSource::new(cuda_text!("sgd.cu"), "sgd").looping()),
    ..KernelDef::EMPTY
};

fn sgd(call: &HostCall<'_>) -> Result<(), String> {
    with_float!(call.dtype("param"), T => {
        let (param, lr) = (reached::<T>(call, "param")?, call.scalar::<T>("lr")?.widen());
        zip(param, reached(call, "grad")?, param, |param, grad| param - lr * grad);
        Ok(())
    })
}
