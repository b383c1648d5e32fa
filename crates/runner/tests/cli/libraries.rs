//! The libraries that GPUs need: when they are opened, and what is said where they are missing or broken. A driver made for the
//! tests stands in for NVIDIA's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::harness::{Ended, Folder, NOWHERE, scaled};

const ONES: &str = "init = { fill = 1 }";

/// The libraries by the names that the loader is asked for first.
const NAMES: [&str; 3] = ["libcuda.so.1", "libnvrtc.so.13", "libnccl.so.2"];

/// A library that leaves its file's name in the folder `OPENED` when it is opened, with as much of a driver as listing its
/// two devices takes; `cuInit` answers with the number `CU_INIT`, and `DEVICES` says how many devices there are.
const SOURCE: &str = r#"
use std::ffi::{CStr, c_char, c_void};

#[repr(C)]
struct Info { file: *const c_char, base: *const c_void, name: *const c_char, address: *const c_void }
unsafe extern "C" { fn dladdr(address: *const c_void, info: *mut Info) -> i32; }

#[used]
#[unsafe(link_section = ".init_array")]
static OPENED: extern "C" fn() = {
    extern "C" fn opened() {
        let mut info = Info { file: c"".as_ptr(), base: std::ptr::null(), name: c"".as_ptr(), address: std::ptr::null() };
        let file = unsafe { dladdr(opened as *const c_void, &mut info); CStr::from_ptr(info.file) };
        let file = std::path::Path::new(file.to_str().unwrap()).file_name().unwrap();
        let folder = std::env::var_os("OPENED").unwrap();
        std::fs::write(std::path::Path::new(&folder).join(file), "").unwrap();
    }
    opened
};

fn number(name: &str, or: i32) -> i32 { std::env::var(name).map_or(or, |n| n.parse().unwrap()) }
unsafe fn put<T>(place: *mut T, value: T) -> i32 { unsafe { place.write(value) }; 0 }

macro_rules! unused { ($($name:ident)*) => { $(#[unsafe(no_mangle)] extern "C" fn $name() -> i32 { 999 })* } }
unused! {
    cuCtxEnablePeerAccess cuCtxSetCurrent cuDeviceCanAccessPeer cuDevicePrimaryCtxRetain cuGraphDestroy cuGraphExecDestroy cuGraphInstantiateWithFlags
    cuGraphLaunch cuLaunchKernel cuMemAlloc_v2 cuMemFreeHost cuMemFree_v2
    cuMemGetInfo_v2 cuMemHostAlloc cuMemcpyAsync cuMemsetD8Async cuModuleGetFunction
    cuModuleLoadData cuStreamBeginCapture_v2 cuStreamCreate cuStreamDestroy_v2 cuStreamEndCapture
    cuStreamQuery cuStreamSynchronize cuStreamWriteValue32_v2 cuStreamWriteValue64_v2
}
#[unsafe(no_mangle)] unsafe extern "C" fn cuDriverGetVersion(v: *mut i32) -> i32 { unsafe { put(v, number("VERSION", 13000)) } }
#[unsafe(no_mangle)] extern "C" fn cuInit(_: u32) -> i32 { number("CU_INIT", 0) }
#[unsafe(no_mangle)] unsafe extern "C" fn cuGetErrorName(_: i32, t: *mut *const c_char) -> i32 { unsafe { put(t, c"CUDA_ERROR_UNKNOWN".as_ptr()) } }
#[unsafe(no_mangle)] unsafe extern "C" fn cuGetErrorString(_: i32, t: *mut *const c_char) -> i32 { unsafe { put(t, c"unknown error".as_ptr()) } }
#[unsafe(no_mangle)] unsafe extern "C" fn cuDeviceGetCount(n: *mut i32) -> i32 { unsafe { put(n, number("DEVICES", 2)) } }
#[unsafe(no_mangle)] unsafe extern "C" fn cuDeviceGet(d: *mut i32, ordinal: i32) -> i32 { unsafe { put(d, ordinal) } }
#[unsafe(no_mangle)] unsafe extern "C" fn cuDeviceGetName(t: *mut [u8; 9], _: i32, _: i32) -> i32 { unsafe { put(t, *b"Test GPU\0") } }
#[unsafe(no_mangle)] unsafe extern "C" fn cuDeviceGetPCIBusId(t: *mut [u8; 13], _: i32, d: i32) -> i32 { unsafe { put(t, *b"0000:10:00.0\0"); put(t.cast::<u8>().add(6), b'0' + d as u8) } }
#[unsafe(no_mangle)] unsafe extern "C" fn cuDeviceGetUuid_v2(t: *mut [u8; 16], d: i32) -> i32 { unsafe { put(t, [0xa0 + d as u8; 16]) } }
#[unsafe(no_mangle)] unsafe extern "C" fn cuDeviceTotalMem_v2(n: *mut usize, _: i32) -> i32 { unsafe { put(n, 143771 << 20) } }
#[unsafe(no_mangle)] unsafe extern "C" fn cuDeviceGetAttribute(n: *mut i32, a: i32, _: i32) -> i32 { unsafe { put(n, if a == 75 { 9 } else { 0 }) } }
"#;

/// The library, compiled once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, file) = LIBRARY.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (source, file) = (folder.path().join("fake.rs"), folder.path().join("fake.so"));
        std::fs::write(&source, SOURCE).unwrap();
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        rustc.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=fake", "-Cpanic=abort"]);
        let ended =
            Ended::of(rustc.args(["-Anon_snake_case", "-o"]).arg(&file).arg(&source).output().unwrap());
        ended.done();
        (folder, file)
    });
    file
}

