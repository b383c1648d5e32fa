//! What a process does not get over: a GPU that is lost, and a kernel that does not end. Each is in a process of its own, which must
//! come to its end by itself.

use std::time::Duration;

use squall_core::error::{Found, Leak};
use squall_core::{
    BufferDecl, BufferId, DType, DeviceError, GroupError, KernelSpec, Moment, OpSpec, ReduceOp, Upload,
};

use crate::failing::{DROPPED, GIVEN_UP, LIMIT, late_by, refuses, report, within};
use crate::kernels::STRAY;
use crate::on::On;

/// How long the kernel runs that does not end.
const ENDLESS_MILLIS: i32 = 60_000;
/// How soon the process must have ended, which connects, runs into its limits, drops its group and leaves: before that kernel.
const ENDED: Duration = Duration::from_secs(40);

pub(crate) fn stray(on: On) {
    on.apart("stray", &[], ENDED);
    on.healthy();
}

/// Rank 1 loses its GPU while rank 0 waits for it.
pub(crate) fn stray_apart(on: On) {
    let graphs = on.graphs(2, |rank, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::F32, [1000]).upload(Upload::First));
        let steps = graph.buffer(BufferDecl::new("steps", DType::I32, [1]).upload(Upload::First));
        let act = KernelSpec::new(&STRAY).arg("steps", steps).arg("at", if rank == 1 { 2 } else { -1 });
        // So long that rank 0 has come to its wait.
        graph.step(act.arg("millis", 200).grid(1, 32).named("act"));
        graph.step(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Avg).named("sum"));
    });
    let mut group = on.bind(graphs, on.limited(LIMIT));
    for rank in 0..2 {
        group.write(rank, BufferId(0), &[rank as f32; 1000]).unwrap();
        group.write(rank, BufferId(1), &[0i32]).unwrap();
    }
    let error =
        within(GIVEN_UP + Duration::from_secs(10), "the run", || (0..5).find_map(|_| group.execute().err()));
    let error = error.expect("the device was not lost");
    match &error {
        // Of a lost device nobody knows the task.
        GroupError::Failed {
            // The GPUs reach each other's memory, and are lost together: whichever rank sees it first is named.
            rank: rank @ 0..=1,
            task: None,
            during: Moment::Step(2),
            error: DeviceError::Lost { device, message },
            released,
        } => {
            assert_eq!(*device, format!("cuda:{rank}"), "{error}");
            assert!(message.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
            let [other] = released.ranks.as_slice() else { panic!("{error}") };
            assert_eq!((other.rank, other.steps), (1 - rank, 2), "{error}");
            assert!(matches!(other.found, Found::Failed | Found::Waiting), "{error}");
            if other.rank == 0 {
                assert_eq!(other.running.as_deref(), Some("sum"), "{error}");
            }
            assert_eq!(released.leak, None, "{error}");
        }
        other => panic!("{other}"),
    }
    refuses(&mut group, &error);
    within(DROPPED, "the drop", || drop(group));
}

/// Its process leaves by the ordinary way only when the kernel has ended, for which the driver's exit handlers wait.
pub(crate) fn endless(on: On) {
    on.apart("endless", &[], ENDED);
    on.healthy();
}

/// Rank 1 does not return from its kernel.
pub(crate) fn endless_apart(on: On) {
    let mut group = late_by(on, 2, ENDLESS_MILLIS);
    let error = within(GIVEN_UP + Duration::from_secs(10), "the run", || group.execute_many(5)).unwrap_err();
    let wanted = "step 2 took longer than 1s: rank 1 has not returned from `act` (last finished `before`, after 2 steps); \
                  rank 0 waited in `after` (last finished `act`, after 2 steps); \
                  1 rank thread and 4 buffers (8008 bytes) are leaked, and the group is unusable";
    assert_eq!(error.to_string(), wanted);
    assert_eq!(report(&error).leak, Some(Leak { threads: 1, buffers: 4, bytes: 8008 }));
    refuses(&mut group, &error);
    within(GIVEN_UP, "the drop", || drop(group));
    signal_hook::low_level::exit(0);
}
