//! What every op gives, of every dtype and reduction, on the world and on parts of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use squall_core::conformance::{Buffer, Op, Outcome, Random, Rank};
use squall_core::element::{Exact, to_f64};
use squall_core::{
    BoundRange, BufferDecl, CommId, DType, DevicePtr, Element, Memory, OpSpec, Options, Parts, PlanGroup,
    ReduceOp, Registry, TaskGraph, Upload, World, verify, with_element,
};
use squall_mpi_ops::{Process, set_largest_count};

use crate::joined;

/// Elements of a guard before and after each range.
const GUARD: u64 = 3;
const FILL: u8 = 0xee;

/// A world with a part by parity, one turned around, and one of single ranks.
fn worlds(process: &Process) -> Arc<World> {
    let mut world = World::new(process.size().into()).unwrap();
    world.split("parity", |rank| (i64::from(rank % 2), i64::from(rank))).unwrap();
    world.split("turned", |rank| (0, -i64::from(rank))).unwrap();
    world.split("alone", |rank| (i64::from(rank), 0)).unwrap();
    Arc::new(world)
}

/// Runs `body` for every dtype and communicator, each dtype with a connection of its own.
fn everywhere(process: &'static Process, body: fn(&mut Bench<'_, '_>) -> Outcome) -> Outcome {
    let world = worlds(process);
    for &dtype in DType::ALL {
        let outcome = joined(process, &world)?.run(|rank| {
            for comm in world.comms() {
                let part = world.part(comm, rank.rank).unwrap();
                let (members, me) = (part.members.to_vec(), part.rank as usize);
                let mut bench = Bench { rank: &mut *rank, comm, members, me, dtype };
                body(&mut bench).map_err(|error| format!("{dtype} in `{}`: {error}", world.name(comm)))?;
            }
            Ok(())
        });
        outcome?;
    }
    Ok(())
}

pub(crate) fn all(process: &'static Process) -> Outcome {
    everywhere(process, |bench| {
        // Long ones, which MPI moves and reduces in other ways, on the world alone: they take most of the time.
        let lens: &[u64] = if bench.comm == CommId::WORLD { &[0, 1, 7, 1000, 20_000] } else { &[0, 7, 1000] };
        for &len in lens {
            bench.reductions(len)?;
            bench.moves(len)?;
        }
        bench.odd_numbers()?;
        bench.unequal(&[0, 3, 1, 0, 2])?;
        bench.unequal(&[700, 0, 5000, 1])
    })
}

/// As if MPI counted to 5.
pub(crate) fn split(process: &'static Process) -> Outcome {
    set_largest_count(5);
    everywhere(process, |bench| {
        for len in [0, 1, 4, 5, 6, 23] {
            bench.reductions(len)?;
            bench.moves(len)?;
        }
        bench.unequal(&[0, 3, 1, 0, 2])?;
        bench.unequal(&[17, 0, 5, 12])
    })
}

/// One rank in one communicator, and a dtype.
struct Bench<'a, 'b> {
    rank: &'a mut Rank<'b>,
    comm: CommId,
    /// World ranks, by rank in the communicator.
    members: Vec<u32>,
    me: usize,
    dtype: DType,
}

/// A range with guards around it.
struct Guarded {
    buffer: Buffer,
    len: u64,
    dtype: DType,
}

impl Guarded {
    fn whole(&self) -> BoundRange {
        self.part(0, self.len)
    }

    fn part(&self, offset: u64, len: u64) -> BoundRange {
        self.buffer.range(self.dtype, GUARD + offset, len)
    }
}

impl Bench<'_, '_> {
    fn size(&self) -> usize {
        self.members.len()
    }

    fn guarded(&mut self, contents: &[u8]) -> Result<Guarded, String> {
        let guard = vec![FILL; (GUARD * self.dtype.size()) as usize];
        let buffer = self.rank.upload(&[&guard, contents, &guard].concat())?;
        Ok(Guarded { buffer, len: contents.len() as u64 / self.dtype.size(), dtype: self.dtype })
    }

    fn zeros(&mut self, len: u64) -> Result<Guarded, String> {
        self.guarded(&vec![0x55; (len * self.dtype.size()) as usize])
    }

