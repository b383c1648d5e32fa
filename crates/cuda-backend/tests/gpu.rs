//! The backend on a GPU. Without one every test is ignored, and the reason printed; `SQUALL_TEST_GPUS=1` makes that a failure.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a test program")]

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use squall_core::conformance::{CASES, Found, Target};
use squall_core::device::Position;
use squall_core::{
    Arg, BoundRange, CudaSource, DType, Device, DeviceError, Grid, KernelDef, Memory, ParamDef, Registry,
    Stream, Type, Work,
};
use squall_cuda_backend as _;

const U32: Type = Type::Is(DType::U32);

/// Adds 1 to every element.
static ADD_ONE: KernelDef = KernelDef {
    name: "add_one",
    params: &[ParamDef::read_write("data", U32, "[n]")],
    cuda: Some(
        CudaSource::new(
            "__device__ void add_one(squall::Buffer<data_t> data, const squall::Launch &launch) {
                for (u64 i = squall::x(); i < squall::least(data.len, launch.threads[0]); i += squall::stride()) data[i] += 1;
            }",
            "add_one",
        )
        .looping(),
    ),
    ..KernelDef::EMPTY
};

/// Waits until the host sets the flag.
static HOLD: KernelDef = KernelDef {
    name: "hold",
    params: &[ParamDef::read("flag", U32, "[1]")],
    cuda: Some(CudaSource::new(
        "__device__ void hold(squall::Buffer<flag_t> flag, const squall::Launch &) {
            while (*(volatile u32 *)flag.data == 0) {}
        }",
        "hold",
    )),
    ..KernelDef::EMPTY
};

/// Finds fault with the first element that is 0.
static BLAME: KernelDef = KernelDef {
    name: "blame",
    params: &[ParamDef::read("data", U32, "[n]")],
    cuda: Some(
        CudaSource::new(
            "__device__ void blame(squall::Buffer<data_t> data, const squall::Launch &launch) {
                u64 i = squall::x();
                if (i < data.len && data[i] == 0) launch.fail(1, i);
            }",
            "blame",
        )
        .failing(&["never said", "element {} is 0"]),
    ),
    ..KernelDef::EMPTY
};

/// Counts its launches in its scratch memory.
static COUNT: KernelDef = KernelDef {
    name: "count",
    params: &[ParamDef::write("out", U32, "[1]")],
    cuda: Some(
        CudaSource::new(
            "__device__ void count(squall::Buffer<out_t> out, const squall::Launch &launch) {
                if (squall::x() == 0) out[0] = ++*(u32 *)launch.scratch;
            }",
            "count",
        )
        .scratch(4),
    ),
    ..KernelDef::EMPTY
};

/// Writes where nothing is.
static STRAY: KernelDef = KernelDef {
    name: "stray",
    cuda: Some(CudaSource::new("__device__ void stray(const squall::Launch &) { *(u32 *)8 = 1; }", "stray")),
    ..KernelDef::EMPTY
};

/// A rank's device with a stream, as a plan has them.
struct Rank {
    device: Arc<dyn Device>,
    stream: Box<dyn Stream>,
}

impl Rank {
    fn new() -> Rank {
        let device = Registry::linked().unwrap().open("cuda", 0).unwrap();
        let stream = device.stream().unwrap();
        Rank { device, stream }
    }

    fn kernel(&self, kernel: &'static KernelDef, memory: Option<&dyn Memory>, threads: u64) -> Box<dyn Work> {
        let range = |memory: &dyn Memory| {
            let shape = [memory.bytes() / 4].into();
            Arg::Buffer(BoundRange { ptr: memory.ptr(), dtype: DType::U32, shape })
        };
        let grid = Grid::new([threads, 1, 1], [64, 1, 1]).unwrap();
        // SAFETY: each test keeps its memory until it has waited for the stream.
        unsafe { self.device.kernel(kernel, memory.map(range).into_iter().collect(), grid) }.unwrap()
    }

    fn staging(&self, words: u64) -> Box<dyn Memory> {
        self.device.alloc_staging(words * 4).unwrap()
    }

    fn run(&mut self, work: &mut Box<dyn Work>) {
        work.enqueue(&mut *self.stream).unwrap();
    }

    fn wait(&mut self) {
        self.stream.wait(Some(Instant::now() + Duration::from_secs(20))).unwrap();
    }
}

