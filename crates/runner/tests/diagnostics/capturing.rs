//! Devices `cuda` that would capture, if any could be opened, and a library whose one op may not be captured.

use std::sync::Arc;

use squall_core::registry::Item;
use squall_core::{
    ArgError, Args, Backend, Description, Device, DeviceError, Diagnostic, LibraryOp, Needs, OpCall, OpError,
    ParamDef, Prepare, Registry, Task, Work, ops,
};
use squall_runner::manifest::{self, Manifest};
use squall_runner::resolve::resolve;
use squall_runner::run;

/// All that is linked, with these devices, and the library `eager` on them and on the host.
pub(crate) fn registry() -> Registry {
    let mut registry = Registry::linked().unwrap();
    for item in [Item::Backend(&Capturing), Item::Op(&EagerSum("cuda")), Item::Op(&EagerSum("host"))] {
        registry.add(&item, "this test").unwrap();
    }
    registry
}

/// What `check` says of a manifest for two ranks on devices of a kind.
pub(crate) fn check(registry: &Registry, manifest: &Manifest, kind: &str) -> Vec<Diagnostic> {
    let verified = resolve(manifest, registry, 2, kind).and_then(|job| run::verified(registry, &job));
    verified.err().map(|problems| problems.0).unwrap_or_default()
}

#[test]
fn a_step_is_refused_only_where_it_would_be_captured() {
    let (registry, text) = (registry(), include_str!("uncaptured.toml"));
    let parsed = |text: &str| manifest::parse(text).unwrap().0;
    assert_eq!(check(&registry, &parsed(text), "cuda").len(), 1);
    assert_eq!(check(&registry, &parsed(text), "host"), [], "a host device captures nothing");
    let eager = text.replace("cuda_graph = true", "cuda_graph = false");
    assert_eq!(check(&registry, &parsed(&eager), "cuda"), []);
}

struct Capturing;

impl Backend for Capturing {
    fn kind(&self) -> &'static str {
        "cuda"
    }
    fn default_library(&self) -> &'static str {
        "eager"
    }
    fn count(&self) -> Result<Option<u32>, DeviceError> {
        Ok(Some(2))
    }
    fn repeats(&self) -> bool {
        false
    }
    fn captures(&self) -> bool {
        true
    }
    fn open(&self, _: u32) -> Result<Arc<dyn Device>, DeviceError> {
        Err(DeviceError::Unsupported("a job that is refused opens no device".to_string()))
    }
    fn findings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// `all_reduce` on devices of a kind.
struct EagerSum(&'static str);

impl Task for EagerSum {
    fn name(&self) -> &'static str {
        Task::name(&ops::ALL_REDUCE)
    }
    fn summary(&self) -> &'static str {
        Task::summary(&ops::ALL_REDUCE)
    }
    fn params(&self) -> &'static [ParamDef] {
        Task::params(&ops::ALL_REDUCE)
    }
    fn example(&self) -> &'static str {
        Task::example(&ops::ALL_REDUCE)
    }
    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        ops::ALL_REDUCE.describe(args)
    }
}

impl LibraryOp for EagerSum {
    fn library(&self) -> &'static str {
        "eager"
    }
    fn device(&self) -> &'static str {
        self.0
    }
    fn needs(&self) -> Needs {
        Needs { captures: false, ..Needs::NONE }
    }
    unsafe fn prepare(&self, _: &[OpCall<'_>], _: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        Err(DeviceError::Unsupported("a job that is refused prepares nothing".to_string()).into())
    }
}
