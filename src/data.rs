//! The examples of a training as files, for other programs that shall see the same ones.

use roundelay_runtime::{DataError, Dataset, Feed};
use roundelay_schedule::{Checked, Element, Float};
use serde::Serialize;
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};
use thiserror::Error;

/// What the folder holds, as its `index.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Examples {
    /// Version of this document.
    pub format: u32,
    /// Training steps.
    pub steps: u64,
    /// Examples of a step.
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
    /// A file of the data has the name of one that would be written.
    #[error("`{path}` is an input, and would be written over; name another folder")]
    Overwrites {
        /// The file.
        path: PathBuf,
    },
    /// Something cannot be written.
    #[error("cannot write `{path}`: {source}")]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Writes the examples of training steps 0 .. `steps` into a folder, exactly as a run of the
/// schedule sees them; `data` takes the place of the folder that the job reads. Files get their names once
/// they are whole, and the index comes last: a folder with an index has all that this says.
///
/// # Errors
/// Unusable data; files that cannot be written, or from which the data was read.
pub fn write_examples(
    schedule: &Checked,
    steps: u64,
    data: Option<&Path>,
    folder: &Path,
) -> Result<Examples, ExamplesError> {
    let mut data = Dataset::open(&schedule.job, data)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| ExamplesError::Write { path, source }
    };
    let named = |name: &str| folder.join(format!("{name}.bin"));
    let mut paths = schedule.job.inputs.values().map(|input| named(&input.name));
    if let Some(path) = paths.find(|path| data.is_of(path)) {
        return Err(ExamplesError::Overwrites { path });
    }
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let index = folder.join("index.json");
    match fs::remove_file(&index) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed(&index)(error));
        }
        Ok(()) | Err(_) => {}
    }
    let job = &schedule.job;
    let mut inputs = Vec::new();
    for (id, input) in job.inputs.iter() {
        let whole = named(&input.name);
        let path = whole.with_extension("bin.unfinished");
        let elements = input.shape.iter().product::<u64>();
        let mut bytes = vec![0; (elements * input.element.size(job.dtype)) as usize];
        let micro_batches = u64::from(job.batch) / data.examples().max(1);
        let mut out = BufWriter::new(File::create(&path).map_err(failed(&path))?);
        for step in 0..steps {
            for micro_batch in 0..micro_batches {
                data.fill(id, step, micro_batch, &mut bytes);
                out.write_all(&bytes).map_err(failed(&path))?;
            }
        }
        out.flush().map_err(failed(&path))?;
        fs::rename(&path, &whole).map_err(failed(&path))?;
        let (name, file) = (input.name.clone(), format!("{}.bin", input.name));
        let element = spelled(input.element, job.dtype);
        let shape = input.shape.iter().skip(1).copied().collect();
        inputs.push(ExamplesFile { name, file, element, shape });
    }
    let examples = Examples { format: 1, steps, batch: u64::from(job.batch), inputs };
    let path = folder.join("index.json.unfinished");
    let text = serde_json::to_string_pretty(&examples).map_err(io::Error::from);
    let written = text.and_then(|text| fs::write(&path, text + "\n"));
    written.and_then(|()| fs::rename(&path, &index)).map_err(failed(&path))?;
    Ok(examples)
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
