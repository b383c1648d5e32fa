//! A process's side of the meeting, from joining to goodbye.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use squall_core::{CommId, DeviceError, Ending, EndingKind, Exchange, Peers, World};

use crate::error::{MeetError, ranks};
use crate::file::Note;
use crate::host;
use crate::hub::{About, Agreed, Hub};
use crate::place::Place;
use crate::wire::{self, Bytes, EndingWord, FromMember, FromRankZero, Side};

/// How long to wait between two attempts to reach rank 0: twice as long each time, up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));

/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(2);

/// How much longer members wait than rank 0, so that it can say who is missing.
const GRACE: Duration = Duration::from_secs(2);

/// Who meets whom, and where.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// Where.
    pub place: Place,
    /// What only the processes of the job know: it tells jobs apart, and where it is secret, keeps others out. It never crosses a
    /// connection.
    pub token: Vec<u8>,
    /// Ranks of the job.
    pub world: u32,
    /// This process's ranks, at least one; who has rank 0 listens.
    pub ranks: Vec<u32>,
    /// What must be the same for all.
    pub agreed: Vec<Agreed>,
    /// How long to wait for all to come.
    pub timeout: Duration,
}

/// The processes of a job that have met. Dropped without [`Meeting::leave`], the others take this process for gone.
#[derive(Debug)]
pub struct Meeting {
    channel: Arc<Channel>,
    processes: u32,
    place: u32,
    local_rank: u32,
}

/// Meets the other processes of a job: returns when all ranks have come and agree, or with the reason why not, which is the same for
/// all that have come. Rank 0's process starts threads, which end when all have left.
///
/// # Errors
/// See [`MeetError`]; by the time-out at the latest, give or take two seconds.
pub fn meet(invitation: &Invitation) -> Result<Meeting, MeetError> {
    let started = Instant::now();
    let deadline = started.checked_add(invitation.timeout).unwrap_or(started + Duration::from_secs(1 << 30));
    let leads = invitation.ranks.contains(&0);
    let about = About {
        ranks: invitation.ranks.clone(),
        agreed: invitation.agreed.clone(),
        process: format!("process {} on {}", std::process::id(), host::name()),
        host: host::identity(),
    };
    let start = |listener: TcpListener, token: Vec<u8>, address: String| {
        let local = listener.local_addr().map_err(|error| MeetError::System(error.to_string()))?;
        Hub::start(listener, token, invitation.world, invitation.timeout, deadline, address)?;
        Ok(reached_here(local))
    };
    let joining = Joining { invitation, about, started, deadline };
    match (&invitation.place, leads) {
        (Place::Tcp { host, ports }, true) => {
            let listener = invitation.place.listen(host, ports)?;
            let own = start(listener, invitation.token.clone(), invitation.place.to_string())?;
            joining.join(&mut |_| Ok((vec![own], invitation.token.clone())))
        }
        (Place::Tcp { host, ports }, false) => {
            joining.join(&mut |_| Ok((Place::addresses(host, ports)?, invitation.token.clone())))
        }
        (Place::File(path), true) => {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|error| {
                MeetError::Listen { address: invitation.place.to_string(), reason: error.to_string() }
            })?;
            let port = listener.local_addr().map_err(|error| MeetError::System(error.to_string()))?.port();
            let note = Note::new(port)?;
            let token = note.token(&invitation.token);
            let own = start(listener, token.clone(), invitation.place.to_string())?;
            note.write(path)?;
            let met = joining.join(&mut |_| Ok((vec![own], token.clone())));
            // It has served; what another job has put there meanwhile is that one's.
            note.remove(path);
            met
        }
        (Place::File(path), false) => joining.join(&mut |last| read_note(path, &invitation.token, last)),
    }
}

/// The address of a listener of this process for itself.
fn reached_here(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

/// Addresses and the token from the file that rank 0 wrote, or will write.
fn read_note(path: &Path, token: &[u8], last: &mut String) -> Result<(Vec<SocketAddr>, Vec<u8>), MeetError> {
    match Note::read(path)? {
        Some(note) => Ok((note.addresses(), note.token(token))),
        None => {
            *last = format!("there is no file {} yet", path.display());
            Ok((Vec::new(), Vec::new()))
        }
    }
}

/// How an attempt to join ended.
enum Attempt {
    Met(Meeting),
    /// Nobody, or somebody else, is there: to be tried again.
    Not(String),
    /// Somebody is there who says no.
    Never(MeetError),
}

struct Joining<'a> {
    invitation: &'a Invitation,
    about: About,
    started: Instant,
    deadline: Instant,
}

/// Where to try next, and the token there. What it leaves in its argument says why there is nothing to try.
type Next<'a> = dyn FnMut(&mut String) -> Result<(Vec<SocketAddr>, Vec<u8>), MeetError> + 'a;

