//! Where things are: rings of devices, buffers in rings of slots, and what carried buffers hold
//! between segments.

use crate::{
    AxisId, BufferId, Bytes, DeviceId, Element, InputId, Job, RingId, Role, Stage,
    ValueId,
    spelled::{held_as_text, spelled},
};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A symmetric dimension: the schedule describes one cell, every action runs at every coordinate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Name in messages.
    pub name: String,
    /// How many coordinates it has.
    pub extent: u32,
    /// Distance between the target devices of neighbouring coordinates.
    pub stride: u32,
    /// What differs from coordinate to coordinate.
    #[serde(default, skip_serializing_if = "Splits::is_batch")]
    pub splits: Splits,
}

/// What the coordinates of an axis divide among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Splits {
    /// The batch: each coordinate takes micro-batches of its own.
    #[default]
    Batch,
    /// Tensors: all coordinates take the same micro-batches, and each does its part of every
    /// split operation. Nothing but the exchanges inside of routines moves along such an axis.
    #[serde(rename = "rows")]
    Tensors,
}

impl Splits {
    fn is_batch(&self) -> bool {
        *self == Splits::Batch
    }
}

/// L equal devices that turn: in period p, place k is device number (k + turn · p) mod L.
///
/// A single device is a ring of one. A device may stand in several rings; a queue belongs to the
/// device and lane, whatever ring names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ring {
    /// The devices, at coordinate zero of every axis.
    pub devices: Vec<DeviceId>,
    /// By how many places the ring turns in a period.
    pub turn: u32,
    /// In-order queues for launches on each device.
    pub lanes: u32,
}

/// A device of a ring, as seen from the frame that turns.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(into = "String", try_from = "String")]
pub struct Place {
    /// The ring of devices.
    pub ring: RingId,
    /// Place in period 0.
    pub place: u32,
}

/// A slot of a buffer, as seen from the frame that turns: the slot used in period p is
/// (place + turn · p) mod V.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(into = "String", try_from = "String")]
pub struct Row {
    /// The buffer that has the row.
    pub buffer: BufferId,
    /// Slot in period 0.
    pub place: u32,
}

/// An ordered set of places for a collective: for each coordinate of the axes, slowest axis
/// first, each place in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Places within the cell; all belong to the home ring of the rows that are reduced.
    pub places: Vec<Place>,
    /// Axes that the group runs along.
    pub axes: Vec<AxisId>,
}

/// A range of memory on every device of a ring, in a ring of V ≥ 1 slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// The devices that have it, all at the same offset.
    pub home: RingId,
    /// What it holds; this also gives its kind.
    pub subject: Subject,
    /// First byte of slot 0 in the arena of the pool's share of one device.
    pub offset: Bytes,
    /// Bytes of one slot; slot k starts at `offset + k · size`.
    pub size: Bytes,
    /// Number of slots, V.
    pub slots: u32,
    /// By how many slots the ring of rows turns in a period.
    pub turn: u32,
    /// Whether its value crosses training steps.
    pub rest: Rest,
}

/// What a buffer holds.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Flat parameters of a stage.
    Parameter(Stage, Slice),
    /// Flat gradient sum of a stage.
    Gradient(Stage, Slice),
    /// Flat optimizer state of a stage.
    Optimizer(Stage, Slice),
    /// The square of the norm of the gradients of some stages, or of such a part of each.
    Squares(Slice),
    /// What a stage's forward keeps for its backward, or for its input gradient alone.
    Activation(Stage),
    /// What a stage's forward keeps until its weight gradient.
    Retained(Stage),
    /// What a stage's input gradient keeps for its weight gradient.
    Adjoint(Stage),
    /// A value that crosses a stage boundary.
    Value(ValueId),
    /// The gradient of such a value.
    ValueGradient(ValueId),
    /// An input of the model.
    Input(InputId),
    /// The loss of a micro-batch.
    Metric,
    /// Scratch memory of a lane.
    Workspace,
}

/// What passes of a stage keep for later ones of the same micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeptKind {
    /// From forward to backward, or to the input gradient alone.
    Activation,
    /// From forward to the weight gradient.
    Retained,
    /// From the input gradient to the weight gradient.
    Adjoint,
}

/// Which part of a flat array a buffer holds; affine in the coordinates.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Slice {
    /// All of it.
    Whole,
    /// Part c of as many as the axis has coordinates, at coordinate c.
    Shard(AxisId),
}

