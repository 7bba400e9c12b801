//! What a launch runs: the kernel calls of one pass of one stage, over named arguments.

use crate::{
    Bytes, Element, Exchanged, Extents, Float, InputId, Nanos, Shared, Stage, ValueId,
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap, fmt};

/// The kernel calls of one pass of one stage.
///
/// A launch binds each argument to a row of a buffer. Which contents the checker expects there
/// follows from the argument's role and the launch's task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routine {
    /// Name in messages and traces, `F2`.
    pub name: String,
    /// Which part of the work on a stage it does.
    pub pass: Pass,
    /// The stage whose work it does; a slice of a stage is a stage.
    pub stage: Stage,
    /// What a launch must bind.
    pub arguments: Vec<Argument>,
    /// Kernel calls, in order. Schedules of one search share them.
    pub calls: Shared<Vec<Call>>,
    /// Predicted time on the device it runs on.
    pub predicted: Nanos,
}

impl Routine {
    /// Where the argument of a role stands among the arguments, if the routine has one.
    pub fn place_of(&self, role: Role) -> Option<usize> {
        self.arguments.iter().position(|argument| argument.role == role)
    }

    /// The argument of a role, if the routine has one.
    pub fn argument(&self, role: Role) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.role == role)
    }

    /// What is done with the argument of a role, if the routine has one.
    pub fn access(&self, role: Role) -> Option<Access> {
        self.argument(role).map(|argument| argument.access)
    }
}

/// What a task does with a stage.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Pass {
    /// Forward, from values to values.
    Forward,
    /// Whole backward: gradients of values and of parameters.
    Backward,
    /// Half of a backward pass: gradients of values, for the stage itself and earlier ones.
    #[serde(rename = "input_gradient")]
    InputGradient,
    /// The other half, any time later: adds to the gradients of parameters.
    #[serde(rename = "weight_gradient")]
    WeightGradient,
    /// Adds a partial sum of gradients that another device made: received + own.
    Combine,
    /// The square of the norm of a gradient, or of the own shard of it; alone, or added to what the
    /// stages behind have found.
    Norm,
    /// θ_t, gradient and optimizer state to θ_{t+1}.
    Update,
}

impl Pass {
    /// The passes on a micro-batch, in order.
    pub const ON_MICRO_BATCHES: [Self; 4] =
        [Self::Forward, Self::Backward, Self::InputGradient, Self::WeightGradient];

    /// Whether it is a pass on a micro-batch.
    pub fn is_on_micro_batch(self) -> bool {
        match self {
            Self::Forward
            | Self::Backward
            | Self::InputGradient
            | Self::WeightGradient => true,
            Self::Combine | Self::Norm | Self::Update => false,
        }
    }
}

/// One thing that a launch binds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// What the row that is bound must hold.
    pub role: Role,
    /// What the routine does with it.
    pub access: Access,
    /// Bytes that the routine may touch, from the start of the row.
    pub size: Bytes,
}

/// What an argument is; with the launch's task this says which contents are expected.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Flat parameters of the stage: the version of the rule; for updates that of t.
    Parameter,
    /// Flat parameters of version t + 1, when they are not updated in place.
    NextParameter,
    /// Flat parameters of a tie, which several stages use.
    Tied(Stage),
    /// Flat gradient sum of the stage.
    Gradient,
    /// Flat sum of what one stage adds to the gradient of a tie.
    TiedGradient(Stage),
    /// Another device's gradient sum, for `Combine`.
    Received,
    /// Flat optimizer state of the stage.
    Optimizer,
    /// The square of a norm: a pass N writes that of its gradient, or adds it to that of the stages
    /// behind; an update reads that of all stages that have one norm with its own.
    Squares,
    /// What the stage's forward keeps for its backward, or for its input gradient alone.
    Activation,
    /// What the stage's forward keeps until its weight gradient.
    Retained,
    /// What the stage's input gradient keeps for its weight gradient.
    Adjoint,
    /// A value that crosses a stage boundary.
    Value(ValueId),
    /// The gradient of such a value.
    ValueGradient(ValueId),
    /// An input of the model.
    Input(InputId),
    /// What a micro-batch measures: its loss, then one number for each metric of the job.
    Metric,
    /// Scratch memory; its contents mean nothing outside the routine.
    Workspace,
}

impl Role {
    /// The state of a tie that it is part of.
    pub fn tied(self) -> Option<Stage> {
        match self {
            Role::Tied(state) | Role::TiedGradient(state) => Some(state),
            Role::Parameter
            | Role::NextParameter
            | Role::Gradient
            | Role::Received
            | Role::Optimizer
            | Role::Squares
            | Role::Activation
            | Role::Retained
            | Role::Adjoint
            | Role::Value(_)
            | Role::ValueGradient(_)
            | Role::Input(_)
            | Role::Metric
            | Role::Workspace => None,
        }
    }

    /// Whether it is a gradient sum that a backward pass adds to.
    pub fn is_sum(self) -> bool {
        matches!(self, Role::Gradient | Role::TiedGradient(_))
    }