impl Joining<'_> {
    /// Tries until somebody answers, or the deadline.
    fn join(&self, next: &mut Next<'_>) -> Result<Meeting, MeetError> {
        let (mut pause, longest) = RETRY;
        let mut last = String::new();
        loop {
            let (addresses, token) = match next(&mut last) {
                Ok(next) => next,
                // A name server may know the host a moment later.
                Err(error @ MeetError::Unknown { .. }) => {
                    if Instant::now() >= self.deadline {
                        return Err(error);
                    }
                    (Vec::new(), Vec::new())
                }
                Err(error) => return Err(error),
            };
            for address in &addresses {
                match self.attempt(*address, &token) {
                    Attempt::Met(meeting) => return Ok(meeting),
                    Attempt::Not(reason) => last = reason,
                    // Another job may be there for a moment longer, or at one of several ports.
                    Attempt::Never(error @ (MeetError::Token { .. } | MeetError::Complete { .. }))
                        if addresses.len() > 1 || matches!(self.invitation.place, Place::File(_)) =>
                    {
                        last = error.to_string();
                    }
                    Attempt::Never(error) => return Err(error),
                }
            }
            if Instant::now() + pause >= self.deadline {
                let (address, reason) = (self.invitation.place.to_string(), last);
                return Err(MeetError::Unmet { address, waited: self.started.elapsed(), reason });
            }
            thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
    }

    fn attempt(&self, address: SocketAddr, token: &[u8]) -> Attempt {
        let left = || self.deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut stream = match TcpStream::connect_timeout(&address, left().min(ATTEMPT)) {
            Ok(stream) => stream,
            Err(error) => return Attempt::Not(format!("{address}: {error}")),
        };
        let greeted = (|| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(left().min(ATTEMPT)))?;
            stream.set_write_timeout(Some(ATTEMPT))
        })();
        let silent = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Attempt::Not(format!("what listens at {address} says nothing"))
            }
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                Attempt::Not(format!("what listens at {address} closes connections"))
            }
            _ => Attempt::Not(format!("{address}: {error}")),
        };
        if let Err(error) = greeted {
            return silent(error);
        }
        let own = match wire::nonce() {
            Ok(nonce) => nonce,
            Err(error) => return Attempt::Never(error),
        };
        if let Err(error) = wire::greet(&mut stream, &own) {
            return silent(error);
        }
        let theirs = match wire::greeted(&mut stream) {
            Ok(nonce) => nonce,
            Err(wire::Ungreeted::Stranger) => {
                return Attempt::Not(format!("what listens at {address} is no squall"));
            }
            Err(wire::Ungreeted::Protocol(theirs)) => {
                return Attempt::Never(MeetError::Protocol { address: address.to_string(), theirs });
            }
            Err(wire::Ungreeted::Io(error)) => return silent(error),
        };
        let mut proof = wire::Proof::default();
        let proven = stream
            .write_all(&wire::proof(token, Side::Member, &own, &theirs))
            .and_then(|()| stream.read_exact(&mut proof));
        if let Err(error) = proven {
            return silent(error);
        }
        if !wire::is_proven(token, Side::RankZero, &own, &theirs, &proof) {
            return Attempt::Never(MeetError::Token { address: self.invitation.place.to_string() });
        }
        let told = wire::frame(&self.about).and_then(|frame| stream.write_all(&frame));
        if let Err(error) = told {
            return silent(error);
        }
        self.admitted(stream, address)
    }

    /// Waits for all others, whom rank 0 waits for until the deadline.
    fn admitted(&self, mut stream: TcpStream, address: SocketAddr) -> Attempt {
        let until = self.deadline.saturating_duration_since(Instant::now()) + GRACE;
        let answer = stream.set_read_timeout(Some(until)).and_then(|()| wire::read(&mut stream, wire::LONG));
        let unmet = |reason: String| {
            let place = self.invitation.place.to_string();
            Attempt::Never(MeetError::Unmet { address: place, waited: self.started.elapsed(), reason })
        };
        match answer {
            Ok(FromRankZero::Met { processes, place, local_rank }) => {
                let channel = stream.set_read_timeout(None).and_then(|()| Channel::open(stream));
                match channel {
                    Ok(channel) => Attempt::Met(Meeting { channel, processes, place, local_rank }),
                    Err(error) => Attempt::Never(MeetError::System(error.to_string())),
                }
            }
            Ok(FromRankZero::Refused(error)) => Attempt::Never(error),
            Ok(_) => unmet(format!("what listens at {address} speaks out of turn")),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    unmet("it answered, and then said nothing until the deadline".to_string())
                }
                // Rank 0's process is gone, and may come again.
                _ => Attempt::Not(format!("rank 0 at {address} answered, and was gone before all had come")),
            },
        }
    }
}

