//! NumPy's `.npy`: versions 1 to 3, C and Fortran order, either byte order.
//!
//! The header is read by a small strict parser here rather than by the `npyz` crate, because that one allocates as
//! much as a header claims to be long (up to 4 GiB) before it reads it, leaves the file's length unchecked, and
//! brings a parser for all Python literals where three keys are enough. What it costs us: structured types, which
//! no buffer has, are recognised and refused, not read.
//!
//! bfloat16 is no type of NumPy's. The `ml_dtypes` package writes it as two bytes of unknown meaning, `<V2` or
//! `|V2`; so does [`write_header`], and [`open`] takes them for bf16 where bf16 is expected.

use std::io::{self, Read, Write};
use std::path::Path;

use squall_core::DType;
use winnow::ascii::{digit1, multispace0};
use winnow::combinator::{alt, delimited, opt, preceded, separated, terminated};
use winnow::error::{ContextError, ErrMode, ParserError};
use winnow::prelude::*;
use winnow::token::{rest, take_till};

use super::FileError;
use super::array::{ArrayFile, Layout, byte_length, open_regular};
use super::error::{Shape, printable};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The shortest file: the magic, a version, a length, and a header of no more than `{}`.
const MIN_FILE: u64 = 12;

/// The longest header read, in bytes: all that version 1 can state. Later versions can state more, and use it only
/// for types of very many fields.
const MAX_HEADER: u64 = 0xFFFF;

/// Opens a file for a buffer of dtype `expected`, reads its header and holds the file's length against it.
///
/// The file's own dtype is in the result, for [`ArrayFile::require`]; `expected` decides only whether two bytes of
/// unknown meaning are bf16.
pub fn open(path: &Path, expected: DType) -> Result<ArrayFile, FileError> {
    let (mut file, found) = open_regular(path)?;
    let malformed = |problem| FileError::Malformed { file: path.to_owned(), format: ".npy", problem };
    if found < MIN_FILE {
        return Err(malformed(format!(
            "it has {}, the shortest such file {MIN_FILE}",
            squall_core::count(found, "byte")
        )));
    }
    let mut magic = [0; 8];
    file.read_exact(&mut magic).map_err(FileError::io("read", path))?;
    let (length_size, header_at) = match magic.strip_prefix(MAGIC) {
        Some([1, 0]) => (2, 10),
        Some([2 | 3, 0]) => (4, 12),
        Some([major, minor]) => {
            return Err(malformed(format!("it is of version {major}.{minor}; 1.0, 2.0 and 3.0 are known")));
        }
        _ => {
            return Err(malformed(format!(
                "it begins with {}, not {}",
                magic.escape_ascii(),
                MAGIC.escape_ascii()
            )));
        }
    };

    let mut length = [0; 4];
    if let Some(field) = length.get_mut(..length_size) {
        file.read_exact(field).map_err(FileError::io("read", path))?;
    }
    let length = u64::from(u32::from_le_bytes(length));
    let available = found.saturating_sub(header_at);
    if length > available.min(MAX_HEADER) {
        return Err(malformed(format!(
            "its header claims {}, the file has {available} after it begins, and at most {MAX_HEADER} are read",
            squall_core::count(length, "byte")
        )));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(FileError::io("read", path))?;

    let header = std::str::from_utf8(&text).ok().and_then(|text| dictionary.parse(text).ok());
    let Some(header) = header else {
        return Err(malformed(format!(
            "its header is no dictionary of 'descr', 'fortran_order' and 'shape': {}",
            printable(String::from_utf8_lossy(&text).trim_end())
        )));
    };
    let unsupported = |found: &str, hint| {
        Err(FileError::Unsupported { file: path.to_owned(), found: found.to_owned(), hint })
    };
    let Header::Simple { descr, fortran, shape } = header else {
        return unsupported("a structure", "save each field as an array of its own");
    };
    let (dtype, big_endian) = match element_type(descr, expected) {
        Ok(element) => element,
        Err(hint) => return unsupported(&printable(descr), hint),
    };

    let start = header_at + length;
    let needed = byte_length(dtype, &shape).and_then(|bytes| bytes.checked_add(start));
    let Some(needed) = needed else {
        return Err(FileError::TooLarge { file: path.to_owned(), shape });
    };
    if needed != found {
        return Err(FileError::Length { file: path.to_owned(), dtype, shape, expected: needed, found });
    }
    Ok(ArrayFile::new(path, file, dtype, shape, Layout { start, fortran, big_endian }))
}

/// Writes what comes before the elements of an array: version 1, C order, the machine's byte order. The elements'
/// bytes follow as they are, at an offset that is a multiple of 64.
pub fn write_header(out: &mut dyn Write, dtype: DType, shape: &[u64]) -> io::Result<()> {
    let order = match (dtype.size(), cfg!(target_endian = "big")) {
        (1, _) => '|',
        (_, true) => '>',
        (_, false) => '<',
    };
    let kind = match dtype {
        DType::F16 | DType::F32 | DType::F64 => 'f',
        DType::Bf16 => 'V',
        DType::I8 | DType::I32 | DType::I64 => 'i',
        DType::U8 | DType::U32 | DType::U64 => 'u',
    };
    let (size, shape) = (dtype.size(), Shape(shape));
    let mut header =
        format!("{{'descr': '{order}{kind}{size}', 'fortran_order': False, 'shape': {shape}, }}");
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let length = u16::try_from(header.len())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a shape of thousands of axes"))?;
    out.write_all(MAGIC)?;
    out.write_all(&[1, 0])?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(header.as_bytes())
}

/// Writes an array. `bytes` are its elements as a buffer holds them, `shape`'s product of them.
pub fn write(out: &mut dyn Write, dtype: DType, shape: &[u64], bytes: &[u8]) -> io::Result<()> {
    write_header(out, dtype, shape)?;
    out.write_all(bytes)
}

/// The dtype and whether it is big-endian, or a hint what to do about a type that no buffer has.
fn element_type(descr: &str, expected: DType) -> Result<(DType, bool), &'static str> {
    let (order, name) = descr.split_at_checked(1).unwrap_or(("", descr));
    let dtype = match name {
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "i1" => DType::I8,
        "u1" => DType::U8,
        "i4" => DType::I32,
        "u4" => DType::U32,
        "i8" => DType::I64,
        "u8" => DType::U64,
        "V2" if expected == DType::Bf16 => DType::Bf16,
        "V2" => return Err("two bytes of unknown meaning are taken for bf16 where the buffer is bf16"),
        "b1" => return Err("save booleans as bytes, `x.astype(numpy.uint8)`"),
        "i2" | "u2" => return Err("save 16-bit integers as 32-bit ones, `x.astype(numpy.int32)`"),
        _ => {
            return Err(match name.as_bytes().first() {
                Some(b'c') => "save the parts of complex numbers as two arrays, `x.real` and `x.imag`",
                Some(b'O') => "save Python objects as numbers, `x.astype(numpy.float64)`",
                Some(b'S' | b'U' | b'a') => "save text as numbers",
                Some(b'M' | b'm') => "save times as numbers, `x.astype(numpy.int64)`",
                _ => "save it as a common type, `x.astype(numpy.float32)`",
            });
        }
    };
    match order {
        "<" => Ok((dtype, false)),
        ">" => Ok((dtype, true)),
        "|" if dtype.size() == 1 || dtype == DType::Bf16 => Ok((dtype, cfg!(target_endian = "big"))),
        _ => Err("its byte order is not given; save it again with NumPy"),
    }
}