    /// Compares all of a range, to the bit but for NaN, and its guards.
    fn expect(&mut self, range: &mut Guarded, expected: &[u8], what: &str) -> Outcome {
        let got = self.rank.read(&mut range.buffer)?;
        let guard = (GUARD * self.dtype.size()) as usize;
        let (head, tail) = (&got[..guard], &got[got.len() - guard..]);
        if head.iter().chain(tail).any(|byte| *byte != FILL) {
            return Err(format!("{what}: a guard was written"));
        }
        let got = &got[guard..got.len() - guard];
        let size = self.dtype.size() as usize;
        for (i, (got, expected)) in got.chunks(size).zip(expected.chunks(size)).enumerate() {
            let nan = with_element!(self.dtype, T => is_nan::<T>(got) && is_nan::<T>(expected));
            if got != expected && !nan {
                return Err(format!("{what}: element {i} is {got:?}, not {expected:?}"));
            }
        }
        if got.len() == expected.len() { Ok(()) } else { Err(format!("{what}: the lengths differ")) }
    }

    fn run(&mut self, ops: Vec<Op>, what: &str) -> Outcome {
        let comm = self.comm;
        let ops: Vec<Op> = ops.into_iter().map(|op| op.on(comm)).collect();
        self.rank.run_group(&ops).map_err(|error| format!("{what}: {error}"))
    }

    /// What each member has, by rank.
    fn inputs(&self, reduce: ReduceOp, len: u64) -> Vec<Vec<u8>> {
        let of =
            |rank: &u32| input(self.dtype, reduce, u64::from(*rank) + 1000 * u64::from(self.comm.0), len);
        self.members.iter().map(of).collect()
    }

    fn reductions(&mut self, len: u64) -> Outcome {
        let size = self.size();
        let bytes = (len * self.dtype.size()) as usize;
        for &reduce in ReduceOp::ALL {
            let what = format!("{reduce} of {len}");
            let inputs = self.inputs(reduce, len);
            let expected = with_element!(self.dtype, T => combined::<T>(&inputs, reduce));
            let mine = inputs[self.me].clone();

            let mut buffer = self.guarded(&mine)?;
            self.run(vec![Op::new("all_reduce").buffer("buffer", buffer.whole()).reduce(reduce)], &what)?;
            self.expect(&mut buffer, &expected, &format!("all_reduce in place, {what}"))?;
            let (mut send, mut recv) = (self.guarded(&mine)?, self.zeros(len)?);
            let op = Op::new("all_reduce").buffer("send", send.whole()).buffer("recv", recv.whole());
            self.run(vec![op.reduce(reduce)], &what)?;
            self.expect(&mut recv, &expected, &format!("all_reduce, {what}"))?;
            self.expect(&mut send, &mine, "all_reduce's send")?;

            for root in 0..size {
                let mut buffer = self.guarded(&mine)?;
                let op = Op::new("reduce").buffer("buffer", buffer.whole()).reduce(reduce);
                self.run(vec![op.rank("root", root as u32)], &what)?;
                let own = if root == self.me { &expected } else { &mine };
                self.expect(&mut buffer, own, &format!("reduce in place to {root}, {what}"))?;
                let mut recv = self.zeros(len)?;
                let op = Op::new("reduce")
                    .buffer("send", send.whole())
                    .buffer("recv", recv.whole())
                    .reduce(reduce);
                self.run(vec![op.rank("root", root as u32)], &what)?;
                let untouched = vec![0x55; bytes];
                let own = if root == self.me { &expected } else { &untouched };
                self.expect(&mut recv, own, &format!("reduce to {root}, {what}"))?;
            }
            self.reduce_scatter(&vec![len; size], None, reduce)?;
        }
        Ok(())
    }

