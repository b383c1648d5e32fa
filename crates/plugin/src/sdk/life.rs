//! How long what the host gave may be used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use squall_core::{Abort, DeviceError};

use crate::abi;
use crate::field;

/// The life of one work, from the start of its `prepare` until it is destroyed; to the plugin, the [`Abort`] that it polls. What the host
/// gave for the work is not touched after it, even if the plugin has kept it.
pub(super) struct Life {
    over: AtomicBool,
    abort: RwLock<Option<Table>>,
}

struct Table(*const abi::Abort);

// SAFETY: the ABI lets any thread ask it.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// Whose drop ends the life.
pub(super) struct Owner(pub(super) Arc<Life>);

impl Owner {
    /// # Safety
    /// `abort` is null or a table that stays until this is dropped.
    pub(super) unsafe fn new(abort: *const abi::Abort) -> Owner {
        let abort = (!abort.is_null()).then_some(Table(abort));
        Owner(Arc::new(Life { over: AtomicBool::new(false), abort: RwLock::new(abort) }))
    }
}

impl Drop for Owner {
    /// Waits for threads that are asking the host's table at this moment, which answers at once.
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
        *self.0.abort.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Life {
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        if self.over.load(Ordering::Acquire) {
            return Err(DeviceError::Failed("it is used after the work that it was made for".into()));
        }
        Ok(())
    }
}

impl Abort for Life {
    /// Nothing: squall alone aborts a group. A work that cannot go on returns an error.
    fn abort(&self) {}

    fn is_aborted(&self) -> bool {
        let abort = self.abort.read().unwrap_or_else(PoisonError::into_inner);
        match abort.as_ref() {
            // SAFETY: the table stays until the owner's drop, which waits for this lock.
            Some(table) => unsafe {
                let asked = field!(Abort, table.0, is_aborted).flatten();
                asked.is_some_and(|is_aborted| is_aborted(table.0) != 0)
            },
            None => self.over.load(Ordering::Acquire),
        }
    }
}
