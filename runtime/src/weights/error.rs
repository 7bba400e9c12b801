//! What can be wrong with files of weights.

use crate::{container::NotWhole, listed::listed, regular, shown::shown};
use roundelay_schedule::printable;
use std::{
    fmt, io,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// Why weights cannot be read.
#[derive(Debug, Error)]
pub enum WeightsError {
    /// The system refused to read.
    #[error("cannot read `{}`: {source}; {}", shown(path), self.hint())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file that is cut short or changed.
    #[error("`{}` is not a whole safetensors file: {}", shown(path), printable(reason))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        reason: String,
    },
    /// An index that does not lead to files.
    #[error(
        "`{}` does not say where weights lie: {}; {}",
        shown(path), printable(reason), self.hint()
    )]
    Index {
        /// The index.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A folder without weights.
    #[error("no weights lie in `{}`; {}", shown(path), self.hint())]
    NoWeights {
        /// The folder.
        path: PathBuf,
    },
    /// Weights of another model.
    #[error("`{}` does not fit the model:{}{names}", shown(path), listed(mistakes))]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Everything that does not fit.
        mistakes: Vec<WeightsMistake>,
        /// Whose names it has.
        names: WeightsNames,
    },
}

/// Whose names the arrays of a file have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsNames {
    /// At least half of them are parameters of the model.
    Own,
    /// Most are not.
    Foreign,
    /// Of what another program has for the model less than half is there.
    Other,
}

impl WeightsNames {
    /// What to do about them; empty where each mistake says it.
    fn hint(self) -> &'static str {
        match self {
            Self::Own => "",
            Self::Other => "they are of another model than the configuration says",
            Self::Foreign => {
                "most names are of another model or another program: weights are read under the \
                 names that `run --save` writes; `import --weights` reads those of Hugging Face"
            }
        }
    }
}

impl fmt::Display for WeightsNames {
    /// What to do about them, below what does not fit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => Ok(()),
            Self::Foreign | Self::Other => write!(f, "\n{}", self.hint()),
        }
    }
}

impl WeightsError {
    /// What says that a file of weights does not read.
    pub(super) fn of(path: &Path, error: NotWhole) -> Self {
        let path = path.to_path_buf();
        match error {
            NotWhole::Damaged(reason) => Self::Damaged { path, reason },
            NotWhole::Unread(source) => Self::Read { path, source },
        }
    }

    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { source, .. } => regular::hint(source),
            Self::Damaged { .. } => "",
            Self::Index { .. } => {
                "its `weight_map` has the name of a file beside it for every array"
            }
            Self::NoWeights { .. } => {
                "they are read from `model.safetensors`, or from the files that \
                 `model.safetensors.index.json` names; files of other kinds are not read"
            }
            Self::Mismatch { names, .. } => names.hint(),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Read { path, .. }
            | Self::Damaged { path, .. }
            | Self::Index { path, .. }
            | Self::NoWeights { path }
            | Self::Mismatch { path, .. } => path,
        }
    }
}

/// One thing that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WeightsMistake {
    /// A parameter is not there.
    #[error("`{}` is missing{}", printable(name), printable(hint))]
    Missing {
        /// Global name.
        name: String,
        /// The nearest name of the file, or nothing.
        hint: String,
    },
    /// An array is there that the model has no parameter for.
    #[error("`{}` is not a parameter of the model{}", printable(name), printable(hint))]
    Unknown {
        /// Name in the file.
        name: String,
        /// The nearest parameter, or nothing.
        hint: String,
    },
    /// A shape is another one.
    #[error(
        "`{}` has shape {found:?} in the file, the model wants {expected:?}",
        printable(name)
    )]
    Shape {
        /// Global name.
        name: String,
        /// In the file.
        found: Vec<u64>,
        /// In the model.
        expected: Vec<u64>,
    },
    /// An element type that is not read.
    #[error(
        "`{}` holds {found} numbers; f32, f64, bf16 and f16 are read",
        printable(name)
    )]
    Element {
        /// Global name.
        name: String,
        /// In the file.
        found: String,
    },
    /// Nothing has the name of what begins as it is drawn.
    #[error("no parameter lies in `{}`{}", printable(name), printable(hint))]
    NothingFresh {
        /// As it was given.
        name: String,
        /// The nearest name of a parameter or a module, or nothing.
        hint: String,
    },
    /// A description of an array of another program that no array can keep.
    #[error(
        "the description of `{}` does not hold: its parameters differ in more than their rows, it is \
         transposed and no matrix, or it is too large",
        printable(name)
    )]
    Description {
        /// Name of the array.
        name: String,
    },
    /// Parameters that are one array elsewhere.
    #[error(
        "the parameters of `{}` hold {one} and {other} numbers, but are one array",
        printable(name)
    )]
    Mixed {
        /// Name of the array.
        name: String,
        /// The type of one.
        one: String,
        /// The type of another.
        other: String,
    },
    /// A number that the job's type does not have.
    #[error(
        "number {place} of `{}` is too large for f32; set `dtype` to f64 or clip it",
        printable(name)
    )]
    Range {
        /// Global name.
        name: String,
        /// Its place in the array.
        place: usize,
    },
}
