//! What each stage of a cut model takes, from its routines, before any schedule exists.

use crate::costs::calls::{Costs, Priced, Unpriced};
use roundelay_codegen::{
    BackwardCode, CrossingValue, Normed, Piece, Portion, Samples, StageCode, StageError,
    StageForm, Stages, Storage, UpdateForm, combine, norm, update,
};
use roundelay_dsl::Program;
use roundelay_schedule::{
    Access, Argument, Bytes, Id, MapWays, Nanos, Pass, Repeated, Rewrites, Role, Routine,
    Stage, Table, ValueId,
};

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
    /// What a backward pass that writes the gradient takes more than that, and one that adds.
    pub more: [Nanos; 2],
    /// The update of the whole stage in place.
    pub update: Nanos,
    /// What members that split the state do besides passes.
    pub split: Split,
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
    /// Whether these passes read parameters.
    pub reads: [bool; 3],
    /// What the forward pass of the next stage waits for; nothing where it reads nothing of it.
    pub down: Option<Bytes>,
    /// What the backward pass waits for, of the next stage's.
    pub up: Option<Bytes>,
}

/// What all members that split a stage's state take together, each an equal part of it by the law
/// of the roofline; nothing where a table may say less of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    /// Adding one micro-batch's gradient to the sum.
    pub combine: Nanos,
    /// The update.
    pub update: Nanos,
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

    /// Whether a pass reads parameters.
    pub(crate) fn reads(&self, pass: Pass) -> bool {
        match pass {
            Pass::Forward => self.reads[0],
            Pass::Backward | Pass::InputGradient => self.reads[1],
            Pass::WeightGradient => self.reads[2],
            Pass::Combine | Pass::Norm | Pass::Update => false,
        }
    }

    /// The least of two ways, in everything: of the halves of a backward pass too.
    pub(crate) fn least(&self, other: &Self) -> Self {
        let weight = self.weight.min(other.weight);
        let times =
            |one: [Nanos; 2], other: [Nanos; 2]| [0, 1].map(|at| one[at].min(other[at]));
        let scratch = [0, 1, 2].map(|at| self.scratch[at].min(other.scratch[at]));
        let reads = [0, 1, 2].map(|at| self.reads[at] && other.reads[at]);
        Self {
            forward: self.forward.min(other.forward),
            backward: self.turn().min(other.turn()) + weight,
            weight,
            more: times(self.more, other.more),
            update: self.update.min(other.update),
            split: Split {
                combine: self.split.combine.min(other.split.combine),
                update: self.split.update.min(other.split.update),
            },
            parameters: self.parameters.min(other.parameters),
            gradient: self.gradient.min(other.gradient),
            optimizer: self.optimizer.min(other.optimizer),
            activation: self.activation.min(other.activation),
            retained: self.retained.min(other.retained),
            adjoint: self.adjoint.min(other.adjoint),
            scratch,
            reads,
            down: self.down.min(other.down),
            up: self.up.min(other.up),
        }
    }

    /// What forward keeps of one micro-batch.
    pub(crate) fn kept(&self) -> Bytes {
        self.activation + self.retained
    }
}

/// Why a program's stages cannot be costed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The model cannot be cut or differentiated like this.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A kernel is unknown.
    #[error(transparent)]
    Unpriced(#[from] Unpriced),
}

/// What a stage takes for micro-batches of one size, before its calls are added up.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Everything but the times of passes, and what goes to and comes from the next stage.
    pub load: StageLoad,
    /// Messages of the stage before that its forward and backward passes wait for.
    pub inbound: [Option<Bytes>; 2],
    /// The calls of its forward pass.
    pub forward: Vec<Priced>,
    /// The calls of its backward pass.
    pub backward: BackwardCalls,
}

/// The calls of a backward pass; where it makes gradients of parameters, once as it writes them
/// and once as it adds to them.
#[derive(Clone, Debug)]
pub(crate) enum BackwardCalls {
    /// In one piece.
    Whole([Vec<Priced>; 2]),
    /// In halves.
    Split {
        /// Makes gradients of values.
        input: Vec<Priced>,
        /// Makes those of parameters.
        weight: [Vec<Priced>; 2],
    },
}

