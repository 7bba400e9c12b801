//! Why a run cannot be, or stopped.

use roundelay_runtime::{
    CheckpointError, CodeError, DataError, Ended, EvaluateError, MachineError,
    MeetingError, NoCuda, NotNative, OutputError, StateError, TrainError, WeightsError,
};
use roundelay_schedule::Float;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a run did not happen, or stopped.
#[derive(Debug, Error)]
pub enum RunError {
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The folder has no whole checkpoint.
    #[error("`{}` holds no whole checkpoint", .0.display())]
    NoCheckpoint(PathBuf),
    /// There is no folder of checkpoints.
    #[error("there is no folder `{}`; {}", .0.display(), self.hint())]
    NoFolder(PathBuf),
    /// Weights cannot be written where they are to be.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Weights cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The machine does not compute in the job's type.
    #[error(transparent)]
    Element(#[from] NotNative),
    /// Losses of a type whose small gradients vanish would have to be scaled.
    #[error(
        "training in {0} wants losses that are scaled, or small gradients vanish, and there is no \
         scaling yet; {hint}",
        hint = self.hint()
    )]
    Unscaled(Float),
    /// There is no GPU where one was asked for.
    #[error("{absent}; {}", instead_of_gpu(*dtype))]
    NoCuda {
        /// The library, device or version that is missing.
        absent: NoCuda,
        /// The type of the training, which says whether a CPU does it.
        dtype: Float,
    },
    /// No GPU does it, and the CPU does not compute in the job's type.
    #[error("{gpu}; {cpu}")]
    Nowhere {
        /// Why a GPU does not.
        gpu: String,
        /// Why the CPU does not.
        cpu: NotNative,
    },
    /// The schedule's kernels cannot be called.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// A state that is not the schedule's.
    #[error(transparent)]
    State(#[from] StateError),
    /// Ranks did not meet.
    #[error(transparent)]
    Meeting(#[from] MeetingError),
    /// Something went wrong on one of the ranks before there was a machine.
    #[error(transparent)]
    Ranks(#[from] Ended),
    /// The machine failed.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The training loop failed.
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// What is left where there is no GPU.
fn instead_of_gpu(dtype: Float) -> &'static str {
    match dtype.native() {
        Some(_) => "`--device cpu` needs none of it",
        None => {
            "`--device cpu` needs none of it, but trains in `dtype f32` or `dtype f64` alone"
        }
    }
}

impl From<EvaluateError> for RunError {
    fn from(error: EvaluateError) -> Self {
        match error {
            EvaluateError::Code(error) => Self::Code(error),
            EvaluateError::State(error) => Self::State(error),
            EvaluateError::Machine(error) => Self::Machine(error),
        }
    }
}

impl RunError {
    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> String {
        match self {
            Self::Data(error) => error.hint().to_owned(),
            Self::Checkpoint(error) => error.hint().to_owned(),
            Self::NoCheckpoint(_) => String::new(),
            Self::NoFolder(_) => {
                "name the one that `run --checkpoint` wrote to".to_owned()
            }
            Self::Output(error) => error.hint().to_owned(),
            Self::Weights(error) => error.hint().to_owned(),
            Self::Element(_) | Self::Nowhere { .. } => NotNative::HINT.to_owned(),
            Self::Unscaled(_) => "train with `dtype bf16`".to_owned(),
            Self::NoCuda { absent, dtype } => {
                let own = [absent.hint(), instead_of_gpu(*dtype)];
                own.into_iter()
                    .filter(|hint| !hint.is_empty())
                    .collect::<Vec<_>>()
                    .join("; ")
            }
            Self::Code(error) => error.hint().to_owned(),
            Self::State(error) => error.hint().to_owned(),
            Self::Meeting(error) => error.hint().to_owned(),
            Self::Ranks(_) => String::new(),
            Self::Machine(error) => error.hint(),
            Self::Train(error) => error.hint(),
        }
    }

    /// The file or folder that is at fault; none where it is what the schedule says, or no file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Data(error) => error.path(),
            Self::Checkpoint(error) => Some(error.path()),
            Self::NoCheckpoint(folder) | Self::NoFolder(folder) => Some(folder),
            Self::Output(error) => Some(error.path()),
            Self::Weights(error) => Some(error.path()),
            Self::State(error) => error.path(),
            Self::Machine(error) => error.path(),
            Self::Train(error) => error.path(),
            Self::Element(_)
            | Self::Unscaled(_)
            | Self::NoCuda { .. }
            | Self::Nowhere { .. }
            | Self::Code(_)
            | Self::Meeting(_)
            | Self::Ranks(_) => None,
        }
    }

    /// Whether what was given is at fault, not the run.
    pub fn is_input(&self) -> bool {
        match self {
            RunError::Data(_)
            | RunError::Checkpoint(_)
            | RunError::NoCheckpoint(_)
            | RunError::NoFolder(_)
            | RunError::Output(
                OutputError::Input { .. }
                | OutputError::AmongCheckpoints { .. }
                | OutputError::AmongData { .. }
                | OutputError::Unwritable { .. }
                | OutputError::NoFolder { .. }
                | OutputError::NoRoom { .. },
            )
            | RunError::Weights(_)
            | RunError::Code(_) => true,
            RunError::State(error) => !matches!(error, StateError::Read { .. }),
            RunError::Output(OutputError::Write { .. })
            | RunError::Element(_)
            | RunError::Unscaled(_)
            | RunError::NoCuda { .. }
            | RunError::Nowhere { .. }
            | RunError::Meeting(_)
            | RunError::Ranks(_)
            | RunError::Machine(_)
            | RunError::Train(_) => false,
        }
    }
}
