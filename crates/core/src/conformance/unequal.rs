//! Collectives of unequal parts against a plain reference: empty parts, one that is far larger than the others, in place and out of
//! place, on the world and on a part of it whose ranks stand in another order, with guard zones around all that may be written.

use std::sync::Arc;

use crate::args::BoundRange;
use crate::conformance::values::{encode, equal, push_reduced};
use crate::conformance::{Op, Outcome, Random, Rank, Ranks, Target};
use crate::dtype::DType;
use crate::ops::Parts;
use crate::reduce::ReduceOp;
use crate::world::{CommId, World};

/// One call, the same on all ranks.
#[derive(Clone, Debug)]
struct Trial {
    op: &'static str,
    comm: CommId,
    dtype: DType,
    reduce: ReduceOp,
    root: u32,
    /// Elements of each rank's part, by rank of the communicator; as many as the world has ranks, if not all are used.
    lens: Vec<u64>,
    /// For all_to_all, rows that each rank sends to each, and the elements of a row.
    counts: Vec<Vec<u64>>,
    row: u64,
    in_place: bool,
    /// Elements before `send` and before `recv`.
    offsets: [u64; 2],
    seed: u64,
}

/// Elements after an argument that must stay as they were.
const GUARD: u64 = 33;

impl Trial {
    fn gathers(&self) -> bool {
        matches!(self.op, "all_gather" | "gather")
    }

    fn has_root(&self) -> bool {
        matches!(self.op, "gather" | "scatter")
    }

    /// Where the part of rank `me` begins, and its length.
    fn part(&self, me: usize) -> (u64, u64) {
        (self.lens[..me].iter().sum(), self.lens[me])
    }

    /// Lengths of `send` and `recv` on the rank `me` of `size`.
    fn sizes(&self, me: usize, size: usize) -> [u64; 2] {
        let whole = self.lens[..size].iter().sum();
        match self.op {
            "all_to_all" => [
                self.row * self.counts[me][..size].iter().sum::<u64>(),
                self.row * self.counts[..size].iter().map(|counts| counts[me]).sum::<u64>(),
            ],
            _ if self.gathers() => [self.lens[me], whole],
            _ => [whole, self.lens[me]],
        }
    }

    fn input(&self, me: usize, size: usize) -> Vec<i128> {
        let mut random = Random::new(self.seed ^ ((me as u64) << 32));
        (0..self.sizes(me, size)[0]).map(|_| random.value(self.dtype, self.reduce)).collect()
    }

    /// What the rank `me` receives; `None` when its `recv` stays as it was.
    fn output(&self, inputs: &[Vec<i128>], me: usize) -> Option<Vec<u8>> {
        let root = self.root as usize;
        let (start, len) = self.part(me);
        let part = start as usize..(start + len) as usize;
        let mut out = Vec::new();
        match self.op {
            "gather" if me != root => return None,
            "reduce_scatter" => part.for_each(|index| {
                let values: Vec<i128> = inputs.iter().map(|input| input[index]).collect();
                push_reduced(&mut out, self.dtype, self.reduce, &values);
            }),
            "scatter" => out = encode(self.dtype, inputs[root][part].iter().copied()),
            "all_to_all" => {
                for (input, counts) in inputs.iter().zip(&self.counts) {
                    let start = self.row * counts[..me].iter().sum::<u64>();
                    let block = &input[start as usize..][..(self.row * counts[me]) as usize];
                    out.extend(encode(self.dtype, block.iter().copied()));
                }
            }
            _ => out = encode(self.dtype, inputs.iter().flatten().copied()),
        }
        Some(out)
    }

    fn call(&self, send: BoundRange, recv: BoundRange, size: usize) -> Op {
        let mut call = Op::new(self.op).on(self.comm);
        let rows = |range: BoundRange| BoundRange {
            shape: [range.len() / self.row.max(1), self.row].into(),
            ..range
        };
        if self.op == "all_to_all" {
            let counts: Arc<[i64]> =
                self.counts[..size].iter().flat_map(|counts| &counts[..size]).map(|&n| n as i64).collect();
            return call.buffer("send", rows(send)).buffer("recv", rows(recv)).matrix("counts", &counts);
        }
        call = call.buffer("send", send).buffer("recv", recv);
        if self.op == "reduce_scatter" {
            call = call.reduce(self.reduce);
        }
        if self.has_root() {
            call = call.rank("root", self.root);
        }
        let lens = &self.lens[..size];
        let equal = lens.windows(2).all(|pair| pair[0] == pair[1]);
        match Parts::new(lens.iter().copied()).filter(|_| !equal) {
            Some(parts) => call.parts(parts),
            None => call,
        }
    }
}