/// A folder with a manifest, and below it the libraries and a folder for what was opened.
struct Machine(Folder);

impl Machine {
    /// All three libraries are the one made for the tests; the last two lack all that they should have.
    fn new() -> Machine {
        let folder = Folder::with(&scaled(ONES));
        std::fs::create_dir_all(folder.path("opened")).unwrap();
        std::fs::create_dir_all(folder.path("lib")).unwrap();
        for name in NAMES {
            std::fs::copy(library(), folder.path("lib").join(name)).unwrap();
        }
        std::os::unix::fs::symlink(NAMES[0], folder.path("lib/libcuda.so")).unwrap();
        Machine(folder)
    }

    /// A command of which the loader finds the driver, and no variable names it.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.command(args);
        command.env("OPENED", self.0.path("opened")).env("LD_LIBRARY_PATH", self.0.path("lib"));
        command.env_remove("SQUALL_CUDA_DRIVER");
        command
    }

    fn squall(&self, args: &[&str]) -> Ended {
        Ended::of(self.command(args).output().unwrap())
    }

    fn opened(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path("opened")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Commands that need no GPU.
const APART: &[&[&str]] = &[
    &["run", "m.toml"],
    &["run", "m.toml", "--devices", "host:0..3", "--json"],
    &["compare", "m.toml", "--with", "host"],
    &["check", "m.toml"],
    &["check", "m.toml", "--devices", "auto"],
    &["check", "m.toml", "--devices", "cuda:0..2"],
    &["check", "m.toml", "--devices", "cuda", "--world", "1000"],
    &["plan", "m.toml"],
    &["plan", "m.toml", "--devices", "cuda:0..2"],
    &["list"],
    &["list", "kernels"],
    &["list", "ops"],
    &["list", "plugins"],
    &["--help"],
];

#[test]
fn what_needs_no_gpu_opens_no_library() {
    let machine = Machine::new();
    let named = |args: &[&str]| {
        let mut command = machine.command(args);
        for ((variable, _), name) in NOWHERE.into_iter().zip(NAMES) {
            command.env(variable, machine.0.path("lib").join(name));
        }
        command
    };
    let by_the_loader = |args: &[&str]| {
        let mut command = machine.command(args);
        NOWHERE.iter().for_each(|(variable, _)| {
            command.env_remove(variable);
        });
        command
    };
    for command in [&named as &dyn Fn(&[&str]) -> Command, &by_the_loader] {
        for args in APART {
            Ended::of(command(args).output().unwrap()).done();
            assert_eq!(machine.opened(), [""; 0], "{args:?}");
        }
        Ended::of(command(&["list", "devices"]).output().unwrap()).done();
        assert_eq!(machine.opened(), [NAMES[0]]);
        Ended::of(command(&["doctor"]).output().unwrap()).done();
        let mut all = NAMES;
        all.sort();
        assert_eq!(machine.opened(), all);
        all.iter().for_each(|name| std::fs::remove_file(machine.0.path("opened").join(name)).unwrap());
    }
}

#[test]
fn a_run_on_gpus_without_any_says_what_is_missing_in_doctors_words() {
    let folder = Folder::with(&scaled(ONES));
    let doctor = folder.squall(&["doctor"]).done().out;
    let (_, section) = doctor.split_once("cuda: no device is usable\n").unwrap();
    let (section, _) = section.split_once("\n\n").unwrap();
    let error = format!("error[E0313]: no cuda device is usable here:\n{section}\n");
    for devices in ["cuda", "cuda:0", "cuda:1,cuda:1"] {
        let ended = folder.squall(&["run", "m.toml", "--devices", devices]).failed(4, &[]);
        assert_eq!(ended.err, error);
    }
    let compared = folder.squall(&["compare", "m.toml", "--with", "cuda"]).failed(4, &[]);
    assert_eq!(compared.err, error);
    for (variable, file) in NOWHERE {
        assert!(error.contains(&format!("as {variable} says:\n      {file}: cannot open")), "{error}");
    }
}

/// Where no variable is set, each library is found, or every place is told, and how to get it.
#[test]
fn what_is_missing_is_told_with_every_place_and_how_to_get_it() {
    let folder = Folder::new();
    // The first place for wheels, with a file of the right name.
    folder.write("env/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2", b"this is no library");
    let mut command = folder.command(&["doctor"]);
    NOWHERE.iter().for_each(|(variable, _)| {
        command.env_remove(variable);
    });
    let doctor = Ended::of(command.env("VIRTUAL_ENV", folder.path("env")).output().unwrap()).done().out;
    let absent = ": cannot open shared object file: No such file or directory\n";
    for (name, found, names, install) in [
        (
            "the NVIDIA driver",
            "driver of CUDA ",
            "libcuda.so.1, libcuda.so",
            "packages `nvidia-driver` and `libcuda1`",
        ),
        ("NVRTC", "NVRTC ", "libnvrtc.so.13, libnvrtc.so.12, libnvrtc.so", "`pip install nvidia-cuda-nvrtc`"),
        ("NCCL", "NCCL ", "libnccl.so.2", "`pip install nvidia-nccl-cu13`"),
    ] {
        if doctor.contains(&format!("\n    {name} cannot be opened:\n      {names}{absent}")) {
            let told =
                doctor.lines().filter(|line| line.starts_with("    install ") && line.contains(install));
            assert_eq!(told.count(), 1, "{doctor}");
        } else {
            assert!(doctor.contains(&format!("\n    {found}")), "{name}: {doctor}");
        }
    }
    if doctor.contains("    NCCL cannot be opened:\n") {
        let file = folder.path("env").canonicalize().unwrap();
        assert!(
            doctor.contains("/env/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2: "),
            "{file:?} {doctor}"
        );
        if doctor.contains("    NVRTC cannot be opened:\n") {
            assert!(doctor.contains("`pip install nvidia-cuda-nvrtc nvidia-nccl-cu13`\n"), "{doctor}");
        }
    }
}

#[test]
fn files_of_the_right_names_that_are_no_libraries_are_told_with_the_loaders_reasons() {
    let machine = Machine::new();
    for name in NAMES {
        std::fs::write(machine.0.path("lib").join(name), "this is no library").unwrap();
    }
    let ended = machine.squall(&["run", "m.toml", "--devices", "cuda"]).failed(4, &[]);
    let (_, told) = ended.err.split_once("    the NVIDIA driver cannot be opened:\n").unwrap();
    let places: Vec<&str> = told.lines().take_while(|line| line.starts_with("      ")).collect();
    // Both names lead to one file, and the loader names each.
    assert_eq!(places.len(), 2, "{ended:#?}");
    for (place, name) in places.iter().zip(["libcuda.so.1", "libcuda.so"]) {
        assert!(place.starts_with(&format!("      {name}: ")), "{ended:#?}");
        assert!(place.contains(&format!("/lib/{name}: ")) && !place.contains("No such file"), "{ended:#?}");
    }
}

#[test]
fn libraries_that_lack_functions_are_refused_by_their_files() {
    let machine = Machine::new();
    let mut command = machine.command(&["doctor"]);
    let lib = machine.0.path("lib").canonicalize().unwrap();
    for ((variable, _), name) in NOWHERE.into_iter().zip(NAMES).skip(1) {
        command.env(variable, lib.join(name));
    }
    // Something else by the driver's name.
    for name in ["libcuda.so.1", "libcuda.so"] {
        std::fs::remove_file(lib.join(name)).unwrap();
        std::os::unix::fs::symlink(libc(), lib.join(name)).unwrap();
    }
    let doctor = Ended::of(command.output().unwrap()).done().out;
    let file = |name: &str| lib.join(name).display().to_string();
    let driver = libc().canonicalize().unwrap().display().to_string();
    for line in [
        format!(
            "the NVIDIA driver {driver} cannot be used: it is no driver of CUDA 12.0 or newer: it has no `cuDriverGetVersion`: "
        ),
        format!("{} is no NVRTC that can be used: it has no `nvrtcVersion`: ", file("libnvrtc.so.13")),
        format!("{} is no NCCL that can be used: it has no `ncclGetVersion`: ", file("libnccl.so.2")),
    ] {
        assert!(doctor.contains(&format!("\n    {line}")), "{line}\n{doctor}");
    }
}

/// The bindings look for the driver by the loader's rules alone, so that the variable cannot choose against these.
#[test]
fn a_second_copy_of_the_driver_is_refused() {
    let machine = Machine::new();
    std::fs::create_dir(machine.0.path("other")).unwrap();
    let other = machine.0.path("other").canonicalize().unwrap().join(NAMES[0]);
    std::fs::copy(library(), &other).unwrap();
    let mut command = machine.command(&["run", "m.toml", "--devices", "cuda"]);
    let ended = Ended::of(command.env("SQUALL_CUDA_DRIVER", &other).output().unwrap());
    let first = machine.0.path("lib").canonicalize().unwrap().join(NAMES[0]);
    let said = format!(
        "the NVIDIA driver {other} cannot be used: another copy of it is found by the name `libcuda.so` ({}, {other}); ",
        first.display(),
        other = other.display()
    );
    ended.failed(4, &[&said]);
}

/// A library that every process has: its file.
fn libc() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    path.map(PathBuf::from)
        .find(|path| path.file_name().unwrap().to_string_lossy().starts_with("libc.so"))
        .unwrap()
}