    fn reduce_scatter(&mut self, lens: &[u64], parts: Option<&Parts>, reduce: ReduceOp) -> Outcome {
        let what = format!("reduce_scatter of {lens:?}, {reduce}");
        let total: u64 = lens.iter().sum();
        let inputs = self.inputs(reduce, total);
        let sums = with_element!(self.dtype, T => combined::<T>(&inputs, reduce));
        let (begin, len) = (lens[..self.me].iter().sum::<u64>(), lens[self.me]);
        let mine = inputs[self.me].clone();
        let block = self.bytes(begin, len);
        let with = |op: Op| parts.iter().fold(op, |op, parts| op.parts((*parts).clone()));

        let (mut send, mut recv) = (self.guarded(&mine)?, self.zeros(len)?);
        let op = Op::new("reduce_scatter")
            .buffer("send", send.whole())
            .buffer("recv", recv.whole())
            .reduce(reduce);
        self.run(vec![with(op)], &what)?;
        self.expect(&mut recv, &sums[block.clone()], &what)?;
        self.expect(&mut send, &mine, &format!("{what}: send"))?;
        let own = send.part(begin, len);
        let op = Op::new("reduce_scatter").buffer("send", send.whole()).buffer("recv", own).reduce(reduce);
        self.run(vec![with(op)], &what)?;
        let mut expected = mine;
        expected[block.clone()].copy_from_slice(&sums[block]);
        self.expect(&mut send, &expected, &format!("{what} in place"))
    }

    /// The bytes of some elements.
    fn bytes(&self, offset: u64, len: u64) -> std::ops::Range<usize> {
        let size = self.dtype.size();
        (offset * size) as usize..((offset + len) * size) as usize
    }

    /// What moves elements, in equal parts.
    fn moves(&mut self, len: u64) -> Outcome {
        let size = self.size();
        let inputs = self.inputs(ReduceOp::Sum, len);
        let mine = inputs[self.me].clone();
        for (root, roots) in inputs.iter().enumerate() {
            let what = format!("broadcast of {len} from {root}");
            let mut buffer = self.guarded(&mine)?;
            let op = Op::new("broadcast").buffer("buffer", buffer.whole()).rank("root", root as u32);
            self.run(vec![op], &what)?;
            self.expect(&mut buffer, roots, &what)?;
            let (mut send, mut recv) = (self.guarded(&mine)?, self.zeros(len)?);
            let op = Op::new("broadcast").buffer("send", send.whole()).buffer("recv", recv.whole());
            self.run(vec![op.rank("root", root as u32)], &what)?;
            self.expect(&mut recv, roots, &what)?;
            self.expect(&mut send, &mine, &what)?;
        }
        self.divided(&vec![len; size], None)?;

        // Block p of rank r goes to block r of rank p.
        let long: Vec<Vec<u8>> = self.inputs(ReduceOp::Sum, len * size as u64);
        let (send, mut recv) = (self.guarded(&long[self.me])?, self.zeros(len * size as u64)?);
        let op = Op::new("all_to_all").buffer("send", send.whole()).buffer("recv", recv.whole());
        self.run(vec![op], "all_to_all")?;
        let block = self.bytes(self.me as u64 * len, len);
        let expected: Vec<u8> = long.iter().flat_map(|from| from[block.clone()].to_vec()).collect();
        self.expect(&mut recv, &expected, &format!("all_to_all of {len}"))?;

        // Around a ring.
        let (right, left) = ((self.me + 1) % size, (self.me + size - 1) % size);
        let (send, mut recv) = (self.guarded(&mine)?, self.zeros(len)?);
        let op = Op::new("send_recv").buffer("send", send.whole()).rank("to", right as u32);
        self.run(vec![op.buffer("recv", recv.whole()).rank("from", left as u32)], "send_recv")?;
        self.expect(&mut recv, &inputs[left], &format!("send_recv of {len}"))?;
        let mut recv = self.zeros(len)?;
        let ops = vec![
            Op::new("recv").buffer("buffer", recv.whole()).rank("peer", right as u32),
            Op::new("send").buffer("buffer", send.whole()).rank("peer", left as u32),
        ];
        self.run(ops, "recv and send")?;
        self.expect(&mut recv, &inputs[right], &format!("recv and send of {len}"))?;
        // Without a group: even ranks send first.
        if size > 1 && self.me < size / 2 * 2 {
            let peer = (self.me ^ 1) as u32;
            let mut recv = self.zeros(len)?;
            let give = Op::new("send").buffer("buffer", send.whole()).rank("peer", peer);
            let take = Op::new("recv").buffer("buffer", recv.whole()).rank("peer", peer);
            let (first, second) = if self.me.is_multiple_of(2) { (give, take) } else { (take, give) };
            self.run(vec![first], "send")?;
            self.run(vec![second], "recv")?;
            self.expect(&mut recv, &inputs[self.me ^ 1], &format!("send, then recv of {len}"))?;
        }
        Ok(())
    }

