//! What plan groups find: the ops by name, and ranks that are brought together.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use squall_core::ops::CONTRACTS;
use squall_core::{DType, Device, Exchange, ReduceOp, Registry, World};

use super::*;
use crate::fake::{Fake, TestDevice, device, devices, unaborted};

#[test]
fn all_ops_are_served_on_cuda_by_nccl() {
    let registry = Registry::linked().unwrap();
    let served: Vec<String> = registry.ops().map(|(op, _)| format!("{op:?}")).collect();
    let want: Vec<String> =
        CONTRACTS.iter().map(|op| format!("{} by nccl on cuda", squall_core::Task::name(*op))).collect();
    assert_eq!(served, want);
    for (op, origin) in registry.ops() {
        assert_eq!(origin, concat!("squall-nccl-ops ", env!("CARGO_PKG_VERSION")));
        let needs = op.needs();
        assert_eq!((needs.dtypes, needs.reductions), (DType::ALL, ReduceOp::ALL));
        assert!(needs.groups && needs.captures);
        let contract =
            CONTRACTS.iter().find(|contract| squall_core::Task::name(**contract) == op.name()).unwrap();
        assert_eq!(op.params(), squall_core::Task::params(*contract));
    }
    let library = registry.library("nccl", "cuda").unwrap();
    assert_eq!((library.name(), library.device()), ("nccl", "cuda"));
}

/// Two ranks that call at once get each other's values, of two more there are made-up ones.
struct TestExchange {
    given: Mutex<BTreeMap<u32, Vec<u8>>>,
    both: Barrier,
    other: Vec<u8>,
}

impl TestExchange {
    fn new(other: &[u8]) -> TestExchange {
        TestExchange { given: Mutex::default(), both: Barrier::new(2), other: other.to_vec() }
    }
}

impl Exchange for TestExchange {
    fn all_gather(
        &self,
        _comm: CommId,
        rank: u32,
        mine: &[u8],
        _deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, DeviceError> {
        self.given.lock().unwrap().insert(rank, mine.to_vec());
        self.both.wait();
        let given = self.given.lock().unwrap();
        Ok((0..4).map(|rank| given.get(&rank).unwrap_or(&self.other).clone()).collect())
    }
}

fn connected(
    fake: &Fake,
    local: &[(u32, Arc<dyn Device>)],
    exchange: &dyn Exchange,
) -> Result<Communicators, DeviceError> {
    let world = Arc::new(World::new(4).unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    let (comms, aborted) = (&[CommId::WORLD][..], &unaborted());
    connect(fake.api(), &Connect { world: &world, comms, local, exchange, aborted, deadline })
}

#[test]
fn rank_0s_process_makes_the_id_and_the_others_get_it() {
    let fake = Fake::take();
    let exchange = TestExchange::new(&[]);
    connected(&fake, &[device(2), device(0)], &exchange).unwrap();
    let log = fake.log();
    assert_eq!(log[0], "id 1");
    assert_eq!(log[2], "init 1 rank=2 size=4 id=1 blocking=0 on cuda:2");
    assert_eq!(*exchange.given.lock().unwrap(), BTreeMap::from([(0, vec![1; 128]), (2, vec![])]));

    connected(&fake, &[device(1), device(3)], &TestExchange::new(&[7; 128])).unwrap();
    let log = fake.log();
    assert!(!log.iter().any(|line| line.starts_with("id ")), "{log:#?}");
    assert!(log.contains(&"init 5 rank=1 size=4 id=7 blocking=0 on cuda:1".to_string()), "{log:#?}");

    let error = connected(&fake, &[device(1), device(3)], &TestExchange::new(&[7; 3])).err().unwrap();
    assert_eq!(error.to_string(), "rank 0 gave no id to the other ranks");
}

#[test]
fn ranks_that_are_all_here_need_no_exchange() {
    let fake = Fake::take();
    connected(&fake, &devices(4), &TestExchange::new(&[])).unwrap();
    assert!(fake.log().contains(&"init 4 rank=3 size=4 id=1 blocking=1 on cuda:3".to_string()));
}

#[test]
fn the_same_gpu_twice_is_refused_by_name() {
    let twice = [device(0), (1, Arc::new(TestDevice("cuda:0".to_string())) as Arc<dyn Device>)];
    let world = Arc::new(World::new(2).unwrap());
    let (exchange, deadline) = (TestExchange::new(&[]), Instant::now());
    let cx = Connect {
        world: &world,
        comms: &[],
        local: &twice,
        exchange: &exchange,
        aborted: &unaborted(),
        deadline,
    };
    let error = NcclLibrary.connect(&cx).err().unwrap();
    let text = "ranks 0 and 1 are both on cuda:0, but NCCL takes one rank a GPU";
    assert_eq!(error, DeviceError::Unsupported(text.to_string()));
}
