//! cuBLAS's functions, looked up in the library when the first product is made ready.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use squall_dylib::Wanted;
use squall_plugin::core::{DType, DeviceError};

use crate::Product;

static WANTED: Wanted = Wanted {
    what: "cuBLAS",
    names: &["libcublas.so.13", "libcublas.so.12", "libcublas.so"],
    variable: "SQUALL_CUBLAS",
    wheels: &["nvidia/cu13/lib", "nvidia/cublas/lib"],
    install: "cuBLAS 12 or later: `pip install nvidia-cublas`, or `nvidia-cublas-cu12` for CUDA 12",
};

/// `cublasHandle_t` and `cudaStream_t`.
pub(crate) type Opaque = *mut c_void;

macro_rules! functions {
    ($($field:ident = $name:literal: fn($($arg:ty),*);)*) => {
        /// The functions, with the types of cuBLAS's header since version 11. Each returns a `cublasStatus_t`.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> c_int,)*
        }

        impl Functions {
            fn load() -> Result<Functions, String> {
                let found = squall_dylib::open(&WANTED).map_err(|missing| missing.to_string())?;
                let lacks = |name: &str, reason: String| {
                    format!("{} is no cuBLAS that can be used: it has no `{name}`: {reason}", found.path.display())
                };
                // SAFETY: each name stands beside its type.
                Ok(unsafe { Functions { $($field: found.function($name).map_err(|reason| lacks($name, reason))?,)* } })
            }
        }
    };
}

functions! {
    create = "cublasCreate_v2": fn(*mut Opaque);
    set_stream = "cublasSetStream_v2": fn(Opaque, Opaque);
    set_workspace = "cublasSetWorkspace_v2": fn(Opaque, Opaque, usize);
    // handle, transa, transb, m, n, k, alpha, A, type, lda, B, type, ldb, beta, C, type, ldc, compute type, algorithm
    gemm = "cublasGemmEx": fn(
        Opaque, c_int, c_int, c_int, c_int, c_int, *const c_void, *const c_void, c_int, c_int, *const c_void, c_int, c_int,
        *const c_void, *mut c_void, c_int, c_int, c_int, c_int
    );
}

impl Functions {
    /// The library's, opened at the first call. What was missing then stays missing for this process.
    pub(crate) fn get() -> Result<&'static Functions, DeviceError> {
        static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
        let functions = FUNCTIONS.get_or_init(Functions::load);
        functions.as_ref().map_err(|missing| DeviceError::Unsupported(missing.clone()))
    }
}

/// What a function said, as an error that names both.
pub(crate) fn check(function: &str, status: c_int) -> Result<(), DeviceError> {
    let name = match status {
        0 => return Ok(()),
        1 => "CUBLAS_STATUS_NOT_INITIALIZED",
        3 => "CUBLAS_STATUS_ALLOC_FAILED",
        7 => "CUBLAS_STATUS_INVALID_VALUE",
        8 => "CUBLAS_STATUS_ARCH_MISMATCH",
        11 => "CUBLAS_STATUS_MAPPING_ERROR",
        13 => "CUBLAS_STATUS_EXECUTION_FAILED",
        14 => "CUBLAS_STATUS_INTERNAL_ERROR",
        15 => "CUBLAS_STATUS_NOT_SUPPORTED",
        16 => "CUBLAS_STATUS_LICENSE_ERROR",
        other => return Err(DeviceError::Failed(format!("{function}: the unknown status {other}"))),
    };
    Err(DeviceError::Failed(format!("{function}: {name}")))
}

/// `cudaDataType_t` of the elements, and `cublasComputeType_t` of their sums. `None` for what has no product.
pub(crate) fn types(dtype: DType) -> Option<(c_int, c_int)> {
    const COMPUTE_32F: c_int = 68;
    const COMPUTE_64F: c_int = 70;
    match dtype {
        DType::F32 => Some((0, COMPUTE_32F)),
        DType::F64 => Some((1, COMPUTE_64F)),
        DType::F16 => Some((2, COMPUTE_32F)),
        DType::Bf16 => Some((14, COMPUTE_32F)),
        _ => None,
    }
}

/// A product in cuBLAS's terms. It takes matrices column after column, and what lies row after row is then the transpose: so it is asked
/// for `cᵀ = op(b)ᵀ · op(a)ᵀ`, with `b` as its first factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ColumnMajor {
    /// Rows and columns of `cᵀ`, and terms of a sum.
    pub(crate) lengths: [c_int; 3],
    /// Whether `bᵀ` and `aᵀ` are to be transposed: `cublasOperation_t`.
    pub(crate) transposed: [c_int; 2],
    /// How far apart the columns of `bᵀ`, `aᵀ` and `cᵀ` are.
    pub(crate) leading: [c_int; 3],
}

