//! The ranks of one part of a communicator: where they meet, and what each lays open to the others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use squall_core::DeviceError;

use crate::collective::call::{Call, Signature};
use crate::collective::channel::Channel;
use crate::collective::hub::Hub;

/// The state that the members of one part share, made when the library connects.
pub(crate) struct Team {
    hub: Arc<Hub>,
    /// The communicator's name, for messages.
    name: String,
    /// By rank in the communicator.
    members: Box<[Member]>,
    /// Arrivals at all meetings so far; a meeting is over when all members have added theirs.
    arrivals: AtomicU64,
    /// One channel for each ordered pair that exchanges messages. Looked up while batches are prepared.
    channels: Mutex<BTreeMap<(usize, usize), Arc<Channel>>>,
}

struct Member {
    /// Its number among the connection's ranks.
    seat: usize,
    /// Its rank in the world, for messages.
    rank: u32,
    notice: Notice,
}

/// A rank's call, laid open before a meeting and read by the others until the next.
#[derive(Default)]
#[repr(align(128))]
struct Notice {
    signature: AtomicU64,
    count: AtomicU64,
    layout: AtomicU64,
    send: AtomicU64,
    recv: AtomicU64,
}

impl Team {
    /// The team of the ranks `members`, each given by its seat and its rank in the world.
    pub(crate) fn new(hub: Arc<Hub>, name: &str, members: impl Iterator<Item = (usize, u32)>) -> Team {
        Team {
            hub,
            name: name.to_string(),
            members: members.map(|(seat, rank)| Member { seat, rank, notice: Notice::default() }).collect(),
            arrivals: AtomicU64::new(0),
            channels: Mutex::default(),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    fn seat(&self, place: usize) -> usize {
        self.members[place].seat
    }

    /// [`Hub::wait`] as the member `place`.
    pub(crate) fn wait(&self, place: usize, ready: impl Fn() -> bool) -> Result<(), DeviceError> {
        self.hub.wait(self.seat(place), ready)
    }

    /// [`Hub::wake`] for the member `place`.
    pub(crate) fn wake(&self, place: usize) {
        self.hub.wake(self.seat(place));
    }

    /// [`Hub::touch`] as the member `place`.
    pub(crate) fn touch<R>(&self, place: usize, work: impl FnOnce() -> R) -> Result<R, DeviceError> {
        self.hub.touch(self.seat(place), work)
    }

    /// What to call the member `place` in a message.
    pub(crate) fn title(&self, place: usize) -> String {
        format!("rank {} of communicator `{}`", self.members[place].rank, self.name)
    }

    /// The channel from one member to another. Allocates; called while a batch is prepared.
    pub(crate) fn channel(&self, from: usize, to: usize) -> Arc<Channel> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.entry((from, to)).or_default().clone()
    }

    /// Waits, as the member `place`, until all members have come. What each did before is then seen by all.
    pub(crate) fn meet(&self, place: usize) -> Result<(), DeviceError> {
        let size = self.members.len() as u64;
        let arrival = self.arrivals.fetch_add(1, Ordering::AcqRel) + 1;
        let complete = arrival.next_multiple_of(size);
        if arrival == complete {
            (0..self.members.len()).filter(|&other| other != place).for_each(|other| self.wake(other));
            return Ok(());
        }
        self.wait(place, || self.arrivals.load(Ordering::Acquire) >= complete)
    }

    /// Lays open the call of the member `place`, for the others to read after the next meeting.
    pub(crate) fn announce(&self, place: usize, call: &Call) {
        // Relaxed: the meetings before and after order these stores with every load.
        let notice = &self.members[place].notice;
        notice.signature.store(call.signature.pack(), Ordering::Relaxed);
        notice.count.store(call.signature.count, Ordering::Relaxed);
        notice.layout.store(call.signature.layout, Ordering::Relaxed);
        notice.send.store(call.send, Ordering::Relaxed);
        notice.recv.store(call.recv, Ordering::Relaxed);
    }

    /// Reads where each member's call reads and writes, by rank. Between two meetings. Allocates nothing when both
    /// have room.
    pub(crate) fn read_ends(&self, send: &mut Vec<u64>, recv: &mut Vec<u64>) {
        send.clear();
        send.extend(self.members.iter().map(|member| member.notice.send.load(Ordering::Relaxed)));
        recv.clear();
        recv.extend(self.members.iter().map(|member| member.notice.recv.load(Ordering::Relaxed)));
    }

    /// Errs, with the same words on every member, when the calls differ. Between two meetings.
    pub(crate) fn agree(&self) -> Result<(), DeviceError> {
        let read = |member: &Member| {
            let notice = &member.notice;
            let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
            (load(&notice.signature), load(&notice.count), load(&notice.layout))
        };
        let first = read(&self.members[0]);
        let Some(other) = self.members.iter().position(|member| read(member) != first) else {
            return Ok(());
        };
        let say = |(packed, count, layout)| Signature::describe(packed, count, layout);
        Err(DeviceError::Failed(format!(
            "the ranks' calls differ: {} calls `{}`, {} calls `{}`",
            self.title(0),
            say(first),
            self.title(other),
            say(read(&self.members[other])),
        )))
    }
}
