//! Where the examples of a job are read: data may be open before there is a plan.

use super::RunError;
use roundelay_codegen::whole_job;
use roundelay_dsl::Program;
use roundelay_runtime::{DataError, Dataset};
use roundelay_schedule::Job;
use std::path::{Path, PathBuf};

/// Where the examples of a job are read.
#[derive(Clone, Debug, Default)]
pub enum DataFrom {
    /// Where the job says.
    #[default]
    Job,
    /// Relative paths begin in this folder instead of that of the job's program.
    Folder(PathBuf),
    /// They were opened before.
    Opened(OpenData),
}

/// Data of a program that is open, for every plan of it.
#[derive(Clone, Debug)]
pub struct OpenData {
    data: Dataset,
    folder: Option<PathBuf>,
}

impl From<Option<PathBuf>> for DataFrom {
    fn from(folder: Option<PathBuf>) -> Self {
        folder.map_or(Self::Job, Self::Folder)
    }
}

impl DataFrom {
    /// Reads and checks the data of a program, which no plan of it reads again then.
    ///
    /// # Errors
    /// Data that cannot be used.
    pub fn look_ahead(&mut self, program: &Program) -> Result<(), RunError> {
        // No plan fits a malformed model, as the search says.
        if let Ok(job) = whole_job(program) {
            self.keep_open(&job)?;
        }
        Ok(())
    }

    /// Opens the data of a job, and stays so.
    pub(super) fn keep_open(&mut self, job: &Job) -> Result<Dataset, DataError> {
        let data = self.open(job)?;
        let folder = self.folder().map(Path::to_path_buf);
        *self = Self::Opened(OpenData { data: data.clone(), folder });
        Ok(data)
    }

    /// The data in the micro-batches of a job.
    pub(crate) fn open(&self, job: &Job) -> Result<Dataset, DataError> {
        match self {
            Self::Job => Dataset::open(job, None),
            Self::Folder(folder) => Dataset::open(job, Some(folder)),
            Self::Opened(OpenData { data, .. }) => Ok(data.clone().cut_for(job)),
        }
    }

    /// Where relative paths begin instead.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Job => None,
            Self::Folder(folder) => Some(folder),
            Self::Opened(OpenData { folder, .. }) => folder.as_deref(),
        }
    }
}
