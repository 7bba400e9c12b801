//! Losses: means over all rows, as a single number.

use super::{Operator, linear::last_extent};
use crate::{
    Mistake, Operation, Tensor, Value,
    graph::Graph,
    signature::{Arguments, required, unfit_shapes},
};

/// logits (.., v), targets (..) i32 → mean of −log softmax(logits)[target].
pub(super) const CROSS_ENTROPY: Operator = Operator {
    name: "cross_entropy",
    summary: "logits (.., v), targets (..) i32 → mean of −log softmax(logits)[target]",
    formals: &[required("logits"), required("targets")],
    build: cross_entropy,
};

/// a, b of one shape → mean of (a − b)².
pub(super) const MSE: Operator = Operator {
    name: "mse",
    summary: "a, b of one shape → mean of (a − b)²",
    formals: &[required("a"), required("b")],
    build: mse,
};

fn cross_entropy(arguments: &Arguments, graph: &mut Graph) -> Result<Value, Mistake> {
    let [logits, targets] = classified(arguments, graph)?;
    let operands = [&logits, &targets];
    graph.node("", Operation::CrossEntropy, &operands, Vec::new()).map(Value::Tensor)
}

/// `logits` (.., v) and `targets` (..), which are below v.
pub(super) fn classified(
    arguments: &Arguments,
    graph: &mut Graph,
) -> Result<[Tensor; 2], Mistake> {
    let logits = arguments.real_tensor("logits")?;
    let targets = arguments.integer_tensor("targets")?;
    let (classes, rows) = last_extent(&logits).map_err(|m| m.argument("logits"))?;
    if rows != targets.shape {
        return Err(unfit_shapes("`targets`", rows, &targets.shape).argument("targets"));
    }
    graph.demand_below(&targets, classes);
    Ok([logits, targets])
}

fn mse(arguments: &Arguments, graph: &mut Graph) -> Result<Value, Mistake> {
    let [a, b] = [arguments.real_tensor("a")?, arguments.real_tensor("b")?];
    if a.shape != b.shape {
        return Err(unfit_shapes("`b`", &a.shape, &b.shape).argument("b"));
    }
    graph.node("", Operation::MeanSquaredError, &[&a, &b], Vec::new()).map(Value::Tensor)
}
