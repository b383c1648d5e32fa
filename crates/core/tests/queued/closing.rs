//! A library that takes its time to close a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use squall_core::registry::Item;
use squall_core::{Abort, Connect, DeviceError, Library, Session};

use crate::device::{Act, Gpu, Refusal};
use crate::{ALWAYS, Flag, MS, limited, refusing, registry};

/// Sessions that have been closed.
static CLOSED: AtomicU64 = AtomicU64::new(0);

struct Slow;

impl Library for Slow {
    fn name(&self) -> &'static str {
        "test"
    }
    fn device(&self) -> &'static str {
        "host"
    }
    fn connect(&self, cx: &Connect<'_>) -> Result<Vec<Session>, DeviceError> {
        let session =
            |_| Session { state: Box::new(SlowSession), abort: Arc::new(Aborted(AtomicBool::default())) };
        Ok(cx.local.iter().map(session).collect())
    }
}

struct SlowSession;

impl Drop for SlowSession {
    fn drop(&mut self) {
        std::thread::sleep(800 * MS);
        CLOSED.fetch_add(1, Ordering::AcqRel);
    }
}

struct Aborted(AtomicBool);

impl Abort for Aborted {
    fn abort(&self) {
        self.0.store(true, Ordering::Release);
    }
    fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
    fn faults(&self) -> Vec<String> {
        // As before an abort alone.
        if self.is_aborted() { Vec::new() } else { vec!["test: a cable is loose".into()] }
    }
}

/// A drop returns when every rank that came back has closed what it had, and not after a second period; of a rank that has not come back
/// it waits for nothing.
#[test]
fn closing_is_waited_for_where_all_are_back() {
    let mut registry = registry();
    registry.add(&Item::Library(&Slow), "this test").unwrap();
    let gate = Flag::default();
    let group = |script: fn(u64, u64, &Flag) -> Act| {
        let held = gate.clone();
        let gpu = Gpu::open(0, move |task, turn| script(task, turn, &held));
        refusing(&registry, &[gpu], ALWAYS, Refusal::Error, limited(300 * MS))
    };
    let closed = || CLOSED.load(Ordering::Acquire);

    let mut good = group(|_, _, _| Act::Nothing);
    good.execute_many(3).unwrap();
    drop(good);
    assert_eq!(closed(), 1);

    let mut hung = group(|task, turn, _| if (task, turn) == (1, 1) { Act::Hang } else { Act::Nothing });
    let said = hung.execute_many(3).unwrap_err().to_string();
    assert!(said.ends_with("; test: a cable is loose"), "{said}");
    drop(hung);
    assert_eq!(closed(), 2);

    let mut stuck = group(|task, turn, gate| match (task, turn) {
        (1, 1) => Act::Block(gate.clone()),
        _ => Act::Nothing,
    });
    stuck.execute_many(3).unwrap_err();
    let start = Instant::now();
    drop(stuck);
    assert!(start.elapsed() < Duration::from_millis(700), "{:?}", start.elapsed());
    gate.store(true, Ordering::Release);
    assert_eq!(closed(), 2);
}
