//! Metrics: what is measured besides the loss, as a mean over all rows of a micro-batch and a
//! reading of the mean over many.
//!
//! They stand in a table of their own, because only `metric` takes them, and because their names
//! must move no name of a parameter: a loss is the same with and without them.

use super::{Operator, loss::targeted};
use crate::{
    Code, Masked, Measure, Mistake, Operation, Source, TensorValue,
    graph::Graph,
    signature::{Arguments, Fallback, missing, optional, required},
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

/// logits (.., v), targets (..) i32 → exp of the mean of −log softmax(logits)[target]; or of such a mean
/// that is there.
const PERPLEXITY: Operator<Measure> = Operator {
    name: "perplexity",
    summary: "logits (.., v), targets (..) i32 → exp of the mean of −log softmax(logits)[target]; \
              `masked` as in `cross_entropy`; `perplexity(mean)`: of such a mean that is there, which \
              `linear_cross_entropy` makes without logits",
    formals: &[
        required("logits"),
        optional("targets", Fallback::Absent),
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
    if arguments.given("targets").is_none() {
        return perplexity_of_mean(arguments, graph);
    }
    let masked = Masked::of(arguments)?;
    let operands = targeted(arguments, graph, masked)?;
    measure(&operands, graph, Operation::CrossEntropy { masked }, Reading::Exponential)
}

/// What a loss has computed says how it counts its rows.
fn perplexity_of_mean(
    arguments: &Arguments,
    graph: &mut Graph,
) -> Result<Measure, Mistake> {
    let tensor = arguments.real_tensor("logits")?;
    let operation = match tensor.source {
        Source::Node(node) => Some(graph.model().nodes[node].operation),
        Source::Input(_) | Source::Parameter(_) => None,
    };
    let is_mean = matches!(
        operation,
        Some(Operation::CrossEntropy { .. } | Operation::LinearCrossEntropy { .. })
    );
    if !is_mean {
        let formals = &["logits", "targets"];
        let hint =
            "or give it the result of `cross_entropy` or `linear_cross_entropy` alone";
        return Err(missing("perplexity", "targets", formals).hint(hint));
    }
    if arguments.truth("masked")? {
        let message = "a mean that is there says itself which rows it leaves out";
        return Err(Mistake::new(Code::Value, message).argument("masked"));
    }
    Ok(Measure { name: graph.place(), tensor, reading: Reading::Exponential })
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
