//! What `squall plugin check` tries of the kernels and ops that somebody brings: everything that their examples can show, and for those that
//! serve one of squall's own ops the suite that every backend passes.
//!
//! An example is a manifest that runs its task at any number of ranks ([`Task::example`]).

use std::path::Path;
use std::time::Duration;

use squall_core::conformance::{CASES, Target};
use squall_core::ops::CONTRACTS;
use squall_core::registry::Item;
use squall_core::{Cover, DType, HostCall, Interrupt, KernelDef, Registry, Task};

use crate::compare::{self, Tolerance, Tolerances};
use crate::manifest::devices::Devices;
use crate::manifest::{self, Manifest};
use crate::resolve::resolve;
use crate::run::{self, Readings, Request, RunError, Watcher};

/// Numbers of ranks that an example is proven for.
const PROVEN: [u64; 6] = [1, 2, 3, 4, 7, 64];
/// Numbers of ranks that it is run with on the host; on GPUs as many of these as there are.
const RUN: [u32; 4] = [1, 2, 3, 4];
/// Steps of each run: a second one shows what the first left behind.
const STEPS: u64 = 3;
/// How long ranks that wait for one that failed may take.
const RELEASE: Duration = Duration::from_secs(10);

/// What came of one trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not; why.
    Failed(String),
    /// It was not tried; why.
    LeftOut(String),
}

/// Tries all that `origin` brought to the registry, and tells of each trial as it ends: what was tried, and what came of it. Writes no
/// file. Returns whether a rank was left behind that does not end: then the process should end without its exit handlers.
pub fn try_all(registry: &Registry, origin: &str, tell: &mut dyn FnMut(&str, Outcome)) -> bool {
    let mut leaked = false;
    for (kernel, _) in registry.kernels().filter(|(_, from)| *from == origin) {
        let kinds: Vec<&str> = ["host", "cuda"].into_iter().filter(|kind| kernel.runs_on(kind)).collect();
        let subject = Subject {
            registry,
            task: kernel,
            what: format!("kernel `{}`", kernel.name),
            kinds,
            meets: false,
        };
        leaked |= subject.try_all(tell);
    }
    let mut tried: Vec<&str> = Vec::new();
    for (op, _) in registry.ops().filter(|(_, from)| *from == origin) {
        if tried.contains(&op.name()) {
            continue;
        }
        tried.push(op.name());
        if CONTRACTS.iter().any(|contract| contract.name() == op.name()) {
            continue; // its example names no library: the suite below tries it
        }
        let served = registry.ops().filter(|(other, from)| other.name() == op.name() && *from == origin);
        let kinds: Vec<&str> = served.map(|(op, _)| op.device()).collect();
        let subject = Subject { registry, task: op, what: format!("op `{}`", op.name()), kinds, meets: true };
        leaked |= subject.try_all(tell);
    }
    suite(registry, origin, tell);
    leaked
}

/// A kernel or an op, with the kinds of devices that it is there for.
struct Subject<'a> {
    registry: &'a Registry,
    task: &'a dyn Task,
    what: String,
    kinds: Vec<&'a str>,
    /// Whether it may wait for other ranks.
    meets: bool,
}

