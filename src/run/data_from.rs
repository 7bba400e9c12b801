//! Where the examples of a job are read: data may be open before there is a plan.

use super::RunError;
use roundelay_codegen::whole_job;
use roundelay_dsl::Program;
use roundelay_runtime::{DataError, Dataset};
use roundelay_schedule::{Data, Float, Input, InputId, Job};
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
    Opened(Box<OpenData>),
}

/// Data of a program that is open, for every plan of it. For another job it is opened again.
#[derive(Clone, Debug)]
pub struct OpenData {
    data: Dataset,
    wanted: Wanted,
    folder: Option<PathBuf>,
}

/// What jobs that read the same examples have in common.
#[derive(Clone, Debug, PartialEq)]
struct Wanted {
    data: Data,
    batch: u32,
    seed: u64,
    dtype: Float,
    /// Their shapes are those of one example.
    inputs: Vec<(InputId, Input)>,
}

impl Wanted {
    fn of(job: &Job) -> Self {
        let example = |(id, input): (InputId, &Input)| {
            let shape = input.shape.iter().skip(1).copied().collect();
            (id, Input { shape, ..input.clone() })
        };
        Self {
            data: job.data.clone(),
            batch: job.batch,
            seed: job.seed,
            dtype: job.dtype,
            inputs: job.data_inputs().map(example).collect(),
        }
    }
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
        let (wanted, folder) = (Wanted::of(job), self.folder().map(Path::to_path_buf));
        *self = Self::Opened(Box::new(OpenData { data: data.clone(), wanted, folder }));
        Ok(data)
    }

    /// The data in the micro-batches of a job.
    pub(crate) fn open(&self, job: &Job) -> Result<Dataset, DataError> {
        match self {
            Self::Job => Dataset::open(job, None),
            Self::Folder(folder) => Dataset::open(job, Some(folder)),
            Self::Opened(open) if open.wanted == Wanted::of(job) => {
                Ok(open.data.clone().cut_for(job))
            }
            Self::Opened(open) => Dataset::open(job, open.folder.as_deref()),
        }
    }

    /// Where relative paths begin instead.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Job => None,
            Self::Folder(folder) => Some(folder),
            Self::Opened(open) => open.folder.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SourceFile, parse};

    /// A program of letters in sequences of this length, with this data.
    fn program(sequence: u32, data: &str) -> Program {
        let text = format!(
            "model letters {{\n input tokens: i32[batch, {sequence}]\n \
             input targets: i32[batch, {sequence}]\n \
             loss cross_entropy(linear(embedding(tokens, 256, 8), 256), targets)\n}}\n\
             device core {{ memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }}\n\
             cluster one {{ 1 x core }}\n\
             train {{ data {data}, batch 8, steps 2, optimizer sgd(lr = 0.1) }}\n"
        );
        parse(&SourceFile::new("letters.rdl".to_owned(), text)).unwrap()
    }

    #[test]
    fn data_that_is_open_serves_the_plans_of_its_program_alone() {
        let mut from = DataFrom::Job;
        let own = whole_job(&program(8, "synthetic")).unwrap();
        from.keep_open(&own).unwrap();
        let mut part = own.clone();
        for id in own.inputs.ids() {
            part.inputs[id].shape[0] = 2;
        }
        assert_eq!([&own, &part].map(|job| from.open(job).unwrap().examples()), [8, 2]);
        let DataFrom::Opened(open) = &from else { panic!("it is open") };
        assert!(open.wanted == Wanted::of(&part));
        let other = whole_job(&program(16, "synthetic")).unwrap();
        assert!(open.wanted != Wanted::of(&other));
        let missing = program(8, "text(\"*.none\")");
        assert!(from.open(&whole_job(&missing).unwrap()).is_err());
        from.look_ahead(&missing).unwrap_err();
    }
}
