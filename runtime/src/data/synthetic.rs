//! Data drawn from the seed, with a rule in them that a model can learn.

mod teacher;
mod walk;

use super::{DataError, Example, inputs::Pair};
use roundelay_kernels::random::Stream;
use roundelay_schedule::{Input, InputId, Job};
use teacher::Teacher;
use walk::Walk;

/// The most elements of one example of one input.
const LIMIT: u64 = 1 << 20;

/// A source of drawn examples.
#[derive(Clone, Debug)]
pub(super) enum Synthetic {
    /// Token sequences.
    Walk(Walk),
    /// Features, and what a fixed function makes of them.
    Teacher(Teacher),
}

impl Synthetic {
    /// Sequences for a pair of token inputs, else features and targets.
    pub(super) fn new(job: &Job) -> Result<Self, DataError> {
        match Pair::of(job) {
            Some(pair) if pair.sequence > LIMIT => Err(refuse(&job.inputs[pair.tokens])),
            Some(pair) => Ok(Self::Walk(Walk::new(pair, job.seed))),
            None => Teacher::new(job).map(Self::Teacher),
        }
    }

    /// Writes one example's row of an input.
    pub(super) fn fill(&mut self, input: InputId, example: Example, row: &mut [u8]) {
        match self {
            Self::Walk(walk) => walk.fill(input, example, row),
            Self::Teacher(teacher) => teacher.fill(input, example, row),
        }
    }
}

/// The numbers of one example; held-out examples have their own.
fn stream(seed: u64, label: u64, example: Example) -> Stream {
    match example {
        Example::Training { step, index } => Stream::new(seed, &[label, 0, step, index]),
        Example::HeldOut { index } => Stream::new(seed, &[label, 1, index]),
    }
}

fn refuse(input: &Input) -> DataError {
    let (shape, limit) = (input.shape.clone(), LIMIT);
    DataError::Shape { input: input.name.clone(), shape, limit }
}
