//! What a row of memory holds, as far as the checker follows it.

use crate::{InputId, MicroBatch, Stage, Sum, ValueId, counted};
use std::fmt;

/// What a row holds. Steps and versions count from the step t of the action that is spoken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held<S = Sum> {
    /// Nothing that may be read.
    Nothing,
    /// θ of a stage: the version.
    Parameter(Stage, i64),
    /// Optimizer state of a stage before the update of a step.
    Optimizer(Stage, i64),
    /// A gradient sum of a stage in a step.
    Gradient(Stage, i64, S),
    /// The square of the norm in a step of the gradients of all stages from one to another one, or of
    /// the parts of them that a row is for.
    Squares([Stage; 2], i64),
    /// What a stage keeps for the backward pass of a micro-batch in a step.
    Activation(Stage, MicroBatch, i64),
    /// What a stage keeps for the weight gradient of a micro-batch in a step.
    Retained(Stage, MicroBatch, i64),
    /// What the input gradient of a micro-batch keeps for its weight gradient.
    Adjoint(Stage, MicroBatch, i64),
    /// A value of a micro-batch in a step.
    Value(ValueId, MicroBatch, i64),
    /// The gradient of such a value, with the contributions of this many stages.
    ValueGradient(ValueId, MicroBatch, i64, u32),
    /// An input of a micro-batch in a step.
    Input(InputId, MicroBatch, i64),
    /// The loss of a micro-batch in a step.
    Metric(MicroBatch, i64),
}

impl<S> Held<S> {
    /// The same with steps counted from `origin`, and the sum as `spell` writes it.
    pub(super) fn seen_from<T>(self, origin: i64, spell: impl FnOnce(S) -> T) -> Held<T> {
        match self {
            Held::Nothing => Held::Nothing,
            Held::Parameter(stage, t) => Held::Parameter(stage, t - origin),
            Held::Optimizer(stage, t) => Held::Optimizer(stage, t - origin),
            Held::Gradient(stage, t, sum) => {
                Held::Gradient(stage, t - origin, spell(sum))
            }
            Held::Squares(stages, t) => Held::Squares(stages, t - origin),
            Held::Activation(stage, i, t) => Held::Activation(stage, i, t - origin),
            Held::Retained(stage, i, t) => Held::Retained(stage, i, t - origin),
            Held::Adjoint(stage, i, t) => Held::Adjoint(stage, i, t - origin),
            Held::Value(value, i, t) => Held::Value(value, i, t - origin),
            Held::ValueGradient(value, i, t, count) => {
                Held::ValueGradient(value, i, t - origin, count)
            }
            Held::Input(input, i, t) => Held::Input(input, i, t - origin),
            Held::Metric(i, t) => Held::Metric(i, t - origin),
        }
    }
}

struct Step(i64);

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("t"),
            ahead @ 1.. => write!(f, "t+{ahead}"),
            behind => write!(f, "t−{}", behind.unsigned_abs()),
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Held::Nothing => f.write_str("nothing"),
            Held::Parameter(stage, t) => write!(f, "θ({stage}, {})", Step(*t)),
            Held::Optimizer(stage, t) => write!(f, "optimizer({stage}, {})", Step(*t)),
            Held::Gradient(stage, t, sum) => {
                write!(f, "gradient({stage}, {}, {})", Step(*t), Spelled(sum))
            }
            Held::Squares([first, last], t) if first == last => {
                write!(f, "squares({first}, {})", Step(*t))
            }
            Held::Squares([first, last], t) => {
                write!(f, "squares({first} to {last}, {})", Step(*t))
            }
            Held::Activation(stage, i, t) => {
                write!(f, "activation({stage}, {i}, {})", Step(*t))
            }
            Held::Retained(stage, i, t) => {
                write!(f, "retained({stage}, {i}, {})", Step(*t))
            }
            Held::Adjoint(stage, i, t) => {
                write!(f, "adjoint({stage}, {i}, {})", Step(*t))
            }
            Held::Value(value, i, t) => write!(f, "value({value}, {i}, {})", Step(*t)),
            Held::ValueGradient(value, i, t, count) => {
                let stages = counted((*count).into(), "stage");
                write!(f, "gradient({value}, {i}, {}, from {stages})", Step(*t))
            }
            Held::Input(input, i, t) => write!(f, "input({input}, {i}, {})", Step(*t)),
            Held::Metric(i, t) => write!(f, "loss({i}, {})", Step(*t)),
        }
    }
}

/// Most gradients of a sum that messages name.
const NAMED: u64 = 24;

/// A sum in messages: `i0+i1 + (i2+i3)`; of a long one the first terms.
pub(super) struct Spelled<'a>(pub(super) &'a Sum);

impl fmt::Display for Spelled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.count();
        if count <= NAMED {
            return Whole(self.0).fmt(f);
        }
        self.0.micro_batches().take(4).try_for_each(|i| write!(f, "{i}+"))?;
        write!(f, "… ({count} gradients)")
    }
}

/// Where two long sums part, and how; nothing where messages name all of both.
pub(super) struct Parting<'a>(pub(super) [&'a Sum; 2]);

impl fmt::Display for Parting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.iter().all(|sum| sum.count() <= NAMED) {
            return Ok(());
        }
        let [own, plan] = self.0.map(|sum| sum.micro_batches().collect::<Vec<_>>());
        let alike = own.iter().zip(&plan).take_while(|(one, other)| one == other).count();
        match (own.get(alike), plan.get(alike)) {
            (Some(one), Some(other)) => {
                write!(f, " (after {alike} gradients {one} comes in place of {other})")
            }
            (Some(one), None) => write!(f, " (after all of those comes {one})"),
            (None, Some(other)) => {
                write!(f, " (after {alike} gradients {other} is missing)")
            }
            (None, None) => f.write_str(" (the same gradients, in other sums of sums)"),
        }
    }
}

/// Where what is held parts from what is expected, if both are long sums.
pub(super) struct Apart<'a>(pub(super) &'a Held, pub(super) &'a Held);

impl fmt::Display for Apart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Held::Gradient(.., own), Held::Gradient(.., plan)) => {
                Parting([own, plan]).fmt(f)
            }
            _ => Ok(()),
        }
    }
}

/// The same with all terms.
struct Whole<'a>(&'a Sum);

impl fmt::Display for Whole<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.parts();
        let plain = parts.iter().all(|part| matches!(part, Sum::One(_)));
        for (position, part) in parts.iter().enumerate() {
            let sign = if plain { "+" } else { " + " };
            f.write_str(if position == 0 { "" } else { sign })?;
            inner(part, f)?;
        }
        Ok(())
    }
}

fn inner(sum: &Sum, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match sum {
        Sum::One(i) => write!(f, "{i}"),
        Sum::Run(_) | Sum::All(_) => write!(f, "({})", Whole(sum)),
    }
}
