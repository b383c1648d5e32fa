//! squall on NVIDIA GPUs.
pub mod compile;
pub mod kernel;
