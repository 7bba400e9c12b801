//! Losses: means over all rows, as a single number.

use super::{
    Operator,
    linear::{Drawn, Weight, last_extent},
};
use crate::{
    Chunks, Masked, Mistake, Operation, TensorValue,
    graph::Graph,
    signature::{Arguments, Fallback, missing, optional, required, unfit_shapes},
};

/// logits (.., v), targets (..) i32 → mean of −log softmax(logits)[target].
pub(super) const CROSS_ENTROPY: Operator = Operator {
    name: "cross_entropy",
    summary: "logits (.., v), targets (..) i32 → mean of −log softmax(logits)[target]; \
              `masked = true`: the mean leaves out rows whose target is v",
    formals: &[
        required("logits"),
        required("targets"),
        optional("masked", Fallback::Truth(false)),
    ],
    build: cross_entropy,
};

/// [`CROSS_ENTROPY`] of the logits x · weightᵀ, chunk by chunk; the parameter `weight` (v, m) is drawn
/// as that of `linear`.
pub(super) const LINEAR_CROSS_ENTROPY: Operator = Operator {
    name: "linear_cross_entropy",
    summary: "x (.., m), targets (..) i32 → `cross_entropy` of the logits x · weightᵀ, computed in \
              `chunks` groups of rows, so the full logits never exist (parts of tensors make those of \
              their classes, of all rows at once); `chunks`: by default 8, or fewer if they would have \
              less than 512 rows; `classes`: their number v, or \
              `weight`: a parameter (v, m) that other operators use too; `deviation` as in `linear`; \
              `masked = true`: the mean leaves out rows whose target is v",
    formals: &[
        required("x"),
        required("targets"),
        optional("classes", Fallback::Absent),
        optional("weight", Fallback::Absent),
        optional("deviation", Fallback::Absent),
        optional("chunks", Fallback::Absent),
        optional("masked", Fallback::Truth(false)),
    ],
    build: linear_cross_entropy,
};

/// The most chunks: smaller ones are no faster, and no memory is left to save.
const MOST_CHUNKS: u64 = 1024;

/// a, b of one shape → mean of (a − b)².
pub(super) const MSE: Operator = Operator {
    name: "mse",
    summary: "a, b of one shape → mean of (a − b)²",
    formals: &[required("a"), required("b")],
    build: mse,
};

impl Masked {
    /// What the argument `masked` says.
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Mistake> {
        let masked = arguments.truth("masked")?;
        Ok(if masked { Masked::Yes } else { Masked::No })
    }

    /// Demands targets in this many classes, besides which there may be none; then there are shares.
    fn shares(
        self,
        graph: &mut Graph,
        targets: &TensorValue,
        classes: u64,
    ) -> Option<TensorValue> {
        match self {
            Masked::No => {
                graph.demand_below(targets, classes);
                None
            }
            Masked::Yes => {
                graph.demand_below(targets, classes + 1);
                graph.shares(targets, classes)
            }
        }
    }
}

fn cross_entropy(
    arguments: &Arguments,
    graph: &mut Graph,
) -> Result<TensorValue, Mistake> {
    let masked = Masked::of(arguments)?;
    let operands = targeted(arguments, graph, masked)?;
    let operands: Vec<&TensorValue> = operands.iter().collect();
    let operation = Operation::CrossEntropy { masked };
    graph.node("", operation, &operands, Vec::new())
}

/// `logits` (.., v) and `targets` (..), which are below v, or v where rows are masked; then the
/// shares of rows too.
pub(super) fn targeted(
    arguments: &Arguments,
    graph: &mut Graph,
    masked: Masked,
) -> Result<Vec<TensorValue>, Mistake> {
    let logits = arguments.real_tensor("logits")?;
    let targets = targets_of(arguments, (&logits, "logits"))?;
    let (classes, _) = last_extent(&logits)?;
    let shares = masked.shares(graph, &targets, classes);
    Ok([logits, targets].into_iter().chain(shares).collect())
}

/// One target for every row of an argument.
fn targets_of(
    arguments: &Arguments,
    (of, name): (&TensorValue, &'static str),
) -> Result<TensorValue, Mistake> {
    let targets = arguments.integer_tensor("targets")?;
    let (_, rows) = last_extent(of).map_err(|mistake| mistake.argument(name))?;
    match rows == targets.shape {
        true => Ok(targets),
        false => Err(unfit_shapes("`targets`", rows, &targets.shape).argument("targets")),
    }
}

fn linear_cross_entropy(
    arguments: &Arguments,
    graph: &mut Graph,
) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let targets = targets_of(arguments, (&x, "x"))?;
    let chunks = arguments.optional("chunks", |arguments, name| {
        arguments.whole_in(name, (1, MOST_CHUNKS))
    })?;
    let chunks = chunks.map_or(Chunks::Usual, Chunks::Number);
    let masked = Masked::of(arguments)?;
    let formals = &["x", "targets", "classes"];
    let no_classes = || missing("linear_cross_entropy", "classes", formals);
    let weight = Weight::of(arguments, "classes", no_classes)?;
    let [drawn, _] = Drawn::of(arguments)?.initials(last_extent(&x)?.0);
    let (weight, classes) = weight.tensor(graph, &x, drawn)?;
    let shares = masked.shares(graph, &targets, classes);
    let operands: Vec<&TensorValue> =
        [&x, &weight, &targets].into_iter().chain(&shares).collect();
    let operation = Operation::LinearCrossEntropy { chunks, masked };
    graph.node("", operation, &operands, Vec::new())
}

fn mse(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let [a, b] = [arguments.real_tensor("a")?, arguments.real_tensor("b")?];
    if a.shape != b.shape {
        return Err(unfit_shapes("`b`", &a.shape, &b.shape).argument("b"));
    }
    graph.node("", Operation::MeanSquaredError, &[&a, &b], Vec::new())
}
