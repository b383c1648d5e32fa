//! The stream of the device: what was enqueued, and the thread that carries it out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use squall_core::{Abort, Capture, DeviceError, DevicePtr, Position, Progress, RawHandle, Stream, Work};

use crate::device::{Act, Script, Watched};

/// All tapes there were: work finds the one of its stream by the raw handle.
static TAPES: Mutex<Vec<Arc<Tape>>> = Mutex::new(Vec::new());

/// The tape of a stream.
pub(crate) fn on(stream: &dyn Stream) -> Arc<Tape> {
    TAPES.lock().unwrap()[stream.raw().handle as usize].clone()
}

/// What a stream and the thread that carries it out share.
pub(crate) struct Tape {
    script: Arc<Script>,
    place: Arc<Place>,
    content: Mutex<Content>,
    changed: Condvar,
    watched: Arc<Watched>,
}

/// Where the stream is, and where it is known to be since the last wait.
struct Place {
    word: AtomicU64,
    known: AtomicU64,
    /// Whether it can be asked no more.
    lost: AtomicBool,
    watched: Arc<Watched>,
}

impl Progress for Place {
    fn read(&self) -> Position {
        self.watched.reads.fetch_add(1, Ordering::AcqRel);
        thread::sleep(*self.watched.reading.lock().unwrap());
        match self.lost.load(Ordering::Acquire) {
            true => self.known(),
            false => self.word.load(Ordering::Acquire).into(),
        }
    }
    fn known(&self) -> Position {
        self.known.load(Ordering::Acquire).into()
    }
    fn has_ended(&self, runs: u32) -> bool {
        self.known().runs == runs
    }
}

#[derive(Default)]
struct Content {
    entries: VecDeque<Entry>,
    recording: Option<Vec<Entry>>,
    playing: bool,
    /// Runs that were enqueued, and those before the checkpoint that was passed last.
    runs: u32,
    checked: u32,
    /// What waits say from here on; of a lost device, every call.
    error: Option<DeviceError>,
    /// Whether something has gone wrong, told or not.
    failed: bool,
    closed: bool,
}

#[derive(Clone)]
pub(crate) enum Entry {
    Act(Turn),
    Copy { dst: DevicePtr, src: DevicePtr, bytes: u64 },
    Mark(u32),
    Complete(u32),
    Checkpoint(u32),
    Replay(Arc<[Entry]>),
}

/// A task on its way through the stream.
#[derive(Clone)]
pub(crate) struct Turn {
    task: u64,
    turns: Arc<AtomicU64>,
    pub(crate) failure: Arc<Mutex<Option<String>>>,
    aborted: Arc<dyn Abort>,
}

impl Turn {
    pub(crate) fn new(task: u64, aborted: Arc<dyn Abort>) -> Turn {
        Turn { task, turns: Arc::default(), failure: Arc::default(), aborted }
    }
}

impl Tape {
    /// A tape, and the thread that plays it.
    pub(crate) fn start(script: Arc<Script>, watched: Arc<Watched>) -> Arc<Tape> {
        let place = Place {
            word: AtomicU64::new(0),
            known: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            watched: watched.clone(),
        };
        let (content, changed) = (Mutex::default(), Condvar::new());
        let tape = Arc::new(Tape { script, place: Arc::new(place), content, changed, watched });
        let played = tape.clone();
        thread::spawn(move || played.play());
        tape
    }

    /// Whether something has gone wrong.
    pub(crate) fn has_failed(&self) -> bool {
        self.content.lock().unwrap().failed
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.content.lock().unwrap().recording.is_some()
    }

    pub(crate) fn put(&self, entry: Entry) -> Result<(), DeviceError> {
        let mut content = self.content.lock().unwrap();
        if let Some(lost @ DeviceError::Lost { .. }) = &content.error {
            return Err(lost.clone());
        }
        match &mut content.recording {
            Some(recording) => recording.push(entry),
            None => content.entries.push_back(entry),
        }
        self.changed.notify_all();
        Ok(())
    }

    /// The life of the thread.
    fn play(&self) {
        let mut alive = true;
        loop {
            let mut content = self.content.lock().unwrap();
            content.playing = false;
            self.changed.notify_all();
            let entry = loop {
                match content.entries.pop_front() {
                    Some(entry) => break entry,
                    None if content.closed => return,
                    None => content = self.changed.wait(content).unwrap(),
                }
            };
            content.playing = true;
            drop(content);
            alive = alive && self.pass(&entry);
        }
    }

    /// Carries out one entry; false when the stream does nothing more.
    fn pass(&self, entry: &Entry) -> bool {
        let at = Position::from(self.place.word.load(Ordering::Relaxed));
        let go = |position: Position| self.place.word.store(position.into(), Ordering::Release);
        match entry {
            Entry::Act(turn) => return self.act(turn),
            Entry::Mark(tasks) => go(Position { tasks: *tasks, ..at }),
            Entry::Complete(runs) => go(Position { runs: *runs, tasks: 0 }),
            Entry::Checkpoint(runs) => self.content.lock().unwrap().checked = *runs,
            Entry::Replay(entries) => return entries.iter().all(|entry| self.pass(entry)),
            // SAFETY: core vouches for both places until the stream has passed the copy.
            Entry::Copy { dst, src, bytes } => unsafe {
                std::ptr::copy_nonoverlapping(src.0 as *const u8, dst.0 as *mut u8, *bytes as usize);
            },
        }
        true
    }

