//! Why the CUDA machine cannot start or go on.

use super::{
    driver::{DeviceFacts, DriverError, NoCuda},
    ready::{KEEP, unkept},
};
use crate::{
    code::CodeError,
    machine::Unready,
    ranks::{Ended, LaunchError, MeetingError, WorldSize},
    state::StateError,
};
use roundelay_schedule::{ActionId, Bytes, RoutineId};
use std::{path::PathBuf, time::Duration};

/// Why the CUDA machine could not start or go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// A library, driver or device is missing.
    #[error(transparent)]
    Absent(#[from] NoCuda),
    /// The environment does not say which rank this is.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The ranks did not meet.
    #[error(transparent)]
    Meeting(#[from] MeetingError),
    /// Something went wrong on one of the ranks, which ends all of them.
    #[error(transparent)]
    Ranks(#[from] Ended),
    /// The schedule is for another number of devices.
    #[error(transparent)]
    WorldSize(#[from] WorldSize),
    /// There is no GPU for this rank.
    #[error(
        "rank {rank} is process {local} of its machine, which has {count} GPUs for it; {}",
        self.hint()
    )]
    NoGpu {
        /// This rank.
        rank: u32,
        /// Its number on the machine.
        local: u32,
        /// GPUs that it sees.
        count: u32,
    },
    /// A kernel call of the schedule is malformed.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// The state does not fit the schedule.
    #[error(transparent)]
    State(#[from] StateError),
    /// A source was not compiled.
    #[error("NVRTC refuses `{file}` for {architecture}:\n{log}")]
    Compile {
        /// Name of the source.
        file: &'static str,
        /// What for.
        architecture: String,
        /// What the compiler says.
        log: String,
    },
    /// There is no cache for machine code.
    #[error("{}", unkept("what is compiled", folder.as_deref()))]
    Unkept {
        /// The folder, if there is one.
        folder: Option<PathBuf>,
    },
    /// A function of a source cannot be had.
    #[error("`{symbol}` of `{file}` cannot be loaded on {device}: {reason}")]
    Function {
        /// Name of the source.
        file: &'static str,
        /// The function.
        symbol: String,
        /// The device in words.
        device: String,
        /// What the driver says.
        reason: DriverError,
    },
    /// A kernel has no form for CUDA devices.
    #[error("call {call} of routine {routine} (`{kernel}`) on a CUDA device: {message}")]
    Kernel {
        /// The routine.
        routine: RoutineId,
        /// Index into its calls.
        call: usize,
        /// Name of the kernel.
        kernel: String,
        /// Why it has none.
        message: String,
    },
    /// The device has too little memory.
    #[error("{device} has {free} of memory left, but {what} takes {wanted}; {}", self.hint())]
    Memory {
        /// The device in words.
        device: String,
        /// What the memory is for.
        what: String,
        /// How much it takes.
        wanted: Bytes,
        /// How much there is.
        free: Bytes,
    },
    /// The device refuses something that is no action.
    #[error("{device} refuses {what}: {reason}")]
    Refused {
        /// The device in words.
        device: String,
        /// What was done.
        what: String,
        /// What the driver says.
        reason: DriverError,
    },
    /// An action could not be issued.
    #[error("{action} in period {period} on {queue} failed on {device}: {reason}")]
    Failed {
        /// The line.
        action: ActionId,
        /// The period.
        period: i64,
        /// The queue in words.
        queue: String,
        /// The device in words.
        device: String,
        /// What the driver says.
        reason: DriverError,
    },
    /// The device failed some time after an action was issued.
    #[error(
        "{device} failed: {reason}; {action} on {queue} in period {period} is the first action \
         that is not known to be done"
    )]
    Broken {
        /// The line.
        action: ActionId,
        /// The period.
        period: i64,
        /// The queue in words.
        queue: String,
        /// The device in words.
        device: String,
        /// What the driver says.
        reason: DriverError,
    },
    /// Nothing was completed for too long.
    #[error(
        "nothing was completed on {device} for {deadline:?}; {action} on {queue} in period \
         {period} is the first action that is not known to be done"
    )]
    Stuck {
        /// The line.
        action: ActionId,
        /// The period.
        period: i64,
        /// The queue in words.
        queue: String,
        /// The device in words.
        device: String,
        /// The deadline.
        deadline: Duration,
    },
    /// There is nothing to go on from.
    #[error(transparent)]
    Unready(#[from] Unready),
}

impl CudaError {
    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> String {
        match self {
            Self::Absent(error) => error.hint().to_owned(),
            Self::Launch(error) => error.hint(),
            Self::Meeting(error) => error.hint().to_owned(),
            Self::WorldSize(error) => error.hint(),
            Self::NoGpu { .. } => {
                "start one process per GPU, or show each process its own by \
                 CUDA_VISIBLE_DEVICES"
                    .to_owned()
            }
            Self::Code(error) => error.hint().to_owned(),
            Self::State(error) => error.hint().to_owned(),
            Self::Unkept { .. } => KEEP.to_owned(),
            Self::Memory { .. } => {
                "plan with less `memory`, or close what else runs there".to_owned()
            }
            Self::Ranks(_)
            | Self::Compile { .. }
            | Self::Function { .. }
            | Self::Kernel { .. }
            | Self::Refused { .. }
            | Self::Failed { .. }
            | Self::Broken { .. }
            | Self::Stuck { .. }
            | Self::Unready(_) => String::new(),
        }
    }

    /// Of something that is no action, and that a device refuses.
    pub(super) fn refused(
        device: &DeviceFacts,
        what: impl Into<String>,
        reason: DriverError,
    ) -> Self {
        Self::Refused { device: device.to_string(), what: what.into(), reason }
    }
}
