//! Kernels and collectives of your own, loaded by squall from a dylib.

#![cfg_attr(not(feature = "sdk"), no_std)]

pub mod abi;
#[cfg(feature = "sdk")]
pub mod convert;

#[cfg(feature = "sdk")]
pub use squall_core as core;
