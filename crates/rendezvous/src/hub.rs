//! Rank 0's side: admits the processes, compares what they say of themselves, and passes on what they tell each other.
//!
//! A thread a connection reads; whoever has something to send sends it. What has to be consistent is under one lock.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use squall_core::EndingKind;

use crate::error::{MeetError, ranks};
use crate::wire::{self, Bytes, EndingWord, FromMember, FromRankZero, Side};

/// How long a connection may take to say who it is.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long a member may take to receive a message; one that does not is gone.
const SENDING: Duration = Duration::from_secs(5);

/// How often to look for connections.
const ACCEPTING: Duration = Duration::from_millis(1);

/// Connections that are not admitted, beyond those that are awaited: more are turned away.
const STRANGERS: usize = 64;

/// How long to tell those who come late why they will not meet, before rank 0's process itself is told and ends.
const LINGERING: Duration = Duration::from_secs(1);

/// A little stack is enough, and there may be thousands of threads.
const STACK: usize = 256 << 10;

/// What a process says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Its ranks.
    pub(crate) ranks: Vec<u32>,
    /// What must be the same for all.
    pub(crate) agreed: Vec<Agreed>,
    /// Its number and its host, for messages.
    pub(crate) process: String,
    /// What is equal for processes that see the same devices.
    pub(crate) host: String,
}

/// What must be the same for all processes of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// What it is, such as `the plan hash`.
    pub what: String,
    /// Its value on this process.
    pub value: String,
    /// What to do where it differs; may be empty.
    pub help: String,
}

/// What the threads share.
pub(crate) struct Hub {
    token: Vec<u8>,
    world: u32,
    timeout: Duration,
    deadline: Instant,
    address: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    members: Vec<Member>,
    /// Where members are still to come; closed before any is told how it ended, so that the place is free by then.
    listener: Option<TcpListener>,
    /// Whether all have come, and agree.
    met: bool,
    /// Why they will not meet, and until when that is told to who comes.
    refused: Option<(MeetError, Instant)>,
    /// Connections that are not members.
    unadmitted: usize,
    /// Who was turned away, or came and went, in words.
    turned_away: BTreeMap<String, u32>,
    shares: BTreeMap<String, Sharing>,
}

struct Member {
    about: About,
    /// Where its messages go.
    stream: Arc<Mutex<TcpStream>>,
    /// Its number among the connections.
    connection: u64,
    /// Whether it has told how it ended.
    ended: bool,
    left: bool,
}

#[derive(Default)]
struct Sharing {
    parts: BTreeMap<u32, Bytes>,
    /// The members that have a part in it, by place.
    of: BTreeSet<usize>,
}

