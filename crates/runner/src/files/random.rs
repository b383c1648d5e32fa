//! Random contents of a buffer, the same on every machine.
//!
//! An element is a function of (seed, buffer's name, rank, element's index) and of nothing else: neither of the
//! order in which elements are made, nor of other buffers. The generator is Philox4x32-10 (Salmon and others,
//! *Parallel Random Numbers: As Easy as 1, 2, 3*, 2011), which is made for that: one block of its output per
//! element, keyed by a hash of the seed, the rank and the name. It stands here, in thirty lines with its published
//! test vectors, because `rand_distr` lets a distribution's values change between releases, and the standard
//! library's logarithm and cosine differ between platforms; `libm`'s do not.

use siphasher::sip::SipHasher24;
use squall_core::element::Exact;
use squall_core::{DType, Element, Scalar, with_element};

use super::init::{InitError, element, generate};

/// The random numbers of one buffer on one rank.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: [u32; 2],
}

impl Stream {
    /// The stream that belongs to a buffer, by its name, on `rank` of the world.
    pub fn new(seed: u64, buffer: &str, rank: u64) -> Stream {
        let key = SipHasher24::new_with_keys(seed, rank).hash(buffer.as_bytes());
        Stream { key: halves(key) }
    }

    /// The stream of the orders that feeds are read in. No buffer's name is empty, so that none shares it.
    pub fn of_orders(seed: u64, rank: u64) -> Stream {
        Stream::new(seed, "", rank)
    }

    /// Puts 0, 1, 2, … into the order of an epoch: Fisher and Yates's shuffle from the last place down, each draw a word of the
    /// block at (place, epoch), scaled to the places left. Which order it is depends on the epoch and the length alone.
    pub fn shuffle(&self, epoch: u64, order: &mut [u64]) {
        order.iter_mut().zip(0..).for_each(|(place, index)| *place = index);
        for last in (1..order.len()).rev() {
            let [[low, high], [early, late]] = [halves(last as u64), halves(epoch)];
            let [a, b, _, _] = philox([low, high, early, late], self.key);
            // Of 2^64 words, so that no place is favoured by more than one in 2^64 / length.
            let other = (u128::from(whole(a, b)) * (last as u128 + 1)) >> 64;
            order.swap(last, other as usize);
        }
    }

    /// Two independent words for the element at `index`; others for each `draw`.
    fn words(&self, index: u64, draw: u32) -> [u64; 2] {
        let [low, high] = halves(index);
        let [a, b, c, d] = philox([low, high, draw, 0], self.key);
        [whole(a, b), whole(c, d)]
    }
}

/// Evenly distributed in `low..high`: floating-point numbers, or whole numbers for an integer dtype.
///
/// The bounds are rounded to the dtype first; `high` itself is never drawn.
pub fn uniform(
    dtype: DType,
    count: u64,
    low: Scalar,
    high: Scalar,
    stream: &Stream,
) -> Result<Vec<u8>, InitError> {
    with_element!(dtype, T => {
        let first = T::from_exact(low.into())?.to_exact();
        let end = match T::from_exact(high.into()) {
            Ok(end) => end.to_exact(),
            Err(error) => one_past_all::<T>(high.into()).ok_or(error)?,
        };
        match (first, end) {
            (Exact::Int(first), Exact::Int(end)) if first < end => {
                let width = end.abs_diff(first); // at most 2^64
                generate(count, |index| {
                    let [word, _] = stream.words(index, 0);
                    let step = (u128::from(word) * width) >> 64;
                    element::<T>(index, Exact::Int(first + step as i128))
                })
            }
            (Exact::Float(first), Exact::Float(end)) if first < end && (end - first).is_finite() => {
                generate(count, |index| between::<T>(index, first, end, stream))
            }
            _ => Err(InitError::Interval { low, high, dtype }),
        }
    })
}

/// The number after the dtype's largest, which no element can be but an interval can end at.
fn one_past_all<T: Element>(end: Exact) -> Option<Exact> {
    match end {
        Exact::Int(whole) => T::from_exact(Exact::Int(whole - 1)).is_ok().then_some(end),
        Exact::Float(_) => None,
    }
}

/// One floating-point number in `low..high`, both of them numbers of the dtype.
fn between<T: Element>(index: u64, low: f64, high: f64, stream: &Stream) -> Result<T, InitError> {
    // Rounding to the dtype can reach `high`; such a draw is made again. Each attempt has an even chance at least.
    for draw in 0..100 {
        let [word, _] = stream.words(index, draw);
        let value = element::<T>(index, Exact::Float(low + unit(word) * (high - low)))?;
        if matches!(value.to_exact(), Exact::Float(value) if value < high) {
            return Ok(value);
        }
    }
    element(index, Exact::Float(low))
}

/// Normally distributed (Box–Muller). For floating-point dtypes.
pub fn normal(dtype: DType, count: u64, mean: f64, std: f64, stream: &Stream) -> Result<Vec<u8>, InitError> {
    if !dtype.is_float() {
        return Err(InitError::NormalIntegers { dtype });
    }
    if !mean.is_finite() || !std.is_finite() || std < 0.0 {
        return Err(InitError::Normal { mean, std });
    }
    with_element!(dtype, T => generate(count, |index| {
        let [radius, angle] = stream.words(index, 0);
        // 1 - unit is never 0, so that the logarithm is finite.
        let radius = (-2.0 * libm::log(1.0 - unit(radius))).sqrt();
        let angle = std::f64::consts::TAU * unit(angle);
        element::<T>(index, Exact::Float(mean + std * (radius * libm::cos(angle))))
    }))
}

/// A number in `0..1`, a multiple of 2⁻⁵³.
fn unit(word: u64) -> f64 {
    (word >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Ten rounds of Philox on four 32-bit words.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let [low_0, high_0] = halves(u64::from(MULTIPLIERS[0]) * u64::from(counter[0]));
        let [low_1, high_1] = halves(u64::from(MULTIPLIERS[1]) * u64::from(counter[2]));
        counter = [high_1 ^ counter[1] ^ key[0], low_1, high_0 ^ counter[3] ^ key[1], low_0];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

/// The low and the high half of a word.
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

fn whole(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[cfg(test)]
mod tests;
