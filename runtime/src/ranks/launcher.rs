//! Launchers as named data: which variables of the environment say who a process is.

use super::hosts;
use std::env;

/// Where the ranks meet, if nobody else says so: `host:port`.
const MEETING: &str = "ROUNDELAY_RENDEZVOUS";

/// The host of rank 0, and a port of it.
const HOST: &str = "MASTER_ADDR";
const PORT: &str = "MASTER_PORT";

/// The most processes of a run: rank 0 speaks with all others, and keeps a thread for each.
const MOST: u32 = 65_536;

/// The port where nothing says one.
const DEFAULT_PORT: u16 = 29_500;

/// A way to start processes, and the variables that it sets in each.
///
/// Law: a process was started by the first launcher of [`LAUNCHERS`] whose `mark` is set, and then
/// `rank`, `size` and `local` are set too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Launcher {
    /// Name in messages.
    name: &'static str,
    /// What no other launcher sets.
    mark: &'static str,
    /// Number of this process, from zero.
    rank: &'static str,
    /// Number of processes.
    size: &'static str,
    /// Number of this process among those of its machine.
    local: &'static str,
    /// Where rank 0 is, when `MASTER_ADDR` is not set.
    first: First,
}

/// Where rank 0 is, when `MASTER_ADDR` is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// Nobody can know.
    Unknown,
    /// On this machine, if this variable says that all processes are.
    HereIfAll(&'static str),
    /// On the first host of the list in this variable; a port is made of the job's number in the
    /// other, so that two jobs on one machine do not meet.
    InList {
        /// The list.
        hosts: &'static str,
        /// The job's number.
        job: &'static str,
    },
}

/// All launchers, in the order in which they are looked for: one that was itself started by
/// another one comes first.
const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        name: "torchrun",
        mark: "WORLD_SIZE",
        rank: "RANK",
        size: "WORLD_SIZE",
        local: "LOCAL_RANK",
        first: First::Unknown,
    },
    Launcher {
        name: "mpirun (Open MPI)",
        mark: "OMPI_COMM_WORLD_SIZE",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local: "OMPI_COMM_WORLD_LOCAL_RANK",
        first: First::HereIfAll("OMPI_COMM_WORLD_LOCAL_SIZE"),
    },
    Launcher {
        name: "mpirun (MPICH, Intel MPI)",
        mark: "MPI_LOCALRANKID",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local: "MPI_LOCALRANKID",
        first: First::HereIfAll("MPI_LOCALNRANKS"),
    },
    // A batch script has SLURM_NTASKS and SLURM_PROCID too, but no step of its own.
    Launcher {
        name: "srun",
        mark: "SLURM_STEP_NUM_TASKS",
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local: "SLURM_LOCALID",
        first: First::InList { hosts: "SLURM_STEP_NODELIST", job: "SLURM_JOB_ID" },
    },
];

/// Who a process is, and where all of them meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Number of this process, from zero.
    pub rank: u32,
    /// Number of processes.
    pub size: u32,
    /// Number of this process among those of its machine.
    pub local: u32,
    /// Where rank 0 listens.
    pub host: String,
    /// At which port.
    pub port: u16,
}

/// Why the variables of the environment do not say who a process is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// Some are there, others not.
    #[error("{there} is set, as {launcher} does, but {missing} is not; {}", self.hint())]
    Missing {
        /// Name of the launcher.
        launcher: &'static str,
        /// A variable that is set.
        there: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
    /// One has a value that it cannot have.
    #[error("{variable} is `{value}`; {}", self.hint())]
    Value {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        expected: String,
    },
    /// Nothing says where rank 0 is.
    #[error(
        "nothing says on which host rank 0 is (in the environment from {launcher} it is not set); \
         {}",
        self.hint()
    )]
    NoHost {
        /// Name of the launcher.
        launcher: &'static str,
        /// Number of ranks.
        size: u32,
    },
}

impl LaunchError {
    /// What would repair it, as the message ends with.
    pub fn hint(&self) -> String {
        match self {
            Self::Missing { launcher, there, .. } => {
                format!("start all processes with {launcher}, or unset {there}")
            }
            Self::Value { expected, .. } => format!("it must be {expected}"),
            Self::NoHost { size, .. } => {
                format!("set MASTER_ADDR to it on all {size} ranks")
            }
        }
    }
}

impl Seat {
    /// One process, and nobody to meet.
    pub fn alone() -> Self {
        Self { rank: 0, size: 1, local: 0, host: "127.0.0.1".to_owned(), port: 0 }
    }

    /// Whether it is the one that the others meet at, and that speaks for all.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Who this process is: one alone, when no launcher started it.
    ///
    /// # Errors
    /// When the variables contradict each other or do not suffice.
    pub fn of_environment() -> Result<Self, LaunchError> {
        let of = |name: &str| env::var_os(name).map(|v| v.to_string_lossy().into_owned());
        Self::of(&of).map(|seat| seat.unwrap_or_else(Self::alone))
    }

