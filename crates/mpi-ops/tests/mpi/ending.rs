//! How connections and processes end, and what is refused.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mpi::ffi;
use squall_core::conformance::{Op, Outcome, Rank};
use squall_core::{DType, DeviceError, Library as _, ReduceOp, World};
use squall_mpi_ops::{MpiLibrary, Process};

use crate::{connect, joined, world};

const SHORT: Duration = Duration::from_secs(20);

/// Waits for the end that another process makes.
fn stay() -> Outcome {
    thread::sleep(Duration::from_secs(60));
    Err("nobody ended this process".to_string())
}

/// Each wrong world is refused by the rank where it is wrong, and told to the other.
pub(crate) fn misfits(process: &'static Process) -> Outcome {
    let refused = |world: &Arc<World>, local: &[u32]| match connect(world, local, SHORT) {
        Ok(_) => "connected".to_string(),
        Err(error) => error.to_string(),
    };
    let (three, two) = (Arc::new(World::new(3).unwrap()), world(process));
    let error = refused(&three, &[process.rank()]);
    assert!(error.contains("MPI has 2 ranks, but the job has 3 ranks"), "{error}");
    let error = refused(&two, &[1 - process.rank()]);
    let (job, mpi) = (1 - process.rank(), process.rank());
    assert!(error.contains(&format!("rank {job} of the job, but rank {mpi} of MPI")), "{error}");
    // Of one rank alone.
    let error = if process.rank() == 0 { refused(&two, &[0, 1]) } else { refused(&two, &[1]) };
    assert!(error.contains("this process has 2 ranks of the job"), "{error}");
    assert_eq!(error.contains("rank 0 of MPI cannot connect"), process.rank() == 1, "{error}");
    // Nothing of it is left.
    joined(process, &two)?.run(works).map(drop)
}

fn works(rank: &mut Rank<'_>) -> Outcome {
    let mut sum = rank.upload(&[1, 2, 3])?;
    rank.run_group(&[Op::new("all_reduce").buffer("buffer", sum.whole(DType::U8)).reduce(ReduceOp::Sum)])?;
    assert_eq!(rank.read(&mut sum)?, [2, 4, 6]);
    Ok(())
}

/// What only a caller that verifies nothing can ask for.
pub(crate) fn arguments(process: &'static Process) -> Outcome {
    let refused = |rank: &mut Rank<'_>| {
        let (four, eight) = (rank.upload(&[0; 4])?, rank.upload(&[0; 8])?);
        let (four, eight) = (four.whole(DType::U8), eight.whole(DType::U8));
        for (op, text) in [
            (
                Op::new("all_reduce")
                    .buffer("send", four.clone())
                    .buffer("recv", eight.clone())
                    .reduce(ReduceOp::Sum),
                "must hold",
            ),
            (Op::new("all_gather").buffer("send", four.clone()).buffer("recv", four.clone()), "must hold"),
            (Op::new("broadcast").buffer("buffer", four.clone()).rank("root", 2), "has 2 ranks"),
            (Op::new("send").buffer("buffer", four.clone()).rank("peer", 7), "has 2 ranks"),
        ] {
            let error = rank.prepare(&[op]).err().unwrap_or_default();
            assert!(error.contains(text), "{error}");
        }
        Ok(())
    };
    joined(process, &world(process))?.run(refused).map(drop)?;
    let lines = MpiLibrary.in_use();
    assert!(lines[0].contains(&format!("rank {} of 2 ranks", process.rank())), "{lines:?}");
    Ok(())
}

pub(crate) fn idle(process: &'static Process) -> Outcome {
    let ranks = joined(process, &world(process))?;
    let abort = ranks.abort();
    let outcome = ranks.run(|rank| {
        let buffer = rank.upload(&[1, 2, 3])?;
        let sum = [Op::new("all_reduce").buffer("buffer", buffer.whole(DType::U8)).reduce(ReduceOp::Sum)];
        let mut work = rank.prepare(&sum)?;
        abort.abort();
        assert_eq!(work.enqueue(&mut *rank.stream), Err(DeviceError::Aborted));
        let error = rank.prepare(&sum).err().unwrap_or_default();
        assert!(error.contains("released by an abort"), "{error}");
        Ok(())
    });
    outcome?;
    joined(process, &world(process))?.run(works).map(drop)
}

pub(crate) fn early(process: &'static Process) -> Outcome {
    let sessions = connect(&world(process), &[process.rank()], SHORT).map_err(|error| error.to_string())?;
    let error = process.finish().unwrap_err().to_string();
    assert!(error.contains("while it has 1 connection"), "{error}");
    drop(sessions);
    process.finish().map_err(|error| error.to_string())?;
    process.finish().map_err(|error| error.to_string())?;
    let error = connect(&world(process), &[process.rank()], SHORT).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("MPI was finalised in this process"));
    Ok(())
}

/// Initialises MPI as a program may that uses it for itself. What it then grants is what was asked for, of the MPIs that were tried.
fn initialised(level: c_int) {
    let mut granted = 0;
    // SAFETY: nobody has initialised MPI in this process.
    let code = unsafe { ffi::MPI_Init_thread(null_mut(), null_mut(), level, &mut granted) };
    assert_eq!((code, granted), (0, level));
}

/// Ends what `initialised` began.
fn finalised() {
    // SAFETY: MPI is initialised, and nobody uses it any more.
    assert_eq!(unsafe { ffi::MPI_Finalize() }, 0);
}

