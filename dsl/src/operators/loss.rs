//! Losses: means over all rows, as a single number.

use super::{Operator, linear::last_extent};
use crate::{
    Mistake, Operation, Tensor, Value,
    graph::Graph,
    signature::{Arguments, Fallback, optional, required, unfit_shapes},
};

/// logits (.., v), targets (..) i32 → mean of −log softmax(logits)[target].
pub(super) const CROSS_ENTROPY: Operator = Operator {
    name: "cross_entropy",
    summary: "logits (.., v), targets (..) i32 → mean of −log softmax(logits)[target]; \
              `masked = true`: over the rows whose target is not v",
    formals: &[
        required("logits"),
        required("targets"),
        optional("masked", Fallback::Truth(false)),
    ],
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
    let (operation, more) = match arguments.truth("masked")? {
        true => (Operation::MaskedCrossEntropy, 1),
        false => (Operation::CrossEntropy, 0),
    };
    let [logits, targets] = targeted(arguments, graph, more)?;
    graph.node("", operation, &[&logits, &targets], Vec::new()).map(Value::Tensor)
}

/// `logits` (.., v) and `targets` (..), which are below v.
pub(super) fn classified(
    arguments: &Arguments,
    graph: &mut Graph,
) -> Result<[Tensor; 2], Mistake> {
    targeted(arguments, graph, 0)
}

/// `logits` (.., v) and `targets` (..), which are below v + `more`.
fn targeted(
    arguments: &Arguments,
    graph: &mut Graph,
    more: u64,
) -> Result<[Tensor; 2], Mistake> {
    let logits = arguments.real_tensor("logits")?;
    let targets = arguments.integer_tensor("targets")?;
    let (classes, rows) = last_extent(&logits).map_err(|m| m.argument("logits"))?;
    if rows != targets.shape {
        return Err(unfit_shapes("`targets`", rows, &targets.shape).argument("targets"));
    }
    graph.demand_below(&targets, classes + more);
    Ok([logits, targets])
}

fn mse(arguments: &Arguments, graph: &mut Graph) -> Result<Value, Mistake> {
    let [a, b] = [arguments.real_tensor("a")?, arguments.real_tensor("b")?];
    if a.shape != b.shape {
        return Err(unfit_shapes("`b`", &a.shape, &b.shape).argument("b"));
    }
    graph.node("", Operation::MeanSquaredError, &[&a, &b], Vec::new()).map(Value::Tensor)
}
