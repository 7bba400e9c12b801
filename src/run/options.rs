//! How a run is asked for: on what, from where, and what it keeps.

use super::DataFrom;
use roundelay_runtime::{CpuOptions, Every, Graphs, Interrupt, Seat};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// How to run a schedule.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The kind of device that trains.
    pub on: On,
    /// Train up to this step, counted from the start of training, instead of the job's number.
    pub steps: Option<u64>,
    /// Where the examples are read.
    pub data: DataFrom,
    /// The files that the schedule was made of or read from: nothing is written over them.
    pub sources: Vec<PathBuf>,
    /// Where it begins, and which checkpoints it keeps.
    pub start: Start,
    /// Write the last parameters to this safetensors file.
    pub save: Option<PathBuf>,
    /// Ends the run early, at rest and with all that it keeps, when it is raised.
    pub interrupt: Interrupt,
    /// Who this process is among those that train together, one per device of the schedule.
    pub seat: Seat,
    /// When nothing moves for so long, the run ends, on all ranks. [`Duration::MAX`] says never; between
    /// ranks it is a year.
    pub deadline: Duration,
}

impl Default for RunOptions {
    /// One process on the CPU, which keeps nothing.
    fn default() -> Self {
        Self {
            on: On::default(),
            steps: None,
            data: DataFrom::default(),
            sources: Vec::new(),
            start: Start::default(),
            save: None,
            interrupt: Interrupt::default(),
            seat: Seat::alone(),
            deadline: CpuOptions::default().deadline,
        }
    }
}

/// What a schedule runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum On {
    /// CPU threads.
    #[default]
    Cpu,
    /// A GPU.
    Cuda(Graphs),
    /// A GPU if there is one that can do what the schedule asks for, else CPU threads.
    Best(Graphs),
}

/// Where a run begins, and which checkpoints it keeps.
#[derive(Clone, Debug)]
pub enum Start {
    /// From step zero.
    Anew {
        /// With these parameters instead of drawn ones.
        weights: Option<Given>,
        /// With checkpoints in this folder, which has none yet.
        keep: Option<Folder>,
    },
    /// At the newest checkpoint of a folder, or at step zero where it has none.
    Resume {
        /// The folder, which gets the checkpoints that follow too.
        folder: Folder,
        /// Step zero has these parameters instead of drawn ones.
        weights: Option<Given>,
    },
}

/// Parameters that a run begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// A safetensors file, under global names.
    pub file: PathBuf,
    /// Parameters, and modules with theirs (`logits`), that begin as they are drawn all the same.
    pub fresh: Vec<String>,
}

impl From<PathBuf> for Given {
    /// All parameters of a file.
    fn from(file: PathBuf) -> Self {
        Self { file, fresh: Vec::new() }
    }
}

impl Start {
    /// The folder of its checkpoints.
    pub(super) fn folder(&self) -> Option<&Folder> {
        match self {
            Self::Anew { keep, .. } => keep.as_ref(),
            Self::Resume { folder, .. } => Some(folder),
        }
    }

    /// The file of parameters that it may read.
    pub(super) fn weights(&self) -> Option<&Path> {
        let (Self::Anew { weights, .. } | Self::Resume { weights, .. }) = self;
        weights.as_ref().map(|given| given.file.as_path())
    }
}

impl Default for Start {
    /// With drawn parameters and no checkpoints.
    fn default() -> Self {
        Self::Anew { weights: None, keep: None }
    }
}

/// A folder of checkpoints.
#[derive(Clone, Debug)]
pub struct Folder {
    /// Path of the folder.
    pub path: PathBuf,
    /// When a checkpoint is written.
    pub every: Every,
}
