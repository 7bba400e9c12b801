//! What each stage of a cut model takes: exact times and sizes of its routines, before any
//! schedule exists.

use crate::{
    cost::{Costs, Unpriced},
    cuts::Chain,
};
use roundelay_codegen::{
    BackwardCode, Choice, CrossingValue, NodeCost, Samples, StageCode, StageError,
    StageForm, Stages, UpdateForm, node_costs, sample_stages, update,
};
use roundelay_dsl::Program;
use roundelay_schedule::{
    Argument, Bytes, Id, Nanos, Role, Routine, Stage, Tensor, ValueId,
};
use std::collections::{BTreeMap, BTreeSet};

/// What one stage takes for one micro-batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StageLoad {
    /// Forward pass.
    pub forward: Nanos,
    /// Backward pass, whole or both halves; the faster of the one that writes the gradient and
    /// the one that adds.
    pub backward: Nanos,
    /// What of it makes gradients of parameters, where that is a half of its own.
    pub weight: Nanos,
    /// The update of the whole stage in place.
    pub update: Nanos,
    /// Parameters.
    pub parameters: Bytes,
    /// The sum of gradients.
    pub gradient: Bytes,
    /// Optimizer state.
    pub optimizer: Bytes,
    /// What forward keeps for the backward pass, or for its first half; also values of the stage
    /// before that it reads.
    pub activation: Bytes,
    /// What it keeps for the second half, or that reads.
    pub retained: Bytes,
    /// What the first half keeps for the second.
    pub adjoint: Bytes,
    /// Scratch memory of the passes: forward, backward or its first half, the second half.
    pub scratch: [Bytes; 3],
    /// What the forward pass of the next stage waits for; nothing where it reads nothing of it.
    pub down: Option<Bytes>,
    /// What the backward pass waits for, of the next stage's.
    pub up: Option<Bytes>,
}

impl StageLoad {
    /// Forward and backward of one micro-batch.
    pub(crate) fn pass(&self) -> Nanos {
        self.forward + self.backward
    }

    /// The backward pass up to what the stage before waits for.
    pub(crate) fn turn(&self) -> Nanos {
        self.backward - self.weight
    }

    /// What forward keeps of one micro-batch.
    pub(crate) fn kept(&self) -> Bytes {
        self.activation + self.retained
    }
}

/// Why a program's stages cannot be costed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The model cannot be cut or differentiated like this.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A kernel is unknown.
    #[error(transparent)]
    Unpriced(#[from] Unpriced),
}

/// The stages of a program between cuts, each in a form, for micro-batches of `examples` whose
/// nodes were costed, on one of the devices that split tensors; no device is faster. For each stage
/// `alike` has one that takes as much.
///
/// # Errors
/// When the model cannot be cut or differentiated like this.
pub(crate) fn load(
    program: &Program,
    (cuts, form): (&[u32], impl Fn(Stage) -> StageForm),
    alike: &[usize],
    (examples, tensor): (u32, Tensor),
    costs: &Costs,
) -> Result<Vec<StageLoad>, LoadError> {
    let layout = (program.train.dtype, 1);
    let wanted: BTreeSet<Stage> = alike.iter().copied().map(Stage::new).collect();
    let (model, n) = (&program.model, u64::from(examples));
    let cut = (cuts, tensor);
    let which = (&wanted, &costs.algebra as &dyn Choice);
    let samples = sample_stages(model, cut, n, layout, form, which)?;
    let all = program.train.batch / examples.max(1);
    let of = |stage: &Stage| {
        let load = stage_load(program, (&samples, all), *stage, costs)?;
        Ok((*stage, load))
    };
    let known: BTreeMap<Stage, Sample> =
        wanted.iter().map(of).collect::<Result<_, LoadError>>()?;
    let sample =
        |stage: usize| alike.get(stage).and_then(|at| known.get(&Stage::new(*at)));
    let load = |stage: usize| {
        let next = sample(stage + 1).map_or([None; 2], |next| next.inbound);
        let own = sample(stage).map(|own| own.load.clone()).unwrap_or_default();
        StageLoad { down: next[0], up: next[1], ..own }
    };
    Ok((0..alike.len()).map(load).collect())
}

/// What a stage takes, and the messages of the stage before that its passes wait for.
struct Sample {
    load: StageLoad,
    inbound: [Option<Bytes>; 2],
}

