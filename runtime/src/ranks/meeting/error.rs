//! Why ranks did not meet.

use std::time::Duration;

/// Why ranks did not meet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeetingError {
    /// The host of rank 0 has no address.
    #[error(
        "rank 0 is to be found at `{host}`, which is not a host: {reason}; {}",
        self.hint()
    )]
    Host {
        /// Its name.
        host: String,
        /// What the system says.
        reason: String,
    },
    /// Rank 0 cannot listen.
    #[error("rank 0 cannot listen at port {port}: {reason}; {}", self.hint())]
    Port {
        /// Which port.
        port: u16,
        /// What the system says.
        reason: String,
    },
    /// Some did not come to rank 0, or ended before all were there.
    #[error(
        "{} of {size} did not come to rank 0 at {host}:{port} within {deadline:?}, or ended \
         again; {}",
        named(ranks), self.hint()
    )]
    Absent {
        /// Which.
        ranks: Vec<u32>,
        /// How many ranks there are to be.
        size: u32,
        /// Where rank 0 is to be found.
        host: String,
        /// At which port.
        port: u16,
        /// The deadline.
        deadline: Duration,
    },
    /// Nobody listens.
    #[error(
        "rank {rank} did not reach rank 0 at {host}:{port} within {deadline:?} ({reason}); \
         {}",
        self.hint()
    )]
    Alone {
        /// Who came.
        rank: u32,
        /// Where rank 0 was expected.
        host: String,
        /// At which port.
        port: u16,
        /// The deadline.
        deadline: Duration,
        /// What the system says.
        reason: String,
    },
    /// Rank 0 was there and is gone, or says nothing.
    #[error(
        "rank {rank} met rank 0 at {host}:{port}, which then did not begin: {reason}"
    )]
    Broken {
        /// Who came.
        rank: u32,
        /// Where rank 0 is.
        host: String,
        /// At which port.
        port: u16,
        /// What the system says.
        reason: String,
    },
    /// The ranks do not fit together.
    #[error("{0}")]
    Refused(String),
}

impl MeetingError {
    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Host { .. } => "set MASTER_ADDR",
            Self::Port { .. } => {
                "set MASTER_PORT on all ranks so that the port after it is free"
            }
            Self::Absent { .. } => {
                "start as many processes as WORLD_SIZE says, all with the same MASTER_ADDR and \
                 MASTER_PORT"
            }
            Self::Alone { .. } => {
                "is rank 0 started, and are MASTER_ADDR and MASTER_PORT the same on all ranks?"
            }
            Self::Broken { .. } | Self::Refused(_) => "",
        }
    }
}

/// The ranks of these numbers.
pub(super) fn named(ranks: &[u32]) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    let numbers: Vec<String> = ranks.iter().map(u32::to_string).collect();
    format!("{noun} {}", numbers.join(", "))
}