pub(crate) fn serialized() -> Option<Outcome> {
    // SAFETY: a constant of MPI's.
    initialised(unsafe { ffi::RSMPI_THREAD_SERIALIZED });
    None
}

pub(crate) fn turns(process: &'static Process) -> Outcome {
    let first = connect(&world(process), &[process.rank()], SHORT).map_err(|error| error.to_string())?;
    let error = connect(&world(process), &[process.rank()], SHORT).err().map(|error| error.to_string());
    assert!(error.unwrap_or_default().contains("one thread of a process at a time"));
    drop(first);
    joined(process, &world(process))?.run(|_| Ok(())).map(drop)?;
    process.finish().map_err(|error| error.to_string())?;
    // What the program began is the program's to end.
    finalised();
    Ok(())
}

pub(crate) fn funneled() -> Option<Outcome> {
    // SAFETY: a constant of MPI's.
    initialised(unsafe { ffi::RSMPI_THREAD_FUNNELED });
    let error = Process::start().unwrap_err().to_string();
    assert!(error.contains("MPI_THREAD_SERIALIZED") && Process::started().is_none(), "{error}");
    finalised();
    Some(Ok(()))
}

/// Runs a group on rank 0 that the others never join, aborts it, and looks at what is left.
fn released(process: &'static Process, group: fn(&mut Rank<'_>) -> Result<Vec<Op>, String>) -> Outcome {
    let ranks = joined(process, &world(process))?;
    if process.rank() != 0 {
        return stay();
    }
    let abort = ranks.abort();
    ranks.run(|rank| {
        let group = group(rank)?;
        let mut work = rank.prepare(&group)?;
        let at = thread::scope(|scope| {
            let aborting = scope.spawn(|| {
                thread::sleep(Duration::from_millis(300));
                let now = Instant::now();
                abort.abort();
                now
            });
            assert_eq!(work.enqueue(&mut *rank.stream), Err(DeviceError::Aborted));
            aborting.join().unwrap()
        });
        assert!(at.elapsed() < Duration::from_secs(1), "{:?}", at.elapsed());
        assert_eq!(work.enqueue(&mut *rank.stream), Err(DeviceError::Aborted));
        Ok(())
    })?;
    unusable(process, "an abort left calls of MPI in flight");
    Ok(())
}

/// Everything is refused, with the reason.
fn unusable(process: &Process, why: &str) {
    let deadline = Instant::now() + SHORT;
    let text = |error: DeviceError| error.to_string();
    for error in [
        connect(&world(process), &[process.rank()], SHORT).err().map(text),
        process.broadcast(&[], deadline).err().map(text),
        process.all_gather(&[], deadline).err().map(text),
        process.finish().err().map(text),
    ] {
        let error = error.unwrap_or_default();
        assert!(
            error.starts_with("MPI can be used no more by this process: ") && error.contains(why),
            "{error}"
        );
    }
}

pub(crate) fn receive(process: &'static Process) -> Outcome {
    released(process, |rank| {
        let buffer = rank.upload(&[0; 1000])?;
        let group = vec![Op::new("recv").buffer("buffer", buffer.whole(DType::U8)).rank("peer", 1)];
        // MPI may write there as long as the process lives.
        std::mem::forget(buffer);
        Ok(group)
    })
}

pub(crate) fn collective(process: &'static Process) -> Outcome {
    released(process, |rank| {
        let buffer = rank.upload(&[0; 4_000_000])?;
        let of = |dtype| Op::new("all_reduce").buffer("buffer", buffer.whole(dtype)).reduce(ReduceOp::Avg);
        let group = vec![of(DType::F16), of(DType::I32)];
        std::mem::forget(buffer);
        Ok(group)
    })
}

/// A message that is longer than its place.
pub(crate) fn truncated(process: &'static Process) -> Outcome {
    let ranks = joined(process, &world(process))?;
    let sends = process.rank() == 1;
    let error = ranks.run(|rank| {
        let buffer = rank.upload(&[0; 1000])?;
        if sends {
            let range = buffer.range(DType::U8, 0, 1000);
            rank.run_group(&[Op::new("send").buffer("buffer", range).rank("peer", 0)])?;
            return stay();
        }
        rank.run_group(&[Op::new("recv").buffer("buffer", buffer.range(DType::U8, 0, 10)).rank("peer", 1)])
    });
    let error = error.unwrap_err();
    assert!(error.contains("MPI_Irecv: ") && error.to_lowercase().contains("trunc"), "{error}");
    unusable(process, "trunc");
    Ok(())
}

pub(crate) fn absent(process: &'static Process) -> Outcome {
    if process.rank() == 1 {
        return stay();
    }
    let begin = Instant::now();
    let error = connect(&world(process), &[0], Duration::from_millis(500)).err();
    let Some(DeviceError::Late(text)) = error else { return Err(format!("not late: {error:?}")) };
    assert!(
        text.contains("MPI_Iallgather had not ended on rank 0") && text.contains("not all of the 2 ranks"),
        "{text}"
    );
    assert!(begin.elapsed() < Duration::from_secs(2));
    unusable(process, "MPI_Iallgather had not ended");
    Ok(())
}

pub(crate) fn all(process: &'static Process) -> Outcome {
    if process.rank() == 1 { Ok(()) } else { stay() }
}