impl Hub {
    /// Starts the threads. They end when all members have left or were refused.
    pub(crate) fn start(
        listener: TcpListener,
        token: Vec<u8>,
        world: u32,
        timeout: Duration,
        deadline: Instant,
        address: String,
    ) -> Result<(), MeetError> {
        let system = |error: io::Error| MeetError::System(format!("no thread for meeting: {error}"));
        listener.set_nonblocking(true).map_err(system)?;
        let state = Mutex::new(State { listener: Some(listener), ..State::default() });
        let hub = Arc::new(Hub { token, world, timeout, deadline, address, state });
        let body = move || hub.accept();
        thread::Builder::new().name("squall-meeting".into()).spawn(body).map_err(system)?;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes connections until all members have come, or the deadline.
    fn accept(self: &Arc<Hub>) {
        for connection in 0.. {
            let (mut state, (stream, from)) = loop {
                if Instant::now() >= self.deadline {
                    self.give_up();
                }
                let mut state = self.state();
                if let Some((error, until)) = &state.refused
                    && Instant::now() >= *until
                {
                    let error = error.clone();
                    state.refuse(&error);
                }
                let Some(listener) = &state.listener else { return };
                match listener.accept() {
                    Ok(accepted) => break (state, accepted),
                    Err(_) => drop(state),
                }
                thread::sleep(ACCEPTING);
            };
            if state.unadmitted >= self.world as usize + STRANGERS {
                continue; // dropped
            }
            state.unadmitted += 1;
            drop(state);
            let hub = self.clone();
            let serve = move || hub.serve(stream, from, connection);
            if thread::Builder::new().name("squall-member".into()).stack_size(STACK).spawn(serve).is_err() {
                self.state().unadmitted -= 1;
            }
        }
    }

    /// Tells all that have come who has not.
    fn give_up(&self) {
        let mut state = self.state();
        if state.listener.is_none() {
            return;
        }
        if let Some((error, _)) = state.refused.clone() {
            state.refuse(&error);
            return;
        }
        let here: BTreeSet<u32> =
            state.members.iter().flat_map(|member| member.about.ranks.clone()).collect();
        let ranks = (0..self.world).filter(|rank| !here.contains(rank)).collect();
        let mut turned_away = String::new();
        for (why, count) in &state.turned_away {
            let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
            turned_away.push_str(&format!("; {why}{times}"));
        }
        let (world, waited) = (self.world, self.timeout);
        state.refuse(&MeetError::Missing { ranks, world, waited, turned_away });
    }

    /// One connection, from its first byte to its last.
    fn serve(&self, stream: TcpStream, from: SocketAddr, connection: u64) {
        let admitted = self.admit(&stream, from, connection);
        let mut state = self.state();
        state.unadmitted -= 1;
        if let Err(why) = admitted {
            if state.listener.is_some() {
                *state.turned_away.entry(why).or_default() += 1;
            }
            return;
        }
        drop(state);
        self.listen(stream, connection);
    }

    /// Lets a connection become a member, or says why not.
    fn admit(&self, mut stream: &TcpStream, from: SocketAddr, connection: u64) -> Result<(), String> {
        let who = from.ip();
        let silent = |_: io::Error| format!("{who} connected and said nothing more");
        // Accepted sockets may be as the listener is.
        stream.set_nonblocking(false).map_err(silent)?;
        let _ = stream.set_nodelay(true);
        stream.set_read_timeout(Some(HANDSHAKE)).map_err(silent)?;
        stream.set_write_timeout(Some(SENDING)).map_err(silent)?;
        let own = wire::nonce().map_err(|error| error.to_string())?;
        wire::greet(&mut stream, &own).map_err(silent)?;
        let theirs = wire::greeted(&mut stream).map_err(|why| match why {
            wire::Ungreeted::Stranger => format!("{who} connected and is no squall"),
            wire::Ungreeted::Protocol(version) => format!("{who} speaks version {version} of the protocol"),
            wire::Ungreeted::Io(error) => silent(error),
        })?;
        let mut proof = wire::Proof::default();
        stream.read_exact(&mut proof).map_err(silent)?;
        if !wire::is_proven(&self.token, Side::Member, &theirs, &own, &proof) {
            // Who has not proven it learns nothing about the token.
            let _ = stream.write_all(&wire::Proof::default());
            return Err(format!("a process at {who} has another token"));
        }
        stream.write_all(&wire::proof(&self.token, Side::RankZero, &theirs, &own)).map_err(silent)?;
        let about: About = wire::read(&mut stream, wire::SHORT)
            .map_err(|error| format!("a process at {who} did not say which ranks it is: {error}"))?;
        let sender = stream.try_clone().map_err(silent)?;
        stream.set_read_timeout(None).map_err(silent)?;
        self.claim(about, sender, connection)
    }

    /// Gives a process its ranks.
    fn claim(&self, about: About, stream: TcpStream, connection: u64) -> Result<(), String> {
        let stream = Arc::new(Mutex::new(stream));
        let mut state = self.state();
        let process = about.process.clone();
        let complete = || MeetError::Complete { address: self.address.clone(), world: self.world };
        let refused = state.refused.as_ref().map(|(error, _)| error.clone());
        if refused.is_some() && about.ranks.contains(&0) {
            // Told last, as if it had been here before.
            state.members.push(Member { about, stream, connection, ended: false, left: false });
            return Ok(());
        }
        if let Some(error) = refused.or_else(|| state.listener.is_none().then(complete)) {
            send(&stream, &FromRankZero::Refused(error));
            return Err(process);
        }
        let outside = about.ranks.iter().find(|rank| **rank >= self.world).copied();
        let claimed = about.ranks.iter().find_map(|rank| {
            let owner = state.members.iter().find(|member| member.about.ranks.contains(rank))?;
            Some((*rank, owner.about.process.clone()))
        });
        state.members.push(Member { about, stream, connection, ended: false, left: false });
        if let Some(rank) = outside {
            state.begin_refusing(MeetError::NoRank { process, rank, world: self.world });
        } else if let Some((rank, first)) = claimed {
            state.begin_refusing(MeetError::Claimed { rank, first, second: process });
        } else if state.members.iter().map(|member| member.about.ranks.len()).sum::<usize>()
            == self.world as usize
        {
            state.conclude();
        }
        Ok(())
    }

    /// Reads what a member tells until it has left.
    fn listen(&self, mut stream: TcpStream, connection: u64) {
        loop {
            let message = wire::read(&mut stream, wire::LONG);
            let mut state = self.state();
            let Some(place) = state.members.iter().position(|member| member.connection == connection) else {
                return;
            };
            match message {
                Ok(FromMember::Share { key, count, place: part, bytes }) => {
                    state.share(place, key, count, part, bytes);
                }
                Ok(FromMember::Ending { kind, text }) => {
                    state.members[place].ended = true;
                    state.tell_others(place, &ended(place, kind.0, text));
                }
                Ok(FromMember::Bye) if state.met => {
                    state.leave(place);
                    return;
                }
                Ok(FromMember::Bye) | Err(_) if !state.met => {
                    // One that was not refused may come again.
                    let member = state.members.remove(place);
                    if !member.ended {
                        let who = ranks(&member.about.ranks);
                        let gone = format!("{who}, {}, came and went", member.about.process);
                        *state.turned_away.entry(gone).or_default() += 1;
                    }
                    return;
                }
                Ok(FromMember::Bye) | Err(_) => {
                    let member = &state.members[place];
                    if !member.ended {
                        let (who, process) = (ranks(&member.about.ranks), &member.about.process);
                        let text = format!("the process of {who} is gone: {process}");
                        state.tell_others(place, &ended(place, EndingKind::Gone, text));
                    }
                    state.leave(place);
                    return;
                }
            }
        }
    }
}

fn ended(place: usize, kind: EndingKind, text: String) -> FromRankZero {
    FromRankZero::Ended { place: place as u32, kind: EndingWord(kind), text }
}

impl State {
    /// All have come: compares what they say of themselves.
    fn conclude(&mut self) {
        self.members.sort_by_key(|member| member.about.ranks.iter().min().copied());
        if let Some(error) = differs(&self.members) {
            self.refuse(&error);
            return;
        }
        self.listener = None;
        self.met = true;
        let mut before: BTreeMap<&str, u32> = BTreeMap::new();
        let processes = self.members.len() as u32;
        for (place, member) in (0..).zip(&self.members) {
            let on_host = before.entry(&member.about.host).or_default();
            send(&member.stream, &FromRankZero::Met { processes, place, local_rank: *on_host });
            *on_host += member.about.ranks.len() as u32;
        }
    }

