//! A group of ops, ready to be run in every step.

use std::sync::Arc;

use squall_core::ops;
use squall_core::{DeviceError, OpCall, OpError, Stream, Work};

use crate::collective::call::{Call, Request};
use crate::collective::channel::{Lane, Message};
use crate::collective::copy::past_cache;
use crate::collective::hub::Hub;
use crate::collective::share::{self, Buffers};
use crate::collective::team::Team;
use crate::library::RankSession;

/// One rank's batch. It progresses jointly with the other ranks' in this order: all sends are laid open, the
/// collectives run, the receives are served, and the sends are waited for. Verified batches complete in it, since all
/// their partners have begun their batches too.
pub(crate) struct Batch {
    hub: Arc<Hub>,
    seat: usize,
    sends: Vec<Sends>,
    collectives: Vec<Collective>,
    recvs: Vec<(Lane, Message)>,
    /// Whether messages are written past the cache, which could not hold the batch's.
    streaming: bool,
}

/// The messages to one rank of one communicator.
struct Sends {
    lane: Lane,
    messages: Vec<Message>,
}

struct Collective {
    team: Arc<Team>,
    place: usize,
    call: Call,
    buffers: Buffers,
}

impl Batch {
    /// Lays out all that running needs.
    pub(crate) fn new(calls: &[OpCall<'_>], session: &RankSession) -> Result<Batch, OpError> {
        let mut batch = Batch {
            hub: session.hub.clone(),
            seat: session.seat,
            sends: Vec::new(),
            collectives: Vec::new(),
            recvs: Vec::new(),
            streaming: false,
        };
        // Communicators in one order on all ranks: collectives of a group that meet in several cannot cross.
        let mut order: Vec<(usize, &OpCall<'_>)> = calls.iter().enumerate().collect();
        order.sort_by_key(|(_, call)| call.comm);
        for (member, call) in order {
            let (team, place) = session.team(call.comm)?;
            let request = ops::Call::read(call.op.name(), &call.args)
                .and_then(|args| Request::read(&args, call.parts, place, team.size()))
                .map_err(|error| OpError::Arg { member, error })?;
            match request {
                Request::Collective(call, pieces) => {
                    let buffers = Buffers::new(&call.signature, pieces, team.size());
                    batch.collectives.push(Collective { team: team.clone(), place, call, buffers });
                }
                Request::Messages { send, recv } => {
                    if let Some((message, to)) = send {
                        batch.add_send(Lane::new(team, place, to), message);
                    }
                    if let Some((message, from)) = recv {
                        batch.recvs.push((Lane::new(team, from, place), message));
                    }
                }
            }
        }
        batch.sends.iter().for_each(|sends| sends.lane.reserve(sends.messages.len()));
        let sent = batch.sends.iter().flat_map(|sends| &sends.messages);
        let messages = sent.chain(batch.recvs.iter().map(|(_, message)| message));
        // Each has another side.
        let bytes =
            messages.fold(0, |sum: u64, message| sum.saturating_add(message.bytes().saturating_mul(2)));
        batch.streaming = past_cache(bytes);
        Ok(batch)
    }

    fn add_send(&mut self, lane: Lane, message: Message) {
        match self.sends.iter_mut().find(|sends| sends.lane.same(&lane)) {
            Some(sends) => sends.messages.push(message),
            None => self.sends.push(Sends { lane, messages: vec![message] }),
        }
    }

    fn run(&mut self) -> Result<(), DeviceError> {
        // Before anything is laid open: a rank that the abort has not reached yet may still compare calls.
        self.hub.check()?;
        // A call that does not match leaves its rank in step with the others; what it found is told at the end.
        let mut failure = Ok(());
        let mut note = |outcome| match outcome {
            Err(DeviceError::Aborted) => Err(DeviceError::Aborted),
            other => {
                failure = std::mem::replace(&mut failure, Ok(())).and(other);
                Ok(())
            }
        };
        for sends in &self.sends {
            sends.lane.offer(&sends.messages);
        }
        for collective in &mut self.collectives {
            note(collective.run())?;
        }
        for (lane, message) in &self.recvs {
            note(lane.take(message, self.streaming))?;
        }
        for sends in &self.sends {
            note(sends.lane.wait_taken(sends.messages.len()))?;
        }
        failure
    }
}

impl Work for Batch {
    fn enqueue(&mut self, _stream: &mut dyn Stream) -> Result<(), DeviceError> {
        let outcome = self.run();
        if outcome == Err(DeviceError::Aborted) {
            self.hub.settle(self.seat);
        }
        outcome
    }
}

impl Collective {
    fn run(&mut self) -> Result<(), DeviceError> {
        let Collective { team, place, call, buffers } = self;
        team.announce(*place, call);
        team.meet(*place)?;
        let outcome = team.agree();
        if outcome.is_ok() {
            team.touch(*place, || {
                team.read_ends(&mut buffers.send, &mut buffers.recv);
                // SAFETY: the calls agree, and each rank checked its own lengths. Until the next meeting every rank
                // either does its share or waits; `touch` keeps the buffers alive.
                unsafe { share::work(&call.signature, *place, buffers) }
            })?;
        }
        team.meet(*place)?;
        outcome
    }
}
