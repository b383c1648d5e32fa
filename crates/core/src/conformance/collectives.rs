//! Each collective against a plain reference: all dtypes and reductions, in place and out of place, at any offset
//! and length, with guard zones around all that may be written.

use crate::conformance::values::{encode, equal, push_reduced};
use crate::conformance::{Op, Outcome, Random, Rank, Ranks, Target};
use crate::dtype::DType;
use crate::reduce::ReduceOp;
use crate::world::World;

/// One call of a collective, the same on all ranks.
#[derive(Clone, Copy, Debug)]
struct Trial {
    op: &'static str,
    dtype: DType,
    reduce: ReduceOp,
    root: u32,
    /// Elements of a block.
    count: u64,
    in_place: bool,
    /// Elements before `send` and before `recv`.
    offsets: [u64; 2],
    seed: u64,
}

/// Elements after an argument that must stay as they were.
const GUARD: u64 = 33;
const COUNTS: &[u64] = &[0, 1, 2, 3, 5, 15, 16, 17, 63, 64, 65, 130, 1000, 4099];

/// Lengths of `send` and `recv`, in blocks.
fn blocks(op: &str, world: u64) -> (u64, u64) {
    match op {
        "all_gather" | "gather" => (1, world),
        "reduce_scatter" | "scatter" => (world, 1),
        "all_to_all" => (world, world),
        _ => (1, 1),
    }
}

fn reduces(op: &str) -> bool {
    matches!(op, "all_reduce" | "reduce" | "reduce_scatter")
}

fn has_root(op: &str) -> bool {
    matches!(op, "broadcast" | "reduce" | "gather" | "scatter")
}

/// What a rank sends.
fn input(trial: &Trial, world: u64, rank: u64) -> Vec<i128> {
    let mut random = Random::new(trial.seed ^ (rank << 32));
    let len = blocks(trial.op, world).0 * trial.count;
    (0..len).map(|_| random.value(trial.dtype, trial.reduce)).collect()
}

/// What a rank receives; `None` when its `recv` stays as it was.
fn output(trial: &Trial, inputs: &[Vec<i128>], rank: usize) -> Option<Vec<u8>> {
    let root = trial.root as usize;
    let count = trial.count as usize;
    let only_root = matches!(trial.op, "reduce" | "gather");
    if only_root && rank != root {
        return None;
    }
    let block = |of: usize, index: usize| &inputs[of][index * count..(index + 1) * count];
    let mut out = Vec::new();
    if reduces(trial.op) {
        let first = if trial.op == "reduce_scatter" { rank * count } else { 0 };
        for index in first..first + count {
            let values: Vec<i128> = inputs.iter().map(|input| input[index]).collect();
            push_reduced(&mut out, trial.dtype, trial.reduce, &values);
        }
        return Some(out);
    }
    let parts: Vec<&[i128]> = match trial.op {
        "broadcast" => vec![block(root, 0)],
        "scatter" => vec![block(root, rank)],
        "all_to_all" => (0..inputs.len()).map(|of| block(of, rank)).collect(),
        _ => (0..inputs.len()).map(|of| block(of, 0)).collect(),
    };
    Some(encode(trial.dtype, parts.into_iter().flatten().copied()))
}

/// Runs one call on this rank and compares all of its memory with what it must be.
fn run(trial: &Trial, rank: &mut Rank<'_>) -> Outcome {
    let Trial { op, dtype, reduce, root, count, in_place, offsets, seed } = *trial;
    let world = u64::from(rank.world.size());
    let me = u64::from(rank.rank);
    let (send_blocks, recv_blocks) = blocks(op, world);
    let lens = [send_blocks * count, recv_blocks * count];
    // In place, the shorter argument is this rank's block of the longer.
    let (arenas, starts) = if in_place {
        let own = offsets[0] + me * count;
        let starts = [
            if lens[0] < lens[1] { own } else { offsets[0] },
            if lens[1] < lens[0] { own } else { offsets[0] },
        ];
        ([0, 0], starts)
    } else {
        ([0, 1], offsets)
    };
    let size = dtype.size() as usize;
    let mut random = Random::new(seed ^ (me << 40) ^ 1);
    let mut contents: Vec<Vec<u8>> =
        offsets.map(|offset| random.bytes((offset + lens[0].max(lens[1]) + GUARD) as usize * size)).to_vec();
    let inputs: Vec<Vec<i128>> = (0..world).map(|rank| input(trial, world, rank)).collect();
    let place = |which: usize| {
        let start = starts[which] as usize * size;
        start..start + lens[which] as usize * size
    };
    contents[0][place(0)].copy_from_slice(&encode(dtype, inputs[me as usize].iter().copied()));
    let mut buffers = [rank.upload(&contents[0])?, rank.upload(&contents[1])?];

    let [send, recv] = [0, 1].map(|which| buffers[arenas[which]].range(dtype, starts[which], lens[which]));
    let mut call = match (in_place, op) {
        (true, "all_reduce" | "broadcast" | "reduce") => Op::new(op).buffer("buffer", send),
        _ => Op::new(op).buffer("send", send).buffer("recv", recv),
    };
    if reduces(op) {
        call = call.reduce(reduce);
    }
    if has_root(op) {
        call = call.rank("root", root);
    }
    rank.run_group(&[call]).map_err(|error| format!("{trial:?}: {error}"))?;

    let place = place(1);
    let result = output(trial, &inputs, me as usize);
    let written = result.is_some();
    if let Some(result) = result {
        contents[arenas[1]][place.clone()].copy_from_slice(&result);
    }
    for (arena, (buffer, want)) in buffers.iter_mut().zip(&contents).enumerate() {
        let got = rank.read(buffer)?;
        let what = |part: &str| format!("{trial:?}: {part}");
        let place = if written && arena == arenas[1] { place.clone() } else { 0..0 };
        // Where the order of rounding is open, so is the result's last place.
        let loose = reduces(op) && reduce == ReduceOp::Avg;
        equal(&what("the result"), dtype, &got[place.clone()], &want[place.clone()], loose)?;
        if got[..place.start] != want[..place.start] || got[place.end..] != want[place.end..] {
            return Err(what("something beside the result was written"));
        }
    }
    Ok(())
}

