//! What can be wrong with checkpoints.

use crate::{StateError, listed::listed, regular, shown::shown};
use roundelay_schedule::printable;
use std::{
    io,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// Why a checkpoint cannot be written or read. Every message ends with what would repair it.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The system refused to read.
    #[error("cannot read `{}`: {source}; {}", shown(path), self.hint())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused to write. Earlier checkpoints, if there are any, are whole.
    #[error("cannot write `{}`: {source}; {}", shown(path), self.hint())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused to remove what nobody needs. Newer checkpoints are whole.
    #[error("cannot remove `{}`: {source}; {}", shown(path), self.hint())]
    Stays {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Something else stands where the folder of checkpoints is to be.
    #[error("`{}` is not a folder; {}", shown(path), self.hint())]
    NoFolder {
        /// What stands there.
        path: PathBuf,
    },
    /// A file that is cut short or changed.
    #[error("`{}` is not a whole checkpoint: {reason}; {}", shown(path), self.hint())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        reason: String,
    },
    /// A folder of which no checkpoint is whole.
    #[error("{}: {reason}; {}", none_whole(*count, folder), self.hint())]
    NoneWhole {
        /// The folder.
        folder: PathBuf,
        /// How many checkpoints it has.
        count: usize,
        /// What is wrong with the newest one.
        reason: String,
    },
    /// A file that a write left behind which did not come to its end.
    #[error("`{}` was not finished; {}", shown(path), self.hint())]
    Unfinished {
        /// The file.
        path: PathBuf,
    },
    /// Something else in the folder.
    #[error("`{}` is not a checkpoint; {}", shown(path), self.hint())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
    },
    /// A new run in a folder that holds checkpoints.
    #[error(
        "`{}` holds checkpoints, up to step {step}; {}",
        shown(folder), self.hint()
    )]
    Occupied {
        /// The folder.
        folder: PathBuf,
        /// The largest step.
        step: u64,
    },
    /// A folder to which another run writes.
    #[error("another run writes checkpoints to `{}`; {}", shown(folder), self.hint())]
    Held {
        /// The folder.
        folder: PathBuf,
    },
    /// A checkpoint of a model of another name, whose parameters do not fit.
    #[error(
        "`{}` is of model `{}`, the schedule is of `{own}`; {}",
        shown(path), printable(model), self.hint()
    )]
    Stranger {
        /// The file.
        path: PathBuf,
        /// Its model.
        model: String,
        /// The schedule's model.
        own: String,
    },
    /// A checkpoint whose parameters do not fit though its model has the schedule's name.
    #[error(
        "`{}` is of another model than the schedule:{}",
        shown(path),
        listed(mistakes)
    )]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Everything that does not fit.
        mistakes: Vec<StateError>,
    },
}

impl CheckpointError {
    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { source, .. } => regular::hint(source),
            Self::Write { .. } => {
                "any earlier checkpoint is whole; check space and permissions, or name another \
                 folder"
            }
            Self::Stays { .. } => "nobody needs it; remove it when you can",
            Self::NoFolder { .. } => "name one for checkpoints",
            Self::Damaged { .. } => "the newest whole one before it takes its place",
            Self::NoneWhole { count: 1, .. } => {
                "name another folder, or remove it to start anew"
            }
            Self::NoneWhole { .. } => "name another folder, or remove them to start anew",
            Self::Unfinished { .. } => {
                "the next checkpoint removes it, where locks say that nobody writes it"
            }
            Self::Foreign { .. } => "give checkpoints a folder of their own",
            Self::Occupied { .. } => "go on with --resume, or name another folder",
            Self::Held { .. } => "wait until it ends, end it, or name another folder",
            Self::Stranger { .. } => "go on with its own program, or name another folder",
            Self::Mismatch { .. } => "",
        }
    }

    /// What lies in a folder besides, each on a line of its own; all foreign files are one, for there may be very
    /// many.
    pub fn lines(ignored: &[Self]) -> Vec<String> {
        let (foreign, own): (Vec<&Self>, _) =
            ignored.iter().partition(|other| matches!(other, Self::Foreign { .. }));
        let own = own.into_iter().map(ToString::to_string);
        own.chain(Self::foreign(&foreign)).collect()
    }

    /// All foreign files as one line, the first ones by name.
    fn foreign(all: &[&Self]) -> Option<String> {
        const NAMED: usize = 3;
        let (first, rest) = (all.first()?, all.len().saturating_sub(NAMED));
        if all.len() == 1 {
            return Some(first.to_string());
        }
        let named = all.iter().take(NAMED).map(|own| format!("`{}`", shown(own.path())));
        let named = named.collect::<Vec<_>>().join(", ");
        let further = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        Some(format!("{named}{further} are not checkpoints; {}", first.hint()))
    }

    /// The file or folder that is at fault.
    pub fn path(&self) -> &Path {
        match self {
            Self::Read { path, .. }
            | Self::Write { path, .. }
            | Self::Stays { path, .. }
            | Self::NoFolder { path }
            | Self::Damaged { path, .. }
            | Self::NoneWhole { folder: path, .. }
            | Self::Unfinished { path }
            | Self::Foreign { path }
            | Self::Occupied { folder: path, .. }
            | Self::Held { folder: path }
            | Self::Stranger { path, .. }
            | Self::Mismatch { path, .. } => path,
        }
    }
}

/// That no checkpoint of a folder is whole, up to the reason.
fn none_whole(count: usize, folder: &Path) -> String {
    let folder = shown(folder);
    match count {
        1 => format!("the only checkpoint in `{folder}` is not whole"),
        _ => format!(
            "none of the {count} checkpoints in `{folder}` is whole, the newest one for this"
        ),
    }
}
