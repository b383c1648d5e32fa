//! What a rank does in its own memory, before its calls of MPI and after.

use std::ptr::with_exposed_provenance_mut;

use half::{bf16, f16};
use squall_core::DType;

use crate::number::{Average, Half};

/// One pass over this rank's memory. Addresses are aligned to their elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// Copies bytes.
    Copy { from: u64, to: u64, bytes: u64 },
    /// Halves become `f32`.
    Widen { from: u64, to: u64, len: u64, dtype: DType },
    /// `f32` become halves, divided first where they are sums for an average.
    Narrow { from: u64, to: u64, len: u64, dtype: DType, divisor: Option<u32> },
    /// Sums become averages, in place.
    Average { at: u64, len: u64, dtype: DType, ranks: u32 },
}

fn at<T>(address: u64) -> *mut T {
    with_exposed_provenance_mut(address as usize)
}

impl Local {
    /// Does it.
    ///
    /// # Safety
    /// The places must be initialised memory of this process, hold what is named, and be touched by nobody else meanwhile but by
    /// readers of `from`. Those of `Widen` and `Narrow` must not overlap.
    pub(crate) unsafe fn run(&self) {
        // SAFETY: the caller's, in every arm. What is in memory fits `usize`.
        unsafe {
            match *self {
                Local::Copy { from, to, bytes } => {
                    std::ptr::copy(at::<u8>(from), at::<u8>(to), bytes as usize);
                }
                Local::Widen { from, to, len, dtype } => match dtype {
                    DType::F16 => widen::<f16>(from, to, len),
                    _ => widen::<bf16>(from, to, len),
                },
                Local::Narrow { from, to, len, dtype, divisor } => {
                    if let Some(ranks) = divisor {
                        average::<f32>(from, len, ranks);
                    }
                    match dtype {
                        DType::F16 => narrow::<f16>(from, to, len),
                        _ => narrow::<bf16>(from, to, len),
                    }
                }
                Local::Average { at, len, dtype, ranks } => match dtype {
                    DType::I8 => average::<i8>(at, len, ranks),
                    DType::U8 => average::<u8>(at, len, ranks),
                    DType::I32 => average::<i32>(at, len, ranks),
                    DType::U32 => average::<u32>(at, len, ranks),
                    DType::I64 => average::<i64>(at, len, ranks),
                    DType::U64 => average::<u64>(at, len, ranks),
                    DType::F32 => average::<f32>(at, len, ranks),
                    DType::F64 => average::<f64>(at, len, ranks),
                    // Averaged as `f32`, when they are narrowed.
                    DType::F16 | DType::Bf16 => {}
                },
            }
        }
    }
}

/// # Safety
/// As of [`Local::run`].
unsafe fn widen<T: Half>(from: u64, to: u64, len: u64) {
    let len = len as usize;
    // SAFETY: the caller's.
    let (from, to) = unsafe {
        (std::slice::from_raw_parts(at::<T>(from), len), std::slice::from_raw_parts_mut(at(to), len))
    };
    T::widen(from, to);
}

/// # Safety
/// As of [`Local::run`].
unsafe fn narrow<T: Half>(from: u64, to: u64, len: u64) {
    let len = len as usize;
    // SAFETY: the caller's.
    let (from, to) = unsafe {
        (std::slice::from_raw_parts(at(from), len), std::slice::from_raw_parts_mut(at::<T>(to), len))
    };
    T::narrow(from, to);
}

/// # Safety
/// As of [`Local::run`].
unsafe fn average<T: Average>(place: u64, len: u64, ranks: u32) {
    // SAFETY: the caller's.
    for sum in unsafe { std::slice::from_raw_parts_mut(at::<T>(place), len as usize) } {
        *sum = sum.average(ranks);
    }
}
