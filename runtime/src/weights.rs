//! Weights in and out: parameters alone, as one safetensors file under their global names.
//!
//! What is read may hold other element types than the job's; what is written has the job's. Filters of
//! convolutions lie in these files as PyTorch has them.

mod convert;
mod converted;
mod error;
mod fresh;
mod order;
mod translation;

pub use error::{WeightsError, WeightsMistake, WeightsNames};
pub use translation::{
    Translation, TranslationError, Twin, TwinLayout, TwinParameter, WeightsFiles,
};

use crate::{
    ArraySource, OutputError, OutputFile, ParameterState, State,
    checkpoint::format,
    container::{Container, Form, Header, NotWhole, Place, element, little_endian},
    state::{is_named_as_head, names},
};
use converted::Converted;
use fresh::Fresh;
use roundelay_schedule::{Belonging, Job, Parameter, ParameterKind, nearest_hint};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// A file of weights that is open.
#[derive(Clone, Debug)]
pub struct Weights {
    path: PathBuf,
    kind: FileKind,
    container: Arc<Container>,
    fresh: Fresh,
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
    fn of(container: &Container) -> Result<Self, NotWhole> {
        match container.entry(format::KEY) {
            None => Ok(Self::Weights),
            Some(text) => format::proven(text, container).map(|_| Self::Checkpoint),
        }
    }

    /// What a parameter of a kind is where only a file in PyTorch's order has it in another one.
    fn as_stored(self, own: ParameterKind) -> ParameterKind {
        match self {
            Self::Weights => own,
            Self::Checkpoint => ParameterKind::Plain,
        }
    }
}

