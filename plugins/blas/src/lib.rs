//! A plugin of squall: the op `gemm`, a product of matrices by the fastest library at hand.
//!
//! `c = alpha · op(a) · op(b) + beta · c`, row-major, where `op` transposes or does not. The library is `blas` on every device: cuBLAS on
//! GPUs, opened when the first product is made ready, so that a machine without it loads the plugin and checks manifests; and the crate
//! `matrixmultiply` on the host. No rank meets another in it.
//!
//! The key decision: a description alone ([`Gemm`], with the rules between the shapes), and two ways to run it, each in a file of its
//! own. What both have in common is `Product`. The cost: `matrixmultiply` allocates its packing buffers in every call on the host.

mod cublas;
mod cuda;
mod host;

use squall_plugin::core::{
    Access, Arg, ArgError, Args, BoundRange, BufferRange, DType, Description, LibraryOp, Mode, Needs, OpCall,
    OpError, ParamDef, Prepare, Task, Type, Work, register_op,
};

const FLOATS: Type = Type::In(DType::FLOATS);

const PARAMS: &[ParamDef] = &[
    ParamDef::read("a", FLOATS, "[m, k], or [k, m] if transposed"),
    ParamDef::read("b", Type::Same("a"), "[k, n], or [n, k] if transposed"),
    ParamDef::read_write("c", Type::Same("a"), "[m, n]; only written where beta is 0"),
    ParamDef::scalar("alpha", Type::Same("a"), "a number, 1 if not given").optional(),
    ParamDef::scalar("beta", Type::Same("a"), "a number, 0 if not given").optional(),
    ParamDef::flag("transpose_a", "takes the transpose of a"),
    ParamDef::flag("transpose_b", "takes the transpose of b"),
];

/// `gemm` on host devices. Takes `f32` and `f64`.
pub static GEMM_ON_HOST: Gemm = Gemm { device: "host", dtypes: &[DType::F32, DType::F64] };
/// `gemm` on CUDA devices. Takes all floats; sums of the half types are `f32`.
pub static GEMM_ON_CUDA: Gemm = Gemm { device: "cuda", dtypes: DType::FLOATS };

register_op!(&GEMM_ON_HOST, &GEMM_ON_CUDA);
squall_plugin::export!();

/// The op on one kind of device.
#[derive(Debug)]
pub struct Gemm {
    device: &'static str,
    dtypes: &'static [DType],
}

impl Task for Gemm {
    fn name(&self) -> &'static str {
        "gemm"
    }

    fn summary(&self) -> &'static str {
        "c = alpha * op(a) * op(b) + beta * c, where op transposes or does not"
    }

    fn params(&self) -> &'static [ParamDef] {
        PARAMS
    }

    fn example(&self) -> &'static str {
        r#"manifest = 1

[pipeline]
name = "gemm"

[buffer.a]
dtype = "f32"
shape = [2, 3]
init = { iota = true }

[buffer.b]
dtype = "f32"
shape = [4, 3]
init = { iota = true }

[buffer.c]
dtype = "f32"
shape = [2, 4]
save = "c-{rank}.npy"

[[task]]
op = "gemm"
args = { a = "a", b = "b", c = "c", transpose_b = true }
"#
    }

    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        let product = Product::new(args, |range: &BufferRange| &range.shape)?;
        let c = if product.beta == 0.0 { Mode::Write } else { Mode::ReadWrite };
        let touched = [("a", Mode::Read), ("b", Mode::Read), ("c", c)].into_iter();
        let accesses = touched.filter_map(|(param, mode)| {
            let range = args.buffer(param)?;
            let elements = range.offset..range.offset + range.len();
            Some(Access { param, buffer: range.buffer, range: elements, mode })
        });
        Ok(Description { accesses: accesses.collect(), meetings: Vec::new() })
    }
}

impl LibraryOp for Gemm {
    fn library(&self) -> &'static str {
        "blas"
    }

    fn device(&self) -> &'static str {
        self.device
    }

    fn needs(&self) -> Needs {
        Needs { dtypes: self.dtypes, groups: false, ..Needs::NONE }
    }

    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let [call] = batch else {
            return Err(arg_error(ArgError::new("a", "stands in a group, which `gemm` cannot")));
        };
        let product = Product::new(&call.args, |range: &BoundRange| &range.shape).map_err(arg_error)?;
        // SAFETY: the caller vouches for the ranges.
        unsafe {
            match self.device {
                "host" => host::prepare(&call.args, cx),
                _ => cuda::prepare(&call.args, &product, cx),
            }
        }
    }
}

fn arg_error(error: ArgError) -> OpError {
    OpError::Arg { member: 0, error }
}

/// What is multiplied: `c` is `m` by `n`, and each of its elements a sum of `k` products.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Product {
    m: u64,
    n: u64,
    k: u64,
    alpha: f64,
    beta: f64,
    transpose_a: bool,
    transpose_b: bool,
}

impl Product {
    /// Reads the arguments, and checks that their shapes fit.
    fn new<B>(args: &Args<'_, B>, shape: impl Fn(&B) -> &[u64]) -> Result<Product, ArgError> {
        let (transpose_a, transpose_b) = (args.flag("transpose_a"), args.flag("transpose_b"));
        let matrix = |param, transposed| match args.buffer(param).map(&shape) {
            Some(&[rows, columns]) => Ok(if transposed { (columns, rows) } else { (rows, columns) }),
            Some(other) => {
                Err(ArgError::new(param, format!("has the shape {other:?}, but a matrix has two axes")))
            }
            None => Err(ArgError::new(param, "is missing")),
        };
        let ((m, k), (terms, n)) = (matrix("a", transpose_a)?, matrix("b", transpose_b)?);
        if terms != k {
            let message = format!(
                "has {terms} on axis {}, but axis {} of `a` is {k}; they must be equal",
                u8::from(transpose_b),
                u8::from(!transpose_a)
            );
            return Err(ArgError::new("b", message));
        }
        if matrix("c", false)? != (m, n) {
            let (rows, columns) = matrix("c", false)?;
            return Err(ArgError::new("c", format!("is {rows} by {columns}, but the product is {m} by {n}")));
        }
        let number = |param, default| match args.get(param) {
            Arg::Scalar(scalar) => Ok(scalar.as_f64()),
            Arg::Absent => Ok(default),
            _ => Err(ArgError::new(param, "must be a number, not a buffer")),
        };
        let (alpha, beta) = (number("alpha", 1.0)?, number("beta", 0.0)?);
        Ok(Product { m, n, k, alpha, beta, transpose_a, transpose_b })
    }
}
