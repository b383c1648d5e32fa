//! The host's own promises, beyond the suite that every backend passes: results to the bit, blocking, and calls
//! that do not match.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise, in its helpers too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use half::{bf16, f16};
use proptest::prelude::*;
use squall_core::conformance::{Buffer, Op, Rank, Ranks, Target};
use squall_core::{
    CommId, Connect, DType, Device, DeviceError, Element, Library, ReduceOp, Registry, World, with_element,
};
use squall_host_backend::HostLibrary;

fn ranks(world: World) -> Ranks<'static> {
    let registry = Box::leak(Box::new(Registry::linked().unwrap()));
    Ranks::connect(&Target::new(registry, "host", "host").unwrap(), world).unwrap()
}

fn run<T: Send>(world: u32, body: impl Fn(&mut Rank<'_>) -> Result<T, String> + Sync) -> Vec<T> {
    ranks(World::new(world.into()).unwrap()).run(body).unwrap()
}

fn bytes<T: Element>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

fn all_reduce(buffer: &Buffer, dtype: DType, reduce: ReduceOp) -> Op {
    Op::new("all_reduce").buffer("buffer", buffer.whole(dtype)).reduce(reduce)
}

/// The in-place all_reduce of each rank's values; the same on all ranks.
fn reduced<T: Element>(reduce: ReduceOp, values: &[&[T]]) -> Vec<T> {
    let results = run(values.len() as u32, |rank| {
        let mut buffer = rank.upload(&bytes(values[rank.rank as usize]))?;
        rank.run_group(&[all_reduce(&buffer, T::DTYPE, reduce)])?;
        rank.read(&mut buffer)
    });
    assert!(results.iter().all(|result| *result == results[0]), "ranks differ: {results:?}");
    results[0].chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// Reductions written out, one element of all ranks at a time.
trait Reference: Element {
    fn fold(reduce: ReduceOp, values: &[Self]) -> Self;
    /// The same bits, or both not a number: which of several NaNs survives is left open.
    fn same(self, other: Self) -> bool;
}

macro_rules! integers {
    ($($t:ident),*) => {$(
        impl Reference for $t {
            fn fold(reduce: ReduceOp, values: &[$t]) -> $t {
                let sum = values.iter().fold(0, |a: $t, &b| a.wrapping_add(b));
                match reduce {
                    ReduceOp::Sum => sum,
                    ReduceOp::Prod => values.iter().fold(1, |a: $t, &b| a.wrapping_mul(b)),
                    ReduceOp::Max => values.iter().copied().max().unwrap(),
                    ReduceOp::Min => values.iter().copied().min().unwrap(),
                    ReduceOp::Avg => (i128::from(sum) / values.len() as i128) as $t,
                }
            }

            fn same(self, other: $t) -> bool {
                self == other
            }
        }
    )*};
}

macro_rules! floats {
    ($($t:ident by $wide:ident, $to:expr, $from:expr);*) => {$(
        impl Reference for $t {
            fn fold(reduce: ReduceOp, values: &[$t]) -> $t {
                if let [only] = values {
                    return *only;
                }
                let mut wide = values.iter().map(|&x| -> $wide { $to(x) });
                let first = wide.next().unwrap();
                // Numbers before NaNs; of equal numbers, which are zeros, the one with the wanted sign.
                let pick = |a: $wide, b: $wide, wanted: std::cmp::Ordering| match a.partial_cmp(&b) {
                    None if a.is_nan() => b,
                    None => a,
                    Some(_) if a.total_cmp(&b) == wanted => a,
                    Some(_) => b,
                };
                let result = match reduce {
                    ReduceOp::Sum => wide.fold(first, |a, b| a + b),
                    ReduceOp::Prod => wide.fold(first, |a, b| a * b),
                    ReduceOp::Max => wide.fold(first, |a, b| pick(a, b, std::cmp::Ordering::Greater)),
                    ReduceOp::Min => wide.fold(first, |a, b| pick(a, b, std::cmp::Ordering::Less)),
                    ReduceOp::Avg => wide.fold(first, |a, b| a + b) / values.len() as $wide,
                };
                $from(result)
            }

            fn same(self, other: $t) -> bool {
                self.to_bits() == other.to_bits() || (self.is_nan() && other.is_nan())
            }
        }
    )*};
}

integers!(i8, u8, i32, u32, i64, u64);
floats!(
    f16 by f32, f16::to_f32, f16::from_f32;
    bf16 by f32, bf16::to_f32, bf16::from_f32;
    f32 by f32, |x| x, |x| x;
    f64 by f64, |x| x, |x| x
);

fn check<T: Reference>(reduce: ReduceOp, inputs: &[Vec<u8>], got: &[u8], start: usize) {
    let decode = |bytes: &[u8]| -> Vec<T> {
        bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    };
    if let [only] = inputs {
        // Alone, nothing is combined, and not even a NaN may change.
        assert!(only == got, "{reduce} in a world of one changed bits");
    }
    let inputs: Vec<Vec<T>> = inputs.iter().map(|input| decode(input)).collect();
    for (index, got) in decode(got).into_iter().enumerate() {
        let values: Vec<T> = inputs.iter().map(|input| input[start + index]).collect();
        let want = T::fold(reduce, &values);
        assert!(want.same(got), "{reduce} of {values:?} is {want:?}, not {got:?} (element {index})");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bits at all, combined in rank order to the bit, with nothing written around the result.
    #[test]
    fn reductions_are_exact(
        op in prop::sample::select(vec!["all_reduce", "reduce", "reduce_scatter"]),
        dtype in prop::sample::select(DType::ALL),
        reduce in prop::sample::select(ReduceOp::ALL),
        world in 1u32..8,
        count in prop::sample::select(vec![0u64, 1, 2, 7, 8, 33, 63, 64, 65, 127, 128, 300]),
        offsets in [0u64..70, 0u64..70],
        in_place in any::<bool>(),
        root in 0u32..8,
        seed in any::<u64>(),
    ) {
        let root = root % world;
        let blocks = if op == "reduce_scatter" { u64::from(world) } else { 1 };
        let size = dtype.size() as usize;
        let mut random = squall_core::conformance::Random::new(seed);
        let inputs: Vec<Vec<u8>> = (0..world).map(|_| random.bytes((blocks * count) as usize * size)).collect();
        let results = run(world, |rank| {
            let me = rank.rank as usize;
            let arena = |offset: u64, len: u64| vec![0x5a; (offset + len + 9) as usize * size];
            let mut contents = [arena(offsets[0], blocks * count), arena(offsets[1], count)];
            let start = offsets[0] as usize * size;
            contents[0][start..start + inputs[me].len()].copy_from_slice(&inputs[me]);
            let mut buffers = [rank.upload(&contents[0])?, rank.upload(&contents[1])?];
            let send = buffers[0].range(dtype, offsets[0], blocks * count);
            let (which, at) = match in_place {
                true if op == "reduce_scatter" => (0, offsets[0] + me as u64 * count),
                true => (0, offsets[0]),
                false => (1, offsets[1]),
            };
            let recv = buffers[which].range(dtype, at, count);
            let call = Op::new(op).buffer("send", send).buffer("recv", recv).reduce(reduce);
            rank.run_group(&[if op == "reduce" { call.rank("root", root) } else { call }])?;
            let written = op != "reduce" || rank.rank == root;
            let place = at as usize * size..(at + count) as usize * size;
            let got = rank.read(&mut buffers[which])?;
            let result = got[place.clone()].to_vec();
            let mut want = contents[which].clone();
            if written {
                want[place.clone()].copy_from_slice(&result);
            }
            assert!(got == want, "something beside the result was written");
            assert!(which == 0 || rank.read(&mut buffers[0])? == contents[0], "an input was written");
            Ok(written.then_some(result))
        });
        for (rank, result) in results.iter().enumerate() {
            if let Some(result) = result {
                let start = if op == "reduce_scatter" { rank * count as usize } else { 0 };
                with_element!(dtype, T => check::<T>(reduce, &inputs, result, start));
            }
        }
    }

    /// Any messages between any ranks, several a pair and to oneself among them, in groups with collectives between.
    #[test]
    fn groups_deliver_all_messages(
        world in 1u32..6,
        messages in prop::collection::vec((0u32..6, 0u32..6, 0u64..200), 0..12),
        sums in 0usize..3,
        rounds in 1usize..4,
    ) {
        let messages: Vec<(u32, u32, u64)> =
            messages.iter().map(|&(from, to, len)| (from % world, to % world, len)).collect();
        let text = |index: usize, len: u64| vec![index as u8 + 1; len as usize];
        run(world, |rank| {
            let mut kept = Vec::new();
            for (index, &(from, to, len)) in messages.iter().enumerate() {
                if from == rank.rank {
                    kept.push(("send", to, rank.upload(&text(index, len))?, Vec::new()));
                }
                if to == rank.rank {
                    kept.push(("recv", from, rank.upload(&text(254, len))?, text(index, len)));
                }
            }
            let ones = (0..sums).map(|_| rank.upload(&bytes(&[1u64]))).collect::<Result<Vec<_>, _>>()?;
            let mut group: Vec<Op> =
                kept.iter().map(|(op, peer, buffer, _)| {
                    Op::new(op).buffer("buffer", buffer.whole(DType::U8)).rank("peer", *peer)
                }).collect();
            group.extend(ones.iter().map(|one| all_reduce(one, DType::U64, ReduceOp::Sum)));
            if group.is_empty() {
                return Ok(());
            }
            let mut work = rank.prepare(&group)?;
            for _ in 0..rounds {
                rank.run(&mut *work).map_err(|error| error.to_string())?;
            }
            for (op, _, buffer, want) in &mut kept {
                if *op == "recv" {
                    assert_eq!(&rank.read(buffer)?, want);
                }
            }
            for mut one in ones {
                assert_eq!(rank.read(&mut one)?, bytes(&[u64::from(world).pow(rounds as u32)]));
            }
            Ok(())
        });
    }
}

#[test]
fn known_values() {
    let halves = |x: f32| [f16::from_f32(x)];
    assert_eq!(reduced(ReduceOp::Avg, &[&halves(60000.0), &halves(60000.0)]), halves(60000.0));
    let brains = [256.0, 1.0, 1.0].map(|x| [bf16::from_f32(x)]);
    assert_eq!(reduced(ReduceOp::Sum, &brains.each_ref().map(|x| &x[..])), [bf16::from_f32(258.0)]);
    for _ in 0..10 {
        assert_eq!(reduced(ReduceOp::Sum, &[&[1e8f32], &[1.0], &[-1e8], &[1.0]]), [1.0]);
    }
    assert_eq!(reduced(ReduceOp::Avg, &[&[3i32, -3, 7], &[4, -4, 0]]), [3, -3, 3]);
    assert_eq!(reduced(ReduceOp::Avg, &[&[200u8], &[100]]), [22]);
    assert_eq!(reduced(ReduceOp::Sum, &[&[200u8], &[100]]), [44]);
}

#[test]
fn an_average_over_more_ranks_than_its_dtype_counts() {
    let values = vec![[200u8, 1]; 300];
    let values: Vec<&[u8]> = values.iter().map(|x| &x[..]).collect();
    // 60000 and 300, wrapped to 96 and 44.
    assert_eq!(reduced(ReduceOp::Avg, &values), [0, 0]);
    assert_eq!(reduced(ReduceOp::Sum, &values), [96, 44]);
}

/// Runs one call a rank that must fail everywhere, then one that must work; gives the failure, the same on all.
fn mismatch(calls: [&(dyn Fn(&Buffer) -> Op + Sync); 3]) -> String {
    let errors = run(3, |rank| {
        let mut buffer = rank.upload(&bytes(&[7i32; 16]))?;
        let mut work = rank.prepare(&[calls[rank.rank as usize](&buffer)])?;
        let error = rank.run(&mut *work);
        assert_eq!(rank.read(&mut buffer)?, bytes(&[7i32; 16]), "a call that fails writes nothing");
        rank.run_group(&[all_reduce(&buffer, DType::I32, ReduceOp::Sum)])?;
        assert_eq!(rank.read(&mut buffer)?, bytes(&[21i32; 16]));
        Ok(error)
    });
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    match &errors[0] {
        Err(DeviceError::Failed(text)) => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_that_differ_fail_on_all_ranks_and_name_both() {
    let sum = |buffer: &Buffer| all_reduce(buffer, DType::I32, ReduceOp::Sum);
    let of = |count: u64, dtype| {
        move |buffer: &Buffer| {
            Op::new("all_reduce").buffer("buffer", buffer.range(dtype, 0, count)).reduce(ReduceOp::Sum)
        }
    };
    let broadcast = |root: u32| {
        move |buffer: &Buffer| {
            Op::new("broadcast").buffer("buffer", buffer.whole(DType::I32)).rank("root", root)
        }
    };
    assert_eq!(
        mismatch([&sum, &sum, &of(15, DType::I32)]),
        "the ranks' calls differ: rank 0 of communicator `world` calls `all_reduce count = 16, dtype = i32, reduce = \
         sum`, rank 2 of communicator `world` calls `all_reduce count = 15, dtype = i32, reduce = sum`"
    );
    assert!(mismatch([&sum, &of(16, DType::F32), &sum]).contains("dtype = i32, reduce = sum`, rank 1"));
    let max = |buffer: &Buffer| all_reduce(buffer, DType::I32, ReduceOp::Max);
    assert!(mismatch([&max, &sum, &sum]).ends_with("reduce = sum`"));
    assert!(mismatch([&broadcast(0), &broadcast(0), &broadcast(2)]).ends_with("root = 2`"));
    let error = mismatch([&broadcast(0), &sum, &sum]);
    assert!(error.contains("`broadcast count = 16, dtype = i32, root = 0`, rank 1"), "{error}");
}

#[test]
fn a_message_that_is_not_expected_fails_on_both_sides() {
    for (count, dtype, said) in [
        (3, DType::F32, "3 elements of f32"),
        (5, DType::F32, "5 elements of f32"),
        (4, DType::I32, "4 elements of i32"),
    ] {
        run(2, |rank| {
            let mut buffer = rank.upload(&bytes(&[rank.rank as f32; 16]))?;
            let mut other = rank.upload(&bytes(&[rank.rank as f32; 16]))?;
            let op = if rank.rank == 0 {
                Op::new("send").buffer("buffer", buffer.range(DType::F32, 2, 4)).rank("peer", 1)
            } else {
                Op::new("recv").buffer("buffer", buffer.range(dtype, 2, count)).rank("peer", 0)
            };
            // What matches in the same group is delivered.
            let good = if rank.rank == 0 { "send" } else { "recv" };
            let good = Op::new(good).buffer("buffer", other.whole(DType::F32)).rank("peer", 1 - rank.rank);
            let mut work = rank.prepare(&[op, good])?;
            for _ in 0..2 {
                let want = format!(
                    "rank 0 of communicator `world` sends 4 elements of f32 where rank 1 of communicator `world` \
                     receives {said}"
                );
                assert_eq!(rank.run(&mut *work), Err(DeviceError::Failed(want)));
                assert_eq!(rank.read(&mut buffer)?, bytes(&[rank.rank as f32; 16]));
                assert_eq!(rank.read(&mut other)?, bytes(&[0f32; 16]));
            }
            Ok(())
        });
    }
}

#[test]
fn a_lone_send_returns_when_it_was_received() {
    let receiving = AtomicBool::new(false);
    run(2, |rank| {
        let mut buffer = rank.upload(&bytes(&[rank.rank + 5]))?;
        if rank.rank == 0 {
            rank.run_group(&[Op::new("send").buffer("buffer", buffer.whole(DType::U32)).rank("peer", 1)])?;
            assert!(receiving.load(Ordering::SeqCst), "the send did not wait");
            rank.write(&mut buffer, &bytes(&[0u32]))?;
        } else {
            std::thread::sleep(Duration::from_millis(30));
            receiving.store(true, Ordering::SeqCst);
            rank.run_group(&[Op::new("recv").buffer("buffer", buffer.whole(DType::U32)).rank("peer", 0)])?;
            assert_eq!(rank.read(&mut buffer)?, bytes(&[5u32]));
        }
        Ok(())
    });
}

#[test]
fn messages_are_counted_across_groups() {
    run(2, |rank| {
        let mut buffers = [0; 4].map(|_| rank.upload(&bytes(&[0u8])).unwrap());
        let peer = 1 - rank.rank;
        let op = |name, buffer: &Buffer| {
            Op::new(name).buffer("buffer", buffer.whole(DType::U8)).rank("peer", peer)
        };
        if rank.rank == 0 {
            for (index, buffer) in buffers.iter_mut().enumerate() {
                rank.write(buffer, &[index as u8 + 1])?;
            }
            let op = |buffer| op("send", buffer);
            rank.run_group(&[op(&buffers[0]), op(&buffers[1]), op(&buffers[2])])?;
            rank.run_group(&[op(&buffers[3])])?;
        } else {
            for buffer in &buffers {
                rank.run_group(&[op("recv", buffer)])?;
            }
            for (index, buffer) in buffers.iter_mut().enumerate() {
                assert_eq!(rank.read(buffer)?, [index as u8 + 1]);
            }
        }
        Ok(())
    });
}

#[test]
fn sends_that_wait_for_each_other_hang_until_an_abort() {
    let job = ranks(World::new(2).unwrap());
    let abort = job.abort();
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            abort.abort();
        });
        job.run(|rank| {
            let buffer = rank.upload(&[0])?;
            let op = Op::new("send").buffer("buffer", buffer.whole(DType::U8)).rank("peer", 1 - rank.rank);
            let mut work = rank.prepare(&[op])?;
            assert_eq!(rank.run(&mut *work), Err(DeviceError::Aborted), "a send was buffered");
            assert!(start.elapsed() >= Duration::from_millis(50));
            let again = Instant::now();
            assert_eq!(rank.run(&mut *work), Err(DeviceError::Aborted));
            assert!(again.elapsed() < Duration::from_secs(1) && start.elapsed() < Duration::from_secs(2));
            Ok(())
        })
        .unwrap();
    });
}

#[test]
fn a_sender_that_an_abort_releases_stays_until_its_data_are_taken() {
    let mut delivered = 0;
    for round in 0..40 {
        let job = ranks(World::new(2).unwrap());
        let abort = job.abort();
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !begun.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                // Within the copy, which takes a few milliseconds, as far as the machine lets one aim; a busy machine begins it late.
                std::thread::sleep(Duration::from_micros(50 << (round / 4)));
                abort.abort();
            });
            let outcomes = job.run(|rank| {
                let mut buffer = rank.upload(&vec![1 - rank.rank as u8; 16 << 20])?;
                let name = if rank.rank == 0 { "send" } else { "recv" };
                let op = Op::new(name).buffer("buffer", buffer.whole(DType::U8)).rank("peer", 1 - rank.rank);
                let mut work = rank.prepare(&[op])?;
                begun.store(true, Ordering::SeqCst);
                let outcome = rank.run(&mut *work);
                if rank.rank == 0 {
                    // The memory is the sender's again.
                    rank.write(&mut buffer, &vec![9; 16 << 20])?;
                } else if outcome.is_ok() {
                    assert!(rank.read(&mut buffer)?.iter().all(|&byte| byte == 1), "the sender did not wait");
                }
                Ok(outcome)
            });
            delivered += usize::from(outcomes.unwrap()[1].is_ok());
        });
    }
    assert!(delivered > 0, "every abort came before the copy");
}

