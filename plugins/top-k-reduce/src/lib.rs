//! A plugin of squall: `top_k_reduce`, an `all_reduce` that sends the largest elements alone.
mod select;
