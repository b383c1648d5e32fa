//! Where a trial runs.

use std::process::Command;
use std::time::{Duration, Instant};

use squall_core::{
    BufferDecl, BufferId, DType, GraphBuilder, GroupError, Options, PlanGroup, ReduceOp, TaskGraph, Upload,
    Verified, verify,
};
use squall_core::{KernelDef, OpSpec};
use squall_cuda_backend::memory_of;
use squall_runner::manifest::devices::{DeviceSpec, Devices, Which};
use squall_tests::{graphs_for, registry};

/// The variable that names what a process of its own is to do.
pub(crate) const APART: &str = "SQUALL_TEST_APART";

/// The devices of a trial, and whether steps are captured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct On {
    pub(crate) kind: &'static str,
    /// The ranks of jobs that work with any number.
    pub(crate) ranks: u32,
    pub(crate) capture: bool,
}

impl On {
    pub(crate) const HOST: On = On { kind: "host", ranks: 3, capture: false };

    /// So many GPUs.
    pub(crate) fn gpus(count: u32, capture: bool) -> On {
        On { kind: "cuda", ranks: count.min(4), capture }
    }

    pub(crate) fn is_gpu(self) -> bool {
        self.kind == "cuda"
    }

    /// The first so many devices, as a job names them.
    pub(crate) fn devices(self, ranks: u32) -> Devices {
        Devices::Listed(vec![DeviceSpec { backend: self.kind, which: Which::Range(0..ranks) }])
    }

    pub(crate) fn graphs(self, ranks: u32, build: impl Fn(u32, &mut GraphBuilder<'_>)) -> Vec<TaskGraph> {
        graphs_for(self.kind, ranks, build)
    }

    pub(crate) fn options(self) -> Options {
        Options::default().capture(self.capture)
    }

    /// With a limit for steps after the first, which connects devices.
    pub(crate) fn limited(self, limit: Duration) -> Options {
        self.options().step_timeout(Some(limit))
    }

    /// Verifies graphs and binds them to the first devices.
    pub(crate) fn bind(self, graphs: Vec<TaskGraph>, options: Options) -> PlanGroup {
        let verified = verify(graphs).unwrap_or_else(|problems| panic!("{problems}"));
        self.group(verified, options).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Binds graphs that no verification would let pass.
    pub(crate) fn past_verification(self, graphs: Vec<TaskGraph>, options: Options) -> PlanGroup {
        self.group(Verified::unverified(graphs), options).unwrap_or_else(|error| panic!("{error}"))
    }

    fn group(self, verified: Verified, options: Options) -> Result<PlanGroup, GroupError> {
        let ranks = verified.graphs().len() as u32;
        let devices = (0..ranks).map(|index| registry().open(self.kind, index).unwrap());
        PlanGroup::new(registry(), verified, &devices.collect::<Vec<_>>(), options)
    }

    /// Runs a healthy job: what went wrong before must not matter to it.
    pub(crate) fn healthy(self) {
        let graphs = self.graphs(2, |_, graph| {
            let x = graph.buffer(BufferDecl::new("x", DType::I32, [1000]).upload(Upload::First));
            graph.step(OpSpec::new("all_reduce").arg("buffer", x).arg("reduce", ReduceOp::Sum));
        });
        let mut group = self.bind(graphs, self.options());
        for rank in 0..2 {
            group.write(rank, BufferId(0), &[1 + rank as i32; 1000]).unwrap();
        }
        group.execute_many(4).unwrap();
        for rank in 0..2 {
            assert_eq!(group.read::<i32>(rank, BufferId(0)).unwrap(), [3 << 3; 1000]);
        }
    }

    /// Threads of this process, and free memory of its GPUs.
    pub(crate) fn level(self) -> Level {
        Level {
            threads: std::fs::read_dir("/proc/self/task").unwrap().count(),
            free: (0..if self.is_gpu() { self.ranks } else { 0 })
                .map(|gpu| memory_of(gpu).unwrap().0)
                .collect(),
        }
    }

    /// Waits until all is as it was.
    pub(crate) fn await_level(self, before: &Level) {
        // Less than a communicator takes.
        const SLACK: u64 = 64 << 20;
        let start = Instant::now();
        loop {
            let now = self.level();
            let missing = before.free.iter().zip(&now.free).any(|(before, now)| now + SLACK < *before);
            if now.threads <= before.threads && !missing {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(15), "{now:?} where there was {before:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What a process holds.
#[derive(Debug)]
pub(crate) struct Level {
    threads: usize,
    free: Vec<u64>,
}

/// A standard kernel.
pub(crate) fn kernel(name: &str) -> &'static KernelDef {
    registry().kernel(name).unwrap()
}

/// Does something in a process of its own, with that in its environment; it must succeed.
pub(crate) fn apart(name: &str, environment: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.env(APART, name).envs(environment.iter().copied()).output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{name} {environment:?}: {}\n{text}", output.status);
}