/// The words of staging memory.
fn words(memory: &mut Box<dyn Memory>) -> Vec<u32> {
    memory.host().unwrap().as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

/// The first word of staging memory, to be set while a kernel reads it.
fn flag(memory: &mut Box<dyn Memory>) -> &AtomicU32 {
    // SAFETY: the memory is aligned and outlives the borrow; the host touches the word in no other way meanwhile.
    unsafe { AtomicU32::from_ptr(memory.host().unwrap().as_mut_ptr().cast()) }
}

/// Waits until a position is told.
fn await_position(rank: &Rank, runs: u32, tasks: u32) {
    let (progress, start) = (rank.stream.progress(), Instant::now());
    while progress.read() != (Position { runs, tasks }) {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{:?}, not {runs} runs, {tasks} tasks",
            progress.read()
        );
    }
}

fn kernels_run_and_are_replayed() {
    let mut rank = Rank::new();
    let mut data = rank.staging(1000);
    // Surplus threads, and fewer threads than elements.
    for (threads, expected) in [(1100, [1; 1000].to_vec()), (70, [vec![2; 128], vec![1; 872]].concat())] {
        let mut work = rank.kernel(&ADD_ONE, Some(&*data), threads);
        rank.run(&mut work);
        rank.wait();
        assert_eq!(words(&mut data), expected);
    }

    let mut work = rank.kernel(&ADD_ONE, Some(&*data), 1000);
    data.host().unwrap().fill(0);
    rank.stream.capture().unwrap().begin().unwrap();
    rank.run(&mut work);
    rank.run(&mut work);
    let mut captured = rank.stream.capture().unwrap().end().unwrap();
    rank.wait();
    assert_eq!(words(&mut data), [0; 1000], "recorded, not run");
    for replay in 1..=3 {
        rank.run(&mut captured);
        rank.wait();
        assert_eq!(words(&mut data), [2 * replay; 1000]);
    }
}

fn the_position_is_told_by_kernels_by_writes_and_in_replays() {
    let mut rank = Rank::new();
    let (mut data, mut held) = (rank.staging(1), rank.staging(1));
    let mut works = [rank.kernel(&ADD_ONE, Some(&*data), 1), rank.kernel(&HOLD, Some(&*held), 1)];
    let both = |rank: &mut Rank, works: &mut [Box<dyn Work>; 2]| {
        for (task, work) in (1..).zip(works) {
            work.enqueue(&mut *rank.stream).unwrap();
            rank.stream.mark(task).unwrap();
        }
    };
    rank.stream.complete(7).unwrap();
    both(&mut rank, &mut works);
    await_position(&rank, 7, 1);
    let soon = Instant::now() + Duration::from_millis(30);
    assert_eq!(rank.stream.wait(Some(soon)), Err(DeviceError::Deadline));
    assert!(Instant::now() >= soon);
    flag(&mut held).store(1, Ordering::Release);
    rank.wait();
    await_position(&rank, 7, 2);
    rank.stream.complete(8).unwrap();
    rank.wait();
    assert_eq!(rank.stream.progress().read(), Position { runs: 8, tasks: 0 });

    flag(&mut held).store(0, Ordering::Release);
    rank.stream.capture().unwrap().begin().unwrap();
    both(&mut rank, &mut works);
    let mut captured = rank.stream.capture().unwrap().end().unwrap();
    for run in 9..=11 {
        rank.run(&mut captured);
        await_position(&rank, run - 1, 1);
        flag(&mut held).store(1, Ordering::Release);
        rank.stream.complete(run).unwrap();
        rank.wait();
        assert_eq!(rank.stream.progress().read(), Position { runs: run, tasks: 0 });
        flag(&mut held).store(0, Ordering::Release);
    }

    // Two ops of a library in a row: what is put on the raw stream tells nothing by itself.
    let mut held_back = rank.kernel(&HOLD, Some(&*held), 1);
    let _ = rank.stream.raw();
    rank.stream.mark(1).unwrap();
    let _ = rank.stream.raw();
    rank.run(&mut held_back);
    await_position(&rank, 11, 1);
    flag(&mut held).store(1, Ordering::Release);
    rank.wait();
    assert_eq!(words(&mut data), [4]);
}

