//! Where a trial runs.

use std::io::{Read as _, Seek as _};
use std::process::Command;
use std::time::{Duration, Instant};

use squall_core::conformance::Level;
use squall_core::{
    BufferDecl, BufferId, DType, GraphBuilder, KernelDef, OpSpec, Options, PlanGroup, ReduceOp, TaskGraph,
    Upload, Verified,
};
use squall_cuda_backend::memory_of;
use squall_runner::manifest::devices::{DeviceSpec, Devices, Which};
use squall_tests::{bind, bind_verified, graphs_for, registry};

/// The variable that names what a process of its own is to do.
pub(crate) const APART: &str = "SQUALL_TEST_APART";
/// The variable that says where: [`On::how`].
pub(crate) const APART_ON: &str = "SQUALL_TEST_APART_ON";

/// How long a process of its own may take that has nothing to wait for.
pub(crate) const ALONE: Duration = Duration::from_secs(120);

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

    /// What the names of its trials begin with.
    pub(crate) fn how(self) -> &'static str {
        match (self.is_gpu(), self.capture) {
            (false, _) => "host",
            (true, false) => "cuda",
            (true, true) => "cuda, captured",
        }
    }

    /// What [`On::how`] names, with two GPUs.
    pub(crate) fn of(how: &str) -> Option<On> {
        [On::HOST, On::gpus(2, false), On::gpus(2, true)].into_iter().find(|on| on.how() == how)
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

    /// With a limit for steps after the first, which connects devices, and after the second where it is captured.
    pub(crate) fn limited(self, limit: Duration) -> Options {
        self.options().step_timeout(Some(limit))
    }

    /// Verifies graphs and binds them to the first devices.
    pub(crate) fn bind(self, graphs: Vec<TaskGraph>, options: Options) -> PlanGroup {
        bind(graphs, options)
    }

    /// Binds graphs that no verification would let pass.
    pub(crate) fn past_verification(self, graphs: Vec<TaskGraph>, options: Options) -> PlanGroup {
        bind_verified(Verified::unverified(graphs), options)
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

    /// What this process holds, with its GPUs.
    pub(crate) fn level(self) -> Level {
        let gpus = if self.is_gpu() { self.ranks } else { 0 };
        Level::now(gpus, |gpu| Ok(memory_of(gpu)?.0)).unwrap()
    }

    /// Does something on these devices in a process of its own, with that in its environment. It must succeed, and have ended by
    /// the limit.
    pub(crate) fn apart(self, name: &str, environment: &[(&str, &str)], limit: Duration) {
        let mut said = tempfile::tempfile().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(APART, name).env(APART_ON, self.how()).envs(environment.iter().copied());
        let mut child =
            command.stdout(said.try_clone().unwrap()).stderr(said.try_clone().unwrap()).spawn().unwrap();
        let start = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                None if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(10)),
                status => break status,
            }
        };
        let ended = status.map_or_else(
            || {
                child.kill().unwrap();
                let _ = child.wait();
                format!("killed after {limit:?}")
            },
            |status| status.to_string(),
        );
        let mut text = Vec::new();
        said.rewind().unwrap();
        said.read_to_end(&mut text).unwrap();
        let text = String::from_utf8_lossy(&text);
        assert!(status.is_some_and(|s| s.success()), "{name} {environment:?}: {ended}\n{text}");
    }
}

/// A standard kernel.
pub(crate) fn kernel(name: &str) -> &'static KernelDef {
    registry().kernel(name).unwrap()
}
