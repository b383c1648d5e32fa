//! Processes that meet, and those that do not: each is a thread here, with connections of its own over loopback.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use squall_core::{CommId, DeviceError, Ending, EndingKind, World};
use squall_rendezvous::{Agreed, Invitation, MeetError, Meeting, Place, meet};

/// The port of all tests: each has addresses of its own.
const PORT: u16 = 29_500;

/// An address of this machine that no other test has.
fn own() -> String {
    static GIVEN: AtomicU32 = AtomicU32::new(1);
    let (process, given) = (std::process::id(), GIVEN.fetch_add(1, Ordering::Relaxed));
    format!("127.{}.{}.{given}", process >> 8 & 0x7f | 0x80, process & 0xff)
}

fn at(host: &str) -> Place {
    Place::Tcp { host: host.into(), ports: vec![PORT] }
}

fn invited(place: &Place, world: u32, ranks: &[u32]) -> Invitation {
    Invitation {
        place: place.clone(),
        token: b"a job".to_vec(),
        world,
        ranks: ranks.to_vec(),
        agreed: Vec::new(),
        timeout: Duration::from_secs(30),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// All of them at once.
fn all(invitations: Vec<Invitation>) -> Vec<Result<Meeting, MeetError>> {
    let threads: Vec<_> = invitations.into_iter().map(|one| thread::spawn(move || meet(&one))).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn met(invitations: Vec<Invitation>) -> Vec<Meeting> {
    all(invitations).into_iter().map(Result::unwrap).collect()
}

/// All say goodbye at once.
fn leave(meetings: Vec<Meeting>) {
    let threads: Vec<_> = meetings.into_iter().map(|one| thread::spawn(move || one.leave(soon()))).collect();
    threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
}

#[test]
fn all_meet_in_any_order_and_exchange_by_communicator() {
    let place = at(&own());
    // Rank 0 comes last; one process has two ranks that are not neighbours.
    let ranks: [&[u32]; 4] = [&[3], &[1, 4], &[2], &[0]];
    let mut invitations: Vec<Invitation> = ranks.iter().map(|ranks| invited(&place, 5, ranks)).collect();
    let last = invitations.pop().unwrap();
    let early = thread::spawn(move || met(invitations));
    thread::sleep(Duration::from_millis(50));
    let mut meetings = vec![meet(&last).unwrap()];
    meetings.extend(early.join().unwrap());
    let seen: Vec<(u32, u32, u32)> =
        meetings.iter().map(|one| (one.processes(), one.place(), one.local_rank())).collect();
    // By their lowest rank; all are on one machine, so that the ranks before count.
    assert_eq!(seen, [(4, 0, 0), (4, 3, 4), (4, 1, 1), (4, 2, 3)]);

    let mut world = World::new(5).unwrap();
    let pairs = world.split("pair", |rank| (i64::from(rank % 2), 0)).unwrap();
    let world = Arc::new(world);
    let owners: [&[u32]; 4] = [&[0], &[3], &[1, 4], &[2]];
    thread::scope(|scope| {
        for (meeting, ranks) in meetings.iter().zip(owners) {
            let peers = meeting.peers(world.clone());
            for &rank in ranks {
                let peers = peers.clone();
                scope.spawn(move || {
                    for round in 0..20u8 {
                        let mine = [rank as u8, round];
                        let all = peers.all_gather(CommId::WORLD, rank, &mine, soon()).unwrap();
                        assert_eq!(all, (0..5).map(|r| vec![r, round]).collect::<Vec<_>>());
                        let half = peers.all_gather(pairs, rank, &mine, soon()).unwrap();
                        let members = (0..5).filter(|r| u32::from(*r) % 2 == rank % 2);
                        assert_eq!(half, members.map(|r| vec![r, round]).collect::<Vec<_>>());
                    }
                });
            }
        }
    });
    thread::scope(|scope| {
        for meeting in &meetings {
            scope.spawn(move || {
                let all = meeting.all_gather("names", &[meeting.place() as u8], soon()).unwrap();
                assert_eq!(all, [[0], [1], [2], [3]]);
            });
        }
    });
    leave(meetings);
    // The place is free again.
    leave(met(vec![invited(&place, 2, &[0]), invited(&place, 2, &[1])]));
}

/// The same error for all.
fn the_same(outcomes: &[Result<Meeting, MeetError>]) -> String {
    let texts: Vec<String> =
        outcomes.iter().map(|outcome| outcome.as_ref().unwrap_err().to_string()).collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    texts[0].clone()
}

#[test]
fn ranks_that_do_not_come_are_named_to_all() {
    let place = at(&own());
    let limited =
        |ranks: &[u32]| Invitation { timeout: Duration::from_millis(300), ..invited(&place, 6, ranks) };
    let outcomes = all(vec![limited(&[0, 1]), limited(&[4])]);
    assert_eq!(the_same(&outcomes), "ranks 2, 3, 5 of 6 did not come within 300.0ms");
    assert!(outcomes[0].as_ref().unwrap_err().is_late());
    // Without rank 0 there is nobody to ask.
    let start = Instant::now();
    let error = meet(&limited(&[4])).unwrap_err();
    assert!(matches!(&error, MeetError::Unmet { reason, .. } if reason.contains("refused")), "{error}");
    assert!(error.is_late() && start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_rank_that_is_claimed_twice_ends_all() {
    let place = at(&own());
    let outcomes = all(vec![invited(&place, 4, &[0]), invited(&place, 4, &[1]), invited(&place, 4, &[1, 2])]);
    let error = the_same(&outcomes);
    assert!(error.starts_with("rank 1 is claimed twice: by process "), "{error}");
    let outcomes = all(vec![invited(&place, 2, &[0]), invited(&place, 2, &[2])]);
    let error = the_same(&outcomes);
    assert!(error.contains("claims rank 2, and rank 0 has a world of 2 ranks, counted from 0"), "{error}");
}

#[test]
fn what_must_be_the_same_is_compared_and_both_values_are_told() {
    let place = at(&own());
    let agreed = |what: &str, value: &str, help: &str| Agreed {
        what: what.into(),
        value: value.into(),
        help: help.into(),
    };
    let with = |rank: u32, hash: &str| Invitation {
        agreed: vec![agreed("the version", "1", ""), agreed("the plan hash", hash, "compare the manifests")],
        ..invited(&place, 3, &[rank])
    };
    let outcomes = all(vec![with(0, "aa"), with(1, "bb"), with(2, "aa")]);
    let error = the_same(&outcomes);
    assert_eq!(error, "the plan hash differs: ranks 0, 2 have aa, rank 1 has bb; compare the manifests");
    let mut more = with(1, "aa");
    more.agreed.push(agreed("plugins", "libx.so", ""));
    let outcomes = all(vec![with(0, "aa"), more, with(2, "aa")]);
    assert_eq!(the_same(&outcomes), "plugins differs: ranks 0, 2 have none, rank 1 has libx.so");
}

#[test]
fn another_token_is_turned_away_and_the_job_goes_on() {
    let place = at(&own());
    let rank_0 = {
        let one = invited(&place, 2, &[0]);
        thread::spawn(move || meet(&one))
    };
    let other = Invitation { token: b"another job".to_vec(), ..invited(&place, 2, &[1]) };
    let error = meet(&other).unwrap_err();
    assert!(matches!(error, MeetError::Token { .. }), "{error}");
    let rank_1 = meet(&invited(&place, 2, &[1])).unwrap();
    leave(vec![rank_0.join().unwrap().unwrap(), rank_1]);

    let short = |token: &[u8], rank: u32| Invitation {
        token: token.to_vec(),
        timeout: Duration::from_millis(500),
        ..invited(&place, 2, &[rank])
    };
    let (mine, theirs) = (short(b"a", 0), short(b"b", 1));
    let rank_0 = thread::spawn(move || meet(&mine));
    assert!(matches!(meet(&theirs), Err(MeetError::Token { .. })));
    let error = rank_0.join().unwrap().unwrap_err().to_string();
    let wanted = "rank 1 of 2 did not come within 500.0ms; a process at 127.0.0.1 has another token";
    assert_eq!(error, wanted);
}

#[test]
fn strangers_who_say_nothing_or_too_much_do_not_matter() {
    let host = own();
    let place = at(&host);
    let rank_0 = {
        let one = invited(&place, 2, &[0]);
        thread::spawn(move || meet(&one))
    };
    let connect = || loop {
        match TcpStream::connect((host.as_str(), PORT)) {
            Ok(stream) => break stream,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    };
    let silent: Vec<TcpStream> = (0..20).map(|_| connect()).collect();
    for text in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"squall", b"squall\0\x07", &[0xff; 1 << 20]] {
        let mut stream = connect();
        // It may be closed under the stranger's hands.
        let _ = stream.write_all(text);
    }
    // A member of the protocol by all but the proof.
    let mut half = connect();
    half.write_all(b"squall\0\x01").unwrap();
    half.write_all(&[0; 64]).unwrap();
    let mut answer = Vec::new();
    half.read_to_end(&mut answer).unwrap();
    assert_eq!((answer.len(), &answer[40..]), (72, &[0; 32][..]), "it learns nothing of the token");
    let rank_1 = meet(&invited(&place, 2, &[1])).unwrap();
    leave(vec![rank_0.join().unwrap().unwrap(), rank_1]);
    drop(silent);
}

#[test]
fn what_listens_there_and_is_no_squall_is_told() {
    let host = own();
    let listener = TcpListener::bind((host.as_str(), PORT)).unwrap();
    let place = at(&host);
    let (end, ended) = mpsc::channel::<()>();
    let web = thread::spawn(move || {
        listener.set_nonblocking(true).unwrap();
        while ended.try_recv().is_err() {
            if let Ok((mut stream, _)) = listener.accept() {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    let one = Invitation { timeout: Duration::from_millis(300), ..invited(&place, 2, &[1]) };
    let error = meet(&one).unwrap_err().to_string();
    assert!(error.contains("is no squall"), "{error}");
    end.send(()).unwrap();
    web.join().unwrap();
}

#[test]
fn a_second_job_at_the_same_place_is_told_and_several_ports_give_way() {
    let host = own();
    let first = {
        let one = invited(&at(&host), 2, &[0]);
        thread::spawn(move || meet(&one))
    };
    while TcpStream::connect((host.as_str(), PORT)).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
    let error = meet(&invited(&at(&host), 2, &[0])).unwrap_err().to_string();
    assert!(error.contains("the port is in use: by another job"), "{error}");
    // Where there is a choice of ports, the second job takes the next, and its members find it.
    let both = Place::Tcp { host: host.clone(), ports: vec![PORT, PORT + 1] };
    let second = |rank: u32| Invitation { token: b"job 2".to_vec(), ..invited(&both, 2, &[rank]) };
    leave(met(vec![second(0), second(1)]));
    let rank_1 = meet(&invited(&at(&host), 2, &[1])).unwrap();
    leave(vec![first.join().unwrap().unwrap(), rank_1]);
}

#[test]
fn one_who_dies_while_meeting_may_come_again() {
    let host = own();
    let place = at(&host);
    let rank_0 = {
        let one = invited(&place, 3, &[0]);
        thread::spawn(move || meet(&one))
    };
    // A process with rank 1 that gives up: its connection is closed.
    let early = Invitation { timeout: Duration::ZERO, ..invited(&place, 3, &[1]) };
    for _ in 0..3 {
        let _ = meet(&early);
    }
    let both = all(vec![invited(&place, 3, &[1]), invited(&place, 3, &[2])]);
    let mut meetings: Vec<Meeting> = both.into_iter().map(Result::unwrap).collect();
    meetings.push(rank_0.join().unwrap().unwrap());
    leave(meetings);
}

#[test]
fn processes_meet_by_a_file_and_over_a_stale_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job");
    let place = Place::File(path.clone());
    for _ in 0..3 {
        let early = {
            let one = invited(&place, 3, &[1, 2]);
            thread::spawn(move || meet(&one))
        };
        thread::sleep(Duration::from_millis(20));
        let rank_0 = meet(&invited(&place, 3, &[0])).unwrap();
        assert!(!path.exists(), "it has served");
        leave(vec![rank_0, early.join().unwrap().unwrap()]);
        // What a job leaves that was killed: the address of nobody.
        let note = serde_json::json!({ "squall": "", "host": "gone", "machine": "gone", "address": own(),
            "port": PORT, "secret": "" });
        std::fs::write(&path, note.to_string()).unwrap();
    }
    let other = Place::File(folder.path().join("none/job"));
    let error = meet(&invited(&other, 2, &[0])).unwrap_err();
    assert!(error.is_environment() && error.to_string().contains("none/job"), "{error}");
}

#[test]
fn a_process_that_is_gone_is_told_to_all_and_releases_them() {
    for gone in 0..3 {
        let place = at(&own());
        let mut meetings = met((0..3).map(|rank| invited(&place, 3, &[rank])).collect());
        meetings.sort_by_key(Meeting::place);
        let world = Arc::new(World::new(3).unwrap());
        let (sender, heard) = mpsc::channel();
        let left: Vec<(u32, Arc<dyn squall_core::Peers>)> = meetings
            .iter()
            .map(|one| (one.place(), one.peers(world.clone())))
            .filter(|(place, _)| *place != gone)
            .collect();
        for (place, peers) in &left {
            let (sender, place) = (sender.clone(), *place);
            peers.listen(Box::new(move |ending| sender.send((place, ending)).unwrap()));
        }
        let waiting: Vec<_> = left
            .iter()
            .map(|(rank, peers)| {
                let (rank, peers) = (*rank, peers.clone());
                thread::spawn(move || peers.all_gather(CommId::WORLD, rank, &[], soon()))
            })
            .collect();
        // As a process that is killed: its connections are closed. Its hub's are of this process, so that rank 0 is left out.
        if gone == 0 {
            let leaving = meetings.remove(0);
            leaving.tell(Ending { kind: EndingKind::Failed, text: "rank 0 failed".into() });
            for (_, peers) in &left {
                heard.recv().unwrap();
                peers.abort();
            }
            let outcomes: Vec<_> = waiting.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert!(outcomes.iter().all(|outcome| *outcome == Err(DeviceError::Aborted)));
            meetings.push(leaving);
            leave(meetings);
            continue;
        }
        let dying = meetings.remove(gone as usize);
        dying.kill();
        for _ in &left {
            let (_, ending) = heard.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_eq!(ending.kind, EndingKind::Gone);
            let wanted = format!("the process of rank {gone} is gone: process ");
            assert!(ending.text.starts_with(&wanted), "{}", ending.text);
        }
        left.iter().for_each(|(_, peers)| peers.abort());
        let outcomes: Vec<_> = waiting.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(outcomes.iter().all(|outcome| *outcome == Err(DeviceError::Aborted)), "{outcomes:?}");
        leave(meetings);
    }
}

#[test]
fn early_ends_are_heard_once_and_gathered() {
    let place = at(&own());
    let mut meetings = met((0..3).map(|rank| invited(&place, 3, &[rank])).collect());
    meetings.sort_by_key(Meeting::place);
    let world = Arc::new(World::new(3).unwrap());
    let peers: Vec<_> = meetings.iter().map(|one| one.peers(world.clone())).collect();
    let ending = |kind, text: &str| Ending { kind, text: text.to_string() };
    peers[1].tell(ending(EndingKind::TimedOut, "step 3 took longer than 1s"));
    peers[1].tell(ending(EndingKind::Failed, "told once"));
    let (sender, heard) = mpsc::channel();
    for (rank, peers) in peers.iter().enumerate() {
        let sender = sender.clone();
        peers.listen(Box::new(move |ending| sender.send((rank, ending)).unwrap()));
    }
    let mut who: Vec<usize> = (0..2)
        .map(|_| {
            let (rank, ending) = heard.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_eq!(ending.text, "step 3 took longer than 1s");
            rank
        })
        .collect();
    who.sort_unstable();
    assert_eq!(who, [0, 2]);
    peers[0].tell(ending(EndingKind::Released, "rank 0 waited in `a`"));
    peers[2].tell(ending(EndingKind::Released, "rank 2 waited in `b`"));
    let told: Vec<String> = peers[1].endings(soon()).into_iter().map(|ending| ending.text).collect();
    assert_eq!(told, ["rank 0 waited in `a`", "rank 2 waited in `b`"]);
    assert!(heard.try_recv().is_err(), "who is released is no news");
    drop(peers);
    leave(meetings);
}
