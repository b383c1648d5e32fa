//! The thread that writes checkpoints while steps go on. One at a time: there is one snapshot, which goes to and fro.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use squall_core::Snapshot;

use super::store::Store;
use crate::files::FileError;

/// What comes back: the snapshot, and the checkpoint's folder.
type Answer = (Snapshot, Result<PathBuf, FileError>);

/// The thread. Dropping this waits until what is being written is written.
pub(super) struct Writer {
    jobs: Option<Sender<Snapshot>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(store: Store) -> std::io::Result<Writer> {
        let (jobs, wanted) = mpsc::channel::<Snapshot>();
        let (answer, answers) = mpsc::channel();
        let thread = std::thread::Builder::new().name("squall-checkpoint".to_string()).spawn(move || {
            for mut snapshot in wanted {
                let written = store.write(&mut snapshot);
                if answer.send((snapshot, written)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Writer { jobs: Some(jobs), answers, thread: Some(thread) })
    }

    /// Hands a snapshot over to be written; without the thread it comes back.
    pub(super) fn write(&self, snapshot: Snapshot) -> Result<(), Snapshot> {
        let Some(jobs) = &self.jobs else { return Err(snapshot) };
        jobs.send(snapshot).map_err(|unsent| unsent.0)
    }

    /// Waits for the snapshot that was handed over; `None` where the thread has ended.
    pub(super) fn wait(&self) -> Option<Answer> {
        self.answers.recv().ok()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
