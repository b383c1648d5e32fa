//! What ops have asked to be called when the ranks are aborted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::library_op::Abort;

/// One rank's handles.
#[derive(Default)]
pub(crate) struct Handles(Mutex<Vec<Arc<dyn Abort>>>);

impl Handles {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn Abort>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a handle; calls it where `group` is aborted already. Called by the rank's thread while its plan is bound.
    pub(crate) fn add(&self, handle: Arc<dyn Abort>, group: &dyn Abort) {
        self.lock().push(handle.clone());
        // Looked at behind the lock: whoever aborts says so first and takes the lock then, and so finds the handle or is found here.
        if group.is_aborted() {
            handle.abort();
        }
    }

    /// Calls all. They are called under the lock, so that none is in a call once they have been cleared.
    pub(crate) fn abort(&self) {
        self.lock().iter().for_each(|handle| handle.abort());
    }

    /// What they have found wrong.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.lock().iter().flat_map(|handle| handle.faults()).collect()
    }

    /// Forgets all: the rank's plan is about to be dropped.
    pub(crate) fn clear(&self) {
        // Dropped behind the lock, since a handle may have something to end.
        drop(std::mem::take(&mut *self.lock()));
    }
}
