use squall_cuda_backend::compile::{Arch, compile};
use squall_cuda_backend::kernel::Specialised;
use squall_plugin::core::DType;

use crate::{BLOCK, SCALE, SQUARES};

/// NVRTC needs no GPU.
#[test]
fn both_cuda_forms_compile() {
    for kernel in [&SQUARES, &SCALE] {
        let dtypes = [DType::F32, DType::F64, DType::F32];
        let source = Specialised::with_dtypes(kernel, &dtypes[..kernel.params.len()], BLOCK as u32).unwrap();
        for arch in [Arch(7, 5), Arch(9, 0)] {
            compile(&source, arch).unwrap_or_else(|error| panic!("{}, {arch}: {error}", kernel.name));
        }
    }
}
