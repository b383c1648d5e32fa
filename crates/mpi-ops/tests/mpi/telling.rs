//! Small values between processes.

use std::time::{Duration, Instant};

use squall_core::conformance::Outcome;
use squall_mpi_ops::Process;

pub(crate) fn bytes(process: &'static Process) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(30);
    for len in [0, 1, 7, 100_000] {
        let sent: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        let mine = if process.rank() == 0 { &sent[..] } else { b"not looked at" };
        assert_eq!(process.broadcast(mine, deadline), Ok(sent));
    }
    let of = |rank: u32| vec![rank as u8; (rank * 1000) as usize];
    let expected: Vec<Vec<u8>> = (0..process.size()).map(of).collect();
    assert_eq!(process.all_gather(&of(process.rank()), deadline), Ok(expected));
    assert_eq!(process.all_gather(&[], deadline), Ok(vec![Vec::new(); process.size() as usize]));
    Ok(())
}

pub(crate) fn place(process: &'static Process) -> Outcome {
    assert!(process.rank() < process.size() && process.host_rank() < process.host_size());
    assert!(process.is_one_host(), "a test's processes are on one host");
    assert_eq!(process.host_size(), process.size());
    assert!(process.library().contains("MPI"), "{}", process.library());
    assert!(std::ptr::eq(Process::start().unwrap(), process));
    assert!(Process::started().is_some());
    Ok(())
}