#[test]
fn auto_tells_in_a_line_why_it_takes_no_gpu() {
    let machine = Machine::new();
    let driver = machine.0.path("lib/libcuda.so.1").canonicalize().unwrap().display().to_string();
    let auto = |variable: &str, value: &str| {
        let mut command = machine.command(&["run", "m.toml", "--devices", "auto"]);
        Ended::of(command.env(variable, value).output().unwrap()).done()
    };
    for (variable, value, reason) in [
        (
            "CU_INIT",
            "999",
            format!("the NVIDIA driver {driver} cannot be used: cuInit: CUDA_ERROR_UNKNOWN: unknown error"),
        ),
        (
            "VERSION",
            "11040",
            format!("the NVIDIA driver {driver} cannot be used: it is of CUDA 11.4, and 12.0 is the oldest"),
        ),
        ("DEVICES", "0", format!("no CUDA device is visible to the driver of CUDA 13.0 from {driver}")),
    ] {
        let ended = auto(variable, value);
        let note = format!(
            "note: no GPU is usable here ({reason}; `squall doctor` tells more), so that `auto` takes one rank on the host; "
        );
        assert!(ended.err.starts_with(&note) && ended.err.lines().count() == 1, "{note}\n{ended:#?}");
        assert!(ended.out.contains(" on host:0 in "), "{ended:#?}");
    }
    // cuInit's own answer where there is no device.
    let ended = Ended::of(
        machine
            .command(&["run", "m.toml", "--devices", "cuda"])
            .env("CU_INIT", "100")
            .env("CUDA_VISIBLE_DEVICES", "")
            .output()
            .unwrap(),
    );
    let said = "no CUDA device is visible to the driver of CUDA 13.0 from ";
    let ended = ended.failed(4, &[said, "; CUDA_VISIBLE_DEVICES is ``\n"]);
    assert_eq!(ended.count(said), 1, "{ended:#?}");
}

