//! A run as one of the processes of a job: which ranks are its own, and the meeting with the others.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use squall_core::{
    Backend, Device, DeviceError, Diagnostic, Ending, EndingKind, Label, Options, PlanGroup, Registry,
    Verified,
};
use squall_rendezvous::{Agreed, Identity, Invitation, Meeting, meet};

use super::devices::{self, Chosen};
use super::{Request, RunError, Schedule};
use crate::codes;
use crate::plugin::in_use;
use crate::resolve::Job;

/// The library by which the host's ranks of several processes speak to each other.
const MPI: &str = "mpi";

/// How long to wait, after a run, for what the others still have to do, where steps have no limit of their own.
const PARTING: Duration = Duration::from_secs(60);

/// This process among those of a job, for [`Request::process`].
#[derive(Clone, Debug)]
pub struct Process {
    /// Which ranks it has, and of how many.
    pub identity: Identity,
    /// What only the processes of the job know; else what tells jobs apart.
    pub token: Vec<u8>,
}

/// The ranks that this process runs, and on which devices.
pub(super) struct Part<'a> {
    process: Option<&'a Process>,
    pub(super) kind: &'static str,
    pub(super) world: u64,
    /// The devices of this process's ranks; of a process that has met nobody yet, all that the machine is said to have.
    chosen: Chosen,
}

impl<'a> Part<'a> {
    /// Chooses devices, and asks none.
    pub(super) fn of(registry: &Registry, request: &Request<'a>) -> Result<Part<'a>, RunError> {
        let chosen = devices::choose(registry, request.manifest, request.devices)?;
        let process = request.process;
        let world = match process {
            Some(process) => process.identity.world.into(),
            None => chosen.indices.len() as u64,
        };
        Ok(Part { process, kind: chosen.kind, world, chosen })
    }

    /// What the user should know of the choice.
    pub(super) fn note(&self) -> Option<&str> {
        // A world that others chose has as many ranks as they say.
        self.chosen.note.as_deref().filter(|_| self.process.is_none())
    }

    /// Whether there are other processes.
    fn others(&self) -> Option<&'a Process> {
        self.process.filter(|process| process.identity.ranks.len() < process.identity.world as usize)
    }

    /// This process's ranks.
    pub(super) fn ranks(&self) -> Range<u32> {
        match self.process {
            Some(process) => process.identity.ranks.clone(),
            None => 0..self.chosen.indices.len() as u32,
        }
    }

    /// What serves ops, where they must reach other processes.
    pub(super) fn registry(&self, mut registry: Registry) -> Registry {
        if self.others().is_some() && registry.library(MPI, self.kind).is_some() {
            registry.serve_by(self.kind, MPI);
        }
        registry
    }

    /// Meets the other processes, if there are any, and gives this one's ranks their devices.
    pub(super) fn meet(
        mut self,
        registry: &Registry,
        job: &Job<'_>,
        verified: &Verified,
        steps: &Schedule,
        request: &Request<'_>,
    ) -> Result<Joined, RunError> {
        let ranks = self.ranks();
        let Some(process) = self.others() else {
            if self.process.is_some() {
                self.chosen.indices = local(&self.chosen, registry, 0, &ranks)?;
            }
            return Ok(Joined { meeting: None, ranks, chosen: self.chosen, parting: PARTING });
        };
        let several = 2; // or more: it makes no difference
        verified.check_processes(several)?;
        let manifest = request.manifest;
        if let Some(checkpoint) = &manifest.checkpoint {
            let message = "a job of several processes takes no checkpoints yet";
            let report = Diagnostic::error(codes::PROCESSES, message, Label::at(checkpoint.dir.span, ""));
            return Err(report.with_help("leave `[checkpoint]` out, or run all ranks in one process").into());
        }
        let place = process.identity.place.clone().ok_or_else(|| no_place(&process.identity))?;
        let timeout = manifest.pipeline.init_timeout.value;
        let invitation = Invitation {
            place,
            token: process.token.clone(),
            world: process.identity.world,
            ranks: ranks.clone().collect(),
            agreed: agreed(registry, job, verified, steps, request, self.kind),
            timeout,
        };
        let meeting = meet(&invitation).map_err(RunError::Meeting)?;
        let joined = (|| {
            if self.kind == "host" && registry.library(MPI, self.kind).is_none() {
                return Err(RunError::Environment(format!(
                    "ranks on the host in several processes speak MPI, and {NO_MPI}"
                )));
            }
            let before = process.identity.local_rank.unwrap_or_else(|| meeting.local_rank());
            local(&self.chosen, registry, before, &ranks)
        })();
        match joined {
            Ok(indices) => {
                self.chosen.indices = indices;
                let parting = manifest.pipeline.step_timeout.value.max(timeout);
                Ok(Joined { meeting: Some(meeting), ranks, chosen: self.chosen, parting })
            }
            Err(error) => {
                let text = format!("{error}");
                meeting.tell(Ending { kind: EndingKind::Failed, text });
                // Rank 0's process tells the others yet that they have met.
                meeting.leave(Instant::now() + Duration::from_secs(2));
                Err(error)
            }
        }
    }
}

/// What to do where ranks on the host are to speak MPI and this build cannot.
pub const NO_MPI: &str = "this build of squall has none: build it with `cargo install --path crates/runner --features mpi`, which needs \
    an MPI (on Debian the packages libopenmpi-dev, openmpi-bin and libclang-dev); or run all ranks in one process, without a launcher";