fn a_checkpoint_is_waited_for_while_more_is_queued() {
    let mut rank = Rank::new();
    let (data, mut held) = (rank.staging(1), rank.staging(1));
    let mut works = [rank.kernel(&ADD_ONE, Some(&*data), 1), rank.kernel(&HOLD, Some(&*held), 1)];
    rank.run(&mut works[0]);
    rank.stream.complete(1).unwrap();
    rank.stream.checkpoint().unwrap();
    rank.run(&mut works[1]);
    rank.stream.complete(2).unwrap();
    rank.stream.checkpoint().unwrap();
    let soon = |millis| Some(Instant::now() + Duration::from_millis(millis));
    rank.stream.wait_for(1, soon(10_000)).unwrap();
    assert!(rank.stream.progress().read().runs == 1);
    assert_eq!(rank.stream.wait_for(2, soon(20)), Err(DeviceError::Deadline));
    flag(&mut held).store(1, Ordering::Release);
    rank.stream.wait_for(2, soon(10_000)).unwrap();
    rank.wait();
    assert_eq!(rank.stream.progress().read(), Position { runs: 2, tasks: 0 });
}

fn a_capture_that_was_left_open_is_ended_by_a_wait() {
    let mut rank = Rank::new();
    let mut data = rank.staging(1);
    let mut work = rank.kernel(&ADD_ONE, Some(&*data), 1);
    rank.stream.capture().unwrap().begin().unwrap();
    rank.run(&mut work);
    rank.wait();
    assert_eq!(words(&mut data), [0], "what was captured is forgotten");
    rank.run(&mut work);
    rank.wait();
    assert_eq!(words(&mut data), [1]);
}

fn a_kernel_names_its_failure_once() {
    let mut rank = Rank::new();
    let mut data = rank.staging(100);
    let mut work = rank.kernel(&BLAME, Some(&*data), 100);
    assert_eq!(work.failure(), None);
    data.host().unwrap().fill(1);
    data.host().unwrap()[42 * 4..][..4].fill(0);
    rank.run(&mut work);
    rank.wait();
    assert_eq!(work.failure().as_deref(), Some("element 42 is 0"));
    assert_eq!(work.failure(), None);
}

fn scratch_memory_is_each_tasks_own_and_kept() {
    let mut rank = Rank::new();
    let (mut out, mut other) = (rank.staging(1), rank.staging(1));
    let mut works = [rank.kernel(&COUNT, Some(&*out), 1), rank.kernel(&COUNT, Some(&*other), 1)];
    for _ in 0..3 {
        rank.run(&mut works[0]);
    }
    rank.run(&mut works[1]);
    rank.wait();
    assert_eq!((words(&mut out), words(&mut other)), (vec![3], vec![1]));
}