#[test]
fn one_group_may_name_communicators_in_any_order() {
    let mut world = World::new(4).unwrap();
    let turned = world.split("turned", |rank| (0, -i64::from(rank))).unwrap();
    ranks(world)
        .run(|rank| {
            let (mut a, mut b) = (rank.upload(&bytes(&[rank.rank]))?, rank.upload(&bytes(&[1u32]))?);
            let mut group = [
                all_reduce(&a, DType::U32, ReduceOp::Sum),
                all_reduce(&b, DType::U32, ReduceOp::Sum).on(turned),
            ];
            if rank.rank % 2 == 1 {
                group.reverse();
            }
            rank.run_group(&group)?;
            assert_eq!([rank.read(&mut a)?, rank.read(&mut b)?], [bytes(&[6u32]), bytes(&[4u32])]);
            Ok(())
        })
        .unwrap();
}

#[test]
fn nobody_writes_into_the_buffers_of_a_rank_that_an_abort_released() {
    let mut random = squall_core::conformance::Random::new(11);
    for round in 0..60 {
        let world = [2, 3][round % 2];
        let job = ranks(World::new(world).unwrap());
        let abort = job.abort();
        let pause = Duration::from_micros(random.below(1500));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(pause);
                abort.abort();
            });
            job.run(|rank| {
                let len = 100_000;
                let send = rank.upload(&bytes(&vec![1u32; len]))?;
                let mut recv = rank.upload(&bytes(&vec![1u32; len]))?;
                let gathered = rank.upload(&bytes(&vec![1u32; len * world as usize]))?;
                let last = world as u32 - 1;
                let group = [
                    all_reduce(&recv, DType::U32, ReduceOp::Sum),
                    Op::new("broadcast").buffer("buffer", recv.whole(DType::U32)).rank("root", last),
                    Op::new("gather")
                        .buffer("send", send.whole(DType::U32))
                        .buffer("recv", gathered.whole(DType::U32))
                        .rank("root", 0),
                ];
                let mut work = rank.prepare(&group)?;
                while rank.run(&mut *work).is_ok() {}
                // The memory is this rank's again: what it holds stays, and it may be freed.
                rank.write(&mut recv, &bytes(&vec![9u32; len]))?;
                std::thread::sleep(Duration::from_micros(300));
                assert_eq!(rank.read(&mut recv)?, bytes(&vec![9u32; len]));
                Ok(())
            })
            .unwrap();
        });
    }
}

