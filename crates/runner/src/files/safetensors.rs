//! Tensors of a `.safetensors` file. The `safetensors` crate reads and proves the header; of the data only the
//! tensor asked for is read, by seeking, so that a file may be larger than memory. Such files are little-endian
//! and in C order.

use std::io::Read;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::Metadata;
use squall_core::DType;

use super::FileError;
use super::array::{ArrayFile, Layout, open_regular, zeroed};
use super::error::printable;

/// Bytes of the header's length, which come first.
const PREFIX: u64 = 8;

/// The longest header read, in bytes; what the format's own reader takes.
const MAX_HEADER: u64 = 100_000_000;

/// Opens a file for one of its tensors, and holds the file's length against its header.
pub fn open(path: &Path, tensor: &str) -> Result<ArrayFile, FileError> {
    let (mut file, found) = open_regular(path)?;
    let malformed = |problem| FileError::Malformed { file: path.to_owned(), format: ".safetensors", problem };
    let Some(available) = found.checked_sub(PREFIX) else {
        return Err(malformed(format!(
            "it has {}, and its first {PREFIX} tell its header's length",
            squall_core::count(found, "byte")
        )));
    };
    let mut length = [0; PREFIX as usize];
    file.read_exact(&mut length).map_err(FileError::io("read", path))?;
    let length = u64::from_le_bytes(length);
    if length > available.min(MAX_HEADER) {
        return Err(malformed(format!(
            "its header claims {}, the file has {available} after it begins, and at most {MAX_HEADER} are read",
            squall_core::count(length, "byte")
        )));
    }
    let mut text = zeroed(length).ok_or(FileError::Memory { file: path.to_owned(), bytes: length })?;
    file.read_exact(&mut text).map_err(FileError::io("read", path))?;
    // Deserializing proves that the tensors lie end to end, each as long as its shape and type say.
    let metadata: Metadata =
        serde_json::from_slice(&text).map_err(|e| malformed(printable(&e.to_string())))?;

    let data = found - PREFIX - length;
    if metadata.data_len() as u64 != data {
        return Err(malformed(format!(
            "its tensors have {}, the file has {data} for them",
            squall_core::count(metadata.data_len() as u64, "byte")
        )));
    }
    let Some(info) = metadata.info(tensor) else {
        return Err(unknown(path, tensor, &metadata));
    };
    let dtype = match element_type(info.dtype) {
        Ok(dtype) => dtype,
        Err(hint) => {
            return Err(FileError::Unsupported {
                file: path.to_owned(),
                found: info.dtype.to_string(),
                hint,
            });
        }
    };
    let shape = info.shape.iter().map(|&length| length as u64).collect();
    // Within the file, as proved above.
    let start = PREFIX + length + info.data_offsets.0 as u64;
    Ok(ArrayFile::new(path, file, dtype, shape, Layout { start, fortran: false, big_endian: false }))
}

fn element_type(dtype: Dtype) -> Result<DType, &'static str> {
    Ok(match dtype {
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::I8 => DType::I8,
        Dtype::U8 => DType::U8,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        Dtype::I64 => DType::I64,
        Dtype::U64 => DType::U64,
        Dtype::BOOL => return Err("save booleans as bytes"),
        Dtype::I16 | Dtype::U16 => return Err("save 16-bit integers as 32-bit ones"),
        Dtype::C64 => return Err("save the parts of complex numbers as two tensors"),
        _ => return Err("save it as a larger floating-point type"),
    })
}

fn unknown(path: &Path, tensor: &str, metadata: &Metadata) -> FileError {
    let mut present = metadata.offset_keys();
    present.sort_unstable();
    let suggestion = present
        .iter()
        .map(|name| (strsim::jaro_winkler(tensor, name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name.clone());
    FileError::NoTensor { file: path.to_owned(), tensor: tensor.to_owned(), present, suggestion }
}

#[cfg(test)]
mod tests;