    fn of(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, LaunchError> {
        let started = LAUNCHERS.iter().find(|own| lookup(own.mark).is_some());
        started.map(|launcher| Variables { launcher, lookup }.seat()).transpose()
    }
}

/// The variables of one launcher.
struct Variables<'a> {
    launcher: &'static Launcher,
    lookup: &'a dyn Fn(&str) -> Option<String>,
}

impl Variables<'_> {
    fn seat(&self) -> Result<Seat, LaunchError> {
        let Launcher { rank, size, local, .. } = *self.launcher;
        let counted = format!("a number of processes from 1 to {MOST}");
        let count: u32 = self.number(size, &counted)?;
        if !(1..=MOST).contains(&count) {
            return Err(wrong(size, &count.to_string(), &counted));
        }
        let below = format!("a number below {count}, which is {size}");
        let own: u32 = self.number(rank, &below)?;
        if own >= count {
            return Err(wrong(rank, &own.to_string(), &below));
        }
        let local = match count {
            1 => 0,
            _ => self.number(local, "a number of a process on its machine")?,
        };
        let (host, port) = self.meeting(count)?;
        Ok(Seat { rank: own, size: count, local, host, port })
    }

    fn number<N: std::str::FromStr>(
        &self,
        variable: &'static str,
        expected: &str,
    ) -> Result<N, LaunchError> {
        let Launcher { name: launcher, mark: there, .. } = *self.launcher;
        let missing = || LaunchError::Missing { launcher, there, missing: variable };
        let value = (self.lookup)(variable).ok_or_else(missing)?;
        value.trim().parse().map_err(|_| wrong(variable, &value, expected))
    }

    /// Where rank 0 listens. Torchrun itself listens at MASTER_PORT, so that is the next one.
    fn meeting(&self, size: u32) -> Result<(String, u16), LaunchError> {
        if let Some(value) = (self.lookup)(MEETING) {
            let parts = value.rsplit_once(':');
            let parsed = parts.and_then(|(host, port)| Some((host, port.parse().ok()?)));
            return match parsed.map(|(host, port)| (bare(host), port)) {
                Some((host, port)) if !host.is_empty() && port > 0 => {
                    Ok((host.to_owned(), port))
                }
                Some(_) | None => {
                    Err(wrong(MEETING, &value, "`host:port`, as in `node1:29600`"))
                }
            };
        }
        let host = match (self.lookup)(HOST).filter(|host| !host.is_empty()) {
            Some(host) => bare(&host).to_owned(),
            None => self.first_host(size)?,
        };
        let port = match (self.lookup)(PORT) {
            None => self.default_port(),
            Some(value) => match value.trim().parse() {
                Ok(port) if (1..u16::MAX).contains(&port) => port,
                Ok(_) | Err(_) => {
                    return Err(wrong(PORT, &value, "a port from 1 to 65534"));
                }
            },
        };
        Ok((host, port + 1))
    }

    fn first_host(&self, size: u32) -> Result<String, LaunchError> {
        let here = "127.0.0.1".to_owned();
        let no_host = LaunchError::NoHost { launcher: self.launcher.name, size };
        match self.launcher.first {
            _ if size == 1 => Ok(here),
            First::Unknown => Err(no_host),
            First::HereIfAll(local_size) => {
                let own = (self.lookup)(local_size).and_then(|own| own.parse().ok());
                if own == Some(size) { Ok(here) } else { Err(no_host) }
            }
            First::InList { hosts, .. } => {
                let list = (self.lookup)(hosts).ok_or(no_host)?;
                let expected = "a list of hosts, unless MASTER_ADDR says where rank 0 is";
                hosts::first(&list).ok_or_else(|| wrong(hosts, &list, expected))
            }
        }
    }

    fn default_port(&self) -> u16 {
        let job = match self.launcher.first {
            First::Unknown | First::HereIfAll(_) => None,
            First::InList { job, .. } => (self.lookup)(job),
        };
        let number = job.and_then(|job| job.trim().parse::<u64>().ok());
        number.map_or(DEFAULT_PORT, |number| 20_000 + (number % 10_000) as u16)
    }
}

/// A host without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(host)
}