    /// all_gather, gather and scatter of such parts.
    fn divided(&mut self, lens: &[u64], parts: Option<&Parts>) -> Outcome {
        let (size, total) = (self.size(), lens.iter().sum::<u64>());
        let (begin, len) = (lens[..self.me].iter().sum::<u64>(), lens[self.me]);
        let inputs: Vec<Vec<u8>> =
            (0..size).map(|r| self.inputs(ReduceOp::Sum, lens[r])[r].clone()).collect();
        let (mine, whole) = (inputs[self.me].clone(), inputs.concat());
        let with = |op: Op| parts.iter().fold(op, |op, parts| op.parts((*parts).clone()));
        let place = self.bytes(begin, len);
        let untouched = vec![0x55; whole.len()];
        // The whole with nothing but this rank's part.
        let mut placed = untouched.clone();
        placed[place].copy_from_slice(&mine);

        let what = format!("all_gather of {lens:?}");
        let (mut send, mut recv) = (self.guarded(&mine)?, self.zeros(total)?);
        let op = Op::new("all_gather").buffer("send", send.whole()).buffer("recv", recv.whole());
        self.run(vec![with(op)], &what)?;
        self.expect(&mut recv, &whole, &what)?;
        self.expect(&mut send, &mine, &what)?;
        let mut recv = self.guarded(&placed)?;
        let op = Op::new("all_gather").buffer("send", recv.part(begin, len)).buffer("recv", recv.whole());
        self.run(vec![with(op)], &what)?;
        self.expect(&mut recv, &whole, &format!("{what} in place"))?;

        for root in 0..size {
            let is_root = root == self.me;
            let what = format!("gather of {lens:?} to {root}");
            let mut recv = self.zeros(total)?;
            let op = Op::new("gather").buffer("send", send.whole()).buffer("recv", recv.whole());
            self.run(vec![with(op.rank("root", root as u32))], &what)?;
            self.expect(&mut recv, if is_root { &whole } else { &untouched }, &what)?;
            let mut recv = self.guarded(&placed)?;
            let own = recv.part(begin, len);
            let op = Op::new("gather").buffer("send", own).buffer("recv", recv.whole());
            self.run(vec![with(op.rank("root", root as u32))], &what)?;
            self.expect(&mut recv, if is_root { &whole } else { &placed }, &format!("{what} in place"))?;

            let what = format!("scatter of {lens:?} from {root}");
            let give = if is_root { whole.clone() } else { untouched.clone() };
            let (mut send, mut recv) = (self.guarded(&give)?, self.zeros(len)?);
            let op = Op::new("scatter").buffer("send", send.whole()).buffer("recv", recv.whole());
            self.run(vec![with(op.rank("root", root as u32))], &what)?;
            self.expect(&mut recv, &mine, &what)?;
            self.expect(&mut send, &give, &what)?;
            let own = send.part(begin, len);
            let op = Op::new("scatter").buffer("send", send.whole()).buffer("recv", own);
            self.run(vec![with(op.rank("root", root as u32))], &what)?;
            self.expect(&mut send, if is_root { &whole } else { &placed }, &format!("{what} in place"))?;
        }
        Ok(())
    }

    /// Parts of these lengths, as many as there are ranks; and rows by counts.
    fn unequal(&mut self, lens: &[u64]) -> Outcome {
        let size = self.size();
        let lens: Vec<u64> = (0..size).map(|rank| lens[rank % lens.len()]).collect();
        let parts = Parts::new(lens.iter().copied()).unwrap();
        self.divided(&lens, Some(&parts))?;
        for &reduce in ReduceOp::ALL {
            self.reduce_scatter(&lens, Some(&parts), reduce)?;
        }
        // Rank r sends (r + 2 p) % 4 rows of 3 elements to rank p.
        let rows = |from: usize, to: usize| ((from + 2 * to) % 4) as u64;
        let counts: Arc<[i64]> =
            (0..size * size).map(|i| rows(i / size, i % size) as i64).collect::<Vec<_>>().into();
        let sent = |from: usize| (0..size).map(|to| rows(from, to)).sum::<u64>();
        let taken = (0..size).map(|from| rows(from, self.me)).sum::<u64>();
        let inputs: Vec<Vec<u8>> =
            (0..size).map(|from| self.inputs(ReduceOp::Sum, 3 * sent(from))[from].clone()).collect();
        let (send, mut recv) = (self.guarded(&inputs[self.me].clone())?, self.zeros(3 * taken)?);
        let shaped = |range: BoundRange| {
            let rows = range.len() / 3;
            BoundRange { shape: [rows, 3].into(), ..range }
        };
        let op =
            Op::new("all_to_all").buffer("send", shaped(send.whole())).buffer("recv", shaped(recv.whole()));
        self.run(vec![op.matrix("counts", &counts)], "all_to_all by counts")?;
        let from = |from: usize| {
            let begin = (0..self.me).map(|to| rows(from, to)).sum::<u64>();
            inputs[from][self.bytes(3 * begin, 3 * rows(from, self.me))].to_vec()
        };
        let expected: Vec<u8> = (0..size).flat_map(from).collect();
        self.expect(&mut recv, &expected, "all_to_all by counts")
    }

