//! The program runs, and prints the average that both ranks have.

use std::process::Command;

#[test]
fn both_ranks_print_the_average() {
    let output = Command::new(env!("CARGO_BIN_EXE_rust-average")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The average of 1 and 2, scaled by 2 and by a half.
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "rank 0: 1.5\nrank 1: 1.5\n");
}
