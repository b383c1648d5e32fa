//! Checks and descriptions.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::ptr;

use squall_plugin::abi::{self, Header, NO_PARAM, status};
use squall_plugin::convert::{ArgList, read_line};
use squall_plugin::core::Arg;

use crate::host::{kernel, op, range, said};
use crate::plugin::MODES;

type Lines = RefCell<Vec<String>>;

/// Where a description is told to.
fn description(lines: &Lines) -> abi::Description {
    abi::Description {
        header: Header::of::<abi::Description>(),
        cx: ptr::from_ref(lines).cast_mut().cast::<c_void>(),
        access: Some(access),
        collective: Some(collective),
        number: Some(number),
        real: Some(real),
        dtype: Some(dtype),
        word: Some(word),
        numbers: Some(numbers),
        share: Some(share),
        send: Some(send),
        recv: Some(recv),
    }
}

unsafe fn note(d: *const abi::Description, line: String) {
    // SAFETY: the table is of `description`, whose lines live.
    unsafe { &*(*d).cx.cast::<Lines>() }.borrow_mut().push(line);
}

macro_rules! noting {
    ($($name:ident($($arg:ident: $ty:ty),*) $line:expr;)*) => { $(
        unsafe extern "C" fn $name(d: *const abi::Description, $($arg: $ty),*) {
            // SAFETY: the table is of `description`.
            unsafe { note(d, $line) };
        }
    )* };
}

noting! {
    access(param: u32, first: u64, count: u64, mode: u32) format!("access {param} {first} {count} {mode}");
    collective(op: *const c_char) if op.is_null() { "collective".into() } else { format!("collective {}", said(op)) };
    number(name: *const c_char, value: i64) format!("{} = {value}", said(name));
    real(name: *const c_char, value: f64) format!("{} = {value:?}", said(name));
    dtype(name: *const c_char, value: u32) format!("{} = dtype {value}", said(name));
    word(name: *const c_char, value: *const c_char) format!("{} = {}", said(name), said(value));
    numbers(name: *const c_char, values: *const i64, count: u64)
        format!("{} = {:?}", said(name), std::slice::from_raw_parts(values, count as usize));
    share(part: u32, n: u64, whole: u32, of: u64, place: u64)
        format!("share {part} {n} of {} {of} at {}", whole.cast_signed(), place.cast_signed());
    send(peer: u32, count: u64, dtype: u32) format!("send {peer} {count} {dtype}");
    recv(peer: u32, count: u64, dtype: u32) format!("recv {peer} {count} {dtype}");
}

/// The arguments of `mix` in that mode.
fn args(mode: &str) -> ArgList {
    let index = MODES.iter().position(|other| *other == mode).unwrap();
    ArgList::new(&[range(8, 4), Arg::Absent, Arg::Word(index as u32)]).unwrap()
}

fn describe(args: &ArgList, change: fn(&mut abi::Description)) -> (i32, abi::Error, Vec<String>) {
    let lines = Lines::default();
    let mut to = description(&lines);
    change(&mut to);
    let (op, args, mut error) = (op(c"mix"), args.table(1, 2), abi::Error::EMPTY);
    // SAFETY: as the ABI says.
    let status = unsafe { op.describe.unwrap()(op, &raw const args, &raw const to, &raw mut error) };
    (status, error, lines.take())
}

#[test]
fn a_description_is_told_in_its_order() {
    let (status, _, lines) = describe(&args("fine"), |_| ());
    assert_eq!(status, status::OK);
    let wanted = [
        "access 0 1 2 2",
        "collective",
        "count = 4",
        "real = 0.5",
        "dtype = dtype 2",
        "reduce = sum",
        "counts = [-9223372036854775808, 2]",
        "share 1 3 of 0 12 at 6",
        "send 1 5 5",
        "recv 1 5 5",
        "collective other",
        "share 0 1 of -1 0 at -1",
    ];
    assert_eq!(lines, wanted);
}

