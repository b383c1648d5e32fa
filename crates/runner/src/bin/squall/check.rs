//! `squall check`: parse, resolve and verify, without any device.

use squall_core::{Registry, verify};
use squall_runner::manifest::devices::Devices;
use squall_runner::resolve::resolve;
use squall_runner::run::devices;

use crate::args::CheckArgs;
use crate::output::{self, Source};

pub(crate) fn check(registry: &Registry, args: &CheckArgs) -> u8 {
    let loaded = match crate::run::load(&args.manifest) {
        Ok(loaded) => loaded,
        Err(status) => return status,
    };
    let source = Source { path: &args.manifest.manifest, text: &loaded.text };
    output::diagnostics(&source, &loaded.warnings);
    let chosen: &Devices = args.manifest.devices.as_ref().unwrap_or(&loaded.manifest.world.devices.value);
    let (kind, listed) = match devices::world(chosen) {
        Ok(world) => world,
        Err(error) => return output::fail(2, &error.to_string()),
    };
    let Some(world) = args.world.or(listed).or((kind == "host").then_some(1)) else {
        return output::fail(
            2,
            &format!("how many {kind} devices there are is known to the machine alone; give `--world N`"),
        );
    };
    let result = resolve(&loaded.manifest, registry, world, kind).and_then(|job| verify(job.graphs));
    match result {
        Err(problems) => {
            output::diagnostics(&source, &problems.0);
            2
        }
        Ok(_) if args.deny_warnings && !loaded.warnings.is_empty() => 2,
        Ok(verified) => {
            let tasks: usize = verified.graphs().iter().map(|graph| graph.len()).sum();
            output::line(&format!(
                "{}: {world} ranks, {tasks} tasks, verified (plan {:032x})",
                args.manifest.manifest.display(),
                verified.plan_hash()
            ));
            0
        }
    }
}
