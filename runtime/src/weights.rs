//! Weights in and out: parameters alone, as one safetensors file under their global names.
//!
//! What is read may hold other element types than the job's; what is written has the job's. Filters of
//! convolutions lie in these files as PyTorch has them.

mod convert;
mod error;
mod order;

pub use error::{WeightsError, WeightsMistake, WeightsNames};

use crate::{
    OutputError, OutputFile, State, Tensor,
    checkpoint::format,
    container::{self, Array, Container, element, little_endian},
    regular,
    state::is_named_as_head,
};
use roundelay_schedule::{Belonging, Job, Parameter, ParameterKind, nearest_hint};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// A file of weights that was read.
#[derive(Clone, Debug)]
pub struct Weights {
    path: PathBuf,
    kind: FileKind,
    container: Container,
}

/// What a file of parameters is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    /// Parameters alone, in the order of PyTorch.
    Weights,
    /// A training state, in our order.
    Checkpoint,
}

impl FileKind {
    /// What the file says that it is; a checkpoint proves that it is whole.
    fn of(container: &Container) -> Result<Self, String> {
        match container.entry(format::KEY) {
            None => Ok(Self::Weights),
            Some(text) => {
                format::proven(text, &container.arrays).map(|_| Self::Checkpoint)
            }
        }
    }

    /// What a parameter is where only a file in PyTorch's order has it in another one.
    fn parameter_kind(self, parameter: &Parameter) -> ParameterKind {
        match self {
            Self::Weights => parameter.kind,
            Self::Checkpoint => ParameterKind::Plain,
        }
    }
}

/// A parameter with numbers that are NaN or infinite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFinite {
    /// Global name.
    pub name: String,
    /// How many are.
    pub count: u64,
    /// Of how many.
    pub all: u64,
}

impl Weights {
    /// Reads a safetensors file. Of a checkpoint, which must be whole, only the newest parameters count.
    ///
    /// # Errors
    /// [`WeightsError::Read`] and [`WeightsError::Damaged`].
    pub fn read(path: &Path) -> Result<Self, WeightsError> {
        let path = path.to_path_buf();
        let found =
            regular::open(&path).and_then(|(file, length)| Container::read(file, length));
        let found = match found {
            Ok(found) => found,
            Err(source) => return Err(WeightsError::Read { path, source }),
        };
        match found.and_then(|container| Ok((FileKind::of(&container)?, container))) {
            Ok((kind, container)) => Ok(Self { path, kind, container }),
            Err(reason) => Err(WeightsError::Damaged { path, reason }),
        }
    }

    /// The state of a new run of a job that starts from these parameters: before step 0, with
    /// optimizer state zero. A model and its units differ in heads alone, so those that the job has not
    /// are left out, and those that the file has not are as they are drawn.
    ///
    /// # Errors
    /// [`WeightsError::Mismatch`] with everything that does not fit.
    pub fn state(&self, job: &Job) -> Result<State, WeightsError> {
        let arrays = self.arrays();
        let mut state = State::initial(job);
        let mut mistakes = strangers(&arrays, job);
        for parameter in &job.parameters {
            match numbers(&arrays, job, parameter, self.kind.parameter_kind(parameter)) {
                Ok(numbers) => {
                    let tensor = Tensor::first(job, parameter.whole_shape(), numbers);
                    state.tensors.insert(parameter.name.clone(), tensor);
                }
                Err(WeightsMistake::Missing { .. })
                    if parameter.belonging == Belonging::Head => {}
                Err(mistake) => mistakes.push(mistake),
            }
        }
        match mistakes.is_empty() {
            true => Ok(state),
            false => {
                let names = names(&arrays, &mistakes);
                Err(WeightsError::Mismatch { path: self.path.clone(), mistakes, names })
            }
        }
    }

    /// Parameters of heads of units that a job has and the file has not, in the job's order.
    pub fn drawn_heads(&self, job: &Job) -> Vec<String> {
        let arrays = self.arrays();
        let heads = job.parameters.iter().filter(|own| own.belonging == Belonging::Head);
        let names = heads.map(|own| own.name.clone());
        names.filter(|name| !arrays.contains_key(name)).collect()
    }

    /// Parameters of a job that hold numbers which are not finite, in the job's order.
    pub fn not_finite(&self, job: &Job) -> Vec<NotFinite> {
        let arrays = self.arrays();
        let of = |parameter: &Parameter| {
            let Array { dtype, bytes, .. } = arrays.get(&parameter.name)?;
            let count = convert::not_finite(*dtype, bytes);
            let (name, all) = (parameter.name.clone(), parameter.whole_elements());
            (count > 0).then_some(NotFinite { name, count, all })
        };
        job.parameters.iter().filter_map(of).collect()
    }

