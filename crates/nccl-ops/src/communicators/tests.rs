//! How communicators are made, and what is left when they cannot be.

use super::*;
use crate::fake::{Fake, TestDevice, device, devices};

fn later() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Time enough to come to a call that hangs.
fn soon() -> Instant {
    Instant::now() + Duration::from_millis(500)
}

/// The communicators in lines that begin with the word, in order.
fn with(log: &[String], word: &str) -> Vec<usize> {
    let number = |line: &String| line.strip_prefix(word)?.split(' ').next()?.parse().ok();
    let mut comms: Vec<usize> = log.iter().filter_map(number).collect();
    comms.sort();
    comms
}

fn id() -> UniqueId {
    UniqueId::from_bytes([9; 128])
}

/// Four ranks in two pairs, and in another pair of pairs, the other way round.
fn pairs() -> (World, [CommId; 2]) {
    let mut world = World::new(4).unwrap();
    let pair = world.split("pair", |rank| (i64::from(rank / 2), 0)).unwrap();
    let cross = world.split("cross", |rank| (i64::from(rank % 2), -i64::from(rank))).unwrap();
    (world, [pair, cross])
}

#[test]
fn ranks_of_one_process_connect_in_one_group_and_split_after_it() {
    let fake = Fake::take();
    let mut world = World::new(2).unwrap();
    let turned = world.split("turned", |rank| (0, -i64::from(rank))).unwrap();
    let alone = world.split("alone", |rank| (rank.into(), 0)).unwrap();
    let sessions = fake.connect(&world, &[CommId::WORLD, turned, alone]).into_sessions();
    assert_eq!(
        fake.log(),
        [
            "id 1",
            "start",
            "init 1 rank=0 size=2 id=1 blocking=1 on cuda:0",
            "init 2 rank=1 size=2 id=1 blocking=1 on cuda:1",
            "end",
            "start",
            "split 3 of=1 color=0 key=1 blocking=1 on cuda:0",
            "split 4 of=2 color=0 key=0 blocking=1 on cuda:1",
            "end",
            "start",
            "split 5 of=1 color=0 key=0 blocking=1 on cuda:0",
            "split 6 of=2 color=1 key=0 blocking=1 on cuda:1",
            "end",
        ]
    );
    let raw = |rank: usize, comm| {
        let session = sessions[rank].state.downcast_ref::<RankSession>().unwrap();
        assert_eq!(session.rank(), rank as u32);
        session.raw(comm).map(|raw| (raw.api, raw.handle))
    };
    assert_eq!(raw(0, CommId::WORLD), Ok(("nccl", 1)));
    assert_eq!(raw(1, turned), Ok(("nccl", 4)));
    assert_eq!(raw(1, alone), Ok(("nccl", 6)));
    let missing = raw(0, CommId(7)).unwrap_err().to_string();
    assert_eq!(missing, "the library `nccl` was not connected for communicator 7");
}

#[test]
fn ranks_of_several_processes_join_nonblocking_and_work_blocking() {
    let fake = Fake::take();
    let (world, comms) = pairs();
    let joined = fake.job(&world, &comms, vec![device(3), device(1)], later()).join(id()).unwrap();
    assert_eq!(
        fake.log(),
        [
            "start",
            "init 1 rank=3 size=4 id=9 blocking=0 on cuda:3",
            "init 2 rank=1 size=4 id=9 blocking=0 on cuda:1",
            "end",
            "start",
            "split 3 of=1 color=0 key=3 blocking=1 on cuda:3",
            "split 4 of=2 color=0 key=1 blocking=1 on cuda:1",
            "end",
            "start",
            "split 5 of=1 color=1 key=1 blocking=1 on cuda:3",
            "split 6 of=2 color=0 key=1 blocking=1 on cuda:1",
            "end",
            "start",
            "split 7 of=1 color=1 key=0 blocking=1 on cuda:3",
            "split 8 of=2 color=1 key=1 blocking=1 on cuda:1",
            "end",
            // The ones that were waited on are not needed any more.
            "start",
            "destroy 1",
            "destroy 2",
            "end",
            "free 1",
            "free 2",
        ]
    );
    let sessions = joined.into_sessions();
    let session = sessions[0].state.downcast_ref::<RankSession>().unwrap();
    assert_eq!((session.rank(), session.raw(comms[1]).unwrap().handle), (3, 7));
    drop(sessions);
    assert!(fake.log().contains(&"destroy 8".to_string()));
}

