//! The command `squall`: one module a verb, over the library.

mod args;
mod check;
mod compare;
mod doctor;
mod ending;
mod explain;
mod launch;
mod list;
mod new;
mod output;
mod plan;
mod plugin;
mod processes;
mod progress;
mod run;
mod signals;
mod source;

use std::process::ExitCode;

use clap::Parser as _;

// The providers of this build. A crate that nothing names is not linked, and its registrations would vanish.
#[cfg(feature = "cuda")]
use squall_cuda_backend as _;
#[cfg(feature = "host")]
use squall_host_backend as _;
use squall_kernels_std as _;
use squall_mpi_ops as _;
#[cfg(feature = "nccl")]
use squall_nccl_ops as _;

use args::{Cli, Verb};

fn main() -> ExitCode {
    // Usage errors end the process here, with status 2; `--help` and `--version` with 0.
    let cli = Cli::parse();
    ending::guard();
    let status = match squall_core::Registry::linked() {
        Ok(registry) => match cli.verb {
            Verb::Run(args) => run::run(&registry, &args),
            Verb::Compare(args) => compare::compare(&registry, &args),
            Verb::Check(args) => check::check(&registry, &args),
            Verb::Plan(args) => plan::plan(&registry, &args),
            Verb::List(args) => list::list(&registry, &args),
            Verb::Plugin(args) => plugin::plugin(&registry, &args),
            Verb::Explain(args) => explain::explain(&args),
            Verb::New(args) => new::new(&registry, &args),
            Verb::Doctor => doctor::doctor(&registry),
        },
        Err(duplicate) => output::fail(2, &duplicate.to_string()),
    };
    let status = processes::end(status);
    ending::meant();
    ExitCode::from(status)
}
