//! The manifest that a verb is about, read and set from the command line.

use std::path::Path;

use squall_core::{Diagnostic, Problems, Registry, Verified};
use squall_runner::files::read_manifest;
use squall_runner::manifest::{self, Manifest};
use squall_runner::plugin::{self, Wanted};
use squall_runner::resolve::{Job, resolve};
use squall_runner::run::{RunError, devices, verified};

use crate::args::ManifestArgs;
use crate::output;

/// A manifest with its text.
pub(crate) struct Source<'a> {
    args: &'a ManifestArgs,
    pub(crate) text: String,
    pub(crate) manifest: Manifest,
    pub(crate) warnings: Vec<Diagnostic>,
    /// What is linked, with all plugins.
    pub(crate) registry: Registry,
}

impl<'a> Source<'a> {
    /// Reads the manifest, sets what `--set` says, and loads the plugins that it and `--plugin` name. Warnings are printed; so is what is
    /// wrong, and its exit status returned.
    pub(crate) fn load(registry: &Registry, args: &'a ManifestArgs) -> Result<Source<'a>, u8> {
        let name = args.manifest.display().to_string();
        let bytes = read_manifest(&args.manifest).map_err(|error| output::fail(2, &error.to_string()))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (mut manifest, warnings) = manifest::parse_bytes(&bytes).map_err(|problems| {
            output::diagnostics(&name, &text, &problems);
            2
        })?;
        output::diagnostics(&name, &text, &warnings);
        for assignment in &args.set {
            manifest.set(assignment).map_err(|problem| {
                output::diagnostics("--set", assignment, &[*problem]);
                2
            })?;
        }
        let folder = args.manifest.parent().unwrap_or(Path::new(""));
        let options = args.plugins.plugin.iter().map(|path| Wanted::option(path));
        let wanted: Vec<Wanted> = options.chain(Wanted::of(&manifest, folder)).collect();
        let loaded = plugin::load(registry, &wanted).map_err(|problems| {
            output::diagnostics(&name, &text, &problems.0);
            2
        })?;
        Ok(Source { args, text, manifest, warnings, registry: loaded.registry })
    }

    /// Prints diagnostics over the manifest.
    pub(crate) fn show(&self, diagnostics: &[Diagnostic]) {
        output::diagnostics(&self.name(), &self.text, diagnostics);
    }

    /// The manifest's name, as the user gave it.
    pub(crate) fn name(&self) -> String {
        self.args.manifest.display().to_string()
    }

    /// The folder that file names in the manifest are relative to.
    pub(crate) fn folder(&self) -> &'a Path {
        self.args.manifest.parent().unwrap_or(Path::new(""))
    }

    /// Prints what is wrong, over the manifest where it has a place there; returns its exit status.
    pub(crate) fn fail(&self, error: &RunError) -> u8 {
        let Some(diagnostics) = error.diagnostics() else {
            let status = output::fail_with(error.code(), error.exit_status(), &error.to_string());
            if error.has_leaked() {
                // Not through the exit handlers: a GPU's driver waits in them for a kernel that does not end. All is printed.
                signal_hook::low_level::exit(status.into());
            }
            return status;
        };
        output::diagnostics(&self.name(), &self.text, &diagnostics);
        if !self.args.set.is_empty() {
            output::note(&format!("set on the command line: {}", self.args.set.join(", ")));
        }
        error.exit_status()
    }

    /// Resolves and verifies the manifest for `world` ranks, or as many as its devices make, without asking for any
    /// device. What is wrong is printed, and its exit status returned.
    pub(crate) fn verified(&self, world: Option<u64>) -> Result<(Job<'_>, Verified), u8> {
        let (world, kind) = self.world(world)?;
        self.judged(world, kind).map_err(|problems| self.fail(&problems.into()))
    }

    /// Resolves and verifies the manifest for so many ranks on devices of a kind, and prints nothing.
    pub(crate) fn judged(&self, world: u64, kind: &str) -> Result<(Job<'_>, Verified), Problems> {
        let job = resolve(&self.manifest, &self.registry, world, kind)?;
        let verified = verified(&self.registry, &job)?;
        Ok((job, verified))
    }

    /// The number of ranks, and the kind of their devices. What is wrong is printed, and its exit status returned.
    pub(crate) fn world(&self, world: Option<u64>) -> Result<(u64, &'static str), u8> {
        let chosen = devices::world(&self.registry, &self.manifest, self.args.devices.as_ref());
        let (kind, listed) = chosen.map_err(|error| {
            let status = self.fail(&error);
            if matches!(error, RunError::Environment(_)) {
                output::note("`--devices host:0..N` looks at the same manifest for N ranks on the host");
            }
            status
        })?;
        // What `run` does with `auto` where there are no GPUs.
        let world = world.or(listed).or((kind == "host").then_some(1));
        let world = world.ok_or_else(|| {
            self.fail(&devices::unknown_world(&self.manifest, self.args.devices.as_ref(), kind))
        })?;
        Ok((world, kind))
    }
}