#[test]
fn joining_ends_at_the_deadline_and_leaves_nothing() {
    let fake = Fake::take();
    fake.never_ready();
    let world = World::new(3).unwrap();
    let error = fake.job(&world, &[], vec![device(1), device(2)], soon()).join(id()).err().unwrap();
    let NcclError::Deadline { function: "ncclCommInitRankConfig", rank: 1, world: 3, waited } = error else {
        panic!("{error:?}")
    };
    let text = format!(
        "ncclCommInitRankConfig had not ended on rank 1 after {waited:.1?}, when the deadline passed: not all of the 3 ranks came"
    );
    assert_eq!(error.to_string(), text);
    assert_eq!(DeviceError::from(error), DeviceError::Late(text));
    let log = fake.log();
    assert_eq!(log[4..], ["start", "abort 1", "abort 2", "end", "free 1", "free 2", "start", "end"]);
}

/// A failure anywhere aborts and frees all that was made until then.
#[test]
fn a_failed_start_is_told_and_leaves_nothing() {
    let (world, comms) = pairs();
    for together in [true, false] {
        for function in ["ncclCommInitRankConfig", "ncclCommSplit", "ncclGroupEnd"] {
            let fake = Fake::take();
            let job = fake.job(&world, &comms, devices(4), later());
            fake.fail(function, 4);
            let error = if together { job.connect() } else { job.join(id()) }.err().unwrap();
            let NcclError::Call { function: named, rank, result: 4, text, last } = &error else {
                panic!("{error:?}")
            };
            assert_eq!(
                (*named, &**text, &**last),
                (function, "invalid argument", "the cause, in NCCL's words")
            );
            assert_eq!(*rank, (function != "ncclGroupEnd").then_some(0));
            let log = fake.log();
            let made = [with(&log, "init "), with(&log, "split ")].concat();
            assert!(!made.is_empty());
            assert_eq!((with(&log, "abort "), with(&log, "free ")), (made.clone(), made), "{log:#?}");
        }
    }
}

/// The caller is told at the deadline, whatever call it is that does not come back, and nothing is ended under it. When it comes
/// back, no more is made, and what was made is ended.
#[test]
fn a_call_that_hangs_is_left_alone_at_the_deadline() {
    let (world, comms) = pairs();
    for (together, function, named, rank) in [
        (true, "ncclGetUniqueId", "ncclGetUniqueId", None),
        (true, "ncclCommInitRankConfig", "ncclCommInitRankConfig", Some(0)),
        (true, "ncclGroupEnd", "ncclCommInitRankConfig", None),
        (true, "ncclCommSplit", "ncclCommSplit", Some(0)),
        (false, "ncclCommInitRankConfig", "ncclCommInitRankConfig", Some(0)),
        (false, "ncclCommSplit", "ncclCommSplit", Some(0)),
    ] {
        let fake = Fake::take();
        fake.hang(function);
        let job = fake.job(&world, &comms, devices(4), soon());
        let device = Arc::downgrade(&job.local[0].1);
        let error = if together { job.connect() } else { job.join(id()) }.err().unwrap();
        let NcclError::Stuck { waited, .. } = error else { panic!("{error:?}") };
        assert_eq!(error, NcclError::Stuck { function: named, rank, waited });
        let on = rank.map(|rank| format!(" on rank {rank}")).unwrap_or_default();
        let text = format!("{named}{on} had not come back after {waited:.1?}, when the deadline passed");
        assert_eq!(error.to_string(), text);
        assert_eq!(DeviceError::from(error), DeviceError::Late(text));
        let before = fake.log();
        assert!(!before.is_empty() && device.upgrade().is_some(), "{before:#?}");
        for word in ["abort ", "destroy ", "free "] {
            assert_eq!(with(&before, word), [0; 0], "{before:#?}");
        }

        fake.let_go();
        fake.threads(detached::THREAD, 0);
        let after = fake.log();
        // The group that was under way went on to its end, and none began after it.
        let made = |log: &[String]| [with(log, "init "), with(log, "split ")].concat();
        let all = [made(&before), made(&after)].concat();
        let groups = [("ncclGetUniqueId", 0), ("ncclCommSplit", 8)];
        let want = groups.iter().find(|(name, _)| *name == function).map_or(4, |(_, count)| *count);
        assert_eq!(all.len(), want, "{before:#?} {after:#?}");
        assert_eq!((with(&after, "abort "), with(&after, "free ")), (all.clone(), all), "{after:#?}");
        assert!(device.upgrade().is_none());
    }
}

