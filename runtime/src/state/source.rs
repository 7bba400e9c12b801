//! Where the arrays of a state come from before a machine has them: each is made when it is asked for, so
//! that a process which needs a part of a state has no room for the whole.

use super::{ArrayNumbers, ParameterState, State, StateError};
use crate::{digest::Digest, native::wide_type};
use roundelay_schedule::{Float, Job};
use std::{borrow::Cow, convert::Infallible, fmt, sync::Arc};

/// An array that is drawn or read when it is asked for, each time anew.
#[derive(Clone, Debug)]
pub struct ArraySource(Arc<dyn Made>);

/// What makes an array.
pub(crate) trait Made: ArrayNumbers + fmt::Debug + Send + Sync {
    /// Tells a digest what is made. What follows from the job and the seed need not be told.
    ///
    /// # Errors
    /// As [`ArrayNumbers::bytes`].
    fn tell(&self, digest: &mut Digest) -> Result<(), StateError>;
}

impl ArraySource {
    /// What something makes.
    pub(crate) fn new(made: impl Made + 'static) -> Self {
        Self(Arc::new(made))
    }

    /// Zeros.
    pub(crate) fn zero(length: usize) -> Self {
        Self::new(Zero(length))
    }

    /// As [`Made::tell`].
    pub(crate) fn tell(&self, digest: &mut Digest) -> Result<(), StateError> {
        self.0.tell(digest)
    }
}

impl ArrayNumbers for ArraySource {
    fn length(&self) -> usize {
        self.0.length()
    }

    fn bytes(&self) -> Result<Cow<'_, [u8]>, StateError> {
        self.0.bytes()
    }
}

/// So many bytes.
#[derive(Debug)]
struct Zero(usize);

impl ArrayNumbers for Zero {
    fn length(&self) -> usize {
        self.0
    }

    fn bytes(&self) -> Result<Cow<'_, [u8]>, StateError> {
        Ok(Cow::Owned(vec![0; self.0]))
    }
}

impl Made for Zero {
    fn tell(&self, digest: &mut Digest) -> Result<(), StateError> {
        digest.add(b"zero");
        Ok(())
    }
}

impl Made for Vec<u8> {
    fn tell(&self, digest: &mut Digest) -> Result<(), StateError> {
        digest.add(self);
        Ok(())
    }
}

impl ParameterState<ArraySource> {
    /// A parameter before its first update, from what makes its numbers in a type: optimizer state is
    /// zero, and a master copy has what the parameter was rounded from.
    pub(crate) fn first(
        job: &Job,
        shape: Vec<u64>,
        numbers: impl Fn(Float) -> ArraySource,
    ) -> Self {
        let versions = vec![numbers(job.dtype)];
        let states = job.optimizer.method.states() as usize;
        let length = (shape.iter().product::<u64>() * job.dtype.wide_size()) as usize;
        let mut optimizer = vec![ArraySource::zero(length); states];
        optimizer.extend((0..job.dtype.masters()).map(|_| numbers(wide_type(job.dtype))));
        Self { shape, versions, optimizer }
    }
}

impl<A> State<A> {
    /// The same state with other arrays.
    fn with_each<B, E>(
        self,
        mut other: impl FnMut(A) -> Result<B, E>,
    ) -> Result<State<B>, E> {
        let State { dtype, step, origin, optimizer_origin, tensors } = self;
        let mut all = |arrays: Vec<A>| {
            let others = arrays.into_iter().map(&mut other);
            others.collect::<Result<Vec<B>, E>>()
        };
        let tensor = |(name, own): (String, ParameterState<A>)| {
            let (versions, optimizer) = (all(own.versions)?, all(own.optimizer)?);
            Ok((name, ParameterState { shape: own.shape, versions, optimizer }))
        };
        let tensors = tensors.into_iter().map(tensor).collect::<Result<_, E>>()?;
        Ok(State { dtype, step, origin, optimizer_origin, tensors })
    }
}

impl From<State> for State<ArraySource> {
    fn from(state: State) -> Self {
        let Ok(state) =
            state.with_each(|array| Ok::<_, Infallible>(ArraySource::new(array)));
        state
    }
}

impl State<ArraySource> {
    /// The state with all its arrays.
    ///
    /// # Errors
    /// [`StateError::Read`] when a file cannot be read any more.
    pub fn held(self) -> Result<State, StateError> {
        self.with_each(|source| Ok(source.bytes()?.into_owned()))
    }

    /// Tells a digest where the state is in a training, and all that it has.
    pub(crate) fn tell(&self, digest: &mut Digest) -> Result<(), StateError> {
        let moment = self.moment();
        [moment.step, moment.origin, moment.optimizer_origin]
            .iter()
            .for_each(|number| digest.add(&number.to_le_bytes()));
        for (name, tensor) in &self.tensors {
            digest.add(name.as_bytes());
            let mut sources = tensor.versions.iter().chain(&tensor.optimizer);
            sources.try_for_each(|source| source.tell(digest))?;
        }
        Ok(())
    }
}