spelled! {
    /// Kinds of memory, in the order of the arena and of every table.
    pub enum Kind: "kind of memory" {
        /// Parameters.
        Parameter = "parameter",
        /// Gradients of parameters.
        Gradient = "gradient",
        /// Optimizer state.
        Optimizer = "optimizer",
        /// Kept for backward.
        Activation = "activation",
        /// Values and gradients that cross a stage boundary.
        Boundary = "boundary",
        /// Scratch.
        Workspace = "workspace",
        /// Examples.
        Input = "input",
        /// Losses.
        Metric = "metric",
    }
}

/// Whether and what a buffer holds between segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rest {
    /// Nothing that is read later.
    Transient,
    /// Version T − age at rest before step T: `ages[device place][slot place]`, places as in
    /// period T; none where nothing is read later.
    Carried(Vec<Vec<Option<u32>>>),
}

impl Subject {
    /// The kind of memory.
    pub fn kind(self) -> Kind {
        match self {
            Subject::Parameter(..) => Kind::Parameter,
            Subject::Gradient(..) | Subject::Squares(..) => Kind::Gradient,
            Subject::Optimizer(..) => Kind::Optimizer,
            Subject::Activation(_) | Subject::Retained(_) | Subject::Adjoint(_) => {
                Kind::Activation
            }
            Subject::Value(_) | Subject::ValueGradient(_) => Kind::Boundary,
            Subject::Input(_) => Kind::Input,
            Subject::Metric => Kind::Metric,
            Subject::Workspace => Kind::Workspace,
        }
    }

    /// What moves back where this moves on: the gradient of a value, and the value of a gradient. A
    /// copy to another device has a copy of the dual from there as its adjoint, which is added to
    /// what else there is of it; where several read one value, the sum of what they send. None for
    /// what nothing is differentiated by.
    pub const fn dual(self) -> Option<Self> {
        match self {
            Subject::Parameter(stage, slice) => Some(Subject::Gradient(stage, slice)),
            Subject::Gradient(stage, slice) => Some(Subject::Parameter(stage, slice)),
            Subject::Value(value) => Some(Subject::ValueGradient(value)),
            Subject::ValueGradient(value) => Some(Subject::Value(value)),
            Subject::Optimizer(..)
            | Subject::Squares(..)
            | Subject::Activation(_)
            | Subject::Retained(_)
            | Subject::Adjoint(_)
            | Subject::Input(_)
            | Subject::Metric
            | Subject::Workspace => None,
        }
    }

    /// The input that it is, if it is one.
    pub const fn input(self) -> Option<InputId> {
        match self {
            Subject::Input(input) => Some(input),
            Subject::Parameter(..)
            | Subject::Gradient(..)
            | Subject::Optimizer(..)
            | Subject::Squares(_)
            | Subject::Activation(_)
            | Subject::Retained(_)
            | Subject::Adjoint(_)
            | Subject::Value(_)
            | Subject::ValueGradient(_)
            | Subject::Metric
            | Subject::Workspace => None,
        }
    }

    /// The element type of its numbers. Memory that holds arrays of several types counts as real
    /// numbers.
    pub fn element(self, job: &Job) -> Element {
        match self {
            Subject::Gradient(..) => job.dtype.gradient(),
            Subject::Optimizer(..) | Subject::Squares(_) | Subject::Metric => {
                Element::Wide
            }
            Subject::Input(input) => job.inputs[input].element,
            Subject::Parameter(..)
            | Subject::Activation(_)
            | Subject::Retained(_)
            | Subject::Adjoint(_)
            | Subject::Value(_)
            | Subject::ValueGradient(_)
            | Subject::Workspace => Element::Real,
        }
    }

    /// The stage, and the part of its flat array, of what is parameters, gradients or state of the
    /// optimizer.
    pub const fn state(self) -> Option<(Stage, Slice)> {
        match self {
            Subject::Parameter(stage, slice)
            | Subject::Gradient(stage, slice)
            | Subject::Optimizer(stage, slice) => Some((stage, slice)),
            Subject::Squares(_)
            | Subject::Activation(_)
            | Subject::Retained(_)
            | Subject::Adjoint(_)
            | Subject::Value(_)
            | Subject::ValueGradient(_)
            | Subject::Input(_)
            | Subject::Metric
            | Subject::Workspace => None,
        }
    }

    /// The stage, and the axis along which its flat array is split, of what is a shard of one.
    pub const fn shard(self) -> Option<(Stage, AxisId)> {
        match self.state() {
            Some((stage, Slice::Shard(axis))) => Some((stage, axis)),
            Some((_, Slice::Whole)) | None => None,
        }
    }

