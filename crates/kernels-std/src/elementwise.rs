//! Arithmetic, element by element.

use squall_core::{Cover, CudaSource, HostCall, KernelDef, ParamDef, Type, with_element};

use crate::check::{ANY, FLOAT, same_len};
use crate::map::{map, reached, zip};
use crate::numeric::{Arithmetic, Number, with_float};
use crate::{cuda_text, example};

/// What `add`, `sub`, `mul` and `div` share.
const BINARY: KernelDef = KernelDef {
    params: &[
        ParamDef::read("a", ANY, "[n]"),
        ParamDef::read("b", Type::Same("a"), "[n]"),
        ParamDef::write("out", Type::Same("a"), "[n]; may be `a` or `b`"),
    ],
    covers: &[Cover::Len("out")],
    in_place: &[("out", "a"), ("out", "b")],
    check: &|args| {
        same_len(args, "b", "a")?;
        same_len(args, "out", "a")
    },
    ..KernelDef::EMPTY
};

/// The example of a kernel with the parameters of [`BINARY`].
macro_rules! binary_example {
    ($name:literal) => {
        concat!(
            example!(
                $name,
                r#"
[buffer.a]
dtype = "f32"
shape = [4]
init = { values = [1, 2, 3, 4] }

[buffer.b]
dtype = "f32"
shape = [4]
init = { fill = 2 }

[buffer.out]
dtype = "f32"
shape = [4]
save = "out-{rank}.npy"
"#
            ),
            "\n[[task]]\nkernel = \"",
            $name,
            "\"\n",
            r#"args = { a = "a", b = "b", out = "out" }
grid = { threads = 4, block = 32 }
"#
        )
    };
}

fn binary<T: Number>(call: &HostCall<'_>, f: impl Fn(T::Wide, T::Wide) -> T::Wide) -> Result<(), String> {
    let (a, b, out) = (reached::<T>(call, "a")?, reached::<T>(call, "b")?, reached::<T>(call, "out")?);
    zip(a, b, out, f);
    Ok(())
}

/// `out[i] = a[i] + b[i]`.
pub static ADD: KernelDef = KernelDef {
    name: "add",
    summary: "out[i] = a[i] + b[i]; integers wrap",
    example: binary_example!("add"),
    host: Some(&add),
    cuda: Some(CudaSource::new(cuda_text!("add.cu"), "add").looping()),
    ..BINARY
};

fn add(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("out"), T => binary::<T>(call, Arithmetic::plus))
}

/// `out[i] = a[i] - b[i]`.
pub static SUB: KernelDef = KernelDef {
    name: "sub",
    summary: "out[i] = a[i] - b[i]; integers wrap",
    example: binary_example!("sub"),
    host: Some(&sub),
    cuda: Some(CudaSource::new(cuda_text!("sub.cu"), "sub").looping()),
    ..BINARY
};

fn sub(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("out"), T => binary::<T>(call, Arithmetic::minus))
}

/// `out[i] = a[i] * b[i]`.
pub static MUL: KernelDef = KernelDef {
    name: "mul",
    summary: "out[i] = a[i] * b[i]; integers wrap",
    example: binary_example!("mul"),
    host: Some(&mul),
    cuda: Some(CudaSource::new(cuda_text!("mul.cu"), "mul").looping()),
    ..BINARY
};

fn mul(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("out"), T => binary::<T>(call, Arithmetic::times))
}

/// `out[i] = a[i] / b[i]`. The quotient of integers is cut toward zero, and the least integer over -1 wraps to
/// itself; an integer over zero fails the rank. The host then has written nothing; a CUDA device has written all but the
/// elements whose quotient does not exist, and names any one of them.
pub static DIV: KernelDef = KernelDef {
    name: "div",
    summary: "out[i] = a[i] / b[i]; integers are cut toward zero, and an integer over zero is an error",
    example: binary_example!("div"),
    host: Some(&div),
    cuda: Some(
        CudaSource::new(cuda_text!("div.cu"), "div")
            .looping()
            .failing(&["division by zero: element {} of `b` is 0"]),
    ),
    ..BINARY
};

fn div(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("out"), T => {
        if !call.dtype("out").is_float() {
            let zero = T::narrow(Arithmetic::ZERO);
            if let Some(index) = reached::<T>(call, "b")?.iter().position(|b| b.get() == zero) {
                return Err(format!("division by zero: element {index} of `b` is 0"));
            }
        }
        binary::<T>(call, Arithmetic::over)
    })
}