    /// Numbers beside NaN, infinities, zeros of both signs, and averages of what is large.
    fn odd_numbers(&mut self) -> Outcome {
        if !self.dtype.is_float() {
            return Ok(());
        }
        let (size, special) =
            (self.size(), [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.5, -2.5]);
        for &reduce in ReduceOp::ALL {
            // Every pair of two ranks, and longer cycles of more.
            let value = |rank: usize, i: usize| special[(i / 7usize.pow(rank as u32 % 2) + rank / 2) % 7];
            let len = 49;
            let inputs: Vec<Vec<u8>> = (0..size)
                .map(|rank| with_element!(self.dtype, T => encode::<T>((0..len).map(|i| value(rank, i)))))
                .collect();
            let expected = with_element!(self.dtype, T => combined::<T>(&inputs, reduce));
            let mut buffer = self.guarded(&inputs[self.me])?;
            self.run(vec![Op::new("all_reduce").buffer("buffer", buffer.whole()).reduce(reduce)], "odd")?;
            self.expect(&mut buffer, &expected, &format!("{reduce} of odd numbers"))?;
        }
        let large = with_element!(self.dtype, T => encode::<T>([60000.0; 5]));
        let mut buffer = self.guarded(&large)?;
        let op = Op::new("all_reduce").buffer("buffer", buffer.whole()).reduce(ReduceOp::Avg);
        self.run(vec![op], "large")?;
        self.expect(&mut buffer, &large, "an average of large numbers")
    }
}

/// Elements of which sums and products over a few ranks are exact if they are floats, and wrap if they are integers.
fn input(dtype: DType, reduce: ReduceOp, seed: u64, len: u64) -> Vec<u8> {
    let mut random = Random::new(seed * 7919 + dtype as u64);
    if !dtype.is_float() {
        return random.bytes((len * dtype.size()) as usize);
    }
    let values = (0..len).map(|_| match reduce {
        ReduceOp::Prod => random.pick(&[-2.0, -0.5, 1.0, 2.0]).unwrap(),
        _ => random.below(17) as f64 / 4.0 - 2.125,
    });
    with_element!(dtype, T => encode::<T>(values))
}

fn encode<T: Element>(values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    let bytes = |value: f64| {
        let mut element = [T::nearest(Exact::Float(value))];
        bytes_of(&mut element).to_vec()
    };
    values.into_iter().flat_map(bytes).collect()
}

fn bytes_of<T: Element>(elements: &mut [T]) -> &[u8] {
    // SAFETY: elements are plain numbers.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

fn decode<T: Element>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>());
    // SAFETY: elements are plain numbers, and there are as many bytes as one has.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

fn is_nan<T: Element>(bytes: &[u8]) -> bool {
    matches!(decode::<T>(bytes).to_exact(), Exact::Float(value) if value.is_nan())
}

