//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use squall_core::DType;
use squall_core::world::MAX_WORLD;
use squall_rendezvous::Place;
use squall_runner::compare::Tolerance;
use squall_runner::manifest::devices::{BACKENDS, Devices};

/// Multi-GPU pipelines from a manifest: verified before they run.
///
/// Exit status: 0 done; 1 a run failed, or a comparison found a difference; 2 the manifest, the command line or a named file is wrong, or verification
/// refused it; 3 a deadline passed; 4 the environment lacks something that the run needs; 130 interrupted.
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
    /// Run a manifest on the host and on other devices in lockstep, and name the first task and buffer that differ.
    Compare(CompareArgs),
    /// Parse, resolve and verify a manifest for any world size, without any device.
    Check(CheckArgs),
    /// Tell what each rank will do, in order, with sizes, grids, peers and bytes.
    Plan(PlanArgs),
    /// Tell what a diagnostic's code means, why it is refused, and how to mend it.
    Explain(ExplainArgs),
    /// List what this build offers, with signatures and the grid each kernel wants.
    List(ListArgs),
    /// Look at a plugin.
    Plugin(PluginArgs),
    /// Write the beginning of something of your own.
    New(NewArgs),
    /// Tell what was found on this machine, and what to install; exits 0 whatever is missing.
    Doctor,
}

/// A manifest, and what may be set in it from outside.
#[derive(Debug, Args)]
pub(crate) struct ManifestArgs {
    /// The manifest.
    #[arg(value_name = "MANIFEST.toml")]
    pub(crate) manifest: PathBuf,
    /// Set a param, as `n=8192`, `n=64Mi` or `counts=[1,2]`; may be given several times, and of one param the last counts.
    #[arg(long = "set", value_name = "PARAM=VALUE")]
    pub(crate) set: Vec<String>,
    /// The devices, one a rank: `auto`, `host:0..4`, `cuda`, `cuda:1,cuda:0`.
    #[arg(long, value_name = "DEVICES", value_parser = parse_devices)]
    pub(crate) devices: Option<Devices>,
    #[command(flatten)]
    pub(crate) plugins: PluginsArg,
}

/// Plugins beside those that a manifest names.
#[derive(Debug, Args)]
pub(crate) struct PluginsArg {
    /// A plugin to load, beside those that the manifest names: a dynamic library, relative to the current folder. May be given several
    /// times. Its code runs.
    #[arg(long = "plugin", value_name = "PATH")]
    pub(crate) plugin: Vec<PathBuf>,
}

/// `squall run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
    /// Steps to run, in place of the manifest's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: Option<u64>,
    /// Go on from the newest whole checkpoint that an earlier run of the manifest has left in the folder of its `[checkpoint]`.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Print one JSON object on standard output, and nothing else there. Of a job of several processes, the one with rank 0 does.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    /// Start so many processes of this command on this machine, and end with the first that fails. Clusters have launchers of their own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WORLD)), conflicts_with_all = ["world", "rank"])]
    pub(crate) processes: Option<u32>,
}

/// Which of a job's processes this is, where no launcher says so.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "One of several processes")]
pub(crate) struct ProcessArgs {
    /// Ranks of the whole job, of which this process runs some; a launcher such as torchrun, mpirun or srun tells by itself.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WORLD)))]
    pub(crate) world: Option<u32>,
    /// This process's first rank.
    #[arg(long, value_name = "R")]
    pub(crate) rank: Option<u32>,
    /// Ranks of each process, one after the other.
    #[arg(long, value_name = "L", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WORLD)))]
    pub(crate) local_ranks: Option<u32>,
    /// Where the processes meet: `tcp://HOST:PORT`, where rank 0 listens, or `file:PATH` on a file system that all share.
    #[arg(long, value_name = "PLACE")]
    pub(crate) rendezvous: Option<Place>,
    /// How long to wait for the others, and for all to be made ready, in place of the manifest's `init_timeout`.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) init_timeout: Option<Duration>,
    /// Keep what each process prints in a file of its own there, too, by its first rank: `rank-0.log`.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) log_dir: Option<PathBuf>,
}