/// Runs one call on this rank and compares all of its memory with what it must be.
fn run(trial: &Trial, rank: &mut Rank<'_>) -> Outcome {
    let world = rank.world.clone();
    let part = world.part(trial.comm, rank.rank).ok_or("no such communicator")?;
    let (me, size) = (part.rank as usize, part.size() as usize);
    let trial = &Trial { root: trial.root % part.size(), ..trial.clone() };
    let lens = trial.sizes(me, size);
    let own = trial.offsets[0] + trial.part(me).0;
    // In place, the part is this rank's own of the whole.
    let (arenas, starts) = match (trial.in_place, trial.gathers()) {
        (false, _) => ([0, 1], trial.offsets),
        (true, true) => ([0, 0], [own, trial.offsets[0]]),
        (true, false) => ([0, 0], [trial.offsets[0], own]),
    };
    let width = trial.dtype.size() as usize;
    let mut random = Random::new(trial.seed ^ ((me as u64) << 40) ^ 1);
    let room = lens[0].max(lens[1]).max(trial.lens.iter().sum());
    let mut contents =
        trial.offsets.map(|offset| random.bytes((offset + room + GUARD) as usize * width)).to_vec();
    let inputs: Vec<Vec<i128>> = (0..size).map(|rank| trial.input(rank, size)).collect();
    let place = |which: usize| {
        let start = starts[which] as usize * width;
        start..start + lens[which] as usize * width
    };
    contents[0][place(0)].copy_from_slice(&encode(trial.dtype, inputs[me].iter().copied()));
    let mut buffers = [rank.upload(&contents[0])?, rank.upload(&contents[1])?];
    let [send, recv] =
        [0, 1].map(|which| buffers[arenas[which]].range(trial.dtype, starts[which], lens[which]));
    rank.run_group(&[trial.call(send, recv, size)]).map_err(|error| format!("{trial:?}: {error}"))?;

    let result = trial.output(&inputs, me);
    let written = if result.is_some() { place(1) } else { 0..0 };
    if let Some(result) = result {
        contents[arenas[1]][written.clone()].copy_from_slice(&result);
    }
    for (arena, (buffer, want)) in buffers.iter_mut().zip(&contents).enumerate() {
        let got = rank.read(buffer)?;
        let written = if arena == arenas[1] { written.clone() } else { 0..0 };
        // Where the order of rounding is open, so is the result's last place.
        let loose = trial.op == "reduce_scatter" && trial.reduce == ReduceOp::Avg;
        let what = format!("{trial:?}: the result");
        equal(&what, trial.dtype, &got[written.clone()], &want[written.clone()], loose)?;
        if got[..written.start] != want[..written.start] || got[written.end..] != want[written.end..] {
            return Err(format!("{trial:?}: something beside the result was written"));
        }
    }
    Ok(())
}

/// A part's length: often nothing, sometimes much.
fn len(random: &mut Random) -> u64 {
    match random.below(6) {
        0 | 1 => 0,
        2 => 1000 + random.below(3100),
        _ => random.below(70),
    }
}

/// All dtypes and reductions that the op takes, in both forms, in every world.
fn all(op: &'static str, target: &Target<'_>) -> Outcome {
    let needs = target.op(op)?.needs();
    let reductions = if op == "reduce_scatter" { needs.reductions } else { &[ReduceOp::Sum] };
    let forms: &[bool] = if op == "all_to_all" { &[false] } else { &[false, true] };
    for size in target.worlds(1) {
        let mut world = World::new(size.into()).map_err(|error| error.to_string())?;
        let back = |rank: u32| (i64::from(rank % 2), -i64::from(rank));
        let back = world.split("back", back).map_err(|error| error.to_string())?;
        let mut random = Random::new(u64::from(size) + 1);
        let mut trials = Vec::new();
        for &dtype in needs.dtypes {
            // What ranges must begin at and be a multiple of, in elements.
            let unit = needs.multiple * needs.alignment.div_ceil(dtype.size());
            for (&reduce, &in_place) in reductions.iter().flat_map(|r| forms.iter().map(move |f| (r, f))) {
                for comm in [CommId::WORLD, back, CommId::WORLD] {
                    let lens = (0..size).map(|_| len(&mut random).next_multiple_of(unit)).collect();
                    let counts = (0..size).map(|_| (0..size).map(|_| len(&mut random) % 400).collect());
                    let counts = counts.collect();
                    trials.push(Trial {
                        op,
                        comm,
                        dtype,
                        reduce,
                        root: random.below(size.into()) as u32,
                        lens,
                        counts,
                        row: (1 + random.below(4)) * unit,
                        in_place,
                        offsets: [0; 2].map(|_| random.below(20) * unit),
                        seed: random.bits(),
                    });
                }
            }
        }
        Ranks::connect(target, world)?
            .run(|rank| trials.iter().try_for_each(|trial| run(trial, rank)))
            .map_err(|error| format!("world {size}: {error}"))?;
    }
    Ok(())
}

pub(super) fn all_gather(target: &Target<'_>) -> Outcome {
    all("all_gather", target)
}

pub(super) fn reduce_scatter(target: &Target<'_>) -> Outcome {
    all("reduce_scatter", target)
}

pub(super) fn gather(target: &Target<'_>) -> Outcome {
    all("gather", target)
}

pub(super) fn scatter(target: &Target<'_>) -> Outcome {
    all("scatter", target)
}

pub(super) fn all_to_all(target: &Target<'_>) -> Outcome {
    all("all_to_all", target)
}