    /// Whether it is part of a stage's state, which all slices of the stage share.
    pub fn is_state(self) -> bool {
        match self {
            Role::Parameter
            | Role::NextParameter
            | Role::Tied(_)
            | Role::Gradient
            | Role::TiedGradient(_)
            | Role::Received
            | Role::Optimizer
            | Role::Squares => true,
            Role::Activation
            | Role::Retained
            | Role::Adjoint
            | Role::Value(_)
            | Role::ValueGradient(_)
            | Role::Input(_)
            | Role::Metric
            | Role::Workspace => false,
        }
    }
}

/// What is done with a range of memory.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read only.
    Read,
    /// Written without regard to what was there.
    Write,
    /// Read and written.
    Update,
}

/// A name that the catalogue has. Who makes calls knows it beforehand, and makes many of them.
pub type Name = Cow<'static, str>;

/// The constants of a kernel call, by their names.
pub type Attributes = BTreeMap<Name, Attribute>;

/// The constants of one call. Calls are made and copied again and again, so they share them.
pub type Constants = Shared<Attributes>;

/// One kernel call. The kernel catalogue knows what name, attributes and operands mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Name in the kernel catalogue.
    pub kernel: Name,
    /// Constants of the kernel, by their names.
    #[serde(default, skip_serializing_if = "has_none")]
    pub attributes: Constants,
    /// What it works on.
    pub operands: Vec<Operand>,
}

fn has_none(attributes: &Constants) -> bool {
    attributes.is_empty()
}

/// A dense array inside an argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operand {
    /// Index into the routine's arguments.
    pub argument: u32,
    /// First byte inside the argument.
    pub offset: Bytes,
    /// Type of one number.
    pub element: Element,
    /// Extents, slowest first.
    pub shape: Extents,
}

impl Operand {
    /// Number of elements; none when it overflows.
    pub fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |product, extent| product.checked_mul(*extent))
    }
}

/// A constant of a kernel call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Attribute {
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Integer(i64),
    /// A real number.
    Real(f64),
    /// Whole numbers.
    Integers(Vec<i64>),
}

/// What a kernel call costs, from its shapes alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Floating-point operations.
    pub flops: crate::Flops,
    /// Memory traffic: every operand once per access.
    pub bytes: Bytes,
    /// What does the arithmetic.
    pub unit: Unit,
}

/// What the arithmetic of a kernel runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// Element by element.
    #[default]
    Vector,
    /// Products of matrices: linear maps, convolutions.
    Product,
    /// Products of matrices some row of which is no whole number of 16 bytes, as tensor cores load
    /// them.
    Unaligned,
    /// Products whose result stays on the chip: attention.
    Attention,
    /// Element by element, once over all parameters: an optimizer.
    Update,
    /// Over all classes of each token, which frameworks widen and pass over several times.
    Loss,
}

/// The kernels that exist; implemented beside them, asked by the checker.
pub trait Catalogue {
    /// What the call does to each operand, if such a call is well formed. Of calls that differ in places
    /// alone one may be asked for all: whoever asks sees to it that operands lie inside arguments.
    ///
    /// # Errors
    /// What is wrong, as a sentence without full stop.
    fn accesses(&self, call: &Call) -> Result<Vec<Access>, String>;

    /// Operands that the call reads, each with the one that it writes which may be the same memory,
    /// because each element is read for the last time by whoever then writes it. No operand stands in
    /// two pairs.
    fn replaces(&self, call: &Call) -> Vec<[usize; 2]>;

    /// What parts of a split tensor do together in this call, where real numbers are of this type,
    /// if it is such a call and well formed.
    fn exchange(&self, call: &Call, dtype: Float) -> Option<Exchanged>;

    /// The whole numbers that the call looks something up by, if it is such a call and well formed.
    fn indices(&self, call: &Call) -> Option<Indices>;
}

/// Whole numbers that stand for something of which there are this many: rows of a table, classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indices {
    /// Which operand they are.
    pub operand: usize,
    /// They are below this number.
    pub below: u64,
    /// The one of them that stands for nothing.
    pub mask: Option<u64>,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Role::Value(value) => return write!(f, "value({value})"),
            Role::ValueGradient(value) => return write!(f, "value_gradient({value})"),
            Role::Input(input) => return write!(f, "input({input})"),
            Role::Tied(state) => return write!(f, "tied({state})"),
            Role::TiedGradient(state) => return write!(f, "tied_gradient({state})"),
            Role::Parameter => "parameter",
            Role::NextParameter => "next_parameter",
            Role::Gradient => "gradient",
            Role::Received => "received",
            Role::Optimizer => "optimizer",
            Role::Squares => "squares",
            Role::Activation => "activation",
            Role::Retained => "retained",
            Role::Adjoint => "adjoint",
            Role::Metric => "metric",
            Role::Workspace => "workspace",
        };
        f.write_str(name)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Update => "update",
        })
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Pass::Forward => "F",
            Pass::Backward => "B",
            Pass::InputGradient => "I",
            Pass::WeightGradient => "W",
            Pass::Combine => "C",
            Pass::Norm => "N",
            Pass::Update => "U",
        })
    }
}
