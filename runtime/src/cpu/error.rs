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
    #[error(
        "{}, but {wanted}; plan with less `memory` for each device or on fewer devices, or {}",
        bound.leaves(*left), bound.remedy()
    )]
    Memory {
        /// What there should be.
        wanted: Demand,
        /// How much there is.
        left: Bytes,
        /// By what.
        bound: MemoryBound,
    },
    /// The system does not hand out an arena.
    #[error(
        "the system refuses memory ({reason}): {wanted}; plan with less `memory` for each device \
         or on fewer devices, or raise the limit of this process"
    )]
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
        "nothing was completed for {patience:?}; the oldest unfinished action is {action} \
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
        patience: Duration,
    },
    /// There is nothing to go on from.
    #[error(transparent)]
    Unready(#[from] Unready),
}
