//! Kernels and collectives of your own, loaded by squall from a dylib.

#![cfg_attr(not(feature = "sdk"), no_std)]

pub mod abi;
