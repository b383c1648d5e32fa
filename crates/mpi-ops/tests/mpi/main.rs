//! The library between processes, which MPI's launcher starts: this program again, as the ranks of a job.
//!
//! | module | shows |
//! |---|---|
//! | `values` | what every op gives, against plain loops |
//! | `ending` | aborts, deadlines, ranks that do not fit, the end of a process |
//! | `telling` | small values between processes |
//!
//! A machine without a launcher fails them all.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests panic as tests do")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "ranks say to their parent how they fared")]

mod ending;
mod telling;
mod values;

use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use squall_core::conformance::{Outcome, Ranks, Target};
use squall_core::{
    Backend as _, CommId, Connect, Device, DeviceError, Exchange, Library as _, Registry, Session, World,
};
use squall_host_backend::HostBackend;
use squall_mpi_ops::{MpiLibrary, Process, findings};

/// The argument that makes a process of this program a rank of a test: after it comes the test's name.
const CHILD: &str = "--rank-of";
/// How long a test may take.
const LIMIT: Duration = Duration::from_secs(240);

/// A test: its name, the numbers of ranks that it is run with, and what each of them does.
struct Test {
    name: &'static str,
    ranks: &'static [u32],
    body: fn(&'static Process) -> Outcome,
    end: End,
    /// What a process does before it starts; `Some` where that is all.
    before: fn() -> Option<Outcome>,
    /// Whether it takes more memory than a machine may have, and is run when it is asked for.
    large: bool,
}

/// How a test's processes end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Each by `Process::finish`.
    Finished,
    /// All by the abort of one, with this status.
    Aborted(i32),
}

impl Test {
    const fn new(name: &'static str, ranks: &'static [u32], body: fn(&'static Process) -> Outcome) -> Test {
        Test { name, ranks, body, end: End::Finished, before: || None, large: false }
    }

    const fn ends(self, status: i32) -> Test {
        Test { end: End::Aborted(status), ..self }
    }

    const fn after(self, before: fn() -> Option<Outcome>) -> Test {
        Test { before, ..self }
    }

    const fn large(self) -> Test {
        Test { large: true, ..self }
    }
}

const TESTS: &[Test] = &[
    Test::new("every op gives what a plain loop gives", &[1, 2, 3, 4], values::all),
    Test::new("what MPI cannot count is split", &[1, 2, 3, 4], values::split),
    Test::new("floats of all sizes are near the exact sum", &[3, 4], values::near),
    Test::new("groups progress jointly", &[1, 2, 3, 4], values::groups),
    Test::new("steps allocate nothing", &[2, 3], values::steps),
    Test::new("a plan group of one rank runs", &[1], values::plan),
    Test::new("processes tell each other bytes", &[1, 2, 3, 4], telling::bytes),
    Test::new("a process knows its place", &[1, 3], telling::place),
    Test::new("ranks that do not fit are refused on all", &[2], ending::misfits),
    Test::new("what is refused is an argument's", &[2], ending::arguments),
    Test::new("an idle abort costs the connection alone", &[2], ending::idle),
    Test::new("MPI is not finished under a connection", &[2], ending::early),
    Test::new("threads that take turns have one connection", &[1, 2], ending::turns)
        .after(ending::serialized),
    Test::new("a thread of one's own is too little", &[1, 2], ending::turns).after(ending::funneled),
    Test::new("a rank that waits for a message is released", &[2], ending::receive).ends(5),
    Test::new("a rank that waits for a collective is released", &[3], ending::collective).ends(5),
    Test::new("an error has MPI's own words", &[2], ending::truncated).ends(5),
    Test::new("a rank that does not connect is waited for until the deadline", &[2], ending::absent).ends(5),
    Test::new("one process ends all", &[2], ending::all).ends(9),
    Test::new("more elements than MPI counts", &[2], values::large).large(),
];

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().collect();
    if let [_, flag, name] = &given[..]
        && flag == CHILD
    {
        return rank_of(name);
    }
    // One at a time: each takes more cores than there may be.
    let args = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let trials = TESTS.iter().flat_map(|test| {
        test.ranks.iter().map(move |&ranks| {
            let name = format!("{} ({ranks})", test.name);
            Trial::test(name, move || launch(test, ranks).map_err(Failed::from)).with_ignored_flag(test.large)
        })
    });
    libtest_mimic::run(&args, trials.collect()).exit_code()
}