/// All dtypes and reductions that the op takes, in both forms, in every world.
fn all(op: &'static str, target: &Target<'_>) -> Outcome {
    let needs = target.op(op)?.needs();
    let reductions = if reduces(op) { needs.reductions } else { &[ReduceOp::Sum] };
    let forms: &[bool] = if op == "all_to_all" { &[false] } else { &[false, true] };
    for size in target.worlds(1) {
        let mut random = Random::new(size.into());
        let mut trials = Vec::new();
        for &dtype in needs.dtypes {
            // What ranges must begin at and be a multiple of, in elements.
            let unit = needs.multiple * needs.alignment.div_ceil(dtype.size());
            for &reduce in reductions {
                for &in_place in forms {
                    // Every count comes with every dtype when nothing is reduced, and in turn otherwise.
                    let counts = if reduces(op) { 4 } else { COUNTS.len() };
                    for _ in 0..counts {
                        let count = COUNTS[trials.len() % COUNTS.len()].next_multiple_of(unit);
                        let root = random.below(size.into()) as u32;
                        let offsets = [0; 2].map(|_| random.below(20) * unit);
                        let seed = random.bits();
                        trials.push(Trial { op, dtype, reduce, root, count, in_place, offsets, seed });
                    }
                }
            }
        }
        let world = World::new(size.into()).map_err(|error| error.to_string())?;
        Ranks::connect(target, world)?
            .run(|rank| trials.iter().try_for_each(|trial| run(trial, rank)))
            .map_err(|error| format!("world {size}: {error}"))?;
    }
    Ok(())
}

pub(super) fn all_reduce(target: &Target<'_>) -> Outcome {
    all("all_reduce", target)
}

pub(super) fn broadcast(target: &Target<'_>) -> Outcome {
    all("broadcast", target)
}

pub(super) fn reduce(target: &Target<'_>) -> Outcome {
    all("reduce", target)
}

pub(super) fn all_gather(target: &Target<'_>) -> Outcome {
    all("all_gather", target)
}

pub(super) fn reduce_scatter(target: &Target<'_>) -> Outcome {
    all("reduce_scatter", target)
}

pub(super) fn all_to_all(target: &Target<'_>) -> Outcome {
    all("all_to_all", target)
}

pub(super) fn gather(target: &Target<'_>) -> Outcome {
    all("gather", target)
}

pub(super) fn scatter(target: &Target<'_>) -> Outcome {
    all("scatter", target)
}