#[test]
fn gpus_are_listed_and_those_that_are_not_there_refused() {
    let machine = Machine::new();
    let uuid = |digits: &str| {
        format!("GPU-{}-{1}-{1}-{1}-{2}", digits.repeat(4), digits.repeat(2), digits.repeat(6))
    };
    let device = |index: u32| {
        let (bus, uuid) = (format!("0000:1{index}:00.0"), uuid(&format!("a{index}")));
        format!("    cuda:{index} Test GPU, compute capability 9.0, 143771 MiB, bus {bus}, {uuid}\n")
    };
    let devices = device(0) + &device(1);
    let list = machine.squall(&["list", "devices"]).done().out;
    assert!(list.starts_with(&format!("cuda: 2\n{devices}    ops by nccl")), "{list}");
    let doctor = machine.squall(&["doctor"]).done().out;
    let order = [
        "cuda: 2 devices\n    driver of CUDA 13.0 from ",
        devices.as_str(),
        "    NVRTC cannot be opened",
        "    NCCL cannot be opened",
    ];
    let at: Vec<Option<usize>> = order.iter().map(|part| doctor.find(part)).collect();
    assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{at:?}\n{doctor}");

    let run = |devices: &str| machine.squall(&["run", "m.toml", "--devices", devices]);
    let missing = "error[E0313]: rank 1 is given cuda:7, and 2 devices are visible here; `squall list devices` shows them\n";
    assert_eq!(run("cuda:0,cuda:7").failed(4, &[]).err, missing);
    run("cuda:1..3").failed(4, &["rank 1 is given cuda:2, and 2 devices"]);
    let twice = run("cuda:1,cuda:0,cuda:1").failed(2, &["error[E0313]: ranks 0 and 2 are both given cuda:1"]);
    assert!(twice.err.contains("help: name cuda devices that differ"), "{twice:#?}");
}
