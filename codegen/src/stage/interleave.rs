//! The calls of a pass whose examples are taken in halves: the halves take turns at exchanges, each of
//! which goes on beside the calls of the other half.
//!
//! Each half falls into segments that end with an exchange. Segments are made in turn, so while a
//! half waits for what it exchanged the other one computes, forward and backward, across layers.
//! What all examples share is no part of a half: both are done before it, and begin after it.

use super::{
    call::{Step, Tensor},
    hashed::HashedMap,
};
use crate::tensor::Strand;
use roundelay_dsl::Source;
use roundelay_schedule::Attribute;
use std::collections::VecDeque;

/// The calls that parts of split tensors make together.
const EXCHANGES: [&str; 5] =
    ["all_gather", "all_reduce", "halo", "halo_add", "reduce_scatter"];
/// The flag of an exchange that the next calls do not wait for.
const BESIDE: &str = "beside";

/// The same calls in the order in which halves take turns; as they are where nothing is halved.
pub(crate) fn interleave(steps: Vec<Step>) -> Vec<Step> {
    let mut made = Vec::with_capacity(steps.len());
    let mut runs: Vec<Run> = Vec::new();
    for step in steps {
        let goes_on = runs.last().is_some_and(|run| run.strand == step.strand);
        let again = runs.iter().any(|run| run.strand == step.strand);
        if !goes_on && (step.strand == Strand::All || again) {
            take_turns(std::mem::take(&mut runs), &mut made);
        }
        match step.strand {
            Strand::All => made.push(step),
            Strand::Half(_) => {
                if runs.last().is_none_or(|run| run.strand != step.strand) {
                    runs.push(Run::new(step.strand));
                }
                runs.last_mut().expect("it was pushed").push(going_on(step));
            }
        }
    }
    take_turns(runs, &mut made);
    made
}

/// The call of a half as it is made: an exchange goes on beside those that follow.
pub(crate) fn going_on(step: Step) -> Step {
    match step.strand {
        Strand::Half(_) if EXCHANGES.contains(&step.kernel) => step.flag(BESIDE),
        Strand::Half(_) | Strand::All => step,
    }
}

/// Whether a call is an exchange that the next calls do not wait for.
pub(crate) fn goes_on(step: &Step) -> bool {
    step.attributes.get(BESIDE) == Some(&Attribute::Flag(true))
}

/// The last call before which such an exchange has to be done: the first one behind it that touches
/// what it makes.
pub(crate) fn done(steps: &[Step], exchange: usize) -> usize {
    let made = steps[exchange].terms.last().map(|term| term.tensor);
    let reads = |step: &Step| step.terms.iter().any(|term| Some(term.tensor) == made);
    let behind = steps[exchange + 1..].iter().position(reads);
    behind.map_or(steps.len(), |behind| exchange + 1 + behind)
}

/// The calls of a half that stand together.
struct Run {
    strand: Strand,
    steps: VecDeque<Step>,
    /// Calls of each segment.
    segments: VecDeque<usize>,
    /// The call behind which the other half may touch each tensor that it may share: the last one
    /// that touches it, of a sum over both the first, which writes it.
    ready: HashedMap<Tensor, usize>,
    /// Calls that were made.
    taken: usize,
}

impl Run {
    fn new(strand: Strand) -> Self {
        let (steps, segments) = (VecDeque::new(), VecDeque::new());
        Self { strand, steps, segments, ready: HashedMap::default(), taken: 0 }
    }

    fn push(&mut self, step: Step) {
        let ended = self.steps.back().is_none_or(goes_on) && !goes_on(&step);
        match self.segments.back_mut() {
            Some(segment) if !ended => *segment += 1,
            _ => self.segments.push_back(1),
        }
        for term in step.terms.iter().filter(|term| is_changing(term.tensor)) {
            let known = self.ready.get_or_insert(term.tensor, self.steps.len());
            if !is_sum(term.tensor) {
                *known = self.steps.len();
            }
        }
        self.steps.push_back(step);
    }

    /// Whether the other half may touch a tensor.
    fn is_past(&self, tensor: Tensor) -> bool {
        self.ready.get(&tensor).is_none_or(|call| *call < self.taken)
    }
}

/// Makes segments of runs in turn; each waits for the calls of runs before it with which it shares
/// what changes.
fn take_turns(mut runs: Vec<Run>, made: &mut Vec<Step>) {
    while runs.iter().any(|run| !run.segments.is_empty()) {
        for own in 0..runs.len() {
            let (before, rest) = runs.split_at_mut(own);
            let run = &mut rest[0];
            let Some(&length) = run.segments.front() else { continue };
            let mut terms = run.steps.iter().take(length).flat_map(|step| &step.terms);
            if terms.all(|term| before.iter().all(|run| run.is_past(term.tensor))) {
                run.segments.pop_front();
                run.taken += length;
                made.extend(run.steps.drain(..length));
            }
        }
    }
}

/// Whether a tensor is written once, and only added to from then on: the gradient of a parameter.
fn is_sum(tensor: Tensor) -> bool {
    matches!(tensor, Tensor::Gradient(Source::Parameter(_)))
}

/// Whether a pass writes a tensor: parameters and inputs it only reads.
fn is_changing(tensor: Tensor) -> bool {
    !matches!(tensor, Tensor::Source(Source::Parameter(_) | Source::Input(_)))
}
