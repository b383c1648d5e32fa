//! Descriptors: parameters, what they take, what a grid must cover.

use std::ffi::c_char;
use std::ptr;

use squall_core::{Cover, DType, Mode, ParamDef, ParamKind, Presence, ReduceOp, Type};

use super::{Malformed, check_header, leak_text, slice, text};
use crate::abi::{self, cover_kind, param_kind, presence};
use crate::field;

/// The number of a dtype.
pub fn dtype_code(dtype: DType) -> u32 {
    dtype as u32
}

/// The dtype of that number.
pub fn dtype(code: u32) -> Result<DType, Malformed> {
    let dtype = usize::try_from(code).ok().and_then(|index| DType::ALL.get(index));
    dtype.copied().ok_or_else(|| unknown("dtype", code))
}

/// A set of dtypes.
pub fn dtype_set(dtypes: &[DType]) -> u32 {
    dtypes.iter().fold(0, |set, &dtype| set | 1 << dtype_code(dtype))
}

/// The dtypes of a set, in the order of their numbers. Bits that stand for none are refused.
pub fn dtypes(set: u32) -> Result<Vec<DType>, Malformed> {
    members(set, DType::ALL, "dtypes")
}

/// A set of reductions.
pub fn reduction_set(reductions: &[ReduceOp]) -> u32 {
    reductions.iter().fold(0, |set, &reduction| set | 1 << reduction as u32)
}

/// The reductions of a set, in the order of their numbers. Bits that stand for none are refused.
pub fn reductions(set: u32) -> Result<Vec<ReduceOp>, Malformed> {
    members(set, ReduceOp::ALL, "reductions")
}

fn members<T: Copy>(set: u32, all: &[T], what: &str) -> Result<Vec<T>, Malformed> {
    if set >> all.len() != 0 {
        return Err(Malformed::new(format!("the set {set:#b} has bits that stand for no {what}")));
    }
    Ok(all.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, &member)| member).collect())
}

/// The number of a mode.
pub fn mode_code(mode: Mode) -> u32 {
    match mode {
        Mode::Read => abi::mode::READ,
        Mode::Write => abi::mode::WRITE,
        Mode::ReadWrite => abi::mode::READ_WRITE,
    }
}

/// The mode of that number.
pub fn mode(code: u32) -> Result<Mode, Malformed> {
    match code {
        abi::mode::READ => Ok(Mode::Read),
        abi::mode::WRITE => Ok(Mode::Write),
        abi::mode::READ_WRITE => Ok(Mode::ReadWrite),
        _ => Err(unknown("mode", code)),
    }
}

fn unknown(what: &str, code: u32) -> Malformed {
    Malformed::new(format!("{code} is no {what}"))
}

/// A parameter's table. Its text is leaked.
pub fn write_param(param: &ParamDef) -> Result<abi::Param, Malformed> {
    let (kind, mode, ty, words): (_, _, _, &[&str]) = match param.kind {
        ParamKind::Buffer(mode, ty) => (param_kind::BUFFER, mode_code(mode), Some(ty), &[]),
        ParamKind::Scalar(ty) => (param_kind::SCALAR, 0, Some(ty), &[]),
        ParamKind::Size => (param_kind::SIZE, 0, None, &[]),
        ParamKind::Word(words) => (param_kind::WORD, 0, None, words),
        ParamKind::Flag => (param_kind::FLAG, 0, None, &[]),
        ParamKind::Rank => (param_kind::RANK, 0, None, &[]),
        ParamKind::List => (param_kind::LIST, 0, None, &[]),
        ParamKind::Matrix => (param_kind::MATRIX, 0, None, &[]),
    };
    let (dtypes, same) = match ty {
        Some(Type::In(dtypes)) => (dtype_set(dtypes), None),
        Some(Type::Is(dtype)) => (dtype_set(&[dtype]), None),
        Some(Type::Same(param)) => (0, Some(param)),
        None => (0, None),
    };
    let (presence, of, dim) = match param.presence {
        Presence::Required => (presence::REQUIRED, None, 0),
        Presence::Optional => (presence::OPTIONAL, None, 0),
        Presence::Dim(of, dim) => (presence::DIM, Some(of), number(dim)?),
        Presence::Len(of) => (presence::LEN, Some(of), 0),
        Presence::ShapeOf(of) => (presence::SHAPE_OF, Some(of), 0),
        Presence::False => (presence::FALSE, None, 0),
    };
    let words = words.iter().map(|word| leaked(Some(word))).collect::<Result<Vec<_>, _>>()?.leak();
    Ok(abi::Param {
        header: abi::Header::of::<abi::Param>(),
        name: leaked(Some(param.name))?,
        doc: leaked(Some(param.doc))?,
        kind,
        mode,
        dtypes,
        presence,
        same: leaked(same)?,
        of: leaked(of)?,
        words: words.as_ptr(),
        word_count: number(words.len())?,
        dim,
    })
}