/// What is shared by the thread that reads and those that ask.
struct Channel {
    writer: Mutex<TcpStream>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What was shared, by key, until all ranks here have taken it.
    shared: BTreeMap<String, Vec<Vec<u8>>>,
    /// How many ranks here are to take it, by key.
    takers: BTreeMap<String, u32>,
    /// How often each key was used by each rank.
    rounds: BTreeMap<String, u64>,
    aborted: bool,
    /// How the groups of others ended early, by their place.
    endings: BTreeMap<u32, Ending>,
    /// The first of them that was not released.
    first: Option<Ending>,
    /// Others that have left, by their place.
    left: Vec<u32>,
    all_left: bool,
    /// Whether the connection is gone.
    lost: bool,
    /// Whether this process has told how it ended.
    told: bool,
    heard: Option<Box<dyn Fn(Ending) + Send + Sync>>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

impl Channel {
    fn open(stream: TcpStream) -> io::Result<Arc<Channel>> {
        let writer = Mutex::new(stream.try_clone()?);
        let channel = Arc::new(Channel { writer, state: Mutex::default(), changed: Condvar::new() });
        let own = channel.clone();
        thread::Builder::new().name("squall-meeting".into()).spawn(move || own.listen(stream))?;
        Ok(channel)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what rank 0 passes on until the connection ends.
    fn listen(&self, mut stream: TcpStream) {
        loop {
            let message = wire::read(&mut stream, wire::LONG);
            let mut state = self.state();
            let lost = message.is_err();
            match message {
                Ok(FromRankZero::Shared { key, all }) => {
                    state.shared.insert(key, all.into_iter().map(|Bytes(bytes)| bytes).collect());
                }
                Ok(FromRankZero::Ended { place, kind: EndingWord(kind), text }) => {
                    self.hear(state, place, Ending { kind, text });
                    continue;
                }
                Ok(FromRankZero::Left { place }) => state.left.push(place),
                Ok(FromRankZero::AllLeft) => state.all_left = true,
                Ok(FromRankZero::Met { .. } | FromRankZero::Refused(_)) => {}
                Err(_) => {
                    state.lost = true;
                    if !state.all_left && state.first.is_none() {
                        let text = "the process of rank 0 is gone: its connection is closed".to_string();
                        self.hear(state, 0, Ending { kind: EndingKind::Gone, text });
                    }
                }
            }
            self.changed.notify_all();
            if lost {
                return;
            }
        }
    }

    /// Keeps how another process ended, and calls who wants to know of the first.
    fn hear(&self, mut state: MutexGuard<'_, State>, place: u32, ending: Ending) {
        state.endings.insert(place, ending.clone());
        let first = ending.kind != EndingKind::Released && state.first.is_none();
        if first {
            state.first = Some(ending.clone());
        }
        let heard = if first { state.heard.take() } else { None };
        drop(state);
        self.changed.notify_all();
        if let Some(heard) = heard {
            heard(ending);
        }
    }

    fn send(&self, message: &FromMember) -> io::Result<()> {
        let frame = wire::frame(message)?;
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame)
    }

    /// Waits until something holds, or until then.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: Instant,
        holds: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        while !holds(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// Shares `mine` as part `place` of `count`, under a key that all of them use as often as this one.
    fn share(
        &self,
        key: &str,
        count: u32,
        place: u32,
        mine: &[u8],
        until: Instant,
        waiting: impl Fn() -> String,
    ) -> Result<Vec<Vec<u8>>, DeviceError> {
        let mut state = self.state();
        let rounds = state.rounds.entry(format!("{key} {place}")).or_default();
        let key = format!("{key} {rounds}");
        *rounds += 1;
        // All parts are given before any comes back, so that all takers are counted by then.
        *state.takers.entry(key.clone()).or_default() += 1;
        drop(state);
        let share = FromMember::Share { key: key.clone(), count, place, bytes: Bytes(mine.to_vec()) };
        self.send(&share)
            .map_err(|error| DeviceError::Failed(format!("the meeting's connection: {error}")))?;
        let done = |state: &State| state.shared.contains_key(&key) || state.aborted || state.lost;
        let mut state = self.wait(self.state(), until, done);
        match state.shared.get(&key) {
            Some(all) => {
                let all = all.clone();
                let takers = state.takers.get_mut(&key).map_or(0, |takers| {
                    *takers -= 1;
                    *takers
                });
                if takers == 0 {
                    state.shared.remove(&key);
                    state.takers.remove(&key);
                }
                Ok(all)
            }
            None if state.aborted => Err(DeviceError::Aborted),
            None if state.lost => {
                let first = state.first.as_ref().map_or("the meeting's connection is gone", |e| &e.text);
                Err(DeviceError::Failed(first.to_string()))
            }
            None => Err(DeviceError::Late(waiting())),
        }
    }
}

impl Meeting {
    /// How many processes the job has.
    pub fn processes(&self) -> u32 {
        self.processes
    }

