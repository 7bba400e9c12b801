//! The update routine of a stage: optimizer over a flat array, whole or in shards.

use super::{Stages, assemble::name};
use roundelay_schedule::{
    Access, Argument, Attribute, Attributes, Bytes, Call, Element, Float, Method, Nanos,
    Operand, Optimizer, Pass, Role, Routine, Stage, Tensor, Treatment,
};

/// Where an update writes θ_{t+1}.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateForm {
    /// Over θ_t: `Parameter` is updated.
    InPlace,
    /// Beside θ_t: `Parameter` is read, `NextParameter` is written.
    Next,
}

/// What a device has of a stage's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Equal shards of the flat arrays, of which it has one.
    pub shards: u64,
    /// How tensors are split, so that the flat arrays are those of one part.
    pub tensor: Tensor,
    /// Whose gradients are bounded by one norm, where that is clipped.
    pub normed: Normed,
}

/// The stages whose gradients have one norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normed {
    /// Each stage alone.
    Alone,
    /// All of several.
    Together,
}

impl Portion {
    /// All of it, and there is no other stage.
    pub const WHOLE: Self =
        Self { shards: 1, tensor: Tensor::WHOLE, normed: Normed::Alone };

    /// Whether the gradient that it has is all whose norm is bounded.
    pub fn is_whole(self) -> bool {
        let alone = match self.normed {
            Normed::Alone => true,
            Normed::Together => false,
        };
        self.shards == 1 && self.tensor.parts() == 1 && alone
    }

    /// Elements of the flat parameters that it has.
    pub(crate) fn elements(self, stages: &Stages, stage: Stage) -> u64 {
        stages.elements[stage] / self.shards
    }
}

/// The update of `stage` with the gradient sum of `micro_batches`, by what a device has of it.
/// Optimizer state is `Method::states` consecutive flat arrays of the same length, and a master copy
/// of the parameters in mixed precision. Ranges of parameters count in the stage's whole array.
///
/// Where the gradient is clipped, and is a part of what is bounded, the square of the norm of all is an
/// argument ([`super::norm`]).
pub fn update(
    stages: &Stages,
    stage: Stage,
    optimizer: &Optimizer,
    micro_batches: u32,
    dtype: Float,
    form: UpdateForm,
    portion: Portion,
) -> Routine {
    let count = portion.elements(stages, stage);
    let size = Bytes(count) * dtype.size();
    let sum = Bytes(count) * dtype.gradient().size(dtype);
    let (wide, states) = (Bytes(count) * dtype.wide_size(), optimizer.arrays(dtype));
    let mut arguments = match form {
        UpdateForm::InPlace => vec![(Role::Parameter, Access::Update, size)],
        UpdateForm::Next => vec![
            (Role::Parameter, Access::Read, size),
            (Role::NextParameter, Access::Write, size),
        ],
    };
    let next = arguments.len() - 1;
    let gradient = arguments.len();
    arguments.push((Role::Gradient, Access::Read, sum));
    if states > 0 {
        arguments.push((Role::Optimizer, Access::Update, wide * states));
    }
    let squares = arguments.len();
    let normed = optimizer.clip > 0.0 && !portion.is_whole();
    if normed {
        arguments.push((Role::Squares, Access::Read, Bytes(dtype.wide_size())));
    }
    let array = |argument: usize, element, offset, count: u64| Operand {
        argument: u32::try_from(argument).expect("an update has five arguments"),
        offset,
        element,
        shape: [count][..].into(),
    };
    let operand = |argument, element, offset| array(argument, element, offset, count);
    let whole = [(gradient, dtype.gradient()), (0, Element::Real), (next, Element::Real)];
    let whole = whole.map(|(argument, element)| operand(argument, element, Bytes(0)));
    let state = dtype.spelled(Element::Wide);
    let state = (0..states).map(|number| operand(gradient + 1, state, wide * number));
    let norm = normed.then(|| array(squares, dtype.spelled(Element::Wide), Bytes(0), 1));
    let (kernel, mut attributes) = rule(optimizer, micro_batches);
    attributes.extend(treatments(stages, stage));
    attributes.extend(normed.then(|| ("squares".into(), Attribute::Flag(true))));
    let call = Call {
        kernel: kernel.into(),
        attributes: attributes.into(),
        operands: whole.into_iter().chain(state).chain(norm).collect(),
    };
    let argument = |(role, access, size)| Argument { role, access, size };
    Routine {
        name: name(Pass::Update, stage),
        pass: Pass::Update,
        stage,
        arguments: arguments.into_iter().map(argument).collect(),
        calls: vec![call].into(),
        predicted: Nanos(0),
    }
}

fn rule(optimizer: &Optimizer, micro_batches: u32) -> (&'static str, Attributes) {
    let mut constants = vec![
        ("weight_decay", Attribute::Real(optimizer.weight_decay)),
        ("clip", Attribute::Real(optimizer.clip)),
        ("micro_batches", Attribute::Integer(micro_batches.into())),
    ];
    match optimizer.method {
        Method::Sgd { momentum, nesterov } => {
            constants.push(("momentum", Attribute::Real(momentum)));
            constants.push(("nesterov", Attribute::Flag(nesterov)));
        }
        Method::Adamw { beta1, beta2, epsilon } => {
            constants.push(("beta1", Attribute::Real(beta1)));
            constants.push(("beta2", Attribute::Real(beta2)));
            constants.push(("epsilon", Attribute::Real(epsilon)));
        }
    }
    let named = constants.into_iter().map(|(name, value)| (name.into(), value));
    (optimizer.method.kernel(), named.collect())
}

/// The ranges that are no ordinary weights: without decay, and running averages.
fn treatments(stages: &Stages, stage: Stage) -> Attributes {
    let own = || stages.parameters.iter().filter(|parameter| parameter.stage == stage);
    let spared = Treatment::ranges(own(), |treatment| treatment == Treatment::Spared);
    let averaged = Treatment::ranges(own(), |t| t.momentum().is_some());
    let momentum = own().find_map(|parameter| parameter.treatment.momentum());
    let spared = ("spared".into(), Attribute::Integers(spared));
    let averages = momentum.map(|momentum| {
        [
            ("averaged".into(), Attribute::Integers(averaged)),
            ("average_momentum".into(), Attribute::Real(momentum)),
        ]
    });
    averages.into_iter().flatten().chain([spared]).collect()
}