fn wrong(variable: &'static str, value: &str, expected: &str) -> LaunchError {
    let (value, expected) = (value.to_owned(), expected.to_owned());
    LaunchError::Value { variable, value, expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Option<Seat>, LaunchError> {
        let pairs: Vec<(&str, &str)> =
            text.split_whitespace().filter_map(|pair| pair.split_once('=')).collect();
        Seat::of(&|name| {
            let found = pairs.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn seat(text: &str) -> Seat {
        of(text).unwrap().unwrap()
    }

    /// One environment per row of the table, as each launcher makes it.
    #[test]
    fn every_launcher_says_who_a_process_is() {
        let environments = [
            "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=10.0.0.7 MASTER_PORT=29400",
            "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 \
             MASTER_ADDR=10.0.0.7 MASTER_PORT=29400",
            "PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=1 MASTER_ADDR=10.0.0.7 \
             MASTER_PORT=29400",
            "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_NTASKS=8 \
             MASTER_ADDR=10.0.0.7 MASTER_PORT=29400",
        ];
        assert_eq!(environments.len(), LAUNCHERS.len());
        for (text, launcher) in environments.iter().zip(LAUNCHERS) {
            let host = "10.0.0.7".to_owned();
            let expected = Seat { rank: 5, size: 8, local: 1, host, port: 29_401 };
            assert_eq!(seat(text), expected, "{}", launcher.name);
            let known = [launcher.rank, launcher.size, launcher.local];
            for variable in known.into_iter().filter(|own| *own != launcher.mark) {
                let without: Vec<&str> = text
                    .split_whitespace()
                    .filter(|pair| !pair.starts_with(&format!("{variable}=")))
                    .collect();
                let LaunchError::Missing { missing, .. } =
                    of(&without.join(" ")).unwrap_err()
                else {
                    panic!("{variable} was left out")
                };
                assert_eq!(missing, variable);
            }
        }
    }

    #[test]
    fn no_launcher_no_seat() {
        assert_eq!(of("HOME=/root MASTER_ADDR=a"), Ok(None));
        let batch = "SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=a";
        assert_eq!(of(batch), Ok(None));
        assert_eq!(of("RANK=3"), Ok(None), "no launcher sets it alone");
    }

    #[test]
    fn a_launcher_that_another_one_started_comes_first() {
        let step = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 MASTER_ADDR=a \
                    PMI_RANK=3 PMI_SIZE=4";
        assert_eq!((seat(step).rank, seat(step).size), (0, 2), "srun with PMI-2");
        let hydra = seat(&format!("{step} MPI_LOCALRANKID=1"));
        assert_eq!((hydra.rank, hydra.size, hydra.local), (3, 4, 1));
        let torch = seat(&format!("{step} RANK=1 WORLD_SIZE=8 LOCAL_RANK=1"));
        assert_eq!((torch.rank, torch.size), (1, 8));
    }

    #[test]
    fn the_place_of_meeting_is_found_or_asked_for() {
        let mpi = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 \
                   OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=";
        let here = seat(&format!("{mpi}2"));
        assert_eq!((here.host.as_str(), here.port), ("127.0.0.1", 29_501));
        assert!(matches!(of(&format!("{mpi}1")), Err(LaunchError::NoHost { .. })));
        let slurm = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 \
                     SLURM_STEP_NODELIST=gpu[07-08] SLURM_JOB_ID=123456";
        let found = seat(slurm);
        assert_eq!((found.host.as_str(), found.port), ("gpu07", 23_457));
        let named = seat(&format!("{slurm} ROUNDELAY_RENDEZVOUS=there:17"));
        assert_eq!((named.host.as_str(), named.port), ("there", 17));
        let six = seat(&format!("{slurm} ROUNDELAY_RENDEZVOUS=[fe80::7]:17"));
        assert_eq!((six.host.as_str(), six.port), ("fe80::7", 17));
        let six = seat(&format!("{slurm} MASTER_ADDR=[::1]"));
        assert_eq!(six.host, "::1");
        let torch = "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0";
        assert!(matches!(of(torch), Err(LaunchError::NoHost { size: 2, .. })));
    }

    #[test]
    fn values_that_cannot_be_are_refused_by_name() {
        let torch = "LOCAL_RANK=0 MASTER_ADDR=a";
        for (text, variable) in [
            ("RANK=2 WORLD_SIZE=2", "RANK"),
            ("RANK=-1 WORLD_SIZE=2", "RANK"),
            ("RANK=0 WORLD_SIZE=0", "WORLD_SIZE"),
            ("RANK=0 WORLD_SIZE=two", "WORLD_SIZE"),
            ("RANK=0 WORLD_SIZE=2 MASTER_PORT=70000", "MASTER_PORT"),
            ("RANK=0 WORLD_SIZE=2 MASTER_PORT=65535", "MASTER_PORT"),
            ("RANK=0 WORLD_SIZE=2 MASTER_PORT=0", "MASTER_PORT"),
            ("RANK=0 WORLD_SIZE=2 ROUNDELAY_RENDEZVOUS=host:0", "ROUNDELAY_RENDEZVOUS"),
            ("RANK=0 WORLD_SIZE=2 ROUNDELAY_RENDEZVOUS=host", "ROUNDELAY_RENDEZVOUS"),
        ] {
            let error = of(&format!("{text} {torch}")).unwrap_err();
            let LaunchError::Value { variable: found, .. } = error else {
                panic!("{text}: {error}")
            };
            assert_eq!(found, variable, "{text}");
        }
    }
}