fn stage_load(
    program: &Program,
    (samples, micro_batches): (&Samples, u32),
    stage: Stage,
    costs: &Costs,
) -> Result<Sample, LoadError> {
    let Samples { frame: code, code: known } = samples;
    let (train, row) = (&program.train, &known[&stage]);
    let (dtype, elements) = (train.dtype, code.elements[stage]);
    let time = |routine: &Routine| -> Result<Nanos, Unpriced> {
        Ok(costs.floor(&costs.priced(&routine.calls)?))
    };
    let (backward, weight) = match &row.backward {
        BackwardCode::Whole { first, next } => (time(first)?.min(time(next)?), Nanos(0)),
        BackwardCode::Split { input, weight_first, weight_next } => {
            let weight = time(weight_first)?.min(time(weight_next)?);
            (time(input)? + weight, weight)
        }
    };
    let late = row.backward.first();
    let scratch = |routine: Option<&&Routine>| {
        routine.map_or(Bytes(0), |routine| size(routine, Role::Workspace))
    };
    let [received, received_late] = received(code, row, stage);
    let (optimizer, form) = (&train.optimizer, UpdateForm::InPlace);
    let update = update(code, stage, optimizer, micro_batches, dtype, form, 1);
    let inbound = messages(code, row, stage);
    let load = StageLoad {
        forward: time(&row.forward)?,
        backward,
        weight,
        update: time(&update)?,
        parameters: Bytes(elements * dtype.size()),
        gradient: Bytes(elements * dtype.gradient().size(dtype)),
        optimizer: Bytes(elements * train.optimizer.arrays(dtype) * dtype.wide_size()),
        activation: size(&row.forward, Role::Activation) + received,
        retained: size(&row.forward, Role::Retained) + received_late,
        adjoint: size(late[0], Role::Adjoint),
        scratch: [
            scratch(Some(&&row.forward)),
            scratch(late.first()),
            scratch(late.get(1)),
        ],
        down: None,
        up: None,
    };
    Ok(Sample { load, inbound })
}

/// What the stage before makes and the backward pass reads, or only its first half, and what the
/// second half reads: it is there from before the forward pass.
fn received(code: &Stages, row: &StageCode, stage: Stage) -> [Bytes; 2] {
    let late = row.backward.first();
    let mut all = [Bytes(0); 2];
    for (id, value) in handed(code, stage) {
        let reads = |routine: &&Routine| {
            routine.arguments.iter().any(|argument| argument.role == Role::Value(id))
        };
        match late.iter().rposition(reads) {
            Some(0) => all[0] += value.size,
            Some(_) => all[1] += value.size,
            None => {}
        }
    }
    all
}

fn size(routine: &Routine, role: Role) -> Bytes {
    let of = |argument: &&Argument| argument.role == role;
    routine.arguments.iter().filter(of).map(|argument| argument.size).sum()
}

/// The values that the stage before makes.
fn handed(
    code: &Stages,
    stage: Stage,
) -> impl Iterator<Item = (ValueId, &CrossingValue)> {
    let before = stage.index().checked_sub(1).map(Stage::new);
    code.values.iter().filter(move |(_, value)| Some(value.producer) == before)
}

/// The bytes that the passes of a stage wait for, and those that go back from them: of values that
/// the stage before makes and this one reads itself.
fn messages(code: &Stages, row: &StageCode, stage: Stage) -> [Option<Bytes>; 2] {
    let turned = row.backward.first();
    let mut all = [None; 2];
    for (id, value) in handed(code, stage) {
        let has = |routine: &Routine, role| {
            routine.arguments.iter().any(|argument| argument.role == role)
        };
        let passes =
            [(&row.forward, Role::Value(id)), (turned[0], Role::ValueGradient(id))];
        for (sum, (routine, role)) in all.iter_mut().zip(passes) {
            if has(routine, role) {
                *sum = Some(sum.unwrap_or(Bytes(0)) + value.size);
            }
        }
    }
    all
}

/// The node list of a program, and for each node the elements of the parameters that it is the
/// first to use, and its mark.
pub(crate) type Nodes = (Chain, Vec<u64>, Vec<Mark>);

/// What of a node does not follow from what it does in the whole model: its layer, the size of its
/// result, and how many calls it takes.
pub(crate) type Mark = (Option<u32>, Bytes, usize);

/// The node list of a program for micro-batches of `examples`.
///
/// # Errors
/// When the model cannot be differentiated, or a kernel is unknown.
pub(crate) fn chain(
    program: &Program,
    (examples, tensor): (u32, Tensor),
    costs: &Costs,
) -> Result<Nodes, LoadError> {
    let (model, dtype) = (&program.model, program.train.dtype);
    let examples = u64::from(examples);
    let nodes = node_costs(model, (examples, tensor), dtype, &costs.algebra)?;
    let time = |node: &NodeCost| -> Result<Nanos, Unpriced> {
        let [forward, backward] = [&node.forward, &node.backward];
        let calls = [&forward.calls[..], &backward.calls].concat();
        let contained = [&forward.contained[..], &backward.contained].concat();
        let all = costs.part(&costs.priced(&calls)?);
        let contained = costs.part(&costs.priced(&contained)?);
        Ok(Nanos(all.0.saturating_sub(contained.0)))
    };
    let times = nodes.iter().map(time).collect::<Result<_, _>>()?;
    let elements = nodes.iter().map(|node| node.parameters).collect();
    let mark = |node: &NodeCost| {
        let calls = node.forward.calls.len() + node.backward.calls.len();
        (node.layer, node.output, calls)
    };
    let marks = nodes.iter().map(mark).collect();
    Ok((Chain::new(model, times, examples, dtype), elements, marks))
}
