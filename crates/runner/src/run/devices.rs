//! Which devices a job runs on, and so how many ranks it has.

use std::sync::Arc;

use squall_core::{Device, Registry};

use super::RunError;
use crate::manifest::devices::{Devices, Which};

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

/// Chooses the devices of a run: asks backends how many there are, but opens none.
pub fn choose(registry: &Registry, devices: &Devices) -> Result<Chosen, RunError> {
    let Devices::Listed(specs) = devices else { return auto(registry) };
    let kind = kind(devices)?;
    let mut indices = Vec::new();
    for spec in specs {
        match &spec.which {
            Which::One(index) => indices.push(*index),
            Which::Range(range) => indices.extend(range.clone()),
            Which::All => indices.extend(0..count(registry, kind)?),
        }
    }
    if registry.backend(kind).is_none() {
        return Err(RunError::Environment(format!("this build has no `{kind}` backend")));
    }
    if let Ok(Some(count)) = registry.backend(kind).map_or(Ok(None), |backend| backend.count())
        && let Some(index) = indices.iter().find(|&&index| index >= count)
    {
        return Err(RunError::Environment(format!(
            "{kind}:{index} is asked for, and {count} {kind} devices are visible"
        )));
    }
    Ok(Chosen { kind, indices, note: None })
}

/// How many ranks the devices make and of which kind, without asking any backend; `None` when only the machine knows.
pub fn world(devices: &Devices) -> Result<(&'static str, Option<u64>), RunError> {
    let Devices::Listed(specs) = devices else { return Ok(("host", None)) };
    let mut world = Some(0u64);
    for spec in specs {
        world = match &spec.which {
            Which::One(_) => world.map(|n| n + 1),
            Which::Range(range) => world.map(|n| n + range.len() as u64),
            Which::All => None,
        };
    }
    Ok((kind(devices)?, world))
}

fn kind(devices: &Devices) -> Result<&'static str, RunError> {
    let Devices::Listed(specs) = devices else { return Ok("host") };
    let kind = specs.first().map_or("host", |spec| spec.backend);
    match specs.iter().find(|spec| spec.backend != kind) {
        Some(other) => {
            let message = format!(
                "a job runs on devices of one kind, not on `{kind}` and `{}` together",
                other.backend
            );
            Err(RunError::Environment(message))
        }
        None => Ok(kind),
    }
}

fn count(registry: &Registry, kind: &str) -> Result<u32, RunError> {
    let missing = || RunError::Environment(format!("this build has no `{kind}` backend"));
    match registry.backend(kind).ok_or_else(missing)?.count() {
        Ok(Some(0)) => Err(RunError::Environment(format!("there are no {kind} devices"))),
        Ok(count) => Ok(count.unwrap_or(1)),
        Err(error) => Err(RunError::Environment(error.to_string())),
    }
}

/// All GPUs, or else one rank on the host.
fn auto(registry: &Registry) -> Result<Chosen, RunError> {
    if let Ok(gpus @ 1..) = count(registry, "cuda") {
        return Ok(Chosen { kind: "cuda", indices: (0..gpus).collect(), note: None });
    }
    let note =
        "no GPU is usable here, so that `auto` takes one rank on the host; `--devices host:0..4` takes four";
    Ok(Chosen { kind: "host", indices: vec![0], note: Some(note.to_string()) })
}

impl Chosen {
    /// Opens the devices, one a rank; ranks that share a device share its handle.
    pub fn open(&self, registry: &Registry) -> Result<Vec<Arc<dyn Device>>, RunError> {
        let Some(backend) = registry.backend(self.kind) else {
            return Err(RunError::Environment(format!("this build has no `{}` backend", self.kind)));
        };
        let open = |&index: &u32| {
            backend
                .open(index)
                .map_err(|error| RunError::Environment(format!("{}:{index}: {error}", self.kind)))
        };
        self.indices.iter().map(open).collect()
    }

    /// The devices' names, by rank.
    pub fn names(&self) -> Vec<String> {
        self.indices.iter().map(|index| format!("{}:{index}", self.kind)).collect()
    }
}
