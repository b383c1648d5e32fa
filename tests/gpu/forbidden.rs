//! An op that does in a step what no capture allows.

use std::sync::Arc;

use squall_core::{
    ArgError, Args, BufferDecl, BufferId, DType, Description, Device, DeviceError, GroupError, LibraryOp,
    Moment, Needs, OpCall, OpError, OpSpec, ParamDef, Prepare, ReduceOp, Stream, Task, Upload, Work,
    register_op,
};
use squall_tests::registry;

use crate::failing::over_and_done;
use crate::on::On;

register_op!(&Allocate);

/// Allocates when it is enqueued, and says that it may be captured.
struct Allocate;

impl Task for Allocate {
    fn name(&self) -> &'static str {
        "allocate"
    }
    fn summary(&self) -> &'static str {
        "allocates memory in every step, and frees it"
    }
    fn params(&self) -> &'static [ParamDef] {
        &[]
    }
    fn example(&self) -> &'static str {
        ""
    }
    fn describe(&self, _: &Args<'_>) -> Result<Description, ArgError> {
        Ok(Description::default())
    }
}

impl LibraryOp for Allocate {
    fn library(&self) -> &'static str {
        "allocating"
    }
    fn device(&self) -> &'static str {
        "cuda"
    }
    fn needs(&self) -> Needs {
        Needs::NONE
    }
    unsafe fn prepare(&self, _: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let (kind, index) = cx.device.id().split_once(':').unwrap();
        Ok(Box::new(Allocating(registry().open(kind, index.parse().unwrap())?)))
    }
}

struct Allocating(Arc<dyn Device>);

impl Work for Allocating {
    fn enqueue(&mut self, _: &mut dyn Stream) -> Result<(), DeviceError> {
        self.0.alloc(1 << 20).map(drop)
    }
}

/// Captured, it is an error that says when; as it is, it works.
pub(crate) fn allocation(on: On) {
    const STEPS: u64 = 5;
    for capture in [true, false] {
        let on = On { capture, ..on };
        let graphs = on.graphs(2, |_, graph| {
            let x = graph.buffer(BufferDecl::new("x", DType::I32, [1000]).upload(Upload::First));
            graph.step(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Sum));
            graph.step(OpSpec::new("allocate").named("allocates"));
        });
        let mut group = on.bind(graphs, on.options());
        for rank in 0..2 {
            group.write(rank, BufferId(0), &[1 + rank as i32; 1000]).unwrap();
        }
        if !capture {
            group.execute_many(STEPS).unwrap();
            for rank in 0..2 {
                assert_eq!(group.read::<i32>(rank, BufferId(0)).unwrap(), [3 << (STEPS - 1); 1000]);
            }
            continue;
        }
        // The first step is not captured.
        group.execute().unwrap();
        let error = group.execute().unwrap_err();
        match &error {
            GroupError::Failed {
                task: Some(task),
                during: Moment::Step(1),
                error: DeviceError::Failed(said),
                ..
            } => {
                assert_eq!(task, "allocates", "{error}");
                assert!(said.starts_with("during capture: "), "{error}");
                assert!(said.contains("cuMemAlloc: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"), "{error}");
            }
            other => panic!("{other}"),
        }
        over_and_done(on, group, &error);
    }
}
