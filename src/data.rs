//! The examples of a training as files, for other programs that shall see the same ones.

use crate::DataFrom;
use roundelay_runtime::{
    DataError, Dataset, Feed, OutputError, OutputFile, Written, data_files,
    refuse_among_data, unless_lost,
};
use roundelay_schedule::{Bytes, Checked, Element, Float, InputId, Job};
use serde::Serialize;
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::Path,
};
use thiserror::Error;

/// What the folder holds, as its `index.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Examples {
    /// Version of this document.
    pub format: u32,
    /// How many training steps the files cover.
    pub steps: u64,
    /// Examples of one training step.
    pub batch: u64,
    /// A file for each input of the model.
    pub inputs: Vec<ExamplesFile>,
}

/// One input: all examples one behind the other, step by step; native byte order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExamplesFile {
    /// Name in the program.
    pub name: String,
    /// Name of the file in the folder.
    pub file: String,
    /// Type of its numbers: `i32`, or that of the job.
    pub element: String,
    /// Extents of one example.
    pub shape: Vec<u64>,
}

/// Why examples were not written.
#[derive(Debug, Error)]
pub enum ExamplesError {
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A file of the folder cannot be written, or is one that the data was read from.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Writes the examples of training steps 0 .. `steps` into a folder, exactly as a run of the
/// schedule sees them. Files get their names once they are whole, and the index comes last: a folder with an
/// index has all that this says.
///
/// # Errors
/// Unusable data; files that cannot be written, for which there is no room, or from which the data was read.
pub fn write_examples(
    schedule: &Checked,
    steps: u64,
    from: &DataFrom,
    folder: &Path,
) -> Result<Examples, ExamplesError> {
    let root = from.folder();
    let read = data_files(&schedule.job.data, root)?;
    let data = from.open(&schedule.job)?;
    let refused = |path: &Path| {
        let path = path.to_owned();
        |source| OutputError::Unwritable { path, source }
    };
    fs::create_dir_all(folder).map_err(refused(folder))?;
    let output = |file: &str| {
        let path = folder.join(file);
        let output = OutputFile::beside(&read, &path)?;
        refuse_among_data(&schedule.job.data, root, Written::File(&path))?;
        Ok::<_, OutputError>(output)
    };
    let index = output("index.json")?;
    let inputs: Vec<(InputId, ExamplesFile)> = described(&schedule.job).collect();
    let files = inputs.iter().map(|(_, input)| output(&input.file));
    let files: Vec<OutputFile> = files.collect::<Result<_, _>>()?;
    [&index].into_iter().chain(&files).for_each(OutputFile::clear);
    let mut writer = Writer { job: &schedule.job, data, steps };
    let lengths = inputs.iter().map(|(id, _)| writer.length(*id));
    OutputFile::demand_room(&files.iter().zip(lengths).collect::<Vec<_>>())?;
    match fs::remove_file(index.path()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(refused(index.path())(error).into());
        }
        Ok(()) | Err(_) => {}
    }
    for ((id, _), file) in inputs.iter().zip(files) {
        unless_lost(|| file.write_by(|out| writer.write(*id, out)))??;
    }
    let inputs = inputs.into_iter().map(|(_, input)| input).collect();
    let batch = u64::from(schedule.job.batch);
    let examples = Examples { format: 1, steps, batch, inputs };
    index.write_by(|out| {
        serde_json::to_writer_pretty(&mut *out, &examples)?;
        out.write_all(b"\n")
    })?;
    Ok(examples)
}

/// All inputs of a job that data brings, as the index has them.
fn described(job: &Job) -> impl Iterator<Item = (InputId, ExamplesFile)> {
    job.data_inputs().map(|(id, input)| {
        let name = input.name.clone();
        let file = format!("{name}.bin");
        let element = spelled(input.element, job.dtype);
        let shape = input.shape.iter().skip(1).copied().collect();
        (id, ExamplesFile { name, file, element, shape })
    })
}

/// Writes inputs one after the other.
struct Writer<'a> {
    job: &'a Job,
    data: Dataset,
    steps: u64,
}

impl Writer<'_> {
    /// Micro-batches of a step, as the data cuts it.
    fn micro_batches(&self) -> u64 {
        u64::from(self.job.batch) / self.data.examples().max(1)
    }

    /// What the file of an input takes.
    fn length(&self, id: InputId) -> Bytes {
        let Bytes(one) = self.job.inputs[id].bytes(self.job.dtype);
        Bytes(self.steps.saturating_mul(self.micro_batches()).saturating_mul(one))
    }

    fn write(&mut self, id: InputId, out: &mut File) -> io::Result<()> {
        let micro_batches = self.micro_batches();
        let Self { job, data, steps } = self;
        let mut bytes = vec![0; job.inputs[id].bytes(job.dtype).0 as usize];
        let mut out = BufWriter::new(out);
        for step in 0..*steps {
            for micro_batch in 0..micro_batches {
                data.fill(id, step, micro_batch, &mut bytes);
                out.write_all(&bytes)?;
            }
        }
        out.flush()
    }
}

fn spelled(element: Element, dtype: Float) -> String {
    match (element, dtype) {
        (Element::I32, _) => "i32",
        (Element::Real, Float::Bf16(_)) => "bf16",
        (Element::Real, Float::F16(_)) => "f16",
        (Element::Wide, Float::Bf16(_) | Float::F16(_))
        | (Element::Real | Element::Wide, Float::F32) => "f32",
        (Element::Real | Element::Wide, Float::F64) => "f64",
    }
    .to_owned()
}