#[test]
fn what_is_wrong_with_a_description_is_told() {
    let failed = |mode| {
        let (status, error, _) = describe(&args(mode), |_| ());
        (status, error.param, read_line(&error.text), read_line(&error.help))
    };
    assert_eq!(failed("argument"), (status::ARGUMENT, 1, "is odd".into(), "make it even".into()));
    let (status, param, text, _) = failed("panic");
    assert_eq!((status, param), (status::FAILED, NO_PARAM));
    assert!(text.starts_with("panicked: no more of this (") && text.contains("plugin.rs:"), "{text}");
    let text = failed("outside").2;
    assert_eq!(text, "`mix` describes elements 8..13 of a buffer, beyond its argument `data`");
    assert_eq!(failed("unknown").2, "`mix` describes a parameter `none` that it does not have");
    assert!(failed("wide").2.ends_with("which must match on all ranks, does not fit 64 bits"));
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let few = ArgList::new(&[range(8, 4)]).unwrap();
    let (status, error, _) = describe(&few, |_| ());
    assert_eq!(status, status::FAILED);
    assert_eq!(read_line(&error.text), "there are 1 arguments for 3 parameters");
}

#[test]
fn an_older_description_is_not_told_what_it_does_not_know() {
    let (status, error, lines) = describe(&args("fine"), |to| {
        to.header.struct_size = std::mem::offset_of!(abi::Description, send) as u32;
    });
    assert_eq!((status, lines.len()), (status::UNSUPPORTED, 8));
    let text = read_line(&error.text);
    assert_eq!(text, "this squall is too old for the plugin: its ABI has no `send`");
    let (status, error, _) = describe(&args("fine"), |to| to.access = None);
    assert_eq!(status, status::UNSUPPORTED);
    assert!(read_line(&error.text).ends_with("no `access`"));
    assert_eq!(describe(&args("fine"), |to| to.header.abi_major = 2).0, status::FAILED);
}

#[test]
fn how_an_op_is_served_is_told_within_the_room() {
    let served = |mode, parts: *const u64, room: usize| {
        let (op, list) = (op(c"mix"), args(mode));
        let (table, mut text) = (list.table(0, 2), vec![1 as c_char; room + 1]);
        // SAFETY: as the ABI says.
        unsafe { op.served_as.unwrap()(op, &raw const table, parts, text.as_mut_ptr(), room as u32) };
        assert_eq!(text.pop(), Some(1), "beyond the room");
        read_line(&text)
    };
    assert_eq!(served("fine", ptr::null(), 64), "größer None");
    assert_eq!(served("fine", [0, 3, 4].as_ptr(), 64), "größer Some([0..3, 3..4])");
    assert_eq!(served("fine", ptr::null(), 4), "gr");
    assert_eq!(served("panic", ptr::null(), 64), "");
    assert_eq!(served("fine", ptr::null(), 0), "");
}

#[test]
fn a_kernels_check_is_called() {
    let check = |len| {
        let list = ArgList::new(&[range(0, len), Arg::Flag(false)]).unwrap();
        let (kernel, args, mut error) = (kernel(), list.table(0, 1), abi::Error::EMPTY);
        // SAFETY: as the ABI says.
        let status = unsafe { kernel.check.unwrap()(kernel, &raw const args, &raw mut error) };
        (status, error.param, read_line(&error.text), read_line(&error.help))
    };
    assert_eq!(check(12).0, status::OK);
    assert_eq!(check(13), (status::ARGUMENT, 0, "has 13 elements".into(), "take 12".into()));
    let (status, _, text, _) = check(14);
    assert_eq!(status, status::FAILED);
    assert!(text.starts_with("panicked: fourteen ("), "{text}");
    // Nobody listens.
    let (kernel, list) = (kernel(), ArgList::new(&[range(0, 13), Arg::Flag(false)]).unwrap());
    // SAFETY: as the ABI says; an error that is null is not written.
    let status = unsafe { kernel.check.unwrap()(kernel, &list.table(0, 1), ptr::null_mut()) };
    assert_eq!(status, status::ARGUMENT);
}
