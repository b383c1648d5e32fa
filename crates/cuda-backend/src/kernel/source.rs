//! A kernel's text for given dtypes: the types of its arguments, the prelude, its own text, and the function that is launched.

use std::fmt::Write as _;

use squall_core::{Arg, BoundRange, CudaSource, DType, KernelDef, ParamDef, ParamKind, Type};

const PRELUDE: &str = include_str!("prelude.cuh");

/// The name of the function that is launched.
pub(crate) const LAUNCHED: &str = "squall_kernel";

/// A kernel for one combination of dtypes and one size of block: the text to compile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Specialised {
    /// The kernel's name, for messages.
    pub kernel: &'static str,
    /// The whole text.
    pub text: String,
}

impl Specialised {
    /// The text for these arguments. `None` when the kernel has no CUDA form.
    ///
    /// `block` is the number of threads of a block; the compiler is told it rounded up, so that few versions are made.
    pub fn new(kernel: &'static KernelDef, args: &[Arg<BoundRange>], block: u32) -> Option<Specialised> {
        let dtypes: Vec<DType> =
            (0..kernel.params.len()).map(|place| dtype(kernel.params, args, place)).collect();
        Specialised::with_dtypes(kernel, &dtypes, block)
    }

    /// The text with a dtype for each parameter; those of parameters that are neither buffers nor numbers are not looked at.
    pub fn with_dtypes(kernel: &'static KernelDef, dtypes: &[DType], block: u32) -> Option<Specialised> {
        let source = kernel.cuda?;
        Some(Specialised { kernel: kernel.name, text: text(kernel, &source, dtypes, block) })
    }
}

fn text(kernel: &KernelDef, source: &CudaSource, dtypes: &[DType], block: u32) -> String {
    let mut text = String::with_capacity(PRELUDE.len() + source.source.len() + 1024);
    text += PRELUDE;
    for (param, dtype) in kernel.params.iter().zip(dtypes) {
        if matches!(param.kind, ParamKind::Buffer(..) | ParamKind::Scalar(_)) {
            let _ = writeln!(text, "typedef {dtype} {}_t;", param.name);
        }
    }
    let bounds = block.clamp(256, 1024).next_power_of_two();
    let _ = writeln!(text, "namespace squall {{ constexpr u32 most_threads = {bounds}; }}");
    let _ = writeln!(text, "#line 1 \"{}.cu\"\n{}", kernel.name, source.source);
    // Every field takes a multiple of eight bytes: what `Arguments` writes.
    text += "#line 1 \"squall\"\nstruct squall_arguments {\n";
    for (place, param) in kernel.params.iter().enumerate() {
        // Numbered, since a parameter may have any name, also one that C++ keeps to itself.
        let name = param.name;
        let _ = match param.kind {
            ParamKind::Buffer(..) => writeln!(text, "  squall::Buffer<{name}_t> a{place};"),
            ParamKind::Scalar(_) => writeln!(text, "  squall::Scalar<{name}_t> a{place};"),
            ParamKind::List | ParamKind::Matrix => writeln!(text, "  squall::List a{place};"),
            ParamKind::Size | ParamKind::Word(_) | ParamKind::Flag | ParamKind::Rank => {
                writeln!(text, "  u64 a{place};")
            }
        };
    }
    let _ = write!(
        text,
        "  squall::Launch launch;\n}};\nextern \"C\" __global__ void __launch_bounds__({bounds}) {LAUNCHED}\
         (const __grid_constant__ squall_arguments a) {{\n  a.launch.begin();\n  {}(",
        source.entry
    );
    for (place, param) in kernel.params.iter().enumerate() {
        let _ = match param.kind {
            ParamKind::Word(_) | ParamKind::Rank => write!(text, "(u32)a.a{place}, "),
            ParamKind::Flag => write!(text, "a.a{place} != 0, "),
            _ => write!(text, "a.a{place}, "),
        };
    }
    text += "a.launch);\n  a.launch.end();\n}\n";
    text
}

/// The dtype that the kernel is compiled with for one parameter: its argument's, or what the parameter's type says.
pub(crate) fn dtype(params: &[ParamDef], args: &[Arg<BoundRange>], place: usize) -> DType {
    if let Some(Arg::Buffer(range)) = args.get(place) {
        return range.dtype;
    }
    match params[place].kind {
        ParamKind::Buffer(_, ty) | ParamKind::Scalar(ty) => match ty {
            Type::Is(dtype) => dtype,
            // A number that fits any of several: as wide as it was written.
            Type::In(dtypes) => match args.get(place) {
                Some(Arg::Scalar(squall_core::Scalar::Int(_))) => DType::I64,
                Some(Arg::Scalar(_)) => DType::F64,
                _ => dtypes.first().copied().unwrap_or(DType::U8),
            },
            // Chains end, since a parameter's type names one before or after it that is not `Same`; a cycle would be a
            // descriptor that no argument fits.
            Type::Same(other) => match params.iter().position(|param| param.name == other) {
                Some(other) if other != place && !matches!(kind(params, other), Some(Type::Same(_))) => {
                    dtype(params, args, other)
                }
                _ => DType::U8,
            },
        },
        _ => DType::U8,
    }
}

fn kind(params: &[ParamDef], place: usize) -> Option<Type> {
    match params[place].kind {
        ParamKind::Buffer(_, ty) | ParamKind::Scalar(ty) => Some(ty),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static KERNEL: KernelDef = KernelDef {
        name: "k",
        params: &[
            ParamDef::read("a", Type::In(DType::ALL), ""),
            ParamDef::scalar("f", Type::Same("a"), ""),
            ParamDef::size("n", squall_core::Presence::Required, ""),
            ParamDef::flag("on", ""),
        ],
        cuda: Some(CudaSource::new("__device__ void k(/* … */) {}", "k")),
        ..KernelDef::EMPTY
    };

    #[test]
    fn arguments_have_their_dtypes_and_their_order() {
        let range = BoundRange { ptr: squall_core::DevicePtr(0), dtype: DType::Bf16, shape: [4].into() };
        let args = [Arg::Buffer(range), Arg::Scalar(2.into()), Arg::Size(4), Arg::Flag(true)];
        let text = Specialised::new(&KERNEL, &args, 32).unwrap().text;
        assert!(text.contains("typedef bf16 a_t;\ntypedef bf16 f_t;\n"));
        assert!(text.contains("k(a.a0, a.a1, a.a2, a.a3 != 0, a.launch);"));
        assert!(text.contains("__launch_bounds__(256)") && text.contains("most_threads = 256;"));
        assert!(Specialised::new(&KERNEL, &args, 513).unwrap().text.contains("__launch_bounds__(1024)"));
    }
}
