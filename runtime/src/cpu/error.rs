//! Why a replay stopped.

use super::Demand;
use crate::{
    code::CodeError,
    machine::{MemoryBound, Unready},
    ranks::{Ended, WorldSize},
    state::StateError,
};
use roundelay_schedule::{ActionId, Bytes, RoutineId};
use std::time::Duration;

/// Why the CPU machine could not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// A kernel call of the schedule is malformed.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// The state does not fit the schedule.
    #[error(transparent)]
    State(#[from] StateError),
    /// Something went wrong on one of the ranks, which ends all of them.
    #[error(transparent)]
    Ranks(#[from] Ended),
    /// The schedule is for another number of devices.
    #[error(transparent)]
    WorldSize(#[from] WorldSize),
    /// There is too little memory; nothing was touched.
    #[error("{}, but {wanted}; {}", bound.leaves(*left), self.hint())]
    Memory {
        /// What there should be.
        wanted: Demand,
        /// How much there is.
        left: Bytes,
        /// By what.
        bound: MemoryBound,
    },
    /// The system does not hand out an arena.
    #[error("the system refuses memory ({reason}): {wanted}; {}", self.hint())]
    Refused {
        /// What there should be.
        wanted: Demand,
        /// What it says.
        reason: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for {queue}: {message}")]
    Thread {
        /// The queue in words.
        queue: String,
        /// What the system says.
        message: String,
    },
    /// An action failed.
    #[error("{action} in period {period} on {queue} failed: {message}")]
    Failed {
        /// The line.
        action: ActionId,
        /// The period.
        period: i64,
        /// The queue in words.
        queue: String,
        /// What went wrong.
        message: String,
    },
    /// A forward pass outside of a replay failed.
    #[error("the forward pass {routine} failed: {message}")]
    Forward {
        /// Which.
        routine: RoutineId,
        /// What went wrong.
        message: String,
    },
    /// Nothing was completed for too long.
    #[error(
        "nothing was completed for {deadline:?}; the oldest unfinished action is {action} \
         in period {period} on {queue}"
    )]
    Stuck {
        /// The line.
        action: ActionId,
        /// The period.
        period: i64,
        /// The queue in words.
        queue: String,
        /// The deadline.
        deadline: Duration,
    },
    /// There is nothing to go on from.
    #[error(transparent)]
    Unready(#[from] Unready),
}

impl CpuError {
    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> String {
        let less = "plan with less `memory` for each device or on fewer devices, or";
        match self {
            Self::Memory { bound, .. } => format!("{less} {}", bound.remedy()),
            Self::Refused { .. } => format!("{less} raise the limit of this process"),
            Self::WorldSize(error) => error.hint(),
            Self::Code(error) => error.hint().to_owned(),
            Self::State(error) => error.hint().to_owned(),
            Self::Ranks(_)
            | Self::Thread { .. }
            | Self::Failed { .. }
            | Self::Forward { .. }
            | Self::Stuck { .. }
            | Self::Unready(_) => String::new(),
        }
    }
}