/// The parameter that a table describes. Its lists are leaked.
///
/// # Safety
/// [As for all](super); text and words stay for good.
pub unsafe fn read_param(table: *const abi::Param) -> Result<ParamDef, Malformed> {
    // SAFETY: the caller's. All fields are of the ABI's first minor; a writer without them is refused.
    let table = unsafe {
        check_header(table, "a parameter")?;
        field!(Param, table, dim).ok_or_else(|| Malformed::new("a parameter's table is too short"))?;
        &*table
    };
    // SAFETY: text that stays for good, by the caller.
    let (name, doc) =
        unsafe { (text(table.name, "a parameter's name")?, text(table.doc, "a parameter's doc")?) };
    let of_this = |error: Malformed| Malformed::new(format!("the parameter `{name}`: {error}"));
    let kind = || -> Result<ParamKind, Malformed> {
        Ok(match table.kind {
            // SAFETY: the caller's.
            param_kind::BUFFER => ParamKind::Buffer(mode(table.mode)?, unsafe { read_type(table) }?),
            // SAFETY: the caller's.
            param_kind::SCALAR => ParamKind::Scalar(unsafe { read_type(table) }?),
            param_kind::SIZE => ParamKind::Size,
            param_kind::WORD => {
                // SAFETY: the caller's.
                let words = unsafe { slice(table.words, table.word_count.into(), "the words") }?;
                // SAFETY: the caller's.
                let words = words.iter().map(|&word| unsafe { text(word, "a word") });
                ParamKind::Word(words.collect::<Result<Vec<_>, _>>()?.leak())
            }
            param_kind::FLAG => ParamKind::Flag,
            param_kind::RANK => ParamKind::Rank,
            param_kind::LIST => ParamKind::List,
            param_kind::MATRIX => ParamKind::Matrix,
            code => return Err(unknown("kind of parameter", code)),
        })
    };
    let presence = || -> Result<Presence, Malformed> {
        // SAFETY: the caller's.
        let of = || unsafe { text(table.of, "the parameter that it defaults to") };
        Ok(match table.presence {
            presence::REQUIRED => Presence::Required,
            presence::OPTIONAL => Presence::Optional,
            presence::DIM => Presence::Dim(of()?, table.dim as usize),
            presence::LEN => Presence::Len(of()?),
            presence::SHAPE_OF => Presence::ShapeOf(of()?),
            presence::FALSE => Presence::False,
            code => return Err(unknown("presence", code)),
        })
    };
    Ok(ParamDef { name, kind: kind().map_err(of_this)?, presence: presence().map_err(of_this)?, doc })
}

/// # Safety
/// [As for all](super); text stays for good.
unsafe fn read_type(table: &abi::Param) -> Result<Type, Malformed> {
    if !table.same.is_null() {
        // SAFETY: the caller's.
        return Ok(Type::Same(unsafe { text(table.same, "the parameter whose dtype it has") }?));
    }
    let dtypes = dtypes(table.dtypes)?;
    match dtypes.as_slice() {
        [] => Err(Malformed::new("it may have no dtype at all")),
        [only] => Ok(Type::Is(*only)),
        _ => Ok(Type::In(dtypes.leak())),
    }
}

/// What an axis of a grid must cover. Its text is leaked.
pub fn write_cover(cover: &Cover) -> Result<abi::Cover, Malformed> {
    let (kind, dim, param) = match *cover {
        Cover::Len(param) => (cover_kind::LEN, 0, Some(param)),
        Cover::Size(param) => (cover_kind::SIZE, 0, Some(param)),
        Cover::Dim(param, dim) => (cover_kind::DIM, number(dim)?, Some(param)),
        Cover::Any => (cover_kind::ANY, 0, None),
    };
    Ok(abi::Cover { kind, dim, param: leaked(param)? })
}

/// The same, read.
///
/// # Safety
/// [As for all](super); text stays for good.
pub unsafe fn read_cover(cover: &abi::Cover) -> Result<Cover, Malformed> {
    // SAFETY: the caller's.
    let param = || unsafe { text(cover.param, "the parameter that a grid covers") };
    Ok(match cover.kind {
        cover_kind::LEN => Cover::Len(param()?),
        cover_kind::SIZE => Cover::Size(param()?),
        cover_kind::DIM => Cover::Dim(param()?, cover.dim as usize),
        cover_kind::ANY => Cover::Any,
        code => return Err(unknown("kind of cover", code)),
    })
}

