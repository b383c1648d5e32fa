//! Messages from one rank to another: the k-th sent is the k-th received.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use squall_core::{DType, DeviceError};

use crate::collective::copy::copy;
use crate::collective::team::Team;

/// What two ranks share for the messages from one to the other.
///
/// A sender lays its messages open and waits until they are taken; the receiver copies straight from the sender's memory.
/// Nothing is kept in between, so a send without its receive blocks, as on GPUs.
#[derive(Default)]
pub(crate) struct Channel {
    /// Messages sent so far.
    sent: AtomicU64,
    /// How many of them were sent before the batch that is in progress.
    before: AtomicU64,
    /// Messages received so far.
    taken: AtomicU64,
    slots: Slots,
}

/// Elements that one side offers and the other expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) ptr: u64,
    pub(crate) count: u64,
    pub(crate) dtype: DType,
}

impl Message {
    /// Its size, which fits since it is in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.count * self.dtype.size()
    }
}

/// One rank's end of a channel.
pub(crate) struct Lane {
    team: Arc<Team>,
    channel: Arc<Channel>,
    /// The two ranks, by place in the team.
    from: usize,
    to: usize,
}

impl Lane {
    /// The way from one member of a team to another. Allocates.
    pub(crate) fn new(team: &Arc<Team>, from: usize, to: usize) -> Lane {
        Lane { team: team.clone(), channel: team.channel(from, to), from, to }
    }

    /// Whether both are ends of one channel.
    pub(crate) fn same(&self, other: &Lane) -> bool {
        Arc::ptr_eq(&self.channel, &other.channel)
    }

    /// Makes room for a batch of so many messages. By the sender, outside a batch.
    pub(crate) fn reserve(&self, messages: usize) {
        self.channel.slots.reserve(messages);
    }

    /// Lays the messages of a batch open. By the sender, which has reserved room, and which calls
    /// [`Lane::wait_taken`] before its next batch.
    pub(crate) fn offer(&self, messages: &[Message]) {
        let Channel { sent, before, slots, .. } = &*self.channel;
        let first = sent.load(Ordering::Relaxed);
        before.store(first, Ordering::Relaxed);
        for (index, message) in messages.iter().enumerate() {
            let slot = slots.get(index);
            slot.ptr.store(message.ptr, Ordering::Relaxed);
            slot.offered.store(message);
        }
        // With it the receiver sees all the stores above.
        sent.store(first + messages.len() as u64, Ordering::Release);
        self.team.wake(self.to);
    }

    /// Waits until all messages of the batch are taken; errs when the receiver expected another.
    pub(crate) fn wait_taken(&self, messages: usize) -> Result<(), DeviceError> {
        let Channel { sent, taken, slots, .. } = &*self.channel;
        let all = sent.load(Ordering::Relaxed);
        self.team.wait(self.from, || taken.load(Ordering::Acquire) == all)?;
        (0..messages).try_for_each(|index| self.agree(slots.get(index)))
    }

    /// Waits for the next message and takes it, past the cache if `streaming`; errs when it is not what is expected. By
    /// the receiver.
    pub(crate) fn take(&self, expected: &Message, streaming: bool) -> Result<(), DeviceError> {
        let Channel { sent, before, taken, slots } = &*self.channel;
        let index = taken.load(Ordering::Relaxed);
        self.team.wait(self.to, || sent.load(Ordering::Acquire) > index)?;
        let outcome = self.team.touch(self.to, || {
            let slot = slots.get((index - before.load(Ordering::Relaxed)) as usize);
            slot.expected.store(expected);
            self.agree(slot)?;
            let bytes = expected.bytes() as usize;
            // SAFETY: both sides have this size, as just seen. The receiver's memory is its batch's own; the sender's
            // lives and rests while `touch` runs this, since the sender waits for `taken`.
            unsafe { copy(expected.ptr, slot.ptr.load(Ordering::Relaxed), bytes, streaming) };
            Ok(())
        })?;
        taken.store(index + 1, Ordering::Release);
        self.team.wake(self.from);
        outcome
    }

    fn agree(&self, slot: &Slot) -> Result<(), DeviceError> {
        let (offered, expected) = (slot.offered.load(), slot.expected.load());
        if offered == expected {
            return Ok(());
        }
        let say = |[count, dtype]: [u64; 2]| {
            let dtype = DType::ALL.iter().find(|&&d| d as u64 == dtype).map_or("?", |d| d.name());
            format!("{} of {dtype}", squall_core::count(count, "element"))
        };
        Err(DeviceError::Failed(format!(
            "{} sends {} where {} receives {}",
            self.team.title(self.from),
            say(offered),
            self.team.title(self.to),
            say(expected)
        )))
    }
}

/// The place of one message of the batch in progress.
#[derive(Default)]
struct Slot {
    ptr: AtomicU64,
    offered: Elements,
    expected: Elements,
}

/// Count and dtype. Ordered by the channel's counters.
#[derive(Default)]
struct Elements([AtomicU64; 2]);

impl Elements {
    fn store(&self, message: &Message) {
        self.0[0].store(message.count, Ordering::Relaxed);
        self.0[1].store(message.dtype as u64, Ordering::Relaxed);
    }

    fn load(&self) -> [u64; 2] {
        [self.0[0].load(Ordering::Relaxed), self.0[1].load(Ordering::Relaxed)]
    }
}

/// Slots that are added without moving those in use: shelf s holds 2^s of them.
#[derive(Default)]
struct Slots([OnceLock<Box<[Slot]>>; 32]);

impl Slots {
    fn reserve(&self, slots: usize) {
        for (s, shelf) in self.0.iter().enumerate().take_while(|(s, _)| (1 << s) <= slots) {
            shelf.get_or_init(|| (0..1usize << s).map(|_| Slot::default()).collect());
        }
    }

    /// The slot of a message of the batch, for which room was reserved.
    fn get(&self, index: usize) -> &Slot {
        let shelf = (index + 1).ilog2();
        match self.0.get(shelf as usize).and_then(OnceLock::get) {
            Some(slots) => &slots[index + 1 - (1 << shelf)],
            None => unreachable!("a sender reserves room for its batches when they are prepared"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_distinct_and_as_many_as_reserved() {
        let slots = Slots::default();
        for n in [0, 1, 2, 3, 4, 7, 8, 100] {
            slots.reserve(n);
            let mut places: Vec<_> = (0..n).map(|i| std::ptr::from_ref(slots.get(i))).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), n);
        }
    }
}
