//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use squall_runner::manifest::devices::Devices;

/// Multi-GPU pipelines from a manifest: verified before they run.
#[derive(Debug, Parser)]
#[command(name = "squall", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What squall does. Each verb stands in a module of its name.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Verify a manifest, then run it.
    Run(RunArgs),
    /// Parse, resolve and verify a manifest for any world size, without any device.
    Check(CheckArgs),
}

/// A manifest, and what may be set in it from outside.
#[derive(Debug, Args)]
pub(crate) struct ManifestArgs {
    /// The manifest.
    #[arg(value_name = "MANIFEST.toml")]
    pub(crate) manifest: PathBuf,
    /// Set a param, as `n=8192` or `n=64Mi`; may be given several times.
    #[arg(long = "set", value_name = "PARAM=VALUE")]
    pub(crate) set: Vec<String>,
    /// The devices, one a rank: `auto`, `host:0..4`, `cuda`, `cuda:1,cuda:0`.
    #[arg(long, value_name = "DEVICES", value_parser = parse_devices)]
    pub(crate) devices: Option<Devices>,
}

/// `squall run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
    /// Steps to run, in place of the manifest's.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: Option<u64>,
    /// Print one JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `squall check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
    /// Number of ranks, in place of the devices' number.
    #[arg(long, value_name = "N")]
    pub(crate) world: Option<u64>,
    /// Treat warnings as errors.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
}

fn parse_devices(text: &str) -> Result<Devices, String> {
    Devices::parse(text).map_err(|error| match error.help {
        Some(help) => format!("{}; {help}", error.message),
        None => error.message,
    })
}
