//! Tensors of a `.safetensors` file. The `safetensors` crate reads and proves the header; of the data only the
//! tensor asked for is read, by seeking, so that a file may be larger than memory. Such files are little-endian
//! and in C order.

use std::io::{self, Read, Write};
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
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

/// A tensor to be written.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Its name, which no other of the file has.
    pub name: &'a str,
    /// Its elements' type.
    pub dtype: DType,
    /// Its shape.
    pub shape: &'a [u64],
    /// Its elements as a buffer holds them.
    pub bytes: &'a [u8],
}

/// Writes a file of tensors, in this order, without a copy of any.
///
/// # Errors
/// The system's, and [`io::ErrorKind::InvalidInput`] of tensors whose bytes are not as many as their shape says.
pub fn write(out: &mut dyn Write, tensors: &[Tensor<'_>]) -> io::Result<()> {
    let invalid =
        |error: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
    let mut end = 0;
    let mut infos = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let shape = tensor.shape.iter().map(|&length| usize::try_from(length));
        let shape = shape.collect::<Result<_, _>>().map_err(|error| invalid(&error))?;
        let data_offsets = (end, end + tensor.bytes.len());
        end = data_offsets.1;
        infos.push((
            tensor.name.to_owned(),
            TensorInfo { dtype: file_type(tensor.dtype), shape, data_offsets },
        ));
    }
    let metadata = Metadata::new(None, infos).map_err(|error| invalid(&error))?;
    let mut header = serde_json::to_vec(&metadata)?;
    // The data begin at a whole word.
    header.resize(header.len().next_multiple_of(PREFIX as usize), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    tensors.iter().try_for_each(|tensor| little_endian(out, tensor))
}

#[cfg(target_endian = "little")]
fn little_endian(out: &mut dyn Write, tensor: &Tensor<'_>) -> io::Result<()> {
    out.write_all(tensor.bytes)
}

#[cfg(target_endian = "big")]
fn little_endian(out: &mut dyn Write, tensor: &Tensor<'_>) -> io::Result<()> {
    let mut elements = tensor.bytes.chunks(tensor.dtype.size() as usize);
    elements.try_for_each(|element| out.write_all(&element.iter().rev().copied().collect::<Vec<u8>>()))
}

/// How a file names a type.
fn file_type(dtype: DType) -> Dtype {
    match dtype {
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::I8 => Dtype::I8,
        DType::U8 => Dtype::U8,
        DType::I32 => Dtype::I32,
        DType::U32 => Dtype::U32,
        DType::I64 => Dtype::I64,
        DType::U64 => Dtype::U64,
    }
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
