//! The kernels that the op is made of, each with a form for the host and one for CUDA devices. Both select the very same entries.
//!
//! An entry is a word: the element's index in its upper half, the bits of its value in the lower. The largest magnitudes are found by
//! radix, as `cuda/select.cuh` tells: in five passes over the buffer, whatever it holds, and without room for a second one.

use std::cell::Cell;

use squall_plugin::core::{Cover, CudaSource, DType, HostCall, KernelDef, ParamDef, Presence, Type};

const F32: Type = Type::Is(DType::F32);
const DATA: ParamDef = ParamDef::read("data", F32, "[n]");
const TAKEN: ParamDef = ParamDef::read_write("data", F32, "[n]");
const ENTRIES: Type = Type::Is(DType::U64);
const STATE: ParamDef =
    ParamDef::read_write("state", Type::Is(DType::U32), "what the passes leave for one another");

/// The most elements: what an index has room for.
pub(crate) const MOST: u64 = u32::MAX as u64;
/// Threads of a block, for all kernels here.
pub(crate) const BLOCK: u64 = 256;
/// Parts of a buffer that are written side by side.
pub(crate) const CHUNKS: u64 = 1024;
/// Where the first bit lies that a pass of [`NARROW`] fixes, and how many it fixes.
pub(crate) const PASSES: [(u64, u64); 3] = [(20, 11), (10, 10), (0, 10)];
/// Words of the state, as `State` in `cuda/select.cuh` lays them out.
pub(crate) const STATE_WORDS: u64 = 4 + BINS as u64 + 2 * CHUNKS;
const BINS: usize = 2048;
/// The bits of the last magnitude that is selected, how many are selected of those with these bits, and the first count.
const BOUND: usize = 0;
const TIES: usize = 1;
const COUNTS: usize = 4;

const EVERYWHERE: KernelDef = KernelDef { covers: &[Cover::Any], ..KernelDef::EMPTY };

macro_rules! cuda {
    ($file:literal, $entry:literal) => {
        Some(
            CudaSource::new(
                concat!(include_str!("cuda/select.cuh"), include_str!(concat!("cuda/", $file))),
                $entry,
            )
            .looping(),
        )
    };
}

/// The order of magnitudes, in 31 bits. All NaNs are alike, beyond the infinities.
fn magnitude(x: f32) -> u32 {
    match x.to_bits() & 0x7fff_ffff {
        nan if nan > 0x7f80_0000 => 0x7f80_0001,
        bits => bits,
    }
}

/// The state's words, of which there are [`STATE_WORDS`].
fn state<'a>(call: &HostCall<'a>) -> Result<&'a [Cell<u32>; STATE_WORDS as usize], String> {
    call.cells::<u32>("state")?.first_chunk().ok_or_else(|| "the state is too short".to_string())
}

/// Fixes the next bits of the bound.
pub(crate) static NARROW: KernelDef = KernelDef {
    name: "top_k_narrow",
    params: &[
        DATA,
        STATE,
        ParamDef::size("k", Presence::Required, "entries to select"),
        ParamDef::size("shift", Presence::Required, "the first bit to fix"),
        ParamDef::size("width", Presence::Required, "bits to fix"),
    ],
    host: Some(&narrow),
    cuda: cuda!("narrow.cu", "narrow"),
    ..EVERYWHERE
};

fn narrow(call: &HostCall<'_>) -> Result<(), String> {
    let (data, state) = (call.cells::<f32>("data")?, state(call)?);
    let (shift, width) = (call.size("shift") as u32, call.size("width") as u32);
    let (known, mask) = (shift + width, (1u32 << width) - 1);
    let first = known == 31;
    let (bound, mut wanted) =
        if first { (0, call.size("k") as u32) } else { (state[BOUND].get(), state[TIES].get()) };
    let bins = &state[COUNTS..COUNTS + BINS];
    bins.iter().for_each(|bin| bin.set(0));
    for bits in data.iter().map(|x| magnitude(x.get())).filter(|bits| bits >> known == bound >> known) {
        let bin = &bins[(bits >> shift & mask) as usize];
        bin.set(bin.get() + 1);
    }
    for bin in (0..=mask).rev() {
        let count = bins[bin as usize].get();
        if count >= wanted {
            state[BOUND].set(bound | bin << shift);
            state[TIES].set(wanted);
            return Ok(());
        }
        wanted -= count;
    }
    Err("there are fewer elements than are to be selected".to_string())
}

/// For GPUs, which write the parts of a buffer side by side: finds out where the entries of each begin.
pub(crate) static LOCATE: KernelDef = KernelDef {
    name: "top_k_locate",
    params: &[DATA, STATE],
    cuda: cuda!("locate.cu", "locate"),
    ..EVERYWHERE
};

