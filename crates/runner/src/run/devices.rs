//! Which devices a job runs on, and so how many ranks it has.

use std::collections::BTreeSet;
use std::sync::Arc;

use squall_core::{Backend, Device, Diagnostic, Label, Registry, Span, World};

use super::RunError;
use crate::codes;
use crate::manifest::Manifest;
use crate::manifest::devices::{DeviceSpec, Devices, Which};

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
    let count = backend.count().map_err(|error| RunError::Environment(error.to_string()))?;
    if count == Some(0) {
        return Err(RunError::Environment(format!("there are no {kind} devices")));
    }
    // Before any list of that length is made.
    if let Some(ranks) = ranks(specs) {
        World::new(ranks).map_err(|error| refused(codes::WORLD, error.to_string(), span))?;
    }
    let mut indices = Vec::new();
    for spec in specs {
        match &spec.which {
            Which::One(index) => indices.push(*index),
            Which::Range(range) => indices.extend(range.clone()),
            Which::All => indices.extend(0..count.unwrap_or(1)),
        }
    }
    if let Some(count) = count
        && let Some(index) = indices.iter().find(|&&index| index >= count)
    {
        let message = format!("{kind}:{index} is asked for, and {count} {kind} devices are visible");
        return Err(RunError::Environment(message));
    }
    let mut seen = BTreeSet::new();
    if !backend.repeats()
        && let Some(index) = indices.iter().find(|&&index| !seen.insert(index))
    {
        let message = format!("two ranks are given {kind}:{index}, and one rank has one device");
        return Err(refused(codes::DEVICES, message, span).into());
    }
    Ok(Chosen { kind, indices, note: None })
}

/// The kind of the devices and how many ranks they make, without asking any device; the number is `None` when only
/// the machine knows.
///
/// # Errors
/// Devices of several kinds are refused; for a kind that this build lacks, nothing can be said of the ops.
pub fn world(
    registry: &Registry,
    manifest: &Manifest,
    instead: Option<&Devices>,
) -> Result<(&'static str, Option<u64>), RunError> {
    let (devices, span) = stated(manifest, instead);
    let (kind, ranks) = match devices {
        Devices::Listed(specs) => (one_kind(specs, span)?, ranks(specs)),
        Devices::Auto => ("host", None),
    };
    backend(registry, kind)?;
    Ok((kind, ranks))
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
    let gpus = registry.backend("cuda").and_then(|cuda| cuda.count().ok().flatten());
    if let Some(gpus @ 1..) = gpus {
        return Ok(Chosen { kind: "cuda", indices: (0..gpus).collect(), note: None });
    }
    backend(registry, "host")?;
    let note =
        "no GPU is usable here, so that `auto` takes one rank on the host; `--devices host:0..4` takes four";
    Ok(Chosen { kind: "host", indices: vec![0], note: Some(note.to_string()) })
}

impl Chosen {
    /// Opens the devices, one a rank.
    pub fn open(&self, registry: &Registry) -> Result<Vec<Arc<dyn Device>>, RunError> {
        let backend = backend(registry, self.kind)?;
        let open = |&index: &u32| {
            let failed = |error| RunError::Environment(format!("{}:{index}: {error}", self.kind));
            backend.open(index).map_err(failed)
        };
        self.indices.iter().map(open).collect()
    }

    /// The devices' names, by rank.
    pub fn names(&self) -> Vec<String> {
        self.indices.iter().map(|index| format!("{}:{index}", self.kind)).collect()
    }
}
