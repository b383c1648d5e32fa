//! Between core's types and those of the [ABI](crate::abi), in both directions: used by the plugin's side in this crate, and by
//! the host's, which loads plugins.
//!
//! What is read is checked, since the other side wrote it: integers against what they stand for, text against UTF-8, pointers
//! against null. What a pointer that is not null points to, nobody can check: that is what the safety rules are about. For all
//! functions that read a table or what hangs on it they are the same, [those of the ABI](crate::abi): the pointer is null or
//! points to what its type says, of which the part below `struct_size` is there.

mod args;
mod error;
mod param;
mod text;

pub use args::{ArgList, OwnedArgs, Place, grid, part_edges, read_arg, read_grid, read_parts};
pub use error::{
    read_arg_error, read_device_error, read_op_error, write_arg_error, write_device_error, write_op_error,
};
pub use param::{
    dtype, dtype_code, dtype_set, dtypes, mode, mode_code, read_cover, read_param, reduction_set, reductions,
    write_cover, write_param,
};
pub use text::{leak_text, numbers, read_line, slice, text, write_line};

use crate::abi;

/// What the other side wrote is not as the ABI says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

impl Malformed {
    pub(crate) fn new(what: impl Into<String>) -> Malformed {
        Malformed(what.into())
    }
}

/// A field of a table, if its writer knew it: `field!(Stream, stream, copy)` is `Some((*stream).copy)` where the `struct_size` of
/// `*stream` covers the field, else `None`. To be called in an `unsafe` block: the pointer must point to a table of that type.
#[macro_export]
macro_rules! field {
    ($type:ident, $table:expr, $field:ident) => {{
        let table: *const $crate::abi::$type = $table;
        let offset = ::core::mem::offset_of!($crate::abi::$type, $field);
        $crate::convert::read_field(table, offset, || (*table).$field)
    }};
}

/// What [`field!`](crate::field) expands to: `read`, if the `struct_size` of `table` covers an `F` at `offset`.
///
/// # Safety
/// `table` points to a table, which begins with a [`Header`](abi::Header).
#[doc(hidden)]
pub unsafe fn read_field<T, F>(table: *const T, offset: usize, read: impl FnOnce() -> F) -> Option<F> {
    // SAFETY: the caller's; every table has at least its header.
    let header = unsafe { table.cast::<abi::Header>().read() };
    (offset + size_of::<F>() <= header.struct_size as usize).then(read)
}

/// Whether `table` is one that this version understands: not null, with the ABI's magic and major. Called for each table before its
/// fields are read; `what` names it in the error, as in ``the op `top_k` ``.
///
/// # Safety
/// `table` is null or points to a table.
pub unsafe fn check_header<T>(table: *const T, what: &str) -> Result<(), Malformed> {
    if table.is_null() {
        return Err(Malformed::new(format!("{what} is null")));
    }
    // SAFETY: the caller's; every table has at least its header.
    let header = unsafe { table.cast::<abi::Header>().read() };
    if header.magic != abi::MAGIC {
        return Err(Malformed::new(format!("{what} does not begin with the ABI's magic number")));
    }
    if header.abi_major != abi::ABI_MAJOR {
        let (theirs, ours) = (header.abi_major, abi::ABI_MAJOR);
        return Err(Malformed::new(format!("{what} is of major version {theirs} of the ABI, not {ours}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(struct_size: usize) -> abi::Host {
        let header = abi::Header { struct_size: struct_size as u32, ..abi::Header::of::<abi::Host>() };
        abi::Host { header, version: c"9".as_ptr(), feature: None }
    }

    #[test]
    fn a_field_beyond_its_writers_size_is_absent() {
        let covered = |size| {
            let host = host(size);
            // SAFETY: it is a table of that type.
            unsafe { (field!(Host, &raw const host, version), field!(Host, &raw const host, feature)) }
        };
        let end = core::mem::offset_of!(abi::Host, feature);
        assert!(matches!(covered(size_of::<abi::Host>()), (Some(_), Some(None))));
        assert!(matches!(covered(end + 7), (Some(_), None)));
        assert!(matches!(covered(end), (Some(_), None)));
        assert!(matches!(covered(end - 1), (None, None)));
        assert!(matches!(covered(0), (None, None)));
        assert!(covered(usize::from(u16::MAX)).1.is_some(), "a newer writer");
    }

    #[test]
    fn headers_are_told_apart() {
        let check = |change: fn(&mut abi::Header)| {
            let mut host = host(size_of::<abi::Host>());
            change(&mut host.header);
            // SAFETY: it is a table.
            unsafe { check_header(&raw const host, "the host's table") }.map_err(|error| error.0)
        };
        assert_eq!(check(|_| ()), Ok(()));
        assert_eq!(check(|header| header.abi_minor = 77), Ok(()));
        let other = "the host's table is of major version 2 of the ABI, not 1";
        assert_eq!(check(|header| header.abi_major = 2), Err(other.into()));
        let magic = "the host's table does not begin with the ABI's magic number";
        assert_eq!(check(|header| header.magic = 0), Err(magic.into()));
        // SAFETY: null is allowed.
        let null = unsafe { check_header::<abi::Host>(std::ptr::null(), "the host's table") };
        assert_eq!(null, Err(Malformed::new("the host's table is null")));
    }
}