/// What a reduction gives, by the rules in [`ReduceOp`].
fn combined<T: Element>(inputs: &[Vec<u8>], reduce: ReduceOp) -> Vec<u8> {
    let (size, ranks) = (size_of::<T>(), inputs.len());
    let mut out = Vec::new();
    for at in (0..inputs[0].len()).step_by(size) {
        let values: Vec<Exact> =
            inputs.iter().map(|input| decode::<T>(&input[at..at + size]).to_exact()).collect();
        let result = match values[0] {
            Exact::Int(_) => {
                let whole = |value: &Exact| if let Exact::Int(value) = value { *value } else { 0 };
                let values = values.iter().map(whole);
                let wrapped = |value: i128| decode::<T>(&value.to_ne_bytes()[..size]).to_exact();
                match reduce {
                    ReduceOp::Sum => wrapped(values.sum()),
                    ReduceOp::Prod => wrapped(values.fold(1, i128::wrapping_mul)),
                    ReduceOp::Max => Exact::Int(values.max().unwrap()),
                    ReduceOp::Min => Exact::Int(values.min().unwrap()),
                    ReduceOp::Avg => Exact::Int(whole(&wrapped(values.sum())) / ranks as i128),
                }
            }
            Exact::Float(_) => {
                let real = |value: &Exact| if let Exact::Float(value) = value { *value } else { 0.0 };
                let values = values.iter().map(real);
                let least = |a: f64, b: f64| match a == b {
                    true if a.is_sign_negative() => a,
                    true => b,
                    false => a.min(b),
                };
                Exact::Float(match reduce {
                    ReduceOp::Sum => values.reduce(|a, b| a + b).unwrap(),
                    ReduceOp::Prod => values.product(),
                    ReduceOp::Max => -values.map(|value| -value).reduce(least).unwrap(),
                    ReduceOp::Min => values.reduce(least).unwrap(),
                    ReduceOp::Avg if T::DTYPE == DType::F64 => {
                        values.reduce(|a, b| a + b).unwrap() / ranks as f64
                    }
                    ReduceOp::Avg => f64::from(
                        values.map(|value| value as f32).reduce(|a, b| a + b).unwrap() / ranks as f32,
                    ),
                })
            }
        };
        out.extend_from_slice(bytes_of(&mut [T::nearest(result)]));
    }
    out
}

/// Numbers of any size: within rounding of the exact result, and the same on all ranks.
pub(crate) fn near(process: &'static Process) -> Outcome {
    let (world, len) = (worlds(process), 50_000u64);
    for &dtype in DType::FLOATS {
        let all = |rank: u32| {
            let mut random = Random::new(u64::from(rank) + 77);
            let values = (0..len).map(|_| (random.below(1 << 20) as f64 / 65536.0 - 8.0) * 0.37);
            with_element!(dtype, T => encode::<T>(values))
        };
        let inputs: Vec<Vec<u8>> = (0..process.size()).map(all).collect();
        let mine = inputs[process.rank() as usize].clone();
        let sums = joined(process, &world)?.run(|rank| {
            let mut buffer = rank.upload(&mine)?;
            rank.run_group(&[Op::new("all_reduce")
                .buffer("buffer", buffer.whole(dtype))
                .reduce(ReduceOp::Sum)])?;
            rank.read(&mut buffer)
        })?;
        let epsilon = match dtype {
            DType::F16 => 2f64.powi(-10),
            DType::Bf16 => 2f64.powi(-7),
            DType::F32 => 2f64.powi(-22),
            _ => 2f64.powi(-51),
        };
        let size = dtype.size() as usize;
        let real = |bytes: &[u8]| with_element!(dtype, T => to_f64(decode::<T>(bytes)));
        for (i, got) in sums[0].chunks(size).enumerate() {
            let each = inputs.iter().map(|input| real(&input[i * size..(i + 1) * size]));
            let (exact, scale) =
                each.fold((0.0, 0.0), |(sum, scale), value| (sum + value, scale + value.abs()));
            let error = (real(got) - exact).abs();
            // Halves are rounded once.
            let scale = if size == 2 { exact.abs() + scale * 1e-5 } else { scale };
            assert!(error <= scale * epsilon, "{dtype} {i}: {} is not {exact}", real(got));
        }
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        let gathered = process.all_gather(&sums[0], deadline).map_err(|error| error.to_string())?;
        assert!(gathered.iter().all(|other| *other == sums[0]), "ranks differ in {dtype}");
    }
    Ok(())
}

