//! A device whose stream is carried out in order by a thread of its own while the rank's thread goes on, as a GPU's is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use squall_core::{
    Abort, Arg, BoundRange, Capture, Device, DeviceError, DevicePtr, Grid, KernelDef, Memory, Position,
    Progress, RawHandle, Stream, Work,
};

/// What a task does when the stream comes to it.
pub(crate) enum Act {
    Nothing,
    Take(Duration),
    /// Goes on when the group is aborted, as if it were done.
    Hang,
    /// Goes on when this is set, whatever is aborted.
    Block(Arc<AtomicBool>),
    /// Fails, which shows after the fact; the stream goes on.
    Fail,
    /// Fails, and the stream passes nothing more.
    Die,
}

/// What a task does at a turn, both counted from 0.
pub(crate) type Script = dyn Fn(u64, u64) -> Act + Send + Sync;

pub(crate) struct Gpu {
    id: String,
    script: Arc<Script>,
}

impl Gpu {
    pub(crate) fn open(
        index: u32,
        script: impl Fn(u64, u64) -> Act + Send + Sync + 'static,
    ) -> Arc<dyn Device> {
        Arc::new(Gpu { id: format!("host:{index}"), script: Arc::new(script) })
    }
}

impl Device for Gpu {
    fn id(&self) -> &str {
        &self.id
    }
    fn kind(&self) -> &'static str {
        "host" // so that graphs can be built for it
    }
    fn captures(&self) -> bool {
        true
    }
    fn alloc(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(Bytes(vec![0; bytes as usize])))
    }
    fn alloc_staging(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        self.alloc(bytes)
    }
    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        let tape = Arc::new(Tape {
            script: self.script.clone(),
            progress: Arc::default(),
            content: Mutex::default(),
            changed: Condvar::new(),
        });
        let played = tape.clone();
        thread::spawn(move || played.play());
        let mut tapes = TAPES.lock().unwrap();
        tapes.push(tape.clone());
        Ok(Box::new(Queue { handle: tapes.len() as u64 - 1, tape }))
    }
    unsafe fn kernel(
        &self,
        _: &'static KernelDef,
        _: Vec<Arg<BoundRange>>,
        _: Grid,
    ) -> Result<Box<dyn Work>, DeviceError> {
        Err(DeviceError::Unsupported("there are no kernels here".to_string()))
    }
}

struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn ptr(&self) -> DevicePtr {
        DevicePtr(self.0.as_ptr() as u64)
    }
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn host(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.0)
    }
}

/// All tapes there were: work finds the one of its stream by the raw handle.
static TAPES: Mutex<Vec<Arc<Tape>>> = Mutex::new(Vec::new());

/// What a stream and the thread that carries it out share.
struct Tape {
    script: Arc<Script>,
    progress: Arc<AtomicU64>,
    content: Mutex<Content>,
    changed: Condvar,
}

#[derive(Default)]
struct Content {
    entries: VecDeque<Entry>,
    recording: Option<Vec<Entry>>,
    playing: bool,
    /// What the next wait says.
    error: Option<String>,
    closed: bool,
}

#[derive(Clone)]
enum Entry {
    Act(Turn),
    Copy { dst: DevicePtr, src: DevicePtr, bytes: u64 },
    Mark(u32),
    Complete(u32),
    Replay(Arc<[Entry]>),
}

impl Tape {
    fn put(&self, entry: Entry) {
        let mut content = self.content.lock().unwrap();
        match &mut content.recording {
            Some(recording) => recording.push(entry),
            None => content.entries.push_back(entry),
        }
        self.changed.notify_all();
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
        let at = Position::from(self.progress.load(Ordering::Relaxed));
        let go = |position: Position| self.progress.store(position.into(), Ordering::Release);
        match entry {
            Entry::Act(turn) => return self.act(turn),
            Entry::Mark(tasks) => go(Position { tasks: *tasks, ..at }),
            Entry::Complete(runs) => go(Position { runs: *runs, tasks: 0 }),
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
        let act = (self.script)(turn.task, turn.turns.fetch_add(1, Ordering::Relaxed));
        match act {
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
            Act::Fail | Act::Die => {
                self.content.lock().unwrap().error = Some("the device reports an error".to_string());
                if matches!(act, Act::Die) {
                    return false;
                }
                *turn.failure.lock().unwrap() = Some(format!("task {} found a NaN", turn.task));
            }
        }
        true
    }
}

/// A task on its way through the stream.
#[derive(Clone)]
struct Turn {
    task: u64,
    turns: Arc<AtomicU64>,
    failure: Arc<Mutex<Option<String>>>,
    aborted: Arc<dyn Abort>,
}

/// A task of the script.
pub(crate) struct Acting {
    turn: Turn,
    /// How often it can be enqueued.
    left: u64,
}

impl Acting {
    pub(crate) fn new(task: u64, left: u64, aborted: Arc<dyn Abort>) -> Acting {
        Acting { turn: Turn { task, turns: Arc::default(), failure: Arc::default(), aborted }, left }
    }
}

impl Work for Acting {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        let refused = || DeviceError::Failed("it cannot be enqueued".to_string());
        self.left = self.left.checked_sub(1).ok_or_else(refused)?;
        on(stream).put(Entry::Act(self.turn.clone()));
        Ok(())
    }

    fn failure(&mut self) -> Option<String> {
        self.turn.failure.lock().unwrap().take()
    }
}

/// What a capture recorded.
struct Replay(Arc<[Entry]>);

impl Work for Replay {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        on(stream).put(Entry::Replay(self.0.clone()));
        Ok(())
    }
}

fn on(stream: &dyn Stream) -> Arc<Tape> {
    TAPES.lock().unwrap()[stream.raw().handle as usize].clone()
}

struct Queue {
    handle: u64,
    tape: Arc<Tape>,
}

impl Stream for Queue {
    fn raw(&self) -> RawHandle {
        RawHandle { api: "test", handle: self.handle }
    }
    unsafe fn copy(&mut self, dst: DevicePtr, src: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        self.tape.put(Entry::Copy { dst, src, bytes });
        Ok(())
    }
    fn mark(&mut self, tasks: u32) -> Result<(), DeviceError> {
        self.tape.put(Entry::Mark(tasks));
        Ok(())
    }
    fn complete(&mut self, runs: u32) -> Result<(), DeviceError> {
        assert!(self.tape.content.lock().unwrap().recording.is_none(), "the end of a run is never captured");
        self.tape.put(Entry::Complete(runs));
        Ok(())
    }
    fn progress(&self) -> Arc<dyn Progress> {
        self.tape.progress.clone()
    }
    fn wait(&mut self, _: Option<Instant>) -> Result<(), DeviceError> {
        let mut content = self.tape.content.lock().unwrap();
        while content.playing || !content.entries.is_empty() {
            content = self.tape.changed.wait(content).unwrap();
        }
        content.error.clone().map_or(Ok(()), |error| Err(DeviceError::Failed(error)))
    }
    fn capture(&mut self) -> Option<&mut dyn Capture> {
        Some(self)
    }
}

impl Capture for Queue {
    fn begin(&mut self) -> Result<(), DeviceError> {
        self.tape.content.lock().unwrap().recording = Some(Vec::new());
        Ok(())
    }
    fn end(&mut self) -> Result<Box<dyn Work>, DeviceError> {
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
