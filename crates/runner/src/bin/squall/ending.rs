//! Tells an end of the process that squall did not bring about: code that it loads may call `exit`, with any status.

use std::ffi::c_int;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

static MEANT: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// The C library's: has `handler` called when the process ends by `exit` or by the return of `main`.
    safe fn atexit(handler: extern "C" fn()) -> c_int;
}

/// From here on, an end by `exit` is an error, with status 1, until [`meant`]. Called once, before anything is loaded.
pub(crate) fn guard() {
    // Where there is no room for a handler, an end is as it would be without.
    let _ = atexit(at_exit);
}

/// The process is about to end as it should.
pub(crate) fn meant() {
    MEANT.store(true, Ordering::Relaxed);
}

extern "C" fn at_exit() {
    if !MEANT.load(Ordering::Relaxed) {
        let text = "error: code that was loaded, such as a plugin's, has called `exit`: the process ends before its work is done";
        let _ = writeln!(std::io::stderr(), "{text}");
        signal_hook::low_level::exit(1);
    }
}