    /// This process's number among them, by their lowest rank.
    pub fn place(&self) -> u32 {
        self.place
    }

    /// How many ranks of lower processes are on this machine: which of its devices is this process's first, where no launcher says.
    pub fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// The way to the other processes for a plan group whose ranks are those of `world`.
    pub fn peers(&self, world: Arc<World>) -> Arc<dyn Peers> {
        Arc::new(Met { channel: self.channel.clone(), processes: self.processes, place: self.place, world })
    }

    /// Gathers what every process gives, by place, once all have called with the same name as often. For moments between phases,
    /// not for steps.
    ///
    /// # Errors
    /// [`DeviceError::Late`] at the deadline; [`DeviceError::Failed`] where a process is gone.
    pub fn all_gather(
        &self,
        name: &str,
        mine: &[u8],
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, DeviceError> {
        let late = || format!("it waited for the other processes, for {name}, until the deadline passed");
        self.channel.share(&format!("process {name}"), self.processes, self.place, mine, deadline, late)
    }

    /// How the first process that ended early, and was not released, ended.
    pub fn ended(&self) -> Option<Ending> {
        self.channel.state().first.clone()
    }

    /// Tells the others how this process ends early, where no plan group has: see [`Peers::tell`].
    pub fn tell(&self, ending: Ending) {
        self.channel.tell(ending);
    }

    /// Closes the connection without a word, as a process does that is killed: for tests.
    #[doc(hidden)]
    pub fn kill(self) {
        let writer = self.channel.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writer.shutdown(std::net::Shutdown::Both);
    }

    /// Says goodbye, and waits until all have, one has ended early, or until then: whoever has rank 0 carries what the others
    /// still tell each other. Gives how the first that ended early did, if one has.
    pub fn leave(self, until: Instant) -> Option<Ending> {
        let told = self.channel.state().told;
        if self.channel.send(&FromMember::Bye).is_ok() {
            // Who has ended early itself carries what the others say of their own end.
            let over = |state: &State| state.all_left || state.lost || (state.first.is_some() && !told);
            drop(self.channel.wait(self.channel.state(), until, over));
        }
        self.channel.state().first.clone()
    }
}

impl Channel {
    fn tell(&self, ending: Ending) {
        if std::mem::replace(&mut self.state().told, true) {
            return;
        }
        // Where the connection is gone, nobody is there to be told.
        let _ = self.send(&FromMember::Ending { kind: EndingWord(ending.kind), text: ending.text });
    }
}

/// The way to the other processes, for a plan group.
struct Met {
    channel: Arc<Channel>,
    processes: u32,
    place: u32,
    world: Arc<World>,
}

impl Exchange for Met {
    fn all_gather(
        &self,
        comm: CommId,
        rank: u32,
        mine: &[u8],
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, DeviceError> {
        let no_part = || DeviceError::Failed(format!("rank {rank} is in no such communicator"));
        let part = self.world.part(comm, rank).ok_or_else(no_part)?;
        let late = || {
            let others: Vec<u32> = part.members.iter().copied().filter(|member| *member != rank).collect();
            format!(
                "it waited to exchange values on `{}` with {} until the deadline passed",
                self.world.name(comm),
                ranks(&others)
            )
        };
        let key = format!("communicator {} {}", comm.0, part.index);
        self.channel.share(&key, part.size(), part.rank, mine, deadline, late)
    }
}

impl Peers for Met {
    fn abort(&self) {
        self.channel.state().aborted = true;
        self.channel.changed.notify_all();
    }

    fn tell(&self, ending: Ending) {
        self.channel.tell(ending);
    }

    fn listen(&self, heard: Box<dyn Fn(Ending) + Send + Sync>) {
        let mut state = self.channel.state();
        match state.first.clone() {
            Some(first) => {
                drop(state);
                heard(first);
            }
            None => state.heard = Some(heard),
        }
    }

    fn endings(&self, until: Instant) -> Vec<Ending> {
        let others = (0..self.processes).filter(|place| *place != self.place);
        let others: Vec<u32> = others.collect();
        let told =
            |state: &State, place: &u32| state.endings.contains_key(place) || state.left.contains(place);
        let all = |state: &State| state.lost || others.iter().all(|place| told(state, place));
        let state = self.channel.wait(self.channel.state(), until, all);
        state.endings.values().cloned().collect()
    }
}