/// `squall compare`.
///
/// Every rank waits for each of its tasks, so that no step is captured; nothing is saved.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
    /// The kind of the devices to compare with the host, `cuda` or `host`: as many as the manifest names, unless `--devices` says which.
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    pub(crate) with: &'static str,
    /// Steps to run, in place of the manifest's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: Option<u64>,
    /// How far elements of a float dtype may lie apart: `f32=1e-4` for `1e-4 × |host| + 1e-4`, `f32=1e-4,0` for the two parts
    /// one after the other. May be given several times. Integers are compared exactly.
    ///
    /// Without it, f64: 1e-12,1e-12; f32: 1e-5,1e-5; f16: 4e-3,1e-3; bf16: 3e-2,8e-3.
    #[arg(long = "tolerance", value_name = "DTYPE=REL[,ABS]", value_parser = Tolerance::parse)]
    pub(crate) tolerance: Vec<(DType, Tolerance)>,
    /// Give every task the host's values once it was compared, and go on: each is judged alone, and all that differ are named.
    #[arg(long)]
    pub(crate) each: bool,
    /// Print one JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `squall check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
    /// Number of ranks, in place of the devices' number; or a range of numbers, each of which is checked: `1..65` is 1 to 64.
    #[arg(long, value_name = "N|A..B", value_parser = parse_worlds)]
    pub(crate) world: Option<Worlds>,
    /// Treat warnings as errors.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// Print JSON on standard output: an object a line for each diagnostic, and one for each number of ranks.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Numbers of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worlds {
    One(u64),
    /// From the first to the last.
    Range(u64, u64),
}

/// `squall explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Codes, as they stand in diagnostics: `E0227`. All codes are listed where none is given.
    #[arg(value_name = "CODE")]
    pub(crate) codes: Vec<String>,
}

/// `squall plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
    #[command(flatten)]
    pub(crate) world: WorldArg,
    /// Tell of this rank alone.
    #[arg(long, value_name = "R")]
    pub(crate) rank: Option<u32>,
}

/// The number of ranks, for verbs that need no device.
#[derive(Debug, Args)]
pub(crate) struct WorldArg {
    /// Number of ranks, in place of the devices' number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=u64::from(MAX_WORLD)))]
    pub(crate) world: Option<u64>,
}

/// `squall list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// What to list; everything if left out.
    pub(crate) what: Option<Listing>,
    #[command(flatten)]
    pub(crate) plugins: PluginsArg,
}

/// `squall plugin`.
#[derive(Debug, Args)]
pub(crate) struct PluginArgs {
    #[command(subcommand)]
    pub(crate) what: PluginWhat,
}

/// What can be done with a plugin.
#[derive(Debug, Subcommand)]
pub(crate) enum PluginWhat {
    /// Load it, list what is inside, and try all of it on the host, and on GPUs where there are any. Exits 0 if all holds.
    Check {
        /// The dynamic library.
        path: PathBuf,
        /// Other plugins that it needs, loaded before it.
        #[command(flatten)]
        plugins: PluginsArg,
    },
}

/// `squall new`.
#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    #[command(subcommand)]
    pub(crate) what: NewWhat,
}

/// What can be begun.
#[derive(Debug, Subcommand)]
pub(crate) enum NewWhat {
    /// A plugin in Rust, in a new folder of its name: a crate that builds, with an op that runs on the host and on GPUs.
    Plugin {
        /// The name of the crate, such as `my-op`; the op gets it with `_` for `-`.
        name: String,
        /// A checkout of squall, whose crates the plugin is to build on; by default the one that this program was built from.
        #[arg(long, value_name = "FOLDER")]
        squall: Option<PathBuf>,
    },
}

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listing {
    /// Kernels, each with its parameters and the grid it wants.
    Kernels,
    /// Ops, each with its parameters and who serves it on which devices.
    Ops,
    /// Kinds of devices, and which of them this machine has.
    Devices,
    /// The plugins that `--plugin` names, and what each brings.
    Plugins,
}

fn parse_devices(text: &str) -> Result<Devices, String> {
    Devices::parse_list(text).map_err(|error| match error.help {
        Some(help) => format!("{}; {help}", error.message),
        None => error.message,
    })
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    squall_runner::manifest::parse_duration(text).map_err(|error| error.message)
}

fn parse_kind(text: &str) -> Result<&'static str, String> {
    let kind = BACKENDS.iter().copied().find(|kind| *kind == text);
    kind.ok_or_else(|| format!("no kind of device; one of {}", BACKENDS.join(", ")))
}

fn parse_worlds(text: &str) -> Result<Worlds, String> {
    let most = u64::from(MAX_WORLD);
    let number = |text: &str| text.parse::<u64>().ok().filter(|&number| (1..=most + 1).contains(&number));
    let form = || format!("write a number of ranks from 1 to {most}, or a range such as `1..65`");
    match text.split_once("..") {
        None => number(text).filter(|&number| number <= most).map(Worlds::One).ok_or_else(form),
        Some((first, end)) => {
            let (first, end) = number(first).zip(number(end)).ok_or_else(form)?;
            if first >= end {
                return Err(format!("the range is empty: its end, {end}, is left out; {}", form()));
            }
            Ok(Worlds::Range(first, end - 1))
        }
    }
}