/// The last call comes back after the deadline, and well.
#[test]
fn a_connection_that_is_made_too_late_is_closed() {
    let fake = Fake::take();
    fake.hang("ncclCommInitRankConfig");
    let error = fake.job(&World::new(2).unwrap(), &[], devices(2), soon()).connect().err().unwrap();
    assert!(matches!(error, NcclError::Stuck { function: "ncclCommInitRankConfig", .. }), "{error}");
    fake.log();
    fake.let_go();
    fake.threads(detached::THREAD, 0);
    let log = fake.log();
    assert_eq!(log[1..], ["end", "start", "destroy 1", "destroy 2", "end", "free 1", "free 2"]);
    assert!(log[0].starts_with("init 2 "), "{log:#?}");
}

/// A program that ends when it is told of the deadline should not do so under NCCL.
#[test]
fn a_deadline_waits_for_what_is_being_taken_back() {
    let fake = Fake::take();
    fake.never_ready();
    fake.hang("ncclCommAbort");
    let world = World::new(3).unwrap();
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            fake.wait_for("abort 1");
            thread::sleep(Duration::from_millis(50));
            fake.let_go();
        });
        fake.job(&world, &[], vec![device(1), device(2)], soon()).join(id()).err().unwrap()
    });
    assert!(matches!(error, NcclError::Deadline { .. }), "{error}");
    assert_eq!(with(&fake.log(), "free "), [1, 2]);
}

#[test]
fn nothing_is_called_after_the_deadline() {
    let fake = Fake::take();
    let error = fake.job(&World::new(2).unwrap(), &[], devices(2), Instant::now()).connect().err().unwrap();
    assert!(matches!(error, NcclError::Stuck { function: "ncclGetUniqueId", rank: None, .. }), "{error}");
    fake.threads(detached::THREAD, 0);
    assert_eq!(fake.log(), [""; 0]);
}

#[test]
#[should_panic(expected = "of a device")]
fn a_panic_on_the_thread_is_the_callers() {
    let fake = Fake::take();
    let error = detached::run(later(), |watch| {
        watch.inside("ncclGetUniqueId", || -> Result<(), NcclError> { panic!("of a device") })
    });
    drop(fake);
    panic!("it came to {error:?}");
}

#[test]
fn an_error_that_shows_only_after_the_call_is_found() {
    let fake = Fake::take();
    let world = World::new(2).unwrap();
    fake.break_comm(1, 6);
    let error = fake.job(&world, &[], vec![device(1)], later()).join(id()).err().unwrap();
    assert!(error.to_string().starts_with("ncclCommInitRankConfig on rank 1: another error"), "{error}");
}

#[test]
fn the_callers_current_device_stays() {
    let fake = Fake::take();
    let (_, caller) = device(5);
    caller.make_current().unwrap();
    drop(fake.connect(&World::new(2).unwrap(), &[]));
    assert_eq!(crate::fake::current(), "cuda:5");
}

#[test]
fn ranks_that_cannot_be_are_refused_before_nccl_is_opened() {
    let twice = [device(0), (1, Arc::new(TestDevice("cuda:0".to_string())) as Arc<dyn Device>)];
    let join =
        |world, local: &[(u32, Arc<dyn Device>)]| Communicators::join(id(), world, local, later()).err();
    let error = join(2, &twice).unwrap();
    assert_eq!(error, NcclError::SameDevice { device: "cuda:0".to_string(), first: 0, second: 1 });
    assert_eq!(error.to_string(), "ranks 0 and 1 are both on cuda:0, but NCCL takes one rank a GPU");
    assert!(matches!(DeviceError::from(error), DeviceError::Unsupported(_)));
    for (world, local, text) in [
        (2, vec![], "a process joins with at least one rank"),
        (2, vec![device(2)], "there is no rank 2 in a job of 2 ranks, counted from 0"),
        (2, vec![device(1), device(1)], "rank 1 is given twice"),
    ] {
        assert_eq!(join(world, &local), Some(NcclError::Ranks(text.to_string())));
    }
}
