//! Normalisation.

use super::{Operator, linear::last_extent};
use crate::{
    Mistake, Operation, Value,
    graph::Graph,
    signature::{Arguments, required},
};
use roundelay_schedule::Initial;

/// x (.., n) → normalised over n with ε = 1e-5; parameters `gain` (n) of ones and `bias` (n) of
/// zeros (arXiv 1607.06450).
pub(super) const LAYER_NORM: Operator = Operator {
    name: "layer_norm",
    summary: "x (.., n) → normalised over n, times a trained gain, plus a trained bias",
    formals: &[required("x")],
    build,
};

fn build(arguments: &Arguments, graph: &mut Graph) -> Result<Value, Mistake> {
    let x = arguments.real_tensor("x")?;
    let (width, _) = last_extent(&x)?;
    let gain = graph.parameter("gain", vec![width], Initial::Constant(1.0))?;
    let bias = graph.parameter("bias", vec![width], Initial::Constant(0.0))?;
    let shape = x.shape.clone();
    graph.node("", Operation::LayerNorm, &[&x, &gain, &bias], shape).map(Value::Tensor)
}