/// Collectives of several communicators, messages to oneself and to all, in one group, and over several steps.
pub(crate) fn groups(process: &'static Process) -> Outcome {
    let world = worlds(process);
    let (parity, turned) = (world.find("parity").unwrap(), world.find("turned").unwrap());
    let outcome = joined(process, &world)?.run(|rank| {
        let (me, size) = (rank.rank, rank.world.size());
        let ints = |values: Vec<i32>| values.into_iter().flat_map(i32::to_ne_bytes).collect::<Vec<u8>>();
        let mut total = rank.upload(&ints(vec![0; 3]))?;
        let mut part = rank.upload(&ints(vec![0; 2]))?;
        let mut first = rank.upload(&ints(vec![0; 1]))?;
        let mut out = rank.upload(&ints(vec![0; size as usize]))?;
        let mut taken = rank.upload(&ints(vec![0; 2 * size as usize]))?;
        let sent = rank.upload(&ints(vec![-1 - me as i32]))?;
        let mut group = vec![
            Op::new("all_reduce").buffer("buffer", part.whole(DType::I32)).reduce(ReduceOp::Sum).on(parity),
            Op::new("all_reduce").buffer("buffer", total.whole(DType::I32)).reduce(ReduceOp::Sum),
            Op::new("broadcast").buffer("buffer", first.whole(DType::I32)).rank("root", 0).on(turned),
        ];
        // Two messages for everyone, oneself too, whose order counts.
        for peer in 0..size {
            for again in 0..2 {
                let range = taken.range(DType::I32, u64::from(2 * peer + again), 1);
                group.push(Op::new("recv").buffer("buffer", range).rank("peer", peer));
            }
        }
        for peer in (0..size).rev() {
            let range = out.range(DType::I32, u64::from(peer), 1);
            group.push(Op::new("send").buffer("buffer", range).rank("peer", peer));
            group.push(Op::new("send").buffer("buffer", sent.whole(DType::I32)).rank("peer", peer));
        }
        let mut work = rank.prepare(&group)?;
        for step in 0..5i32 {
            let me = me as i32;
            rank.write(&mut total, &ints(vec![me + step; 3]))?;
            rank.write(&mut part, &ints(vec![1; 2]))?;
            rank.write(&mut first, &ints(vec![me * 10 + step]))?;
            rank.write(&mut out, &ints((0..size as i32).map(|peer| 100 * me + 10 * peer + step).collect()))?;
            rank.run(&mut *work).map_err(|error| error.to_string())?;
            let (n, sum) = (size as i32, (0..size as i32).sum::<i32>());
            assert_eq!(rank.read(&mut total)?, ints(vec![sum + n * step; 3]));
            let peers = (0..n).filter(|other| other % 2 == me % 2).count() as i32;
            assert_eq!(rank.read(&mut part)?, ints(vec![peers; 2]));
            assert_eq!(rank.read(&mut first)?, ints(vec![(n - 1) * 10 + step]), "the last rank is the first");
            let expected = (0..n).flat_map(|peer| [100 * peer + 10 * me + step, -1 - peer]).collect();
            assert_eq!(rank.read(&mut taken)?, ints(expected));
        }
        Ok(())
    });
    outcome.map(drop)
}

/// From a graph to its outputs, by the library's name.
pub(crate) fn plan(_: &'static Process) -> Outcome {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let registry = Registry::linked().map_err(|error| text(&error))?;
    let world = Arc::new(World::new(1).unwrap());
    let mut graph = TaskGraph::builder(&registry, &world, 0, "host");
    let x = graph.buffer(BufferDecl::new("x", DType::I64, [5]).upload(Upload::First));
    let y = graph.buffer(BufferDecl::new("y", DType::I64, [5]));
    let sum = OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Avg);
    graph.step(sum.by("mpi"));
    let turn = OpSpec::new("send_recv").arg("send", x).arg("to", 0).arg("recv", y).arg("from", 0);
    graph.step(turn.by("mpi"));
    let verified =
        verify(vec![graph.build().map_err(|error| text(&error))?]).map_err(|error| text(&error))?;
    let device = registry.open("host", 0).map_err(|error| text(&error))?;
    let mut group =
        PlanGroup::new(&registry, verified, &[device], Options::default()).map_err(|error| text(&error))?;
    let (x, y) = (group.buffer("x").unwrap(), group.buffer("y").unwrap());
    group.write(0, x, &[3i64, 1, 4, 1, 5]).map_err(|error| text(&error))?;
    group.execute_many(3).map_err(|error| text(&error))?;
    assert_eq!(group.read::<i64>(0, y).map_err(|error| text(&error))?, [3, 1, 4, 1, 5]);
    Ok(())
}

