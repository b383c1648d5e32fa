//! The command `squall`.

fn main() {}