impl Subject<'_> {
    fn try_all(&self, tell: &mut dyn FnMut(&str, Outcome)) -> bool {
        let what = &self.what;
        let manifest = match self.example() {
            Ok(manifest) => manifest,
            Err(why) => {
                tell(&format!("{what} has an example"), Outcome::Failed(why));
                return false;
            }
        };
        tell(&format!("{what} has an example"), Outcome::Passed);
        let mut leaked = false;
        for &kind in &self.kinds {
            let proof = self.proven(&manifest, kind);
            let holds = proof.is_ok();
            tell(
                &format!("{what}: its example is proven on {kind} devices, at {} ranks", listed(PROVEN)),
                judged(proof),
            );
            if holds {
                leaked |= self.runs(&manifest, kind, tell);
            }
        }
        leaked
    }

    fn example(&self) -> Result<Manifest, String> {
        if self.task.example().is_empty() {
            return Err("it is empty".to_string());
        }
        let (manifest, _) = manifest::parse(self.task.example()).map_err(|problems| first(&problems))?;
        let name = self.task.name();
        let quoted = [format!("\"{name}\""), format!("'{name}'")];
        match quoted.iter().any(|name| self.task.example().contains(name.as_str())) {
            true => Ok(manifest),
            false => Err(format!("it does not name `{name}`")),
        }
    }

    fn proven(&self, manifest: &Manifest, kind: &str) -> Result<(), String> {
        if self.registry.backend(kind).is_none() {
            return Err(format!("this squall has no `{kind}` backend"));
        }
        for world in PROVEN {
            let refused =
                |problems: squall_core::Problems| format!("at {world} ranks: {}", first(&problems.0));
            let job = resolve(manifest, self.registry, world, kind).map_err(refused)?;
            run::verified(self.registry, &job).map_err(refused)?;
        }
        Ok(())
    }

    /// Runs the example on one kind of device.
    fn runs(&self, manifest: &Manifest, kind: &str, tell: &mut dyn FnMut(&str, Outcome)) -> bool {
        let what = &self.what;
        let worlds = match self.worlds(kind) {
            Ok(worlds) => worlds,
            Err(why) => {
                tell(&format!("{what} runs on {kind} devices"), Outcome::LeftOut(why));
                return false;
            }
        };
        let same = match (kind, self.kinds.contains(&"host")) {
            ("host", _) => "gives the same bits twice",
            (_, true) => "gives what it gives on the host",
            (_, false) => "runs to its end",
        };
        let ran = worlds.iter().try_for_each(|&world| {
            let result = match (kind, self.kinds.contains(&"host")) {
                ("host", _) => compared(self.registry, manifest, "host", world, exactly()),
                ("cuda", true) => compared(self.registry, manifest, "cuda", world, Tolerances::default()),
                _ => ran(self.registry, manifest, kind, world),
            };
            result.map_err(|error| format!("at {world} ranks: {error}"))
        });
        let holds = ran.is_ok();
        tell(&format!("{what} {same}, on {} {kind} devices", listed(&worlds)), judged(ran));
        let Some(&world) = worlds.last().filter(|&&world| self.meets && holds && world > 1 && kind == "host")
        else {
            return false;
        };
        let (released, leaked) = released(self.registry, manifest, world);
        tell(
            &format!("{what} releases the others when one of {world} ranks fails, on {kind} devices"),
            judged(released),
        );
        leaked
    }

    fn worlds(&self, kind: &str) -> Result<Vec<u32>, String> {
        let missing = || format!("this squall has no `{kind}` backend");
        let backend = self.registry.backend(kind).ok_or_else(missing)?;
        let devices =
            backend.count().map_err(|error| error.to_string().lines().take(1).collect::<String>())?;
        let worlds: Vec<u32> =
            RUN.into_iter().filter(|&world| devices.is_none_or(|devices| world <= devices)).collect();
        if worlds.is_empty() { Err(format!("there is no {kind} device")) } else { Ok(worlds) }
    }
}

/// The suite for ops of squall's own that a library of `origin` serves.
fn suite(registry: &Registry, origin: &str, tell: &mut dyn FnMut(&str, Outcome)) {
    let mut libraries: Vec<(&str, &str)> = Vec::new();
    for (op, _) in registry.ops().filter(|(_, from)| *from == origin) {
        let own = CONTRACTS.iter().any(|contract| contract.name() == op.name());
        if own && !libraries.contains(&(op.device(), op.library())) {
            libraries.push((op.device(), op.library()));
        }
    }
    for (device, library) in libraries {
        let name = |case: &str| format!("library `{library}` on {device} devices: {case}");
        let target = match Target::new(registry, device, library) {
            Ok(target) => target,
            Err(why) => {
                tell(&name("the suite of its ops"), Outcome::LeftOut(why.lines().take(1).collect()));
                continue;
            }
        };
        for case in CASES.iter().filter(|case| case.takes_ops() && case.missing(&target).is_none()) {
            tell(&name(case.name), judged(case.check(&target)));
        }
    }
}

fn devices(kind: &str, world: u32) -> Result<Devices, String> {
    Devices::parse(&format!("{kind}:0..{world}")).map_err(|error| error.message)
}

fn request<'a>(manifest: &'a Manifest, devices: &'a Devices) -> Request<'a> {
    Request {
        manifest,
        folder: Path::new("."),
        file: None,
        devices: Some(devices),
        steps: Some(STEPS),
        process: None,
    }
}

