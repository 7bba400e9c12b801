//! What stages take, found once for all stages that do the same and for micro-batches of every
//! size.

use crate::costs::{
    bill::{Bill, Reach, bytes_on_line},
    calls::{Costs, Floor, Kinds, Priced},
    load::{BackwardCalls, LoadError, Sample, Split, StageLoad, samples},
};
use roundelay_codegen::{Piece, StageForm};
use roundelay_dsl::{Model, Program};
use roundelay_schedule::{Bytes, Nanos, Stage, Tensor};

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

/// What a stage takes for micro-batches of one size, in parts that add up over its layers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Taken {
    /// Everything but the times of passes, and what goes to and comes from the next stage.
    load: StageLoad,
    /// Messages of the stage before that its forward and backward passes wait for.
    inbound: [Option<Bytes>; 2],
    forward: Floor,
    last: [Floor; 2],
    input: Option<Floor>,
}

/// The patterns of some stages of a program's model, or of a short one, each in a form; nothing
/// where calls of micro-batches of several sizes do not go together.
///
/// # Errors
/// When the model cannot be cut or differentiated like this.
pub(crate) fn patterns(
    (program, model): (&Program, &Model),
    cut: (&[u32], Tensor),
    wanted: &[(Stage, StageForm)],
    reach: Reach,
    costs: &Costs,
) -> Result<Vec<Result<Option<Pattern>, LoadError>>, LoadError> {
    let piece = Piece::new(model, cut, &costs.algebra)?;
    let [first, second] =
        reach.derive(|examples| samples(program, &piece, wanted, examples, costs))?;
    let pairs = first.into_iter().zip(second);
    let pattern = |(one, other)| Ok(Pattern::new([one?, other?]));
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

    /// What it takes for a micro-batch of this many examples.
    pub(crate) fn at(&self, examples: u32, costs: &Costs) -> Taken {
        let floor = |bill: &Bill| costs.floor(&bill.at(examples));
        let [one, other] = &self.loads;
        let bytes =
            |of: fn(&StageLoad) -> Bytes| bytes_on_line([of(one), of(other)], examples);
        let load = StageLoad {
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
        Taken {
            load,
            inbound: [message(0), message(1)],
            forward: floor(&self.forward),
            last: self.last.each_ref().map(floor),
            input: self.input.as_ref().map(floor),
        }
    }
}

impl Taken {
    /// What a stage of more layers takes, each of which adds what the first of two others takes
    /// without what the second does.
    pub(crate) fn longer(self, layers: u64, [more, less]: [&Self; 2]) -> Self {
        let Self { load, inbound, forward, last: [write, add], input } = self;
        let bytes = |of: fn(&StageLoad) -> Bytes| {
            let step = of(&more.load).0.saturating_sub(of(&less.load).0);
            of(&load) + Bytes(step) * layers
        };
        // Each of them was rounded up to whole nanoseconds.
        let time = |of: fn(&StageLoad) -> Nanos| {
            let step = of(&more.load).0.saturating_sub(of(&less.load).0);
            let longer = of(&load).0.saturating_add(step.saturating_mul(layers));
            Nanos(longer.saturating_sub(layers))
        };
        let split = Split {
            combine: time(|load| load.split.combine),
            update: time(|load| load.split.update),
        };
        let load = StageLoad {
            update: time(|load| load.update),
            split,
            parameters: bytes(|load| load.parameters),
            gradient: bytes(|load| load.gradient),
            optimizer: bytes(|load| load.optimizer),
            activation: bytes(|load| load.activation),
            retained: bytes(|load| load.retained),
            adjoint: bytes(|load| load.adjoint),
            ..load
        };
        let first_half = more.input.as_ref().zip(less.input.as_ref());
        Self {
            load,
            inbound,
            forward: forward.with(layers, [&more.forward, &less.forward]),
            last: [
                write.with(layers, [&more.last[0], &less.last[0]]),
                add.with(layers, [&more.last[1], &less.last[1]]),
            ],
            input: input
                .zip(first_half)
                .map(|(own, (more, less))| own.with(layers, [more, less])),
        }
    }
}

/// The loads of stages that follow each other, each on the slowest of its kinds of devices; without any
/// kinds on the fastest of all.
pub(crate) fn in_a_row(stages: Vec<Taken>, kinds: &[Kinds]) -> Vec<StageLoad> {
    let inbound: Vec<[Option<Bytes>; 2]> =
        stages.iter().map(|stage| stage.inbound).collect();
    let one = |(stage, taken): (usize, Taken)| {
        let time = |floor: &Floor| match kinds.get(stage) {
            Some(kinds) => floor.on(kinds),
            None => floor.time(),
        };
        let [down, up] = inbound.get(stage + 1).copied().unwrap_or_default();
        let [write, add] = taken.last.each_ref().map(time);
        let last = write.min(add);
        let more = [write, add].map(|pass| pass - last);
        let (backward, weight) = match &taken.input {
            None => (last, Nanos(0)),
            Some(input) => (time(input) + last, last),
        };
        let forward = time(&taken.forward);
        StageLoad { forward, backward, weight, more, down, up, ..taken.load }
    };
    stages.into_iter().enumerate().map(one).collect()
}
