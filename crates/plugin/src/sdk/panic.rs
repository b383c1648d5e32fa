//! Panics end at the border: they become the words of an error.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use squall_core::{OpError, ParamDef};

use crate::abi::{self, status};
use crate::convert::{write_line, write_op_error};

thread_local! {
    /// How many functions of the tables this thread is in. Without a destructor, so that counting allocates nothing.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
    /// What the hook kept of a panic on this thread.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the words and the place of panics under [`catch`], which then print nothing; others go on to the hook that was there. A dylib
/// has a hook of its own, so that the host's panics are not touched.
pub(super) fn keep_words() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| {
            if INSIDE.get() == 0 {
                return previous(info);
            }
            let mut said = words(info.payload()).to_string();
            if let Some(place) = info.location() {
                said = format!("{said} ({place})");
            }
            let _ = SAID.try_with(|kept| kept.replace(Some(said)));
        }));
    });
}

fn words(payload: &dyn Any) -> &str {
    let owned = || payload.downcast_ref::<String>().map(String::as_str);
    payload.downcast_ref::<&str>().copied().or_else(owned).unwrap_or("without a word")
}

/// Calls `f`; a panic in it becomes an error of one line.
pub(super) fn catch<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    INSIDE.set(INSIDE.get().saturating_add(1));
    // What a panic left half done is the plugin's own; squall fails the rank and uses its work no more.
    let result = catch_unwind(AssertUnwindSafe(f));
    INSIDE.set(INSIDE.get().saturating_sub(1));
    result.map_err(|payload| {
        let kept = SAID.try_with(RefCell::take).ok().flatten();
        let text = format!("panicked: {}", kept.as_deref().unwrap_or(words(&*payload)));
        std::mem::forget(payload); // its drop might panic again
        text
    })
}

/// What a function of the tables does: calls `f` and tells in `error` what failed. `params` are those of a member of the batch.
///
/// # Safety
/// `error` is null or the caller's to be written.
pub(super) unsafe fn guarded<'a>(
    error: *mut abi::Error,
    params: impl FnOnce(usize) -> &'a [ParamDef],
    f: impl FnOnce() -> Result<(), OpError>,
) -> i32 {
    let result = catch(f);
    if matches!(result, Ok(Ok(()))) {
        return status::OK;
    }
    let mut unheard = abi::Error::EMPTY;
    // SAFETY: the caller's.
    let error = unsafe { error.as_mut() }.unwrap_or(&mut unheard);
    match result {
        Ok(Ok(())) => status::OK,
        Ok(Err(failed)) => write_op_error(&failed, params, error),
        Err(panicked) => {
            *error = abi::Error::EMPTY;
            write_line(&mut error.text, &panicked);
            status::FAILED
        }
    }
}
