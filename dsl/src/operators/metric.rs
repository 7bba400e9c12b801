//! Metrics: what is measured besides the loss, as a mean over all rows of a micro-batch and a
//! reading of the mean over many.
//!
//! They stand in a table of their own, because only `metric` takes them, and because their names
//! must move no name of a parameter: a loss is the same with and without them.

use super::{Operator, loss::targeted};
use crate::{
    Masked, Measure, Mistake, Operation, TensorValue,
    graph::Graph,
    signature::{Arguments, Fallback, optional, required},
};
use roundelay_schedule::Reading;

/// All metrics.
pub const METRICS: [&Operator<Measure>; 2] = [&ACCURACY, &PERPLEXITY];

/// logits (.., v), targets (..) i32 → share of rows whose largest logit is the target's.
const ACCURACY: Operator<Measure> = Operator {
    name: "accuracy",
    summary: "logits (.., v), targets (..) i32 → share of rows whose largest logit is the target's; \
              `masked` as in `cross_entropy`",
    formals: &[
        required("logits"),
        required("targets"),
        optional("masked", Fallback::Truth(false)),
    ],
    build: accuracy,
};

/// logits (.., v), targets (..) i32 → exp of the mean of −log softmax(logits)[target].
const PERPLEXITY: Operator<Measure> = Operator {
    name: "perplexity",
    summary: "logits (.., v), targets (..) i32 → exp of the mean of −log softmax(logits)[target]; \
              `masked` as in `cross_entropy`",
    formals: &[
        required("logits"),
        required("targets"),
        optional("masked", Fallback::Truth(false)),
    ],
    build: perplexity,
};

fn accuracy(arguments: &Arguments, graph: &mut Graph) -> Result<Measure, Mistake> {
    let masked = Masked::of(arguments)?;
    let operands = targeted(arguments, graph, masked)?;
    measure(&operands, graph, Operation::Accuracy { masked }, Reading::Mean)
}

/// The loss makes the same number where its operands are the same; then it is computed once.
fn perplexity(arguments: &Arguments, graph: &mut Graph) -> Result<Measure, Mistake> {
    let masked = Masked::of(arguments)?;
    let operands = targeted(arguments, graph, masked)?;
    measure(&operands, graph, Operation::CrossEntropy { masked }, Reading::Exponential)
}

fn measure(
    operands: &[TensorValue],
    graph: &mut Graph,
    operation: Operation,
    reading: Reading,
) -> Result<Measure, Mistake> {
    let operands: Vec<&TensorValue> = operands.iter().collect();
    let tensor = graph.node("", operation, &operands, Vec::new())?;
    Ok(Measure { name: graph.place(), tensor, reading })
}

/// The metric of a name.
pub(crate) fn metric(name: &str) -> Option<&'static Operator<Measure>> {
    METRICS.into_iter().find(|metric| metric.name == name)
}

/// How every metric is written, for hints.
pub(crate) fn spelled() -> String {
    let one = |metric: &&Operator<Measure>| {
        let formals: Vec<&str> = metric.formals.iter().map(|f| f.name).collect();
        format!("`{}({})`", metric.name, formals.join(", "))
    };
    METRICS.iter().map(one).collect::<Vec<_>>().join(", ")
}
