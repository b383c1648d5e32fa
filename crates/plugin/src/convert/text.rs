//! Text and arrays.

use std::ffi::{CStr, CString, c_char};

use super::Malformed;

/// Text that ends with a zero byte, of lines without control characters. `what` names it in errors, as in `an op's name`.
///
/// # Safety
/// `text` is null or such text, and stays so for `'a`.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Malformed> {
    if text.is_null() {
        return Err(Malformed::new(format!("{what} is null")));
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| Malformed::new(format!("{what} is not UTF-8")))?;
    match text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        None => Ok(text),
        Some(c) => Err(Malformed::new(format!("{what} has the control character {c:?} in it"))),
    }
}

/// Text for the other side that stays for the life of the process; leaked. Refuses text with a zero byte.
pub fn leak_text(text: &str) -> Result<&'static CStr, Malformed> {
    let owned = CString::new(text).map_err(|_| Malformed::new(format!("a zero byte is in {text:?}")))?;
    Ok(Box::leak(owned.into_boxed_c_str()))
}

/// An array. `what` names it in errors, as in `the ops`.
///
/// # Safety
/// `first` is null or points to `count` values of `T`, which stay as they are for `'a`.
pub unsafe fn slice<'a, T>(first: *const T, count: u64, what: &str) -> Result<&'a [T], Malformed> {
    if count == 0 {
        return Ok(&[]);
    }
    let too_many = || Malformed::new(format!("{what} are {count}, more than fit memory"));
    let count = usize::try_from(count).map_err(|_| too_many())?;
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(too_many());
    }
    if first.is_null() {
        return Err(Malformed::new(format!("{what} are null")));
    }
    if !first.is_aligned() {
        return Err(Malformed::new(format!("{what} are not aligned")));
    }
    // SAFETY: the caller's, and as checked.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// The most numbers of a list: as many as ranks of a large world have pairs.
const MOST_NUMBERS: u64 = 1 << 27;

/// A list's numbers, copied. `what` names them in errors, as in `the list's numbers`.
///
/// # Safety
/// As of [`slice()`].
pub unsafe fn numbers(first: *const i64, count: u64, what: &str) -> Result<std::sync::Arc<[i64]>, Malformed> {
    if count > MOST_NUMBERS {
        return Err(Malformed::new(format!("{what} are {count}, more than {MOST_NUMBERS}")));
    }
    // SAFETY: the caller's.
    Ok(unsafe { slice(first, count, what) }?.into())
}

/// Writes `line` with a zero byte at its end into `room`, cut between two characters where it does not fit. Line breaks and
/// zero bytes within become spaces. Writes nothing where there is no room for the zero.
pub fn write_line(room: &mut [c_char], line: &str) {
    let Some(most) = room.len().checked_sub(1) else { return };
    let cut = (0..=most.min(line.len())).rev().find(|&cut| line.is_char_boundary(cut)).unwrap_or(0);
    let line = &line[..cut];
    for (place, byte) in room.iter_mut().zip(line.bytes().chain([0])) {
        *place = byte as c_char;
    }
    for place in room.iter_mut().take(line.len()) {
        if matches!(*place as u8, 0 | b'\n' | b'\r') {
            *place = b' ' as c_char;
        }
    }
}

/// The text in `room`, up to its zero byte, or to its end if there is none. What is not UTF-8 in it is replaced, and what would steer a
/// terminal becomes a space.
pub fn read_line(room: &[c_char]) -> String {
    let bytes: Vec<u8> = room.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_between_characters_and_always_ends() {
        for (text, room, wanted) in [
            ("", 1, ""),
            ("abc", 4, "abc"),
            ("abcd", 4, "abc"),
            ("añb", 3, "a"),
            ("añb", 4, "añ"),
            ("€", 3, ""),
            ("a\nb\0c", 9, "a b c"),
        ] {
            let mut array = vec![1; room];
            write_line(&mut array, text);
            assert_eq!(read_line(&array), wanted, "{text:?} in {room}");
            assert!(array.contains(&0));
        }
        write_line(&mut [], "a");
        assert_eq!(read_line(&[b'a' as c_char, b'b' as c_char]), "ab", "without an end");
        assert_eq!(read_line(&[b'a' as c_char, 0xFFu8 as c_char, 0]), "a\u{FFFD}");
    }

    #[test]
    fn text_and_arrays_are_checked() {
        // SAFETY: each is null or ends with a zero.
        let read = |bytes: *const c_char| unsafe { text(bytes, "a name") }.map_err(|error| error.0);
        assert_eq!(read(c"über".as_ptr()), Ok("über"));
        assert_eq!(read(std::ptr::null()), Err("a name is null".into()));
        assert_eq!(read(c"\xFF".as_ptr()), Err("a name is not UTF-8".into()));
        assert_eq!(leak_text("a b").unwrap(), c"a b");
        assert!(leak_text("a\0b").is_err());

        let numbers = [1u32, 2, 3];
        // SAFETY: null, or as many as there are, or refused by their number or alignment.
        let read = |first: *const u32, count| unsafe { slice(first, count, "the ops") }.map_err(|e| e.0);
        assert_eq!(read(numbers.as_ptr(), 3), Ok(&numbers[..]));
        assert_eq!(read(std::ptr::null(), 0), Ok(&[][..]));
        assert_eq!(read(std::ptr::null(), 1), Err("the ops are null".into()));
        assert_eq!(read(numbers.as_ptr().wrapping_byte_add(1), 1), Err("the ops are not aligned".into()));
        assert!(read(numbers.as_ptr(), u64::MAX / 4).is_err());
    }
}