fn leaked(text: Option<&str>) -> Result<*const c_char, Malformed> {
    text.map_or(Ok(ptr::null()), |text| leak_text(text).map(|text| text.as_ptr()))
}

fn number(n: usize) -> Result<u32, Malformed> {
    u32::try_from(n).map_err(|_| Malformed::new(format!("{n} does not fit 32 bits")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_abi() {
        use abi::{dtype as d, reduction as r};
        let codes = [d::F16, d::BF16, d::F32, d::F64, d::I8, d::U8, d::I32, d::U32, d::I64, d::U64];
        let names = ["f16", "bf16", "f32", "f64", "i8", "u8", "i32", "u32", "i64", "u64"];
        assert_eq!(DType::ALL.len(), codes.len());
        for (code, name) in codes.into_iter().zip(names) {
            let found = dtype(code).unwrap();
            assert_eq!((found.name(), dtype_code(found)), (name, code));
        }
        assert!(dtype(10).is_err() && dtype(u32::MAX).is_err());
        let names = ReduceOp::NAMES.iter().zip([r::SUM, r::PROD, r::MAX, r::MIN, r::AVG]);
        for (name, code) in names {
            assert_eq!(reductions(1 << code).unwrap().iter().map(|r| r.name()).collect::<Vec<_>>(), [*name]);
        }
        assert_eq!(reductions(reduction_set(ReduceOp::ALL)).unwrap(), ReduceOp::ALL);
        assert_eq!(dtypes(dtype_set(DType::FLOATS)).unwrap(), DType::FLOATS);
        assert!(dtypes(1 << 10).is_err() && reductions(1 << 5).is_err() && mode(3).is_err());
    }

    #[test]
    fn parameters_come_back_as_they_were() {
        let some = Type::In(&[DType::F32, DType::F64]);
        for param in [
            ParamDef::read("a", some, "[n]"),
            ParamDef::write("b", Type::Same("a"), ""),
            ParamDef::read_write("c", Type::Is(DType::U8), "what it is"),
            ParamDef::scalar("d", some, "").optional(),
            ParamDef::size("e", Presence::Dim("a", 1), ""),
            ParamDef::size("f", Presence::Len("a"), ""),
            ParamDef::word("g", &["one", "zwölf"], ""),
            ParamDef::flag("h", ""),
            ParamDef::rank("i", ""),
            ParamDef::list("j", Presence::ShapeOf("a"), ""),
            ParamDef::matrix("k", ""),
        ] {
            let table = write_param(&param).unwrap();
            // SAFETY: it was just written, and its text is leaked.
            assert_eq!(unsafe { read_param(&raw const table) }, Ok(param));
        }
        for cover in [Cover::Len("a"), Cover::Size("e"), Cover::Dim("a", 2), Cover::Any] {
            // SAFETY: as above.
            assert_eq!(unsafe { read_cover(&write_cover(&cover).unwrap()) }, Ok(cover));
        }
    }

    #[test]
    fn odd_parameters_are_refused_by_name() {
        let read = |param: ParamDef, change: fn(&mut abi::Param)| {
            let mut table = write_param(&param).unwrap();
            change(&mut table);
            // SAFETY: the changes are such as are checked.
            unsafe { read_param(&raw const table) }.unwrap_err().0
        };
        let a = ParamDef::read("a", Type::Is(DType::F32), "");
        assert_eq!(read(a, |p| p.kind = 99), "the parameter `a`: 99 is no kind of parameter");
        assert_eq!(read(a, |p| p.mode = 9), "the parameter `a`: 9 is no mode");
        assert_eq!(read(a, |p| p.dtypes = 0), "the parameter `a`: it may have no dtype at all");
        assert_eq!(read(a, |p| p.presence = 42), "the parameter `a`: 42 is no presence");
        assert_eq!(
            read(a, |p| p.presence = presence::LEN),
            "the parameter `a`: the parameter that it defaults to is null"
        );
        assert_eq!(read(a, |p| p.name = ptr::null()), "a parameter's name is null");
        assert_eq!(read(a, |p| p.header.struct_size -= 1), "a parameter's table is too short");
        assert_eq!(
            read(ParamDef::word("w", &["x"], ""), |p| p.words = ptr::null()),
            "the parameter `w`: the words are null"
        );
        assert!(write_param(&ParamDef::flag("a\0b", "")).is_err());
    }
}