fn too_much_memory_is_an_error_and_no_harm() {
    let rank = Rank::new();
    for bytes in [1 << 50, u64::MAX] {
        match rank.device.alloc(bytes).err() {
            Some(DeviceError::OutOfMemory { device, bytes: asked, message }) => {
                assert_eq!((device.as_str(), asked), ("cuda:0", bytes));
                assert!(
                    message.contains("CUDA_ERROR_OUT_OF_MEMORY")
                        && message.contains("bytes of the device are free"),
                    "{message}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(rank.device.alloc(1 << 20).is_ok());
}

fn memory_is_given_back() {
    let rank = Rank::new();
    let before = squall_cuda_backend::memory_of(0).unwrap().0;
    for _ in 0..20 {
        let held = [rank.device.alloc(1 << 30).unwrap(), rank.device.alloc_staging(1 << 24).unwrap()];
        assert!(squall_cuda_backend::memory_of(0).unwrap().0 + (1 << 30) <= before);
        drop(held);
    }
    assert_eq!(squall_cuda_backend::memory_of(0).unwrap().0, before);
}

fn a_missing_device_is_named() {
    let error = Registry::linked().unwrap().open("cuda", 99).err().unwrap().to_string();
    assert!(error.contains("no cuda:99") && error.contains("this process sees"), "{error}");
}

fn a_device_reaches_itself_and_says_whom_it_cannot() {
    let device = Rank::new().device;
    assert_eq!([device.reach("cuda:0"), device.reach("cuda:0")], [Ok(()), Ok(())]);
    for (peer, says) in [
        ("host:0", "cuda:0 cannot reach the memory of host:0: it is no CUDA device"),
        ("cuda:x", "it is no CUDA device"),
        ("cuda:99", "there is no cuda:99"),
    ] {
        match device.reach(peer) {
            Err(DeviceError::Unsupported(text)) => assert!(text.contains(says), "{text}"),
            other => panic!("{peer}: {other:?}"),
        }
    }
}

/// What the test does in a process of its own, whose device is lost or whose compiler is missing.
fn apart(what: &str) -> ExitCode {
    let mut rank = Rank::new();
    match what {
        "stray" => {
            let mut work = rank.kernel(&STRAY, None, 1);
            rank.run(&mut work);
            match rank.stream.wait(None) {
                Err(DeviceError::Lost { device, message })
                    if device == "cuda:0" && message.contains("CUDA_ERROR_ILLEGAL_ADDRESS") =>
                {
                    ExitCode::SUCCESS
                }
                other => panic!("{other:?}"),
            }
        }
        _ => {
            let mut data = rank.staging(1);
            let mut work = rank.kernel(&ADD_ONE, Some(&*data), 1);
            rank.run(&mut work);
            rank.wait();
            assert_eq!(words(&mut data), [1]);
            ExitCode::SUCCESS
        }
    }
}

fn child(what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("SQUALL_TEST_APART", what);
    command
}

fn a_stray_write_loses_the_device_and_says_so() {
    let output = child("stray").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn a_kernel_that_is_kept_needs_no_compiler() {
    let cache = std::env::temp_dir().join(format!("squall-test-{}", std::process::id()));
    let run = |nvrtc: Option<&str>| {
        let mut child = child("kept");
        child.env("SQUALL_CACHE", &cache);
        if let Some(nvrtc) = nvrtc {
            child.env("SQUALL_NVRTC", nvrtc);
        }
        child.output().unwrap()
    };
    let without = run(Some("/nowhere/libnvrtc.so"));
    let text = String::from_utf8_lossy(&without.stderr);
    assert!(!without.status.success() && text.contains("/nowhere/libnvrtc.so"), "{text}");
    assert!(run(None).status.success());
    let kept = run(Some("/nowhere/libnvrtc.so"));
    std::fs::remove_dir_all(&cache).unwrap();
    assert!(kept.status.success(), "{}", String::from_utf8_lossy(&kept.stderr));
}

fn main() -> ExitCode {
    if let Ok(what) = std::env::var("SQUALL_TEST_APART") {
        return apart(&what);
    }
    let args = Arguments::from_args();
    let registry: &'static Registry = Box::leak(Box::new(Registry::linked().unwrap()));
    let found = Found::devices(registry, "cuda");
    if let Err(reason) = found.as_promised() {
        eprintln!("{reason}");
        return ExitCode::FAILURE;
    }
    let target = Target::new(registry, "cuda", "none");
    let missing = found.missing();
    if let Some(reason) = missing {
        println!("all ignored: {reason}");
    }
    let own: [(&str, fn()); 12] = [
        ("a checkpoint is waited for while more is queued", a_checkpoint_is_waited_for_while_more_is_queued),
        ("a capture that was left open is ended by a wait", a_capture_that_was_left_open_is_ended_by_a_wait),
        ("kernels run and are replayed", kernels_run_and_are_replayed),
        (
            "the position is told by kernels, by writes and in replays",
            the_position_is_told_by_kernels_by_writes_and_in_replays,
        ),
        ("a kernel names its failure once", a_kernel_names_its_failure_once),
        ("scratch memory is each task's own and kept", scratch_memory_is_each_tasks_own_and_kept),
        ("too much memory is an error and no harm", too_much_memory_is_an_error_and_no_harm),
        ("memory is given back", memory_is_given_back),
        ("a missing device is named", a_missing_device_is_named),
        ("a device reaches itself and says whom it cannot", a_device_reaches_itself_and_says_whom_it_cannot),
        ("a stray write loses the device and says so", a_stray_write_loses_the_device_and_says_so),
        ("a kernel that is kept needs no compiler", a_kernel_that_is_kept_needs_no_compiler),
    ];
    let mut trials: Vec<Trial> = own
        .into_iter()
        .map(|(name, test)| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        })
        .collect();
    if let Ok(target) = target {
        // The cases that take no op: nccl-ops runs the others.
        for case in CASES.iter().filter(|case| case.missing(&target).is_none()) {
            trials.push(Trial::test(case.name, move || case.check(&target).map_err(Failed::from)));
        }
    }
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(missing.is_some())).collect();
    libtest_mimic::run(&args, trials).exit_code()
}
