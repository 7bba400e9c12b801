//! The operators: one table, one place per operator.
//!
//! An operator declares its name and arguments, and builds nodes and parameters of the graph. To
//! add one, write it in a file of this folder and name it in [`OPERATORS`].

mod absent;
mod attention;
mod elementwise;
mod gated;
mod infix;
mod linear;
mod lookup;
mod loss;
mod metric;
mod normal;
mod rows;
mod vision;

use crate::{
    Measure, Mistake, TensorValue, Value,
    graph::Graph,
    signature::{Arguments, Formal},
};

pub use metric::METRICS;

pub(crate) use absent::absent;
pub(crate) use infix::{add, multiply, negate, scale, subtract};
pub(crate) use metric::{metric, spelled as spelled_metrics};

/// An operator of the language, which makes a tensor, or a metric.
#[derive(Debug)]
pub struct Operator<T = TensorValue> {
    /// Its name.
    pub name: &'static str,
    /// What it computes, with shapes.
    pub summary: &'static str,
    /// Its arguments, in order.
    pub formals: &'static [Formal],
    /// Adds its nodes and parameters at the present path of the graph.
    build: fn(&Arguments, &mut Graph) -> Result<T, Mistake>,
}

/// All operators.
pub const OPERATORS: [&Operator; 29] = [
    &lookup::EMBEDDING,
    &lookup::POSITIONS,
    &linear::LINEAR,
    &attention::ATTENTION,
    &gated::GATED,
    &rows::CLASS_TOKEN,
    &rows::SELECT,
    &normal::LAYER_NORM,
    &vision::CONV2D,
    &vision::PATCHES,
    &vision::MAX_POOL,
    &vision::AVG_POOL,
    &vision::GLOBAL_POOL,
    &vision::UPSAMPLE,
    &normal::BATCH_NORM,
    &normal::GROUP_NORM,
    &normal::RMS_NORM,
    &elementwise::RELU,
    &elementwise::GELU,
    &elementwise::GELU_TANH,
    &elementwise::SILU,
    &elementwise::TANH,
    &elementwise::SOFT_CAP,
    &elementwise::SOFTMAX,
    &elementwise::DROPOUT,
    &elementwise::RESHAPE,
    &loss::CROSS_ENTROPY,
    &loss::LINEAR_CROSS_ENTROPY,
    &loss::MSE,
];

/// The operator of a name.
pub(crate) fn operator(name: &str) -> Option<&'static Operator> {
    OPERATORS.into_iter().find(|operator| operator.name == name)
}

impl<T> Operator<T> {
    /// The arguments that are given, or the first mistake among them.
    pub(crate) fn bind(
        &self,
        given: Vec<(Option<&str>, Value)>,
    ) -> Result<Arguments, Mistake> {
        Arguments::bind(self.name, self.formals, given)
    }
}

impl Operator {
    /// Applies the operator under `name`, which is made unique at the present level.
    pub(crate) fn apply(
        &self,
        name: &str,
        arguments: &Arguments,
        graph: &mut Graph,
    ) -> Result<TensorValue, Mistake> {
        graph.within(name, |graph| (self.build)(arguments, graph))
    }
}

impl Operator<Measure> {
    /// Applies the metric under `name`, which is made unique among the metrics of the present level.
    pub(crate) fn measure(
        &self,
        name: &str,
        arguments: &Arguments,
        graph: &mut Graph,
    ) -> Result<Measure, Mistake> {
        graph.measuring(name, |graph| (self.build)(arguments, graph))
    }
}
