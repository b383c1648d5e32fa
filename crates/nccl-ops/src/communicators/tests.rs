//! How communicators are made, and what is left when they cannot be.

use super::*;
use crate::fake::{Fake, TestDevice, device, devices};

fn later() -> Instant {
    Instant::now() + Duration::from_secs(20)
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
    let local = [device(3), device(1)];
    let job = Job { api: fake.api(), world: &world, comms: &comms, local: &local, deadline: later() };
    let joined = job.join(id()).unwrap();
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
    let local = [device(1), device(2)];
    let deadline = Instant::now() + Duration::from_millis(30);
    let job = Job { api: fake.api(), world: &world, comms: &[], local: &local, deadline };
    let error = job.join(id()).err().unwrap();
    assert_eq!(error, NcclError::Deadline { function: "ncclCommInitRankConfig", rank: 1, world: 3 });
    assert_eq!(
        error.to_string(),
        "ncclCommInitRankConfig had not ended on rank 1 when the deadline passed: not all of the 3 ranks came"
    );
    assert_eq!(DeviceError::from(error), DeviceError::Deadline);
    let log = fake.log();
    assert_eq!(log[4..], ["start", "abort 1", "abort 2", "end", "free 1", "free 2", "start", "end"]);
}

/// A failure anywhere aborts and frees all that was made until then.
#[test]
fn a_failed_start_is_told_and_leaves_nothing() {
    let (world, comms) = pairs();
    let local = devices(4);
    for together in [true, false] {
        for function in ["ncclCommInitRankConfig", "ncclCommSplit", "ncclGroupEnd"] {
            let fake = Fake::take();
            let job = Job { api: fake.api(), world: &world, comms: &comms, local: &local, deadline: later() };
            fake.fail(function, 4);
            let error = if together { job.connect(id()) } else { job.join(id()) }.err().unwrap();
            let NcclError::Call { function: named, rank, result: 4, text, last } = &error else {
                panic!("{error:?}")
            };
            assert_eq!(
                (*named, &**text, &**last),
                (function, "invalid argument", "the cause, in NCCL's words")
            );
            assert_eq!(*rank, (function != "ncclGroupEnd").then_some(0));
            let log = fake.log();
            let with = |word: &str| -> Vec<usize> {
                let mut comms: Vec<usize> = log
                    .iter()
                    .filter_map(|line| line.strip_prefix(word)?.split(' ').next()?.parse().ok())
                    .collect();
                comms.sort();
                comms
            };
            let made = [with("init "), with("split ")].concat();
            assert!(!made.is_empty());
            assert_eq!((with("abort "), with("free ")), (made.clone(), made), "{log:#?}");
        }
    }
}

#[test]
fn an_error_that_shows_only_after_the_call_is_found() {
    let fake = Fake::take();
    let world = World::new(2).unwrap();
    let local = [device(1)];
    fake.break_comm(1, 6);
    let job = Job { api: fake.api(), world: &world, comms: &[], local: &local, deadline: later() };
    let error = job.join(id()).err().unwrap();
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
        (2, vec![device(2)], "rank 2 is not one of the 2 ranks of the job, which count from 0"),
        (2, vec![device(1), device(1)], "rank 1 is given twice"),
    ] {
        assert_eq!(join(world, &local), Some(NcclError::Ranks(text.to_string())));
    }
}