/// Starts the ranks of a test, and judges how they ended.
fn launch(test: &Test, ranks: u32) -> Outcome {
    let mut command = Command::new("mpirun");
    if findings()[0].contains("Open MPI") {
        command
            .arg("--oversubscribe")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    command.args(["-n", &ranks.to_string()]).arg(std::env::current_exe().unwrap()).args([CHILD, test.name]);
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| {
        format!("mpirun: {error}\nthis test needs MPI's launcher: install openmpi-bin, or the one of the MPI in use")
    })?;
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > LIMIT {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let well = text.matches(WELL).count();
    // What ranks print may be lost when all are ended; but only one that is content ends them with that status.
    let ended = match test.end {
        End::Finished => output.status.success() && well == ranks as usize,
        End::Aborted(status) => output.status.code() == Some(status),
    };
    if ended { Ok(()) } else { Err(format!("{well} of {ranks} ranks were well, {}:\n{text}", output.status)) }
}

/// What a rank that is content says.
const WELL: &str = "this rank is well";

/// One rank of a test.
fn rank_of(name: &str) -> ExitCode {
    let test = TESTS.iter().find(|test| test.name == name).expect("the name of a test");
    if let Some(outcome) = (test.before)() {
        outcome.unwrap();
        println!("{WELL}");
        return ExitCode::SUCCESS;
    }
    let process = Process::start().unwrap();
    let outcome = (test.body)(process).and_then(|()| match test.end {
        End::Finished => process.finish().map_err(|error| error.to_string()),
        End::Aborted(_) => Ok(()),
    });
    match outcome {
        Ok(()) => println!("{WELL}"),
        Err(error) => {
            eprintln!("rank {}: {error}", process.rank());
            Process::abort(1);
        }
    }
    match test.end {
        End::Finished => ExitCode::SUCCESS,
        End::Aborted(status) => Process::abort(status),
    }
}

/// What waits for nobody: this process has one rank.
struct NoExchange;

impl Exchange for NoExchange {
    fn all_gather(&self, _: CommId, _: u32, _: &[u8], _: Instant) -> Result<Vec<Vec<u8>>, DeviceError> {
        Err(DeviceError::Failed("MPI needs no exchange".to_string()))
    }
}

fn device() -> Arc<dyn Device> {
    HostBackend.open(0).unwrap()
}

/// Connects ranks of this process to a job.
fn connect(world: &Arc<World>, local: &[u32], patience: Duration) -> Result<Vec<Session>, DeviceError> {
    let comms: Vec<CommId> = world.comms().collect();
    let local: Vec<(u32, Arc<dyn Device>)> = local.iter().map(|rank| (*rank, device())).collect();
    let deadline = Instant::now() + patience;
    MpiLibrary.connect(&Connect { world, comms: &comms, local: &local, exchange: &NoExchange, deadline })
}

/// This process's rank of a job in a world, connected.
fn joined(process: &Process, world: &Arc<World>) -> Result<Ranks<'static>, String> {
    let registry: &'static Registry = Box::leak(Box::new(Registry::linked().unwrap()));
    let target = Target::new(registry, "host", "mpi")?;
    let sessions =
        connect(world, &[process.rank()], Duration::from_secs(30)).map_err(|error| error.to_string())?;
    let members = sessions.into_iter().map(|session| (process.rank(), device(), Some(session)));
    Ok(Ranks::of(&target, world.clone(), members))
}

/// All ranks of MPI.
fn world(process: &Process) -> Arc<World> {
    Arc::new(World::new(process.size().into()).unwrap())
}