impl ColumnMajor {
    /// `None` where a length is beyond cuBLAS's 31 bits.
    pub(crate) fn of(product: &Product) -> Option<ColumnMajor> {
        let &Product { m, n, k, transpose_a, transpose_b, .. } = product;
        let int = |length: u64| c_int::try_from(length).ok();
        let [m, n, k] = [int(m)?, int(n)?, int(k)?];
        // At least 1, also where there is nothing.
        let row =
            |plain: c_int, transposed: c_int, is: bool| if is { transposed.max(1) } else { plain.max(1) };
        Some(ColumnMajor {
            lengths: [n, m, k],
            transposed: [transpose_b.into(), transpose_a.into()],
            leading: [row(n, k, transpose_b), row(k, m, transpose_a), n.max(1)],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The product as cuBLAS's manual defines it, element by element.
    fn gemm(call: &ColumnMajor, first: &[f64], second: &[f64], c: &mut [f64]) {
        let [m, n, k] = call.lengths.map(|length| length as usize);
        let [lda, ldb, ldc] = call.leading.map(|length| length as usize);
        let at = |x: &[f64], ld: usize, transposed: c_int, i: usize, j: usize| match transposed {
            0 => x[i + j * ld],
            _ => x[j + i * ld],
        };
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            c[i + j * ldc] = (0..k)
                .map(|l| at(first, lda, call.transposed[0], i, l) * at(second, ldb, call.transposed[1], l, j))
                .sum();
        }
    }

    #[test]
    fn rows_become_columns_in_all_four_forms() {
        let (m, n, k) = (2usize, 4usize, 3usize);
        let (a, b) = (
            |i: usize, l: usize| (1 + i * 5 + l * 7) as f64,
            |l: usize, j: usize| (2 + l * 3 + j * 11) as f64,
        );
        let rows = |rows: usize, columns: usize, of: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
            (0..rows * columns).map(|i| of(i / columns, i % columns)).collect()
        };
        for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
            let a_rows = if transpose_a { rows(k, m, &|l, i| a(i, l)) } else { rows(m, k, &a) };
            let b_rows = if transpose_b { rows(n, k, &|j, l| b(l, j)) } else { rows(k, n, &b) };
            let lengths = [m, n, k].map(|length| length as u64);
            let product = Product {
                m: lengths[0],
                n: lengths[1],
                k: lengths[2],
                alpha: 1.0,
                beta: 0.0,
                transpose_a,
                transpose_b,
            };
            let mut c = vec![0.0; m * n];
            gemm(&ColumnMajor::of(&product).unwrap(), &b_rows, &a_rows, &mut c);
            let expected = rows(m, n, &|i, j| (0..k).map(|l| a(i, l) * b(l, j)).sum());
            assert_eq!(c, expected, "transposed: {transpose_a} {transpose_b}");
        }
    }

    #[test]
    fn lengths_beyond_an_int_are_seen() {
        let product =
            |m| Product { m, n: 0, k: 1, alpha: 1.0, beta: 0.0, transpose_a: false, transpose_b: false };
        assert_eq!(ColumnMajor::of(&product(1 << 31)), None);
        assert_eq!(ColumnMajor::of(&product(1)).unwrap().leading, [1, 1, 1]);
    }

    /// In a process of its own, since the variable is read once.
    #[test]
    fn a_missing_library_is_told_with_every_place() {
        const NOWHERE: &str = "/nowhere/libcublas.so";
        if std::env::var_os(WANTED.variable).is_none_or(|file| file != NOWHERE) {
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            alone.args(["--exact", "cublas::tests::a_missing_library_is_told_with_every_place"]);
            let output = alone.env(WANTED.variable, NOWHERE).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            return;
        }
        let Err(DeviceError::Unsupported(text)) = Functions::get() else { panic!("there is one") };
        assert!(
            text.contains("cuBLAS cannot be opened as SQUALL_CUBLAS says") && text.contains(NOWHERE),
            "{text}"
        );
    }

    #[test]
    fn a_status_is_told_by_its_name() {
        let said = |status| check("cublasGemmEx", status).map_err(|error| error.to_string());
        assert_eq!(said(0), Ok(()));
        assert_eq!(said(13), Err("cublasGemmEx: CUBLAS_STATUS_EXECUTION_FAILED".into()));
        assert_eq!(said(99), Err("cublasGemmEx: the unknown status 99".into()));
    }
}