/// What must be the same for all processes.
fn agreed(
    registry: &Registry,
    job: &Job<'_>,
    verified: &Verified,
    schedule: &Schedule,
    request: &Request<'_>,
    kind: &str,
) -> Vec<Agreed> {
    let pipeline = &request.manifest.pipeline;
    let captures = pipeline.cuda_graph.value && registry.backend(kind).is_some_and(Backend::captures);
    let steps = schedule.steps(pipeline, request.steps).map_or(0, |(steps, _)| steps);
    let one = |what: &str, value: String, help: &str| Agreed {
        what: what.to_string(),
        value,
        help: help.to_string(),
    };
    vec![
        one("squall's version", env!("CARGO_PKG_VERSION").to_string(), "run the same squall everywhere"),
        one("the world", job.world.size().to_string(), ""),
        one("the kind of devices", kind.to_string(), "name it with `--devices`"),
        one(
            "the plan hash",
            format!("{:032x}", verified.plan_hash()),
            "the manifests, or what `--set` and `--devices` make of them, are not the same: compare `squall plan` on both machines",
        ),
        one("the number of steps", steps.to_string(), "`--steps` or the feeds' files differ"),
        one("the plugins", in_use().join(", "), ""),
        one("whether steps are captured", captures.to_string(), ""),
    ]
}

fn no_place(identity: &Identity) -> RunError {
    let launcher = identity.launcher;
    let message = format!("{launcher} does not say where the processes of the job meet");
    let help = "give all of them `--rendezvous tcp://HOST:PORT` with a host that has rank 0, or `--rendezvous file:PATH` on a file system that \
        they share";
    Diagnostic::error(codes::IDENTITY, message, Label::default()).with_help(help).into()
}

/// The devices of this process's ranks, of those that its machine is said to have: `before` ranks of the machine come first.
fn local(
    chosen: &Chosen,
    registry: &Registry,
    before: u32,
    ranks: &Range<u32>,
) -> Result<Vec<u32>, RunError> {
    let (all, own) = (&chosen.indices, ranks.len());
    if let [one] = all[..]
        && registry.backend(chosen.kind).is_some_and(Backend::repeats)
    {
        return Ok(vec![one; own]);
    }
    // A launcher may show every process its own devices alone.
    let first = if all.len() == own { 0 } else { before as usize };
    let indices = all.get(first..first + own).map(<[u32]>::to_vec);
    indices.ok_or_else(|| {
        let (kind, rank) = (chosen.kind, ranks.start);
        RunError::Environment(format!(
            "rank {rank} is number {first} on its machine, counted from 0, and `devices` names {} of {kind} there; start fewer processes a machine",
            crate::render::count(all.len() as u64, "device")
        ))
    })
}

/// A process that has met the others, or that is alone.
pub(super) struct Joined {
    meeting: Option<Meeting>,
    ranks: Range<u32>,
    chosen: Chosen,
    /// How long it waits for the others once its own ranks are done.
    parting: Duration,
}

impl Joined {
    /// Binds this process's ranks.
    pub(super) fn bind(
        &self,
        registry: &Registry,
        verified: Verified,
        opened: &[Arc<dyn Device>],
        options: Options,
    ) -> Result<PlanGroup, RunError> {
        let Some(meeting) = &self.meeting else {
            return Ok(PlanGroup::new(registry, verified, opened, options)?);
        };
        let local: Vec<(u32, Arc<dyn Device>)> = self.ranks.clone().zip(opened.iter().cloned()).collect();
        let peers = meeting.peers(verified.graphs()[0].world().clone());
        Ok(PlanGroup::join(registry, verified, &local, peers, options)?)
    }

    pub(super) fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// Whether this process has a rank.
    pub(super) fn has(&self, rank: u32) -> bool {
        self.ranks.contains(&rank)
    }

    /// Whether there are other processes.
    pub(super) fn has_others(&self) -> bool {
        self.meeting.is_some()
    }

    /// Whether this process tells of the whole job: it has rank 0.
    pub(super) fn leads(&self) -> bool {
        self.has(0)
    }

    /// What every process gives, by process: its own alone, where it is alone. For moments between phases that all come to.
    pub(super) fn gather<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        mine: T,
    ) -> Result<Vec<T>, RunError> {
        let Some(meeting) = &self.meeting else { return Ok(vec![mine]) };
        let failed = |error: String| RunError::Others { what: name.to_string(), error };
        let bytes = serde_json::to_vec(&mine).map_err(|error| failed(error.to_string()))?;
        let all =
            meeting.all_gather(name, &bytes, Instant::now() + self.parting).map_err(|error| {
                match (meeting.ended(), error) {
                    (Some(ending), _) => RunError::Ended(ending),
                    (None, DeviceError::Late(text)) => RunError::Late(text),
                    (None, error) => failed(error.to_string()),
                }
            })?;
        all.iter()
            .map(|bytes| serde_json::from_slice(bytes).map_err(|error| failed(error.to_string())))
            .collect()
    }

    /// Ends the meeting: tells the others of an error that they have not heard of, else waits for them to come to their end.
    pub(super) fn leave<T>(self, result: Result<T, RunError>) -> Result<T, RunError> {
        let Some(meeting) = self.meeting else { return result };
        match result {
            Ok(value) => {
                let ended = meeting.leave(Instant::now() + self.parting);
                ended.map_or(Ok(value), |ending| Err(RunError::Ended(ending)))
            }
            Err(error) => {
                let kind = if error.is_interrupt() { EndingKind::Interrupted } else { EndingKind::Failed };
                // Said once: what a plan group told comes first.
                meeting.tell(Ending { kind, text: error.to_string() });
                // Each has something to say before any is taken down by a launcher, and rank 0's process carries it.
                meeting.leave(Instant::now() + Duration::from_secs(2));
                Err(error)
            }
        }
    }
}
