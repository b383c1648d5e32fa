//! Which ranks this process has, and where it meets the others: from flags, else from what a launcher has put into the environment.

use std::fmt;
use std::ops::Range;

use crate::nodelist::first_host;
use crate::place::Place;

/// The variable of the job's token, where the processes are to be kept to themselves.
pub const TOKEN: &str = "SQUALL_TOKEN";

/// How many ports are tried where a launcher names none that is free.
const PORTS: u16 = 8;

/// What the command line says of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Ranks of the job.
    pub world: Option<u32>,
    /// This process's first rank.
    pub rank: Option<u32>,
    /// Ranks of each process.
    pub local_ranks: Option<u32>,
    /// Where to meet.
    pub rendezvous: Option<Place>,
}

/// Which ranks this process has, and where it meets the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who started it: `torchrun`, `Slurm`; `the command line`.
    pub launcher: &'static str,
    /// Ranks of the job.
    pub world: u32,
    /// This process's.
    pub ranks: Range<u32>,
    /// The number of its first rank among those of its machine, where the launcher tells.
    pub local_rank: Option<u32>,
    /// Where to meet, where anybody tells.
    pub place: Option<Place>,
    /// What tells the launcher's jobs apart; may be empty. No secret.
    pub job: String,
    /// What was understood, and from which variable or flag, a line each.
    pub sources: Vec<String>,
}

/// The environment or the flags make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A variable is no number.
    #[error("{variable}={value}, as {launcher} sets it, is no number of ranks or processes")]
    NoNumber {
        /// Who is taken to have set it.
        launcher: &'static str,
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// A variable that goes with another is missing.
    #[error("{present} is set, as by {launcher}, and {missing} is not: {help}")]
    Half {
        /// Who is taken to have set it.
        launcher: &'static str,
        /// What is there.
        present: &'static str,
        /// What is not.
        missing: &'static str,
        /// What to do.
        help: &'static str,
    },
    /// A rank beyond the world.
    #[error("{what} has {ranks} of a world of {world}, counted from 0 ({from})")]
    Outside {
        /// The process.
        what: &'static str,
        /// Its ranks, in words.
        ranks: String,
        /// Ranks of the job.
        world: u32,
        /// The flags or variables.
        from: String,
    },
    /// Flags that go together and do not stand together.
    #[error("{0}")]
    Flags(&'static str),
}

/// A launcher, by the variables that it sets.
struct Launcher {
    name: &'static str,
    /// It is this one where all of these are set.
    signs: &'static [&'static str],
    process: &'static str,
    processes: &'static str,
    local: &'static str,
    /// What tells its jobs apart.
    job: &'static [&'static str],
    place: fn(&Environment<'_>, &str) -> Option<(Place, &'static str)>,
}

/// In the order in which they are looked for: one that starts processes inside another's comes first.
const LAUNCHERS: [Launcher; 6] = [
    Launcher {
        name: "torchrun",
        signs: &["TORCHELASTIC_RUN_ID"],
        process: "RANK",
        processes: "WORLD_SIZE",
        local: "LOCAL_RANK",
        job: &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
        // The port itself is torchrun's.
        place: |env, _| {
            let (host, port) = env.master()?;
            let ports = (1..=PORTS).filter_map(|more| port.checked_add(more)).collect();
            Some((
                Place::Tcp { host, ports },
                "MASTER_ADDR, and the ports after MASTER_PORT, which is torchrun's own",
            ))
        },
    },
    Launcher {
        name: "Open MPI",
        signs: &["OMPI_COMM_WORLD_RANK"],
        process: "OMPI_COMM_WORLD_RANK",
        processes: "OMPI_COMM_WORLD_SIZE",
        local: "OMPI_COMM_WORLD_LOCAL_RANK",
        job: &["OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"],
        place: |_, _| None,
    },
    Launcher {
        name: "MPICH",
        signs: &["PMI_RANK"],
        process: "PMI_RANK",
        processes: "PMI_SIZE",
        local: "MPI_LOCALRANKID",
        job: &["PMI_JOBID"],
        place: |_, _| None,
    },
    Launcher {
        name: "Slurm",
        signs: &["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
        process: "SLURM_PROCID",
        processes: "SLURM_STEP_NUM_TASKS",
        local: "SLURM_LOCALID",
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
        place: |env, job| {
            let host = first_host(&env.get("SLURM_STEP_NODELIST")?)?;
            // Below the range that systems give to whoever connects. Jobs that share a host and begin with the same try the next.
            let number = job.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            let first = 20_000 + (number % 9_000) as u16;
            let ports = (first..first + PORTS).collect();
            Some((
                Place::Tcp { host, ports },
                "the first host of SLURM_STEP_NODELIST, and ports by the number of the job",
            ))
        },
    },
    Launcher {
        name: "Kubernetes",
        signs: &["JOB_COMPLETION_INDEX"],
        process: "JOB_COMPLETION_INDEX",
        processes: "",
        local: "",
        job: &[],
        place: |_, _| None,
    },
    Launcher {
        name: "the environment",
        signs: &["RANK", "WORLD_SIZE", "MASTER_ADDR"],
        process: "RANK",
        processes: "WORLD_SIZE",
        local: "LOCAL_RANK",
        job: &[],
        place: |env, _| {
            let (host, port) = env.master()?;
            Some((Place::Tcp { host, ports: vec![port] }, "MASTER_ADDR and MASTER_PORT"))
        },
    },
];

/// The variables of the environment. One that is empty is not set.
struct Environment<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Environment<'_> {
    fn get(&self, variable: &str) -> Option<String> {
        (self.0)(variable).filter(|value| !value.is_empty())
    }

    fn number(&self, launcher: &'static str, variable: &'static str) -> Result<Option<u32>, IdentityError> {
        let Some(value) = self.get(variable) else { return Ok(None) };
        let parsed = value.trim().parse().map(Some);
        parsed.map_err(|_| IdentityError::NoNumber { launcher, variable, value })
    }

    fn master(&self) -> Option<(String, u16)> {
        let port = self.get("MASTER_PORT")?.parse().ok().filter(|port| *port > 0)?;
        Some((self.get("MASTER_ADDR")?, port))
    }
}

