//! The training state at rest, in global terms: no stage, device, slot, shard or row of split
//! tensors appears in it, so that a run stopped under one plan goes on under another.

pub(crate) mod gather;
pub(crate) mod names;
mod numbers;
pub(crate) mod rows;
mod source;

pub use numbers::ArrayNumbers;
pub use source::ArraySource;

pub(crate) use source::Made;

use crate::shown::shown;
use roundelay_schedule::{Division, Float, Job, Parameter, Plan, Stage, printable};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
};

/// Whether an array has the name of one of the head of a unit, as `unit0.head.linear.weight` is. A
/// parameter of a model may have such a name too, so where a job is known its word counts.
pub(crate) fn is_named_as_head(name: &str) -> bool {
    let unit = name.split_once(".head.").and_then(|(unit, _)| unit.strip_prefix("unit"));
    let number = |unit: &str| unit.chars().all(|c| c.is_ascii_digit() || c == '_');
    unit.is_some_and(|unit| !unit.is_empty() && number(unit))
}

/// Everything that training carries from step to step, at rest before step `step`: with its arrays, or with
/// sources of arrays ([`ArraySource`]) where not every process needs all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State<Array = Vec<u8>> {
    /// Element type of all numbers.
    pub dtype: Float,
    /// T: number of updates done; the next training step.
    pub step: u64,
    /// Versions below this one equal it: θ_v = θ_origin for v < origin. Zero unless a run was
    /// restarted from its newest parameters alone.
    pub origin: u64,
    /// The step before which optimizer state was zero: it has seen the updates from there on. Zero unless
    /// a run went on without the state of an earlier one.
    pub optimizer_origin: u64,
    /// By global parameter name.
    pub tensors: BTreeMap<String, ParameterState<Array>>,
}

/// Where a state is in a training; the fields are those of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) step: u64,
    pub(crate) origin: u64,
    pub(crate) optimizer_origin: u64,
}

impl Moment {
    /// How many versions before the newest one the rule of a plan still reads of a stage.
    pub(crate) fn reach(self, plan: &Plan, stage: Stage) -> u32 {
        let staleness = plan.staleness(stage);
        let done = u32::try_from(self.step - self.origin);
        staleness.min(done.unwrap_or(u32::MAX))
    }
}

/// How much of a state is gathered from devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All that training carries.
    Whole,
    /// The newest parameters, without optimizer state.
    Parameters,
}

/// Which update of the optimizer's state the update of a step is, counted from one; zero before its
/// origin.
pub(crate) fn updates(step: u64, optimizer_origin: u64) -> u64 {
    (step + 1).saturating_sub(optimizer_origin)
}

/// One parameter; arrays are dense, in native byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterState<Array = Vec<u8>> {
    /// Extents.
    pub shape: Vec<u64>,
    /// θ_T, θ_{T−1}, … as far back as a rule still reads; never empty.
    pub versions: Vec<Array>,
    /// Optimizer state before the update of T in the wide type, one array per state of the
    /// method, then the master copy in mixed precision. None where only parameters were gathered.
    pub optimizer: Vec<Array>,
}

/// Why a state cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// A parameter is not there.
    #[error("the state has no parameter `{}`, which the model trains", printable(name))]
    Missing {
        /// Global name.
        name: String,
    },
    /// A parameter is there that the model does not have.
    #[error(
        "the state has a parameter `{}`, which the model does not have",
        printable(name)
    )]
    Unknown {
        /// Global name.
        name: String,
    },
    /// A shape is another one.
    #[error(
        "`{}` has shape {found:?} in the state, the model wants {expected:?}",
        printable(name)
    )]
    Shape {
        /// Global name.
        name: String,
        /// In the state.
        found: Vec<u64>,
        /// In the job.
        expected: Vec<u64>,
    },
    /// The element type is another one.
    #[error("the state holds {found} numbers, the job computes in {expected}")]
    Element {
        /// In the state.
        found: Float,
        /// In the job.
        expected: Float,
    },
    /// Another optimizer's state.
    #[error(
        "`{}` has {found} optimizer arrays in the state, the optimizer wants {expected}",
        printable(name)
    )]
    Optimizer {
        /// Global name.
        name: String,
        /// In the state.
        found: usize,
        /// Of the job's method.
        expected: usize,
    },
    /// An array has another length than its shape says.
    #[error(
        "an array of `{}` has {found} bytes, its shape takes {expected}",
        printable(name)
    )]
    Length {
        /// Global name.
        name: String,
        /// In the state.
        found: usize,
        /// Of the shape.
        expected: usize,
    },
    /// It begins with a version that is yet to come.
    #[error("the state is of step {step}, but goes back to step {origin}")]
    Origin {
        /// Where it begins.
        origin: u64,
        /// Where it is.
        step: u64,
    },
    /// An older version that the rule reads is not there.
    #[error(
        "version {version} of `{}` is not in the state, but the rule still reads it; {}",
        printable(name), self.hint()
    )]
    Version {
        /// Global name.
        name: String,
        /// v of θ_v.
        version: u64,
    },
    /// The schedule keeps optimizer state of an older step, which no state holds.
    #[error(
        "the schedule wants optimizer state {age} steps back; only the newest is kept"
    )]
    OldOptimizer {
        /// Steps back.
        age: u32,
    },
    /// The file of an array, which was whole before, does not give it.
    #[error("cannot read `{}` any more: {reason}; {}", shown(path), self.hint())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
}