/// Runs an in-place all_reduce of these bytes, by rank, in a world of so many ranks; gives each rank's result.
fn reduced(
    target: &Target<'_>,
    dtype: DType,
    reduce: ReduceOp,
    contents: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>, String> {
    let world = World::new(contents.len() as u64).map_err(|error| error.to_string())?;
    Ranks::connect(target, world)?.run(|rank| {
        let mut buffer = rank.upload(&contents[rank.rank as usize])?;
        rank.run_group(&[Op::new("all_reduce").buffer("buffer", buffer.whole(dtype)).reduce(reduce)])?;
        rank.read(&mut buffer)
    })
}

/// The same result on all ranks, where the library takes the dtype and the reduction.
fn expect(target: &Target<'_>, dtype: DType, reduce: ReduceOp, contents: &[Vec<u8>], want: &[u8]) -> Outcome {
    if !target.takes("all_reduce", dtype, reduce, want.len() as u64 / dtype.size()) {
        return Ok(());
    }
    for (rank, got) in reduced(target, dtype, reduce, contents)?.iter().enumerate() {
        equal(&format!("{reduce} of {dtype}, rank {rank}"), dtype, got, want, false)?;
    }
    Ok(())
}

/// More than any cache holds, and neither even nor aligned.
pub(super) fn large_and_odd(target: &Target<'_>) -> Outcome {
    const COUNT: u64 = 10_556_587;
    if !target.takes("all_reduce", DType::F32, ReduceOp::Sum, COUNT) {
        return Ok(());
    }
    let floats = |of: &dyn Fn(u64) -> u64| -> Vec<u8> {
        (0..COUNT).flat_map(|i| (of(i) as f32).to_ne_bytes()).collect()
    };
    let want = floats(&|i| i % 251 * 2 + 5);
    let guarded = |bytes: &[u8]| [&[0xa5; 4], bytes, &[0xa5; 4]].concat();
    let world = World::new(2).map_err(|error| error.to_string())?;
    Ranks::connect(target, world)?.run(|rank| {
        let input = floats(&|i| i % 251 + 2 + u64::from(rank.rank));
        let mut send = rank.upload(&guarded(&input))?;
        let mut recv = rank.upload(&guarded(&vec![0; input.len()]))?;
        let range = |buffer: &super::Buffer| buffer.range(DType::F32, 1, COUNT);
        let apart = Op::new("all_reduce").buffer("send", range(&send)).buffer("recv", range(&recv));
        rank.run_group(&[apart.reduce(ReduceOp::Sum)])?;
        equal("the result", DType::F32, &rank.read(&mut recv)?, &guarded(&want), false)?;
        equal("the input", DType::F32, &rank.read(&mut send)?, &guarded(&input), false)?;
        rank.run_group(&[Op::new("all_reduce").buffer("buffer", range(&send)).reduce(ReduceOp::Sum)])?;
        equal("the result in place", DType::F32, &rank.read(&mut send)?, &guarded(&want), false)
    })?;
    Ok(())
}

pub(super) fn integer_average(target: &Target<'_>) -> Outcome {
    let of = |dtype, values: &[i128]| encode(dtype, values.iter().copied());
    let average = |dtype, a: &[i128], b: &[i128], want: &[i128]| {
        expect(target, dtype, ReduceOp::Avg, &[of(dtype, a), of(dtype, b)], &of(dtype, want))
    };
    average(DType::I32, &[3, -3, 7], &[4, -4, 0], &[3, -3, 3])?;
    average(DType::U8, &[200], &[100], &[22])?;
    expect(target, DType::U8, ReduceOp::Sum, &[vec![200], vec![100]], &[44])?;
    let (low, high) = (i128::from(i64::MIN), i128::from(i64::MAX));
    average(DType::I64, &[high, low, high, low], &[1, -1, -1, 0], &[low / 2, high / 2, high / 2, low / 2])
}

pub(super) fn not_a_number(target: &Target<'_>) -> Outcome {
    let (nan, one) = (f32::NAN, 1f32);
    let f32s = |values: [f32; 3]| values.into_iter().flat_map(f32::to_ne_bytes).collect::<Vec<u8>>();
    let f64s =
        |values: [f32; 3]| values.into_iter().flat_map(|x| f64::from(x).to_ne_bytes()).collect::<Vec<u8>>();
    for (reduce, want) in [
        (ReduceOp::Max, [one, one, nan]),
        (ReduceOp::Min, [one, one, nan]),
        (ReduceOp::Sum, [nan, nan, nan]),
        (ReduceOp::Prod, [nan, nan, nan]),
        (ReduceOp::Avg, [nan, nan, nan]),
    ] {
        let (a, b) = ([nan, one, nan], [one, nan, nan]);
        expect(target, DType::F32, reduce, &[f32s(a), f32s(b)], &f32s(want))?;
        expect(target, DType::F64, reduce, &[f64s(a), f64s(b)], &f64s(want))?;
    }
    Ok(())
}

pub(super) fn same_bits(target: &Target<'_>) -> Outcome {
    const COUNT: u64 = 5120;
    for world in target.worlds(2) {
        for &dtype in DType::FLOATS {
            for &reduce in ReduceOp::ALL {
                if !target.takes("all_reduce", dtype, reduce, COUNT) {
                    continue;
                }
                let mut random = Random::new(u64::from(world));
                // Between 1 and 2 in every float dtype, so that sums round.
                let one = encode(dtype, [1]);
                let contents: Vec<Vec<u8>> = (0..world)
                    .map(|_| {
                        let mut bytes = one.repeat(COUNT as usize);
                        bytes.chunks_mut(one.len()).for_each(|element| element[0] = random.bits() as u8);
                        bytes
                    })
                    .collect();
                let results = reduced(target, dtype, reduce, &contents)?;
                if let Some(rank) = results.iter().position(|result| *result != results[0]) {
                    return Err(format!("{reduce} of {dtype}, world {world}: ranks 0 and {rank} differ"));
                }
            }
        }
    }
    Ok(())
}