    /// What should be parameters: of a checkpoint not older versions and optimizer state.
    fn arrays(&self) -> Arrays<'_> {
        let is_newest = |name: &str| match self.kind {
            FileKind::Weights => true,
            FileKind::Checkpoint => !name.contains(['@', '#']),
        };
        let arrays = self.container.arrays.iter();
        arrays.filter(|(name, _)| is_newest(name)).collect()
    }
}

type Arrays<'a> = BTreeMap<&'a String, &'a Array<'static>>;

/// Arrays that the job has no parameter for, but for heads.
fn strangers(arrays: &Arrays<'_>, job: &Job) -> Vec<WeightsMistake> {
    let known: BTreeSet<&str> = job.parameters.iter().map(|p| p.name.as_str()).collect();
    let stranger = |name: &&String| {
        let hint = nearest_hint(name, known.iter().copied());
        WeightsMistake::Unknown { name: (*name).clone(), hint }
    };
    let is_known = |name: &str| known.contains(name) || is_named_as_head(name);
    let unknown = arrays.keys().filter(|name| !is_known(name));
    unknown.map(stranger).collect()
}

/// Whose names the arrays have.
fn names(arrays: &Arrays<'_>, mistakes: &[WeightsMistake]) -> WeightsNames {
    let is_unknown =
        |mistake: &&WeightsMistake| matches!(mistake, WeightsMistake::Unknown { .. });
    match 2 * mistakes.iter().filter(is_unknown).count() > arrays.len() {
        true => WeightsNames::Foreign,
        false => WeightsNames::Own,
    }
}

/// A parameter's numbers in our order and the wide type of the job's, from a file that has a
/// parameter of this kind.
fn numbers(
    arrays: &Arrays<'_>,
    job: &Job,
    parameter: &Parameter,
    kind: ParameterKind,
) -> Result<Vec<u8>, WeightsMistake> {
    let name = parameter.name.clone();
    let Some(Array { dtype, shape, bytes }) = arrays.get(&name) else {
        let hint = nearest_hint(&name, arrays.keys().map(|name| name.as_str()));
        return Err(WeightsMistake::Missing { name, hint });
    };
    let found: Vec<u64> = shape.iter().map(|extent| *extent as u64).collect();
    let own = parameter.whole_shape();
    let expected = order::shape_in_file(kind, &own);
    if found != expected {
        return Err(WeightsMistake::Shape { name, found, expected });
    }
    match convert::numbers(*dtype, bytes, job.dtype) {
        Some(Ok(numbers)) => {
            Ok(order::from_file(kind, numbers, &own, job.dtype.wide_size()))
        }
        Some(Err(place)) => Err(WeightsMistake::Range { name, place }),
        None => {
            let found = format!("{dtype:?}").to_lowercase();
            Err(WeightsMistake::Element { name, found })
        }
    }
}

impl State {
    /// Writes θ_T of a job as a file of weights, in its element type.
    ///
    /// # Errors
    /// Those of [`OutputFile::write`].
    pub fn write_weights(&self, job: &Job, file: &OutputFile) -> Result<(), OutputError> {
        file.write_by(|out| encode(&mut BufWriter::new(out), self, job))
    }

    /// Parameters whose newest versions hold numbers that are not finite, by name.
    pub fn not_finite(&self) -> Vec<NotFinite> {
        let dtype = element(self.dtype);
        let of = |(name, tensor): (&String, &Tensor)| {
            let newest = little_endian(&tensor.versions[0], self.dtype);
            let count = convert::not_finite(dtype, &newest);
            let all = tensor.shape.iter().product();
            (count > 0).then(|| NotFinite { name: name.clone(), count, all })
        };
        self.tensors.iter().filter_map(of).collect()
    }
}

/// Writes the file's bytes. The one entry of its metadata is what other programs ask for: that numbers
/// lie as PyTorch has them.
fn encode(out: &mut impl Write, state: &State, job: &Job) -> io::Result<()> {
    let of = |own: &Parameter| (own.name.clone(), own.kind);
    let known: BTreeMap<String, ParameterKind> = job.parameters.iter().map(of).collect();
    let arrays = state.tensors.iter().map(|(name, tensor)| {
        let kind = known.get(name).copied().unwrap_or_default();
        let shape = order::shape_in_file(kind, &tensor.shape);
        let shape = shape.iter().map(|extent| *extent as usize).collect();
        let bytes = little_endian(&tensor.versions[0], state.dtype);
        let bytes = order::to_file(kind, bytes, &tensor.shape, state.dtype.size());
        (name.clone(), Array { dtype: element(state.dtype), shape, bytes })
    });
    let arrays = arrays.collect();
    container::write(out, &arrays, ("format", "pt".to_owned()))
}

#[cfg(test)]
mod tests;
