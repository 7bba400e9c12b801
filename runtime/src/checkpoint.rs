//! Checkpoints: the training state at rest, as safetensors files in a folder of their own.
//!
//! A file is written under another name, brought to disk, then renamed, so that at every instant
//! the newest whole checkpoint is there. A run that stops anywhere goes on from it bit for bit.
//! A folder is held by the one run that writes to it, so that a job which is started again while it
//! still runs elsewhere removes nothing of what the first one keeps.

mod error;
mod folder;
pub(crate) mod format;
mod provenance;
mod resume;
mod writing;

pub use error::CheckpointError;
pub use provenance::Provenance;
pub use resume::{OptimizerState, Resumed, Resumption};
pub(crate) use writing::Writing;

use crate::{ArrayNumbers, ArraySource, State, lock::lock, output::write_whole};
use folder::Hold;
use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// How many checkpoints a folder keeps.
const KEPT: usize = 2;

/// A checkpoint that is whole.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Where it lies.
    pub path: PathBuf,
    /// The run that wrote it.
    pub provenance: Provenance,
    /// Everything that training carries, read from the file when it is asked for.
    pub state: State<ArraySource>,
}

/// A checkpoint that was written.
#[derive(Debug)]
pub struct Saved {
    /// Where it lies.
    pub path: PathBuf,
    /// Why something stays beside it that nobody needs.
    pub left: Vec<CheckpointError>,
}

/// The newest whole checkpoint of a folder.
#[derive(Debug)]
pub struct Latest {
    /// None when there is none.
    pub checkpoint: Option<Checkpoint>,
    /// What lies there besides: unfinished, damaged and foreign files.
    pub ignored: Vec<CheckpointError>,
}

/// A folder that a run writes checkpoints to, and no other meanwhile.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    provenance: Provenance,
    /// The steps of checkpoints that are known to be whole, without reading gigabytes again: the run wrote
    /// them, or goes on from one.
    whole: Arc<Mutex<BTreeSet<u64>>>,
    _hold: Arc<Hold>,
}

impl Checkpoints {
    /// The folder of a run that starts anew; makes it.
    ///
    /// # Errors
    /// When it cannot be made, is held by another run, or has checkpoints.
    pub fn start(folder: &Path, provenance: Provenance) -> Result<Self, CheckpointError> {
        let checkpoints = Self::open(folder, provenance)?;
        demand_empty(folder).map(|()| checkpoints)
    }

    /// The folder of a run that goes on; makes it when it is not there.
    ///
    /// # Errors
    /// When it cannot be made, or is held by another run.
    pub fn open(folder: &Path, provenance: Provenance) -> Result<Self, CheckpointError> {
        folder::make(folder)?;
        let _hold = Arc::new(Hold::of(folder)?);
        let folder = folder.to_path_buf();
        Ok(Self { folder, provenance, whole: Arc::default(), _hold })
    }

    /// Whether a run could start anew in a folder now. Nothing is written to find out.
    ///
    /// # Errors
    /// Those of [`Checkpoints::start`].
    pub fn try_start(folder: &Path) -> Result<(), CheckpointError> {
        Self::try_open(folder)?;
        demand_empty(folder)
    }

    /// Whether a run could go on in a folder now. Nothing is written to find out.
    ///
    /// # Errors
    /// Those of [`Checkpoints::open`].
    pub fn try_open(folder: &Path) -> Result<(), CheckpointError> {
        folder::attempt(folder)
    }

