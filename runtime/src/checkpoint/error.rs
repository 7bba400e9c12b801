//! What can be wrong with checkpoints.

use crate::{StateError, listed::listed};
use roundelay_schedule::printable;
use std::{
    io,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// The path of what others may have put into a folder.
fn found(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Why a checkpoint cannot be written or read. Every message ends with what would repair it.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The system refused to read.
    #[error("cannot read `{}`: {source}; check that it exists and may be read", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused to write. Earlier checkpoints, if there are any, are whole.
    #[error(
        "cannot write `{}`: {source}; any earlier checkpoint is whole; check space and permissions, \
         or name another folder",
        path.display()
    )]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Something else stands where the folder of checkpoints is to be.
    #[error("`{}` is not a folder; name one for checkpoints", path.display())]
    NoFolder {
        /// What stands there.
        path: PathBuf,
    },
    /// A file that is cut short or changed.
    #[error(
        "`{}` is not a whole checkpoint: {reason}; the newest whole one before it takes its place",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        reason: String,
    },
    /// A folder of which no checkpoint is whole.
    #[error(
        "none of the {count} checkpoints in `{}` is whole, the newest one for this: {reason}; name \
         another folder, or remove them to start anew",
        folder.display()
    )]
    NoneWhole {
        /// The folder.
        folder: PathBuf,
        /// How many checkpoints it has.
        count: usize,
        /// What is wrong with the newest one.
        reason: String,
    },
    /// A file that a write left behind which did not come to its end.
    #[error("`{}` was not finished; the next checkpoint removes it", found(path))]
    Unfinished {
        /// The file.
        path: PathBuf,
    },
    /// Something else in the folder.
    #[error(
        "`{}` is not a checkpoint; give checkpoints a folder of their own",
        found(path)
    )]
    Foreign {
        /// The file or folder.
        path: PathBuf,
    },
    /// A new run in a folder that holds checkpoints.
    #[error(
        "`{}` holds checkpoints, up to step {step}; go on with --resume, or name another folder",
        folder.display()
    )]
    Occupied {
        /// The folder.
        folder: PathBuf,
        /// The largest step.
        step: u64,
    },
    /// A folder to which another run writes.
    #[error(
        "another run writes checkpoints to `{}`; wait until it ends, end it, or name another folder",
        folder.display()
    )]
    Held {
        /// The folder.
        folder: PathBuf,
    },
    /// A checkpoint of another model.
    #[error("`{}` is of another model than the schedule:{}", path.display(), listed(mistakes))]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Everything that does not fit.
        mistakes: Vec<StateError>,
    },
}