impl StateError {
    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Version { .. } => "start from the newest parameters alone",
            Self::Read { .. } => "leave it as it is until it is loaded",
            Self::Missing { .. }
            | Self::Unknown { .. }
            | Self::Shape { .. }
            | Self::Element { .. }
            | Self::Optimizer { .. }
            | Self::Length { .. }
            | Self::Origin { .. }
            | Self::OldOptimizer { .. } => "",
        }
    }

    /// The file that is at fault, where it is not what the state holds.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Read { path, .. } => Some(path),
            Self::Version { .. }
            | Self::Missing { .. }
            | Self::Unknown { .. }
            | Self::Shape { .. }
            | Self::Element { .. }
            | Self::Optimizer { .. }
            | Self::Length { .. }
            | Self::Origin { .. }
            | Self::OldOptimizer { .. } => None,
        }
    }
}

impl<A: ArrayNumbers> State<A> {
    /// Where it is in a training.
    pub(crate) fn moment(&self) -> Moment {
        let State { step, origin, optimizer_origin, dtype: _, tensors: _ } = *self;
        Moment { step, origin, optimizer_origin }
    }

    /// Forgets all versions but the newest: the state from which another rule starts.
    pub fn restart(&mut self) {
        self.origin = self.step;
        self.tensors.values_mut().for_each(|tensor| tensor.versions.truncate(1));
    }