/// How far a file is looked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// What arrays it has.
    Header,
    /// Their numbers too.
    Numbers,
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
    /// Opens a safetensors file. Of a checkpoint, which must be whole, only the newest parameters count.
    ///
    /// # Errors
    /// [`WeightsError::Read`] and [`WeightsError::Damaged`].
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let found = Container::open(path)
            .and_then(|container| Ok((FileKind::of(&container)?, Arc::new(container))));
        let (kind, container) = found.map_err(|error| WeightsError::of(path, error))?;
        Ok(Self { path: path.to_path_buf(), kind, container, fresh: Fresh::default() })
    }

    /// Refuses a file of which it is plain without its numbers that a job cannot start from it: its header says
    /// what is missing or has other extents. So nothing is read twice that takes its time. Heads of units may
    /// begin fresh though the job, made before a plan, has none.
    ///
    /// # Errors
    /// [`WeightsError::Mismatch`], and those of [`Weights::open`] for a file without a whole header.
    pub fn look(path: &Path, fresh: &[String], job: &Job) -> Result<(), WeightsError> {
        let container = Container::open(path);
        let container = container.map_err(|error| WeightsError::of(path, error))?;
        let kind = match container.entry(format::KEY) {
            None => FileKind::Weights,
            Some(_) => FileKind::Checkpoint,
        };
        let (path, container) = (path.to_path_buf(), Arc::new(container));
        let weights = Self { path, kind, container, fresh: Fresh::of_model(fresh, job) };
        weights.read(job, Depth::Header).map(drop)
    }

    /// The same without these parameters and those of these modules (`logits`, `layer.11`), whether the
    /// file has them or not: they begin as they are drawn.
    pub fn without(self, fresh: &[String]) -> Self {
        Self { fresh: Fresh::new(fresh), ..self }
    }

    /// The state of a new run of a job that starts from these parameters: before step 0, with
    /// optimizer state zero. A model and its units differ in heads alone, so those that the job has not
    /// are left out, and those that the file has not are as they are drawn.
    ///
    /// # Errors
    /// [`WeightsError::Mismatch`] with everything that does not fit, and [`WeightsError::Read`].
    pub fn state(&self, job: &Job) -> Result<State<ArraySource>, WeightsError> {
        self.read(job, Depth::Numbers)
    }

    fn read(&self, job: &Job, depth: Depth) -> Result<State<ArraySource>, WeightsError> {
        let arrays = self.arrays();
        let mut state = State::drawn(job);
        let known = job.parameters.iter().map(|own| own.name.as_str()).collect();
        let mut mistakes = strangers(&arrays, &known);
        mistakes.extend(self.fresh.strangers(&known));
        for parameter in &job.parameters {
            match self.tensor(&arrays, job, (parameter, depth))? {
                Ok(tensor) => {
                    state.tensors.insert(parameter.name.clone(), tensor);
                }
                Err(WeightsMistake::Missing { .. })
                    if parameter.belonging == Belonging::Head
                        || self.fresh.has(&parameter.name) => {}
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

    /// A parameter before its first update.
    fn tensor(
        &self,
        arrays: &Arrays<'_>,
        job: &Job,
        (parameter, depth): (&Parameter, Depth),
    ) -> Result<Result<ParameterState<ArraySource>, WeightsMistake>, WeightsError> {
        let kind = self.kind.as_stored(parameter.kind);
        let expected = order::shape_in_file(kind, &parameter.whole_shape());
        let place = match place(arrays, &parameter.name, expected) {
            Ok(place) => place,
            Err(mistake) => return Ok(Err(mistake)),
        };
        let wild = match depth {
            Depth::Header => Ok(None),
            Depth::Numbers => convert::out_of_range(&self.container, place, job.dtype),
        };
        if let Some(place) = wild.map_err(|source| self.unread(source))? {
            let name = parameter.name.clone();
            return Ok(Err(WeightsMistake::Range { name, place }));
        }
        let shape = parameter.whole_shape();
        Ok(Ok(ParameterState::first(job, shape.clone(), |dtype| {
            let (container, place) = (Arc::clone(&self.container), place.clone());
            ArraySource::new(Converted {
                container,
                place,
                kind,
                shape: shape.clone(),
                dtype,
            })
        })))
    }

    fn unread(&self, source: io::Error) -> WeightsError {
        WeightsError::Read { path: self.path.clone(), source }
    }

    /// Parameters of heads of units that a job has and the file has not, in the job's order.
    pub fn drawn_heads(&self, job: &Job) -> Vec<String> {
        let arrays = self.arrays();
        let heads = job.parameters.iter().filter(|own| own.belonging == Belonging::Head);
        let names = heads.map(|own| own.name.clone());
        names.filter(|name| !arrays.contains_key(name.as_str())).collect()
    }

    /// Parameters of a job that hold numbers which are not finite, in the job's order.
    ///
    /// # Errors
    /// [`WeightsError::Read`].
    pub fn not_finite(&self, job: &Job) -> Result<Vec<NotFinite>, WeightsError> {
        let arrays = self.arrays();
        let mut found = Vec::new();
        for parameter in &job.parameters {
            let Some(place) = arrays.get(parameter.name.as_str()) else { continue };
            let mut count = 0;
            let counted = self
                .container
                .walk(place, |block| count += convert::not_finite(place.dtype, block));
            counted.map_err(|source| self.unread(source))?;
            if count > 0 {
                let (name, all) = (parameter.name.clone(), parameter.whole_elements());
                found.push(NotFinite { name, count, all });
            }
        }
        Ok(found)
    }

    /// What should be parameters: of a checkpoint not older versions and optimizer state, and nothing that
    /// begins as it is drawn.
    fn arrays(&self) -> Arrays<'_> {
        let is_newest = |name: &str| match self.kind {
            FileKind::Weights => true,
            FileKind::Checkpoint => names::is_newest(name),
        };
        let arrays = self.container.arrays.iter();
        arrays
            .filter(|(name, _)| is_newest(name) && !self.fresh.has(name))
            .map(|(name, place)| (name.as_str(), place))
            .collect()
    }
}

type Arrays<'a> = BTreeMap<&'a str, &'a Place>;

/// Arrays that are no parameter, but for heads.
fn strangers(arrays: &Arrays<'_>, known: &BTreeSet<&str>) -> Vec<WeightsMistake> {
    let stranger = |name: &&str| {
        let hint = nearest_hint(name, known.iter().copied());
        WeightsMistake::Unknown { name: (*name).to_owned(), hint }
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

/// Where a parameter lies that has these extents in the file.
fn place<'a>(
    arrays: &Arrays<'a>,
    name: &str,
    expected: Vec<u64>,
) -> Result<&'a Place, WeightsMistake> {
    let Some(place) = arrays.get(name) else {
        let hint = nearest_hint(name, arrays.keys().copied());
        return Err(WeightsMistake::Missing { name: name.to_owned(), hint });
    };
    fits(name, place, expected)?;
    Ok(place)
}

/// Whether an array is what its name promises.
fn fits(name: &str, place: &Place, expected: Vec<u64>) -> Result<(), WeightsMistake> {
    let name = name.to_owned();
    let found: Vec<u64> = place.shape.iter().map(|extent| *extent as u64).collect();
    if found != expected {
        return Err(WeightsMistake::Shape { name, found, expected });
    }
    if !convert::is_real(place.dtype) {
        let found = format!("{:?}", place.dtype).to_lowercase();
        return Err(WeightsMistake::Element { name, found });
    }
    Ok(())
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
        let of = |(name, tensor): (&String, &ParameterState)| {
            let newest = little_endian(Cow::Borrowed(&tensor.versions[0]), self.dtype);
            let count = convert::not_finite(dtype, &newest);
            let all = tensor.shape.iter().product();
            (count > 0).then(|| NotFinite { name: name.clone(), count, all })
        };
        self.tensors.iter().filter_map(of).collect()
    }
}

/// Writes the file's bytes. The one entry of its metadata is what other programs ask for: that numbers
/// lie as PyTorch has them. Arrays of one type lie in the order of their names.
fn encode(out: &mut impl Write, state: &State, job: &Job) -> io::Result<()> {
    let of = |own: &Parameter| (own.name.clone(), own.kind);
    let known: BTreeMap<String, ParameterKind> = job.parameters.iter().map(of).collect();
    let kind = |name: &String| known.get(name).copied().unwrap_or_default();
    let forms = state.tensors.iter().map(|(name, tensor)| {
        let shape = order::shape_in_file(kind(name), &tensor.shape);
        (name.clone(), Form::new(state.dtype, &shape))
    });
    let header = Header::of(&forms.collect(), ("format", "pt".to_owned()))?;
    out.write_all(&header.bytes)?;
    for (name, tensor) in &state.tensors {
        let newest = Cow::Borrowed(&*tensor.versions[0]);
        let numbers = little_endian(newest, state.dtype);
        let size = state.dtype.size();
        let numbers = order::to_file(kind(name), numbers, &tensor.shape, size);
        header.places[name].takes(name, &numbers)?;
        out.write_all(&numbers)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests;