    fn act(&self, turn: &Turn) -> bool {
        let idle = || thread::sleep(Duration::from_micros(200));
        let failed = |error: Option<DeviceError>| {
            let mut content = self.content.lock().unwrap();
            content.failed = true;
            content.error = error.or(content.error.take());
        };
        let note = || *turn.failure.lock().unwrap() = Some(format!("task {} found a NaN", turn.task));
        let error = || Some(DeviceError::Failed("the device reports an error".to_string()));
        match (self.script)(turn.task, turn.turns.fetch_add(1, Ordering::Relaxed)) {
            Act::Nothing => {}
            Act::Take(time) => thread::sleep(time),
            Act::Hang => {
                while !turn.aborted.is_aborted() {
                    idle()
                }
            }
            Act::Block(gate) => {
                while !gate.load(Ordering::Acquire) {
                    idle()
                }
            }
            Act::Fail => {
                note();
                failed(error());
            }
            Act::Note => {
                note();
                failed(None);
            }
            Act::Die => {
                failed(error());
                return false;
            }
            Act::Lose => {
                self.place.lost.store(true, Ordering::Release);
                let message = "an illegal address".to_string();
                failed(Some(DeviceError::Lost { device: "host:0".to_string(), message }));
                return false;
            }
        }
        true
    }

    /// Waits until this is so, the stream has come to its end, or the deadline.
    fn wait(&self, until: Option<Instant>, ready: impl Fn(&Content) -> bool) -> Result<(), DeviceError> {
        let mut content = self.content.lock().unwrap();
        if content.recording.is_some() {
            self.watched.waited_capturing.fetch_add(1, Ordering::AcqRel);
        }
        while !ready(&content) && !idle(&content) {
            content = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(content).unwrap(),
                Some(Duration::ZERO) => return Err(DeviceError::Deadline),
                Some(left) => self.changed.wait_timeout(content, left).unwrap().0,
            };
        }
        self.known(content)
    }

    /// Notes what a wait has found.
    fn known(&self, content: MutexGuard<'_, Content>) -> Result<(), DeviceError> {
        if let Some(error) = &content.error {
            return Err(error.clone());
        }
        let runs = if idle(&content) { content.runs } else { content.checked };
        self.place.known.store(Position { runs, tasks: 0 }.into(), Ordering::Release);
        Ok(())
    }
}

fn idle(content: &Content) -> bool {
    !content.playing && content.entries.is_empty()
}

/// What a capture recorded.
struct Replay(Arc<[Entry]>);

impl Work for Replay {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        on(stream).put(Entry::Replay(self.0.clone()))
    }
}

pub(crate) struct Queue {
    handle: u64,
    tape: Arc<Tape>,
}

impl Queue {
    pub(crate) fn new(tape: Arc<Tape>) -> Queue {
        let mut tapes = TAPES.lock().unwrap();
        tapes.push(tape.clone());
        Queue { handle: tapes.len() as u64 - 1, tape }
    }
}

impl Stream for Queue {
    fn raw(&self) -> RawHandle {
        RawHandle { api: "test", handle: self.handle }
    }
    unsafe fn copy(&mut self, dst: DevicePtr, src: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        if let Some(left) = &mut *self.tape.watched.copies_left.lock().unwrap() {
            let refused = || DeviceError::Failed("it cannot be copied".to_string());
            *left = left.checked_sub(1).ok_or_else(refused)?;
        }
        self.tape.put(Entry::Copy { dst, src, bytes })
    }
    fn mark(&mut self, tasks: u32) -> Result<(), DeviceError> {
        self.tape.put(Entry::Mark(tasks))
    }
    fn complete(&mut self, runs: u32) -> Result<(), DeviceError> {
        let mut content = self.tape.content.lock().unwrap();
        assert!(content.recording.is_none(), "the end of a run is never captured");
        content.runs = runs;
        let ended = Position::from(self.tape.place.word.load(Ordering::Acquire)).runs;
        drop(content);
        self.tape.watched.most_ahead.fetch_max(runs.wrapping_sub(ended).into(), Ordering::AcqRel);
        self.tape.put(Entry::Complete(runs))
    }
    fn progress(&self) -> Arc<dyn Progress> {
        self.tape.place.clone()
    }
    fn wait(&mut self, until: Option<Instant>) -> Result<(), DeviceError> {
        self.tape.watched.waits.fetch_add(1, Ordering::AcqRel);
        self.tape.wait(until, |_| false)
    }
    fn checkpoint(&mut self) -> Result<(), DeviceError> {
        let content = self.tape.content.lock().unwrap();
        assert!(content.recording.is_none(), "a checkpoint is never captured");
        let runs = content.runs;
        drop(content);
        self.tape.watched.checkpoints.fetch_add(1, Ordering::AcqRel);
        self.tape.put(Entry::Checkpoint(runs))
    }
    fn wait_for(&mut self, runs: u32, until: Option<Instant>) -> Result<(), DeviceError> {
        self.tape.watched.waits_for.fetch_add(1, Ordering::AcqRel);
        let behind = |content: &Content| content.checked.wrapping_sub(runs) > u32::MAX / 2;
        self.tape.wait(until, |content| content.error.is_some() || !behind(content))
    }
    fn capture(&mut self) -> Option<&mut dyn Capture> {
        Some(self)
    }
}

impl Capture for Queue {
    fn begin(&mut self) -> Result<(), DeviceError> {
        let mut content = self.tape.content.lock().unwrap();
        if !idle(&content) {
            self.tape.watched.begun_busy.fetch_add(1, Ordering::AcqRel);
        }
        content.recording = Some(Vec::new());
        Ok(())
    }
    fn end(&mut self) -> Result<Box<dyn Work>, DeviceError> {
        thread::sleep(*self.tape.watched.instantiating.lock().unwrap());
        let recorded = self.tape.content.lock().unwrap().recording.take().unwrap();
        Ok(Box::new(Replay(recorded.into())))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.tape.content.lock().unwrap().closed = true;
        self.tape.changed.notify_all();
    }
}
