//! How connections end, in which order, and within which time.

use squall_core::{CommId, Session, World};

use super::*;
use crate::communicators::RankSession;
use crate::fake::Fake;

fn sessions(fake: &Fake, patience: Duration) -> Vec<Session> {
    let mut world = World::new(2).unwrap();
    let pair = world.split("pair", |_| (0, 0)).unwrap();
    let mut made = fake.connect(&world, &[CommId::WORLD, pair]);
    made.set_patience(patience);
    fake.log();
    made.into_sessions()
}

const ABORTED: [&str; 5] = ["start", "abort 1", "abort 2", "abort 3", "abort 4"];

#[test]
fn a_close_destroys_all_communicators_in_one_group_when_the_last_session_is_gone() {
    let fake = Fake::take();
    let mut sessions = sessions(&fake, PATIENCE);
    fake.threads(THREAD, 1);
    let abort = sessions[0].abort.clone();
    drop(sessions.remove(0));
    assert_eq!(fake.log(), [""; 0]);
    drop(sessions);
    let destroyed = ["start", "destroy 1", "destroy 2", "destroy 3", "destroy 4", "end"];
    assert_eq!(fake.log(), [&destroyed[..], &["free 1", "free 2", "free 3", "free 4"]].concat());
    fake.threads(THREAD, 0);
    // An abort that comes too late changes nothing.
    abort.abort();
    assert_eq!(fake.log(), [""; 0]);
}

#[test]
fn an_abort_releases_at_once_and_frees_when_the_last_session_is_gone() {
    let fake = Fake::take();
    let mut sessions = sessions(&fake, PATIENCE);
    let raw = |session: &Session| {
        session.state.downcast_ref::<RankSession>().unwrap().raw(CommId::WORLD).map(|raw| raw.handle)
    };
    assert_eq!(raw(&sessions[1]), Ok(2));
    sessions[1].abort.abort();
    assert!(sessions.iter().all(|session| session.abort.is_aborted()));
    fake.wait_for("abort 4");
    // More calls change nothing.
    sessions[0].abort.abort();
    sessions[1].abort.abort();
    assert_eq!(raw(&sessions[1]), Err(DeviceError::Aborted));
    drop(sessions.remove(0));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(fake.log(), ABORTED);
    drop(sessions);
    assert_eq!(fake.log(), ["end", "free 1", "free 2", "free 3", "free 4"]);
    fake.threads(THREAD, 0);
}

#[test]
fn what_nccl_found_wrong_is_told_until_it_is_aborted() {
    let fake = Fake::take();
    let sessions = sessions(&fake, PATIENCE);
    assert_eq!(sessions[0].abort.faults(), [""; 0]);
    fake.break_comm(2, IN_PROGRESS);
    assert_eq!(sessions[0].abort.faults(), [""; 0]);
    fake.break_comm(2, 6);
    let faults = sessions[0].abort.faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("NCCL on cuda:1: "), "{faults:?}");
    assert_eq!(sessions[1].abort.faults(), faults, "all sessions are one connection");
    sessions[1].abort.abort();
    assert_eq!(sessions[0].abort.faults(), [""; 0]);
}

#[test]
fn an_abort_does_not_wait_for_nccl() {
    let fake = Fake::take();
    let sessions = sessions(&fake, PATIENCE);
    fake.hang("ncclCommAbort");
    sessions[0].abort.abort();
    fake.wait_for("abort 1");
    sessions[1].abort.abort();
    assert!(sessions[1].abort.is_aborted());
    fake.let_go();
    fake.wait_for("abort 4");
}

#[test]
fn a_close_that_hangs_is_let_go() {
    for aborted in [false, true] {
        let fake = Fake::take();
        let sessions = sessions(&fake, Duration::from_millis(50));
        if aborted {
            sessions[0].abort.abort();
            fake.wait_for("abort 4");
        }
        fake.hang("ncclGroupEnd");
        drop(sessions);
        assert_eq!(fake.log().last().map(String::as_str), Some("end"));
        fake.threads(THREAD, 1);
        // It goes on alone, and ends if it can.
        fake.let_go();
        fake.wait_for("free 4");
        fake.threads(THREAD, 0);
    }
}

#[test]
fn a_communicator_that_failed_by_itself_is_aborted_at_the_close() {
    let fake = Fake::take();
    let sessions = sessions(&fake, PATIENCE);
    fake.break_comm(3, 6);
    drop(sessions);
    let log = fake.log();
    assert_eq!(log[..5], ["start", "destroy 1", "destroy 2", "abort 3", "destroy 4"]);
}

/// What was put off would happen at once without the group.
#[test]
fn without_a_group_nothing_is_ended() {
    let fake = Fake::take();
    let sessions = sessions(&fake, PATIENCE);
    fake.fail("ncclGroupStart", 3);
    sessions[0].abort.abort();
    drop(sessions);
    assert_eq!(fake.log(), ["start"]);
    fake.threads(THREAD, 0);
}
