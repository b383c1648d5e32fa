//! Which devices a job runs on, and so how many ranks it has.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_core::{Backend, Device, DeviceError, Diagnostic, Label, Registry, Span, World};

use super::RunError;
use crate::manifest::Manifest;
use crate::manifest::devices::{DeviceSpec, Devices, Which};
use crate::{codes, machine, render};

/// The devices of a job, not yet opened: rank r's is `indices[r]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The backend.
    pub kind: &'static str,
    /// Its devices, by rank.
    pub indices: Vec<u32>,
    /// What the user should know of the choice.
    pub note: Option<String>,
}

/// Chooses the devices of a run: `instead` of the manifest's, if given. Asks backends how many devices there are, but
/// opens none.
///
/// # Errors
/// A choice that no machine could serve is refused; one that this machine or this build cannot serve is an error of the
/// environment.
pub fn choose(
    registry: &Registry,
    manifest: &Manifest,
    instead: Option<&Devices>,
) -> Result<Chosen, RunError> {
    let (devices, span) = stated(manifest, instead);
    let Devices::Listed(specs) = devices else { return auto(registry) };
    let kind = one_kind(specs, span)?;
    let backend = backend(registry, kind)?;
    let count = backend.count().map_err(|_| none(registry, backend))?;
    if count == Some(0) {
        return Err(RunError::Environment(format!("there are no {kind} devices")));
    }
    let indices = indices(specs, count.unwrap_or(1), span)?;
    if let Some(count) = count
        && let Some((rank, index)) = indices.iter().enumerate().find(|&(_, &index)| index >= count)
    {
        let (visible, are) = (render::count(count, "device"), if count == 1 { "is" } else { "are" });
        let message = format!(
            "rank {rank} is given {kind}:{index}, and {visible} {are} visible here; `squall list devices` shows them"
        );
        return Err(RunError::Environment(message));
    }
    apart(backend, &indices, span)?;
    Ok(Chosen { kind, indices, note: None })
}

/// The devices' indices by rank, where the machine has so many.
fn indices(specs: &[DeviceSpec], all: u32, span: Option<Span>) -> Result<Vec<u32>, RunError> {
    // Before any list of that length is made.
    if let Some(ranks) = ranks(specs) {
        World::new(ranks).map_err(|error| refused(codes::WORLD, error.to_string(), span))?;
    }
    let mut indices = Vec::new();
    for spec in specs {
        match &spec.which {
            Which::One(index) => indices.push(*index),
            Which::Range(range) => indices.extend(range.clone()),
            Which::All => indices.extend(0..all),
        }
    }
    Ok(indices)
}

/// Refuses one device for two ranks, where devices do not repeat.
fn apart(backend: &dyn Backend, indices: &[u32], span: Option<Span>) -> Result<(), RunError> {
    match shared(indices) {
        Some((first, second, index)) if !backend.repeats() => {
            let kind = backend.kind();
            let message = format!("ranks {first} and {second} are both given {kind}:{index}");
            let help = format!("name {kind} devices that differ: each has room for one rank");
            Err(refused(codes::DEVICES, message, span).with_help(help).into())
        }
        _ => Ok(()),
    }
}

/// The first two ranks that are given one device.
fn shared(indices: &[u32]) -> Option<(usize, usize, u32)> {
    let mut ranks = BTreeMap::new();
    indices
        .iter()
        .enumerate()
        .find_map(|(rank, index)| ranks.insert(index, rank).map(|first| (first, rank, *index)))
}

/// That no device of a kind can be used, in the words of `squall doctor`.
fn none(registry: &Registry, backend: &dyn Backend) -> RunError {
    let (_, lines) = machine::report(registry, backend);
    let lines: String = lines.iter().map(|line| format!("\n    {line}")).collect();
    RunError::Environment(format!("no {} device is usable here:{lines}", backend.kind()))
}

/// The kind of the devices and how many ranks they make, without asking any device; the number is `None` when only
/// the machine knows.
///
/// # Errors
/// Devices of several kinds are refused, and one for two ranks where devices do not repeat; for a kind that this build lacks,
/// nothing can be said of the ops.
pub fn world(
    registry: &Registry,
    manifest: &Manifest,
    instead: Option<&Devices>,
) -> Result<(&'static str, Option<u64>), RunError> {
    let (devices, span) = stated(manifest, instead);
    let Devices::Listed(specs) = devices else {
        backend(registry, "host")?;
        return Ok(("host", None));
    };
    let kind = one_kind(specs, span)?;
    let (backend, ranks) = (backend(registry, kind)?, ranks(specs));
    // Which device a rank has is known where no entry means all of them.
    if ranks.is_some() {
        apart(backend, &indices(specs, 0, span)?, span)?;
    }
    Ok((kind, ranks))
}

