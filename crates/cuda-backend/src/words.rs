//! Words that streams and kernels tell something in: of the host's memory, which both see, and of the GPU's own.
//!
//! Each has a cache line to itself, since one side writes it while the other polls. They come from pages that are never freed, so that
//! a GPU which writes late writes to a word, whoever has it by then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;
use squall_core::DeviceError;

use crate::context::Context;

/// Bytes of a page of words, and of a word's place on it.
const PAGE: usize = 4096;
const LINE: usize = 64;

/// The words of one GPU that nobody has.
#[derive(Default)]
pub(crate) struct FreeWords {
    host: Mutex<Vec<&'static AtomicU64>>,
    /// Addresses.
    device: Mutex<Vec<u64>>,
}

/// A word of the host's memory, which the GPU sees under the same address (unified addressing). Used again after it is dropped.
pub(crate) struct Word {
    context: Arc<Context>,
    place: &'static AtomicU64,
}

impl Word {
    /// A word that holds 0.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Word, DeviceError> {
        let mut free = context.words.host.lock().unwrap_or_else(PoisonError::into_inner);
        if free.is_empty() {
            let page = context.pinned(PAGE)?;
            for at in (0..PAGE).step_by(LINE) {
                // SAFETY: the page is never freed; the place lies in it and is aligned.
                free.push(unsafe { &*page.add(at).cast::<AtomicU64>() });
            }
        }
        let place = free.pop().ok_or_else(|| DeviceError::Failed("a page without words".to_string()))?;
        place.store(0, Ordering::Relaxed);
        Ok(Word { context: context.clone(), place })
    }

    /// The word, as the host sees it.
    pub(crate) fn get(&self) -> &AtomicU64 {
        self.place
    }

    /// Its address, for both.
    pub(crate) fn address(&self) -> u64 {
        std::ptr::from_ref(self.place) as u64
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        self.context.words.host.lock().unwrap_or_else(PoisonError::into_inner).push(self.place);
    }
}

/// A word of the GPU's own memory, holding whatever was told in it last. Used again after it is dropped.
pub(crate) struct DeviceWord {
    context: Arc<Context>,
    address: u64,
}

impl DeviceWord {
    pub(crate) fn new(context: &Arc<Context>) -> Result<DeviceWord, DeviceError> {
        let mut free = context.words.device.lock().unwrap_or_else(PoisonError::into_inner);
        if free.is_empty() {
            context.make_current()?;
            let mut page = 0;
            // SAFETY: the context is current; `page` is written, and never freed.
            let result = unsafe { sys::cuMemAlloc_v2(&mut page, PAGE) };
            context.check_memory("cuMemAlloc", PAGE as u64, result)?;
            free.extend((0..PAGE).step_by(LINE).map(|at| page + at as u64));
        }
        let address = free.pop().ok_or_else(|| DeviceError::Failed("a page without words".to_string()))?;
        Ok(DeviceWord { context: context.clone(), address })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for DeviceWord {
    fn drop(&mut self) {
        self.context.words.device.lock().unwrap_or_else(PoisonError::into_inner).push(self.address);
    }
}