    /// Whether a folder has files with the name of a checkpoint, whole or not.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn are_in(folder: &Path) -> Result<bool, CheckpointError> {
        folder::list(folder).map(|listing| !listing.checkpoints.is_empty())
    }

    /// The checkpoint of this step was read and is whole, so it is kept as if this run had written it.
    pub fn found_whole(&self, step: u64) {
        lock(&self.whole).insert(step);
    }

    /// The file of a step in a folder of checkpoints.
    pub(crate) fn file_of(folder: &Path, step: u64) -> PathBuf {
        folder::file(folder, step)
    }

    /// Writes a checkpoint, then removes what is older than the two newest up to this step that are known to
    /// be whole, and what earlier writes left unfinished. It is on disk when this returns, also where something
    /// of that cannot be removed.
    ///
    /// # Errors
    /// When it cannot be written; then what was there before is untouched.
    pub fn save<A: ArrayNumbers>(
        &self,
        state: &State<A>,
    ) -> Result<Saved, CheckpointError> {
        let written = write_whole(&folder::file(&self.folder, state.step), |file| {
            format::write(file, &self.provenance, state).map(drop)
        });
        self.keep(state.step, written)
    }

    /// Removes what is not kept beside the checkpoint of a step that was written.
    fn keep(&self, step: u64, written: io::Result<()>) -> Result<Saved, CheckpointError> {
        let path = folder::file(&self.folder, step);
        match written {
            Ok(()) => {
                self.found_whole(step);
                let mut whole = lock(&self.whole);
                let left = folder::prune(&self.folder, step, KEPT, &mut whole);
                Ok(Saved { path, left })
            }
            Err(source) => Err(CheckpointError::Write { path, source }),
        }
    }
}

/// Refuses a folder that has checkpoints.
fn demand_empty(folder: &Path) -> Result<(), CheckpointError> {
    match folder::list(folder)?.checkpoints.last_key_value() {
        Some((step, _)) => {
            let (folder, step) = (folder.to_path_buf(), *step);
            Err(CheckpointError::Occupied { folder, step })
        }
        None => Ok(()),
    }
}

impl Latest {
    /// Looks through a folder; one that is not there has no checkpoint.
    ///
    /// # Errors
    /// When the folder cannot be read, or has checkpoints and none of them is whole.
    pub fn of(folder: &Path) -> Result<Self, CheckpointError> {
        loop {
            let listing = folder::list(folder)?;
            if let Some(found) = Self::among(folder, listing)? {
                return Ok(found);
            }
        }
    }

    /// As [`Latest::of`], of a folder that a run may be writing to meanwhile: then what it writes is nothing
    /// that was left unfinished.
    ///
    /// # Errors
    /// Those of [`Latest::of`].
    pub fn of_another_run(folder: &Path) -> Result<Self, CheckpointError> {
        let mut found = Self::of(folder)?;
        let is_unfinished =
            |other: &CheckpointError| matches!(other, CheckpointError::Unfinished { .. });
        if found.ignored.iter().any(is_unfinished) && folder::is_held(folder) {
            found.ignored.retain(|other| !is_unfinished(other));
        }
        Ok(found)
    }

    /// The newest of what was listed; none where a run has removed some of it meanwhile, and written others.
    fn among(
        folder: &Path,
        folder::Listing { checkpoints, unfinished, foreign }: folder::Listing,
    ) -> Result<Option<Self>, CheckpointError> {
        let unfinished = unfinished.into_iter();
        let unfinished = unfinished.map(|path| CheckpointError::Unfinished { path });
        let foreign = foreign.into_iter().map(|path| CheckpointError::Foreign { path });
        let mut ignored: Vec<CheckpointError> = unfinished.chain(foreign).collect();
        let mut damaged = Vec::new();
        for path in checkpoints.values().rev() {
            match format::open(path) {
                Ok(checkpoint) => {
                    ignored.append(&mut damaged);
                    return Ok(Some(Self { checkpoint: Some(checkpoint), ignored }));
                }
                Err(CheckpointError::Read { source, .. })
                    if source.kind() == io::ErrorKind::NotFound =>
                {
                    return Ok(None);
                }
                Err(error) => damaged.push(error),
            }
        }
        match none_whole(folder, damaged) {
            None => Ok(Some(Self { checkpoint: None, ignored })),
            Some(error) => Err(error),
        }
    }
}

/// Why nothing goes on from a folder, of what is wrong with each of its checkpoints, the newest first; nothing
/// where it has none. One that cannot be read may be whole, and nobody is to remove it.
fn none_whole(folder: &Path, wrong: Vec<CheckpointError>) -> Option<CheckpointError> {
    let (folder, count) = (folder.to_path_buf(), wrong.len());
    let is_unread = |own: &CheckpointError| matches!(own, CheckpointError::Read { .. });
    let told = wrong.iter().position(is_unread).unwrap_or(0);
    wrong.into_iter().nth(told).map(|error| match error {
        CheckpointError::Damaged { reason, .. } => {
            CheckpointError::NoneWhole { folder, count, reason }
        }
        unread => unread,
    })
}

#[cfg(test)]
pub(crate) mod tests;