/// `dst[i] = sqrt(src[i])`; NaN where `src[i]` is negative.
pub static SQRT: KernelDef = KernelDef {
    name: "sqrt",
    summary: "dst[i] = the square root of src[i]; NaN of a negative",
    params: &[
        ParamDef::read("src", FLOAT, "[n]"),
        ParamDef::write("dst", Type::Same("src"), "[n]; may be `src`"),
    ],
    covers: &[Cover::Len("dst")],
    in_place: &[("dst", "src")],
    check: &|args| same_len(args, "dst", "src"),
    example: example!(
        "sqrt",
        r#"
[buffer.x]
dtype = "f32"
shape = [4]
init = { values = [0, 1, 4, 9] }
save = "x-{rank}.npy"

[[task]]
kernel = "sqrt"
args = { src = "x", dst = "x" }
grid = { threads = 4, block = 32 }
"#
    ),
    host: Some(&sqrt),
    cuda: Some(CudaSource::new(cuda_text!("sqrt.cu"), "square_roots").looping()),
};

fn sqrt(call: &HostCall<'_>) -> Result<(), String> {
    with_float!(call.dtype("dst"), T => {
        map::<T, T>(reached(call, "src")?, reached(call, "dst")?, |x| x.sqrt());
        Ok(())
    })
}

/// `data[i] *= factor`.
pub static SCALE: KernelDef = KernelDef {
    name: "scale",
    summary: "data[i] *= factor; integers wrap",
    params: &[
        ParamDef::read_write("data", ANY, "[n]"),
        ParamDef::scalar("factor", Type::Same("data"), "what every element is multiplied by"),
    ],
    covers: &[Cover::Len("data")],
    example: example!(
        "scale",
        r#"
[buffer.x]
dtype = "f32"
shape = [4]
init = { iota = true }
save = "x-{rank}.npy"

[[task]]
kernel = "scale"
args = { data = "x", factor = 2.0 }
grid = { threads = 4, block = 32 }
"#
    ),
    host: Some(&scale),
    cuda: Some(CudaSource::new(cuda_text!("scale.cu"), "scale").looping()),
    ..KernelDef::EMPTY
};

fn scale(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("data"), T => {
        let (data, factor) = (reached::<T>(call, "data")?, call.scalar::<T>("factor")?.widen());
        map::<T, T>(data, data, |x| x.times(factor));
        Ok(())
    })
}

/// `y[i] += a * x[i]`, or `y[i] -= a * x[i]`.
pub static AXPY: KernelDef = KernelDef {
    name: "axpy",
    summary: "y[i] += a * x[i], or -= with negate; integers wrap",
    params: &[
        ParamDef::scalar("a", Type::Same("y"), "the factor"),
        ParamDef::read("x", Type::Same("y"), "[n]"),
        ParamDef::read_write("y", ANY, "[n]; may be `x`"),
        ParamDef::flag("negate", "subtracts instead of adding"),
    ],
    covers: &[Cover::Len("y")],
    in_place: &[("y", "x")],
    check: &|args| same_len(args, "x", "y"),
    example: example!(
        "axpy",
        r#"
[buffer.x]
dtype = "f32"
shape = [4]
init = { iota = true }

[buffer.y]
dtype = "f32"
shape = [4]
init = { fill = 1 }
save = "y-{rank}.npy"

[[task]]
kernel = "axpy"
args = { a = 0.5, x = "x", y = "y", negate = true }
grid = { threads = 4, block = 32 }
"#
    ),
    host: Some(&axpy),
    cuda: Some(CudaSource::new(cuda_text!("axpy.cu"), "axpy").looping()),
};

fn axpy(call: &HostCall<'_>) -> Result<(), String> {
    with_element!(call.dtype("y"), T => {
        let a = call.scalar::<T>("a")?.widen();
        let (x, y) = (reached::<T>(call, "x")?, reached::<T>(call, "y")?);
        if call.args().flag("negate") {
            zip(x, y, y, |x, y| y.minus(a.times(x)));
        } else {
            zip(x, y, y, |x, y| y.plus(a.times(x)));
        }
        Ok(())
    })
}