    /// The stage, and which of them it is, of what passes keep for later ones.
    pub const fn kept(self) -> Option<(Stage, KeptKind)> {
        match self {
            Subject::Activation(stage) => Some((stage, KeptKind::Activation)),
            Subject::Retained(stage) => Some((stage, KeptKind::Retained)),
            Subject::Adjoint(stage) => Some((stage, KeptKind::Adjoint)),
            Subject::Parameter(..)
            | Subject::Gradient(..)
            | Subject::Optimizer(..)
            | Subject::Squares(_)
            | Subject::Value(_)
            | Subject::ValueGradient(_)
            | Subject::Input(_)
            | Subject::Metric
            | Subject::Workspace => None,
        }
    }

    /// Which part it is of what may be split along an axis: a flat array, or a norm.
    pub const fn slice(self) -> Option<Slice> {
        match (self, self.state()) {
            (Subject::Squares(slice), _) | (_, Some((_, slice))) => Some(slice),
            (_, None) => None,
        }
    }

    /// Whether a launch of `stage` may bind this to an argument of `role`.
    pub fn fits(self, role: Role, stage: Stage) -> bool {
        match (self, role) {
            (Subject::Parameter(own, _), Role::Parameter | Role::NextParameter)
            | (Subject::Gradient(own, _), Role::Gradient | Role::Received)
            | (Subject::Optimizer(own, _), Role::Optimizer)
            | (Subject::Activation(own), Role::Activation)
            | (Subject::Retained(own), Role::Retained)
            | (Subject::Adjoint(own), Role::Adjoint) => own == stage,
            (Subject::Parameter(own, _), Role::Tied(state))
            | (Subject::Gradient(own, _), Role::TiedGradient(state)) => own == state,
            (Subject::Value(own), Role::Value(value))
            | (Subject::ValueGradient(own), Role::ValueGradient(value)) => own == value,
            (Subject::Input(own), Role::Input(input)) => own == input,
            (Subject::Metric, Role::Metric)
            | (Subject::Squares(_), Role::Squares)
            | (Subject::Workspace, Role::Workspace) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Parameter(stage, slice) => write!(f, "parameter({stage}, {slice})"),
            Subject::Gradient(stage, slice) => write!(f, "gradient({stage}, {slice})"),
            Subject::Optimizer(stage, slice) => write!(f, "optimizer({stage}, {slice})"),
            Subject::Squares(slice) => write!(f, "squares({slice})"),
            Subject::Activation(stage) => write!(f, "activation({stage})"),
            Subject::Retained(stage) => write!(f, "retained({stage})"),
            Subject::Adjoint(stage) => write!(f, "adjoint({stage})"),
            Subject::Value(value) => write!(f, "value({value})"),
            Subject::ValueGradient(value) => write!(f, "value_gradient({value})"),
            Subject::Input(input) => write!(f, "input({input})"),
            Subject::Metric => f.write_str("metric"),
            Subject::Workspace => f.write_str("workspace"),
        }
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slice::Whole => f.write_str("whole"),
            Slice::Shard(axis) => write!(f, "shard of {axis}"),
        }
    }
}

impl Buffer {
    /// Bytes of all slots.
    pub fn total(&self) -> Bytes {
        self.size * u64::from(self.slots)
    }
    /// The slot that `place` means in period `period`.
    pub fn slot(&self, place: u32, period: i64) -> u32 {
        turned(place, self.turn, period, self.slots)
    }
}

impl Ring {
    /// Whether a place means other devices in other periods.
    pub(crate) fn is_turning(&self) -> bool {
        !(self.turn as usize).is_multiple_of(self.devices.len())
    }

    /// The index into `devices` that `place` means in period `period`.
    pub fn index(&self, place: u32, period: i64) -> u32 {
        turned(
            place,
            self.turn,
            period,
            u32::try_from(self.devices.len()).unwrap_or(u32::MAX),
        )
    }
    /// The device that `place` means in period `period`, at coordinate zero.
    pub fn device(&self, place: u32, period: i64) -> DeviceId {
        self.devices[self.index(place, period) as usize]
    }
}

fn turned(place: u32, turn: u32, period: i64, length: u32) -> u32 {
    if turn == 0 && place < length {
        return place;
    }
    let index = i128::from(place) + i128::from(turn) * i128::from(period);
    u32::try_from(index.rem_euclid(i128::from(length))).unwrap_or(0)
}

macro_rules! spelled_with_a_dot {
    ($($name:ident { $head:ident })*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}.{}", self.$head, self.place)
            }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                let parts = text.split_once('.');
                let (head, place) = parts.ok_or_else(|| format!("expected `handle.place`, found `{text}`"))?;
                let number = place.parse().map_err(|_| format!("expected a place, found `{place}`"))?;
                Ok(Self { $head: head.parse()?, place: number })
            }
        }
        held_as_text!($name);
    )*};
}

spelled_with_a_dot! { Place { ring } Row { buffer } }