/// Some stages of a program's model, or of a short one, each in a form, for micro-batches of
/// `examples` whose nodes were costed, on one of the devices that split tensors.
///
/// # Errors
/// When the model cannot be cut or differentiated like this.
pub(crate) fn samples(
    program: &Program,
    piece: &Piece<'_>,
    wanted: &[(Stage, StageForm)],
    examples: u32,
    costs: &Costs,
) -> Result<Vec<Result<Sample, LoadError>>, LoadError> {
    let storage = Storage { dtype: program.train.dtype, padding: 1 };
    let n = u64::from(examples);
    let Samples { frame, code } = piece.samples(n, storage, wanted, &costs.algebra)?;
    let all = (program.train.batch / examples.max(1)).max(1);
    // Forms of a stage have most of their calls in common.
    let mut known = Repeated::default();
    let each = wanted.iter().map(|(stage, _)| *stage).zip(&code);
    Ok(each.map(|own| sample(program, (&frame, all), own, (costs, &mut known))).collect())
}

fn sample<'c>(
    program: &Program,
    (frame, micro_batches): (&Stages, u32),
    (stage, row): (Stage, &'c StageCode),
    (costs, known): (&Costs, &mut Repeated<'c, Priced>),
) -> Result<Sample, LoadError> {
    let train = &program.train;
    let (dtype, elements) = (train.dtype, frame.elements[stage]);
    let mut calls = |routine: &'c Routine| costs.priced_knowing(known, &routine.calls);
    let backward = match &row.backward {
        BackwardCode::Whole { first, next } => {
            BackwardCalls::Whole([calls(first)?, calls(next)?])
        }
        BackwardCode::Split { input, weight_first, weight_next } => {
            let weight = [calls(weight_first)?, calls(weight_next)?];
            BackwardCalls::Split { input: calls(input)?, weight }
        }
    };
    let late = row.backward.first();
    let scratch = |routine: Option<&&Routine>| {
        routine.map_or(Bytes(0), |routine| size(routine, Role::Workspace))
    };
    let [received, received_late] = received(frame, row, stage);
    let update = update_time(program, (frame, micro_batches), stage, costs)?;
    let split = match program.profiles.is_empty() {
        true => {
            Split { combine: launch_time(&combine(frame, stage, dtype), costs)?, update }
        }
        false => Split::default(),
    };
    let load = StageLoad {
        update,
        split,
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
        reads: [Pass::Forward, Pass::Backward, Pass::WeightGradient]
            .map(|pass| row.reads(pass)),
        ..StageLoad::default()
    };
    let inbound = messages(frame, row, stage);
    Ok(Sample { load, inbound, forward: calls(&row.forward)?, backward })
}

/// What the update of a whole stage in place takes at least. Where a norm is bounded, it finds that of
/// the stage itself, or a pass before it finds what the stage has of it: plans differ in that.
fn update_time(
    program: &Program,
    (frame, micro_batches): (&Stages, u32),
    stage: Stage,
    costs: &Costs,
) -> Result<Nanos, Unpriced> {
    let (optimizer, dtype) = (&program.train.optimizer, program.train.dtype);
    let form = UpdateForm::InPlace;
    let own = |portion| {
        let routine =
            update(frame, stage, optimizer, micro_batches, dtype, form, portion);
        launch_time(&routine, costs)
    };
    let alone = own(Portion::WHOLE)?;
    if optimizer.clip == 0.0 {
        return Ok(alone);
    }
    let joint = Portion { normed: Normed::Together, ..Portion::WHOLE };
    let found = norm(frame, stage, micro_batches, dtype, (joint, Access::Write));
    Ok(alone.min(own(joint)? + launch_time(&found, costs)?))
}

/// What one launch of a routine takes at least.
fn launch_time(routine: &Routine, costs: &Costs) -> Result<Nanos, Unpriced> {
    let calls = costs.priced(&routine.calls)?.into_iter().map(|call| (call, 1));
    Ok(costs.floor(&calls.collect::<Vec<_>>()).time())
}

/// What the update of one stage of this many elements takes.
///
/// # Errors
/// When the optimizer's kernel is unknown.
pub(crate) fn update_of(
    program: &Program,
    elements: u64,
    costs: &Costs,
) -> Result<Nanos, Unpriced> {
    let frame = Stages {
        stages: Table::new(),
        values: Table::new(),
        inputs: Table::new(),
        parameters: Vec::new(),
        ties: Vec::new(),
        elements: [elements].into_iter().collect(),
        rewrites: Rewrites::default(),
        maps: MapWays::default(),
    };
    update_time(program, (&frame, 1), Stage::new(0), costs)
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