/// No float may differ.
fn exactly() -> Tolerances {
    let mut tolerances = Tolerances::default();
    for &dtype in DType::FLOATS {
        tolerances.set(dtype, Tolerance { relative: 0.0, absolute: 0.0 });
    }
    tolerances
}

/// Runs the manifest on the host and on the devices, and holds what every task writes side by side.
fn compared(
    registry: &Registry,
    manifest: &Manifest,
    with: &'static str,
    world: u32,
    tolerances: Tolerances,
) -> Result<(), String> {
    let devices = devices(with, world)?;
    let request = compare::Request { run: request(manifest, &devices), with, tolerances, each: false };
    compare::compare(registry, &request, &mut Silent).map(|_| ()).map_err(|error| in_words(&error))
}

/// Runs the manifest, without its outputs.
fn ran(registry: &Registry, manifest: &Manifest, kind: &str, world: u32) -> Result<(), String> {
    let devices = devices(kind, world)?;
    let manifest = unsaved(manifest);
    run::run(registry, &request(&manifest, &devices), &mut Silent)
        .map(|_| ())
        .map_err(|error| in_words(&error))
}

/// Runs the manifest with a task before all others that fails on the last rank: the others, which wait for it in their ops, must
/// be released. The second value says whether one never was.
fn released(registry: &Registry, manifest: &Manifest, world: u32) -> (Result<(), String>, bool) {
    let outcome = || {
        let mut registry = registry.clone();
        registry.add(&Item::Kernel(&FAILS), "squall").map_err(|error| error.to_string())?;
        let (failing, _) = manifest::parse(FAILING).map_err(|problems| first(&problems))?;
        let mut manifest = unsaved(manifest);
        manifest.tasks.splice(0..0, failing.tasks);
        manifest.pipeline.step_timeout.value = RELEASE;
        let devices = devices("host", world)?;
        Ok(run::run(&registry, &request(&manifest, &devices), &mut Silent).map(|_| ()))
    };
    match outcome() {
        Err(why) => (Err(why), false),
        Ok(Ok(())) => (Err("the run ended well although a rank failed".to_string()), false),
        Ok(Err(error)) if error.has_leaked() => {
            let text =
                format!("ranks do not return; an op that waits must ask whether it is aborted: {error}");
            (Err(text), true)
        }
        Ok(Err(error)) if error.to_string().contains(ON_PURPOSE) => (Ok(()), false),
        Ok(Err(error)) => (Err(in_words(&error)), false),
    }
}

/// The manifest, which writes no file.
fn unsaved(manifest: &Manifest) -> Manifest {
    let mut manifest = manifest.clone();
    manifest.buffers.iter_mut().for_each(|buffer| buffer.save = None);
    manifest.checkpoint = None;
    manifest
}

const ON_PURPOSE: &str = "fails on purpose";

static FAILS: KernelDef = KernelDef {
    name: "squall_check_fails",
    summary: "fails on purpose",
    covers: &[Cover::Any],
    host: Some(&fails),
    ..KernelDef::EMPTY
};

fn fails(_: &HostCall<'_>) -> Result<(), String> {
    Err(ON_PURPOSE.to_string())
}

const FAILING: &str = r#"manifest = 1
[[task]]
name = "squall-check-fails"
kernel = "squall_check_fails"
when = "rank == world - 1"
grid = { threads = 1, block = 1 }
"#;

/// Is told how a run goes on, and tells nobody.
struct Silent;

impl Watcher for Silent {
    fn note(&mut self, _: &str) {}
    fn begin(&mut self, _: u64, _: &Interrupt) {}
    fn readings(&mut self, _: &Readings) {}
}

fn judged(result: Result<(), String>) -> Outcome {
    result.map_or_else(Outcome::Failed, |()| Outcome::Passed)
}

fn in_words(error: &RunError) -> String {
    error.diagnostics().map_or_else(|| error.to_string(), |problems| first(&problems))
}

/// The first of some diagnostics, in a line.
fn first(problems: &[squall_core::Diagnostic]) -> String {
    let Some(problem) = problems.first() else { return "it is refused".to_string() };
    let help = problem.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    format!("{}: {}{help}", problem.code, problem.message)
}

fn listed<T: ToString>(numbers: impl IntoIterator<Item = T>) -> String {
    numbers.into_iter().map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
}
