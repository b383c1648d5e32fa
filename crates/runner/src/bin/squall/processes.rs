//! Which of a job's processes this is, as the flags and the launcher say.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use squall_core::{Diagnostic, Label};
use squall_rendezvous::{Flags, Identity, IdentityError, Place, TOKEN, identify};
use squall_runner::codes;
use squall_runner::render::count;
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
pub(crate) fn process(args: &ProcessArgs, limit: Duration) -> Result<Option<Process>, u8> {
    let identity = identity(args).map_err(|error| {
        let report = Diagnostic::error(codes::IDENTITY, error.to_string(), Label::default());
        let help = "`squall doctor` tells what is understood, and from which variables";
        output::diagnostics("", "", &[report.with_help(help)]);
        2
    })?;
    let Some(mut identity) = identity else { return Ok(None) };
    if let Some(prefix) = variable(PREFIX).map(|_| format!("[{}] ", identity.ranks.start)) {
        output::in_front(prefix);
    }
    if let Some(folder) = &args.log_dir {
        let name = folder.join(format!("rank-{}.log", identity.ranks.start));
        let made = std::fs::create_dir_all(folder).and_then(|()| std::fs::File::create(&name));
        let file =
            made.map_err(|error| output::fail(2, &format!("--log-dir: {}: {error}", name.display())))?;
        output::into_file(file);
    }
    let mut token = variable(TOKEN).unwrap_or_else(|| identity.job.clone()).into_bytes();
    let several = identity.ranks.len() < identity.world as usize;
    if several
        && identity.place.is_none()
        && LAUNCHES_MPI.contains(&identity.launcher)
        && squall_mpi_ops::BUILT
    {
        let (place, secret) = over_mpi(&identity, limit).map_err(|error| {
            output::fail_with(
                Some(codes::MEETING),
                4,
                &format!("the processes do not meet over MPI: {error}"),
            )
        })?;
        identity.place = Some(place);
        if variable(TOKEN).is_none() {
            token = secret;
        }
    }
    Ok(Some(Process { identity, token }))
}

/// Who starts processes that MPI knows of.
const LAUNCHES_MPI: [&str; 3] = ["Open MPI", "MPICH", "Slurm"];

/// Set by whoever starts several processes whose output goes to one place: each puts its rank before its lines.
pub(crate) const PREFIX: &str = "SQUALL_PREFIX_RANK";

/// Where to meet, and a secret, as rank 0 tells all by MPI.
fn over_mpi(identity: &Identity, limit: Duration) -> Result<(Place, Vec<u8>), String> {
    let mpi = squall_mpi_ops::Process::start().map_err(|error| error.to_string())?;
    let processes = identity.world / identity.ranks.len() as u32;
    if mpi.size() != processes {
        return Err(format!(
            "{} counts {}, and {} {}: squall was built with another MPI than that of the launcher",
            identity.launcher,
            count(processes, "rank"),
            mpi.library().lines().next().unwrap_or_default(),
            mpi.size()
        ));
    }
    let mut told = Vec::new();
    if mpi.rank() == 0 {
        let host = if mpi.is_one_host() { "127.0.0.1".to_string() } else { squall_rendezvous::host_name() };
        let ports = free_ports().map_err(|error| error.to_string())?;
        told = serde_json::to_vec(&(host, ports, secret()?)).map_err(|error| error.to_string())?;
    }
    let told = mpi.broadcast(&told, Instant::now() + limit).map_err(|error| error.to_string())?;
    let (host, ports, secret) =
        serde_json::from_slice::<(String, Vec<u16>, String)>(&told).map_err(|error| error.to_string())?;
    Ok((Place::Tcp { host, ports }, secret.into_bytes()))
}

/// Ports that nobody listens at now; several, since another may take one meanwhile.
pub(crate) fn free_ports() -> std::io::Result<Vec<u16>> {
    let held: Vec<TcpListener> = (0..4).map(|_| TcpListener::bind("0.0.0.0:0")).collect::<Result<_, _>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// A token that nobody can guess.
pub(crate) fn secret() -> Result<String, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random bytes: {error}"))?;
    Ok(STANDARD.encode(bytes))
}

/// Ends what the process shares with others, with the status that it is to have. Called last.
pub(crate) fn end(status: u8) -> u8 {
    let Some(mpi) = squall_mpi_ops::Process::started() else { return status };
    if status != 0 {
        // All has been said: what of MPI is in flight ends with the process, and the others with it.
        crate::ending::meant();
        squall_mpi_ops::Process::abort(status.into());
    }
    match mpi.finish() {
        Ok(()) => 0,
        Err(error) => output::fail(1, &format!("MPI does not end: {error}")),
    }
}

/// What `squall doctor` tells of it: a headline and lines.
pub(crate) fn findings() -> (String, Vec<String>) {
    match identity(&ProcessArgs::default()) {
        Ok(None) => ("processes: one, since no launcher's variables are set".to_string(), Vec::new()),
        Ok(Some(one)) => {
            let (launcher, world) = (one.launcher, count(one.world, "rank"));
            let ranks = match one.ranks.len() {
                1 => format!("rank {}", one.ranks.start),
                _ => format!("ranks {} to {}", one.ranks.start, one.ranks.end - 1),
            };
            let mut lines = one.sources;
            if one.place.is_none() && LAUNCHES_MPI.contains(&launcher) && squall_mpi_ops::BUILT {
                lines.push("where to meet is told over MPI".to_string());
            } else if one.place.is_none() {
                lines.push(
                    "where to meet is said nowhere: `squall run --rendezvous tcp://HOST:PORT` says it"
                        .to_string(),
                );
            }
            let token = match variable(TOKEN) {
                Some(_) => format!("the job's token is that of {TOKEN}"),
                None => {
                    format!("{TOKEN} is not set: the job's number tells jobs apart, and keeps no one out")
                }
            };
            lines.push(token);
            (format!("processes: this one has {ranks} of a job of {world}, by {launcher}"), lines)
        }
        Err(error) => {
            ("processes: what a launcher has set makes no sense".to_string(), vec![error.to_string()])
        }
    }
}
