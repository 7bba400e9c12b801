//! The training state at rest, in global terms: no stage, device, slot, shard or row of split
//! tensors appears in it, so that a run stopped under one plan goes on under another.

pub(crate) mod rows;

use roundelay_schedule::{Float, Job, Parameter, Stage};
use std::{borrow::Cow, collections::BTreeMap};

/// Everything that training carries from step to step, at rest before step `step`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Element type of all numbers.
    pub dtype: Float,
    /// T: number of updates done; the next training step.
    pub step: u64,
    /// Versions below this one equal it: θ_v = θ_origin for v < origin. Zero unless a run was
    /// restarted from its newest parameters alone.
    pub origin: u64,
    /// By global parameter name.
    pub tensors: BTreeMap<String, Tensor>,
}

/// One parameter; arrays are dense, in native byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Extents.
    pub shape: Vec<u64>,
    /// θ_T, θ_{T−1}, … as far back as a rule still reads; never empty.
    pub versions: Vec<Vec<u8>>,
    /// Optimizer state before the update of T, one array per state of the method.
    pub optimizer: Vec<Vec<u8>>,
}

/// Why a state does not fit a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// A parameter is not there.
    #[error("the state has no parameter `{name}`, which the model trains")]
    Missing {
        /// Global name.
        name: String,
    },
    /// A parameter is there that the model does not have.
    #[error("the state has a parameter `{name}`, which the model does not have")]
    Unknown {
        /// Global name.
        name: String,
    },
    /// A shape is another one.
    #[error("`{name}` has shape {found:?} in the state, the model wants {expected:?}")]
    Shape {
        /// Global name.
        name: String,
        /// In the state.
        found: Vec<u64>,
        /// In the job.
        expected: Vec<u64>,
    },
    /// The element type is another one.
    #[error("the state holds {found:?} numbers, the job computes in {expected:?}")]
    Element {
        /// In the state.
        found: Float,
        /// In the job.
        expected: Float,
    },
    /// Another optimizer's state.
    #[error(
        "`{name}` has {found} optimizer arrays in the state, the optimizer wants {expected}"
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
    #[error("an array of `{name}` has {found} bytes, its shape takes {expected}")]
    Length {
        /// Global name.
        name: String,
        /// In the state.
        found: usize,
        /// Of the shape.
        expected: usize,
    },
    /// An older version that the rule reads is not there.
    #[error(
        "version {version} of `{name}` is not in the state, but the rule still reads it; \
         start from the newest parameters alone"
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
}

impl State {
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
        if self.dtype != job.dtype {
            return Err(StateError::Element { found: self.dtype, expected: job.dtype });
        }
        job.parameters
            .iter()
            .try_for_each(|parameter| self.tensor(job, parameter).map(drop))?;
        let known = |name: &&String| job.parameters.iter().all(|p| p.name != **name);
        match self.tensors.keys().find(known) {
            Some(name) => Err(StateError::Unknown { name: name.clone() }),
            None => Ok(()),
        }
    }

    fn tensor(&self, job: &Job, parameter: &Parameter) -> Result<&Tensor, StateError> {
        let name = || parameter.name.clone();
        let tensor = self
            .tensors
            .get(&parameter.name)
            .ok_or_else(|| StateError::Missing { name: name() })?;
        if tensor.shape != parameter.whole_shape() {
            let (found, expected) = (tensor.shape.clone(), parameter.whole_shape());
            return Err(StateError::Shape { name: name(), found, expected });
        }
        let (found, expected) =
            (tensor.optimizer.len(), job.optimizer.method.states() as usize);
        if found != expected {
            return Err(StateError::Optimizer { name: name(), found, expected });
        }
        let expected = (parameter.whole_elements() * job.dtype.size()) as usize;
        let mut arrays = tensor.versions.iter().chain(&tensor.optimizer);
        match arrays.find(|array| array.len() != expected) {
            Some(wrong) => {
                Err(StateError::Length { name: name(), found: wrong.len(), expected })
            }
            None => Ok(tensor),
        }
    }

    /// The flat parameters of a stage on one row, `age` versions before the newest; padding is
    /// zero.
    ///
    /// # Errors
    /// When the state is of another model, or does not reach back so far.
    pub fn parameters(
        &self,
        job: &Job,
        stage: Stage,
        row: u32,
        age: u32,
    ) -> Result<Vec<u8>, StateError> {
        let version = self.step.saturating_sub(u64::from(age)).max(self.origin);
        let back = (self.step - version) as usize;
        flat(job, stage, row, |parameter| {
            let versions = &self.tensor(job, parameter)?.versions;
            let missing =
                || StateError::Version { name: parameter.name.clone(), version };
            versions.get(back).map(Vec::as_slice).ok_or_else(missing)
        })
    }

    /// One flat array of a stage's optimizer state on one row; padding is zero.
    ///
    /// # Errors
    /// When the state is of another model or optimizer.
    pub fn optimizer(
        &self,
        job: &Job,
        stage: Stage,
        row: u32,
        array: usize,
    ) -> Result<Vec<u8>, StateError> {
        let own = |parameter: &_| Ok(&*self.tensor(job, parameter)?.optimizer[array]);
        flat(job, stage, row, own)
    }
}

fn flat<'a>(
    job: &Job,
    stage: Stage,
    row: u32,
    whole: impl Fn(&Parameter) -> Result<&'a [u8], StateError>,
) -> Result<Vec<u8>, StateError> {
    let size = job.dtype.size();
    let mut all = vec![0; (job.elements[stage] * size) as usize];
    for parameter in job.parameters_of(stage) {
        let whole = whole(parameter)?;
        let own = match parameter.split {
            None => Cow::Borrowed(whole),
            Some(_) => Cow::Owned(parameter.part_of(row, whole, size as usize)),
        };
        let start = (parameter.offset * size) as usize;
        all[start..start + own.len()].copy_from_slice(&own);
    }
    Ok(all)
}
