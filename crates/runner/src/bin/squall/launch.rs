//! `squall run --processes N`: N processes of this program on this machine, for convenience.

use std::ffi::OsString;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use squall_core::Registry;
use squall_rendezvous::TOKEN;
use squall_runner::run::{NO_MPI, devices};

use crate::args::RunArgs;
use crate::output;
use crate::processes::{PREFIX, free_ports, secret};
use crate::source::Source;

/// How long processes may take to end by themselves once one has failed: they have its error to tell.
const GRACE: Duration = Duration::from_secs(15);

/// How often to look at them.
const LOOKING: Duration = Duration::from_millis(5);

/// Starts the processes and gives the status of the first that fails.
pub(crate) fn launch(registry: &Registry, args: &RunArgs, processes: u32) -> u8 {
    let kind = {
        let source = match Source::load(registry, &args.manifest) {
            Ok(source) => source,
            Err(status) => return status,
        };
        match devices::choose(&source.registry, &source.manifest, args.manifest.devices.as_ref()) {
            Ok(chosen) => chosen.kind,
            Err(error) => return source.fail(&error),
        }
    };
    match start(args, processes, kind) {
        Ok(children) => watch(children),
        Err((status, message)) => output::fail(status, &message),
    }
}

/// The arguments of this process without those that are for it alone.
fn passed_on() -> Vec<OsString> {
    let mut passed = Vec::new();
    let mut args = std::env::args_os().skip(1);
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--processes") => drop(args.next()),
            Some(text) if text.starts_with("--processes=") => {}
            _ => passed.push(arg),
        }
    }
    passed
}

fn start(args: &RunArgs, processes: u32, kind: &str) -> Result<Vec<Child>, (u8, String)> {
    let failed = |error: std::io::Error| (4, format!("no process can be started: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let token = secret().map_err(|error| (4, error))?;
    if kind == "host" {
        if !squall_mpi_ops::BUILT {
            return Err((4, format!("ranks on the host in several processes speak MPI, and {NO_MPI}")));
        }
        let mut command = Command::new("mpirun");
        command.arg("-n").arg(processes.to_string()).arg(program).args(passed_on());
        let child = command.env(TOKEN, token).env(PREFIX, "1").spawn();
        return child.map(|child| vec![child]).map_err(|error| {
            (4, format!("`mpirun` cannot be started: {error}; install MPI's launcher, on Debian the package openmpi-bin"))
        });
    }
    let each = args.process.local_ranks.unwrap_or(1);
    let world =
        processes.checked_mul(each).ok_or((2, "--processes is more than a job can have".to_string()))?;
    let port = free_ports().map_err(failed)?.first().copied().unwrap_or_default();
    let mut children: Vec<Child> = Vec::new();
    for process in 0..processes {
        let mut command = Command::new(&program);
        command.args(passed_on());
        command.args(["--world", &world.to_string(), "--rank", &(process * each).to_string()]);
        if args.process.rendezvous.is_none() {
            command.args(["--rendezvous", &format!("tcp://127.0.0.1:{port}")]);
        }
        match command.env(TOKEN, &token).env(PREFIX, "1").spawn() {
            Ok(child) => children.push(child),
            Err(error) => {
                children.iter_mut().for_each(|child| drop(child.kill()));
                return Err(failed(error));
            }
        }
    }
    Ok(children)
}

/// Waits for all, ends them when one fails, and passes signals on.
fn watch(mut children: Vec<Child>) -> u8 {
    let signals = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The terminal's own go to all by themselves; a second one, after the first was passed on, ends them.
        let _ = signal_hook::flag::register_usize(signal, signals.clone(), signal as usize);
    }
    let mut first: Option<(u8, Instant)> = None;
    let mut running: Vec<bool> = vec![true; children.len()];
    while running.contains(&true) {
        match signals.swap(0, Ordering::Relaxed) {
            0 => {}
            signal if signal == SIGINT as usize => {}
            _ => children.iter().for_each(terminate),
        }
        for (child, running) in children.iter_mut().zip(&mut running).filter(|(_, running)| **running) {
            let Ok(Some(status)) = child.try_wait() else { continue };
            *running = false;
            if !status.success() && first.is_none() {
                first = Some((of(status), Instant::now()));
            }
        }
        if first.is_some_and(|(_, since)| since.elapsed() > GRACE) {
            children.iter_mut().for_each(|child| drop(child.kill()));
        }
        thread::sleep(LOOKING);
    }
    first.map_or(0, |(status, _)| status)
}

/// As a shell would say it.
fn of(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return u8::try_from(128 + signal).unwrap_or(1);
    }
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(unix)]
fn terminate(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

#[cfg(not(unix))]
fn terminate(_: &Child) {}