// The header's text: a Python dictionary of three known keys.

#[derive(Debug, PartialEq)]
enum Header<'s> {
    Simple {
        descr: &'s str,
        fortran: bool,
        shape: Vec<u64>,
    },
    /// The element is a record: its description is a list.
    Structured,
}

fn dictionary<'s>(input: &mut &'s str) -> ModalResult<Header<'s>> {
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    token("{").parse_next(input)?;
    while opt(token("}")).parse_next(input)?.is_none() {
        let key = terminated(string, token(":")).parse_next(input)?;
        match key {
            "descr" if descr.is_none() => {
                if opt((token("["), rest)).parse_next(input)?.is_some() {
                    return Ok(Header::Structured);
                }
                descr = Some(string.parse_next(input)?);
            }
            "fortran_order" if fortran.is_none() => fortran = Some(boolean.parse_next(input)?),
            "shape" if shape.is_none() => shape = Some(tuple.parse_next(input)?),
            _ => return Err(refused(input)),
        }
        if opt(token(",")).parse_next(input)?.is_none() {
            token("}").parse_next(input)?;
            break;
        }
    }
    multispace0.parse_next(input)?;
    match (descr, fortran, shape) {
        (Some(descr), Some(fortran), Some(shape)) => Ok(Header::Simple { descr, fortran, shape }),
        _ => Err(refused(input)),
    }
}

fn refused(input: &mut &str) -> ErrMode<ContextError> {
    ParserError::from_input(input)
}

fn token<'s>(text: &'static str) -> impl ModalParser<&'s str, &'s str, ContextError> {
    preceded(multispace0, text)
}

fn string<'s>(input: &mut &'s str) -> ModalResult<&'s str> {
    alt((
        delimited(token("'"), take_till(0.., ['\'', '\\']), "'"),
        delimited(token("\""), take_till(0.., ['"', '\\']), "\""),
    ))
    .parse_next(input)
}

fn boolean(input: &mut &str) -> ModalResult<bool> {
    alt((token("True").value(true), token("False").value(false))).parse_next(input)
}

/// `()`, `(3,)`, `(3, 4)`. Python 2 wrote long integers as `3L`.
fn tuple(input: &mut &str) -> ModalResult<Vec<u64>> {
    let length = || delimited(multispace0, digit1.parse_to::<u64>(), opt("L"));
    let entries = (separated(0.., length(), token(",")), opt(token(",")));
    delimited(token("("), entries, token(")"))
        .verify_map(|(lengths, comma): (Vec<u64>, _)| match lengths.len() {
            0 => comma.is_none().then_some(lengths),
            1 => comma.is_some().then_some(lengths),
            _ => Some(lengths),
        })
        .parse_next(input)
}

#[cfg(test)]
mod tests;