/// Writes the entries that are selected, in the order of the buffer, and takes them out of it.
pub(crate) static TAKE: KernelDef = KernelDef {
    name: "top_k_take",
    params: &[TAKEN, STATE, ParamDef::write("entries", ENTRIES, "[k]")],
    host: Some(&take),
    cuda: cuda!("take.cu", "take"),
    ..EVERYWHERE
};

fn take(call: &HostCall<'_>) -> Result<(), String> {
    let (data, state) = (call.cells::<f32>("data")?, state(call)?);
    let (bound, mut ties) = (state[BOUND].get(), state[TIES].get());
    let selected = (0u64..).zip(data).filter(|(_, x)| {
        let bits = magnitude(x.get());
        let tie = bits == bound && ties > 0;
        ties -= u32::from(tie);
        bits > bound || tie
    });
    // `zip` asks for an entry first, so that no element is taken for which there is none.
    for (entry, (i, x)) in call.cells::<u64>("entries")?.iter().zip(selected) {
        entry.set(i << 32 | u64::from(x.replace(0.0).to_bits()));
    }
    Ok(())
}

/// `residual += grad`.
pub(crate) static ACCUMULATE: KernelDef = KernelDef {
    name: "top_k_accumulate",
    params: &[ParamDef::read_write("residual", F32, "[n]"), ParamDef::read("grad", F32, "[n]")],
    host: Some(&accumulate),
    cuda: cuda!("each.cu", "accumulate"),
    ..EVERYWHERE
};

fn accumulate(call: &HostCall<'_>) -> Result<(), String> {
    for (residual, grad) in call.cells::<f32>("residual")?.iter().zip(call.cells::<f32>("grad")?) {
        residual.set(residual.get() + grad.get());
    }
    Ok(())
}

/// `data = 0`.
pub(crate) static CLEAR: KernelDef = KernelDef {
    name: "top_k_clear",
    params: &[ParamDef::write("data", F32, "[n]")],
    host: Some(&clear),
    cuda: cuda!("each.cu", "clear"),
    ..EVERYWHERE
};

fn clear(call: &HostCall<'_>) -> Result<(), String> {
    call.cells::<f32>("data")?.iter().for_each(|x| x.set(0.0));
    Ok(())
}

/// Adds one rank's entries.
pub(crate) static SCATTER: KernelDef = KernelDef {
    name: "top_k_scatter",
    params: &[ParamDef::read("entries", ENTRIES, "[k]"), TAKEN],
    host: Some(&scatter),
    cuda: cuda!("each.cu", "scatter"),
    ..EVERYWHERE
};

fn scatter(call: &HostCall<'_>) -> Result<(), String> {
    let data = call.cells::<f32>("data")?;
    for entry in call.cells::<u64>("entries")?.iter().map(Cell::get) {
        if let Some(x) = usize::try_from(entry >> 32).ok().and_then(|index| data.get(index)) {
            x.set(x.get() + f32::from_bits(entry as u32));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use squall_cuda_backend::compile::{Arch, compile};
    use squall_cuda_backend::kernel::Specialised;
    use squall_plugin::core::{DType, ParamKind};

    use super::*;

    /// NVRTC needs no GPU.
    #[test]
    fn every_cuda_form_compiles() {
        for kernel in [&NARROW, &LOCATE, &TAKE, &ACCUMULATE, &CLEAR, &SCATTER] {
            let dtypes: Vec<DType> = (kernel.params.iter())
                .map(|param| match param.kind {
                    ParamKind::Buffer(_, Type::Is(dtype)) => dtype,
                    _ => DType::U8, // which nobody looks at
                })
                .collect();
            let source = Specialised::with_dtypes(kernel, &dtypes, BLOCK as u32).unwrap();
            for arch in [Arch(7, 5), Arch(9, 0)] {
                compile(&source, arch).unwrap_or_else(|error| panic!("{}, {arch}: {error}", kernel.name));
            }
        }
    }

    #[test]
    fn magnitudes_are_ordered_by_their_bits() {
        let rising = [0.0, 1e-45, -1.0, 2.0, f32::MIN, -f32::INFINITY, f32::NAN].map(magnitude);
        assert!(rising.is_sorted_by(|a, b| a < b), "{rising:?}");
        assert_eq!((magnitude(-0.0), magnitude(f32::from_bits(0xffff_ffff))), (0, magnitude(f32::NAN)));
    }

    #[test]
    fn the_passes_fix_every_bit_of_a_magnitude_once() {
        let fixed =
            PASSES.iter().rev().try_fold(0, |at, &(shift, width)| (shift == at).then_some(at + width));
        assert_eq!(fixed, Some(31));
        assert!(PASSES.iter().all(|&(_, width)| 1 << width <= BINS));
    }
}