/// That [`world`] cannot tell the number of ranks, and how to say it.
pub fn unknown_world(manifest: &Manifest, instead: Option<&Devices>, kind: &str) -> RunError {
    let (_, span) = stated(manifest, instead);
    let message = format!(
        "how many ranks `{kind}` makes is known to the machine alone, which `check` and `plan` do not ask"
    );
    let help = format!(
        "give the number of ranks, as `--world 2`, or name the devices, as `--devices {kind}:0..2` or `--devices host:0..2`"
    );
    refused(codes::DEVICES, message, span).with_help(help).into()
}

/// The devices that count, and where the manifest names them.
fn stated<'a>(manifest: &'a Manifest, instead: Option<&'a Devices>) -> (&'a Devices, Option<Span>) {
    match instead {
        Some(devices) => (devices, None),
        None => (&manifest.world.devices.value, manifest.world.devices.span),
    }
}

fn one_kind(specs: &[DeviceSpec], span: Option<Span>) -> Result<&'static str, RunError> {
    let kind = specs.first().map_or("host", |spec| spec.backend);
    match specs.iter().find(|spec| spec.backend != kind) {
        Some(other) => {
            let message = format!("a job runs on devices of one kind, not on {kind} and {}", other.backend);
            let help = format!("name {kind} devices alone, or {} devices alone", other.backend);
            Err(refused(codes::DEVICES, message, span).with_help(help).into())
        }
        None => Ok(kind),
    }
}

fn refused(code: squall_core::Code, message: String, span: Option<Span>) -> Diagnostic {
    Diagnostic::error(code, message, Label::at(span, ""))
}

/// How many ranks these devices make; `None` when only the machine knows.
pub(crate) fn ranks(specs: &[DeviceSpec]) -> Option<u64> {
    let counts = specs.iter().map(|spec| match &spec.which {
        Which::One(_) => Some(1),
        Which::Range(range) => Some(u64::from(range.end.saturating_sub(range.start))),
        Which::All => None,
    });
    counts.sum()
}

fn backend(registry: &Registry, kind: &str) -> Result<&'static dyn Backend, RunError> {
    registry.backend(kind).ok_or_else(|| RunError::Environment(format!("this build has no `{kind}` backend")))
}

/// All GPUs, or else one rank on the host.
fn auto(registry: &Registry) -> Result<Chosen, RunError> {
    let reason = match registry.backend("cuda").map(Backend::count) {
        Some(Ok(Some(gpus @ 1..))) => {
            return Ok(Chosen { kind: "cuda", indices: (0..gpus).collect(), note: None });
        }
        // A driver that is broken must not pass for a machine without a GPU.
        Some(Err(error)) => format!("{}; `squall doctor` tells more", headline(&error.to_string())),
        Some(Ok(_)) => "there are none".to_string(),
        None => "this build has no `cuda` backend".to_string(),
    };
    backend(registry, "host")?;
    let note = format!(
        "no GPU is usable here ({reason}), so that `auto` takes one rank on the host; `--devices host:0..4` takes four"
    );
    Ok(Chosen { kind: "host", indices: vec![0], note: Some(note) })
}

/// The first line of a text that may go on with a list.
pub fn headline(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end_matches(':')
}

impl Chosen {
    /// Opens the devices, one a rank.
    pub fn open(&self, registry: &Registry) -> Result<Vec<Arc<dyn Device>>, RunError> {
        let backend = backend(registry, self.kind)?;
        let open = |&index: &u32| {
            let id = format!("{}:{index}", self.kind);
            let failed = |error: DeviceError| RunError::Environment(format!("{id}: {}", error.of(&id)));
            backend.open(index).map_err(failed)
        };
        self.indices.iter().map(open).collect()
    }

    /// The devices' names, by rank.
    pub fn names(&self) -> Vec<String> {
        self.indices.iter().map(|index| format!("{}:{index}", self.kind)).collect()
    }
}