    /// Tells all members the same error, and takes no more.
    fn refuse(&mut self, error: &MeetError) {
        self.listener = None;
        for member in self.members.iter_mut().filter(|member| !member.ended) {
            send(&member.stream, &FromRankZero::Refused(error.clone()));
            member.ended = true;
        }
    }

    /// As [`State::refuse`], but rank 0's process, whose end is the end of all this, is told last: others may be on their way.
    fn begin_refusing(&mut self, error: MeetError) {
        for member in self.members.iter_mut().filter(|member| !member.about.ranks.contains(&0)) {
            send(&member.stream, &FromRankZero::Refused(error.clone()));
            member.ended = true;
        }
        self.refused = Some((error, Instant::now() + LINGERING));
    }

    fn share(&mut self, place: usize, key: String, count: u32, part: u32, bytes: Bytes) {
        let sharing = self.shares.entry(key.clone()).or_default();
        sharing.parts.insert(part, bytes);
        sharing.of.insert(place);
        if sharing.parts.len() < count as usize {
            return;
        }
        let Some(Sharing { parts, of }) = self.shares.remove(&key) else { return };
        self.send_to(of, &FromRankZero::Shared { key, all: parts.into_values().collect() });
    }

    fn leave(&mut self, place: usize) {
        self.members[place].left = true;
        self.tell_others(place, &FromRankZero::Left { place: place as u32 });
        if self.members.iter().all(|member| member.left) {
            self.send_to(0..self.members.len(), &FromRankZero::AllLeft);
        }
    }

    fn tell_others(&self, place: usize, message: &FromRankZero) {
        self.send_to((0..self.members.len()).filter(|other| *other != place), message);
    }

    fn send_to(&self, places: impl IntoIterator<Item = usize>, message: &FromRankZero) {
        let Ok(frame) = wire::frame(message) else { return };
        for member in places.into_iter().filter_map(|place| self.members.get(place)) {
            send_frame(&member.stream, &frame);
        }
    }
}

fn send(stream: &Mutex<TcpStream>, message: &FromRankZero) {
    if let Ok(frame) = wire::frame(message) {
        send_frame(stream, &frame);
    }
}

/// Whoever cannot be told is gone, or as good as gone: its own thread will see that.
fn send_frame(stream: &Mutex<TcpStream>, frame: &[u8]) {
    let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
    if stream.write_all(frame).is_err() {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// The first of what must be the same and is not.
fn differs(members: &[Member]) -> Option<MeetError> {
    let first = members.first()?;
    let names = members.iter().flat_map(|member| member.about.agreed.iter().map(|agreed| &agreed.what));
    let mut seen = BTreeSet::new();
    for what in names.filter(|what| seen.insert(*what)) {
        let of = |member: &Member| {
            let agreed = member.about.agreed.iter().find(|agreed| agreed.what == *what);
            agreed.map_or_else(String::new, |agreed| agreed.value.clone())
        };
        let wanted = of(first);
        let Some(other) = members.iter().map(of).find(|value| *value != wanted) else { continue };
        let holders = |value: &str| {
            let held = members.iter().filter(|member| of(member) == value);
            let mut all: Vec<u32> = held.flat_map(|member| member.about.ranks.clone()).collect();
            all.sort_unstable();
            let verb = if all.len() == 1 { "has" } else { "have" };
            let value = if value.is_empty() { "none" } else { value };
            format!("{} {verb} {value}", ranks(&all))
        };
        let help = first.about.agreed.iter().find(|agreed| agreed.what == *what);
        let help = help.filter(|agreed| !agreed.help.is_empty());
        return Some(MeetError::Differs {
            what: what.clone(),
            first: holders(&wanted),
            second: holders(&other),
            help: help.map_or_else(String::new, |agreed| format!("; {}", agreed.help)),
        });
    }
    None
}
