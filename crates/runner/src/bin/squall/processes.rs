//! Which of a job's processes this is, as the flags and the launcher say.

use squall_core::{Diagnostic, Label};
use squall_rendezvous::{Flags, Identity, IdentityError, TOKEN, identify};
use squall_runner::codes;
use squall_runner::run::Process;

use crate::args::ProcessArgs;
use crate::output;

impl ProcessArgs {
    fn flags(&self) -> Flags {
        Flags {
            world: self.world,
            rank: self.rank,
            local_ranks: self.local_ranks,
            rendezvous: self.rendezvous.clone(),
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What the flags and the environment say; `None` for a job of one process.
pub(crate) fn identity(args: &ProcessArgs) -> Result<Option<Identity>, IdentityError> {
    identify(&args.flags(), &variable)
}

/// This process among those of its job; `None` for a job of one. What makes no sense is printed, and its exit status returned.
pub(crate) fn process(args: &ProcessArgs) -> Result<Option<Process>, u8> {
    let identity = identity(args).map_err(|error| {
        let report = Diagnostic::error(codes::IDENTITY, error.to_string(), Label::default());
        output::diagnostics("", "", &[report.with_help("`squall doctor` tells what is understood, and from which variables")]);
        2
    })?;
    Ok(identity.map(|identity| {
        let token = variable(TOKEN).unwrap_or_else(|| identity.job.clone()).into_bytes();
        Process { identity, token }
    }))
}

/// What `squall doctor` tells of it: a headline and lines.
pub(crate) fn findings() -> (String, Vec<String>) {
    match identity(&ProcessArgs::default()) {
        Ok(None) => ("processes: one, since no launcher's variables are set".to_string(), Vec::new()),
        Ok(Some(one)) => {
            let (launcher, world) = (one.launcher, squall_runner::render::count(one.world, "rank"));
            let ranks = match one.ranks.len() {
                1 => format!("rank {}", one.ranks.start),
                _ => format!("ranks {} to {}", one.ranks.start, one.ranks.end - 1),
            };
            let mut lines = one.sources;
            if one.place.is_none() {
                lines.push("where to meet is said nowhere: `squall run --rendezvous tcp://HOST:PORT` says it".to_string());
            }
            let token = match variable(TOKEN) {
                Some(_) => format!("the job's token is that of {TOKEN}"),
                None => format!("{TOKEN} is not set: the job's number tells jobs apart, and keeps no one out"),
            };
            lines.push(token);
            (format!("processes: this one has {ranks} of a job of {world}, by {launcher}"), lines)
        }
        Err(error) => ("processes: what a launcher has set makes no sense".to_string(), vec![error.to_string()]),
    }
}