/// Which ranks this process has, of a job of several processes; `None` where neither flags nor a launcher say that there are
/// others. `variable` looks a variable of the environment up, [`std::env::var`] but for tests. Opens nothing and asks nobody.
///
/// # Errors
/// What contradicts itself: see [`IdentityError`].
pub fn identify(
    flags: &Flags,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Identity>, IdentityError> {
    let env = Environment(variable);
    let each = flags.local_ranks.unwrap_or(1);
    if each == 0 {
        return Err(IdentityError::Flags("--local-ranks 0: a process has at least one rank"));
    }
    let found = LAUNCHERS.iter().find(|one| one.signs.iter().all(|sign| env.get(sign).is_some()));
    let Some(found) = found else { return by_hand(flags, each) };
    if flags.world.is_some() && flags.rank.is_some() {
        return by_hand(flags, each);
    }
    let mut sources = Vec::new();
    let mut note = |what: fmt::Arguments<'_>, from: &str| sources.push(format!("{what} (from {from})"));
    let process = env.number(found.name, found.process)?.unwrap_or(0);
    note(format_args!("process {process}"), found.process);
    let processes = if found.processes.is_empty() { None } else { env.number(found.name, found.processes)? };
    let world = match (flags.world, processes) {
        (Some(world), _) => {
            note(format_args!("world {world}"), "--world");
            Some(world)
        }
        (None, Some(processes)) => {
            note(format_args!("number of processes: {processes}"), found.processes);
            processes.checked_mul(each)
        }
        (None, None) if found.processes.is_empty() => {
            // An indexed job says nowhere how many pods it has; without more it is a job of one.
            return match (flags.rank, &flags.rendezvous) {
                (None, None) => Ok(None),
                _ => Err(IdentityError::Flags(
                    "--world is missing: Kubernetes tells a pod its index, and not how many there are",
                )),
            };
        }
        (None, None) => {
            let help = "it tells how many processes there are; or give --world and --rank";
            let (launcher, present, missing) = (found.name, found.process, found.processes);
            return Err(IdentityError::Half { launcher, present, missing, help });
        }
    };
    let first = match flags.rank {
        Some(rank) => {
            note(format_args!("rank {rank}"), "--rank");
            Some(rank)
        }
        None => process.checked_mul(each),
    };
    let too_many = IdentityError::Flags("--local-ranks is more ranks than a job can have");
    let (Some(world), Some(first)) = (world, first) else { return Err(too_many) };
    let ranks = within(first, each, world, found.name, format!("{} and {}", found.process, found.processes))?;
    if each > 1 {
        note(format_args!("{each} ranks of each process"), "--local-ranks");
    }
    let local = if found.local.is_empty() { None } else { env.number(found.name, found.local)? };
    if let Some(local) = local {
        note(format_args!("process {local} of its machine"), found.local);
    }
    let job: Vec<String> = found.job.iter().filter_map(|variable| env.get(variable)).collect();
    let job = job.join(".");
    let place = match &flags.rendezvous {
        Some(place) => Some((place.clone(), "--rendezvous")),
        None => (found.place)(&env, &job).or_else(|| from_outside(&env, found, process, processes)),
    };
    if let Some((place, from)) = &place {
        note(format_args!("meets at {place}"), from);
    }
    let local_rank = local.and_then(|local| local.checked_mul(each));
    let place = place.map(|(place, _)| place);
    Ok(Some(Identity { launcher: found.name, world, ranks, local_rank, place, job, sources }))
}

/// Where a launcher names no place, one around it may, such as Slurm around MPICH: where it counts alike.
fn from_outside(
    env: &Environment<'_>,
    found: &Launcher,
    process: u32,
    processes: Option<u32>,
) -> Option<(Place, &'static str)> {
    LAUNCHERS.iter().filter(|one| one.name != found.name).find_map(|one| {
        let same = |variable, wanted| Some(env.number(one.name, variable).ok()?? == wanted);
        let alike = same(one.process, process)? && same(one.processes, processes?)?;
        let job: Vec<String> = one.job.iter().filter_map(|variable| env.get(variable)).collect();
        if alike { (one.place)(env, &job.join(".")) } else { None }
    })
}

/// What flags alone say.
fn by_hand(flags: &Flags, each: u32) -> Result<Option<Identity>, IdentityError> {
    let (world, rank) = match (flags.world, flags.rank) {
        (Some(world), Some(rank)) => (world, rank),
        (None, None) if flags.local_ranks.is_none() && flags.rendezvous.is_none() => return Ok(None),
        (Some(_), None) => {
            return Err(IdentityError::Flags(
                "--world goes with --rank, which says which rank this process is",
            ));
        }
        (None, Some(_)) => {
            return Err(IdentityError::Flags(
                "--rank goes with --world, which says how many ranks the job has",
            ));
        }
        (None, None) => {
            return Err(IdentityError::Flags(
                "--local-ranks and --rendezvous are for jobs of several processes: no launcher was found, so give --world and --rank",
            ));
        }
    };
    let ranks = within(rank, each, world, "this process", "--world and --rank".to_string())?;
    let mut sources = vec![format!("rank {rank} of {world} (from --rank and --world)")];
    if let Some(place) = &flags.rendezvous {
        sources.push(format!("meets at {place} (from --rendezvous)"));
    }
    let (place, job) = (flags.rendezvous.clone(), String::new());
    Ok(Some(Identity { launcher: "the command line", world, ranks, local_rank: None, place, job, sources }))
}

fn within(
    first: u32,
    each: u32,
    world: u32,
    what: &'static str,
    from: String,
) -> Result<Range<u32>, IdentityError> {
    let end = first.checked_add(each).filter(|end| *end <= world);
    let words = || match each {
        1 => format!("rank {first}"),
        _ => format!("{each} ranks from {first} on"),
    };
    let end = end.ok_or_else(|| IdentityError::Outside { what, ranks: words(), world, from })?;
    Ok(first..end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn under(variables: &[(&str, &str)], flags: &Flags) -> Result<Option<Identity>, IdentityError> {
        let all: BTreeMap<&str, &str> = variables.iter().copied().collect();
        identify(flags, &|name| all.get(name).map(|value| value.to_string()))
    }

    const TORCHRUN: [(&str, &str); 6] = [
        ("TORCHELASTIC_RUN_ID", "a1"),
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "node-0"),
        ("MASTER_PORT", "29500"),
    ];

    const SLURM: [(&str, &str); 6] = [
        ("SLURM_PROCID", "5"),
        ("SLURM_STEP_NUM_TASKS", "8"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_STEP_NODELIST", "gpu[07-08]"),
        ("SLURM_JOB_ID", "4711"),
        ("SLURM_STEP_ID", "0"),
    ];

    #[test]
    fn every_launcher_is_understood_from_its_variables() {
        let found = |variables: &[(&str, &str)]| {
            let one = under(variables, &Flags::default()).unwrap().unwrap();
            let place = one.place.map_or_else(String::new, |place| place.to_string());
            (one.launcher, one.world, one.ranks, one.local_rank, place, one.job)
        };
        assert_eq!(
            found(&TORCHRUN),
            ("torchrun", 4, 3..4, Some(1), "tcp://node-0:29501 to 29508".into(), "a1".into())
        );
        assert_eq!(
            found(&SLURM),
            ("Slurm", 8, 5..6, Some(1), "tcp://gpu07:21829 to 21836".into(), "4711.0".into())
        );
        let ompi = [
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
            ("OMPI_MCA_ess_base_jobid", "77"),
        ];
        assert_eq!(found(&ompi), ("Open MPI", 2, 0..1, Some(0), String::new(), "77".into()));
        let mpich = [("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        assert_eq!(found(&mpich), ("MPICH", 2, 1..2, None, String::new(), String::new()));
        let plain =
            [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "4000")];
        assert_eq!(
            found(&plain),
            ("the environment", 2, 0..1, None, "tcp://10.0.0.1:4000".into(), String::new())
        );
    }

    #[test]
    fn without_a_launcher_or_flags_there_is_one_process() {
        assert_eq!(under(&[], &Flags::default()), Ok(None));
        // A batch script of Slurm is no step; half of what others set is none of theirs.
        assert_eq!(under(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")], &Flags::default()), Ok(None));
        assert_eq!(under(&[("RANK", "0"), ("WORLD_SIZE", "2")], &Flags::default()), Ok(None));
        assert_eq!(under(&[("JOB_COMPLETION_INDEX", "3")], &Flags::default()), Ok(None));
        assert_eq!(under(&[("OMPI_COMM_WORLD_RANK", "")], &Flags::default()), Ok(None));
    }

    #[test]
    fn one_launcher_inside_another_counts_and_may_borrow_the_place() {
        let mut both = SLURM.to_vec();
        both.extend([("PMI_RANK", "5"), ("PMI_SIZE", "8")]);
        let one = under(&both, &Flags::default()).unwrap().unwrap();
        assert_eq!((one.launcher, one.world), ("MPICH", 8));
        assert_eq!(one.place.unwrap().to_string(), "tcp://gpu07:21829 to 21836");
        // mpirun's own step in an allocation counts its daemons.
        both.truncate(6);
        both.extend([("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "16")]);
        let one = under(&both, &Flags::default()).unwrap().unwrap();
        assert_eq!((one.launcher, one.ranks, one.place), ("Open MPI", 1..2, None));
    }

    #[test]
    fn flags_come_before_the_environment() {
        let flags = |world, rank, local_ranks| Flags { world, rank, local_ranks, rendezvous: None };
        let one = under(&TORCHRUN, &flags(Some(2), Some(1), None)).unwrap().unwrap();
        assert_eq!((one.launcher, one.world, one.ranks, one.place), ("the command line", 2, 1..2, None));
        let two = under(&TORCHRUN, &flags(None, None, Some(2))).unwrap().unwrap();
        assert_eq!((two.world, two.ranks, two.local_rank), (8, 6..8, Some(2)));
        let place: Place = "tcp://h:1".parse().unwrap();
        let pods = Flags { world: Some(4), rendezvous: Some(place.clone()), ..Flags::default() };
        let pod = under(&[("JOB_COMPLETION_INDEX", "3")], &pods).unwrap().unwrap();
        assert_eq!((pod.launcher, pod.world, pod.ranks, pod.place), ("Kubernetes", 4, 3..4, Some(place)));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let flags = |world, rank, local_ranks| Flags { world, rank, local_ranks, rendezvous: None };
        let text =
            |variables: &[(&str, &str)], flags: &Flags| under(variables, flags).unwrap_err().to_string();
        assert_eq!(
            text(&[], &flags(Some(2), Some(2), None)),
            "this process has rank 2 of a world of 2, counted from 0 (--world and --rank)"
        );
        assert!(
            text(&[], &flags(Some(4), Some(3), Some(2)))
                .starts_with("this process has 2 ranks from 3 on of a world of 4")
        );
        assert!(text(&[], &flags(Some(2), None, None)).contains("goes with --rank"));
        assert!(text(&[], &flags(None, Some(2), None)).contains("goes with --world"));
        assert!(text(&[], &flags(None, None, Some(2))).contains("no launcher was found"));
        assert!(text(&[], &flags(None, None, Some(0))).contains("at least one rank"));
        let wrong = [("OMPI_COMM_WORLD_RANK", "x"), ("OMPI_COMM_WORLD_SIZE", "2")];
        assert_eq!(
            text(&wrong, &Flags::default()),
            "OMPI_COMM_WORLD_RANK=x, as Open MPI sets it, is no number of ranks or processes"
        );
        let half = [("PMI_RANK", "1")];
        assert!(
            text(&half, &Flags::default()).starts_with("PMI_RANK is set, as by MPICH, and PMI_SIZE is not")
        );
        let outside = [("PMI_RANK", "2"), ("PMI_SIZE", "2")];
        assert!(text(&outside, &Flags::default()).contains("MPICH has rank 2 of a world of 2"));
        let many = [("PMI_RANK", "4000000000"), ("PMI_SIZE", "4100000000")];
        assert!(text(&many, &flags(None, None, Some(2))).contains("more ranks than a job can have"));
        let pods = Flags { rank: Some(0), ..Flags::default() };
        assert!(text(&[("JOB_COMPLETION_INDEX", "3")], &pods).contains("--world is missing"));
    }
}