/// Counts this thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no counter any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Steps of squall's own code allocate nothing; what MPI does with the system's allocator is its own.
pub(crate) fn steps(process: &'static Process) -> Outcome {
    let world = worlds(process);
    let outcome = joined(process, &world)?.run(|rank| {
        let (size, me) = (rank.world.size(), rank.rank);
        let buffer = rank.upload(&vec![0; 8000])?;
        let (half, more) = (buffer.range(DType::F16, 0, 1000), buffer.range(DType::F32, 1000, 500));
        let group = [
            Op::new("all_reduce").buffer("buffer", half).reduce(ReduceOp::Avg),
            Op::new("all_reduce").buffer("buffer", more.clone()).reduce(ReduceOp::Max),
            Op::new("send").buffer("buffer", buffer.range(DType::U8, 7000, 8)).rank("peer", (me + 1) % size),
            Op::new("recv")
                .buffer("buffer", buffer.range(DType::U8, 7008, 8))
                .rank("peer", (me + size - 1) % size),
        ];
        let mut work = rank.prepare(&group)?;
        rank.run(&mut *work).map_err(|error| error.to_string())?;
        let before = ALLOCATIONS.with(Cell::get);
        for _ in 0..100 {
            work.enqueue(&mut *rank.stream).map_err(|error| error.to_string())?;
        }
        assert_eq!(ALLOCATIONS.with(Cell::get), before);
        Ok(())
    });
    outcome.map(drop)
}

/// More elements than MPI counts, of one byte each: takes some 14 GB of memory for two ranks.
pub(crate) fn large(process: &'static Process) -> Outcome {
    let world = worlds(process);
    let outcome = joined(process, &world)?.run(|rank| {
        let (len, me, peer) = ((1u64 << 31) + 11, rank.rank, 1 - rank.rank);
        let alloc = |rank: &Rank<'_>, bytes| rank.device.alloc(bytes).map_err(|error| error.to_string());
        let (mut a, mut b) = (alloc(rank, len)?, alloc(rank, len)?);
        let range = |memory: &dyn Memory, from: u64, to: u64| BoundRange {
            ptr: DevicePtr(memory.ptr().0 + from),
            dtype: DType::U8,
            shape: [to - from].into(),
        };
        let spots = [0, 1, (1 << 31) - 2, (1 << 31) - 1, 1 << 31, len as usize - 1];
        let set = |memory: &mut dyn Memory, value: u8| {
            let bytes = memory.host().unwrap();
            spots.iter().zip(value..).for_each(|(&at, value)| bytes[at] = value);
        };
        let is = |memory: &mut dyn Memory, value: u8| {
            let bytes = memory.host().unwrap();
            spots.iter().zip(value..).all(|(&at, value)| bytes[at] == value)
        };
        set(&mut *a, 10 * (me as u8 + 1));
        let (all, other) = (range(&*a, 0, len), range(&*b, 0, len));
        let op = Op::new("send_recv").buffer("send", all.clone()).rank("to", peer);
        rank.run_group(&[op.buffer("recv", other.clone()).rank("from", peer)])?;
        assert!(is(&mut *b, 10 * (peer as u8 + 1)), "send_recv");
        rank.run_group(&[Op::new("broadcast").buffer("buffer", other.clone()).rank("root", 1)])?;
        assert!(is(&mut *b, 10), "broadcast");
        let op = Op::new("all_reduce").buffer("send", all).buffer("recv", other).reduce(ReduceOp::Max);
        rank.run_group(&[op])?;
        assert!(is(&mut *b, 20), "all_reduce");
        // Each block can be counted, and both together cannot.
        let half = (1u64 << 30) + 7;
        b.host().unwrap()[half as usize * me as usize] = 7 + me as u8;
        let own = range(&*b, half * u64::from(me), half * u64::from(me + 1));
        let op = Op::new("all_gather").buffer("send", own).buffer("recv", range(&*b, 0, 2 * half));
        rank.run_group(&[op])?;
        let bytes = b.host().unwrap();
        assert_eq!((bytes[0], bytes[half as usize]), (7, 8), "all_gather");
        Ok(())
    });
    outcome.map(drop)
}
