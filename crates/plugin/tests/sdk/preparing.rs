//! What an op finds while it is made ready.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use squall_plugin::abi::{self, Header, status};
use squall_plugin::convert::read_line;
use squall_plugin::core::{DeviceError, Parts};

use crate::host::{NO_WORK, Rank};
use crate::plugin::seen;
use crate::running::Ready;

/// Makes `mix` ready in that mode; what failed.
fn failed(rank: &Rank, mode: &str) -> (i32, Box<abi::Error>) {
    Ready::new(rank, &[mode], "a task").map(|_| ()).unwrap_err()
}

#[test]
fn an_op_finds_what_core_promises_it() {
    let rank = Rank::new();
    let ready = Ready::new(&rank, &["fine"], "finds all").ok().unwrap();
    let seen = seen("finds all");
    assert_eq!(seen.said, [vec![1, 42], b"theirs".to_vec()]);
    assert_eq!((&seen.name[..], &seen.parts[..]), ("row", &[vec![2, 0], vec![1, 3]][..]));
    assert_eq!(seen.device, ("host:1".to_string(), "host", false));
    assert_eq!(seen.unequal, Parts::new([3, 1]));
    for error in [seen.stream, seen.reach, seen.stranger] {
        assert!(matches!(error, Some(DeviceError::Unsupported(_))), "{error:?}");
    }
    assert_eq!(seen.nowhere, Some(DeviceError::Failed("there is no communicator 9".into())));
    assert_eq!(*rank.asked.borrow(), ["all_reduce on 1: buffer=f32[4] reduce=Word(0)"]);

    // The abort is asked as long as the work lives, and not after.
    assert!(!seen.aborted.is_aborted());
    rank.aborted.store(true, Ordering::Relaxed);
    assert!(seen.aborted.is_aborted());
    rank.aborted.store(false, Ordering::Relaxed);
    drop(ready);
    assert!(seen.aborted.is_aborted(), "what outlives its work is over");
}

#[test]
fn what_fails_is_told_as_it_was_meant() {
    let rank = Rank::new();
    let (status, error) = failed(&rank, "full");
    assert_eq!((status, error.bytes), (status::OUT_OF_MEMORY, u64::MAX));
    assert_eq!(read_line(&error.text), "it is full");
    let (status, error) = failed(&rank, "panic");
    assert_eq!(status, status::FAILED);
    let text = read_line(&error.text);
    assert!(text.starts_with("panicked: at a task (") && text.contains("plugin.rs:"), "{text}");
    let (status, error) = failed(&rank, "thread");
    assert_eq!(status, status::UNSUPPORTED);
    assert_eq!(read_line(&error.text), "what an op is made ready with is for the thread that it is given to");
    // A wrong call of an op inside is the plugin's own fault: no argument of the task is to blame.
    let (status, error) = failed(&rank, "used");
    assert_eq!((status, &read_line(&error.text)[..]), (status::FAILED, "`reduce`: is not given"));
    assert_eq!(read_line(&failed(&rank, "peers").1.text), "[DevicePtr(256), DevicePtr(512)]");
}

#[test]
fn an_argument_at_fault_is_told_with_its_member() {
    let rank = Rank::new();
    let (status, error) =
        Ready::new(&rank, &["fine", "fine", "argument"], "a group").map(|_| ()).unwrap_err();
    assert_eq!((status, error.member, error.param), (status::ARGUMENT, 2, 1));
    assert_eq!((&read_line(&error.text)[..], &read_line(&error.help)[..]), ("is odd", "make it even"));
}

#[test]
fn an_abort_that_has_happened_is_told_at_once() {
    let rank = Rank::new();
    assert_eq!(read_line(&failed(&rank, "aborts").1.text), "false 0");
    rank.aborted.store(true, Ordering::Relaxed);
    assert_eq!(read_line(&failed(&rank, "aborts").1.text), "true 1");
}

#[test]
fn an_older_host_is_asked_for_nothing_that_it_lacks() {
    let mut rank = Rank::new();
    for (offset, lacks) in [
        (offset_of!(abi::Prepare, peer_pointers), "peer_pointers"),
        (offset_of!(abi::Prepare, exchange), "exchange"),
        (offset_of!(abi::Prepare, op), "op"),
        (offset_of!(abi::Prepare, kernel), "kernel"),
        (offset_of!(abi::Prepare, alloc_staging), "alloc_staging"),
        (offset_of!(abi::Prepare, alloc), "alloc"),
        (offset_of!(abi::Prepare, comm), "comm"),
    ] {
        rank.prepare_size = offset;
        let (status, error) = failed(&rank, if lacks == "peer_pointers" { "peers" } else { "fine" });
        let wanted = format!("this squall is too old for the plugin: its ABI has no `{lacks}`");
        assert_eq!((status, read_line(&error.text)), (status::UNSUPPORTED, wanted));
    }
    rank.prepare_size = size_of::<Header>();
    let (status, error) = failed(&rank, "fine");
    assert_eq!(
        (status, &read_line(&error.text)[..]),
        (status::FAILED, "the preparation's table is too short")
    );
    rank.prepare_size = size_of::<abi::Prepare>() + 64;
    assert!(Ready::new(&rank, &["fine"], "a newer host").is_ok());
}

#[test]
fn a_work_that_cannot_be_filled_is_refused() {
    let rank = Rank::new();
    let mut work = NO_WORK;
    work.header.struct_size -= 8;
    let error = Ready::into(&rank, &["fine"], "a task", work).map(|_| ()).unwrap_err().1;
    assert_eq!(read_line(&error.text), "the work's table is too short");
}
