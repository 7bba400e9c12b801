//! What stages take, found once for all stages that do the same and for micro-batches of every
//! size.

use crate::{
    bill::{Bill, Reach, bytes_on_line},
    cost::{Costs, Priced},
    load::{BackwardCalls, LoadError, Sample, StageLoad, samples},
};
use roundelay_codegen::StageForm;
use roundelay_dsl::{Model, Program};
use roundelay_schedule::{Bytes, Nanos, Stage, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// What stages that do the same take.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    loads: [StageLoad; 2],
    inbound: [[Option<Bytes>; 2]; 2],
    forward: Bill,
    /// The backward pass, or its second half, as it writes gradients and as it adds to them.
    last: [Bill; 2],
    /// The first half.
    input: Option<Bill>,
}

/// What a stage takes, and the messages of the stage before that its passes wait for.
pub(crate) type Arriving = (StageLoad, [Option<Bytes>; 2]);

/// The patterns of some stages of a program's model, or of a short one, between cuts, each in a form; nothing where calls of
/// micro-batches of several sizes do not go together.
///
/// # Errors
/// When the model cannot be cut or differentiated like this.
pub(crate) fn patterns(
    program: (&Program, &Model),
    (cuts, form): (&[u32], impl Fn(Stage) -> StageForm),
    wanted: &BTreeSet<Stage>,
    (reach, tensor): (Reach, Tensor),
    costs: &Costs,
) -> Result<Option<BTreeMap<Stage, Pattern>>, LoadError> {
    let [first, second] = reach.derive(|examples| {
        samples(program, (cuts, &form), wanted, (examples, tensor), costs)
    })?;
    let pairs = first.into_iter().zip(second.into_values());
    let pattern = |((stage, one), other)| Some((stage, Pattern::new([one, other])?));
    Ok(pairs.map(pattern).collect())
}

impl Pattern {
    fn new([one, other]: [Sample; 2]) -> Option<Self> {
        let halves = |[one, other]: [[Vec<Priced>; 2]; 2]| {
            let ([first, next], [wide, later]) = (one, other);
            Some([Bill::new([first, wide])?, Bill::new([next, later])?])
        };
        let (last, input) = match (one.backward, other.backward) {
            (BackwardCalls::Whole(one), BackwardCalls::Whole(other)) => {
                (halves([one, other])?, None)
            }
            (
                BackwardCalls::Split { input: own, weight: one },
                BackwardCalls::Split { input, weight: other },
            ) => (halves([one, other])?, Some(Bill::new([own, input])?)),
            (BackwardCalls::Whole(_), BackwardCalls::Split { .. })
            | (BackwardCalls::Split { .. }, BackwardCalls::Whole(_)) => return None,
        };
        Some(Self {
            loads: [one.load, other.load],
            inbound: [one.inbound, other.inbound],
            forward: Bill::new([one.forward, other.forward])?,
            last,
            input,
        })
    }

    /// What it takes for a micro-batch of so many examples.
    pub(crate) fn at(&self, examples: u32, costs: &Costs) -> Arriving {
        let time = |bill: &Bill| costs.floor(&bill.at(examples));
        let last = self.last.each_ref().map(time).into_iter().min().unwrap_or_default();
        let (backward, weight) = match &self.input {
            None => (last, Nanos(0)),
            Some(input) => (time(input) + last, last),
        };
        let [one, other] = &self.loads;
        let bytes =
            |of: fn(&StageLoad) -> Bytes| bytes_on_line([of(one), of(other)], examples);
        let load = StageLoad {
            forward: time(&self.forward),
            backward,
            weight,
            activation: bytes(|load| load.activation),
            retained: bytes(|load| load.retained),
            adjoint: bytes(|load| load.adjoint),
            scratch: [
                bytes(|load| load.scratch[0]),
                bytes(|load| load.scratch[1]),
                bytes(|load| load.scratch[2]),
            ],
            ..one.clone()
        };
        let [one, other] = self.inbound;
        let message =
            |way: usize| Some(bytes_on_line([one[way]?, other[way]?], examples));
        (load, [message(0), message(1)])
    }
}

/// What a stage takes with more layers, each of which adds what the first of two others takes
/// without what the second does.
pub(crate) fn longer(
    (load, inbound): Arriving,
    layers: u64,
    [more, less]: [&StageLoad; 2],
) -> Arriving {
    let time = |of: fn(&StageLoad) -> Nanos| {
        of(&load) + Nanos(of(more).0.saturating_sub(of(less).0)) * layers
    };
    let bytes = |of: fn(&StageLoad) -> Bytes| {
        of(&load) + Bytes(of(more).0.saturating_sub(of(less).0)) * layers
    };
    let load = StageLoad {
        forward: time(|load| load.forward),
        backward: time(|load| load.backward),
        weight: time(|load| load.weight),
        // Each update was rounded up to whole nanoseconds.
        update: Nanos(time(|load| load.update).0.saturating_sub(layers)),
        parameters: bytes(|load| load.parameters),
        gradient: bytes(|load| load.gradient),
        optimizer: bytes(|load| load.optimizer),
        activation: bytes(|load| load.activation),
        retained: bytes(|load| load.retained),
        adjoint: bytes(|load| load.adjoint),
        ..load
    };
    (load, inbound)
}

/// The loads of stages that follow each other.
pub(crate) fn in_a_row(stages: Vec<Arriving>) -> Vec<StageLoad> {
    let inbound: Vec<[Option<Bytes>; 2]> = stages.iter().map(|(_, own)| *own).collect();
    let one = |(stage, (load, _)): (usize, Arriving)| {
        let [down, up] = inbound.get(stage + 1).copied().unwrap_or_default();
        StageLoad { down, up, ..load }
    };
    stages.into_iter().enumerate().map(one).collect()
}