    /// Whether this is a state of the job's model and optimizer.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn fits(&self, job: &Job) -> Result<(), StateError> {
        self.has_parameters(job)?;
        let mut parameters = job.parameters.iter();
        parameters.try_for_each(|own| self.optimizer_arrays(job, own).map(drop))
    }

    /// Whether its parameters are those of the job's model.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub(crate) fn has_parameters(&self, job: &Job) -> Result<(), StateError> {
        self.has_element(job)?;
        let Moment { step, origin, optimizer_origin } = self.moment();
        let ahead = [origin, optimizer_origin].into_iter().find(|origin| *origin > step);
        if let Some(origin) = ahead {
            return Err(StateError::Origin { origin, step });
        }
        job.parameters
            .iter()
            .try_for_each(|parameter| self.tensor(job, parameter).map(drop))?;
        self.unknown(job).next().map_or(Ok(()), Err)
    }

    /// Everything in which its parameters are those of another model.
    pub(crate) fn misfits(&self, job: &Job) -> Vec<StateError> {
        let element = self.has_element(job).err();
        let shapes = job.parameters.iter().filter_map(|own| self.shaped(own).err());
        element.into_iter().chain(shapes).chain(self.unknown(job)).collect()
    }

    fn has_element(&self, job: &Job) -> Result<(), StateError> {
        let (found, expected) = (self.dtype, job.dtype);
        match found == expected {
            true => Ok(()),
            false => Err(StateError::Element { found, expected }),
        }
    }

    /// Parameters that the job's model does not have.
    fn unknown(&self, job: &Job) -> impl Iterator<Item = StateError> {
        let known: BTreeSet<&String> =
            job.parameters.iter().map(|own| &own.name).collect();
        let unknown = self.tensors.keys().filter(move |name| !known.contains(name));
        unknown.map(|name| StateError::Unknown { name: name.clone() })
    }

    /// The tensor of a parameter, which has its shape.
    fn shaped(&self, parameter: &Parameter) -> Result<&ParameterState<A>, StateError> {
        let name = || parameter.name.clone();
        let tensor = self.tensors.get(&parameter.name);
        let tensor = tensor.ok_or_else(|| StateError::Missing { name: name() })?;
        let expected = parameter.whole_shape();
        if tensor.shape != expected {
            let found = tensor.shape.clone();
            return Err(StateError::Shape { name: name(), found, expected });
        }
        Ok(tensor)
    }

    /// The tensor of a parameter, whose arrays are as long as its shape says.
    fn tensor(
        &self,
        job: &Job,
        parameter: &Parameter,
    ) -> Result<&ParameterState<A>, StateError> {
        let tensor = self.shaped(parameter)?;
        if tensor.versions.is_empty() {
            let (name, version) = (parameter.name.clone(), self.step);
            return Err(StateError::Version { name, version });
        }
        are_long(parameter, &tensor.versions, job.dtype.size())?;
        Ok(tensor)
    }

    /// θ of a parameter, `age` versions before the newest.
    ///
    /// # Errors
    /// When the state is of another model, or does not reach back so far.
    fn version(
        &self,
        job: &Job,
        parameter: &Parameter,
        age: u32,
    ) -> Result<&A, StateError> {
        let version = self.step.saturating_sub(u64::from(age)).max(self.origin);
        let back = (self.step - version) as usize;
        let missing = || StateError::Version { name: parameter.name.clone(), version };
        self.tensor(job, parameter)?.versions.get(back).ok_or_else(missing)
    }

    /// A parameter's optimizer state.
    ///
    /// # Errors
    /// When the state is of another model or optimizer.
    fn optimizer_arrays(
        &self,
        job: &Job,
        parameter: &Parameter,
    ) -> Result<&[A], StateError> {
        let arrays = &self.tensor(job, parameter)?.optimizer;
        let (found, expected) = (arrays.len(), job.optimizer.arrays(job.dtype) as usize);
        if found != expected {
            let name = parameter.name.clone();
            return Err(StateError::Optimizer { name, found, expected });
        }
        are_long(parameter, arrays, job.dtype.wide_size())?;
        Ok(arrays)
    }

    /// The flat parameters of a stage on one row, `age` versions before the newest; padding is
    /// zero.
    ///
    /// # Errors
    /// When the state is of another model, does not reach back so far, or cannot be read.
    pub fn parameters(
        &self,
        job: &Job,
        stage: Stage,
        row: u32,
        age: u32,
    ) -> Result<Vec<u8>, StateError> {
        let rows = row..row + 1;
        let mut flats = self.parameters_on(job, stage, rows, age)?;
        Ok(flats.remove(0))
    }

    /// As [`State::parameters`], on several rows; each array is made once for all of them.
    pub(crate) fn parameters_on(
        &self,
        job: &Job,
        stage: Stage,
        rows: Range<u32>,
        age: u32,
    ) -> Result<Vec<Vec<u8>>, StateError> {
        flats(job, stage, (rows, job.dtype.size()), |own| self.version(job, own, age))
    }

    /// The flat arrays of a stage's optimizer state on one row, as many as the job's optimizer has; padding
    /// is zero.
    ///
    /// # Errors
    /// When the state is of another model or optimizer, or cannot be read.
    pub fn optimizer(
        &self,
        job: &Job,
        stage: Stage,
        row: u32,
    ) -> Result<Vec<Vec<u8>>, StateError> {
        let arrays = 0..job.optimizer.arrays(job.dtype) as usize;
        let flat = |array: usize| {
            let rows = (row..row + 1, job.dtype.wide_size());
            let own = |own: &_| Ok(&self.optimizer_arrays(job, own)?[array]);
            Ok(flats(job, stage, rows, own)?.remove(0))
        };
        arrays.map(flat).collect()
    }
}

/// Whether arrays have as many numbers of `size` bytes as a parameter.
fn are_long<A: ArrayNumbers>(
    parameter: &Parameter,
    arrays: &[A],
    size: u64,
) -> Result<(), StateError> {
    let expected = (parameter.whole_elements() * size) as usize;
    match arrays.iter().map(ArrayNumbers::length).find(|found| *found != expected) {
        None => Ok(()),
        Some(found) => {
            let name = parameter.name.clone();
            Err(StateError::Length { name, found, expected })
        }
    }
}

/// Flat arrays of a stage on rows, of numbers of `size` bytes.
fn flats<'a, A: ArrayNumbers + 'a>(
    job: &Job,
    stage: Stage,
    (rows, size): (Range<u32>, u64),
    array: impl Fn(&Parameter) -> Result<&'a A, StateError>,
) -> Result<Vec<Vec<u8>>, StateError> {
    let mut flats = vec![vec![0; (job.elements[stage] * size) as usize]; rows.len()];
    for parameter in job.parameters_of(stage) {
        let whole = array(parameter)?.bytes()?;
        let start = (parameter.offset * size) as usize;
        for (row, flat) in rows.clone().zip(&mut flats) {
            let own = part(parameter, row, &whole, size);
            flat[start..start + own.len()].copy_from_slice(&own);
        }
    }
    Ok(flats)
}

/// What a row of split tensors has of a parameter's whole array.
fn part<'a>(
    parameter: &Parameter,
    row: u32,
    whole: &'a [u8],
    size: u64,
) -> Cow<'a, [u8]> {
    match parameter.split {
        Division::Whole => Cow::Borrowed(whole),
        Division::One(_) | Division::Two(_) => {
            Cow::Owned(parameter.part_of(row, whole, size as usize))
        }
    }
}