#[test]
fn impossible_arguments_are_refused_when_a_batch_is_prepared() {
    run(2, |rank| {
        let buffer = rank.upload(&[0; 16])?;
        let f32s = |n| buffer.range(DType::F32, 0, n);
        let mut refused = |op: Op| rank.prepare(&[op]).err().unwrap();
        assert_eq!(
            refused(Op::new("broadcast").buffer("buffer", f32s(4)).rank("root", 2)),
            "prepare broadcast: `root`: is 2, but the communicator has the ranks 0 to 1"
        );
        assert_eq!(
            refused(Op::new("all_gather").buffer("send", f32s(1)).buffer("recv", f32s(3))),
            "prepare all_gather: `recv`: holds 3 elements of f32, but must hold 2 times 1 element of f32"
        );
        assert_eq!(
            refused(Op::new("all_reduce").buffer("buffer", f32s(1))),
            "prepare all_reduce: `reduce`: is missing"
        );
        Ok(())
    });
}

#[test]
fn ranks_of_other_processes_are_refused() {
    let registry = Registry::linked().unwrap();
    let device = |rank| registry.backend("host").unwrap().open(rank).unwrap();
    let mut world = World::new(4).unwrap();
    let pairs = world.split("pairs", |rank| (i64::from(rank / 2), 0)).unwrap();
    let world = Arc::new(world);
    let local: Vec<(u32, Arc<dyn Device>)> = vec![(2, device(0)), (3, device(0))];
    let connect = |comms: &[CommId]| {
        struct NoExchange;
        impl squall_core::Exchange for NoExchange {
            fn all_gather(
                &self,
                _: CommId,
                _: u32,
                _: &[u8],
                _: Instant,
            ) -> Result<Vec<Vec<u8>>, DeviceError> {
                Err(DeviceError::Deadline)
            }
        }
        let (exchange, deadline) = (&NoExchange, Instant::now());
        let aborted: Arc<dyn squall_core::Abort> = Arc::new(AtomicBool::new(false));
        let cx = Connect { world: &world, comms, local: &local, exchange, aborted: &aborted, deadline };
        HostLibrary.connect(&cx).map(|sessions| sessions.len())
    };
    // A part without ranks of this process is another's business.
    assert_eq!(connect(&[pairs]), Ok(2));
    let text =
        "the library `host` joins ranks of one process, but rank 0 of communicator `world` is in another";
    assert_eq!(connect(&[CommId::WORLD, pairs]), Err(DeviceError::Unsupported(text.to_string())));
}
